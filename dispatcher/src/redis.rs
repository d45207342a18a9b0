//! Carries the slot's script actions out.

use protocol::slot::{Action, Input, ScriptFault};
use protocol::slot_store::{Body, SlotState, Topic};
use runtime::config;
use runtime::slots::{SlotClient, SlotError, SlotStore};
use schemas::due::DueRecord;
use schemas::ids::Slot;
use std::time::Duration;

/// The slot's data, connected when it is first needed.
pub(crate) struct Timer {
    settings: config::Redis,
    slot: Slot,
    store: Option<SlotStore>,
}

impl Timer {
    pub(crate) fn new(settings: config::Redis, slot: Slot) -> Timer {
        Timer { settings, slot, store: None }
    }

    async fn connected(&mut self) -> Result<&mut SlotStore, SlotError> {
        if self.store.is_none() {
            let client = SlotClient::connect(&self.settings).await?;
            self.store = Some(SlotStore::new(client, &self.settings.prefix, self.slot));
        }
        self.store.as_mut().ok_or(SlotError::NotOwner)
    }

    /// Carries a script action out; any other comes back.
    pub(crate) async fn carry_out(&mut self, action: Action) -> Result<Input, Action> {
        Ok(match action {
            Action::TakeOver { token } => Input::TakenOver(match self.connected().await {
                Ok(store) => with_state(store.take_over(token).await, store),
                Err(error) => Err(fault(&error)),
            }),
            Action::StartCold(positions) => Input::Scripted(
                self.run(async |store| store.start_cold(positions).await.map(drop))
                    .await
                    .map(|(_, state)| state),
            ),
            Action::SettleFates { fates, jpos, rebuilt } => Input::Scripted(
                self.run(async |store| store.settle_fates(&fates, jpos, rebuilt, topic_of).await)
                    .await
                    .map(|(_, state)| state),
            ),
            Action::ReturnPrepared => {
                Input::Returned(self.run(async |store| store.return_prepared().await).await)
            }
            Action::Preload { records, due_pos } => {
                Input::Preloaded(self.run(async |store| store.preload(&records, due_pos).await).await)
            }
            Action::Agenda { limit } => {
                Input::Agenda(self.run(async |store| store.next_topics(limit).await).await)
            }
            Action::Claim { now_at, quotas, max_bytes } => {
                Input::Claimed(self.run(async |store| store.claim(now_at, &quotas, max_bytes).await).await)
            }
            Action::Release { entries, delay_ms } => {
                let delay = Duration::from_millis(delay_ms.unsigned_abs());
                Input::Scripted(
                    self.run(async |store| store.release(&entries, delay).await)
                        .await
                        .map(|(_, state)| state),
                )
            }
            Action::Settle { entries, jpos, due_pos } => Input::Scripted(
                self.run(async |store| store.settle(&entries, jpos, Some(due_pos)).await)
                    .await
                    .map(|(_, state)| state),
            ),
            Action::Forget => {
                Input::Scripted(self.run(async |store| store.forget().await).await.map(|(_, state)| state))
            }
            other => return Err(other),
        })
    }

    async fn run<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut SlotStore) -> Result<T, SlotError>,
    ) -> Result<(T, SlotState), ScriptFault> {
        let Some(store) = &mut self.store else { return Err(fault(&SlotError::NotOwner)) };
        let answer = call(store).await;
        with_state(answer, store)
    }
}

fn with_state<T>(answer: Result<T, SlotError>, store: &SlotStore) -> Result<(T, SlotState), ScriptFault> {
    answer.map(|value| (value, store.state())).map_err(|error| fault(&error))
}

fn topic_of(body: &Body) -> Option<Topic> {
    DueRecord::decode(body.record()).ok().map(|record| record.callback_topic.into())
}

fn fault(error: &SlotError) -> ScriptFault {
    match error {
        SlotError::Fenced => ScriptFault::Fenced,
        SlotError::RolledBack => ScriptFault::RolledBack,
        SlotError::Lost => ScriptFault::Lost,
        SlotError::OutOfMemory => ScriptFault::OutOfMemory,
        SlotError::Timeout { .. } => ScriptFault::TimedOut,
        SlotError::Policy(policy) => ScriptFault::Policy(policy.to_string()),
        SlotError::Unavailable { source, .. } => ScriptFault::Broken(format!("{error}: {source}")),
        SlotError::Script { .. } | SlotError::NotOwner | SlotError::Refused(_) => {
            ScriptFault::Broken(error.to_string())
        }
    }
}
