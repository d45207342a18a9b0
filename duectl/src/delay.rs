//! Durations on the command line: the text is the one of every configuration file.

use runtime::config::{HumanDuration, NotADuration};
use std::time::Duration;

/// For clap.
pub(crate) fn parse(text: &str) -> Result<Duration, NotADuration> {
    text.parse::<HumanDuration>().map(HumanDuration::get)
}
