//! Names of a slot's keys.

use schemas::ids::Slot;

/// Builds the names of one slot's keys. All share the hash tag `{slot}`, so each script is one step on one cluster node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotKeys {
    base: String,
}

impl SlotKeys {
    /// Keys of a slot. The prefix has no braces (checked with the configuration), or it would name another hash tag.
    pub fn new(prefix: &str, slot: Slot) -> SlotKeys {
        SlotKeys { base: format!("{prefix}:{{{slot}}}") }
    }

    /// `ds:{3}:store:<topic>`: ZSET, member → due ms; waiting to be delivered.
    pub fn store(&self, topic: &str) -> String {
        format!("{}:store:{topic}", self.base)
    }

    /// `ds:{3}:prepare:<topic>`: ZSET, member → score; taken for delivery and not yet settled, and withdraw intents.
    pub fn prepare(&self, topic: &str) -> String {
        format!("{}:prepare:{topic}", self.base)
    }

    /// `ds:{3}:body`: HASH, member → `D` or `W` and the due record's Avro.
    pub fn body(&self) -> String {
        format!("{}:body", self.base)
    }

    /// `ds:{3}:topics`: ZSET, topic → its earliest score in store.
    pub fn topics(&self) -> String {
        format!("{}:topics", self.base)
    }

    /// `ds:{3}:meta`: HASH: token, seq, `due_pos`, jpos, fence, members, bodies, bytes, topics, cold, and for each topic
    /// `s:<topic>` and `p:<topic>`, the sizes of its store and prepare.
    pub fn meta(&self) -> String {
        format!("{}:meta", self.base)
    }

    /// Glob pattern that matches the slot's keys and no others.
    pub fn pattern(&self) -> String {
        let mut out = String::new();
        for c in self.base.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                out.push('\\');
            }
            out.push(c);
        }
        out + ":*"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_slot_share_its_hash_tag() {
        let keys = SlotKeys::new("ds", Slot(3));
        assert_eq!(keys.store("a.b"), "ds:{3}:store:a.b");
        assert_eq!(keys.prepare("a.b"), "ds:{3}:prepare:a.b");
        assert_eq!(
            (keys.body(), keys.topics(), keys.meta()),
            ("ds:{3}:body".into(), "ds:{3}:topics".into(), "ds:{3}:meta".into())
        );
    }

    #[test]
    fn the_pattern_takes_the_prefix_literally() {
        assert_eq!(SlotKeys::new("d*s", Slot(3)).pattern(), "d\\*s:{3}:*");
    }
}
