//! Whoever consumes the callback topics: acks what it was delivered, in time, late, early, twice, or never.

use super::Did;
use crate::kafka::AckRecord;
use crate::world::{Delayed, Mishap, World};
use protocol::ack::Report;
use schemas::ids::RowGen;

/// A delivery that a consumer has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub row_gen: RowGen,
    /// Of an aborted transaction, seen by one that reads uncommitted.
    pub aborted: bool,
}

/// The consumers.
#[derive(Debug, Default)]
pub struct Consumer {
    pub name: String,
    /// Not said to be done or failed.
    open: Vec<Delivery>,
    /// Said to be done or failed: they may say it again.
    old: Vec<Delivery>,
    /// Nothing will be said of them, as long as things are rough.
    silent: Vec<Delivery>,
    /// Only what it is told: for named cases.
    pub quiet: bool,
}

const OLD: usize = 8;

impl Consumer {
    pub fn new(w: &mut World) -> Consumer {
        Consumer { name: format!("consumer {}", w.name()), ..Consumer::default() }
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        if self.quiet {
            return Did::Idle(None);
        }
        self.open.append(&mut w.inbox);
        if !w.rough {
            return self.finish(w);
        }
        let count = (self.open.len() + self.old.len()) as u32;
        if count == 0 || w.dice.roll(3) != 0 {
            return Did::Idle(None);
        }
        let nth = w.dice.roll(count) as usize;
        let Some(at) = nth.checked_sub(self.old.len()) else {
            let delivery = self.old[nth];
            let report = self.report(w);
            self.say(w, delivery, report);
            return Did::Work;
        };
        let delivery = self.open[at];
        if w.dice.roll(8) == 7 {
            self.open.swap_remove(at);
            self.silent.push(delivery);
            w.say(&self.name, || format!("falls silent about {delivery:?}"));
            return Did::Work;
        }
        let report = self.report(w);
        let ends = report != Report::Progress;
        let said = self.say(w, delivery, report);
        if ends && said {
            self.open.swap_remove(at);
            self.old.push(delivery);
            if self.old.len() > OLD {
                self.old.remove(0);
            }
        }
        Did::Work
    }

    fn report(&self, w: &mut World) -> Report {
        match w.dice.roll(10) {
            0..5 => Report::Succeeded,
            5..7 => Report::Progress,
            7 => Report::Failed { reason: None, permanent: true },
            _ => Report::Failed { reason: None, permanent: false },
        }
    }

    /// Faults are over: everything is done at once, also what nobody would have stalled for.
    fn finish(&mut self, w: &mut World) -> Did {
        if !w.setup.by_time {
            self.open.append(&mut self.silent);
        }
        let Some(delivery) = self.open.pop() else { return Did::Idle(None) };
        self.say(w, delivery, Report::Succeeded);
        Did::Work
    }

    /// False: it is not known to have arrived.
    pub fn say(&self, w: &mut World, delivery: Delivery, report: Report) -> bool {
        let partition = (delivery.row_gen.id.offset() % w.kafka.acks.len() as i64) as i32;
        let progress = (report == Report::Progress).then(|| vec![1]);
        let record = AckRecord::Ack { row_gen: delivery.row_gen, report, progress };
        let mishap = w.mishap("ack");
        w.say(&self.name, || format!("says {record:?} ({mishap:?})"));
        match mishap {
            Mishap::None => w.append_ack(partition, record),
            Mishap::Refused => return false,
            Mishap::AnswerLost => {
                w.append_ack(partition, record);
                return false;
            }
            Mishap::Later => {
                w.network.push(Delayed::Ack { partition, record });
                return false;
            }
        }
        true
    }
}
