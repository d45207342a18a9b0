//! The typed wrapper around the scripts of one slot in normal running.

use super::check::ServerReport;
use super::client::{Call, SlotClient};
use super::error::SlotError;
use super::keys::SlotKeys;
use super::parts::split;
use super::reply::Reply;
use super::scripts::{CLAIM, LOOK, PRELOAD, RELEASE, SETTLE, SlotScript};
use protocol::slot_store::{
    Body, BodyKind, Claimed, Claims, DueTopic, Entry, MAX_BYTES, MAX_INTENT_BYTES, MAX_MEMBERS, Positions,
    PreloadOutcome, PreloadRecord, Quota, Refusal, SlotState, Topic,
};
use schemas::ids::Slot;
use std::time::Duration;

/// The data of one slot, for one owner: one strictly serial caller.
///
/// Whoever calls must have taken the slot over (`take_over`, and `start_cold` where that says so). After any error but
/// [`SlotError::OutOfMemory`] and [`SlotError::Refused`], and after a call whose future was dropped, it is unknown what
/// Redis holds: everything answers [`SlotError::NotOwner`] until the next take-over.
pub struct SlotStore {
    pub(super) client: SlotClient,
    pub(super) keys: SlotKeys,
    pub(super) owner: Option<Owner>,
    pub(super) state: SlotState,
    pub(super) positions: Positions,
    pub(super) report: Option<ServerReport>,
    /// Topics that may have something in prepare, as the take-over found them.
    pub(super) prepared: Vec<Topic>,
}

/// What proves the ownership: nobody else has written since.
pub(super) struct Owner {
    pub(super) token: String,
    pub(super) seq: String,
    /// Positions stand: warm, or started cold.
    pub(super) ready: bool,
}

impl SlotStore {
    /// A slot not yet taken over.
    pub fn new(client: SlotClient, prefix: &str, slot: Slot) -> SlotStore {
        SlotStore {
            client,
            keys: SlotKeys::new(prefix, slot),
            owner: None,
            state: SlotState::default(),
            positions: Positions::default(),
            report: None,
            prepared: Vec::new(),
        }
    }

    /// What the latest answer said.
    pub fn state(&self) -> SlotState {
        self.state
    }

