//! What goes into the machine and what comes out of it.

use super::logs::{DueItem, JournalChunk, LogBounds};
use super::precheck::Lookup;
use super::strays::{Stray, StrayEnd};
use crate::slot_store::{
    Claims, DueTopic, Entry, Positions, PreloadOutcome, PreloadRecord, Quota, Returned, SlotState, TakenOver,
    Topic,
};
use schemas::due::DueRecord;
use schemas::ids::RowGen;
use schemas::journal::{JournalRecord, OwnerToken};
use std::sync::Arc;

/// The two clocks of the machine that runs the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, epoch ms. May jump.
    pub local_at: i64,
    /// Monotonic clock, ms from anywhere.
    pub mono_ms: i64,
}

/// Which of the slot's two transactional ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// For topics that have proved to work, withdrawals, burials, heartbeats.
    Main,
    /// One topic per transaction, for topics that are new or failing.
    Quarantine,
}

/// What the caller does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Carry this out and hand its reply in.
    Do(Action),
    /// Nothing to do before this time on the monotonic clock (`None`: for ever), unless something comes in.
    Wait {
        /// Monotonic ms.
        until_mono_ms: Option<i64>,
    },
    /// The slot is no longer ours (or never was). Nothing more will come.
    Stopped,
}

/// Something to carry out. The doc of each names its reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Drop the producers, make new ones for both transactional ids, `init_transactions` on each until Ok, and draw a
    /// new token. Nowhere else is `init_transactions` called. → [`Input::LanesReady`] or [`Input::Failed`]
    InitLanes,
    /// Script `take_over`. → [`Input::TakenOver`]
    TakeOver {
        /// The new token.
        token: OwnerToken,
    },
    /// Look at both logs. → [`Input::Logs`]
    InspectLogs {
        /// W.
        window_ms: i64,
    },
    /// Script `start_cold`: unlink what is left, begin at these positions. → [`Input::Scripted`]
    StartCold(Positions),
    /// Commit this record alone on `journal[s]`, main lane. → [`Input::Barrier`]
    CommitBarrier(Box<JournalRecord>),
    /// Read `journal[s]`, committed records only, from one offset up to and including another, as far as is convenient. The next
    /// call goes on where this one ended. → [`Input::Journal`]
    ReadJournal {
        /// First offset wanted.
        from: i64,
        /// Last offset wanted.
        to: i64,
    },
    /// Script calls of take-over step 4. → [`Input::Scripted`]
    SettleFates {
        /// Whose fates.
        fates: Vec<RowGen>,
        /// Journal position that Redis stands for afterwards.
        jpos: i64,
        /// The last of this take-over: clears the cold flag.
        rebuilt: bool,
    },
    /// Take-over step 5. → [`Input::Returned`]
    ReturnPrepared,
    /// Read `due[s]` from here on; nothing fetched earlier may come in afterwards. → [`Input::Done`] or [`Input::Failed`]
    SeekDue {
        /// First offset wanted.
        offset: i64,
    },
    /// Stop fetching `due[s]`. → [`Input::Done`] or [`Input::Failed`]
    PauseDue,
    /// Go on fetching `due[s]`. → [`Input::Done`] or [`Input::Failed`]
    ResumeDue,
    /// Script `preload`. → [`Input::Preloaded`]
    Preload {
        /// At most one call's worth; may be empty.
        records: Vec<PreloadRecord>,
        /// Position on `due` that Redis stands for afterwards.
        due_pos: i64,
    },
    /// The first topics by their earliest score, past and future. → [`Input::Agenda`]
    Agenda {
        /// At most so many.
        limit: usize,
    },
    /// Script `claim`. → [`Input::Claimed`]
    Claim {
        /// Local clock; the script takes the lesser of it and Redis TIME.
        now_at: i64,
        /// In this order.
        quotas: Vec<Quota>,
        /// Bytes of bodies.
        max_bytes: usize,
    },
    /// What is known of these callback topics; *unknown* only after fresh metadata. → [`Input::Facts`]
    LookUp {
        /// Which.
        topics: Vec<Topic>,
        /// Ask the brokers again, whatever is remembered: something is to be buried for the answer.
        fresh: bool,
    },
    /// Copy these to `rejected`. Begins only: → [`Input::Done`] at once and [`Input::Strays`] later.
    KeepStrays(Vec<Arc<Stray>>),
    /// Script `release`. → [`Input::Scripted`]
    Release {
        /// Which members.
        entries: Vec<Entry>,
        /// Not to be claimed before.
        delay_ms: i64,
    },
    /// Script `settle`. → [`Input::Scripted`]
    Settle {
        /// Gone from store, prepare and body alike.
        entries: Vec<Entry>,
        /// Journal position that Redis stands for afterwards.
        jpos: i64,
        /// Position on `due`.
        due_pos: i64,
    },
    /// Script `forget`: deletes meta, so that the next take-over is cold. → [`Input::Scripted`]
    Forget,
    /// Produce within the lane's transaction. → [`Input::Sent`] when every report is in; with `wait` false
    /// [`Input::Done`] at once and [`Input::Reports`] later.
    Send {
        /// Which id.
        lane: Lane,
        /// Begin the transaction first.
        begin: bool,
        /// Callback and dead records.
        records: Vec<Outgoing>,
        /// Journal records, in order.
        journal: Vec<JournalRecord>,
        /// Whether to wait for the reports.
        wait: bool,
    },
    /// `commit_transaction`. → [`Input::Ended`]
    Commit {
        /// Which id.
        lane: Lane,
    },
    /// `abort_transaction`. → [`Input::Ended`]
    Abort {
        /// Which id.
        lane: Lane,
    },
}

