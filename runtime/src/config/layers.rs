//! Defaults, file and environment, merged. The defaults say which keys exist and of what type each is.

use super::lists;
use super::violations::Violations;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Path of a key: `["kafka", "bootstrap"]`.
pub(super) type Path = Vec<String>;

/// One value that a file or the environment sets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Override {
    pub(super) path: Path,
    pub(super) value: Value,
    /// Name of the environment variable; `None`: the file.
    pub(super) variable: Option<String>,
}

/// Merged defaults of a program: the shape of its configuration.
pub(super) struct Shape {
    pub(super) defaults: Table,
    /// Tables that are empty in the defaults take any key, with text as value.
    open: BTreeSet<Path>,
}

impl Shape {
    pub(super) fn new(defaults: Table) -> Shape {
        let mut open = BTreeSet::new();
        collect_open(&defaults, &mut Vec::new(), &mut open);
        Shape { defaults, open }
    }

    /// What a file sets, as far as its keys exist and its types fit; the rest goes to `violations`.
    pub(super) fn read_file(&self, file: &Table, violations: &mut Violations) -> Vec<Override> {
        let mut found = Vec::new();
        self.walk(file, &mut Vec::new(), &mut found, violations);
        found
    }

    fn walk(&self, table: &Table, at: &mut Path, found: &mut Vec<Override>, violations: &mut Violations) {
        for (name, value) in table {
            at.push(name.clone());
            let set = |path: Path, value: Value| Override { path, value, variable: None };
            match (lookup(&self.defaults, at), value) {
                (Some(Value::Table(_)), Value::Table(_)) if self.open.contains(at) => {
                    for (key, text) in flatten(value) {
                        let mut path = at.clone();
                        path.push(key);
                        match text {
                            Some(text) => found.push(set(path, Value::String(text))),
                            None => violations.broken(
                                &path.join("."),
                                value,
                                "must be a text, a number or a boolean",
                                "write \"…\"",
                            ),
                        }
                    }
                }
                (Some(Value::Table(_)), Value::Table(inner)) => self.walk(inner, at, found, violations),
                (Some(list), Value::Array(items)) if lists::template(list).is_some() => {
                    self.walk_list(list, items, at, found, violations);
                }
                (Some(default), value) => match fit(default, value.clone()) {
                    Ok(value) => found.push(set(at.clone(), value)),
                    Err(rule) => {
                        violations.broken(&at.join("."), value, &rule, &format!("the default is {default}"))
                    }
                },
                (None, Value::Table(inner)) if at.len() > 1 || !inner.is_empty() => {
                    for (name, value) in inner {
                        self.unknown(
                            &[at.as_slice(), std::slice::from_ref(name)].concat(),
                            &shown(value),
                            violations,
                        );
                    }
                }
                (None, value) => self.unknown(at, &shown(value), violations),
            }
            at.pop();
        }
    }

    fn walk_list(
        &self,
        list: &Value,
        items: &[Value],
        at: &mut Path,
        found: &mut Vec<Override>,
        violations: &mut Violations,
    ) {
        if !(1..=lists::MOST_ITEMS).contains(&items.len()) {
            let rule = format!("must have 1 to {} items", lists::MOST_ITEMS);
            violations.broken(&at.join("."), &format!("{} items", items.len()), &rule, "");
            return;
        }
        for (index, item) in items.iter().enumerate() {
            at.push(index.to_string());
            match (item, lists::template(list)) {
                (Value::Table(inner), Some(template)) => {
                    // Also an item that sets nothing is one.
                    found.push(Override { path: at.clone(), value: template.clone(), variable: None });
                    self.walk(inner, at, found, violations);
                }
                (other, _) => violations.broken(&at.join("."), other, "must be a section", ""),
            }
            at.pop();
        }
    }

    /// What `DUESTREAM_<PROGRAM>__SECTION__KEY` variables set.
    pub(super) fn read_env(
        &self,
        program: &str,
        env: impl Iterator<Item = (String, String)>,
        violations: &mut Violations,
    ) -> Vec<Override> {
        let prefix = env_prefix(program);
        let mut found = Vec::new();
        for (variable, text) in env {
            let Some(rest) = variable.strip_prefix(&prefix) else { continue };
            let mut path: Path = rest.split("__").map(str::to_ascii_lowercase).collect();
            let open = path.len() > 1 && self.open.contains(&path[..path.len() - 1]);
            if open && let Some(last) = path.last_mut() {
                *last = last.replace('_', ".");
            }
            let key = path.join(".");
            violations.set_origin(&key, &variable);
            let default = lookup(&self.defaults, &path);
            match default {
                _ if open => {
                    found.push(Override { path, value: Value::String(text), variable: Some(variable) })
                }
                None => self.unknown(&path, &text, violations),
                Some(default) => match parse(default, &text) {
                    Ok(value) => found.push(Override { path, value, variable: Some(variable) }),
                    Err(rule) => violations.broken(&key, &text, &rule, &format!("the default is {default}")),
                },
            }
        }
        found
    }

