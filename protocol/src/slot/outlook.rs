//! What is due in a running slot, and when to look again.

use super::lanes::LaneOf;
use super::running::{AGENDA, Context, Running};
use crate::slot_store::{DueTopic, Topic};

/// What is due, and when to look again.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    pub(super) main: Vec<Topic>,
    pub(super) quarantine: Option<Topic>,
    pub(super) need_agenda: bool,
    pub(super) wake_mono_ms: Option<i64>,
}

impl Outlook {
    pub(super) fn wake(&mut self, at: i64) {
        self.wake_mono_ms = Some(self.wake_mono_ms.map_or(at, |wake| wake.min(at)));
    }
}

impl Running {
    pub(super) fn outlook(&self, cx: &Context<'_>) -> Outlook {
        let mut outlook = Outlook::default();
        let (now, clock) = (cx.now, self.clock(cx.now));
        let mono_of = |at: i64| now.mono_ms + (at - clock).max(1);
        let Some(next_at) = self.state.next_due_at else { return outlook };
        if next_at > clock {
            outlook.wake(mono_of(next_at));
            return outlook;
        }
        if now.mono_ms < self.claim_not_before_ms {
            outlook.wake(self.claim_not_before_ms);
            return outlook;
        }
        let Some(agenda) = &self.agenda else {
            outlook.need_agenda = true;
            return outlook;
        };
        let mut candidates = Vec::new();
        for DueTopic { topic, earliest_at } in agenda {
            match (cx.lanes.lane_of(topic), *earliest_at > clock) {
                (LaneOf::Main, false) => outlook.main.push(Topic::clone(topic)),
                (LaneOf::Main, true) => outlook.wake(mono_of(*earliest_at)),
                (LaneOf::Quarantine { not_before_ms }, due_later) => {
                    if due_later || not_before_ms > now.mono_ms {
                        outlook.wake(mono_of(*earliest_at).max(not_before_ms));
                    } else {
                        candidates.push(topic);
                    }
                }
            }
        }
        if self.quarantine.is_none() {
            outlook.quarantine = cx.lanes.least_recent(&candidates);
        }
        if agenda.len() >= AGENDA {
            // There may be more behind these.
            outlook.wake(now.mono_ms + 1_000);
        }
        outlook
    }
}
