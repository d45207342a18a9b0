use super::*;
use crate::ack::Report;
use crate::change::{Answer, Intent, Refused, Reschedule};
use crate::life::testing::{
    DUE_AT, SHARD, TASKS, ack, command, ended, failed, held, intent, key, life, on_ack, only_row, parked,
    pending, progress, row_id, running, waiting, waits, working,
};
use crate::life::{Closed, Effects, Open};
use proptest::prelude::*;
use schemas::delivery::DeadReason;
use schemas::ids::Shard;
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};

/// When the dispatcher decided, by its clock.
const AT: i64 = DUE_AT + 34;

fn entry(kind: EntryKind, id: RowId, generation: u32) -> JournalEntry {
    JournalEntry {
        kind,
        shard: SHARD,
        due_at: DUE_AT,
        id,
        generation: Generation(generation),
        at: AT,
        reason: None,
    }
}

fn done(id: RowId, generation: u32, state: TaskState) -> Held {
    ended(id, generation, state, AT)
}

fn noted(row: Held) -> Held {
    waiting(row, |waiting| waiting.noted = true)
}

fn applied_with(entries: &[JournalEntry], rows: &[Held], open: &[Open]) -> Effects {
    let mut life = life(rows, open);
    decide(entries, &mut life, &Nexts::new()).unwrap();
    life.into_effects()
}

fn applied(entries: &[JournalEntry], rows: &[Held]) -> Effects {
    applied_with(entries, rows, &[])
}

#[test]
fn a_delivered_row_leaves_pending_and_is_done() {
    let id = row_id(5);
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[pending(id, 1)]);
    assert_eq!(only_row(&effects), &done(id, 1, TaskState::Done));
    assert!(effects.look.is_empty() && effects.alarms.is_empty());
}

#[test]
fn a_buried_row_leaves_pending_and_is_dead() {
    let id = row_id(5);
    let effects = applied(&[entry(EntryKind::Buried, id, 1)], &[pending(id, 1)]);
    assert_eq!(only_row(&effects), &done(id, 1, TaskState::Dead));
}

#[test]
fn a_delivered_row_that_completes_on_ack_waits_for_its_consumer_until_its_time_out() {
    let id = row_id(5);
    let mut live = on_ack();
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[waits(id, 1, live.clone())]);
    assert_eq!(only_row(&effects), &running(id, 1, AT + 900_000));
    live.options.ack_timeout_ms = Some(5_000);
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[waits(id, 1, live)]);
    let Place::Running(row) = &only_row(&effects).place else { panic!("{effects:?}") };
    assert_eq!((row.key.due_at, row.due_at), (AT + 5_000, DUE_AT));
}

#[test]
fn a_row_withdrawn_without_an_intent_goes_on_at_the_same_due_time_with_the_next_generation() {
    let id = row_id(5);
    let effects = applied(&[entry(EntryKind::Withdrawn, id, 1)], &[pending(id, 1)]);
    assert_eq!(only_row(&effects), &pending(id, 2));
    assert!(effects.look.contains(&id), "whoever commits it looks whether it is to be emitted");
}

#[test]
fn a_stale_record_hands_its_row_back_unchanged() {
    let id = row_id(5);
    let effects = applied(&[entry(EntryKind::Stale, id, 1)], &[pending(id, 1)]);
    let handed_back = vec![HandedBack { key: key(id, DUE_AT), generation: Generation(1) }];
    assert_eq!(effects, Effects { handed_back, ..Effects::default() });
}

#[test]
fn a_stale_copy_of_a_record_that_was_settled_is_nothing() {
    let id = row_id(5);
    let stale = [entry(EntryKind::Stale, id, 1)];
    for row in [done(id, 1, TaskState::Done), pending(id, 2), running(id, 1, AT), running(id, 2, AT)] {
        assert_eq!(applied(&stale, &[row]), Effects::default());
    }
    assert_eq!(applied(&stale, &[]), Effects::default());
}

#[test]
fn entries_of_one_row_in_one_batch_see_each_other() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Withdrawn, id, 1), entry(EntryKind::Delivered, id, 2)];
    assert_eq!(only_row(&applied(&entries, &[pending(id, 1)])), &done(id, 2, TaskState::Done));
    let entries = [entry(EntryKind::Stale, id, 1), entry(EntryKind::Delivered, id, 1)];
    let effects = applied(&entries, &[pending(id, 1)]);
    assert_eq!(only_row(&effects), &done(id, 1, TaskState::Done));
    assert!(effects.handed_back.is_empty());
}