/// One record to be produced.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The task.
    pub record: Arc<DueRecord>,
    /// Where to.
    pub target: Target,
    /// What `duestream-delivered-at` says, epoch ms.
    pub at: i64,
}

/// Where a record goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its callback topic.
    Callback {
        /// The partition.
        partition: i32,
        /// Bytes that one batch of the topic may hold: what goes beyond must not be under way together.
        batch_bytes: usize,
    },
    /// The topic `dead`.
    Dead {
        /// Reason code.
        reason: String,
    },
}

/// What comes in: replies to actions first, then what happens by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Both lanes are initialised: every transaction of an earlier owner is decided.
    LanesReady {
        /// Fresh random token.
        token: OwnerToken,
    },
    /// The action was carried out.
    Done,
    /// The action failed; it may or may not have had an effect.
    Failed(String),
    /// Answer of `take_over`.
    TakenOver(Result<(TakenOver, SlotState), ScriptFault>),
    /// Both logs.
    Logs(Result<LogBounds, String>),
    /// Answer of a script that only says how the slot stands.
    Scripted(Result<SlotState, ScriptFault>),
    /// Offset of the committed barrier.
    Barrier(Result<i64, String>),
    /// A stretch of the journal.
    Journal(Result<JournalChunk, String>),
    /// Answer of `return_prepared`.
    Returned(Result<(Returned, SlotState), ScriptFault>),
    /// Answer of `preload`, in the order of its records.
    Preloaded(Result<(Vec<PreloadOutcome>, SlotState), ScriptFault>),
    /// The first topics.
    Agenda(Result<(Vec<DueTopic>, SlotState), ScriptFault>),
    /// Answer of `claim`.
    Claimed(Result<(Claims, SlotState), ScriptFault>),
    /// What is known of callback topics.
    Facts(Vec<(Topic, Lookup)>),
    /// Every report of a `Send` is in.
    Sent(SendOutcome),
    /// How commit or abort ended.
    Ended(TxnEnd),

    /// Records of `due[s]`, in order.
    Due(Vec<DueItem>),
    /// `due[s]` cannot be read on: its position fell out of the log, or the client broke.
    DueTrouble(String),
    /// Every report of the quarantine lane's callback records is in.
    Reports(SendOutcome),
    /// What became of the strays of the last [`Action::KeepStrays`], in its order.
    Strays(Vec<StrayEnd>),
    /// The slot was taken away: everything unsettled is dropped at once.
    AssignmentLost,
    /// Finish what is begun, then stop.
    Stop,
}

/// Why a script did not answer as hoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptFault {
    /// Another owner's token.
    Fenced,
    /// Redis went back in time.
    RolledBack,
    /// Meta or counts do not match; meta is gone.
    Lost,
    /// Refused for want of memory, nothing written (`preload` only).
    OutOfMemory,
    /// No answer; it may have been applied.
    TimedOut,
    /// Redis may evict, or is too old.
    Policy(String),
    /// Anything else; it may have been applied.
    Broken(String),
}

/// Reports of what was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SendOutcome {
    /// In the order of the records.
    pub reports: Vec<Result<(), Fault>>,
    /// Offsets of the journal records in order, or the first fault.
    pub journal: Result<Vec<i64>, Fault>,
}

impl SendOutcome {
    /// Nothing could be sent at all.
    pub fn failed(fault: &Fault, records: usize) -> SendOutcome {
        SendOutcome { reports: vec![Err(fault.clone()); records], journal: Err(fault.clone()) }
    }
}

/// Why a record was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// What the client says.
    pub text: String,
}

/// Kinds of faults of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Thrown away because of another one.
    Purged,
    /// May work another time (also: timed out, no leader).
    Transient,
    /// Permanent for this record: too large.
    TooLarge,
    /// Permanent for this record: the topic asks for a key, or refuses the record otherwise.
    Invalid,
    /// The producer does not know the topic.
    UnknownTopic,
    /// The producer does not know the partition.
    UnknownPartition,
    /// Permanent: not authorised.
    NotAuthorised,
    /// The producer is fenced or broken: not about the record.
    Fatal,
}

/// How a commit or an abort ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnEnd {
    /// Proved.
    Ok,
    /// Call again.
    Retry(String),
    /// Not known.
    Unknown(String),
}
