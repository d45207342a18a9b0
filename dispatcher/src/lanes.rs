//! The slot's two transactional producers. All calls block: they belong on the slot's own thread.

use crate::config::Config;
use crate::records::Addresses;
use crate::world::World;
use protocol::slot::{Fault, FaultKind, Input, Lane, Lookup, Outgoing, SendOutcome, Target, TxnEnd};
use protocol::slot_store::Topic;
use runtime::kafka::{
    Cluster, Disposition, KafkaFault, LaneSettings, Outcome, Refusal, Report, SendFault, TxnProducer,
};
use schemas::ids::Slot;
use schemas::journal::JournalRecord;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long one call of commit or abort may block; after a retriable time-out it is called again.
const CALL: Duration = Duration::from_secs(2);
/// A lane learns of partitions that were added to a topic.
const LEARN: Duration = Duration::from_secs(1);
/// Topics whose number of partitions is remembered; beyond, all are forgotten, which costs at most one aborted transaction.
const MOST_TOPICS: usize = 20_000;
/// `init_transactions` of one lane; the next take-over tries again.
const INIT: Duration = Duration::from_secs(15);

struct Pair {
    main: TxnProducer,
    quarantine: TxnProducer,
}

/// The lanes of one slot.
pub(crate) struct Lanes {
    cluster: Cluster,
    ids: [String; 2],
    settings: LaneSettings,
    pair: Option<Pair>,
    /// Callback records of the quarantine lane whose reports have not been handed in.
    waiting: Option<Range<usize>>,
    /// Partitions of topics that the producers may have seen.
    partitions: HashMap<Topic, i32>,
}

impl Lanes {
    pub(crate) fn new(cfg: &Config, world: &World, slot: Slot) -> Lanes {
        let settings = LaneSettings {
            transaction_timeout: *cfg.delivery.transaction_timeout,
            message_timeout: *cfg.delivery.message_timeout,
            ..LaneSettings::default()
        };
        let ids = [world.names.main_lane(slot), world.names.quarantine_lane(slot)];
        let cluster = world.cluster.clone();
        Lanes { cluster, ids, settings, pair: None, waiting: None, partitions: HashMap::new() }
    }

    /// New producers for both ids. What the old ones had begun is decided afterwards and they are fenced.
    pub(crate) fn init(&mut self, cancelled: &dyn Fn() -> bool) -> Result<(), KafkaFault> {
        self.pair = None;
        self.waiting = None;
        self.partitions.clear();
        let [main, quarantine] = &self.ids;
        let main = TxnProducer::exactly_once(&self.cluster, main, self.settings)?;
        let quarantine = TxnProducer::exactly_once(&self.cluster, quarantine, self.settings)?;
        for producer in [&main, &quarantine] {
            producer.init(Instant::now() + INIT, cancelled)?;
        }
        self.pair = Some(Pair { main, quarantine });
        Ok(())
    }

    /// Takes note of what is known of topics. A producer that has seen a topic with fewer partitions is told of the new ones
    /// before a record is sent there, which it would refuse.
    pub(crate) fn learn(&mut self, facts: &[(Topic, Lookup)]) {
        for (topic, lookup) in facts {
            let Lookup::Known(facts) = lookup else { continue };
            if self.partitions.len() >= MOST_TOPICS {
                self.partitions.clear();
            }
            let before = self.partitions.insert(Topic::clone(topic), facts.partitions);
            if before.is_none_or(|before| before >= facts.partitions) {
                continue;
            }
            for producer in self.pair.iter().flat_map(|pair| [&pair.main, &pair.quarantine]) {
                if let Err(fault) = producer.learn(topic, LEARN) {
                    tracing::debug!(kafka.topic = &**topic, "new partitions are not known yet: {fault}");
                }
            }
        }
    }

    fn lane(&mut self, lane: Lane) -> Option<&mut TxnProducer> {
        let pair = self.pair.as_mut()?;
        Some(match lane {
            Lane::Main => &mut pair.main,
            Lane::Quarantine => &mut pair.quarantine,
        })
    }

    /// Sends, and waits for the reports if asked to.
    pub(crate) fn send(
        &mut self,
        to: &Addresses,
        lane: Lane,
        begin: bool,
        records: &[Outgoing],
        journal: &[JournalRecord],
        wait: bool,
    ) -> Input {
        let deadline = Instant::now() + self.settings.message_timeout + Duration::from_secs(1);
        let Some(producer) = self.lane(lane) else {
            let fault = Fault { kind: FaultKind::Fatal, text: "the lane is not initialised".into() };
            return Input::Sent(SendOutcome::failed(&fault, records.len()));
        };
        if begin && let Err(fault) = producer.begin() {
            return Input::Sent(SendOutcome::failed(&begin_fault(&fault), records.len()));
        }
        let first = producer.reports().len();
        let mut under_way: HashMap<(&str, i32), usize> = HashMap::new();
        for record in records {
            let out = to.outgoing(record);
            if !fits(&mut under_way, record, out.weight_bytes()) {
                producer.wait_reports(deadline);
                under_way.clear();
                fits(&mut under_way, record, out.weight_bytes());
            }
            producer.send(&out);
        }
        for record in journal {
            producer.send(&to.journal(record));
        }
        let callbacks = first..first + records.len();
        if !wait {
            self.waiting = Some(callbacks);
            return Input::Done;
        }
        // Late ones are read as what they are: pending, which is a fault.
        producer.wait_reports(deadline);
        let reports = producer.reports();
        let journal_offsets = reports[callbacks.end..].iter().map(offset_of).collect();
        Input::Sent(SendOutcome {
            reports: reports[callbacks].iter().map(ok).collect(),
            journal: journal_offsets,
        })
    }

