//! Numbers of a slot. None of them decides whether a delivery is right, only when, and how much work is repeated.

/// How a slot behaves. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotConfig {
    /// W: how far back journal and `due` are read where Redis cannot say (horizon + `scan.bucket_max` + grace + 60 s).
    pub window_ms: i64,
    /// Idle for so long: a journal record without entries.
    pub heartbeat_ms: i64,
    /// Most members in one delivery transaction.
    pub batch_entries: usize,
    /// Most body bytes in one delivery transaction.
    pub batch_bytes: usize,
    /// A journal record is split beyond this size.
    pub journal_record_bytes: usize,
    /// A transaction that took longer leads to a take-over (R6).
    pub slow_transaction_ms: i64,
    /// Reports of the quarantine lane that are not in by then lead to a take-over.
    pub report_timeout_ms: i64,
    /// Cap of the set of fates in memory.
    pub settled_bytes: usize,
    /// Members in Redis from which on no credit is left for the scanner.
    pub soft_members: u64,
    /// Members in Redis from which on `due[s]` is paused.
    pub hard_members: u64,
    /// Bytes in Redis from which on no credit is left for the scanner.
    pub soft_bytes: u64,
    /// Bytes in Redis from which on `due[s]` is paused.
    pub hard_bytes: u64,
    /// Withdrawals, held records and stale records not yet in the journal, from which on `due[s]` is paused.
    pub unsettled_max: usize,
    /// Bytes of records of `due` that are none and not on `rejected` yet, from which on `due[s]` is paused.
    pub stray_bytes: usize,
    /// First pause after a failed take-over; doubles.
    pub backoff_min_ms: i64,
    /// Longest pause between two take-overs.
    pub backoff_max_ms: i64,
    /// First pause of a failing topic; doubles.
    pub topic_backoff_min_ms: i64,
    /// Longest pause of a failing topic.
    pub topic_backoff_max_ms: i64,
    /// How long a verdict such as *not authorised* buries what follows on its topic without another trial.
    pub denied_ms: i64,
    /// How long preloading rests after Redis refused it for want of memory.
    pub memory_rest_ms: i64,
}

impl Default for SlotConfig {
    fn default() -> SlotConfig {
        SlotConfig {
            window_ms: 210_000,
            heartbeat_ms: 2_000,
            batch_entries: 500,
            batch_bytes: 1 << 20,
            journal_record_bytes: 512 << 10,
            slow_transaction_ms: 1_000,
            report_timeout_ms: 8_000,
            settled_bytes: 64 << 20,
            soft_members: 200_000,
            hard_members: 400_000,
            soft_bytes: 256 << 20,
            hard_bytes: 512 << 20,
            unsettled_max: 2_000,
            stray_bytes: 8 << 20,
            backoff_min_ms: 100,
            backoff_max_ms: 5_000,
            topic_backoff_min_ms: 1_000,
            topic_backoff_max_ms: 60_000,
            denied_ms: 60_000,
            memory_rest_ms: 500,
        }
    }
}
