//! What only a take-over needs (PROTOCOL §2, take-over, steps 2, 4 and 5).

use super::client::Call;
use super::error::SlotError;
use super::reply::Reply;
use super::scripts::{FORGET, LOOK, RETURN_PREPARED, START_COLD, SWEEP, TAKE_OVER};
use super::store::{Owner, SlotStore, refused};
use protocol::slot_store::{
    Body, ColdCause, Entry, Intent, MAX_MEMBERS, Positions, Returned, SlotState, TakenOver, Topic,
};
use schemas::ids::RowGen;
use schemas::journal::OwnerToken;
use std::collections::BTreeMap;

/// Bodies read at a time: 32 of the largest are some 30 MiB.
const BODIES_AT_A_TIME: usize = 32;

impl SlotStore {
    /// Step 2: makes `token` the owner, after which every earlier owner's scripts answer `Fenced`. Checks the server's
    /// policy and all counts. `Cold` must be followed by [`SlotStore::start_cold`], and so must `Warm` with positions
    /// below a log's start.
    pub async fn take_over(&mut self, token: OwnerToken) -> Result<TakenOver, SlotError> {
        self.owner = None;
        self.prepared.clear();
        let meta = self.keys.meta();
        self.report = Some(self.client.check(&meta).await?);
        let token = format!("{:032x}", token.0);
        // Where the parts do not add up, meta is deleted and the second round finds none.
        let mut off = false;
        loop {
            match self.take(&token).await? {
                Found::Cold(cause) => {
                    return Ok(TakenOver::Cold(if off { ColdCause::CountsOff } else { cause }));
                }
                Found::Warm(meta) => {
                    if let Some(positions) = self.verified(meta).await? {
                        return Ok(TakenOver::Warm(positions));
                    }
                    off = true;
                }
            }
        }
    }

    /// Runs `take_over`; a warm meta comes with its fields.
    async fn take(&mut self, token: &str) -> Result<Found, SlotError> {
        let mut call = Call::default();
        call.key(self.keys.meta()).key(self.keys.topics()).key(self.keys.body()).arg(token);
        let value = self.client.script(&TAKE_OVER, &call).await?;
        let mut reply = Reply::new(TAKE_OVER.name, value)?;
        self.accept(&mut reply, token.to_owned(), false)?;
        match reply.text()?.as_str() {
            "WARM" => Ok(Found::Warm(Meta::read(reply.list()?)?)),
            "NO_META" => Ok(Found::Cold(ColdCause::NoMeta)),
            "UNFINISHED" => Ok(Found::Cold(ColdCause::Unfinished)),
            "COUNTS_OFF" => Ok(Found::Cold(ColdCause::CountsOff)),
            _ => Err(self.in_doubt(reply.unexpected("state"))),
        }
    }

