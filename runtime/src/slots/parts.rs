//! Cuts work into script calls of bounded size.

use protocol::slot_store::{MAX_BYTES, MAX_MEMBERS, Topic};

/// Items of one call, each with the number (from 1) of its topic in the call.
pub(super) struct Part<'a, T> {
    pub(super) topics: Vec<Topic>,
    pub(super) items: Vec<(usize, &'a T)>,
}

/// Keeps the order of the items. A part has at most `MAX_MEMBERS` items, and `MAX_BYTES` unless a single item is larger.
pub(super) fn split<T>(items: &[T], topic: fn(&T) -> &Topic, bytes: fn(&T) -> usize) -> Vec<Part<'_, T>> {
    let mut parts = Vec::new();
    let mut part = Part { topics: Vec::new(), items: Vec::new() };
    let mut size = 0;
    for item in items {
        let more = bytes(item);
        if part.items.len() == MAX_MEMBERS || (!part.items.is_empty() && size + more > MAX_BYTES) {
            parts.push(std::mem::replace(&mut part, Part { topics: Vec::new(), items: Vec::new() }));
            size = 0;
        }
        size += more;
        let topic = topic(item);
        // Mostly the topic of the item before: look from the end.
        let index = match part.topics.iter().rposition(|known| known == topic) {
            Some(index) => index,
            None => {
                part.topics.push(topic.clone());
                part.topics.len() - 1
            }
        };
        part.items.push((index + 1, item));
    }
    if !part.items.is_empty() {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(items: &[(Topic, usize)]) -> Vec<usize> {
        split(items, |i| &i.0, |i| i.1).iter().map(|p| p.items.len()).collect()
    }

    #[test]
    fn a_part_ends_at_500_members_or_one_mebibyte() {
        let topic: Topic = "a".into();
        assert_eq!(sizes(&vec![(topic.clone(), 1); 1001]), [500, 500, 1]);
        let (half, large) = ((topic.clone(), MAX_BYTES / 2), (topic, 2 * MAX_BYTES));
        assert_eq!(sizes(&[half.clone(), half.clone(), half.clone(), large, half]), [2, 1, 1, 1]);
        assert_eq!(sizes(&[]), Vec::<usize>::new());
    }

    #[test]
    fn topics_are_numbered_per_part() {
        let items: Vec<(Topic, usize)> = ["a", "b", "a"].iter().map(|t| (Topic::from(*t), 1)).collect();
        let parts = split(&items, |i| &i.0, |i| i.1);
        assert_eq!(parts[0].topics, [Topic::from("a"), Topic::from("b")]);
        assert_eq!(parts[0].items.iter().map(|i| i.0).collect::<Vec<_>>(), [1, 2, 1]);
    }
}
