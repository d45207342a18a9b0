//! One side of ingest: a member of a consumer group, and a worker for each partition it is given.
//!
//! Start: find out which topic it is ─▶ join ─▶ workers come and go with assignments. A topic that was re-created under
//! the running consumer is not reported by anybody, so its id is asked for now and then.

use crate::deps::Deps;
use crate::metrics::ALARMS;
use crate::partition::{Input, Worker};
use crate::turn::Turn;
use runtime::kafka::{
    KafkaFault, Member, MemberEvent, MemberSettings, PartitionKey, PartitionStream, TopicId,
};
use runtime::lifecycle::Lifecycle;
use runtime::probes::Gate;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What differs between the sides.
pub trait Side: Send + Sync + 'static {
    /// What becomes of the records.
    type Input: Input;

    /// `tasks` or `journal`.
    const STREAM: &'static str;

    /// The topic.
    fn topic(&self) -> String;

    /// The consumer group.
    fn group(&self) -> String;

    /// How the topic is made where it is missing.
    fn making_of(&self) -> String;

    /// Why the topic cannot be read as it is set up: what is wrong, and its remedy. Asked for now and then.
    fn unfit(&self) -> impl Future<Output = Result<Option<String>, KafkaFault>> + Send;

    /// The input for the topic with this id. `Err`: why it cannot be read, and what a person has to do.
    fn open(&self, id: TopicId) -> impl Future<Output = Result<Self::Input, String>> + Send;

    /// It is not read any more.
    fn closed(&self) {}
}

/// How long to wait before what is wrong is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Starts a side.
pub fn spawn<S: Side>(side: S, deps: &Arc<Deps>, life: &Lifecycle) {
    let topic = side.topic();
    let gate = life.readiness().gate(topic.as_str(), "looking the topic up");
    let running =
        Running { side, topic: topic.as_str().into(), deps: deps.clone(), life: life.clone(), gate };
    life.spawn(format!("{} of {topic}", S::STREAM), running.run());
}

struct Running<S: Side> {
    side: S,
    topic: Arc<str>,
    deps: Arc<Deps>,
    life: Lifecycle,
    gate: Gate,
}

/// Why a membership ended.
enum Ended {
    /// The program stops.
    Stopping,
    /// The topic has another id now, or the client is of no more use: look again.
    Again,
}

