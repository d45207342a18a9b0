//! A take-over, phase by phase (PROTOCOL §2): producers, Redis, barrier, journal, back to store.
//!
//! ```text
//! pause ▶ InitLanes ▶ TakeOver ▶ InspectLogs ▶ [StartCold] ▶ CommitBarrier ▶ (ReadJournal ▶ SettleFates)* ▶
//! ReturnPrepared ▶ SeekDue ▶ running
//! ```

use super::config::SlotConfig;
use super::delivery::Intent;
use super::event::{Alarm, Cause, Event, Halt};
use super::intake::Intake;
use super::io::{Action, Input, Now, ScriptFault};
use super::logs::{JournalChunk, JournalItem, LogBounds};
use super::settled::{Fate, Settled};
use crate::slot_store::{ColdCause, Positions, Returned, SlotState, TakenOver};
use schemas::due::DueRecord;
use schemas::ids::RowGen;
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};

/// How a step of a take-over ended.
#[derive(Debug)]
pub(super) enum Progress {
    /// Next action.
    Do(Action),
    /// Through: the slot runs.
    Through(Box<Taken>),
    /// Begin anew, after a pause.
    Again(Cause, String),
    /// Stand still.
    Halt(Halt, String),
    /// The reply was not the one awaited.
    Unexpected,
}

/// What a finished take-over hands on.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) token: OwnerToken,
    pub(super) settled: Settled,
    pub(super) intake: Intake,
    pub(super) state: SlotState,
    pub(super) fence: i64,
    pub(super) jpos: i64,
    pub(super) cold: bool,
    pub(super) due_pos: i64,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Init,
    Redis,
    Inspect { found: TakenOver },
    StartCold,
    Barrier,
    Read,
    Settle { done: bool, next: i64 },
    Return,
    Seek,
}

/// A take-over under way.
#[derive(Debug)]
pub(super) struct TakeOver {
    phase: Phase,
    token: OwnerToken,
    cold: Option<ColdCause>,
    positions: Positions,
    bounds: Option<LogBounds>,
    barrier: i64,
    settled: Option<Settled>,
    state: SlotState,
    intents: Vec<Intent>,
}

impl TakeOver {
    /// The first action.
    pub(super) fn begin() -> (TakeOver, Action) {
        let take_over = TakeOver {
            phase: Phase::Init,
            token: OwnerToken(0),
            cold: None,
            positions: Positions::default(),
            bounds: None,
            barrier: 0,
            settled: None,
            state: SlotState::default(),
            intents: Vec::new(),
        };
        (take_over, Action::InitLanes)
    }

    /// Takes the reply of the last action.
    pub(super) fn reply(
        &mut self,
        config: &SlotConfig,
        now: Now,
        input: Input,
        events: &mut Vec<Event>,
    ) -> Progress {
        let again = |cause, text| Progress::Again(cause, text);
        match (&self.phase, input) {
            (Phase::Init, Input::LanesReady { token }) => {
                self.token = token;
                self.go(Phase::Redis, Action::TakeOver { token })
            }
            (Phase::Init, Input::Failed(text)) => again(Cause::InitFailed, text),
            (Phase::Redis, Input::TakenOver(Ok((found, state)))) => {
                self.state = state;
                self.go(Phase::Inspect { found }, Action::InspectLogs { window_ms: config.window_ms })
            }
            (Phase::Inspect { found }, Input::Logs(Ok(bounds))) => {
                let found = *found;
                self.inspected(found, bounds, config, now, events)
            }
            (Phase::StartCold, Input::Scripted(Ok(state))) => {
                self.state = state;
                self.commit_barrier(config, now)
            }
            (Phase::Barrier, Input::Barrier(Ok(offset))) => self.barrier_committed(offset),
            (Phase::Read, Input::Journal(Ok(chunk))) => self.read(&chunk, config, events),
            (Phase::Settle { done, next }, Input::Scripted(Ok(state))) => {
                let (done, next) = (*done, *next);
                self.state = state;
                if done {
                    self.positions.jpos = self.barrier + 1;
                    return self.go(Phase::Return, Action::ReturnPrepared);
                }
                self.positions.jpos = self.positions.jpos.max(next);
                self.read_from(next)
            }
            (Phase::Return, Input::Returned(Ok((returned, state)))) => self.returned(returned, state),
            (Phase::Seek, Input::Done) => self.through(),
            (Phase::Redis, Input::TakenOver(Err(fault)))
            | (Phase::StartCold | Phase::Settle { .. }, Input::Scripted(Err(fault)))
            | (Phase::Return, Input::Returned(Err(fault))) => {
                let (cause, text) = cause_of(fault);
                again(cause, text)
            }
            (Phase::Inspect { .. }, Input::Logs(Err(text)))
            | (Phase::Barrier, Input::Barrier(Err(text)))
            | (Phase::Read, Input::Journal(Err(text)))
            | (Phase::Seek, Input::Failed(text)) => again(Cause::TakeOverFailed, text),
            _ => Progress::Unexpected,
        }
    }