    fn unknown(&self, path: &[String], value: &str, violations: &mut Violations) {
        let key = path.join(".");
        let mut known = Vec::new();
        collect_keys(&self.defaults, &mut Vec::new(), &mut known);
        let nearest = known
            .iter()
            .map(|known| {
                // The right key in the wrong section is as good a guess as a typing error.
                let same_name = known.rsplit('.').next() == path.last().map(String::as_str);
                (if same_name { 1 } else { distance(known, &key) }, known)
            })
            .min();
        let remedy = match nearest {
            Some((far, known)) if far <= 1 + key.len() / 5 => format!("did you mean {known}?"),
            _ => match path.first().and_then(|section| self.defaults.get(section)) {
                Some(Value::Table(section)) => {
                    format!("[{}] has {}", path[0], section.keys().cloned().collect::<Vec<_>>().join(", "))
                }
                _ => format!(
                    "the sections are {}",
                    self.defaults.keys().cloned().collect::<Vec<_>>().join(", ")
                ),
            },
        };
        violations.broken(&key, &value, "unknown key", &remedy);
    }
}

/// `DUESTREAM_INGEST__`.
pub(crate) fn env_prefix(program: &str) -> String {
    format!("DUESTREAM_{}__", program.to_ascii_uppercase().replace('-', "_"))
}

/// Value at a path. An item of a list that is not there is what it would be at first.
pub(super) fn lookup<'t>(table: &'t Table, path: &[String]) -> Option<&'t Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(first)?, |value, part| match value {
        Value::Table(table) => table.get(part),
        list => lists::item(list, part),
    })
}

/// Sets the value at a path; the tables and items on the way exist in the (grown) defaults.
pub(super) fn set(table: &mut Table, path: &[String], value: Value) {
    let Some((last, way)) = path.split_last() else { return };
    let Some((first, rest)) = way.split_first() else {
        table.insert(last.clone(), value);
        return;
    };
    let mut at = table.get_mut(first);
    for part in rest {
        at = at.and_then(|value| inner(value, part));
    }
    match at {
        Some(Value::Table(table)) => {
            table.insert(last.clone(), value);
        }
        Some(list) => {
            if let Some(item) = inner(list, last) {
                *item = value;
            }
        }
        None => {}
    }
}

fn inner<'v>(value: &'v mut Value, part: &str) -> Option<&'v mut Value> {
    match value {
        Value::Table(table) => table.get_mut(part),
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    }
}

/// A value for a message: a text without its quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn fit(default: &Value, value: Value) -> Result<Value, String> {
    match (default, value) {
        (Value::Float(_), Value::Integer(n)) => Ok(Value::Float(n as f64)),
        (list, _) if lists::template(list).is_some() => Err(format!("must be {}", kind(list))),
        (default, value) if default.same_type(&value) => Ok(value),
        (default, _) => Err(format!("must be {}", kind(default))),
    }
}

fn parse(default: &Value, text: &str) -> Result<Value, String> {
    let parsed = match default {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Integer(_) => text.replace('_', "").parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        list if lists::template(list).is_some() => None,
        Value::Array(_) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
        }
        Value::Datetime(_) | Value::Table(_) => None,
    };
    parsed.ok_or_else(|| format!("must be {}", kind(default)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        list if lists::template(list).is_some() => "a list of sections ([[…]], or __0__KEY, __1__KEY, …)",
        Value::Array(_) => "a list",
        Value::Datetime(_) => "a date",
        Value::Table(_) => "a section",
    }
}

/// `security.protocol = "SSL"` in an open table nests where it is not quoted: joined again.
fn flatten(value: &Value) -> Vec<(String, Option<String>)> {
    let Value::Table(table) = value else { return Vec::new() };
    let mut out = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(_) => {
                out.extend(flatten(value).into_iter().map(|(inner, text)| (format!("{key}.{inner}"), text)))
            }
            Value::String(text) => out.push((key.clone(), Some(text.clone()))),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => {
                out.push((key.clone(), Some(value.to_string())))
            }
            Value::Datetime(_) | Value::Array(_) => out.push((key.clone(), None)),
        }
    }
    out
}

fn collect_open(table: &Table, at: &mut Path, open: &mut BTreeSet<Path>) {
    for (name, value) in table {
        if let Value::Table(inner) = value {
            at.push(name.clone());
            if inner.is_empty() {
                open.insert(at.clone());
            }
            collect_open(inner, at, open);
            at.pop();
        }
    }
}

fn collect_keys(table: &Table, at: &mut Path, known: &mut Vec<String>) {
    for (name, value) in table {
        at.push(name.clone());
        match value {
            Value::Table(inner) => collect_keys(inner, at, known),
            list if lists::template(list).is_some() => {
                at.push("0".to_owned());
                if let Some(Value::Table(inner)) = lists::template(list) {
                    collect_keys(inner, at, known);
                }
                at.pop();
            }
            _ => known.push(at.join(".")),
        }
        at.pop();
    }
}

/// Number of letters to change, insert or delete.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
