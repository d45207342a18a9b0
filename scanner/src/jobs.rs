//! The steps of a scan that wait for MySQL or Kafka. Each answers what the state machine has to know; none decides.

use crate::metrics::{Meters, Step};
use protocol::cursor::{Advance, Confirm, PageRead, PageRequest, ScanRule, SlotLoad, SlotScan, Start};
use protocol::route::{RouteEntry, RouteTable};
use runtime::emission::Emission;
use runtime::kafka::{Disposition as KafkaDisposition, KafkaFault};
use runtime::probes::Gate;
use runtime::store::{Backoff, Db, Disposition, StoreError, route, scan};
use schemas::ids::{Shard, Slot, SourceId};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What every worker needs.
pub struct Deps {
    /// Database.
    pub db: Db,
    /// Where emissions go.
    pub emission: Emission,
    /// Number of the journal.
    pub journal: SourceId,
    /// Base shards.
    pub shards: u16,
    /// Slots.
    pub slots: u16,
    /// Settings of the scan.
    pub rule: ScanRule,
    /// Pages under way: bounds memory and the load on MySQL.
    pub pages: Semaphore,
    /// Pauses after failures.
    pub backoff: Backoff,
    /// After another scanner was found to have a slot, this one waits for the group to say who it is.
    pub fenced_pause: Duration,
    /// Ready as far as MySQL is concerned.
    pub mysql: Gate,
    /// Ready as far as Kafka is concerned.
    pub kafka: Gate,
}

/// Why a step did not come to its end.
#[derive(Debug)]
pub enum Failure {
    /// MySQL or Kafka do not answer as they should: start again from what the table says.
    Outage(Step, String),
    /// Another scanner has the shard.
    Fenced(String),
    /// Neither waiting nor starting again helps.
    Fatal(anyhow::Error),
}

/// What a start has brought.
#[derive(Debug)]
pub struct Started {
    /// As committed.
    pub advances: Vec<Advance>,
    /// The database's clock in the transaction.
    pub now: i64,
    /// Routes, read after the commit.
    pub routes: RouteTable,
    /// Load, read after the commit.
    pub load: SlotLoad,
}

/// A step that has ended, well or not.
#[derive(Debug)]
pub enum Done {
    /// A start of these shards.
    Start(Start, Result<Started, Failure>),
    /// A page was read, emitted and acked.
    Page(PageRequest, Result<PageRead, Failure>),
    /// `confirmed` was written.
    Confirm(Vec<Confirm>, Result<(), Failure>),
}

impl Deps {
    /// The transaction of a start. `view` is the state machine as it stands.
    pub async fn start(&self, slot: Slot, start: Start, view: SlotScan, meters: &Meters) -> Done {
        let began = Instant::now();
        let outcome = self.try_start(slot, &start, &view).await;
        meters.seconds(Step::Start).record(began.elapsed());
        Done::Start(start, outcome.map_err(|error| self.store_failure(Step::Start, error)))
    }

    async fn try_start(&self, slot: Slot, start: &Start, view: &SlotScan) -> Result<Started, StoreError> {
        let shards = start.shards.iter().copied().collect();
        let mut now = 0;
        let advances = scan::start(&self.db, &shards, |at, rows| {
            now = at;
            view.advance(at, rows)
        })
        .await?;
        let mut session = self.db.session().await?;
        let rows = route::all(&mut session).await?;
        let entry = |row: route::RouteRow| RouteEntry {
            shard: row.shard,
            from_due_at: row.from_due_at,
            slot: row.slot,
        };
        let routes = RouteTable::new(self.shards, self.slots, rows.into_iter().map(entry))
            .map_err(|error| StoreError::World { what: format!("table route: {error}") })?;
        let load = scan::load_of(&mut session, self.journal, slot).await?;
        self.mysql.open();
        Ok(Started { advances, now, routes, load })
    }

