//! Makes a failing run small: fewer steps, fewer faults, smaller choices, as long as it still fails.

use crate::dice::Choices;
use crate::model::Outcome;
use crate::schedule;
use crate::setup::Mutation;
use crate::trace::Trace;

/// Runs tried at most.
const TRIES: u32 = 4_000;

/// What a violation is about: a smaller run must fail for the same reason.
fn kind(outcome: &Outcome) -> Option<String> {
    let first = outcome.violations.first()?;
    Some(first.split([':', '(']).next().unwrap_or(first).to_owned())
}

struct Shrinker {
    kind: Option<String>,
    mutation: Option<Mutation>,
    tries: u32,
    best: Vec<Choices>,
}

impl Shrinker {
    /// Keeps a candidate that still fails.
    fn try_out(&mut self, candidate: Vec<Choices>) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let outcome = schedule::replay(candidate, self.mutation, Trace::off());
        if kind(&outcome).is_none() || kind(&outcome) != self.kind {
            return false;
        }
        // What was really asked for, which may be less than the script held.
        self.best = outcome.choices;
        true
    }

    /// Leaves stretches of steps out, long ones first.
    fn without_steps(&mut self) {
        let mut stretch = self.best.len() / 2;
        while stretch > 0 && self.tries > 0 {
            let mut at = self.best.len();
            while at > 1 && self.tries > 0 {
                let from = at.saturating_sub(stretch).max(1);
                let mut candidate = self.best.clone();
                candidate.drain(from..at);
                self.try_out(candidate);
                at = from.min(self.best.len());
            }
            stretch /= 2;
        }
    }

    /// Makes choices harmless.
    fn without_choices(&mut self) {
        for step in 0..self.best.len() {
            let mut at = 0;
            while self.best.get(step).is_some_and(|choices| at < choices.len()) && self.tries > 0 {
                if self.best[step][at] != 0 {
                    let mut candidate = self.best.clone();
                    candidate[step][at] = 0;
                    self.try_out(candidate);
                }
                at += 1;
            }
        }
    }
}

/// The smallest failing run that was found, told line by line.
pub fn shrink(failed: Outcome, mutation: Option<Mutation>) -> Outcome {
    let kind = kind(&failed);
    let choices = failed.choices;
    let mut shrinker = Shrinker { kind, mutation, tries: TRIES, best: choices };
    let mut before = usize::MAX;
    while shrinker.best.len() < before && shrinker.tries > 0 {
        before = shrinker.best.len();
        shrinker.without_steps();
    }
    shrinker.without_choices();
    shrinker.without_steps();
    schedule::replay(shrinker.best, mutation, Trace::on())
}
