//! What a task may say of how it is completed, retried and spread, and what it is where it does not say.

use super::{Backoff, Spread, Window};
use crate::due::Completion;
use crate::row::RowOptions;

/// Options as a command gives them, or as the configuration has them for a callback topic. `None`: nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskOptions {
    /// When the task is done.
    pub completion: Option<Completion>,
    /// Failed attempts after which it is given up.
    pub max_attempts: Option<u16>,
    /// Pause before the next attempt.
    pub backoff: Option<Backoff>,
    /// How long its consumer may be silent, ms.
    pub ack_timeout_ms: Option<i64>,
    /// Stalled attempts that are forgiven.
    pub max_stalls: Option<u16>,
    /// How a herd of equal due times is spread.
    pub spread: Option<Spread>,
    /// How far at most, or, alone, over what it is spread evenly.
    pub window: Option<Window>,
}

impl TaskOptions {
    /// What is not said is as `defaults` say. Spread and window are one thing: who gives one of them says all of it, so
    /// that `window = 0s` is no shift whatever the default.
    #[must_use]
    pub fn or(self, defaults: TaskOptions) -> TaskOptions {
        let says_spread = self.spread.is_some() || self.window.is_some();
        let (spread, window) =
            if says_spread { (self.spread, self.window) } else { (defaults.spread, defaults.window) };
        TaskOptions {
            completion: self.completion.or(defaults.completion),
            max_attempts: self.max_attempts.or(defaults.max_attempts),
            backoff: self.backoff.or(defaults.backoff),
            ack_timeout_ms: self.ack_timeout_ms.or(defaults.ack_timeout_ms),
            max_stalls: self.max_stalls.or(defaults.max_stalls),
            spread,
            window,
        }
    }

    /// Puts them into the options of a row. A task that is done when it is delivered has none of those that matter later.
    pub(crate) fn put_into(&self, options: &mut RowOptions) {
        options.completion = self.completion.unwrap_or_default();
        if options.completion == Completion::OnAck {
            options.max_attempts = self.max_attempts;
            options.backoff = self.backoff;
            options.ack_timeout_ms = self.ack_timeout_ms;
            options.max_stalls = self.max_stalls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_says_goes_before_the_default_and_a_spread_is_never_mixed() {
        let default = TaskOptions {
            completion: Some(Completion::OnAck),
            max_attempts: Some(3),
            backoff: Some(Backoff::STANDARD),
            spread: "10x10s+5s".parse().ok(),
            window: "1m".parse().ok(),
            ..TaskOptions::default()
        };
        assert_eq!(TaskOptions::default().or(default), default);
        let own = TaskOptions { max_attempts: Some(1), window: "0s".parse().ok(), ..TaskOptions::default() };
        let both = own.or(default);
        assert_eq!((both.max_attempts, both.backoff), (Some(1), default.backoff));
        assert_eq!((both.spread, both.window), (None, own.window));
        assert_eq!(default.or(own), default);
    }
}
