use super::*;
use proptest::prelude::*;
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};

const SHARD: Shard = Shard(3);
const DUE_AT: i64 = 1_000;

fn row_id(offset: i64) -> RowId {
    RowId::pack(SourceId(2), 1, offset).unwrap()
}

fn entry(kind: EntryKind, id: RowId, generation: u32) -> JournalEntry {
    JournalEntry {
        kind,
        shard: SHARD,
        due_at: DUE_AT,
        id,
        generation: Generation(generation),
        at: 1_234,
        reason: None,
    }
}

fn key(id: RowId) -> RowKey {
    RowKey { shard: SHARD, due_at: DUE_AT, id }
}

fn pending(id: RowId, generation: u32) -> Row {
    Row::Pending(PendingRow {
        key: key(id),
        generation: Generation(generation),
        completion: Completion::OnDelivery,
        noted: false,
    })
}

fn noted(row: Row) -> Row {
    match row {
        Row::Pending(row) => Row::Pending(PendingRow { noted: true, ..row }),
        other => other,
    }
}

fn with(rows: &[(RowId, Row)]) -> HashMap<RowId, Row> {
    rows.iter().copied().collect()
}

fn applied(entries: &[JournalEntry], rows: &[(RowId, Row)]) -> Changes {
    decide(entries, with(rows), &Nexts::new()).unwrap()
}

fn finished(id: RowId, state: TaskState, generation: u32) -> Finished {
    let generation = Generation(generation);
    Finished { id, pending: Some(key(id)), state, generation, finished_at: 1_234 }
}

#[test]
fn a_delivered_row_leaves_pending_and_is_done() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Delivered, id, 1)], &[(id, pending(id, 1))]);
    assert_eq!(changes, Changes { finished: vec![finished(id, TaskState::Done, 1)], ..Changes::default() });
}

#[test]
fn a_buried_row_leaves_pending_and_is_dead() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Buried, id, 1)], &[(id, pending(id, 1))]);
    assert_eq!(changes, Changes { finished: vec![finished(id, TaskState::Dead, 1)], ..Changes::default() });
}

#[test]
fn a_row_withdrawn_without_an_intent_goes_on_at_the_same_due_time_with_the_next_generation() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Withdrawn, id, 1)], &[(id, pending(id, 1))]);
    let renewed = vec![Renewed { key: key(id), generation: Generation(2) }];
    assert_eq!(changes, Changes { renewed, ..Changes::default() });
}

#[test]
fn a_stale_record_hands_its_row_back_unchanged() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Stale, id, 1)], &[(id, pending(id, 1))]);
    let handed_back = vec![HandedBack { key: key(id), generation: Generation(1) }];
    assert_eq!(changes, Changes { handed_back, ..Changes::default() });
}

#[test]
fn a_stale_copy_of_a_record_that_was_settled_is_nothing() {
    let id = row_id(5);
    let over = Row::Final { generation: Generation(1) };
    assert_eq!(applied(&[entry(EntryKind::Stale, id, 1)], &[(id, over)]), Changes::default());
    assert_eq!(applied(&[entry(EntryKind::Stale, id, 1)], &[(id, pending(id, 2))]), Changes::default());
    assert_eq!(applied(&[entry(EntryKind::Stale, id, 1)], &[]), Changes::default());
}

#[test]
fn entries_of_one_row_in_one_batch_see_each_other() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Withdrawn, id, 1), entry(EntryKind::Delivered, id, 2)];
    let changes = applied(&entries, &[(id, pending(id, 1))]);
    assert_eq!(changes, Changes { finished: vec![finished(id, TaskState::Done, 2)], ..Changes::default() });
    let entries = [entry(EntryKind::Stale, id, 1), entry(EntryKind::Delivered, id, 1)];
    let changes = applied(&entries, &[(id, pending(id, 1))]);
    assert_eq!(changes, Changes { finished: vec![finished(id, TaskState::Done, 1)], ..Changes::default() });
}

