//! Where the times of a file lie when they are submitted.

/// How much faster time passes than in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As in the file.
    AsWritten,
    /// So that the file's first and last due times are this far apart, in ms.
    Window(i64),
    /// By this factor.
    Faster(f64),
}

/// Maps times of the file: the first goes to `start_at`, the others follow at the pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timeline {
    pub(crate) first_at: i64,
    pub(crate) last_at: i64,
    pub(crate) start_at: i64,
    pub(crate) pace: Pace,
}

impl Timeline {
    /// Where `at` lies, in ms, rounded down.
    pub(crate) fn map(&self, at: i64) -> i64 {
        let since = i128::from(at) - i128::from(self.first_at);
        let moved = match self.pace {
            Pace::AsWritten => since,
            Pace::Window(window_ms) => {
                // All at one time: the window has no width that could be shared out.
                let all = (i128::from(self.last_at) - i128::from(self.first_at)).max(1);
                (since * i128::from(window_ms)).div_euclid(all)
            }
            Pace::Faster(factor) => (since as f64 / factor).floor() as i128,
        };
        i64::try_from(i128::from(self.start_at) + moved).unwrap_or(if moved < 0 {
            i64::MIN
        } else {
            i64::MAX
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn timeline(pace: Pace) -> Timeline {
        Timeline { first_at: HOUR, last_at: 3 * HOUR, start_at: 1_000_000, pace }
    }

    #[test]
    fn a_window_holds_the_first_and_the_last_exactly() {
        let t = timeline(Pace::Window(60_000));
        assert_eq!([HOUR, 2 * HOUR, 3 * HOUR].map(|at| t.map(at)), [1_000_000, 1_030_000, 1_060_000]);
        // Two hours in a minute: 120 ms are one.
        assert_eq!((t.map(HOUR + 119), t.map(HOUR + 120)), (1_000_000, 1_000_001));
    }

    #[test]
    fn a_factor_keeps_the_proportions() {
        let t = timeline(Pace::Faster(60.0));
        assert_eq!([HOUR, 2 * HOUR, 3 * HOUR].map(|at| t.map(at)), [1_000_000, 1_060_000, 1_120_000]);
    }

    #[test]
    fn as_written_only_shifts() {
        assert_eq!(timeline(Pace::AsWritten).map(HOUR + 7), 1_000_007);
    }

    #[test]
    fn what_expires_after_the_last_lies_beyond_the_window() {
        assert_eq!(timeline(Pace::Window(60_000)).map(5 * HOUR), 1_120_000);
    }

    #[test]
    fn a_file_with_one_time_lies_at_the_start() {
        let t = Timeline { last_at: HOUR, ..timeline(Pace::Window(60_000)) };
        assert_eq!(t.map(HOUR), 1_000_000);
    }
}
