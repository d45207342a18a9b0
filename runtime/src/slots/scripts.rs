//! The scripts. Each `.lua` file starts with its contract: keys, arguments, answers, cost.

use std::sync::LazyLock;

/// A script and its hash.
#[derive(Debug)]
pub struct SlotScript {
    /// Its name in logs and errors.
    pub name: &'static str,
    /// Its source, shebang and common part included.
    pub source: &'static str,
    sha: LazyLock<String>,
}

impl SlotScript {
    /// The hash by which the server knows it.
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// `#!lua` with flags, then the files. All but preload run at maxmemory too, so that the slot can drain.
macro_rules! script {
    ($name:literal, $shebang:literal $(, $file:literal)+) => {
        SlotScript {
            name: $name,
            source: concat!($shebang, "\n", $(include_str!(concat!("scripts/", $file, ".lua"))),+),
            sha: LazyLock::new(|| {
                redis::Script::new(concat!($shebang, "\n", $(include_str!(concat!("scripts/", $file, ".lua"))),+))
                    .get_hash()
                    .to_owned()
            }),
        }
    };
}

pub(super) static PRELOAD: SlotScript = script!("preload", "#!lua", "common", "preload");
pub(super) static CLAIM: SlotScript = script!("claim", "#!lua flags=allow-oom", "common", "claim");
pub(super) static SETTLE: SlotScript = script!("settle", "#!lua flags=allow-oom", "common", "settle");
pub(super) static RELEASE: SlotScript = script!("release", "#!lua flags=allow-oom", "common", "release");
pub(super) static LOOK: SlotScript = script!("look", "#!lua flags=allow-oom", "common", "look");
pub(super) static TAKE_OVER: SlotScript = script!("take_over", "#!lua flags=allow-oom", "take_over");
pub(super) static SWEEP: SlotScript = script!("sweep", "#!lua flags=allow-oom", "sweep");
pub(super) static START_COLD: SlotScript = script!("start_cold", "#!lua flags=allow-oom", "start_cold");
pub(super) static RETURN_PREPARED: SlotScript =
    script!("return_prepared", "#!lua flags=allow-oom", "common", "return_prepared");
pub(super) static FORGET: SlotScript = script!("forget", "#!lua flags=allow-oom", "forget");

/// Every script: loaded at connect, held against the pure model by a property test.
pub static ALL: &[&SlotScript] =
    &[&PRELOAD, &CLAIM, &SETTLE, &RELEASE, &LOOK, &TAKE_OVER, &SWEEP, &START_COLD, &RETURN_PREPARED, &FORGET];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_a_contract_and_only_preload_stops_at_maxmemory() {
        for script in ALL {
            for word in [&format!("-- {}:", script.name), "KEYS", "ARGV", "Answer", "Cost"] {
                assert!(script.source.contains(word), "{} lacks {word}", script.name);
            }
            assert_eq!(
                script.source.starts_with("#!lua flags=allow-oom\n"),
                script.name != "preload",
                "{}",
                script.name
            );
        }
    }
}