#[test]
fn a_second_fate_of_one_generation_is_an_alarm_and_changes_nothing() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Delivered, id, 1), entry(EntryKind::Delivered, id, 1)];
    let changes = applied(&entries, &[(id, pending(id, 1))]);
    assert_eq!(changes.finished, [finished(id, TaskState::Done, 1)]);
    let twice = Alarm::SettledTwice { id, settled: Generation(1), found: Generation(1) };
    assert_eq!(changes.alarms, [twice]);
}

#[test]
fn a_fate_of_an_older_generation_is_an_alarm() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Delivered, id, 1)], &[(id, pending(id, 2))]);
    let alarms = vec![Alarm::SettledTwice { id, settled: Generation(1), found: Generation(2) }];
    assert_eq!(changes, Changes { alarms, ..Changes::default() });
}

#[test]
fn a_fate_from_ahead_is_applied_forward() {
    let id = row_id(5);
    let changes = applied(&[entry(EntryKind::Delivered, id, 4)], &[(id, pending(id, 1))]);
    assert_eq!(changes.finished, [finished(id, TaskState::Done, 4)]);
    let changes = applied(&[entry(EntryKind::Withdrawn, id, 4)], &[(id, pending(id, 1))]);
    assert_eq!(changes.renewed, [Renewed { key: key(id), generation: Generation(5) }]);
    let over = Row::Final { generation: Generation(1) };
    let changes = applied(&[entry(EntryKind::Buried, id, 2)], &[(id, over)]);
    assert_eq!(changes.finished, [Finished { pending: None, ..finished(id, TaskState::Dead, 2) }]);
}

#[test]
fn a_miss_whose_command_is_not_applied_yet_waits_for_its_source() {
    let id = row_id(5);
    let entries = [entry(EntryKind::Delivered, id, 1)];
    let behind = Err(Hold::SourceBehind { id });
    assert_eq!(decide(&entries, HashMap::new(), &Nexts::new()), behind);
    assert_eq!(decide(&entries, HashMap::new(), &Nexts::from([((SourceId(2), 1), 5)])), behind);
}

#[test]
fn any_other_miss_is_an_alarm() {
    let id = row_id(5);
    let nexts = Nexts::from([((SourceId(2), 1), 6)]);
    let changes = decide(&[entry(EntryKind::Delivered, id, 1)], HashMap::new(), &nexts).unwrap();
    let alarms = vec![Alarm::UnknownRow { id, generation: Generation(1) }];
    assert_eq!(changes, Changes { alarms, ..Changes::default() });
}

#[test]
fn a_task_that_completes_on_ack_holds_the_batch_instead_of_losing_its_consumer() {
    let id = row_id(5);
    let row =
        PendingRow { key: key(id), generation: Generation(1), completion: Completion::OnAck, noted: false };
    let held = decide(&[entry(EntryKind::Delivered, id, 1)], with(&[(id, Row::Pending(row))]), &Nexts::new());
    assert_eq!(held, Err(Hold::CompletesOnAck { id }));
}

#[test]
fn what_the_compensator_noted_is_forgotten_with_its_generation() {
    let id = row_id(5);
    let row = noted(pending(id, 1));
    assert_eq!(applied(&[entry(EntryKind::Delivered, id, 1)], &[(id, row)]).forgotten, [key(id)]);
    assert_eq!(applied(&[entry(EntryKind::Withdrawn, id, 1)], &[(id, row)]).forgotten, [key(id)]);
    assert!(applied(&[entry(EntryKind::Stale, id, 1)], &[(id, row)]).forgotten.is_empty());
}