#[test]
fn a_second_fate_of_one_generation_is_an_alarm_and_changes_nothing() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Delivered, id, 1), entry(EntryKind::Delivered, id, 1)];
    let twice = Alarm::SettledTwice { id, settled: Generation(1), found: Generation(1) };
    let effects = applied(&entries, &[pending(id, 1)]);
    assert_eq!(only_row(&effects), &done(id, 1, TaskState::Done));
    assert_eq!(effects.alarms, std::slice::from_ref(&twice));
    let effects = applied(&entries[..1], &[running(id, 1, AT)]);
    assert_eq!(effects, Effects { alarms: vec![twice], ..Effects::default() });
}

#[test]
fn a_fate_of_an_older_generation_is_an_alarm() {
    let id = row_id(5);
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[pending(id, 2)]);
    let alarms = vec![Alarm::SettledTwice { id, settled: Generation(1), found: Generation(2) }];
    assert_eq!(effects, Effects { alarms, ..Effects::default() });
}

#[test]
fn a_fate_from_ahead_is_applied_forward() {
    let id = row_id(5);
    let to = |kind, row| only_row(&applied(&[entry(kind, id, 4)], &[row])).clone();
    assert_eq!(to(EntryKind::Delivered, pending(id, 1)), done(id, 4, TaskState::Done));
    assert_eq!(to(EntryKind::Withdrawn, pending(id, 1)), pending(id, 5));
    assert_eq!(to(EntryKind::Buried, ended(id, 1, TaskState::Dead, 9)), done(id, 4, TaskState::Dead));
    assert_eq!(to(EntryKind::Delivered, ended(id, 1, TaskState::Dead, 9)), done(id, 4, TaskState::Done));
}

#[test]
fn an_attempt_from_ahead_of_a_running_row_is_applied_forward() {
    let id = row_id(5);
    let to = |kind| only_row(&applied(&[entry(kind, id, 4)], &[running(id, 1, AT)])).clone();
    let second = |row: Held| Held { attempt: 2, ..row };
    assert_eq!(to(EntryKind::Delivered), second(running(id, 4, AT + 900_000)));
    assert_eq!(to(EntryKind::Withdrawn), second(waits(id, 5, on_ack())));
    assert_eq!(to(EntryKind::Buried), second(done(id, 4, TaskState::Dead)));
}

#[test]
fn a_task_that_ended_otherwise_is_not_brought_back_from_ahead() {
    let id = row_id(5);
    for state in [TaskState::Done, TaskState::Cancelled] {
        let effects = applied(&[entry(EntryKind::Delivered, id, 2)], &[ended(id, 1, state, 9)]);
        let alarms = vec![Alarm::FromAhead { id, said: Generation(2), found: Generation(1) }];
        assert_eq!(effects, Effects { alarms, ..Effects::default() });
    }
}

#[test]
fn a_miss_whose_command_is_not_applied_yet_waits_for_its_source() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Delivered, id, 1)];
    let behind = Err(Hold::SourceBehind { id });
    assert_eq!(decide(&entries, &mut Life::default(), &Nexts::new()), behind);
    assert_eq!(decide(&entries, &mut Life::default(), &Nexts::from([((TASKS, 1), 5)])), behind);
}

#[test]
fn any_other_miss_is_an_alarm() {
    let id = row_id(5);
    let mut life = Life::default();
    decide(&[entry(EntryKind::Delivered, id, 1)], &mut life, &Nexts::from([((TASKS, 1), 6)])).unwrap();
    let alarms = vec![Alarm::UnknownRow { id, generation: Generation(1) }];
    assert_eq!(life.into_effects(), Effects { alarms, ..Effects::default() });
}

#[test]
fn what_the_compensator_noted_is_forgotten_with_its_generation() {
    let id = row_id(5);
    let row = noted(pending(id, 1));
    for kind in [EntryKind::Delivered, EntryKind::Withdrawn] {
        assert_eq!(applied(&[entry(kind, id, 1)], std::slice::from_ref(&row)).forgotten, [key(id, DUE_AT)]);
    }
    assert!(applied(&[entry(EntryKind::Stale, id, 1)], &[row]).forgotten.is_empty());
}

