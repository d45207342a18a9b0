//! `[avro]` and `[registry]`: schemas with which commands may be written.

use runtime::config::{HumanDuration, Secret, Violations, positive};
use schemas::command::KnownSchemas;
use serde::Deserialize;

/// `[avro]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Avro {
    /// Files of further schemas.
    pub schemas: Vec<String>,
}

/// `[registry]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// Address; empty: none.
    pub url: String,
    /// User; empty: none.
    pub user: String,
    /// Password of the user.
    pub password: Secret,
    /// Wait for an answer.
    pub timeout: HumanDuration,
    /// How long a schema counts as one that is of no use.
    pub unusable_for: HumanDuration,
}

impl Avro {
    /// The shipped schemas and those of the files. `Err`: the first file that cannot be used, and why.
    pub fn read(&self) -> Result<KnownSchemas, (&str, String)> {
        let mut known = KnownSchemas::shipped();
        for path in &self.schemas {
            add(&mut known, path).map_err(|fault| (path.as_str(), fault))?;
        }
        Ok(known)
    }

    /// Rules of the section.
    pub(super) fn check(&self, prefix: &str, v: &mut Violations) {
        for (index, path) in self.schemas.iter().enumerate() {
            if let Err(fault) = add(&mut KnownSchemas::shipped(), path) {
                v.broken(
                    &format!("{prefix}.schemas.{index}"),
                    path,
                    &fault,
                    "name a file with a schema of TaskCommand",
                );
            }
        }
    }
}

fn add(known: &mut KnownSchemas, path: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    known.add(&text).map_err(|fault| fault.to_string())
}

impl Registry {
    /// Rules of the section.
    pub(super) fn check(&self, prefix: &str, v: &mut Violations) {
        let key = |name: &str| format!("{prefix}.{name}");
        let host = ["http://", "https://"].iter().find_map(|scheme| self.url.strip_prefix(scheme));
        let host = host.map(|rest| rest.split('/').next().unwrap_or_default());
        v.rule(
            &key("url"),
            &self.url,
            self.url.is_empty() || host.is_some_and(|host| !host.is_empty() && !host.contains('@')),
            "must begin with http:// or https:// and name a host, without a user",
            "for example http://127.0.0.1:8081; the user goes to registry.user",
        );
        v.rule(
            &key("password"),
            &self.password,
            !self.user.is_empty() || self.password.expose().is_empty(),
            "is of no use without registry.user",
            "give both or none",
        );
        v.rule(
            &key("user"),
            &self.user,
            !self.user.contains(':'),
            "must not hold a colon, which ends it in basic authentication",
            "use another user",
        );
        positive(&key("timeout"), self.timeout, v);
        positive(&key("unusable_for"), self.unusable_for, v);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use runtime::config::load_from;

    fn lines(file: &str) -> Vec<String> {
        let loaded = load_from::<Config>(Some(file), std::iter::empty());
        loaded.map_or_else(|report| report.lines, |_| Vec::new())
    }

    #[test]
    fn a_registry_is_named_by_its_address_and_the_user_apart() {
        assert_eq!(
            lines("[registry]\nurl = \"https://registry/apis/ccompat/v7\"\nuser = \"u\"\npassword = \"p\"\n"),
            [""; 0]
        );
        assert_eq!(
            lines("[registry]\nurl = \"http://u:p@registry\"\npassword = \"p\"\n"),
            [
                "registry.url = http://u:***@registry: must begin with http:// or https:// and name a host, without a user; \
                 for example http://127.0.0.1:8081; the user goes to registry.user",
                "registry.password = ***: is of no use without registry.user; give both or none",
            ]
        );
    }

    #[test]
    fn a_schema_file_that_is_missing_or_no_schema_of_commands_is_named() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/avsc/task_command/v1.avsc");
        assert_eq!(lines(&format!("[avro]\nschemas = [\"{file}\"]\n")), [""; 0]);
        let toml = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let wrong = lines(&format!("[avro]\nschemas = [\"/nowhere.avsc\", \"{file}\", \"{toml}\"]\n"));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("avro.schemas.0 = /nowhere.avsc: cannot be read: "), "{wrong:?}");
        assert!(wrong[1].contains(": the schema is no Avro schema: "), "{wrong:?}");
    }
}
