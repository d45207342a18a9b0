//! The lowest fence seen of late.

/// Lowest fence among the records of the last one to two minutes: `low` must stay below it, or the journal would be read
/// again for every batch while ingest stands still.
#[derive(Debug)]
pub(super) struct FenceFloor {
    current: i64,
    previous: i64,
    since_mono_ms: i64,
}

impl FenceFloor {
    const WINDOW_MS: i64 = 60_000;

    pub(super) fn new(mono_ms: i64) -> FenceFloor {
        FenceFloor { current: i64::MAX, previous: i64::MAX, since_mono_ms: mono_ms }
    }

    pub(super) fn observe(&mut self, fence: i64) {
        self.current = self.current.min(fence);
    }

    pub(super) fn floor(&mut self, mono_ms: i64) -> i64 {
        if mono_ms - self.since_mono_ms > Self::WINDOW_MS {
            self.previous = std::mem::replace(&mut self.current, i64::MAX);
            self.since_mono_ms = mono_ms;
        }
        self.current.min(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_fence_is_remembered_for_at_least_a_minute() {
        let mut floor = FenceFloor::new(0);
        floor.observe(7);
        floor.observe(9);
        assert_eq!(floor.floor(60_001), 7);
        floor.observe(8);
        assert_eq!(floor.floor(70_000), 7);
        assert_eq!(floor.floor(120_002), 8);
    }
}