#[test]
fn the_row_is_changed_where_it_lies_now() {
    // A split moved it to another shard after the entry was written.
    let id = row_id(5);
    let row = waiting(pending(id, 1), |waiting| waiting.key.shard = Shard(67));
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[row]);
    assert_eq!(effects.moved[0].from.pending_key().map(|key| key.shard), Some(Shard(67)));
}

#[test]
fn a_live_task_without_a_body_is_an_alarm_and_ends_as_the_journal_says() {
    let id = row_id(5);
    let row = held(id, 1, Place::Bodiless(TaskState::Scheduled));
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[row]);
    assert_eq!(only_row(&effects), &done(id, 1, TaskState::Done));
    assert_eq!(effects.alarms, [Alarm::Bodiless { id }]);
    let row = held(id, 1, Place::Bodiless(TaskState::Running));
    let effects = applied(&[entry(EntryKind::Delivered, id, 1)], &[row]);
    assert!(effects.moved.is_empty() && effects.alarms == [Alarm::Bodiless { id }]);
}

const CANCEL: Intent = Intent::Cancel;

fn later(by: i64) -> Intent {
    Intent::Reschedule(Reschedule { due_at: DUE_AT + by, expires_at: None })
}

/// Intents of generation 1 in command order, and what the entry of that generation answers and makes of the row.
fn settled(kind: EntryKind, row: Held, intents: &[Intent]) -> (Vec<Option<Answer>>, Held) {
    let id = row.id;
    // Handed over in another order: the decision has to put them right.
    let numbered = (0..intents.len()).rev();
    let open: Vec<Open> =
        numbered.map(|n| intent(command(n as i64), id, row.generation.0, intents[n])).collect();
    let effects = applied_with(&[entry(kind, id, row.generation.0)], &[row], &open);
    assert!(effects.alarms.is_empty(), "{effects:?}");
    let commands: Vec<RowId> = effects.closed.iter().map(|closed| closed.command).collect();
    let wanted: Vec<RowId> = (0..intents.len() as i64).map(command).collect();
    assert_eq!(commands, wanted, "every intent is closed");
    (effects.closed.iter().map(|closed| closed.answer).collect(), only_row(&effects).clone())
}

fn moved(id: RowId, generation: u32, due_at: i64) -> Held {
    waiting(pending(id, generation), |waiting| waiting.key.due_at = due_at)
}

#[test]
fn a_withdrawn_row_follows_its_intents_in_command_order_with_one_new_generation() {
    let id = row_id(5);
    let (accepted, cancelled) = (Some(Answer::Accepted), Some(Answer::Cancelled));
    let folded = |intents: &[Intent]| settled(EntryKind::Withdrawn, pending(id, 1), intents);
    assert_eq!(folded(&[later(50)]), (vec![accepted], moved(id, 2, DUE_AT + 50)));
    assert_eq!(folded(&[later(50), later(-70)]), (vec![accepted; 2], moved(id, 2, DUE_AT - 70)));
    assert_eq!(folded(&[CANCEL]), (vec![cancelled], done(id, 1, TaskState::Cancelled)));
    let both = (vec![accepted, cancelled], done(id, 1, TaskState::Cancelled));
    assert_eq!(folded(&[later(50), CANCEL]), both);
    let three = (vec![cancelled; 3], done(id, 1, TaskState::Cancelled));
    assert_eq!(folded(&[CANCEL, later(50), CANCEL]), three);
}

#[test]
fn a_finish_among_the_intents_ends_a_withdrawn_row_as_done() {
    let id = row_id(5);
    let sent = Some(Answer::AlreadySent);
    let folded = |intents: &[Intent]| settled(EntryKind::Withdrawn, waits(id, 2, on_ack()), intents);
    assert_eq!(folded(&[Intent::Finish]), (vec![None], done(id, 2, TaskState::Done)));
    let after = (vec![None, sent, sent], done(id, 2, TaskState::Done));
    assert_eq!(folded(&[Intent::Finish, CANCEL, later(5)]), after);
    let before = (vec![Some(Answer::Cancelled), None], done(id, 2, TaskState::Cancelled));
    assert_eq!(folded(&[CANCEL, Intent::Finish]), before);
}

