//! The servers of a run, the clock, what is on its way between programs and servers, and how calls go wrong.

use crate::dice::Dice;
use crate::kafka::{Command, Fate, Kafka, Producer, Sent};
use crate::mysql::{Db, Waiting};
use crate::oracle::Oracle;
use crate::redis::{Grip, Redis};
use crate::setup::{Mutation, Setup};
use crate::trace::Trace;
use protocol::route::RouteTable;
use protocol::slot::{Action, DueItem, FaultKind, Lookup, Stray};
use protocol::slot_store::Topic;
use schemas::due::{Completion, Deliver, DueKind, DueRecord};
use schemas::ids::{RowId, Shard, Slot};
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// How a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// As it should.
    None,
    /// It fails and has no effect.
    Refused,
    /// It has its effect, and the answer is lost.
    AnswerLost,
    /// It fails, and has its effect later.
    Later,
}

/// What is under way and may still arrive although its sender has given up.
#[derive(Clone, Debug)]
pub enum Delayed {
    Script { slot: Slot, grip: Grip, action: Box<Action> },
    Record { producer: Producer, sent: Option<Sent>, journal: Option<Box<JournalRecord>> },
    End { producer: Producer, fate: Fate },
    Due { slot: Slot, item: DueItem },
}

/// Everything but the programs.
#[derive(Debug)]
pub struct World {
    pub setup: Setup,
    pub dice: Dice,
    pub trace: Trace,
    /// True time, epoch ms.
    pub now: i64,
    pub kafka: Kafka,
    pub redis: Vec<Redis>,
    pub db: Db,
    pub oracle: Oracle,
    pub routes: RouteTable,
    pub network: Vec<Delayed>,
    /// Whether anything may go wrong.
    pub rough: bool,
    /// Nobody reaches MySQL.
    pub db_down: bool,
    /// Calls of this name go so, in this order: for named cases.
    pub planned: VecDeque<(&'static str, Mishap)>,
    /// Topics that answer with a fault, or cannot be looked up.
    pub faults: HashMap<u8, FaultKind>,
    pub lookups: HashMap<u8, Lookup>,
    /// What came to pass, and how often.
    pub seen: BTreeMap<String, u64>,
    tokens: u128,
    pub names: u32,
    pub submitted: u32,
}

/// Start of time.
const BEGIN: i64 = 1_000_000;

/// The name of a callback topic.
pub fn topic(number: u8) -> Topic {
    Topic::from(["a", "b", "c", "d"][usize::from(number % 4)])
}

/// The number of a callback topic.
pub fn topic_number(name: &str) -> u8 {
    name.bytes().next().map_or(0, |byte| byte - b'a')
}

impl World {
    pub fn new(setup: Setup, dice: Dice, trace: Trace) -> World {
        let routes =
            RouteTable::new(setup.shards, setup.slots, []).expect("no entries, nothing wrong with them");
        World {
            now: BEGIN,
            kafka: Kafka::new(setup.partitions, setup.slots),
            redis: vec![Redis::default(); usize::from(setup.slots)],
            db: Db::new(setup.shards, setup.slots, setup.partitions),
            oracle: Oracle::default(),
            routes,
            network: Vec::new(),
            rough: true,
            db_down: false,
            planned: VecDeque::new(),
            faults: HashMap::new(),
            lookups: HashMap::new(),
            seen: BTreeMap::new(),
            tokens: 0,
            names: 0,
            submitted: 0,
            setup,
            dice,
            trace,
        }
    }

    pub fn has(&self, mutation: Mutation) -> bool {
        self.setup.has(mutation)
    }

    /// A line of the trace.
    pub fn say(&mut self, who: &str, what: impl FnOnce() -> String) {
        let now = self.now - BEGIN;
        self.trace.say(|| format!("{now:>7} ms  {who:<14} {}", what()));
    }

    /// Counts what came to pass.
    pub fn saw(&mut self, what: &str) {
        match self.seen.get_mut(what) {
            Some(n) => *n += 1,
            None => {
                self.seen.insert(what.to_owned(), 1);
            }
        }
    }

    /// How the next call of this name goes.
    pub fn mishap(&mut self, call: &'static str) -> Mishap {
        if let Some((name, mishap)) = self.planned.front()
            && *name == call
        {
            let mishap = *mishap;
            self.planned.pop_front();
            return mishap;
        }
        if !self.rough || !self.dice.chance(self.setup.mishaps) {
            return Mishap::None;
        }
        self.dice.pick(&[Mishap::Refused, Mishap::AnswerLost, Mishap::AnswerLost, Mishap::Later])
    }

    /// Whether a call to MySQL fails, and whether it has its effect. `write` tells that there is something to lose.
    pub fn db_mishap(&mut self, call: &'static str, write: bool) -> Mishap {
        if self.db_down {
            return Mishap::Refused;
        }
        match self.mishap(call) {
            Mishap::None => Mishap::None,
            Mishap::AnswerLost if write => Mishap::AnswerLost,
            Mishap::Refused | Mishap::AnswerLost | Mishap::Later => Mishap::Refused,
        }
    }