    /// Whether reports of the quarantine lane are waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The quarantine lane's reports, once all are in.
    pub(crate) fn reports(&mut self) -> Option<SendOutcome> {
        let callbacks = self.waiting.clone()?;
        let producer = self.lane(Lane::Quarantine)?;
        let reports = producer.reports();
        let reports = &reports[callbacks];
        if reports.iter().any(|report| matches!(report, Report::Pending)) {
            return None;
        }
        let outcome = SendOutcome { reports: reports.iter().map(ok).collect(), journal: Ok(Vec::new()) };
        self.waiting = None;
        Some(outcome)
    }

    pub(crate) fn commit(&mut self, lane: Lane) -> TxnEnd {
        let outcome = self.lane(lane).map(|producer| producer.commit(CALL));
        end_of(outcome, &Outcome::Committed)
    }

    pub(crate) fn abort(&mut self, lane: Lane) -> TxnEnd {
        if lane == Lane::Quarantine {
            self.waiting = None;
        }
        let outcome = self.lane(lane).map(|producer| producer.abort(CALL));
        end_of(outcome, &Outcome::Aborted)
    }

    /// One journal record, alone in its transaction; its offset once the commit is proved.
    pub(crate) fn commit_barrier(
        &mut self,
        to: &Addresses,
        record: &JournalRecord,
        within: Duration,
    ) -> Result<i64, String> {
        let deadline = Instant::now() + within;
        let sent = self.send(to, Lane::Main, true, &[], std::slice::from_ref(record), true);
        let offset = match sent {
            Input::Sent(SendOutcome { journal: Ok(offsets), .. }) if offsets.len() == 1 => offsets[0],
            Input::Sent(SendOutcome { journal: Err(fault), .. }) => return Err(fault.text),
            other => return Err(format!("the barrier was not sent: {other:?}")),
        };
        loop {
            match self.commit(Lane::Main) {
                TxnEnd::Ok => return Ok(offset),
                TxnEnd::Retry(text) if Instant::now() < deadline => {
                    tracing::debug!("commit of the barrier once more: {text}");
                    std::thread::sleep(Duration::from_millis(50));
                }
                TxnEnd::Retry(text) | TxnEnd::Unknown(text) => return Err(text),
            }
        }
    }
}

/// Whether a record may join what is under way to its partition. librdkafka makes batches of up to 1 MB whatever the topic
/// takes, and a batch that is too large is refused as a whole: for topics that take less it must not come to that.
fn fits<'a>(under_way: &mut HashMap<(&'a str, i32), usize>, record: &'a Outgoing, bytes: usize) -> bool {
    const CLIENT_BATCH: usize = 1_000_000;
    const RECORD: usize = 24;
    const BATCH: usize = 61;
    let Target::Callback { partition, batch_bytes } = &record.target else { return true };
    if *batch_bytes >= CLIENT_BATCH {
        return true;
    }
    let sum = under_way.entry((&record.record.callback_topic, *partition)).or_insert(BATCH);
    *sum += bytes + RECORD;
    *sum <= *batch_bytes
}

/// Only the outcome that was asked for proves anything (R5).
fn end_of(outcome: Option<Outcome>, proof: &Outcome) -> TxnEnd {
    match outcome {
        None => TxnEnd::Unknown("the lane is not initialised".into()),
        Some(outcome) if outcome == *proof => TxnEnd::Ok,
        Some(Outcome::Retriable(error)) => TxnEnd::Retry(error.to_string()),
        Some(Outcome::Committed | Outcome::Aborted) => TxnEnd::Unknown("ended the other way".into()),
        Some(
            Outcome::Abortable(error)
            | Outcome::Fenced(error)
            | Outcome::Fatal(error)
            | Outcome::Unknown(error),
        ) => TxnEnd::Unknown(error.to_string()),
    }
}

fn begin_fault(fault: &KafkaFault) -> Fault {
    let kind = match fault.disposition() {
        Disposition::Retry | Disposition::Poison(_) => FaultKind::Transient,
        Disposition::Fenced | Disposition::Fatal => FaultKind::Fatal,
    };
    Fault { kind, text: fault.to_string() }
}

fn ok(report: &Report) -> Result<(), Fault> {
    offset_of(report).map(drop)
}

fn offset_of(report: &Report) -> Result<i64, Fault> {
    let (kind, text) = match report {
        Report::Acked(placed) => return Ok(placed.offset),
        Report::Pending => (FaultKind::Transient, "no report in time".to_owned()),
        Report::Failed(fault) => match fault {
            SendFault::Purged => (FaultKind::Purged, "purged".to_owned()),
            SendFault::Permanent(refusal) => (permanent(*refusal), refusal.to_string()),
            SendFault::Transient(error) => (FaultKind::Transient, error.to_string()),
            SendFault::Fenced(error) | SendFault::Fatal(error) => (FaultKind::Fatal, error.to_string()),
        },
    };
    Err(Fault { kind, text })
}

fn permanent(refusal: Refusal) -> FaultKind {
    match refusal {
        Refusal::UnknownTopic => FaultKind::UnknownTopic,
        Refusal::UnknownPartition => FaultKind::UnknownPartition,
        Refusal::NotAuthorized => FaultKind::NotAuthorised,
        Refusal::TooLarge => FaultKind::TooLarge,
        Refusal::Invalid => FaultKind::Invalid,
    }
}