#[test]
fn a_reschedule_behind_the_expiry_is_rejected_by_what_holds_when_its_turn_comes() {
    let id = row_id(5);
    let row = waiting(pending(id, 1), |waiting| waiting.live.options.expires_at = Some(DUE_AT + 100));
    let prolonged = Intent::Reschedule(Reschedule { due_at: DUE_AT + 50, expires_at: Some(DUE_AT + 500) });
    let too_late = Some(Answer::Rejected(Refused::ExpiresBeforeDue));
    let (answers, row_then) =
        settled(EntryKind::Withdrawn, row.clone(), &[later(200), prolonged, later(200)]);
    assert_eq!(answers, [too_late, Some(Answer::Accepted), Some(Answer::Accepted)]);
    assert_eq!(row_then.pending_key(), Some(key(id, DUE_AT + 200)));
    let (answers, row_then) = settled(EntryKind::Withdrawn, row, &[later(101)]);
    assert_eq!(answers, [too_late]);
    assert_eq!((row_then.pending_key(), row_then.generation), (Some(key(id, DUE_AT)), Generation(2)));
}

#[test]
fn a_rescheduled_row_asked_for_what_it_got() {
    // A spread is not applied again, so the header asked-at would speak of another due time.
    let id = row_id(5);
    let row = waiting(pending(id, 1), |waiting| waiting.live.options.asked_at = Some(DUE_AT - 9));
    let (_, row) = settled(EntryKind::Withdrawn, row, &[later(1)]);
    let Place::Pending(waiting) = row.place else { panic!() };
    assert_eq!(waiting.live.options.asked_at, None);
}

#[test]
fn intents_of_a_delivered_row_come_too_late() {
    let id = row_id(5);
    let sent = Some(Answer::AlreadySent);
    let (answers, row) = settled(EntryKind::Delivered, pending(id, 1), &[later(5), CANCEL]);
    assert_eq!((answers, row), (vec![sent, sent], done(id, 1, TaskState::Done)));
    let on_ack = || waits(id, 1, on_ack());
    let (answers, row) = settled(EntryKind::Delivered, on_ack(), &[later(5)]);
    assert_eq!((answers, row), (vec![sent], running(id, 1, AT + 900_000)));
}

#[test]
fn a_cancel_that_came_too_late_stops_further_attempts() {
    let id = row_id(5);
    let (answers, row) = settled(EntryKind::Delivered, waits(id, 1, on_ack()), &[CANCEL]);
    assert_eq!(answers, [Some(Answer::AlreadySent)]);
    assert_eq!(row, working(running(id, 1, AT + 900_000), |working| working.stop = true));
}

#[test]
fn a_delivered_row_that_an_earlier_attempt_finished_is_done() {
    let id = row_id(5);
    let (answers, row) = settled(EntryKind::Delivered, waits(id, 2, on_ack()), &[Intent::Finish, CANCEL]);
    assert_eq!((answers, row), (vec![None, Some(Answer::AlreadySent)], done(id, 2, TaskState::Done)));
}

#[test]
fn intents_of_a_buried_row_are_rejected() {
    let id = row_id(5);
    let dead = Some(Answer::Rejected(Refused::Dead));
    let (answers, row) = settled(EntryKind::Buried, pending(id, 1), &[CANCEL, later(5), Intent::Finish]);
    assert_eq!((answers, row), (vec![dead, dead, None], done(id, 1, TaskState::Dead)));
}

#[test]
fn a_row_that_is_to_be_buried_can_be_cancelled_but_not_moved() {
    let id = row_id(5);
    let row = || waiting(waits(id, 3, on_ack()), |waiting| waiting.bury = Some(DeadReason::Failed));
    let (answers, then) = settled(EntryKind::Withdrawn, row(), &[later(5)]);
    assert_eq!(answers, [Some(Answer::Rejected(Refused::Dead))]);
    assert_eq!(then, Held { generation: Generation(4), ..row() });
    let (answers, then) = settled(EntryKind::Withdrawn, row(), &[CANCEL]);
    assert_eq!((answers, then), (vec![Some(Answer::Cancelled)], done(id, 3, TaskState::Cancelled)));
}

#[test]
fn intents_of_a_later_generation_wait_for_their_own_entry() {
    let id = row_id(5);
    let open = [intent(command(1), id, 2, CANCEL)];
    let effects = applied_with(&[entry(EntryKind::Stale, id, 1)], &[pending(id, 2)], &open);
    assert_eq!(effects, Effects::default());
}

