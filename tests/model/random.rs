//! Random schedules, as many as are asked for.

use crate::schedule;
use crate::shrink::shrink;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Steps of the test in CI.
const STEPS: u64 = 5_000_000;
/// Steps of one run before it is drained.
const RUN: u64 = 1_500;
/// Lines of a trace that are printed, from its beginning and from its end.
const HEAD: usize = 400;
const TAIL: usize = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Panics in a run are caught and told with it: they need no message of their own.
pub fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// What a failing run looks like.
pub fn report(seed: u64, run: u64, outcome: &crate::model::Outcome) -> String {
    let mut text = format!("seed {seed} run of {run} steps: {}\n", outcome.violations.join("\n"));
    text.push_str(&format!("to see it again: ./dev model --seed {seed} --steps 1\n"));
    text.push_str("\nshrunk:\n");
    // What follows the last fault is mostly a beating heart.
    let (head, tail) = outcome.trace.split_at(outcome.trace.len().min(HEAD));
    let tail_from = tail.len().saturating_sub(TAIL);
    for line in head {
        text.push_str(line);
        text.push('\n');
    }
    if tail_from > 0 {
        text.push_str(&format!("        … {tail_from} lines …\n"));
    }
    for line in &tail[tail_from..] {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&outcome.violations.join("\n"));
    text
}

/// What must come to pass in so many steps: otherwise the model has lost its teeth.
const WANTED: [&str; 34] = [
    "aborted",
    "alarm: settled_cap",
    "buried",
    "cancelled at once",
    "cold",
    "compare-and-set missed",
    "delivered",
    "dropped: Flying",
    "dropped: Settled",
    "dropped: Waiting",
    "due paused",
    "duplicate key",
    "effects repeated",
    "emitted again: cold",
    "emitted again: handed back",
    "emitted again: stalled",
    "garbage kept",
    "out of memory",
    "released",
    "scanner fenced",
    "something arrived late",
    "stale",
    "stale committed",
    "take-over: aborted",
    "take-over: fenced",
    "take-over: init_failed",
    "take-over: lost",
    "take-over: outcome_unknown",
    "take-over: rolled_back",
    "take-over: script_timeout",
    "take-over: slow_transaction",
    "warm",
    "withdraw held",
    "withdrawn",
];

#[test]
fn random_schedules_keep_every_invariant() {
    let seed = number("MODEL_SEED");
    let wanted = number("MODEL_STEPS").unwrap_or(if seed.is_some() { 1 } else { STEPS });
    let run = number("MODEL_RUN").unwrap_or(RUN);
    let first = seed.unwrap_or(1);
    let hook = std::panic::take_hook();
    quiet();
    let (began, mut told) = (Instant::now(), Instant::now());
    let (mut steps, mut runs, mut seed) = (0, 0, first);
    let mut failed = None;
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    while steps < wanted {
        let outcome = schedule::run(seed, run, None);
        steps += outcome.steps;
        runs += 1;
        outcome.seen.iter().for_each(|(what, n)| *seen.entry(what.clone()).or_default() += n);
        if !outcome.violations.is_empty() {
            failed = Some((seed, outcome));
            break;
        }
        seed += 1;
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("{steps} steps in {runs} runs, {} s", began.elapsed().as_secs());
        }
    }
    seen.iter().for_each(|(what, n)| println!("{n:>8}  {what}"));
    println!("{steps} steps in {runs} runs, {:.1} s", began.elapsed().as_secs_f64());
    if let Some((seed, outcome)) = failed {
        println!("seed {seed} fails: {:?}; shrinking {} steps", outcome.violations, outcome.choices.len());
        let small = shrink(outcome, None);
        std::panic::set_hook(hook);
        panic!("{}", report(seed, run, &small));
    }
    std::panic::set_hook(hook);
    if steps >= STEPS {
        let missing: Vec<_> = WANTED.iter().filter(|what| !seen.contains_key(**what)).collect();
        assert!(missing.is_empty(), "never came to pass: {missing:?}");
    }
}
