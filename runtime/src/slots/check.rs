//! What the protocol needs of the server: Redis or Valkey 7, and no eviction.

use std::collections::HashMap;
use std::fmt;

/// Why this server cannot hold a slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// Scripts need `#!lua flags=…`, which came with version 7.
    #[error("redis is version {found}: the slots' scripts need Redis or Valkey 7 or newer")]
    TooOld {
        /// What the server says.
        found: String,
    },
    /// An evicted key is a task that is not delivered.
    #[error(
        "redis has maxmemory-policy {found}: it must be noeviction, or tasks are dropped under memory pressure"
    )]
    Evicts {
        /// What the server says.
        found: String,
    },
    /// A replica refuses writes.
    #[error("redis is a replica: connect to the primary")]
    Replica,
    /// INFO lacks a field.
    #[error("redis does not tell its {field} in INFO")]
    Unknown {
        /// Which field.
        field: &'static str,
    },
}

/// What works, but is better known to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A restart of Redis empties all slots.
    NoAppendOnly,
    /// Redis may grow until the system kills it.
    NoMaxMemory,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Warning::NoAppendOnly => {
                "appendonly is off: when Redis restarts, every slot is rebuilt from Kafka and tasks are some seconds late; \
                 appendonly yes with appendfsync everysec avoids that"
            }
            Warning::NoMaxMemory => {
                "maxmemory is not set: Redis may grow until the system ends it; set it, then intake pauses instead"
            }
        })
    }
}

/// What INFO said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// `redis 7.0.15`, `valkey 8.1.0`.
    pub version: String,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
}

/// Judges the text of INFO.
pub(super) fn judge(info: &str) -> Result<ServerReport, CheckError> {
    let fields: HashMap<&str, &str> =
        info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let field = |name: &'static str| fields.get(name).copied().ok_or(CheckError::Unknown { field: name });

    // Valkey says redis_version 7.2.4 for compatibility, and its own beside it.
    let (name, version) = match fields.get("valkey_version") {
        Some(version) => ("valkey", *version),
        None => ("redis", field("redis_version")?),
    };
    let major: u32 = version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Err(CheckError::TooOld { found: version.to_owned() });
    }
    if fields.get("role").is_some_and(|role| *role == "slave") {
        return Err(CheckError::Replica);
    }
    let policy = field("maxmemory_policy")?;
    if policy != "noeviction" {
        return Err(CheckError::Evicts { found: policy.to_owned() });
    }
    let mut warnings = Vec::new();
    if fields.get("aof_enabled").is_some_and(|v| *v == "0") {
        warnings.push(Warning::NoAppendOnly);
    }
    if fields.get("maxmemory").is_some_and(|v| *v == "0") {
        warnings.push(Warning::NoMaxMemory);
    }
    Ok(ServerReport { version: format!("{name} {version}"), warnings })
}

/// Whether INFO comes from a node of a cluster.
pub(super) fn is_cluster(info: &str) -> bool {
    info.lines().any(|line| line.trim_end() == "cluster_enabled:1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, policy: &str) -> String {
        format!(
            "# Server\r\n{version}\r\nrole:master\r\nmaxmemory_policy:{policy}\r\naof_enabled:0\r\nmaxmemory:1000\r\n"
        )
    }

    #[test]
    fn a_server_that_evicts_is_refused() {
        assert_eq!(
            judge(&info("redis_version:7.0.15", "allkeys-lru")),
            Err(CheckError::Evicts { found: "allkeys-lru".into() })
        );
    }

    #[test]
    fn redis_6_is_refused_and_valkey_8_accepted() {
        assert_eq!(
            judge(&info("redis_version:6.2.7", "noeviction")),
            Err(CheckError::TooOld { found: "6.2.7".into() })
        );
        let report = judge(&info("redis_version:7.2.4\r\nvalkey_version:8.1.0", "noeviction"));
        assert_eq!(
            report,
            Ok(ServerReport { version: "valkey 8.1.0".into(), warnings: vec![Warning::NoAppendOnly] })
        );
    }

    #[test]
    fn what_info_does_not_tell_is_not_guessed() {
        assert_eq!(judge("redis_version:7.0.15\r\n"), Err(CheckError::Unknown { field: "maxmemory_policy" }));
    }
}
