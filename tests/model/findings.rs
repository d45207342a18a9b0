//! What the model found, as named cases: seeds change their meaning with the model, these do not.

use crate::model::{Program, Role};
use crate::programs::Did;
use crate::scenarios::{Case, OWNER};

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
    rows.iter().for_each(|id| case.m.want_change(*id));
    while case.step(Role::Canceller, 0) == Did::Work {}
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
