//! Lists of sections, such as `[[sources]]`. The one item that stands in the defaults says which keys each has, and what
//! a key is that an item leaves out.

use super::layers::{Override, Path};
use toml::{Table, Value};

/// Most items of one list.
pub(super) const MOST_ITEMS: usize = 64;

/// The item of the defaults, where this is a list of sections.
pub(super) fn template(value: &Value) -> Option<&Value> {
    value.as_array().and_then(|items| items.first()).filter(|item| item.is_table())
}

/// The item that a part of a path names: the one that is there, or what it would be at first.
pub(super) fn item<'v>(value: &'v Value, index: &str) -> Option<&'v Value> {
    let template = template(value)?;
    let index = index.parse::<usize>().ok().filter(|index| *index < MOST_ITEMS)?;
    value.as_array()?.get(index).or(Some(template))
}

/// The defaults with as many items in each list as the overrides speak of.
pub(super) fn grown(defaults: &Table, overrides: &[Override]) -> Table {
    let mut grown = defaults.clone();
    for change in overrides {
        grow(&mut grown, &change.path);
    }
    grown
}

fn grow(table: &mut Table, path: &Path) {
    let [list, index, ..] = path.as_slice() else { return };
    let Some(value) = table.get_mut(list) else { return };
    let Some(template) = template(value).cloned() else { return };
    if let (Value::Array(items), Ok(index)) = (value, index.parse::<usize>()) {
        while items.len() <= index && items.len() < MOST_ITEMS {
            items.push(template.clone());
        }
    }
}
