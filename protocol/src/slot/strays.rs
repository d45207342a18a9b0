//! Records of `due` that are no due records, on their way to `rejected` (I-6).
//!
//! They are copied beside the slot's transactions, not within them: a `rejected` that cannot be written must not hold up a
//! single delivery. `due_pos` passes a stray when its copy is acked, so that a next owner copies it again: at least once.

use super::event::{Alarm, Event};
use schemas::delivery::rejected::WholeValue;
use schemas::record::Header;
use std::collections::VecDeque;
use std::sync::Arc;

/// Copied at once.
const MOST: usize = 100;
/// Bytes copied at once, unless a single one is larger.
const MOST_BYTES: usize = 1 << 20;
/// First pause after a copy failed; doubles.
const PAUSE_MS: i64 = 500;
/// Longest pause.
const LONGEST_PAUSE_MS: i64 = 30_000;

/// A record of `due` with everything there was of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stray {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, epoch ms.
    pub at: i64,
    /// Its key; `None` = null.
    pub key: Option<Vec<u8>>,
    /// Its value; `None` = null.
    pub value: Option<Vec<u8>>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
    /// Of its value only the beginning is here, because it is larger than any topic takes.
    pub whole_value: Option<WholeValue>,
    /// Why it is no due record.
    pub problem: String,
}

impl Stray {
    fn weight(&self) -> usize {
        let of = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let headers = self.headers.iter().map(|header| header.name.len() + of(&header.value) + 48);
        128 + of(&self.key) + of(&self.value) + headers.sum::<usize>()
    }
}

/// What became of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrayEnd {
    /// It stands on `rejected`.
    Kept,
    /// Kafka will never take it.
    Refused(String),
    /// It may work another time.
    Failed(String),
}

/// All strays of a slot that are not on `rejected` yet.
#[derive(Debug, Default)]
pub(super) struct Strays {
    waiting: VecDeque<Arc<Stray>>,
    under_way: Vec<Arc<Stray>>,
    bytes: usize,
    not_before_ms: i64,
    failures: u32,
}

impl Strays {
    pub(super) fn add(&mut self, stray: Arc<Stray>) {
        self.bytes += stray.weight();
        self.waiting.push_back(stray);
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When there is something to copy, on the monotonic clock.
    pub(super) fn wake_mono_ms(&self) -> Option<i64> {
        (!self.waiting.is_empty() && self.under_way.is_empty()).then_some(self.not_before_ms)
    }

    /// What is to be copied now.
    pub(super) fn take(&mut self) -> Vec<Arc<Stray>> {
        let mut bytes = 0;
        while self.under_way.len() < MOST
            && let Some(stray) = self.waiting.front()
        {
            bytes += stray.weight();
            if bytes > MOST_BYTES && !self.under_way.is_empty() {
                break;
            }
            self.under_way.extend(self.waiting.pop_front());
        }
        self.under_way.clone()
    }

    /// Takes how the copies ended. Answers the offsets that need nothing more.
    pub(super) fn ended(&mut self, ends: Vec<StrayEnd>, mono_ms: i64, events: &mut Vec<Event>) -> Vec<i64> {
        if self.under_way.is_empty() {
            // Of an attempt that a take-over has forgotten.
            return Vec::new();
        }
        let mut passed = Vec::new();
        let mut again = Vec::new();
        let mut ends = ends.into_iter();
        for stray in std::mem::take(&mut self.under_way) {
            match ends.next() {
                Some(StrayEnd::Kept) => {}
                Some(StrayEnd::Refused(text)) => {
                    let text = format!("offset {}: Kafka refuses its copy: {text}", stray.offset);
                    events.push(Event::Alarm(Alarm::StrayLost, text));
                }
                Some(StrayEnd::Failed(_)) | None => {
                    again.push(stray);
                    continue;
                }
            }
            self.bytes -= stray.weight();
            passed.push(stray.offset);
        }
        if again.is_empty() {
            self.failures = 0;
        } else {
            let pause = PAUSE_MS.saturating_mul(1 << self.failures.min(20)).min(LONGEST_PAUSE_MS);
            self.not_before_ms = mono_ms + pause;
            self.failures += 1;
        }
        events.push(Event::Strays { kept: passed.len(), again: again.len() });
        again.into_iter().rev().for_each(|stray| self.waiting.push_front(stray));
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stray(offset: i64, bytes: usize) -> Arc<Stray> {
        Arc::new(Stray { offset, value: Some(vec![0; bytes]), ..Stray::default() })
    }

    #[test]
    fn copies_that_fail_are_tried_again_later_and_later_and_in_order() {
        let mut strays = Strays::default();
        let mut events = Vec::new();
        (0..3).for_each(|offset| strays.add(stray(offset, 10)));
        for (round, pause) in [500, 1_000, 2_000].into_iter().enumerate() {
            let now = round as i64 * 10_000;
            assert_eq!(strays.take().len(), 3);
            assert_eq!(strays.wake_mono_ms(), None, "one attempt at a time");
            let failed = vec![StrayEnd::Failed("down".into()); 3];
            assert!(strays.ended(failed, now, &mut events).is_empty());
            assert_eq!(strays.wake_mono_ms(), Some(now + pause));
        }
        strays.take();
        let ends = vec![StrayEnd::Kept, StrayEnd::Failed("down".into()), StrayEnd::Refused("no".into())];
        assert_eq!(strays.ended(ends, 0, &mut events), [0, 2]);
        assert_eq!(strays.take()[0].offset, 1);
        assert_eq!(strays.ended(vec![StrayEnd::Kept], 0, &mut events), [1]);
        assert_eq!((strays.bytes(), strays.wake_mono_ms()), (0, None));
        let lost = |event: &&Event| matches!(event, Event::Alarm(Alarm::StrayLost, _));
        assert_eq!(events.iter().filter(lost).count(), 1);
    }

    #[test]
    fn few_bytes_are_under_way_at_once_but_at_least_one_stray() {
        let mut strays = Strays::default();
        for (offset, bytes) in [(0, 2 * MOST_BYTES), (1, MOST_BYTES / 2), (2, MOST_BYTES / 2)] {
            strays.add(stray(offset, bytes));
        }
        let mut events = Vec::new();
        for expected in [0, 1, 2] {
            let taken: Vec<i64> = strays.take().iter().map(|stray| stray.offset).collect();
            assert_eq!(taken, [expected]);
            strays.ended(vec![StrayEnd::Kept], 0, &mut events);
        }
    }
}