impl<S: Side> Running<S> {
    async fn run(self) -> anyhow::Result<()> {
        let stop = self.life.token();
        while !stop.is_cancelled() {
            let opened = tokio::select! {
                () = stop.cancelled() => break,
                opened = self.open() => opened,
            };
            match opened {
                Ok((input, id)) => {
                    let ended = self.member(Arc::new(input), id).await;
                    self.side.closed();
                    match ended {
                        Ok(Ended::Stopping) => break,
                        Ok(Ended::Again) => {}
                        Err(fault) => self.close(&fault.to_string()),
                    }
                }
                Err(reason) => self.close(&reason),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
        Ok(())
    }

    fn close(&self, reason: &str) {
        tracing::error!(source = &*self.topic, "standing still: {reason}");
        self.gate.close(reason);
    }

    async fn open(&self) -> Result<(S::Input, TopicId), String> {
        let topic = &self.topic;
        let id = self.deps.admin.topic_id(topic).await.map_err(|fault| fault.to_string())?;
        let id = id.ok_or_else(|| format!("topic {topic} does not exist: {}", self.side.making_of()))?;
        if let Some(reason) = self.side.unfit().await.map_err(|fault| fault.to_string())? {
            ALARMS.with(&["wrong_source"]).increment(1);
            return Err(reason);
        }
        Ok((self.side.open(id).await?, id))
    }

    async fn member(&self, input: Arc<S::Input>, id: TopicId) -> Result<Ended, KafkaFault> {
        let mut settings = MemberSettings::new(self.side.group(), [&*self.topic]);
        settings.session_timeout = self.deps.cfg.kafka.session_timeout.get();
        let mut member = Member::join(&self.deps.cluster, &settings)?;
        self.gate.open();
        let mut workers = Workers::<S> {
            input,
            id,
            topic: self.topic.clone(),
            deps: self.deps.clone(),
            life: self.life.clone(),
            running: JoinSet::new(),
            gone: HashMap::new(),
        };
        let stop = self.life.token();
        let mut check = tokio::time::interval(self.deps.cfg.confirm.topic_check.get());
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        check.reset();
        let ended = loop {
            // The stop first; events next, so that nobody works on what is gone; the rest is not urgent.
            tokio::select! {
                biased;
                () = stop.cancelled() => break Ended::Stopping,
                event = member.event() => match event {
                    Some(MemberEvent::Assigned(streams)) => streams.into_iter().for_each(|stream| workers.start(stream)),
                    Some(MemberEvent::Revoked(keys) | MemberEvent::Lost(keys)) => workers.end(&keys),
                    Some(MemberEvent::Trouble(fault)) => {
                        tracing::error!(source = &*self.topic, "trouble with the group: {fault}");
                        self.gate.close(fault.to_string());
                        match fault.disposition() {
                            runtime::kafka::Disposition::Fatal => break Ended::Again,
                            runtime::kafka::Disposition::Retry
                            | runtime::kafka::Disposition::Poison(_)
                            | runtime::kafka::Disposition::Fenced => {}
                        }
                    }
                    None => break Ended::Again,
                },
                Some(ended) = workers.running.join_next() => drop(ended),
                _ = check.tick() => if !self.is_still(id).await { break Ended::Again },
            }
        };
        match ended {
            Ended::Stopping => workers.drain(self.life.drain_timeout().mul_f64(0.6)).await,
            Ended::Again => workers.abandon().await,
        }
        member.leave().await;
        Ok(ended)
    }

    /// Whether the topic still is the one that is being read. What Kafka cannot answer now is asked again later.
    async fn is_still(&self, id: TopicId) -> bool {
        let topic = &self.topic;
        match self.deps.admin.topic_id(topic).await {
            Ok(Some(found)) if found == id => self.is_fit().await,
            Ok(found) => {
                ALARMS.with(&["topic_recreated"]).increment(1);
                let now = found.map_or_else(|| "missing".to_owned(), |found| found.to_string());
                self.close(&format!(
                    "topic {topic} was deleted or created again: its id was {id}, now it is {now}"
                ));
                false
            }
            Err(fault) => {
                tracing::debug!(source = &**topic, "cannot ask for the topic id: {fault}");
                true
            }
        }
    }

    /// Whether somebody has changed the topic so that it must not be read on.
    async fn is_fit(&self) -> bool {
        match self.side.unfit().await {
            Ok(None) => {
                self.gate.open();
                true
            }
            Ok(Some(reason)) => {
                ALARMS.with(&["wrong_source"]).increment(1);
                self.close(&reason);
                false
            }
            Err(fault) => {
                tracing::debug!(source = &*self.topic, "cannot ask for the topic's settings: {fault}");
                true
            }
        }
    }
}

struct Workers<S: Side> {
    input: Arc<S::Input>,
    id: TopicId,
    topic: Arc<str>,
    deps: Arc<Deps>,
    life: Lifecycle,
    running: JoinSet<()>,
    gone: HashMap<PartitionKey, CancellationToken>,
}

impl<S: Side> Workers<S> {
    fn start(&mut self, stream: PartitionStream) {
        let key = stream.key();
        let place = (key.topic.clone(), key.partition);
        let turn = Turn::new(S::STREAM, place, self.deps.db.clone(), self.deps.backoff, &self.life);
        if let Some(earlier) = self.gone.insert(key, turn.gone.clone()) {
            earlier.cancel();
        }
        let worker =
            Worker::new(self.input.clone(), self.id, Arc::new(turn), self.deps.admin.clone(), stream);
        self.running.spawn(worker.run());
    }

    fn end(&mut self, keys: &[PartitionKey]) {
        for key in keys {
            if let Some(gone) = self.gone.remove(key) {
                gone.cancel();
            }
        }
    }

    /// Lets the workers finish what they have committed; drops what is not done in time.
    async fn drain(&mut self, within: Duration) {
        let all = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!(
                stream = S::STREAM,
                source = &*self.topic,
                partitions = self.running.len(),
                "not drained in time: the next owner repeats what is unconfirmed"
            );
            self.abandon().await;
        }
    }

    async fn abandon(&mut self) {
        self.gone.drain().for_each(|(_, gone)| gone.cancel());
        while self.running.join_next().await.is_some() {}
    }
}