    fn go(&mut self, phase: Phase, action: Action) -> Progress {
        self.phase = phase;
        Progress::Do(action)
    }

    /// Warm, cold, or not at all.
    fn inspected(
        &mut self,
        found: TakenOver,
        bounds: LogBounds,
        config: &SlotConfig,
        now: Now,
        events: &mut Vec<Event>,
    ) -> Progress {
        if !bounds.same_journal {
            return Progress::Halt(Halt::JournalRecreated, "its topic id is not the registered one".into());
        }
        self.bounds = Some(bounds);
        let warm = match found {
            TakenOver::Warm(positions) => {
                let known = positions.jpos.max(positions.fence);
                if known > bounds.journal_end {
                    let text = format!("it ends at {}, and {known} was reached", bounds.journal_end);
                    return Progress::Halt(Halt::JournalTruncated, text);
                }
                if positions.due_pos > bounds.due_end {
                    let text =
                        format!("it ends at {}, and {} was reached", bounds.due_end, positions.due_pos);
                    events.push(Event::Alarm(Alarm::DueTruncated, text));
                }
                let inside = positions.jpos >= bounds.journal_start
                    && (bounds.due_start..=bounds.due_end).contains(&positions.due_pos);
                inside.then_some(positions)
            }
            TakenOver::Cold(cause) => {
                self.cold = Some(cause);
                None
            }
        };
        if let Some(positions) = warm {
            self.positions = positions;
            return self.commit_barrier(config, now);
        }
        events.push(Event::Cold(self.cold));
        // Without meta a position below a log's start is as good as none.
        self.cold = self.cold.or(Some(ColdCause::NoMeta));
        let (jpos, fence) = (bounds.journal_recent, bounds.journal_recent);
        self.positions = Positions { due_pos: bounds.due_recent, jpos, fence };
        self.go(Phase::StartCold, Action::StartCold(self.positions))
    }

    fn commit_barrier(&mut self, config: &SlotConfig, now: Now) -> Progress {
        let barrier = JournalRecord {
            token: self.token,
            kind: JournalKind::Barrier,
            cold: self.cold.is_some(),
            backlog: self.state.members.cast_signed(),
            credit: super::running::credit(config, &self.state),
            local_at: now.local_at,
            redis_at: self.state.redis_at,
            entries: Vec::new(),
        };
        self.go(Phase::Barrier, Action::CommitBarrier(Box::new(barrier)))
    }

    fn barrier_committed(&mut self, offset: i64) -> Progress {
        if offset < self.positions.jpos {
            let text = format!("the barrier stands at {offset}, and {} was reached", self.positions.jpos);
            return Progress::Halt(Halt::JournalTruncated, text);
        }
        self.barrier = offset;
        let (start, window) = self.bounds.map_or((0, offset), |b| (b.journal_start, b.journal_window));
        let from = self.positions.jpos.min(self.positions.fence).min(window).clamp(start.min(offset), offset);
        self.settled = Some(Settled::from(from));
        self.read_from(from)
    }

    fn read_from(&mut self, from: i64) -> Progress {
        let to = self.barrier;
        self.go(Phase::Read, Action::ReadJournal { from, to })
    }