    /// Holds all counts of a warm meta against each other and against the keys. `None`: they were off, and meta is gone.
    async fn verified(&mut self, meta: Meta) -> Result<Option<Positions>, SlotError> {
        if !meta.adds_up() {
            self.forget().await?;
            return Ok(None);
        }
        if let Some(owner) = &mut self.owner {
            owner.ready = true;
        }
        let topics: Vec<Topic> = meta.topics.keys().cloned().collect();
        for some in topics.chunks(MAX_MEMBERS) {
            let looked = self.run(&LOOK, some, |call| {
                call.arg(0).arg(0);
            });
            match looked.await {
                Ok(_) => {}
                Err(SlotError::Lost) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.prepared =
            meta.topics.into_iter().filter(|(_, n)| n.prepare > 0).map(|(topic, _)| topic).collect();
        self.positions = meta.positions;
        Ok(Some(meta.positions))
    }

    /// Step 2, cold: unlinks every key of the slot but meta, and begins an empty slot that stands for `positions`. `cold`
    /// stays set until [`SlotStore::settle_fates`] says `rebuilt`. Answers how many keys were unlinked.
    pub async fn start_cold(&mut self, positions: Positions) -> Result<u64, SlotError> {
        if positions.due_pos < 0 || positions.jpos < 0 || positions.fence < 0 {
            return Err(SlotError::Refused("a position below zero"));
        }
        self.prepared.clear();
        let mut unlinked = 0;
        let leftovers = self.leftovers().await;
        let leftovers = leftovers.map_err(|error| self.in_doubt(error))?;
        for some in leftovers.chunks(MAX_MEMBERS) {
            unlinked += self.sweep(some).await?;
        }
        let owner = self.owner.take().ok_or(SlotError::NotOwner)?;
        let mut call = Call::default();
        call.key(self.keys.meta()).key(self.keys.topics()).key(self.keys.body());
        call.arg(&owner.token).arg(&owner.seq);
        call.arg(positions.due_pos).arg(positions.jpos).arg(positions.fence);
        let value = self.client.script(&START_COLD, &call).await?;
        self.accept(&mut Reply::new(START_COLD.name, value)?, owner.token, true)?;
        self.positions = positions;
        Ok(unlinked)
    }

    /// All keys of the slot but meta, by SCAN on its node.
    async fn leftovers(&mut self) -> Result<Vec<String>, SlotError> {
        let (meta, pattern) = (self.keys.meta(), self.keys.pattern());
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let cmd =
                redis::cmd("SCAN").arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000).clone();
            let mut reply = Reply::new("scan", self.client.send("scan", cmd, Some(&meta)).await?)?;
            cursor = reply.text()?;
            let mut keys = reply.list()?;
            while !keys.is_empty() {
                let key = keys.text()?;
                if key != meta {
                    found.push(key);
                }
            }
            if cursor == "0" {
                // SCAN may tell a key twice.
                found.sort_unstable();
                found.dedup();
                return Ok(found);
            }
        }
    }

    async fn sweep(&mut self, keys: &[String]) -> Result<u64, SlotError> {
        let owner = self.owner.take().ok_or(SlotError::NotOwner)?;
        let mut call = Call::default();
        call.key(self.keys.meta());
        for key in keys {
            call.key(key.clone());
        }
        call.arg(&owner.token).arg(&owner.seq);
        let mut reply = Reply::new(SWEEP.name, self.client.script(&SWEEP, &call).await?)?;
        reply.status()?.map_err(refused)?;
        self.owner = Some(Owner { seq: reply.text()?, ..owner });
        reply.size()
    }

    /// Step 4: settles fates read from the journal. A journal entry does not name its callback topic, so `topic_of` reads
    /// it from the member's body; members without a body are not here. `rebuilt` with the last call ends a cold take-over.
    pub async fn settle_fates(
        &mut self,
        fates: &[RowGen],
        jpos: i64,
        rebuilt: bool,
        topic_of: impl Fn(&Body) -> Option<Topic>,
    ) -> Result<(), SlotError> {
        let body_key = self.keys.body();
        let mut entries = Vec::new();
        // A cold slot is empty: nothing to look for.
        let fates = if self.state.members == 0 { &[] } else { fates };
        for some in fates.chunks(BODIES_AT_A_TIME) {
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(&body_key);
            for fate in some {
                cmd.arg(&fate.member()[..]);
            }
            let answer = self.client.send("bodies", cmd, Some(&body_key)).await;
            let bodies = match answer {
                Ok(redis::Value::Array(bodies)) => bodies,
                Ok(_) => {
                    let what = "answered no list".into();
                    return Err(self.in_doubt(SlotError::Script { script: "bodies", what }));
                }
                Err(error) => return Err(self.in_doubt(error)),
            };
            for (fate, value) in some.iter().zip(bodies) {
                let redis::Value::BulkString(bytes) = value else { continue };
                match Body::from_bytes(bytes).and_then(|body| topic_of(&body)) {
                    Some(topic) => entries.push(Entry { topic, member: *fate }),
                    None => {
                        // Not a body of ours: nothing here is to be relied on.
                        self.forget().await?;
                        return Err(SlotError::Lost);
                    }
                }
            }
        }
        self.settle_entries(&entries, jpos, None, rebuilt).await
    }

