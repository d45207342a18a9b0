//! Configuration: defaults that are also the manual, an optional file, the environment; everything wrong with them at once.
//!
//! ```text
//! shared/<section>.toml ─┐
//! config.default.toml   ─┼─▶ shape: which keys exist, of what type ──▶ typed sections ──▶ rules ──▶ T
//! --config FILE         ─┤         (unknown keys, wrong types)      (deny_unknown_fields)  (check)
//! DUESTREAM_<PROGRAM>__… ┘                 └────────── all collected in Violations ─────────┘
//! ```
//!
//! A program's `config.default.toml` holds its own sections, and may set other defaults for keys of the shared ones
//! (its port in `[http] listen`). Every key has a default and stands in a default file; an empty text means *none*.

mod duration;
mod layers;
mod lists;
mod manual;
mod secret;
mod sections;
mod violations;

pub use duration::{HumanDuration, NotADuration};
pub use secret::{Secret, redact_url};
pub use sections::{
    HTTP, Http, KAFKA, Kafka, LIFECYCLE, Lifecycle, LogFormat, MYSQL, Mysql, REDIS, Redis, Shared, TELEMETRY,
    TOPICS, Telemetry, Topics, positive,
};
pub use violations::{ConfigReport, Violations};

pub(crate) use layers::env_prefix;
use layers::{Override, Shape};
use serde::de::DeserializeOwned;
use std::path::Path;
use toml::{Table, Value};

/// Configuration of a program.
pub trait Config: DeserializeOwned + Send + Sync + 'static {
    /// `ingest`: names the environment variables, groups and logs.
    const PROGRAM: &'static str;
    /// `include_str!("../config.default.toml")`: its own sections, and other defaults for shared ones.
    const DEFAULTS: &'static str;
    /// The shared sections it has.
    const SHARED: &'static [Shared];

    /// Rules of the sections and between them. Runs only on values of the right type.
    fn check(&self, violations: &mut Violations);
    /// `[http]`.
    fn http(&self) -> &Http;
    /// `[telemetry]`.
    fn telemetry(&self) -> &Telemetry;
    /// `[lifecycle]`.
    fn lifecycle(&self) -> &Lifecycle;
}

/// A configuration with what it takes to print it.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The typed configuration.
    pub config: T,
    effective: Table,
}

impl<T: Config> Loaded<T> {
    /// The configuration in force as a file with comments, passwords hidden.
    pub fn redacted(&self) -> String {
        manual::render(T::SHARED, T::DEFAULTS, &self.effective)
    }

    /// Keys that differ from the defaults, `key = value`, passwords hidden: one line for the log.
    pub fn changes(&self) -> String {
        let mut lines = Vec::new();
        differences(&defaults::<T>(), &self.effective, "", &mut lines);
        lines.join(", ")
    }
}

/// The default file of a program with the shared sections: its manual.
pub fn default_text<T: Config>() -> String {
    manual::render(T::SHARED, T::DEFAULTS, &defaults::<T>())
}

/// Loads the configuration of a program from its defaults, `file` and the environment.
pub fn load<T: Config>(file: Option<&Path>) -> Result<Loaded<T>, ConfigReport> {
    let text = match file {
        None => None,
        Some(path) => Some(std::fs::read_to_string(path).map_err(|error| ConfigReport {
            lines: vec![format!(
                "--config = {}: cannot be read: {error}; name a file that exists, or none",
                path.display()
            )],
        })?),
    };
    load_from(
        text.as_deref(),
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
    )
}

/// As [`load`], with the text of the file and the environment given.
pub fn load_from<T: Config>(
    file: Option<&str>,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Loaded<T>, ConfigReport> {
    let mut violations = Violations::new();
    let shape = Shape::new(defaults::<T>());
    let mut overrides = Vec::new();
    match file.map(str::parse::<Table>).transpose() {
        Ok(table) => overrides.extend(shape.read_file(&table.unwrap_or_default(), &mut violations)),
        Err(error) => violations
            .line(format!("the file is not TOML: {}", error.to_string().trim_end().replace('\n', "\n  "))),
    }
    overrides.extend(shape.read_env(T::PROGRAM, env, &mut violations));

    let defaults = lists::grown(&shape.defaults, &overrides);
    let (typed, effective) = typed::<T>(&defaults, &overrides, &mut violations);
    typed.check(&mut violations);
    violations.finish()?;
    Ok(Loaded { config: typed, effective })
}

/// The typed configuration; values that no type accepts are reported and left at their defaults, so that the rules of all
/// others are still checked.
fn typed<T: Config>(defaults: &Table, overrides: &[Override], violations: &mut Violations) -> (T, Table) {
    let mut effective = defaults.clone();
    for change in overrides {
        // Alone on top of the defaults: serde names no path, and stops at the first error.
        let mut alone = defaults.clone();
        layers::set(&mut alone, &change.path, change.value.clone());
        match alone.try_into::<T>() {
            Ok(_) => layers::set(&mut effective, &change.path, change.value.clone()),
            Err(error) => {
                let shown = change.value.as_str().map_or_else(|| change.value.to_string(), str::to_owned);
                violations.broken(&change.path.join("."), &shown, error.message(), "");
            }
        }
    }
    let typed = effective.clone().try_into().expect("defaults and each change alone have been read");
    (typed, effective)
}

fn defaults<T: Config>() -> Table {
    let mut all = Table::new();
    for shared in T::SHARED {
        all.extend(shared.defaults.parse::<Table>().expect("shared defaults are TOML: tested"));
    }
    merge(&mut all, T::DEFAULTS.parse().expect("defaults are TOML: tested"));
    all
}

fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(base)), Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn differences(defaults: &Table, effective: &Table, prefix: &str, lines: &mut Vec<String>) {
    for (name, value) in effective {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match (defaults.get(name), value) {
            (Some(Value::Table(defaults)), Value::Table(effective)) => {
                differences(defaults, effective, &key, lines)
            }
            (Some(default), value) if default == value => {}
            (_, Value::String(text)) => lines.push(format!("{key} = {:?}", secret::redact(&key, text))),
            (_, value) => lines.push(format!("{key} = {value}")),
        }
    }
}

/// For the test of each program: its default file parses, breaks no rule, and prints as it stands. As the types deny unknown
/// fields and have no defaults of their own, this also proves that every key of the file is read and every field has its key.
///
/// # Panics
/// With what is wrong.
pub fn assert_defaults<T: Config>() {
    if let Err(error) = defaults::<T>().try_into::<T>() {
        panic!("defaults of {}: {error}", T::PROGRAM);
    }
    if let Err(report) = load_from::<T>(None, std::iter::empty()) {
        panic!("defaults of {}: {report}", T::PROGRAM);
    }
    let printed: Table = default_text::<T>().parse().expect("the printed defaults are TOML");
    let mut expected = defaults::<T>();
    redact_table(&mut expected, "");
    assert_eq!(printed, expected, "printing loses a key: one line per value, no comment behind it");
}

fn redact_table(table: &mut Table, prefix: &str) {
    for (name, value) in table.iter_mut() {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) => redact_table(inner, &format!("{key}.")),
            Value::String(text) => *text = secret::redact(&key, text),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