    fn read(&mut self, chunk: &JournalChunk, config: &SlotConfig, events: &mut Vec<Event>) -> Progress {
        let Some(settled) = &mut self.settled else { return Progress::Unexpected };
        if chunk.start > settled.low() && settled.is_empty() {
            *settled = Settled::from(chunk.start);
        }
        let mut to_settle = Vec::new();
        for (offset, item) in &chunk.records {
            let fates = match fates_of(*offset, item, events) {
                Ok(fates) => fates,
                Err(text) => return Progress::Halt(Halt::JournalNewer, text),
            };
            for fate in fates {
                if !settled.record(fate) {
                    events.push(Event::Alarm(
                        Alarm::FateTwice,
                        format!("{:?} at offset {offset}", fate.row_gen),
                    ));
                }
                if *offset >= self.positions.jpos {
                    to_settle.push(fate.row_gen);
                }
            }
        }
        let forgotten = settled.keep_cap(config.settled_bytes);
        if forgotten > 0 {
            events
                .push(Event::Alarm(Alarm::SettledCap, format!("{forgotten} fates forgotten in a take-over")));
        }
        if !chunk.done && to_settle.is_empty() {
            return self.read_from(chunk.next);
        }
        let jpos = if chunk.done { self.barrier + 1 } else { self.positions.jpos.max(chunk.next) };
        let action = Action::SettleFates { fates: to_settle, jpos, rebuilt: chunk.done };
        self.go(Phase::Settle { done: chunk.done, next: chunk.next }, action)
    }

    fn returned(&mut self, returned: Returned, state: SlotState) -> Progress {
        self.state = state;
        for intent in returned.intents {
            // A body that cannot be read names no shard; its record is read again from `due` in any case.
            if let Ok(record) = DueRecord::decode(intent.body.record()) {
                self.intents.push(Intent {
                    topic: intent.topic,
                    row_gen: intent.member,
                    shard: record.shard,
                    due_at: record.due_at,
                    offsets: Vec::new(),
                });
            }
        }
        self.go(Phase::Seek, Action::SeekDue { offset: self.positions.due_pos })
    }

    fn through(&mut self) -> Progress {
        let mut intake = Intake::at(self.positions.due_pos);
        // All of them, however many: the record of one that memory does not know may be judged stale when it is read
        // again, and the intent would stay in prepare until the next take-over. `due` is paused while they are many.
        intake.adopt(self.intents.drain(..));
        let Some(settled) = self.settled.take() else { return Progress::Unexpected };
        Progress::Through(Box::new(Taken {
            token: self.token,
            settled,
            intake,
            state: self.state,
            fence: self.positions.fence,
            jpos: self.positions.jpos,
            cold: self.cold.is_some(),
            due_pos: self.positions.due_pos,
        }))
    }
}

/// Fates in one journal record. `Err`: it may hold some that this build cannot read.
pub(super) fn fates_of(
    offset: i64,
    item: &JournalItem,
    events: &mut Vec<Event>,
) -> Result<Vec<Fate>, String> {
    match item {
        JournalItem::Known(record) => Ok(fates(offset, record).collect()),
        JournalItem::Newer => Err(format!("offset {offset}: upgrade this program")),
        JournalItem::Garbage => {
            events.push(Event::Alarm(Alarm::BadJournalRecord, format!("offset {offset}")));
            Ok(Vec::new())
        }
    }
}

fn fates(offset: i64, record: &JournalRecord) -> impl Iterator<Item = Fate> + '_ {
    let fates = record.entries.iter().filter(|entry| entry.kind.is_fate());
    fates.map(move |entry| Fate {
        offset,
        at: entry.at,
        row_gen: RowGen { id: entry.id, generation: entry.generation },
    })
}

/// Every fault of a script leads to a take-over; this says which cause it counts under.
pub(super) fn cause_of(fault: ScriptFault) -> (Cause, String) {
    match fault {
        ScriptFault::Fenced => (Cause::Fenced, String::new()),
        ScriptFault::RolledBack => (Cause::RolledBack, String::new()),
        ScriptFault::Lost => (Cause::Lost, String::new()),
        ScriptFault::TimedOut => (Cause::ScriptTimeout, String::new()),
        ScriptFault::OutOfMemory => (Cause::ScriptError, "out of memory".into()),
        ScriptFault::Policy(text) => (Cause::RedisPolicy, text),
        ScriptFault::Broken(text) => (Cause::ScriptError, text),
    }
}