    /// Step 5: what an earlier owner had claimed goes back into store; withdraw intents stay in prepare and are told.
    pub async fn return_prepared(&mut self) -> Result<Returned, SlotError> {
        let mut result = Collected::default();
        for topic in std::mem::take(&mut self.prepared) {
            let mut start = Some(0);
            while let Some(rank) = start {
                let mut reply = self
                    .run(&RETURN_PREPARED, std::slice::from_ref(&topic), |call| {
                        call.arg(rank).arg(MAX_MEMBERS);
                    })
                    .await?;
                start = result.read(&topic, &mut reply).map_err(|error| self.in_doubt(error))?;
            }
        }
        Ok(result.0)
    }

    /// Deletes meta if it still is ours: the next take-over is cold.
    pub async fn forget(&mut self) -> Result<(), SlotError> {
        let owner = self.owner.take().ok_or(SlotError::NotOwner)?;
        let mut call = Call::default();
        call.key(self.keys.meta()).arg(&owner.token);
        let mut reply = Reply::new(FORGET.name, self.client.script(&FORGET, &call).await?)?;
        match reply.status()?.map_err(refused) {
            Ok(()) | Err(SlotError::Lost) => {
                self.state = SlotState::default();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[derive(Default)]
struct Collected(Returned);

impl Collected {
    /// Adds one answer of `return_prepared`. The rank to go on from, if there is more.
    fn read(&mut self, topic: &Topic, reply: &mut Reply) -> Result<Option<i64>, SlotError> {
        let start = reply.optional_int()?;
        self.0.returned += reply.size()?;
        let mut list = reply.list()?;
        while !list.is_empty() {
            let (member, due_at) = (list.member()?, list.int()?);
            let body = Body::from_bytes(list.bytes()?).ok_or_else(|| list.unexpected("body"))?;
            self.0.intents.push(Intent { topic: topic.clone(), member, due_at, body });
        }
        Ok(start)
    }
}

/// What `take_over` found.
enum Found {
    Warm(Meta),
    Cold(ColdCause),
}

/// A warm meta.
struct Meta {
    positions: Positions,
    members: i64,
    bodies: i64,
    waiting: i64,
    topics: BTreeMap<Topic, Sizes>,
}

#[derive(Default)]
struct Sizes {
    store: i64,
    prepare: i64,
}

impl Meta {
    fn read(mut fields: Reply) -> Result<Meta, SlotError> {
        let mut meta = Meta {
            positions: Positions::default(),
            members: -1,
            bodies: -1,
            waiting: -1,
            topics: BTreeMap::new(),
        };
        while !fields.is_empty() {
            let (name, value) = (fields.text()?, fields.text()?);
            match name.as_str() {
                "token" | "seq" | "bytes" => {}
                "due_pos" => meta.positions.due_pos = fields.parse(&value)?,
                "jpos" => meta.positions.jpos = fields.parse(&value)?,
                "fence" => meta.positions.fence = fields.parse(&value)?,
                "members" => meta.members = fields.parse(&value)?,
                "bodies" => meta.bodies = fields.parse(&value)?,
                "topics" => meta.waiting = fields.parse(&value)?,
                other => match other.split_at_checked(2) {
                    Some(("s:", topic)) => {
                        meta.topics.entry(topic.into()).or_default().store = fields.parse(&value)?
                    }
                    Some(("p:", topic)) => {
                        meta.topics.entry(topic.into()).or_default().prepare = fields.parse(&value)?
                    }
                    _ => return Err(fields.unexpected("field of meta")),
                },
            }
        }
        Ok(meta)
    }

    /// Each member has one body and stands in one ZSET; each topic with something in store is in `topics`.
    fn adds_up(&self) -> bool {
        let members: i64 = self.topics.values().map(|n| n.store + n.prepare).sum();
        let waiting = self.topics.values().filter(|n| n.store > 0).count() as i64;
        members == self.members && self.bodies == self.members && waiting == self.waiting
    }
}
