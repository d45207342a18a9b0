//! What is fixed for the whole of a run: sizes, settings of the programs, how often things go wrong, a mistake made on
//! purpose.

use crate::dice::Dice;
use protocol::cursor::ScanRule;
use protocol::reemit::ReemitRule;
use protocol::slot::SlotConfig;

/// A mistake that is known to break the promise, made in the model's glue around the decisions. The model must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Every due record is taken for fresh, whatever its fence says.
    FenceCheckOff,
    /// Redis forgets the members before the transaction commits.
    SettleBeforeCommit,
    /// After an unknown outcome the claimed members go back to store and the owner goes on.
    ReleaseAfterUnknown,
    /// Transactional ids belong to processes, not to slots.
    TransactionalIdPerProcess,
    /// A scan's page is read in a snapshot older than the commit of its cursor.
    PageBeforeCursor,
    /// Ingest reads the cursor before its insert commits.
    CursorBeforeCommit,
    /// A cancel beyond the cursor is decided without holding the shard's row.
    CancelWithoutLock,
    /// `confirmed` of an input moves with the rows, before their effects are acked.
    ConfirmBeforeAcks,
    /// The scanner moves `confirmed` before its records are acked.
    ScanConfirmBeforeAcks,
    /// `confirmed` of a shard is written whatever its epoch says.
    EpochIgnored,
    /// A take-over trusts its own end of the journal instead of Redis's position.
    JposNotReread,
    /// A take-over fences nobody: its barrier is a plain record, its producers are initialised when they are needed.
    NoBarrier,
    /// Fates found by a take-over are not removed from Redis.
    StoreNotReconciled,
    /// Ingest emits what it committed without looking again.
    NoSecondLook,
    /// Records below `next` are applied again.
    AppliedAgain,
    /// Effects of records below `next` are not repeated.
    EffectsNotRepeated,
    /// A withdraw is journaled although its member is being delivered.
    WithdrawOverFlying,
    /// The fence of an emission is read after its row.
    FenceAfterRow,
    /// The position on `due` passes withdrawals that only memory knows.
    DuePosRunsAhead,
    /// A withdrawn row is emitted again under the same generation.
    SameGeneration,
}

/// How a run is laid out.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Slots.
    pub slots: u16,
    /// Shards.
    pub shards: u16,
    /// Partitions of `tasks`.
    pub partitions: i32,
    /// Callback topics.
    pub topics: u32,
    /// Settings of the scan.
    pub scan: ScanRule,
    /// Settings of the re-emission.
    pub reemit: ReemitRule,
    /// Whether the compensator emits what merely is overdue.
    pub by_time: bool,
    /// Settings of the dispatcher.
    pub slot: SlotConfig,
    /// How often an answer is lost, late or an error, per thousand.
    pub mishaps: u32,
    /// How often a program or a server fails, per thousand steps.
    pub faults: u32,
    /// How often Redis loses or changes something, per thousand faults.
    pub redis: u32,
    /// Whether tasks are withdrawn and cancelled.
    pub changes: bool,
    /// Whether callback topics fail.
    pub bad_topics: bool,
    /// Most tasks.
    pub tasks: usize,
    /// The mistake.
    pub mutation: Option<Mutation>,
}

impl Setup {
    /// Small, calm, everything on the slow side of its clock.
    pub fn calm() -> Setup {
        Setup {
            slots: 1,
            shards: 2,
            partitions: 1,
            topics: 2,
            scan: ScanRule {
                horizon_ms: 2_000,
                horizon_min_ms: 500,
                batch: 4,
                bucket_min_ms: 500,
                bucket_max_ms: 2_000,
                page_bytes: 4,
            },
            reemit: ReemitRule {
                grace_ms: 3_000,
                pause_ms: 3_000,
                pause_max_ms: 12_000,
                heartbeat_max_ms: 10_000,
                backlog_max: 1_000,
            },
            by_time: true,
            slot: SlotConfig {
                window_ms: 8_000,
                heartbeat_ms: 1_000,
                batch_entries: 4,
                journal_record_bytes: 100,
                backoff_min_ms: 10,
                backoff_max_ms: 200,
                topic_backoff_min_ms: 20,
                topic_backoff_max_ms: 200,
                denied_ms: 500,
                memory_rest_ms: 50,
                ..SlotConfig::default()
            },
            mishaps: 0,
            faults: 0,
            redis: 0,
            changes: false,
            bad_topics: false,
            tasks: 40,
            mutation: None,
        }
    }

    /// A run of random size and roughness.
    pub fn random(dice: &mut Dice) -> Setup {
        let mut setup = Setup::calm();
        setup.slots = dice.pick(&[1, 1, 2]);
        setup.shards = setup.slots * dice.pick(&[1, 2]);
        setup.partitions = dice.pick(&[1, 1, 2]);
        setup.topics = 1 + dice.roll(3);
        setup.scan.batch = dice.pick(&[4, 1, 2]);
        setup.scan.page_bytes = dice.pick(&[4, 1, 100]);
        setup.by_time = dice.pick(&[true, false, false]);
        if !setup.by_time {
            setup.switch_off_by_time();
        }
        // A W that is too short is no risk, but what was lost with Redis then waits for re-emission by time.
        let windows = if setup.by_time {
            [8_000, 0, 300, 2_000, 100_000]
        } else {
            [8_000, 8_000, 8_000, 8_000, 100_000]
        };
        setup.slot.window_ms = dice.pick(&windows);
        setup.slot.batch_entries = 1 + dice.roll(6) as usize;
        setup.slot.settled_bytes = dice.pick(&[1 << 20, 1 << 20, 200, 1_000]);
        setup.slot.unsettled_max = dice.pick(&[2_000, 2, 5]);
        let (members, cap) = dice.pick(&[(200_000, 400_000), (200_000, 400_000), (6, 12)]);
        (setup.slot.soft_members, setup.slot.hard_members) = (members, cap);
        setup.mishaps = dice.pick(&[0, 4, 15, 40]);
        setup.faults = dice.pick(&[0, 5, 15, 30]);
        setup.redis = dice.pick(&[0, 300, 700]);
        setup.changes = dice.pick(&[false, true]);
        setup.bad_topics = dice.pick(&[false, false, true]);
        setup.tasks = dice.pick(&[40, 5, 15, 100]);
        setup
    }

    /// The compensator acts only on what was handed back or lost with Redis.
    pub fn switch_off_by_time(&mut self) {
        self.by_time = false;
        self.reemit.grace_ms = 1 << 50;
    }

    /// Whether this mistake is made.
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
