//! The verdict: what stands on the callback topics, compared with what was submitted.

use devstack::topics::Record;
use std::collections::HashMap;
use std::fmt;

/// Counts and lateness of one run.
#[derive(Debug, PartialEq)]
pub struct Report {
    submitted: usize,
    accepted: u64,
    delivered: usize,
    lost: usize,
    duplicates: usize,
    strangers: usize,
    early: usize,
    /// Sorted, ms.
    lateness: Vec<i64>,
    seconds: f64,
}

/// Delivery time − due time in ms, as the record's headers state it; `None` where they are missing.
pub fn lateness_of(record: &Record) -> Option<i64> {
    Some(record.number("duestream-delivered-at")? - record.number("duestream-due-at")?)
}

impl Report {
    /// Compares the task ids that were submitted with all records on the callback topics.
    pub fn new(task_ids: &[String], accepted: u64, records: &[Record]) -> Report {
        let mut times: HashMap<&str, usize> = task_ids.iter().map(|id| (id.as_str(), 0)).collect();
        let mut strangers = 0;
        for record in records {
            match record.header("duestream-task-id").and_then(|id| times.get_mut(id)) {
                Some(count) => *count += 1,
                None => strangers += 1,
            }
        }
        let mut lateness: Vec<i64> = records.iter().filter_map(lateness_of).collect();
        lateness.sort_unstable();
        // Early by the dispatcher's own word, or by the time at which the record was made.
        let early = records
            .iter()
            .filter(|record| {
                let due = record.number("duestream-due-at");
                lateness_of(record).is_none_or(|ms| ms < 0) || due.is_none_or(|due| record.timestamp_at < due)
            })
            .count();
        let first = records.iter().map(|record| record.timestamp_at).min().unwrap_or(0);
        let last = records.iter().map(|record| record.timestamp_at).max().unwrap_or(0);
        Report {
            submitted: task_ids.len(),
            accepted,
            delivered: records.len(),
            lost: times.values().filter(|count| **count == 0).count(),
            duplicates: times.values().map(|count| count.saturating_sub(1)).sum(),
            strangers,
            early,
            lateness,
            seconds: (last - first) as f64 / 1000.0,
        }
    }

    /// Everything accepted, delivered once, none early.
    pub fn is_clean(&self) -> bool {
        self.accepted == self.submitted as u64
            && self.delivered == self.submitted
            && [self.lost, self.duplicates, self.strangers, self.early] == [0; 4]
    }

    fn percentile(&self, percent: usize) -> i64 {
        let last = self.lateness.len().saturating_sub(1);
        self.lateness.get(last * percent / 100).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = if self.seconds > 0.0 { self.delivered as f64 / self.seconds } else { 0.0 };
        writeln!(f)?;
        writeln!(f, "  submitted    {:>8}", self.submitted)?;
        writeln!(f, "  accepted     {:>8}   rows in MySQL", self.accepted)?;
        writeln!(f, "  delivered    {:>8}   records on the callback topics, read committed", self.delivered)?;
        writeln!(f, "  lost         {:>8}", self.lost)?;
        writeln!(f, "  duplicates   {:>8}", self.duplicates)?;
        if self.strangers > 0 {
            writeln!(f, "  unexpected   {:>8}   records of no submitted task", self.strangers)?;
        }
        writeln!(f, "  early        {:>8}", self.early)?;
        writeln!(
            f,
            "  lateness     p50 {} ms, p99 {} ms, max {} ms",
            self.percentile(50),
            self.percentile(99),
            self.percentile(100)
        )?;
        writeln!(f, "  throughput   {rate:>8.0}   tasks/s over {:.0} s", self.seconds)?;
        write!(
            f,
            "\n  {}",
            if self.is_clean() {
                "Each task once, none early."
            } else {
                "NOT as promised: see the numbers above."
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(task: &str, due_at: i64, delivered_at: i64) -> Record {
        let header = |name: &str, value: String| (name.to_owned(), Some(value.into_bytes()));
        Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            timestamp_at: delivered_at,
            key: None,
            value: None,
            headers: vec![
                header("duestream-task-id", task.to_owned()),
                header("duestream-due-at", due_at.to_string()),
                header("duestream-delivered-at", delivered_at.to_string()),
            ],
        }
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_once_and_none_early_is_clean() {
        let report = Report::new(&ids(&["a", "b"]), 2, &[delivered("a", 10, 12), delivered("b", 10, 10)]);
        assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn a_lost_a_doubled_an_early_and_a_strange_record_each_spoil_it() {
        let tasks = ids(&["a", "b"]);
        for (what, records) in [
            ("lost", vec![delivered("a", 10, 12)]),
            ("doubled", vec![delivered("a", 10, 12), delivered("a", 10, 12), delivered("b", 10, 12)]),
            ("early", vec![delivered("a", 10, 9), delivered("b", 10, 12)]),
            ("strange", vec![delivered("a", 10, 12), delivered("b", 10, 12), delivered("c", 10, 12)]),
        ] {
            assert!(!Report::new(&tasks, 2, &records).is_clean(), "{what}");
        }
        assert!(
            !Report::new(&tasks, 1, &[delivered("a", 10, 12), delivered("b", 10, 10)]).is_clean(),
            "not all accepted"
        );
    }
}
