//! The default files as manual: the text of the files with the values in force.

use super::{
    layers::{Path, lookup},
    secret::redact,
    sections::Shared,
};
use toml::{Table, Value};

/// Shared sections and the program's own, in the order of the files, comments kept, with the values of `effective`.
/// Values must stand on one line each, without a comment behind them (a test of each program sees to it).
pub(super) fn render(shared: &[Shared], own: &str, effective: &Table) -> String {
    let mut out = String::new();
    for section in shared {
        render_text(section.defaults, &[], effective, &mut out);
    }
    let taken: Vec<&str> = shared.iter().map(|section| section.name).collect();
    render_text(own, &taken, effective, &mut out);
    out.trim_end().to_owned() + "\n"
}

/// Sections in `skip` are overrides of shared ones: their values were printed with the shared text.
fn render_text(text: &str, skip: &[&str], effective: &Table, out: &mut String) {
    let mut section: Path = Vec::new();
    let mut skipping = false;
    let mut comments = String::new();
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = header.split('.').map(|part| part.trim().to_owned()).collect();
            skipping = skip.contains(&section[0].as_str());
            flush(&mut comments, skipping, out);
            if !skipping {
                out.push_str(&format!("{line}\n"));
                open_entries(&section, text, effective, out);
            }
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            flush(&mut comments, skipping, out);
            if !skipping {
                let path = [section.clone(), vec![name.trim().to_owned()]].concat();
                out.push_str(&format!("{} = {}\n", name.trim(), shown(&path, effective)));
            }
        } else {
            comments.push_str(&format!("{line}\n"));
        }
    }
    flush(&mut comments, skipping, out);
    if !out.ends_with("\n\n") {
        out.push('\n');
    }
}

/// Comments belong to the line below them, up to a blank line.
fn flush(comments: &mut String, skipping: bool, out: &mut String) {
    match comments.rfind("\n\n") {
        Some(end) if skipping => out.push_str(&comments[..end + 2]),
        None if skipping => {}
        Some(_) | None => out.push_str(comments),
    }
    comments.clear();
}

/// Entries of a table that is empty in the defaults.
fn open_entries(section: &[String], text: &str, effective: &Table, out: &mut String) {
    let defaults: Table = text.parse().unwrap_or_default();
    let is_open = matches!(lookup(&defaults, section), Some(Value::Table(table)) if table.is_empty());
    if let (true, Some(Value::Table(entries))) = (is_open, lookup(effective, section)) {
        for name in entries.keys() {
            let path = [section, std::slice::from_ref(name)].concat();
            out.push_str(&format!("{} = {}\n", Value::String(name.clone()), shown(&path, effective)));
        }
    }
}

fn shown(path: &[String], effective: &Table) -> String {
    match lookup(effective, path) {
        None => String::new(),
        Some(Value::String(text)) => Value::String(redact(&path.join("."), text)).to_string(),
        Some(value) => value.to_string(),
    }
}
