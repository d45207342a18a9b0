//! Progress on stderr: a bar on a terminal, a plain line now and then elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const BETWEEN_LINES: Duration = Duration::from_secs(2);

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { done: u64, total: u64, began: Instant, last: Instant },
}

impl Progress {
    pub(crate) fn new(total: u64) -> Progress {
        if !std::io::stderr().is_terminal() {
            let now = Instant::now();
            return Progress::Lines { done: 0, total, began: now, last: now };
        }
        let bar = ProgressBar::new(total);
        let template = "submitting {bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left";
        // The template is fixed and tried out; a plain bar would do as well.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Progress::Bar(bar)
    }

    pub(crate) fn add(&mut self, more: u64) {
        match self {
            Progress::Bar(bar) => bar.inc(more),
            Progress::Lines { done, total, began, last } => {
                *done += more;
                if last.elapsed() >= BETWEEN_LINES {
                    *last = Instant::now();
                    let rate = *done as f64 / began.elapsed().as_secs_f64();
                    eprintln!("submitted {done} of {total}, {rate:.0}/s");
                }
            }
        }
    }

    pub(crate) fn finish(&self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