    /// The positions that the data stands for.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// Whether the slot is taken over and nothing is in doubt.
    pub fn is_owner(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.ready)
    }

    /// Version and warnings of the server, as of the latest take-over.
    pub fn report(&self) -> Option<&ServerReport> {
        self.report.as_ref()
    }

    /// Puts due records into store and withdraw intents into prepare, in the order given; one outcome for each.
    /// `due_pos` is written with the last part: when this fails half-way, the same records are to be given again.
    pub async fn preload(
        &mut self,
        records: &[PreloadRecord],
        due_pos: i64,
    ) -> Result<Vec<PreloadOutcome>, SlotError> {
        for record in records {
            if record.body.kind() == BodyKind::Withdraw && record.body.as_bytes().len() > MAX_INTENT_BYTES {
                return Err(SlotError::Refused("a withdraw record is larger than any can be"));
            }
            if record.fence < 0 || due_pos < 0 {
                return Err(SlotError::Refused("a position below zero"));
            }
        }
        let parts = split(records, |r| &r.topic, |r| r.body.as_bytes().len());
        let mut outcomes = Vec::with_capacity(records.len());
        let last = parts.len().saturating_sub(1);
        for (n, part) in parts.iter().enumerate() {
            let fence = part.items.iter().map(|(_, r)| r.fence).max();
            let mut reply = self
                .run(&PRELOAD, &part.topics, |call| {
                    call.arg(text(fence)).arg(text((n == last).then_some(due_pos))).arg(part.items.len());
                    for (topic, r) in &part.items {
                        call.arg(topic)
                            .bytes(r.member.member().to_vec())
                            .arg(r.due_at)
                            .bytes(r.body.as_bytes());
                    }
                })
                .await?;
            self.positions.fence = self.positions.fence.max(fence.unwrap_or(0));
            outcomes.extend(placed(&mut reply, part.items.len()).map_err(|error| self.in_doubt(error))?);
        }
        if parts.is_empty() {
            self.run(&PRELOAD, &[], |call| {
                call.arg("").arg(due_pos).arg(0);
            })
            .await?;
        }
        self.positions.due_pos = due_pos;
        Ok(outcomes)
    }

    /// Moves members due at `now` (local clock; Redis takes the earlier of it and its own) from store to prepare: at most
    /// 500 and `max_bytes` (1 MiB at most; one member at least), whatever the quotas add up to. Of more than 500 quotas
    /// the first 500 count.
    pub async fn claim(&mut self, now: i64, quotas: &[Quota], max_bytes: usize) -> Result<Claims, SlotError> {
        let quotas = &quotas[..quotas.len().min(MAX_MEMBERS)];
        let topics: Vec<Topic> = quotas.iter().map(|q| q.topic.clone()).collect();
        let mut reply = self
            .run(&CLAIM, &topics, |call| {
                call.arg(now).arg(max_bytes.min(MAX_BYTES)).arg(MAX_MEMBERS).arg(MAX_MEMBERS);
                for quota in quotas {
                    call.arg(quota.limit);
                }
            })
            .await?;
        claims(&mut reply, &topics).map_err(|error| self.in_doubt(error))
    }

    /// Topics with something in store up to `until`, the earliest first. The cheapest call: an idle owner makes it with
    /// each heartbeat, so that it notices when Redis was emptied.
    pub async fn due_topics(&mut self, until: i64, limit: usize) -> Result<Vec<DueTopic>, SlotError> {
        let mut reply = self
            .run(&LOOK, &[], |call| {
                call.arg(until).arg(limit);
            })
            .await?;
        reply.list().and_then(due_topics).map_err(|error| self.in_doubt(error))
    }

    /// The first topics by their earliest score, past and future.
    pub async fn next_topics(&mut self, limit: usize) -> Result<Vec<DueTopic>, SlotError> {
        self.due_topics(i64::MAX, limit).await
    }

    /// Removes members whose fate is committed, and moves the positions with the last part. `due_pos` may move on here
    /// where an unsettled intent held it back.
    pub async fn settle(
        &mut self,
        entries: &[Entry],
        jpos: i64,
        due_pos: Option<i64>,
    ) -> Result<(), SlotError> {
        self.settle_entries(entries, jpos, due_pos, false).await
    }

    pub(super) async fn settle_entries(
        &mut self,
        entries: &[Entry],
        jpos: i64,
        due_pos: Option<i64>,
        rebuilt: bool,
    ) -> Result<(), SlotError> {
        if jpos < 0 || due_pos.is_some_and(|pos| pos < 0) {
            return Err(SlotError::Refused("a position below zero"));
        }
        let mut parts = split(entries, |e| &e.topic, |_| 0).into_iter().peekable();
        loop {
            let part = parts.next();
            let last = parts.peek().is_none();
            let (topics, items) = part.map(|p| (p.topics, p.items)).unwrap_or_default();
            self.run(&SETTLE, &topics, |call| {
                call.arg(text(last.then_some(jpos))).arg(text(due_pos.filter(|_| last)));
                call.arg(u8::from(rebuilt && last)).arg(items.len());
                for (topic, entry) in &items {
                    call.arg(topic).bytes(entry.member.member().to_vec());
                }
            })
            .await?;
            if last {
                break;
            }
        }
        self.positions.jpos = jpos;
        self.positions.due_pos = due_pos.unwrap_or(self.positions.due_pos);
        Ok(())
    }

    /// Puts claimed members back into store after an abort. With a delay they are due at Redis TIME + delay at the
    /// earliest. Intents stay where they are.
    pub async fn release(&mut self, entries: &[Entry], delay: Duration) -> Result<(), SlotError> {
        for part in split(entries, |e| &e.topic, |_| 0) {
            self.run(&RELEASE, &part.topics, |call| {
                call.arg(delay.as_millis()).arg(part.items.len());
                for (topic, entry) in &part.items {
                    call.arg(topic).bytes(entry.member.member().to_vec());
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Runs a script that starts like all those with the common part, and takes in the head of its answer.
    pub(super) async fn run<'a>(
        &mut self,
        script: &'static SlotScript,
        topics: &[Topic],
        own: impl FnOnce(&mut Call<'a>),
    ) -> Result<Reply, SlotError> {
        // Taken out until the answer is here: an error or a dropped future leaves no owner behind.
        let owner = self.owner.take_if(|owner| owner.ready).ok_or(SlotError::NotOwner)?;
        let mut call = Call::default();
        call.key(self.keys.meta()).key(self.keys.topics()).key(self.keys.body());
        call.arg(&owner.token).arg(&owner.seq).arg(topics.len());
        for topic in topics {
            call.key(self.keys.store(topic)).key(self.keys.prepare(topic)).arg(topic);
        }
        own(&mut call);
        match self.client.script(script, &call).await {
            Ok(value) => {
                let mut reply = Reply::new(script.name, value)?;
                self.accept(&mut reply, owner.token, true)?;
                Ok(reply)
            }
            Err(SlotError::OutOfMemory) if script.name == PRELOAD.name => {
                self.owner = Some(owner);
                Err(SlotError::OutOfMemory)
            }
            Err(SlotError::OutOfMemory) => Err(SlotError::Script {
                script: script.name,
                what: "refused at maxmemory despite allow-oom".into(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Takes in the head of an answer: status, seq, next due time, TIME, members, bytes.
    pub(super) fn accept(&mut self, reply: &mut Reply, token: String, ready: bool) -> Result<(), SlotError> {
        reply.status()?.map_err(refused)?;
        let seq = reply.text()?;
        self.state = SlotState {
            next_due_at: reply.optional_int()?,
            redis_at: reply.int()?,
            members: reply.size()?,
            bytes: reply.size()?,
        };
        self.owner = Some(Owner { token, seq, ready });
        Ok(())
    }

    /// An answer that cannot be read leaves doubt about all.
    pub(super) fn in_doubt(&mut self, error: SlotError) -> SlotError {
        self.owner = None;
        error
    }
}

/// The error of a refusal.
pub(super) fn refused(refusal: Refusal) -> SlotError {
    match refusal {
        Refusal::Fenced => SlotError::Fenced,
        Refusal::RolledBack => SlotError::RolledBack,
        Refusal::Lost => SlotError::Lost,
    }
}

fn text(number: Option<i64>) -> String {
    number.map(|n| n.to_string()).unwrap_or_default()
}

fn placed(reply: &mut Reply, expected: usize) -> Result<Vec<PreloadOutcome>, SlotError> {
    let letters = reply.bytes()?;
    if letters.len() != expected {
        return Err(reply.unexpected("outcomes"));
    }
    let outcome = |letter: &u8| match letter {
        b'S' => Ok(PreloadOutcome::Stored),
        b'D' => Ok(PreloadOutcome::Duplicate),
        b'I' => Ok(PreloadOutcome::Intent),
        b'A' => Ok(PreloadOutcome::IntentAlready),
        _ => Err(reply.unexpected("outcome")),
    };
    letters.iter().map(outcome).collect()
}

fn claims(reply: &mut Reply, topics: &[Topic]) -> Result<Claims, SlotError> {
    let mut list = reply.list()?;
    let mut claimed = Vec::new();
    while !list.is_empty() {
        let index = list.size()? as usize;
        let topic = topics.get(index.wrapping_sub(1)).ok_or_else(|| list.unexpected("topic"))?.clone();
        let (member, score_at) = (list.member()?, list.int()?);
        let body = Body::from_bytes(list.bytes()?).ok_or_else(|| list.unexpected("body"))?;
        claimed.push(Claimed { topic, member, score_at, body });
    }
    let due = due_topics(reply.list()?)?;
    let dropped = u32::try_from(reply.int()?).map_err(|_| reply.unexpected("count"))?;
    Ok(Claims { claimed, due, dropped })
}

fn due_topics(mut list: Reply) -> Result<Vec<DueTopic>, SlotError> {
    let mut due = Vec::new();
    while !list.is_empty() {
        due.push(DueTopic { topic: list.text()?.into(), earliest_at: list.int()? });
    }
    Ok(due)
}
