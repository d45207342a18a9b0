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

/// The section of the text that is being printed.
#[derive(Default)]
struct Section {
    path: Path,
    /// Keys of an item of a list, so that the other items can be printed behind the first.
    keys: Vec<Path>,
    is_list: bool,
}

/// Sections in `skip` are overrides of shared ones: their values were printed with the shared text.
fn render_text(text: &str, skip: &[&str], effective: &Table, out: &mut String) {
    let mut section = Section::default();
    let mut skipping = false;
    let mut comments = String::new();
    for line in text.lines() {
        let line = line.trim_end();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            further_items(&section, effective, out);
            let list = header.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let mut path: Path =
                list.unwrap_or(header).split('.').map(|part| part.trim().to_owned()).collect();
            path.extend(list.map(|_| "0".to_owned()));
            section = Section { path, keys: Vec::new(), is_list: list.is_some() };
            skipping = skip.contains(&section.path[0].as_str());
            flush(&mut comments, skipping, out);
            if !skipping {
                out.push_str(&format!("{line}\n"));
                open_entries(&section.path, text, effective, out);
            }
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            flush(&mut comments, skipping, out);
            let name: Path = name.trim().split('.').map(str::to_owned).collect();
            if !skipping {
                out.push_str(&key_line(&section.path, &name, effective));
            }
            section.keys.push(name);
        } else {
            comments.push_str(&format!("{line}\n"));
        }
    }
    further_items(&section, effective, out);
    flush(&mut comments, skipping, out);
    if !out.ends_with("\n\n") {
        out.push('\n');
    }
}

fn key_line(section: &[String], name: &[String], effective: &Table) -> String {
    let path = [section, name].concat();
    format!("{} = {}\n", name.join("."), shown(&path, effective))
}

/// The items of a list behind the one that stands in the text.
fn further_items(section: &Section, effective: &Table, out: &mut String) {
    let [list @ .., _] = section.path.as_slice() else { return };
    let items = lookup(effective, list).and_then(Value::as_array).map_or(0, Vec::len);
    if !section.is_list {
        return;
    }
    for index in 1..items {
        out.push_str(&format!("\n[[{}]]\n", list.join(".")));
        let item = [list, &[index.to_string()]].concat();
        section.keys.iter().for_each(|name| out.push_str(&key_line(&item, name, effective)));
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
