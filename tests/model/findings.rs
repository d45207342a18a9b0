//! What the model found, as named cases: seeds change their meaning with the model, these do not.

use crate::kafka::Op;
use crate::model::{Program, Role};
use crate::programs::Did;
use crate::scenarios::{Case, OWNER};
use protocol::slot_store::model::Damage;
use protocol::state::TaskState;

#[test]
fn intents_beyond_the_cap_of_unsettled_records_survive_a_take_over() {
    let mut case = Case::started(|setup| {
        setup.slot.unsettled_max = 2;
        setup.slot.batch_entries = 1;
        // Two fates: what is read again from `due` soon cannot be judged any more.
        setup.slot.settled_bytes = 200;
    });
    let rows: Vec<_> = (0..8).map(|_| case.submit(1_500, 0)).collect();
    case.pass(100);
    case.stop(OWNER, 0);
    for id in &rows {
        case.m.want_change(*id, Op::Cancel);
    }
    while case.step(Role::Tasks(0), 0) == Did::Work {}
    case.go_on(OWNER, 0);
    let intents = |case: &Case| {
        let prepare = case.m.w.redis[0].store.prepare.values();
        prepare.map(protocol::slot_store::model::ZSet::len).sum::<usize>()
    };
    // All of them stand in Redis, then some are settled: more fates than the next owner will remember.
    for wanted in [rows.len(), rows.len() - 3] {
        for _ in 0..50 {
            if intents(&case) == wanted {
                break;
            }
            case.step(OWNER, 0);
        }
        assert_eq!(intents(&case), wanted, "{}", case.story());
    }
    case.kill(OWNER, 0);
    case.m.spawn(OWNER);
    case.finish();
}

#[test]
fn a_clock_that_steps_back_after_the_claim_tells_no_time_before_the_due_time() {
    let mut case = Case::started(|_| {});
    case.submit(100, 0);
    case.owner_until_all("look_up");
    case.m.w.oracle.clocks_jumped = true;
    if let Program::Dispatcher(dispatcher) = &mut case.actor(OWNER, 0).program {
        dispatcher.skew_ms = -700;
    }
    case.finish();
}

#[test]
fn an_ack_for_an_aborted_delivery_does_not_keep_its_row_from_being_emitted_again() {
    use protocol::ack::Report;
    for report in [Report::Progress, Report::Failed { reason: None, permanent: false }] {
        let mut case = Case::started(|_| {});
        let id = case.submit_on_ack(100);
        case.owner_until_all("commit");
        // Who reads uncommitted has seen it, its transaction is aborted, and Redis loses it.
        case.kill(OWNER, 0);
        let now = case.m.w.now;
        case.m.w.kafka.time_out(0, now);
        case.m.w.kafka.mark_all(now);
        case.say_of(id, 1, report);
        case.pass(20_000);
        case.m.w.redis[0].store.damage(&Damage::All);
        case.m.spawn(OWNER);
        case.end(id, TaskState::Done);
    }
}
