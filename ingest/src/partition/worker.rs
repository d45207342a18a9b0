//! The loop of one partition.

use super::{Applied, Commit, Confirm, Input};
use crate::metrics::{ALARMS, APPLY_LAG, BATCH_RECORDS, BATCH_SECONDS, EFFECTS_SECONDS, HALTED, UNCONFIRMED};
use crate::turn::{Halt, Stop, Turn};
use ::metrics::{Gauge, Histogram};
use protocol::position::{Filling, Flight, Handling, Ledger, LogRange, Positions};
use runtime::kafka::{self, Admin, Disposition, KafkaFault, PartitionStream, Record, TopicId};
use runtime::store::{StoreError, position};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// The worker of one partition. Ends when the partition is revoked or the program stops.
pub struct Worker<I: Input> {
    input: Arc<I>,
    /// The topic that the positions are of.
    id: TopicId,
    turn: Arc<Turn>,
    admin: Admin,
    stream: PartitionStream,
    meters: Meters,
    /// When lag tools were told last.
    told: Option<Instant>,
    /// It stood still because it could not be opened.
    heals_on_open: bool,
}

struct Meters {
    records: Histogram,
    commit_seconds: Histogram,
    effects_seconds: Histogram,
    lag: Gauge,
    unconfirmed: Gauge,
}

/// What one reading of the positions led to.
struct Hold {
    ledger: Ledger,
    /// Ends of unconfirmed batches for which answers are owed.
    answers: Vec<i64>,
    effects: JoinSet<(Flight, Result<(), Stop>)>,
    confirmable_since: Option<Instant>,
}

impl<I: Input> Worker<I> {
    /// A worker for a partition that was just assigned.
    pub fn new(
        input: Arc<I>,
        id: TopicId,
        turn: Arc<Turn>,
        admin: Admin,
        stream: PartitionStream,
    ) -> Worker<I> {
        let partition = turn.partition.to_string();
        let meters = Meters {
            records: BATCH_RECORDS.with(&[turn.stream, &turn.source]),
            commit_seconds: BATCH_SECONDS.with(&[turn.stream, &turn.source]),
            effects_seconds: EFFECTS_SECONDS.with(&[turn.stream, &turn.source]),
            lag: APPLY_LAG.with(&[turn.stream, &turn.source, &partition]),
            unconfirmed: UNCONFIRMED.with(&[turn.stream, &turn.source, &partition]),
        };
        Worker { input, id, turn, admin, stream, meters, told: None, heals_on_open: false }
    }

    /// Works until the partition is gone. Whatever happens in between is waited out.
    pub async fn run(mut self) {
        let (source, partition) = (self.turn.source.clone(), self.turn.partition);
        let source = &*source;
        let halted = HALTED.with(&[self.turn.stream, source]);
        loop {
            match self.hold().await {
                Ok(()) | Err(Stop::Gone) => break,
                Err(Stop::Moved(what)) => {
                    tracing::info!(
                        source,
                        partition,
                        "another owner, or a commit whose answer was lost: {what}"
                    );
                    if self.turn.pause(Duration::from_millis(100)).await.is_err() {
                        break;
                    }
                }
                Err(stop) => {
                    let halt = match stop {
                        Stop::Halt(halt) => halt,
                        Stop::Refused(error) => {
                            Halt::new("store", format!("MySQL refuses the data: {error}"))
                        }
                        Stop::Gone | Stop::Moved(_) => continue,
                    };
                    ALARMS.with(&[halt.kind]).increment(1);
                    tracing::error!(source, partition, alarm = halt.kind, "standing still: {}", halt.reason);
                    self.turn.going.trouble(halt.reason);
                    self.heals_on_open = halt.opening;
                    halted.increment(1.0);
                    let woken = tokio::select! {
                        () = self.turn.stop.cancelled() => Err(Stop::Gone),
                        waited = self.turn.pause(halt.again_after) => waited,
                    };
                    halted.decrement(1.0);
                    if woken.is_err() {
                        break;
                    }
                }
            }
        }
        // What this instance no longer reads, it is not behind with.
        self.meters.lag.set(0.0);
        self.meters.unconfirmed.set(0.0);
    }

