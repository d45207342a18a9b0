use super::*;
use proptest::prelude::*;

fn offer(id: u64, identity: u8, content: u8) -> Offer {
    Offer { id: RowId(id), identity: Identity([identity; 16]), content: ContentHash([content; 16]) }
}

fn known(entries: &[(u8, u64, u8)]) -> HashMap<Identity, Known> {
    let entry = |(identity, id, content): &(u8, u64, u8)| {
        (Identity([*identity; 16]), Known { id: RowId(*id), content: ContentHash([*content; 16]) })
    };
    entries.iter().map(entry).collect()
}

#[test]
fn an_unknown_identity_is_accepted() {
    let judged = judge(&[offer(1, 7, 0)], &known(&[]));
    assert_eq!(judged, Judgement { verdicts: vec![Verdict::Accepted], inserts: vec![0] });
}

#[test]
fn the_same_content_is_a_duplicate_and_another_a_conflict() {
    let judged = judge(&[offer(5, 7, 1), offer(6, 7, 2)], &known(&[(7, 3, 1)]));
    assert_eq!(judged.verdicts, [Verdict::Duplicate { of: RowId(3) }, Verdict::Conflict { of: RowId(3) }]);
    assert!(judged.inserts.is_empty());
}

#[test]
fn within_a_batch_the_first_command_wins() {
    let judged = judge(&[offer(1, 7, 1), offer(2, 7, 1), offer(3, 7, 2)], &known(&[]));
    assert_eq!(
        judged.verdicts,
        [Verdict::Accepted, Verdict::Duplicate { of: RowId(1) }, Verdict::Conflict { of: RowId(1) }]
    );
    assert_eq!(judged.inserts, [0]);
}

#[test]
fn a_command_that_finds_its_own_row_was_accepted_before() {
    let judged = judge(&[offer(4, 7, 1)], &known(&[(7, 4, 1)]));
    assert_eq!(judged.verdicts, [Verdict::AlreadyAccepted]);
    assert!(judged.inserts.is_empty());
}

#[test]
fn inserts_are_sorted_by_identity() {
    let judged = judge(&[offer(1, 9, 0), offer(2, 3, 0), offer(3, 5, 0)], &known(&[]));
    assert_eq!(judged.inserts, [1, 2, 0]);
}

#[test]
fn a_command_older_than_the_window_is_refused() {
    assert!(!is_past_window(1_000, 2_000, 1_000));
    assert!(is_past_window(999, 2_000, 1_000));
    assert!(!is_past_window(5_000, 2_000, 1_000), "a clock behind the broker's makes nothing old");
}

fn placed(id: u64, shard: u16, due_at: i64) -> Placed {
    Placed { id: RowId(id), generation: Generation(1), shard: Shard(shard), due_at }
}

#[test]
fn only_what_lies_at_or_below_the_cursor_is_near() {
    let rows = [placed(1, 0, 99), placed(2, 0, 100), placed(3, 0, 101), placed(4, 1, 100)];
    let cursors = HashMap::from([(Shard(0), 100), (Shard(1), 50)]);
    assert_eq!(near(&rows, &cursors), [0, 1]);
}

#[test]
fn a_row_that_left_between_commit_and_second_look_is_not_emitted() {
    let rows = [placed(1, 0, 1), placed(2, 0, 2)];
    let found = HashSet::from([rows[1].row_gen()]);
    assert_eq!(still_there(&rows, &[0, 1], &found), [1]);
}

#[test]
fn a_row_that_moved_on_to_another_generation_is_not_emitted_with_the_old_one() {
    let rows = [placed(1, 0, 1)];
    let found = HashSet::from([RowGen { id: RowId(1), generation: Generation(2) }]);
    assert!(still_there(&rows, &[0], &found).is_empty());
}

proptest! {
    /// Cutting the same commands into other batches changes no verdict: each is judged against what came before it.
    #[test]
    fn verdicts_do_not_depend_on_how_batches_are_cut(
        commands in prop::collection::vec((0u8..6, 0u8..3), 1..40),
        cut in 0usize..40,
    ) {
        let offers: Vec<Offer> =
            commands.iter().enumerate().map(|(at, (identity, content))| offer(at as u64, *identity, *content)).collect();
        let whole = judge(&offers, &HashMap::new());
        let cut = cut.min(offers.len());
        let first = judge(&offers[..cut], &HashMap::new());
        let stored: HashMap<Identity, Known> = first.inserts.iter()
            .map(|at| (offers[*at].identity, Known { id: offers[*at].id, content: offers[*at].content })).collect();
        let second = judge(&offers[cut..], &stored);
        let both: Vec<Verdict> = first.verdicts.into_iter().chain(second.verdicts).collect();
        prop_assert_eq!(both, whole.verdicts);
    }

    /// Judging a batch again after it was committed inserts nothing and contradicts nothing.
    #[test]
    fn a_batch_judged_twice_inserts_once(commands in prop::collection::vec((0u8..6, 0u8..3), 1..40)) {
        let offers: Vec<Offer> =
            commands.iter().enumerate().map(|(at, (identity, content))| offer(at as u64, *identity, *content)).collect();
        let once = judge(&offers, &HashMap::new());
        let stored: HashMap<Identity, Known> = once.inserts.iter()
            .map(|at| (offers[*at].identity, Known { id: offers[*at].id, content: offers[*at].content })).collect();
        let twice = judge(&offers, &stored);
        prop_assert!(twice.inserts.is_empty());
        for (first, second) in once.verdicts.iter().zip(&twice.verdicts) {
            match first {
                Verdict::Accepted => prop_assert_eq!(*second, Verdict::AlreadyAccepted),
                other => prop_assert_eq!(second, other),
            }
        }
    }
}
