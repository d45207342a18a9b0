//! Redis as far as the protocol leans on it: the scripts' own model, with a clock, snapshots and answers that get lost.

use protocol::slot::{Action, Input, ScriptFault};
use protocol::slot_store::model::{Answer, Found, SlotStoreModel, Ticket};
use protocol::slot_store::{ColdCause, Entry, Refusal, Returned, SlotState, TakenOver, Topic};
use schemas::due::DueRecord;
use schemas::journal::OwnerToken;

/// The keys of one slot, and what was saved of them.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    pub store: SlotStoreModel,
    pub snapshots: Vec<SlotStoreModel>,
    /// Preloads are refused.
    pub full: bool,
    /// Redis TIME minus true time.
    pub skew_ms: i64,
}

/// What an owner holds between two scripts.
pub type Grip = Option<Ticket>;

fn fault(refusal: Refusal) -> ScriptFault {
    match refusal {
        Refusal::Fenced => ScriptFault::Fenced,
        Refusal::RolledBack => ScriptFault::RolledBack,
        Refusal::Lost => ScriptFault::Lost,
    }
}

fn grip<T>(
    grip: &mut Grip,
    token: OwnerToken,
    answer: Result<Answer<T>, Refusal>,
) -> Result<(T, SlotState), ScriptFault> {
    match answer {
        Ok(answer) => {
            *grip = Some(Ticket { token, seq: answer.seq });
            Ok((answer.value, answer.state))
        }
        Err(refusal) => {
            *grip = None;
            Err(fault(refusal))
        }
    }
}

impl Redis {
    /// Whether an action is a script.
    pub fn is_script(action: &Action) -> bool {
        matches!(
            action,
            Action::TakeOver { .. }
                | Action::StartCold(_)
                | Action::SettleFates { .. }
                | Action::ReturnPrepared
                | Action::Preload { .. }
                | Action::Agenda { .. }
                | Action::Claim { .. }
                | Action::Release { .. }
                | Action::Settle { .. }
                | Action::Forget
        )
    }

    /// Runs the script of an action, as the typed wrapper does.
    pub fn run(&mut self, action: &Action, held: &mut Grip, now: i64) -> Input {
        let redis_at = now + self.skew_ms;
        if let Action::TakeOver { token } = action {
            return Input::TakenOver(self.take_over(*token, held, redis_at));
        }
        let Some(ticket) = *held else {
            return Redis::broken(action, &ScriptFault::Broken("not the owner".into()));
        };
        let token = ticket.token;
        let store = &mut self.store;
        let scripted =
            |answer: Result<((), SlotState), ScriptFault>| Input::Scripted(answer.map(|((), state)| state));
        match action {
            Action::StartCold(positions) => {
                let swept = store.sweep(ticket);
                let ticket = match swept {
                    Ok(seq) => Ticket { token, seq },
                    Err(refusal) => {
                        *held = None;
                        return Input::Scripted(Err(fault(refusal)));
                    }
                };
                let answer = store.start_cold(ticket, redis_at, *positions);
                scripted(grip(held, token, answer))
            }
            Action::SettleFates { fates, jpos, rebuilt } => {
                let mut entries = Vec::new();
                for member in fates {
                    let Some(body) = store.body.get(member) else { continue };
                    let Ok(record) = DueRecord::decode(body.record()) else { continue };
                    entries
                        .push(Entry { topic: Topic::from(record.callback_topic.as_str()), member: *member });
                }
                let answer = store.settle(ticket, redis_at, &entries, Some(*jpos), None, *rebuilt);
                scripted(grip(held, token, answer))
            }
            Action::ReturnPrepared => Input::Returned(self.return_prepared(held, ticket, redis_at)),
            Action::Preload { records, .. } if self.full && !records.is_empty() => {
                Input::Preloaded(Err(ScriptFault::OutOfMemory))
            }
            Action::Preload { records, due_pos } => {
                let answer = store.preload(ticket, redis_at, records, Some(*due_pos));
                Input::Preloaded(grip(held, token, answer))
            }
            Action::Agenda { limit } => {
                let answer = store.look(ticket, redis_at, &[], i64::MAX, *limit);
                Input::Agenda(grip(held, token, answer))
            }
            Action::Claim { now_at, quotas, max_bytes } => {
                let answer = store.claim(ticket, redis_at, *now_at, quotas, *max_bytes);
                Input::Claimed(grip(held, token, answer))
            }
            Action::Release { entries, delay_ms } => {
                let answer = store.release(ticket, redis_at, entries, *delay_ms);
                scripted(grip(held, token, answer))
            }
            Action::Settle { entries, jpos, due_pos } => {
                let answer = store.settle(ticket, redis_at, entries, Some(*jpos), Some(*due_pos), false);
                scripted(grip(held, token, answer))
            }
            _ => {
                // `Forget`.
                *held = None;
                Input::Scripted(store.forget(token).map(|()| SlotState::default()).map_err(fault))
            }
        }
    }

    /// Takes over, and holds all counts against each other.
    fn take_over(
        &mut self,
        token: OwnerToken,
        held: &mut Grip,
        redis_at: i64,
    ) -> Result<(TakenOver, SlotState), ScriptFault> {
        let mut off = false;
        loop {
            let answer = self.store.take_over(token, redis_at);
            let ticket = Ticket { token, seq: answer.seq };
            *held = Some(ticket);
            match answer.value {
                Found::Cold(cause) => {
                    let cause = if off { ColdCause::CountsOff } else { cause };
                    return Ok((TakenOver::Cold(cause), answer.state));
                }
                Found::Warm(meta) => {
                    let topics: Vec<Topic> = meta.sizes.keys().cloned().collect();
                    off = true;
                    if !meta.adds_up() {
                        self.store.meta = None;
                        continue;
                    }
                    if let Ok(answer) = self.store.look(ticket, redis_at, &topics, 0, 0) {
                        *held = Some(Ticket { token, seq: answer.seq });
                        return Ok((TakenOver::Warm(meta.positions), answer.state));
                    }
                }
            }
        }
    }

    fn return_prepared(
        &mut self,
        held: &mut Grip,
        ticket: Ticket,
        redis_at: i64,
    ) -> Result<(Returned, SlotState), ScriptFault> {
        let topics: Vec<Topic> = match &self.store.meta {
            Some(meta) => {
                meta.sizes.iter().filter(|(_, n)| n.prepare > 0).map(|(topic, _)| topic.clone()).collect()
            }
            None => Vec::new(),
        };
        let mut all = Returned::default();
        let looked = self.store.look(ticket, redis_at, &[], 0, 0);
        let mut state = grip(held, ticket.token, looked)?.1;
        for topic in topics {
            let Some(ticket) = *held else { break };
            let answer = self.store.return_prepared(ticket, redis_at, &topic);
            let (returned, then) = grip(held, ticket.token, answer)?;
            all.returned += returned.returned;
            all.intents.extend(returned.intents);
            state = then;
        }
        Ok((all, state))
    }

    /// The reply to a script that failed.
    pub fn broken(action: &Action, fault: &ScriptFault) -> Input {
        let fault = fault.clone();
        match action {
            Action::TakeOver { .. } => Input::TakenOver(Err(fault)),
            Action::ReturnPrepared => Input::Returned(Err(fault)),
            Action::Preload { .. } => Input::Preloaded(Err(fault)),
            Action::Agenda { .. } => Input::Agenda(Err(fault)),
            Action::Claim { .. } => Input::Claimed(Err(fault)),
            _ => Input::Scripted(Err(fault)),
        }
    }
}
