//! Which shard a task lies in, and which slot delivers a row (PROTOCOL §5).
//!
//! `slot(row)` = the newest entry of `route(shard, from_due_at, slot)` with `from_due_at ≤ row.due_at`. A move adds
//! an entry at the shard's cursor, so what was emitted keeps its slot for ever and what was not takes the new one.

use schemas::ids::{Shard, Slot};
use std::collections::BTreeMap;

/// The shard of a task: `crc32(shard_key) % shards`, where the task id serves as shard key if there is none.
pub fn shard_of(task_id: &str, shard_key: Option<&str>, shards: u16) -> Shard {
    let key = shard_key.unwrap_or(task_id);
    let hash = crc32fast::hash(key.as_bytes());
    Shard(u16::try_from(hash % u32::from(shards.max(1))).unwrap_or(0))
}

/// The slot a shard belongs to before anything was moved: `shard & (slots − 1)`.
pub fn default_slot(shard: Shard, slots: u16) -> Slot {
    Slot(shard.0 & slots.max(1).saturating_sub(1))
}

/// One row of table `route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// The shard.
    pub shard: Shard,
    /// Rows due from here on, epoch ms …
    pub from_due_at: i64,
    /// … belong to this slot, up to the shard's next entry.
    pub slot: Slot,
}

/// A stretch of one shard's due time that one slot delivers; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The shard.
    pub shard: Shard,
    /// First due time, epoch ms.
    pub from_due_at: i64,
    /// Last due time, epoch ms.
    pub upto_due_at: i64,
}

/// Why a routing table cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The table names a slot that does not exist.
    #[error("route of shard {shard} names slot {slot}, but there are only {slots} slots")]
    UnknownSlot {
        /// The shard.
        shard: Shard,
        /// What the entry says.
        slot: Slot,
        /// How many slots there are.
        slots: u16,
    },
}

/// The routing table of a pipeline, as it stood when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTable {
    slots: u16,
    /// Ascending by `from_due_at`; the first one is always at `i64::MIN`.
    by_shard: BTreeMap<Shard, Vec<(i64, Slot)>>,
}

impl RouteTable {
    /// Builds the table of `shards` base shards from the rows of `route`. Shards without a row have their default slot.
    pub fn new(
        shards: u16,
        slots: u16,
        entries: impl IntoIterator<Item = RouteEntry>,
    ) -> Result<RouteTable, RouteError> {
        let mut by_shard: BTreeMap<Shard, Vec<(i64, Slot)>> =
            (0..shards).map(|shard| (Shard(shard), Vec::new())).collect();
        for RouteEntry { shard, from_due_at, slot } in entries {
            if slot.0 >= slots {
                return Err(RouteError::UnknownSlot { shard, slot, slots });
            }
            by_shard.entry(shard).or_default().push((from_due_at, slot));
        }
        for (shard, list) in &mut by_shard {
            list.sort_unstable();
            if list.first().is_none_or(|(from, _)| *from != i64::MIN) {
                list.insert(0, (i64::MIN, default_slot(*shard, slots)));
            }
        }
        Ok(RouteTable { slots, by_shard })
    }