    pub fn token(&mut self) -> OwnerToken {
        self.tokens += 1;
        OwnerToken(self.tokens)
    }

    /// Number of the next process.
    pub fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    /// A producer submits a command.
    pub fn submit(&mut self, command: Command) -> RowId {
        self.submit_to(command.task as usize, command)
    }

    /// A producer submits a command to a partition of its choice.
    pub fn submit_to(&mut self, partition: usize, command: Command) -> RowId {
        let partition = partition % self.kafka.tasks.len();
        let log = &mut self.kafka.tasks[partition];
        log.push((self.now, command));
        let offset = log.len() as i64 - 1;
        self.say("producer", || format!("submits {command:?} at {partition}/{offset}"));
        RowId::pack(crate::mysql::TASKS, partition as i32, offset).expect("small numbers")
    }

    pub fn shard_of(&self, task: u32) -> Shard {
        Shard((task % u32::from(self.setup.shards)) as u16)
    }

    /// The due record of a row.
    pub fn due_record(&self, row: &Waiting, fence: i64, withdraw: bool) -> DueRecord {
        let kind = if withdraw {
            DueKind::Withdraw
        } else {
            DueKind::Deliver(Box::new(Deliver {
                attempt: 1,
                task_id: format!("task-{}", row.key.id),
                shard_key: None,
                partition: None,
                key: None,
                headers: Vec::new(),
                value: None,
                expires_at: row.row.expires_at,
                asked_at: None,
                completion: Completion::OnDelivery,
                progress: None,
                history: Vec::new(),
                bury: None,
            }))
        };
        DueRecord {
            id: row.key.id,
            generation: row.row.generation,
            shard: row.key.shard,
            due_at: row.key.due_at,
            fence,
            callback_topic: topic(row.row.topic).to_string(),
            kind,
        }
    }

    pub fn slot_of(&self, row: &Waiting) -> Slot {
        self.routes.slot_at(row.key.shard, row.key.due_at)
    }

    /// Sends one record to `due`; false where it is not acked.
    pub fn emit(&mut self, who: &str, record: DueRecord) -> bool {
        let slot = self.routes.slot_at(record.shard, record.due_at);
        let bytes = record.encode();
        let item = DueItem { offset: 0, bytes, record: Ok(record) };
        let mishap = self.mishap("emit");
        self.say(who, || {
            let record = item.record.as_ref().expect("just made");
            let kind = if record.kind == DueKind::Withdraw { "withdraw" } else { "deliver" };
            format!(
                "emits {kind} {} gen {} fence {} ({mishap:?})",
                record.id, record.generation.0, record.fence
            )
        });
        match mishap {
            Mishap::None => self.append_due(slot, item),
            Mishap::Refused => return false,
            Mishap::AnswerLost => {
                self.append_due(slot, item);
                return false;
            }
            Mishap::Later => {
                self.network.push(Delayed::Due { slot, item });
                return false;
            }
        }
        true
    }

    /// A record arrives on `due`.
    pub fn append_due(&mut self, slot: Slot, item: DueItem) {
        self.oracle.emitted(&self.db, &item);
        let log = &mut self.kafka.due[usize::from(slot.0)];
        let offset = log.len() as i64;
        let record = item.record.map_err(|stray| Arc::new(Stray { offset, ..(*stray).clone() }));
        log.push((self.now, DueItem { offset, bytes: item.bytes, record }));
    }

    /// Something delayed arrives after all.
    pub fn arrive(&mut self, at: usize) {
        let delayed = self.network.swap_remove(at);
        self.saw("something arrived late");
        self.say("network", || format!("delivers {delayed:?}").chars().take(160).collect());
        match delayed {
            Delayed::Script { slot, mut grip, action } => {
                let _answer = self.redis[usize::from(slot.0)].run(&action, &mut grip, self.now);
            }
            Delayed::Due { slot, item } => self.append_due(slot, item),
            Delayed::End { producer, fate } => {
                if self.kafka.end(producer, fate, self.now).is_ok() {
                    self.judge();
                }
            }
            Delayed::Record { producer, sent, journal } => {
                let Ok(txn) = self.kafka.join(producer, self.now, false) else { return };
                if let Some(sent) = sent {
                    self.kafka.txns[txn].sent.push(Sent { at: self.now, ..sent });
                }
                if let Some(record) = journal {
                    self.kafka.append_journal(txn, *record, self.now);
                }
            }
        }
    }

    /// Lets the oracle see transactions that were decided.
    pub fn judge(&mut self) {
        for txn in std::mem::take(&mut self.kafka.decided) {
            self.oracle.decided(&self.kafka, &self.db, txn);
        }
    }

    /// A stranger's record for a journal.
    pub fn foreign_record(&mut self) -> JournalRecord {
        JournalRecord {
            token: self.token(),
            kind: JournalKind::Batch,
            cold: false,
            backlog: 0,
            credit: 0,
            local_at: self.now,
            redis_at: self.now,
            entries: Vec::new(),
        }
    }
}
