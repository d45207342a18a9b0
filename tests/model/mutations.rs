//! Mistakes that are known to break the promise: the model must find each of them, seeing only what users would see.

use crate::random::quiet;
use crate::schedule;
use crate::setup::Mutation;

/// Steps within which a mistake must be found.
const PATIENCE: u64 = 3_000_000;

fn is_found(mutation: Mutation) {
    let hook = std::panic::take_hook();
    quiet();
    let (mut steps, mut seed) = (0, 1);
    let mut found = None;
    while steps < PATIENCE && found.is_none() {
        let outcome = schedule::run(seed, 1_500, Some(mutation));
        steps += outcome.steps;
        found = outcome.violations.into_iter().next();
        seed += 1;
    }
    std::panic::set_hook(hook);
    println!("{mutation:?}: {found:?} after {steps} steps, seed {}", seed - 1);
    assert!(found.is_some(), "{mutation:?} was not found in {steps} steps");
}

macro_rules! mutations {
    ($($name:ident = $mutation:ident;)*) => {
        $(#[test]
        fn $name() {
            is_found(Mutation::$mutation);
        })*
    };
}

mutations! {
    fence_check_off = FenceCheckOff;
    settle_before_commit = SettleBeforeCommit;
    release_after_unknown_outcome = ReleaseAfterUnknown;
    transactional_id_per_process = TransactionalIdPerProcess;
    page_read_before_the_cursor_commits = PageBeforeCursor;
    cursor_read_before_the_insert_commits = CursorBeforeCommit;
    cancel_without_the_shared_lock = CancelWithoutLock;
    input_position_moved_before_the_effects_are_acked = ConfirmBeforeAcks;
    scan_confirmed_before_the_acks = ScanConfirmBeforeAcks;
    jpos_not_reread = JposNotReread;
    take_over_without_barrier = NoBarrier;
    store_not_reconciled = StoreNotReconciled;
    no_second_look = NoSecondLook;
    records_below_next_applied_again = AppliedAgain;
    effects_not_repeated_below_next = EffectsNotRepeated;
    withdraw_put_over_a_flying_member = WithdrawOverFlying;
    due_position_runs_ahead = DuePosRunsAhead;
    a_withdrawn_row_keeps_its_generation = SameGeneration;
}