#[test]
fn acks_that_came_before_the_entry_of_their_delivery_are_applied_with_it_in_their_order() {
    let id = row_id(5);
    let open = [
        parked(ack(2, AT + 700_000, id, 1, failed())),
        parked(ack(1, AT + 5, id, 1, progress(b"half"))),
        parked(ack(3, AT + 9, id, 1, failed())),
    ];
    let effects = applied_with(&[entry(EntryKind::Delivered, id, 1)], &[waits(id, 1, on_ack())], &open);
    let closed: Vec<RowId> = effects.closed.iter().map(|closed| closed.command).collect();
    assert_eq!(closed, [1, 2, 3].map(crate::life::testing::ack_id), "all are gone, the doubled one too");
    assert!(effects.closed.iter().all(|closed| closed.answer.is_none()));
    let row = only_row(&effects);
    let Place::Pending(waiting) = &row.place else { panic!("{row:?}") };
    assert_eq!((row.generation, row.attempt, waiting.live.failures), (Generation(2), 2, 1));
    assert!((820_000..=850_000).contains(&(waiting.key.due_at - AT)), "the pause counts from the ack");
    assert_eq!(
        waiting.live.options.progress.as_deref(),
        Some(&b"half"[..]),
        "the next attempt goes on from there"
    );
    assert!(effects.look.contains(&id));
}

#[test]
fn a_parked_failure_of_a_stopped_task_cancels_it() {
    let id = row_id(5);
    let open = [intent(command(1), id, 1, CANCEL), parked(ack(2, AT + 7, id, 1, failed()))];
    let effects = applied_with(&[entry(EntryKind::Delivered, id, 1)], &[waits(id, 1, on_ack())], &open);
    assert_eq!(only_row(&effects), &ended(id, 1, TaskState::Cancelled, AT + 7));
    let answers: Vec<_> = effects.closed.iter().map(|closed| closed.answer).collect();
    assert_eq!(answers, [Some(Answer::AlreadySent), None]);
}

#[test]
fn acks_of_a_delivery_that_was_never_visible_go_with_its_generation() {
    // A consumer that reads uncommitted saw it, and the transaction was aborted.
    let id = row_id(5);
    let open = [parked(ack(2, AT, id, 1, failed()))];
    for kind in [EntryKind::Withdrawn, EntryKind::Buried] {
        let effects = applied_with(&[entry(kind, id, 1)], &[waits(id, 1, on_ack())], &open);
        let gone = Closed { command: crate::life::testing::ack_id(2), answer: None };
        assert_eq!(effects.closed, [gone]);
        assert!(!matches!(only_row(&effects).place, Place::Running(_)));
    }
}

fn record(kind: JournalKind, cold: bool, backlog: i64) -> JournalRecord {
    let token = OwnerToken(1);
    JournalRecord {
        token,
        kind,
        cold,
        backlog,
        credit: backlog * 2,
        local_at: 0,
        redis_at: 0,
        entries: vec![],
    }
}

#[test]
fn the_last_heartbeat_of_a_batch_counts() {
    let (a, b) = (record(JournalKind::Batch, false, 5), record(JournalKind::Batch, false, 7));
    let beat = Beat::fold([(100, &a), (200, &b)]);
    assert_eq!(beat, Some(Beat { hb_at: 200, backlog: Some(7), credit: Some(14), cold_upto: None }));
    assert_eq!(Beat::fold([]), None);
}

#[test]
fn a_cold_barrier_opens_everything_due_until_then() {
    let barrier = record(JournalKind::Barrier, true, 0);
    let beat = Beat::fold([(100, &barrier)]);
    assert_eq!(beat, Some(Beat { hb_at: 100, backlog: None, credit: None, cold_upto: Some(100) }));
    let warm = record(JournalKind::Barrier, false, 0);
    assert_eq!(Beat::fold([(100, &warm)]).unwrap().cold_upto, None);
}

