//! The states of a task and the only ways from one to another (DESIGN §3).

use schemas::due::Completion;

/// What is known about the fate of a task: column `task.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskState {
    /// Waits in `pending` for its due time.
    Scheduled,
    /// Delivered, waits in `running` for its consumer.
    Running,
    /// Finished. Final.
    Done,
    /// Given up, on `dead`. Final, but may be replayed.
    Dead,
    /// Cancelled before it was finished. Final.
    Cancelled,
}

/// What can happen to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A `delivered` entry, with no finish waiting.
    Delivered(Completion),
    /// Moved to another due time: beyond the cursor at once, else by its `withdrawn` entry (also one without intents).
    Rescheduled,
    /// Cancelled: beyond the cursor at once, else by its `withdrawn` entry.
    Cancelled,
    /// The consumer reported success: of this attempt, or of an earlier one while the next waits.
    Finished,
    /// A `buried` entry.
    Buried,
    /// A failed or stalled attempt that is followed by another, or by its burial through the dispatcher.
    NextAttempt,
    /// A failed or stalled attempt of a task whose *stop* is set.
    Stopped,
    /// A dead task is to be delivered once more.
    Replayed,
}

/// A change that the state does not allow: counted as an invariant alarm, never applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task that is {from:?} cannot be changed by {event:?}")]
pub struct IllegalEvent {
    /// State before.
    pub from: TaskState,
    /// What was to happen.
    pub event: Event,
}

impl TaskState {
    /// All states, in the order of their codes.
    pub const ALL: [TaskState; 5] =
        [TaskState::Scheduled, TaskState::Running, TaskState::Done, TaskState::Dead, TaskState::Cancelled];

    /// The code in column `task.state`. Codes are never reused.
    pub const fn code(self) -> u8 {
        match self {
            TaskState::Scheduled => 1,
            TaskState::Running => 2,
            TaskState::Done => 3,
            TaskState::Dead => 4,
            TaskState::Cancelled => 5,
        }
    }

    /// Reads a code back. `None`: written by a newer version.
    pub fn from_code(code: u8) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Whether the task is in neither `pending` nor `running`: kept for the retention time, then purged.
    pub const fn is_final(self) -> bool {
        match self {
            TaskState::Scheduled | TaskState::Running => false,
            TaskState::Done | TaskState::Dead | TaskState::Cancelled => true,
        }
    }

    /// The name in docs, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            TaskState::Scheduled => "scheduled",
            TaskState::Running => "running",
            TaskState::Done => "done",
            TaskState::Dead => "dead",
            TaskState::Cancelled => "cancelled",
        }
    }

    /// The state after a change: the one place where it is written down.
    pub fn after(self, event: Event) -> Result<TaskState, IllegalEvent> {
        use Event as C;
        use TaskState as S;
        match (self, event) {
            (S::Scheduled, C::Delivered(Completion::OnDelivery)) => Ok(S::Done),
            (S::Scheduled, C::Delivered(Completion::OnAck)) => Ok(S::Running),
            (S::Scheduled, C::Rescheduled) => Ok(S::Scheduled),
            (S::Scheduled, C::Cancelled) => Ok(S::Cancelled),
            (S::Scheduled | S::Running, C::Finished) => Ok(S::Done),
            (S::Scheduled, C::Buried) => Ok(S::Dead),
            (S::Running, C::NextAttempt) => Ok(S::Scheduled),
            (S::Running, C::Stopped) => Ok(S::Cancelled),
            (S::Dead, C::Replayed) => Ok(S::Scheduled),
            (S::Scheduled, C::NextAttempt | C::Stopped | C::Replayed)
            | (S::Running, C::Delivered(_) | C::Rescheduled | C::Cancelled | C::Buried | C::Replayed)
            | (
                S::Dead,
                C::Delivered(_)
                | C::Rescheduled
                | C::Cancelled
                | C::Finished
                | C::Buried
                | C::NextAttempt
                | C::Stopped,
            )
            | (
                S::Done | S::Cancelled,
                C::Delivered(_)
                | C::Rescheduled
                | C::Cancelled
                | C::Finished
                | C::Buried
                | C::NextAttempt
                | C::Stopped
                | C::Replayed,
            ) => Err(IllegalEvent { from: self, event }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 9] = [
        Event::Delivered(Completion::OnDelivery),
        Event::Delivered(Completion::OnAck),
        Event::Rescheduled,
        Event::Cancelled,
        Event::Finished,
        Event::Buried,
        Event::NextAttempt,
        Event::Stopped,
        Event::Replayed,
    ];

    #[test]
    fn codes_are_fixed_for_ever() {
        let codes: Vec<u8> = TaskState::ALL.into_iter().map(TaskState::code).collect();
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        for state in TaskState::ALL {
            assert_eq!(TaskState::from_code(state.code()), Some(state));
        }
        assert_eq!(TaskState::from_code(0), None);
        assert_eq!(TaskState::from_code(6), None);
    }

    #[test]
    fn exactly_the_legal_changes_of_the_design_are_allowed() {
        let mut legal = Vec::new();
        for from in TaskState::ALL {
            for event in EVENTS {
                if let Ok(to) = from.after(event) {
                    legal.push(format!("{} {event:?} {}", from.name(), to.name()));
                }
            }
        }
        assert_eq!(
            legal,
            [
                "scheduled Delivered(OnDelivery) done",
                "scheduled Delivered(OnAck) running",
                "scheduled Rescheduled scheduled",
                "scheduled Cancelled cancelled",
                "scheduled Finished done",
                "scheduled Buried dead",
                "running Finished done",
                "running NextAttempt scheduled",
                "running Stopped cancelled",
                "dead Replayed scheduled",
            ]
        );
    }

    #[test]
    fn nothing_but_a_replay_leaves_a_final_state() {
        for state in TaskState::ALL.into_iter().filter(|state| state.is_final()) {
            for event in EVENTS.into_iter().filter(|event| *event != Event::Replayed) {
                assert!(state.after(event).is_err(), "{state:?} {event:?}");
            }
        }
    }
}
