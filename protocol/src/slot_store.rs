//! The slot's data in Redis as a contract: what goes into and comes out of its scripts, and [`model`], the same scripts as
//! pure Rust. The real ones are `runtime::slots`; a property test holds the two together, and the deterministic model of
//! the whole protocol runs on the pure ones.

pub mod model;

use schemas::ids::RowGen;
use std::sync::Arc;

/// Largest number of members in one script call: a script stops the whole Redis node while it runs.
pub const MAX_MEMBERS: usize = 500;
/// Largest number of body bytes in one script call, unless a single body is larger.
pub const MAX_BYTES: usize = 1 << 20;
/// Largest body of a withdraw intent. Scripts look for intents only among bodies this small, so that they never read a
/// large payload just to see its first byte.
pub const MAX_INTENT_BYTES: usize = 1024;

/// A callback topic. It names the ZSETs of its members.
pub type Topic = Arc<str>;

/// What a member's body asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// Deliver it when it is due.
    Deliver,
    /// A withdraw intent: journal it as withdrawn.
    Withdraw,
}

/// Value of a member in the hash `body`: one byte for its kind, then the due record's Avro as it came from Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Body(Vec<u8>);

impl Body {
    /// The body of a record that is to be delivered.
    pub fn deliver(avro: &[u8]) -> Body {
        Body::with(b'D', avro)
    }

    /// The body of a withdraw intent.
    pub fn withdraw(avro: &[u8]) -> Body {
        Body::with(b'W', avro)
    }

    fn with(kind: u8, avro: &[u8]) -> Body {
        let mut bytes = Vec::with_capacity(avro.len() + 1);
        bytes.push(kind);
        bytes.extend_from_slice(avro);
        Body(bytes)
    }

    /// Reads a value of the hash. `None` where its first byte is neither `D` nor `W`.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Body> {
        matches!(bytes.first(), Some(b'D' | b'W')).then_some(Body(bytes))
    }

    /// What it asks for.
    pub fn kind(&self) -> BodyKind {
        if self.0[0] == b'W' { BodyKind::Withdraw } else { BodyKind::Deliver }
    }

    /// The due record's Avro bytes.
    pub fn record(&self) -> &[u8] {
        &self.0[1..]
    }

    /// The value as it stands in the hash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A due record on its way into Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreloadRecord {
    /// Its callback topic.
    pub topic: Topic,
    /// Its row and generation.
    pub member: RowGen,
    /// When it is due, epoch ms: its score.
    pub due_at: i64,
    /// Its fence.
    pub fence: i64,
    /// What is kept of it.
    pub body: Body,
}

/// What `preload` did with one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PreloadOutcome {
    /// It waits in store.
    Stored,
    /// A deliver record whose member is already in store or prepare: nothing was changed.
    Duplicate,
    /// A withdraw whose member now stands in prepare as an intent (moved there, or put there where there was none).
    Intent,
    /// A withdraw whose intent already stood in prepare. To be treated like [`PreloadOutcome::Intent`]: an earlier
    /// answer may have been lost.
    IntentAlready,
}

/// How many members of one topic a claim may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The topic.
    pub topic: Topic,
    /// At most so many.
    pub limit: u32,
}

/// One claimed member: it stands in prepare now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its callback topic.
    pub topic: Topic,
    /// Its row and generation.
    pub member: RowGen,
    /// Its score: its due time, or later after a delayed release.
    pub score_at: i64,
    /// Its body.
    pub body: Body,
}

/// A topic with something in store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTopic {
    /// The topic.
    pub topic: Topic,
    /// Its earliest score, epoch ms.
    pub earliest_at: i64,
}

/// Answer of `claim`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Topic by topic in the order asked, by (score, member) within each.
    pub claimed: Vec<Claimed>,
    /// Topics that still have something due, the earliest first.
    pub due: Vec<DueTopic>,
    /// Members removed from store because they had no body or already stood in prepare. Not zero: look into it.
    pub dropped: u32,
}

/// A member of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its callback topic.
    pub topic: Topic,
    /// Its row and generation.
    pub member: RowGen,
}

/// A withdraw intent that stands in prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Its callback topic.
    pub topic: Topic,
    /// Its row and generation.
    pub member: RowGen,
    /// When its row is due, epoch ms.
    pub due_at: i64,
    /// The withdraw record.
    pub body: Body,
}

/// Answer of a `return_prepared`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// How many members went back to store.
    pub returned: u64,
    /// What stays in prepare.
    pub intents: Vec<Intent>,
}

/// The positions that the slot's Redis data stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Offset of `due[s]` up to which every record is in Redis, settled or dropped.
    pub due_pos: i64,
    /// Offset of `journal[s]` up to which every fate is settled here.
    pub jpos: i64,
    /// Largest fence preloaded.
    pub fence: i64,
}

/// What every answer says about the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// Earliest score in any store, epoch ms; may be past. `None`: nothing waits.
    pub next_due_at: Option<i64>,
    /// Redis TIME, epoch ms.
    pub redis_at: i64,
    /// Members in store and prepare.
    pub members: u64,
    /// Bytes of all bodies.
    pub bytes: u64,
}

/// What a take-over found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenOver {
    /// The data of the last owner, complete as of these positions.
    Warm(Positions),
    /// Nothing to rely on: `start_cold` comes next.
    Cold(ColdCause),
}

/// Why a take-over is cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColdCause {
    /// There was no meta: a new slot, or an emptied Redis.
    NoMeta,
    /// An earlier cold take-over never came to its end.
    Unfinished,
    /// Counts of keys did not match meta.
    CountsOff,
}

/// Why a script changed nothing (but for LOST, which deletes meta).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Another owner's token stands in meta.
    Fenced,
    /// The sequence number is not the expected one: Redis went back in time, or an unanswered call was applied.
    RolledBack,
    /// Meta is missing, or counts do not match it.
    Lost,
}