    /// From reading the positions until something makes it necessary to read them again.
    async fn hold(&mut self) -> Result<(), Stop> {
        let positions = self.positions().await?;
        let log = self.log().await?;
        self.same_topic().await?;
        let seek = positions.seek(log).map_err(|outside| self.outside(&outside.to_string()))?;
        self.seek(seek).await?;
        if std::mem::take(&mut self.heals_on_open) {
            self.turn.going.well();
        }
        tracing::info!(
            source = &*self.turn.source,
            partition = self.turn.partition,
            next = positions.next,
            confirmed = positions.confirmed,
            log_end = log.end,
            "reading"
        );
        let mut hold = Hold {
            ledger: Ledger::open(positions),
            answers: Vec::new(),
            effects: JoinSet::new(),
            confirmable_since: None,
        };
        let limits = self.input.limits();
        let fetch = kafka::BatchLimits {
            max_records: limits.batch.records,
            max_bytes: limits.batch.bytes,
            linger: limits.linger,
        };
        // Records that were read and not handled yet; kept here, so that no branch below loses them.
        let mut read: Vec<Record> = Vec::new();
        let turn = self.turn.clone();
        while !turn.stop.is_cancelled() {
            if !read.is_empty() && hold.ledger.in_flight() < limits.in_flight {
                self.handle(&mut hold, std::mem::take(&mut read)).await?;
                continue;
            }
            let confirm_at = hold.confirmable_since.map(|since| since + limits.confirm_idle);
            tokio::select! {
                biased;
                () = turn.gone.cancelled() => return Err(Stop::Gone),
                () = turn.stop.cancelled() => break,
                Some(done) = hold.effects.join_next() => self.finish(&mut hold, done)?,
                () = at(confirm_at) => self.confirm_alone(&mut hold).await?,
                more = self.stream.recv_batch(&mut read, fetch), if read.is_empty() => match more {
                    Ok(true) => {}
                    Ok(false) => return Err(Stop::Gone),
                    Err(fault) => return Err(self.unreadable(&fault)),
                },
            }
        }
        self.drain(&mut hold).await
    }

    /// The program stops: what was committed is finished and confirmed, so that the next owner repeats nothing.
    async fn drain(&mut self, hold: &mut Hold) -> Result<(), Stop> {
        while let Some(done) = hold.effects.join_next().await {
            self.finish(hold, done)?;
        }
        self.confirm_alone(hold).await
    }

    /// Cuts what was read into batches of one handling each.
    async fn handle(&mut self, hold: &mut Hold, read: Vec<Record>) -> Result<(), Stop> {
        let limits = self.input.limits().batch;
        let mut batch: Vec<Record> = Vec::with_capacity(read.len());
        let mut filling = Filling::default();
        for record in read {
            let handling = hold.ledger.handling(record.offset);
            let bytes = record.weight_bytes();
            if !filling.takes(limits, handling, bytes) {
                self.batch(hold, std::mem::take(&mut batch)).await?;
                filling = Filling::default();
            }
            filling.add(handling, bytes);
            batch.push(record);
        }
        self.batch(hold, batch).await
    }

    async fn batch(&mut self, hold: &mut Hold, batch: Vec<Record>) -> Result<(), Stop> {
        let Some(last) = batch.last() else { return Ok(()) };
        let end = last.offset + 1;
        match hold.ledger.handling(last.offset) {
            Handling::Skip => Ok(()),
            Handling::Repeat => {
                let recalled = self.input.recall(&batch, &self.turn).await?;
                let flight = hold.ledger.repeating(end);
                self.fly(hold, flight, end, recalled);
                Ok(())
            }
            Handling::Apply => self.apply(hold, batch).await,
        }
    }

    /// Applies a batch; where MySQL refuses it, halves it down to the record at fault.
    async fn apply(&mut self, hold: &mut Hold, batch: Vec<Record>) -> Result<(), Stop> {
        let began = Instant::now();
        self.meters.records.record(batch.len() as f64);
        let mut parts: Vec<&[Record]> = vec![&batch];
        let mut refused: Option<StoreError> = None;
        while let Some(part) = parts.pop() {
            let Some(last) = part.last() else { continue };
            let commit = Commit {
                source: self.input.source(),
                partition: self.turn.partition,
                from: hold.ledger.positions().next,
                to: last.offset + 1,
                confirm: hold.confirm(),
            };
            let as_refusal = refused.take();
            match self.input.apply(part, &commit, as_refusal.as_ref(), &self.turn).await {
                Ok(applied) => {
                    let flight = hold.ledger.applied(commit.to);
                    if let Some(confirm) = commit.confirm {
                        hold.confirmed(confirm.to);
                        self.lag_tools(confirm.to, false);
                    }
                    self.meters.lag.set((runtime::clock::now_ms() - last.at).max(0) as f64 / 1_000.0);
                    self.fly(hold, flight, commit.to, applied);
                    self.turn.going.well();
                }
                Err(Stop::Refused(error)) if part.len() > 1 => {
                    tracing::warn!(
                        records = part.len(),
                        "MySQL refuses a batch; halving it to find the row: {error}"
                    );
                    let (head, tail) = part.split_at(part.len() / 2);
                    parts.extend([tail, head]);
                }
                Err(Stop::Refused(error)) if as_refusal.is_none() => {
                    tracing::error!(
                        source = &*self.turn.source,
                        partition = self.turn.partition,
                        offset = last.offset,
                        "MySQL refuses a row: {error}"
                    );
                    refused = Some(error);
                    parts.push(part);
                }
                Err(stop) => return Err(stop),
            }
        }
        self.meters.commit_seconds.record(began.elapsed());
        Ok(())
    }

