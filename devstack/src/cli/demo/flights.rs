//! The input: real departures (data/README.md), one task per flight.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const CSV: &str = include_str!("../../../data/flights.csv");

/// How many flights the sample holds.
pub const ALL: usize = 20_000;

/// Callback topics: by length of the flight.
pub const TOPICS: [&str; 3] = ["departures.short", "departures.medium", "departures.long"];

/// What is submitted.
pub struct Input {
    /// CSV with one more column: `haul`.
    pub file: PathBuf,
    /// The task of each line, in the order of the file: `line-origin-destination`.
    pub task_ids: Vec<String>,
}

/// Writes the first `count` flights with their haul into `dir`.
pub fn prepare(dir: &Path, count: usize) -> Result<Input> {
    let mut lines = CSV.lines();
    let header = lines.next().context("the sample is empty")?;
    if header != "departure,origin,destination,delay_min,distance_mi" {
        bail!("the sample has unexpected columns: {header}");
    }
    let mut text = format!("{header},haul\n");
    let mut task_ids = Vec::with_capacity(count);
    for (index, line) in lines.take(count).enumerate() {
        let columns: Vec<&str> = line.split(',').collect();
        let [_, origin, destination, _, distance] = columns[..] else {
            bail!("line {} has no five columns", index + 2)
        };
        let haul = match distance.parse::<u32>().with_context(|| format!("distance in line {}", index + 2))? {
            0..500 => "short",
            500..1000 => "medium",
            _ => "long",
        };
        writeln!(text, "{line},{haul}")?;
        // Two flights repeat in the sample: the line number tells them apart.
        task_ids.push(format!("{}-{origin}-{destination}", index + 2));
    }
    let file = dir.join("flights.csv");
    fs::write(&file, text)?;
    Ok(Input { file, task_ids })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flight_of_the_sample_becomes_a_task_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let input = prepare(dir.path(), ALL).unwrap();
        let distinct: std::collections::HashSet<_> = input.task_ids.iter().collect();
        assert_eq!(distinct.len(), ALL);
        for topic in TOPICS {
            let haul = topic.rsplit('.').next().unwrap();
            assert!(fs::read_to_string(&input.file).unwrap().contains(&format!(",{haul}\n")));
        }
    }
}