#[test]
fn the_row_is_changed_where_it_lies_now() {
    // A split moved it to another shard after the entry was written.
    let id = row_id(5);
    let moved = RowKey { shard: Shard(67), ..key(id) };
    let row = PendingRow {
        key: moved,
        generation: Generation(1),
        completion: Completion::OnDelivery,
        noted: false,
    };
    let changes = applied(&[entry(EntryKind::Delivered, id, 1)], &[(id, Row::Pending(row))]);
    assert_eq!(changes.finished[0].pending, Some(moved));
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

/// Applies changes to rows, as the transaction does.
fn commit(rows: &mut HashMap<RowId, Row>, changes: &Changes) {
    for row in &changes.finished {
        rows.insert(row.id, Row::Final { generation: row.generation });
    }
    for renewed in &changes.renewed {
        if let Some(Row::Pending(row)) = rows.get_mut(&renewed.key.id) {
            row.generation = renewed.generation;
        }
    }
    for key in &changes.forgotten {
        if let Some(Row::Pending(row)) = rows.get_mut(&key.id) {
            row.noted = false;
        }
    }
    for row in &changes.handed_back {
        if let Some(Row::Pending(found)) = rows.get_mut(&row.key.id) {
            found.noted = true;
        }
    }
}

fn any_entry() -> impl Strategy<Value = JournalEntry> {
    let kinds = [EntryKind::Delivered, EntryKind::Withdrawn, EntryKind::Buried, EntryKind::Stale];
    (prop::sample::select(kinds.to_vec()), 0i64..4, 1u32..4)
        .prop_map(|(kind, row, generation)| entry(kind, row_id(row), generation))
}

proptest! {
    /// How the journal is cut into batches changes nothing about where the rows end.
    #[test]
    fn rows_do_not_depend_on_how_the_journal_is_cut(
        entries in prop::collection::vec(any_entry(), 0..20),
        cut in 0usize..20,
    ) {
        let start: HashMap<RowId, Row> = (0..4).map(|row| (row_id(row), pending(row_id(row), 1))).collect();
        let mut whole = start.clone();
        let changes = decide(&entries, whole.clone(), &Nexts::new()).unwrap();
        commit(&mut whole, &changes);

        let mut parts = start;
        let cut = cut.min(entries.len());
        let mut alarms = vec![];
        for part in [&entries[..cut], &entries[cut..]] {
            let changes = decide(part, parts.clone(), &Nexts::new()).unwrap();
            commit(&mut parts, &changes);
            alarms.extend(changes.alarms);
        }
        prop_assert_eq!(&parts, &whole);
        prop_assert_eq!(alarms, changes.alarms);
    }

    /// A row is never in two lists that contradict each other.
    #[test]
    fn a_row_has_one_outcome_per_batch(entries in prop::collection::vec(any_entry(), 0..20)) {
        let start: HashMap<RowId, Row> =
            (0..4).map(|row| (row_id(row), noted(pending(row_id(row), 1)))).collect();
        let changes = decide(&entries, start, &Nexts::new()).unwrap();
        for row in 0..4 {
            let id = row_id(row);
            let ended = changes.finished.iter().filter(|row| row.id == id).count();
            let renewed = changes.renewed.iter().filter(|row| row.key.id == id).count();
            let back = changes.handed_back.iter().filter(|row| row.key.id == id).count();
            let forgotten = changes.forgotten.iter().filter(|key| key.id == id).count();
            prop_assert!(ended + renewed <= 1, "ended {} renewed {}", ended, renewed);
            prop_assert!(ended + back <= 1);
            prop_assert!(back + forgotten <= 1);
        }
    }
}

#[test]
fn a_scheduled_task_without_a_body_is_an_alarm_and_ends_as_the_journal_says() {
    let id = row_id(5);
    let row = Row::Bodiless { generation: Generation(1) };
    let changes = applied(&[entry(EntryKind::Delivered, id, 1)], &[(id, row)]);
    assert_eq!(changes.finished, [Finished { pending: None, ..finished(id, TaskState::Done, 1) }]);
    assert_eq!(changes.alarms, [Alarm::Bodiless { id }]);
}