    /// Reads a page, emits it, awaits every ack. `sample`: also ask MySQL what reading it took.
    pub async fn page(&self, request: PageRequest, sample: bool, meters: &Meters) -> Done {
        // Held over the acks: so much memory is in use until then. Only a closed semaphore fails, and none is closed.
        let _permit = self.pages.acquire().await;
        Done::Page(request, self.try_page(&request, sample, meters).await)
    }

    async fn try_page(
        &self,
        request: &PageRequest,
        sample: bool,
        meters: &Meters,
    ) -> Result<PageRead, Failure> {
        let began = Instant::now();
        let page = self
            .read(request, sample, meters)
            .await
            .map_err(|error| self.store_failure(Step::Page, error))?;
        meters.seconds(Step::Page).record(began.elapsed());
        meters.page_rows.record(f64::from(page.read.rows));
        meters.examined.increment(u64::from(page.read.rows));
        if page.rows.is_empty() {
            return Ok(page.read);
        }
        let began = Instant::now();
        let emitted = self.emission.emit(request.slot, page.fence, page.rows).await;
        let emitted = emitted.map_err(|fault| self.kafka_failure(fault))?;
        self.kafka.open();
        meters.seconds(Step::Emit).record(began.elapsed());
        meters.emitted.increment(emitted.acked);
        meters.unemittable.increment(emitted.unemittable.len() as u64);
        for (row_gen, why) in &emitted.unemittable {
            tracing::error!(row.id = %row_gen.id, row.gen = row_gen.generation.0, shard = %request.shard, "a row cannot be emitted and stays pending: {why}");
        }
        Ok(page.read)
    }

    async fn read(
        &self,
        request: &PageRequest,
        sample: bool,
        meters: &Meters,
    ) -> Result<scan::Page, StoreError> {
        let mut session = self.db.session().await?;
        let before = if sample { Some(scan::entries_read(&mut session).await?) } else { None };
        let page = scan::page(&mut session, self.journal, request, self.rule.page_bytes).await?;
        if let Some(before) = before {
            let entries = scan::entries_read(&mut session).await?.saturating_sub(before);
            if page.read.rows > 0 && !page.read.cut {
                // The first row is found by key, the others by reading on.
                meters.index_hits.record(f64::from(page.read.rows) / (entries.max(1) as f64));
            }
        }
        self.mysql.open();
        Ok(page)
    }

    /// Writes `confirmed` of several shards.
    pub async fn confirm(&self, confirms: Vec<Confirm>, meters: &Meters) -> Done {
        let began = Instant::now();
        let outcome = async { scan::confirm(&mut self.db.session().await?, &confirms).await }.await;
        meters.seconds(Step::Confirm).record(began.elapsed());
        Done::Confirm(confirms, outcome.map_err(|error| self.store_failure(Step::Confirm, error)))
    }

    fn store_failure(&self, step: Step, error: StoreError) -> Failure {
        match error.disposition() {
            Disposition::Retry { .. } => {
                self.mysql.close(error.to_string());
                Failure::Outage(step, error.to_string())
            }
            Disposition::Fenced => Failure::Fenced(error.to_string()),
            Disposition::Poison | Disposition::Fatal => Failure::Fatal(error.into()),
        }
    }

    fn kafka_failure(&self, fault: KafkaFault) -> Failure {
        match fault.disposition() {
            KafkaDisposition::Fatal => Failure::Fatal(fault.into()),
            // A topic that is missing or may not be written to may be mended without this program.
            KafkaDisposition::Retry | KafkaDisposition::Poison(_) | KafkaDisposition::Fenced => {
                self.kafka.close(fault.to_string());
                Failure::Outage(Step::Emit, fault.to_string())
            }
        }
    }
}

impl Done {
    /// The shards that the step was about.
    pub fn shards(&self) -> Vec<Shard> {
        match self {
            Done::Start(start, _) => start.shards.clone(),
            Done::Page(request, _) => vec![request.shard],
            Done::Confirm(confirms, _) => confirms.iter().map(|confirm| confirm.shard).collect(),
        }
    }
}