    /// Starts what remains to be done for a batch.
    fn fly(&self, hold: &mut Hold, flight: Flight, end: i64, applied: Applied<I::Effects>) {
        if applied.answers {
            hold.answers.push(end);
        }
        match applied.effects {
            None => hold.acked(flight),
            Some(effects) => {
                let work = self.input.clone().carry_out(effects, self.turn.clone());
                let seconds = self.meters.effects_seconds.clone();
                hold.effects.spawn(async move {
                    let began = Instant::now();
                    let done = work.await;
                    seconds.record(began.elapsed());
                    (flight, done)
                });
            }
        }
        let Positions { next, confirmed } = hold.ledger.positions();
        self.meters.unconfirmed.set((next - confirmed) as f64);
    }

    /// The effects of a batch are acked, or cannot be.
    fn finish(
        &self,
        hold: &mut Hold,
        done: Result<(Flight, Result<(), Stop>), JoinError>,
    ) -> Result<(), Stop> {
        match done {
            Ok((flight, Ok(()))) => {
                hold.acked(flight);
                Ok(())
            }
            Ok((_, Err(stop))) => Err(stop),
            // A panic stops the whole program; a cancelled task means that the runtime goes down.
            Err(_) => Err(Stop::Gone),
        }
    }

    async fn confirm_alone(&mut self, hold: &mut Hold) -> Result<(), Stop> {
        let Some(confirm) = hold.confirm() else { return Ok(()) };
        let (source, partition) = (self.input.source(), self.turn.partition);
        let turn = self.turn.clone();
        turn.store(|| async {
            let mut tx = turn.db().begin("confirm").await?;
            match confirm.write(&mut tx, source, partition).await {
                Ok(()) => tx.commit().await,
                // The table stands below what we applied: it is not the one we wrote to any more.
                Err(StoreError::Invariant { op, what }) => Err(StoreError::Fenced { op, what }),
                Err(error) => Err(error),
            }
        })
        .await?;
        hold.confirmed(confirm.to);
        let Positions { next, confirmed } = hold.ledger.positions();
        self.meters.unconfirmed.set((next - confirmed) as f64);
        // Nothing came since: this partition is not behind.
        self.meters.lag.set(0.0);
        self.lag_tools(confirmed, true);
        Ok(())
    }

    /// For tools that show lag; nothing reads it back, and a revoked partition may refuse it.
    fn lag_tools(&mut self, confirmed: i64, idle: bool) {
        if !idle && self.told.is_some_and(|told| told.elapsed() < Duration::from_secs(1)) {
            return;
        }
        self.told = Some(Instant::now());
        if let Err(fault) = self.stream.commit_for_lag_tools(confirmed) {
            tracing::debug!("no commit for lag tools: {fault}");
        }
    }

    /// The positions that MySQL holds, made now for a partition that is new.
    async fn positions(&self) -> Result<Positions, Stop> {
        let (source, partition) = (self.input.source(), self.turn.partition);
        let turn = &self.turn;
        let read = || async {
            let mut session = turn.db().session().await?;
            position::read(&mut session, source, partition).await
        };
        let found = match turn.store(read).await? {
            Some(found) => found,
            None if self.input.makes_positions() => {
                let start = self.log().await?.start;
                turn.store(|| async {
                    let mut session = turn.db().session().await?;
                    position::create(&mut session, source, partition, start).await
                })
                .await?;
                turn.store(read).await?.ok_or_else(|| Stop::Moved("the position is gone again".into()))?
            }
            None => {
                let reason =
                    format!("no position of source {} for this partition: run `duectl init`", source.0);
                return Err(Halt::of_opening("outside_log", reason).into());
            }
        };
        Ok(Positions { next: found.next, confirmed: found.confirmed })
    }

