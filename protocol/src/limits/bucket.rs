//! When the next delivery may leave at a rate.

/// One delivery.
const WHOLE: i128 = 1_000_000_000;
/// Deliveries leave together every so often: at a high rate one transaction for each would cost too much.
const TOGETHER_MS: i64 = 100;

/// A bucket into which deliveries drop at a rate that may change; each that leaves takes one out. It holds what the rate
/// gives in one second, and at least one. A new one is empty: who starts anew does not begin with a burst.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// In billionths of a delivery.
    level: i128,
    rate: i64,
    at_ms: i64,
    taken_ms: i64,
}

impl Bucket {
    /// An empty bucket.
    pub fn new(now_ms: i64) -> Bucket {
        Bucket { level: 0, rate: 0, at_ms: now_ms, taken_ms: i64::MIN }
    }

    /// From now on it fills at this rate, in millionths of a delivery per second. `now_ms`: a monotonic clock.
    pub fn set_rate(&mut self, rate: i64, now_ms: i64) {
        self.fill(now_ms);
        self.rate = rate.max(0);
        self.level = self.level.min(self.most());
    }

    fn most(&self) -> i128 {
        (i128::from(self.rate) * 1_000).max(WHOLE)
    }

    fn fill(&mut self, now_ms: i64) {
        let passed = now_ms.saturating_sub(self.at_ms);
        if passed > 0 {
            // Millionths per second times milliseconds are billionths.
            self.level = (self.level + i128::from(self.rate) * i128::from(passed)).min(self.most());
            self.at_ms = now_ms;
        }
    }

    /// How many may leave now.
    pub fn ready(&self, now_ms: i64) -> u32 {
        let mut filled = *self;
        filled.fill(now_ms);
        let whole = filled.level / WHOLE;
        let rested = now_ms.saturating_sub(self.taken_ms) >= TOGETHER_MS;
        if whole == 0 || !(rested || whole >= self.together()) {
            0
        } else {
            u32::try_from(whole).unwrap_or(u32::MAX)
        }
    }

    /// As many as the rate gives in the time after which they leave together.
    fn together(&self) -> i128 {
        (i128::from(self.rate) * i128::from(TOGETHER_MS) / WHOLE).max(1)
    }

    /// When to look again while none may leave; `None`: not before the rate changes.
    pub fn ready_at(&self, now_ms: i64) -> Option<i64> {
        if self.rate == 0 {
            return (self.level >= WHOLE).then(|| self.taken_ms.saturating_add(TOGETHER_MS));
        }
        let rate = i128::from(self.rate);
        let until = |whole: i128| {
            let missing = (whole * WHOLE - self.level).max(0);
            let ms = i64::try_from((missing + rate - 1) / rate).unwrap_or(i64::MAX);
            self.at_ms.saturating_add(ms)
        };
        let first = until(1).max(self.taken_ms.saturating_add(TOGETHER_MS));
        Some(first.min(until(self.together())).max(now_ms.saturating_add(1)))
    }

    /// So many have left.
    pub fn take(&mut self, n: u32, now_ms: i64) {
        self.fill(now_ms);
        self.level -= i128::from(n) * WHOLE;
        if n > 0 {
            self.taken_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bucket_begins_empty_and_fills_at_its_rate_up_to_a_second() {
        let mut bucket = Bucket::new(0);
        bucket.set_rate(2_000_000, 0);
        assert_eq!((bucket.ready(0), bucket.ready_at(0)), (0, Some(500)));
        assert_eq!((bucket.ready(499), bucket.ready(500)), (0, 1));
        bucket.take(1, 500);
        assert_eq!(bucket.ready_at(500), Some(1_000));
        assert_eq!(bucket.ready(60_000), 2, "no more than a second's worth");
    }

    #[test]
    fn a_slow_rate_keeps_what_has_dripped_in() {
        let mut bucket = Bucket::new(0);
        bucket.set_rate(277, 0);
        assert_eq!(bucket.ready(3_600_000), 0);
        assert_eq!(bucket.ready(3_620_000), 1);
        assert_eq!(bucket.ready(100_000_000), 1);
    }

    #[test]
    fn at_a_high_rate_deliveries_leave_together() {
        let mut bucket = Bucket::new(0);
        bucket.set_rate(1_000_000_000, 0);
        assert_eq!(bucket.ready(50), 50, "nothing left of late");
        bucket.take(50, 50);
        assert_eq!((bucket.ready(100), bucket.ready_at(100)), (0, Some(150)));
        assert_eq!(bucket.ready(150), 100);
    }

    #[test]
    fn without_a_rate_nothing_leaves() {
        let bucket = Bucket::new(0);
        assert_eq!((bucket.ready(1_000_000), bucket.ready_at(1_000_000)), (0, None));
    }

    proptest! {
        /// In every window: no more than the rate gives, and what the bucket holds.
        #[test]
        fn no_window_sees_more_than_its_rate_and_one_second(
            rate in 1i64..5_000_000_000, steps in prop::collection::vec((0i64..3_000, 0u32..400), 1..60)
        ) {
            let (mut bucket, mut now, mut left) = (Bucket::new(0), 0, Vec::new());
            bucket.set_rate(rate, 0);
            for (pause, wanted) in steps {
                now += pause;
                let n = bucket.ready(now).min(wanted);
                bucket.take(n, now);
                left.push((now, i128::from(n)));
            }
            for (index, (from, _)) in left.iter().enumerate() {
                let mut sum = 0;
                for (to, n) in &left[index..] {
                    sum += n;
                    let most = i128::from(rate) * i128::from(to - from) + (i128::from(rate) * 1_000).max(WHOLE);
                    prop_assert!(sum * WHOLE <= most, "{sum} in {} ms", to - from);
                }
            }
        }

        #[test]
        fn when_it_says_so_something_is_ready(rate in 1i64..5_000_000_000, taken in 0u32..100) {
            let mut bucket = Bucket::new(0);
            bucket.set_rate(rate, 0);
            let n = bucket.ready(700).min(taken);
            bucket.take(n, 700);
            if bucket.ready(700) == 0 {
                let at = bucket.ready_at(700).unwrap();
                prop_assert!(at > 700 && bucket.ready(at) > 0);
            }
        }
    }
}