/// Applies effects to rows, as the transaction does.
fn commit(rows: &mut [Held], open: &mut Vec<Open>, effects: &Effects) {
    for moved in &effects.moved {
        let row = rows.iter_mut().find(|row| row.id == moved.from.id).unwrap();
        assert_eq!(row, &moved.from);
        *row = moved.to.clone();
    }
    for back in &effects.handed_back {
        let row = rows.iter_mut().find(|row| row.id == back.key.id).unwrap();
        *row = noted(row.clone());
    }
    open.retain(|open| effects.closed.iter().all(|closed| closed.command != open.command));
}

fn any_entry() -> impl Strategy<Value = JournalEntry> {
    let kinds = [EntryKind::Delivered, EntryKind::Withdrawn, EntryKind::Buried, EntryKind::Stale];
    (prop::sample::select(kinds.to_vec()), 0i64..4, 1u32..4)
        .prop_map(|(kind, row, generation)| entry(kind, row_id(row), generation))
}

fn any_open() -> impl Strategy<Value = Vec<Open>> {
    let what = prop_oneof![
        Just(CANCEL).prop_map(What::Intent),
        (-9i64..9).prop_map(|by| What::Intent(later(by))),
        Just(What::Intent(Intent::Finish)),
        Just(failed()).prop_map(|report| What::Parked(ack(0, AT + 3, row_id(0), 1, report))),
        Just((Report::Progress, None)).prop_map(|report| What::Parked(ack(0, AT + 3, row_id(0), 1, report))),
    ];
    prop::collection::vec((what, 0i64..4, 1u32..3), 0..8).prop_map(|opens| {
        let numbered = opens.into_iter().zip(0..);
        let open = numbered.map(|((what, row, generation), n)| {
            let (command, id, generation) = (command(n), row_id(row), Generation(generation));
            let what = match what {
                What::Parked(ack) => What::Parked(ack::Ack { command, id, generation, ..ack }),
                intent @ What::Intent(_) => intent,
            };
            Open { command, id, generation, what }
        });
        open.collect()
    })
}

fn start() -> Vec<Held> {
    (0..4)
        .map(|row| if row % 2 == 0 { pending(row_id(row), 1) } else { waits(row_id(row), 1, on_ack()) })
        .collect()
}

proptest! {
    /// How the journal is cut into batches changes nothing about where rows and intents end.
    #[test]
    fn rows_do_not_depend_on_how_the_journal_is_cut(
        entries in prop::collection::vec(any_entry(), 0..20),
        open in any_open(),
        cut in 0usize..20,
    ) {
        let (mut whole, mut whole_open) = (start(), open.clone());
        let effects = applied_with(&entries, &whole, &whole_open);
        commit(&mut whole, &mut whole_open, &effects);
        let (alarms, mut closed) = (effects.alarms, effects.closed);

        let (mut parts, mut parts_open) = (start(), open);
        let cut = cut.min(entries.len());
        let (mut alarms_of_parts, mut closed_of_parts) = (vec![], vec![]);
        for part in [&entries[..cut], &entries[cut..]] {
            let effects = applied_with(part, &parts, &parts_open);
            commit(&mut parts, &mut parts_open, &effects);
            alarms_of_parts.extend(effects.alarms);
            closed_of_parts.extend(effects.closed);
        }
        closed.sort_unstable_by_key(|closed| closed.command);
        closed_of_parts.sort_unstable_by_key(|closed| closed.command);
        prop_assert_eq!(&parts, &whole);
        prop_assert_eq!(parts_open, whole_open);
        prop_assert_eq!(alarms_of_parts, alarms);
        prop_assert_eq!(closed_of_parts, closed);
    }

    /// After a fate of a generation nothing of it is open any more, and commands have their answers.
    #[test]
    fn a_fate_leaves_nothing_open(kind in 0usize..3, row in 0i64..4, open in any_open()) {
        let kind = [EntryKind::Delivered, EntryKind::Withdrawn, EntryKind::Buried][kind];
        let (mut rows, mut left) = (start(), open.clone());
        let effects = applied_with(&[entry(kind, row_id(row), 1)], &rows, &left);
        commit(&mut rows, &mut left, &effects);
        prop_assert!(left.iter().all(|open| open.id != row_id(row) || open.generation > Generation(1)));
        for closed in &effects.closed {
            let one = open.iter().find(|open| open.command == closed.command).unwrap();
            let asks = matches!(one.what, What::Intent(Intent::Cancel | Intent::Reschedule(_)));
            prop_assert_eq!(closed.answer.is_some(), asks);
        }
    }
}