    /// The ends of the log, waited for.
    async fn log(&self) -> Result<LogRange, Stop> {
        let mut tries = 0;
        loop {
            let asked = self.admin.watermarks(self.stream.topic(), self.turn.partition);
            let fault = tokio::select! {
                () = self.turn.gone.cancelled() => return Err(Stop::Gone),
                () = self.turn.stop.cancelled() => return Err(Stop::Gone),
                answer = asked => match answer {
                    Ok((start, end)) => return Ok(LogRange { start, end }),
                    Err(fault) => fault,
                },
            };
            tries += 1;
            self.wait_for_kafka(tries, &fault).await?;
        }
    }

    /// Nothing is read under the number of a topic that was deleted: made again and filled beyond our position it looks the
    /// same, and its records would be read once more, as others, when the new id is noticed. Asked after the log's ends.
    async fn same_topic(&self) -> Result<(), Stop> {
        let mut tries = 0;
        loop {
            let asked = self.admin.topic_id(self.stream.topic());
            let fault = tokio::select! {
                () = self.turn.gone.cancelled() => return Err(Stop::Gone),
                () = self.turn.stop.cancelled() => return Err(Stop::Gone),
                answer = asked => match answer {
                    Ok(Some(found)) if found == self.id => return Ok(()),
                    Ok(_) => {
                        let reason = format!("{} was deleted or created again", self.turn.source);
                        return Err(Halt::of_opening("topic_recreated", reason).into());
                    }
                    Err(fault) => fault,
                },
            };
            tries += 1;
            self.wait_for_kafka(tries, &fault).await?;
        }
    }

    async fn seek(&mut self, offset: i64) -> Result<(), Stop> {
        let mut tries = 0;
        loop {
            let fault = match self.stream.start(offset).await {
                Ok(()) => {
                    self.turn.kafka.well();
                    return Ok(());
                }
                Err(fault) => fault,
            };
            match fault.disposition() {
                Disposition::Fenced => return Err(Stop::Gone),
                Disposition::Fatal if matches!(fault, KafkaFault::OutsideLog { .. }) => {
                    return Err(self.outside(&fault.to_string()));
                }
                Disposition::Retry | Disposition::Poison(_) | Disposition::Fatal => {}
            }
            tries += 1;
            self.wait_for_kafka(tries, &fault).await?;
        }
    }

    async fn wait_for_kafka(&self, tries: u32, fault: &KafkaFault) -> Result<(), Stop> {
        if tries >= 3 {
            self.turn.kafka.trouble(fault.to_string());
        }
        if tries.is_power_of_two() {
            let (source, partition) = (&*self.turn.source, self.turn.partition);
            tracing::warn!(source, partition, tries, "waiting for Kafka: {fault}");
        }
        tokio::select! {
            () = self.turn.stop.cancelled() => Err(Stop::Gone),
            waited = self.turn.pause(self.turn.backoff(tries, Duration::from_millis(50))) => waited,
        }
    }

    fn unreadable(&self, fault: &KafkaFault) -> Stop {
        match fault {
            KafkaFault::OutsideLog { .. } => self.outside(&fault.to_string()),
            KafkaFault::NotAssigned { .. } | KafkaFault::Cancelled { .. } | KafkaFault::Fenced { .. } => {
                Stop::Gone
            }
            KafkaFault::Unavailable { .. }
            | KafkaFault::Refused { .. }
            | KafkaFault::Deadline { .. }
            | KafkaFault::Fatal { .. } => Halt::of_opening("unreadable", fault.to_string()).into(),
        }
    }

    fn outside(&self, what: &str) -> Stop {
        let (source, partition) = (&self.turn.source, self.turn.partition);
        let reason = format!(
            "{source}[{partition}]: {what}. Nothing is guessed: `duectl` must be told whether what lies in between is to \
             be delivered maybe twice or maybe never"
        );
        Halt::of_opening("outside_log", reason).into()
    }
}

impl Hold {
    fn acked(&mut self, flight: Flight) {
        self.ledger.acked(flight);
        if self.confirmable_since.is_none() && self.ledger.confirmable().is_some() {
            self.confirmable_since = Some(Instant::now());
        }
    }

    /// The move of `confirmed` that may be made now.
    fn confirm(&self) -> Option<Confirm> {
        let to = self.ledger.confirmable()?;
        let answers = self.answers.iter().any(|end| *end <= to);
        Some(Confirm { from: self.ledger.positions().confirmed, to, answers })
    }

    fn confirmed(&mut self, to: i64) {
        self.ledger.confirmed(to);
        self.answers.retain(|end| *end > to);
        self.confirmable_since = self.ledger.confirmable().map(|_| Instant::now());
    }
}

/// At an instant, or never.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
