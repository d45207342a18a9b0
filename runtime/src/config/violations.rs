//! Everything that is wrong with a configuration, reported at once.

use super::secret::redact;
use std::fmt;

/// Collects what is wrong: unknown keys, wrong types, broken rules.
#[derive(Debug, Default)]
pub struct Violations {
    lines: Vec<String>,
    origins: Vec<(String, String)>,
}

impl Violations {
    /// Nothing wrong so far.
    pub fn new() -> Violations {
        Violations::default()
    }

    /// Values that did not come from a file are shown with the name of their variable.
    pub(super) fn set_origin(&mut self, key: &str, variable: &str) {
        self.origins.push((key.to_owned(), variable.to_owned()));
    }

    /// One line: `key = value: rule; remedy`, with passwords hidden.
    pub fn broken(&mut self, key: &str, value: &dyn fmt::Display, rule: &str, remedy: &str) {
        let value = redact(key, &value.to_string());
        let from = self.origins.iter().rev().find(|(of, _)| of == key);
        let from = from.map_or(String::new(), |(_, variable)| format!(" ({variable})"));
        let value = if value.is_empty() { "\"\"" } else { &value };
        let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        self.lines.push(format!("{key} = {value}{from}: {rule}{remedy}"));
    }

    /// Says that `key` breaks `rule`, unless it holds. `rule` reads on from the value: *must exceed …*; `remedy` says what to do.
    pub fn rule(&mut self, key: &str, value: &dyn fmt::Display, holds: bool, rule: &str, remedy: &str) {
        if !holds {
            self.broken(key, value, rule, remedy);
        }
    }

    /// A whole line of another kind, such as a file that cannot be read.
    pub fn line(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines so far.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// `Ok` when nothing is wrong.
    pub fn finish(self) -> Result<(), ConfigReport> {
        if self.lines.is_empty() { Ok(()) } else { Err(ConfigReport { lines: self.lines }) }
    }
}

/// All that is wrong with a configuration, a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigReport {
    /// One line per problem: `key = value: rule; remedy`.
    pub lines: Vec<String>,
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the configuration has {} problem{}:",
            self.lines.len(),
            if self.lines.len() == 1 { "" } else { "s" }
        )?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
