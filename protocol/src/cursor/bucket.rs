//! How far one scan moves a shard's cursor, and how large a page is: both follow what the last ones found.

/// Settings of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRule {
    /// How far ahead of its due time a task is preloaded.
    pub horizon_ms: i64,
    /// What is due within it is emitted however full the slot is: below it tasks would be late.
    pub horizon_min_ms: i64,
    /// Rows that a bucket should hold, and the most that a page holds.
    pub batch: u32,
    /// Narrowest bucket.
    pub bucket_min_ms: i64,
    /// Widest bucket.
    pub bucket_max_ms: i64,
    /// A page ends with the row that reaches it.
    pub page_bytes: u64,
}

/// A bucket never widens by more than this from one scan to the next: what comes may be denser than what was.
const WIDEN: i64 = 4;

/// How full the dispatcher says a slot is (its last applied heartbeat). No figure: nothing is known, nothing is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotLoad {
    /// Members in Redis.
    pub backlog: Option<i64>,
    /// How many more it takes before it pauses.
    pub credit: Option<i64>,
}

impl SlotLoad {
    /// How much of the horizon is left, in thousandths: all of it up to half full, none of it at nine tenths.
    fn ease_permille(self) -> i64 {
        let (Some(backlog), Some(credit)) = (self.backlog, self.credit) else { return 1000 };
        let (backlog, credit) = (i128::from(backlog.max(0)), i128::from(credit.max(0)));
        let capacity = backlog + credit;
        if capacity == 0 {
            return if self.credit.is_some_and(|credit| credit < 0) { 0 } else { 1000 };
        }
        let fill = backlog * 1000 / capacity;
        i64::try_from(((900 - fill) * 1000 / 400).clamp(0, 1000)).unwrap_or(0)
    }

    /// Whether the slot asks for less than the whole horizon: look at its load again soon.
    pub fn is_pressed(self) -> bool {
        self.ease_permille() < 1000
    }
}

impl ScanRule {
    /// The horizon that the slot's load leaves.
    pub fn horizon(&self, load: SlotLoad) -> i64 {
        let spare = (self.horizon_ms - self.horizon_min_ms).max(0);
        self.horizon_min_ms + spare * load.ease_permille() / 1000
    }

    /// The widest bucket that the slot's load leaves: a wide one would preload as much as the horizon does.
    fn widest(&self, load: SlotLoad) -> i64 {
        let spare = (self.bucket_max_ms - self.bucket_min_ms).max(0);
        self.bucket_min_ms + spare * load.ease_permille() / 1000
    }
}

/// What a shard has learned about its density.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Width of the next bucket.
    pub bucket_ms: i64,
    /// Rows to ask for in the next page.
    pub page_rows: u32,
}

impl Pace {
    /// Before anything is known: the narrowest bucket.
    pub fn new(rule: &ScanRule) -> Pace {
        Pace { bucket_ms: rule.bucket_min_ms.max(1), page_rows: rule.batch.max(1) }
    }

    /// How far the next scan moves the cursor beyond the horizon.
    pub fn bucket(&self, rule: &ScanRule, load: SlotLoad) -> i64 {
        self.bucket_ms.min(rule.widest(load)).max(rule.bucket_min_ms).max(1)
    }

    /// A scan moved the cursor by `covered_ms` and found `rows`: down at once, up by steps.
    pub fn scanned(&mut self, rule: &ScanRule, covered_ms: i64, rows: u64) {
        let widest = rule.bucket_max_ms.max(rule.bucket_min_ms);
        // The first scan ever covers decades, one after an outage hours: only the part that says something counts.
        let covered = covered_ms.clamp(1, rule.horizon_ms.max(1).saturating_add(widest));
        let step = self.bucket_ms.saturating_mul(WIDEN);
        let fitting = match i128::from(rows) {
            0 => step,
            rows => {
                let fitting = i128::from(covered) * i128::from(rule.batch) / rows;
                i64::try_from(fitting).unwrap_or(i64::MAX).min(step)
            }
        };
        self.bucket_ms = fitting.clamp(rule.bucket_min_ms.max(1), widest.max(1));
    }

    /// A page of `rows` held `bytes`: the next one asks for as many as should fit, so that large rows are not read twice.
    pub fn paged(&mut self, rule: &ScanRule, rows: u32, bytes: u64) {
        if rows == 0 {
            return;
        }
        let fitting = u128::from(rule.page_bytes) * u128::from(rows) / u128::from(bytes.max(1));
        let step = u128::from(self.page_rows) * 4;
        let bounded = fitting.min(step).clamp(1, u128::from(rule.batch.max(1)));
        self.page_rows = u32::try_from(bounded).unwrap_or(1);
    }
}