    /// How many slots there are.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Every shard, ascending.
    pub fn shards(&self) -> impl Iterator<Item = Shard> + '_ {
        self.by_shard.keys().copied()
    }

    /// The slot of a row.
    pub fn slot_at(&self, shard: Shard, due_at: i64) -> Slot {
        let list = self.by_shard.get(&shard).map_or(&[][..], Vec::as_slice);
        let found = list.iter().rev().find(|(from, _)| *from <= due_at);
        found.map_or_else(|| default_slot(shard, self.slots), |(_, slot)| *slot)
    }

    /// The last due time that has the same slot as `due_at` without interruption: a page ends there.
    pub fn last_with_slot_of(&self, shard: Shard, due_at: i64) -> i64 {
        let slot = self.slot_at(shard, due_at);
        let list = self.by_shard.get(&shard).map_or(&[][..], Vec::as_slice);
        let next = list.iter().find(|(from, other)| *from > due_at && *other != slot);
        next.map_or(i64::MAX, |(from, _)| from - 1)
    }

    /// The slot whose owner scans a shard: that of its newest entry, so that a shard has one scanner at a time
    /// although its rows may still lie in two slots.
    pub fn scanning_slot(&self, shard: Shard) -> Slot {
        self.slot_at(shard, i64::MAX)
    }

    /// The shards that the scanner of a slot reads, ascending.
    pub fn scanned_by(&self, slot: Slot) -> Vec<Shard> {
        self.shards().filter(|shard| self.scanning_slot(*shard) == slot).collect()
    }

    /// Where the rows of a slot lie, ascending by shard and due time.
    pub fn segments_of(&self, slot: Slot) -> Vec<Segment> {
        let mut out: Vec<Segment> = Vec::new();
        for (shard, list) in &self.by_shard {
            for (i, (from, owner)) in list.iter().enumerate() {
                if *owner != slot {
                    continue;
                }
                let upto_due_at = list.get(i + 1).map_or(i64::MAX, |(next, _)| next - 1);
                match out.last_mut() {
                    Some(last) if last.shard == *shard && last.upto_due_at.checked_add(1) == Some(*from) => {
                        last.upto_due_at = upto_due_at;
                    }
                    _ => out.push(Segment { shard: *shard, from_due_at: *from, upto_due_at }),
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(shard: u16, from_due_at: i64, slot: u16) -> RouteEntry {
        RouteEntry { shard: Shard(shard), from_due_at, slot: Slot(slot) }
    }

    #[test]
    fn the_shard_is_the_crc_of_the_shard_key_or_of_the_task_id() {
        // 0xcbf43926 is the check value of CRC-32 for "123456789".
        assert_eq!(shard_of("123456789", None, 64), Shard((0xcbf4_3926_u32 % 64) as u16));
        assert_eq!(shard_of("anything", Some("123456789"), 64), shard_of("123456789", None, 64));
    }

    #[test]
    fn without_entries_the_low_bits_of_the_shard_are_its_slot() {
        let table = RouteTable::new(64, 8, []).unwrap();
        assert_eq!(table.slot_at(Shard(13), 0), Slot(5));
        assert_eq!(table.last_with_slot_of(Shard(13), 0), i64::MAX);
        assert_eq!(table.scanned_by(Slot(5)).len(), 8);
    }

    #[test]
    fn a_move_leaves_what_was_due_before_it_where_it_was() {
        let table = RouteTable::new(4, 4, [entry(1, i64::MIN, 1), entry(1, 1_000, 3)]).unwrap();
        assert_eq!(table.slot_at(Shard(1), 999), Slot(1));
        assert_eq!(table.slot_at(Shard(1), 1_000), Slot(3));
        assert_eq!(table.last_with_slot_of(Shard(1), 0), 999);
        assert_eq!(table.scanning_slot(Shard(1)), Slot(3));
        assert_eq!(table.scanned_by(Slot(3)), vec![Shard(1), Shard(3)]);
        assert_eq!(
            table.segments_of(Slot(1)),
            vec![Segment { shard: Shard(1), from_due_at: i64::MIN, upto_due_at: 999 }]
        );
    }

    #[test]
    fn an_entry_that_repeats_the_slot_is_no_boundary() {
        let table = RouteTable::new(2, 2, [entry(0, 500, 0), entry(0, 900, 1)]).unwrap();
        assert_eq!(table.last_with_slot_of(Shard(0), 100), 899);
        assert_eq!(table.segments_of(Slot(0)).len(), 1);
    }

    #[test]
    fn a_slot_that_does_not_exist_is_refused() {
        assert!(RouteTable::new(2, 2, [entry(0, 0, 2)]).is_err());
    }

    #[test]
    fn replica_shards_beyond_the_base_shards_are_known_by_their_entries() {
        let table = RouteTable::new(2, 2, [entry(7, i64::MIN, 0)]).unwrap();
        assert_eq!(table.scanned_by(Slot(0)), vec![Shard(0), Shard(7)]);
    }

    proptest! {
        #[test]
        fn the_segments_of_all_slots_cut_due_time_without_gap_or_overlap(
            moves in proptest::collection::vec((0u16..4, -5i64..50, 0u16..4), 0..12), due_at in -10i64..60,
        ) {
            let unique: BTreeMap<(u16, i64), u16> = moves.into_iter().map(|(s, f, l)| ((s, f), l)).collect();
            let table = RouteTable::new(4, 4, unique.iter().map(|((s, f), l)| entry(*s, *f, *l))).unwrap();
            for shard in table.shards() {
                let holders: Vec<Slot> = (0..4).map(Slot).filter(|slot| {
                    table.segments_of(*slot).iter().any(|seg| {
                        seg.shard == shard && seg.from_due_at <= due_at && due_at <= seg.upto_due_at
                    })
                }).collect();
                prop_assert_eq!(holders, vec![table.slot_at(shard, due_at)]);
                let last = table.last_with_slot_of(shard, due_at);
                prop_assert!(last >= due_at);
                prop_assert_eq!(table.slot_at(shard, last), table.slot_at(shard, due_at));
                if last < i64::MAX {
                    prop_assert_ne!(table.slot_at(shard, last + 1), table.slot_at(shard, due_at));
                }
            }
        }
    }
}
