//! docker-compose.yml as the tests read it: variables resolved as if none were set, anchors and merges applied.

use anyhow::{Context, Result, bail};
use devstack::paths;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

/// The file, as far as the tests look at it. That it follows the schema of compose files, `./dev lint` checks.
#[derive(Debug, Deserialize)]
pub(super) struct Compose {
    pub(super) services: BTreeMap<String, Service>,
    volumes: BTreeMap<String, yaml_serde::Value>,
}

/// One service.
#[derive(Debug, Deserialize)]
pub(super) struct Service {
    pub(super) image: String,
    pub(super) build: Option<String>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) entrypoint: Vec<String>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) ports: Vec<String>,
    #[serde(default)]
    pub(super) volumes: Vec<String>,
    #[serde(default)]
    pub(super) profiles: Vec<String>,
    #[serde(default)]
    pub(super) depends_on: BTreeMap<String, Dependency>,
    pub(super) healthcheck: Option<Healthcheck>,
    pub(super) container_name: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) restart: Option<String>,
    pub(super) stop_grace_period: Option<String>,
}

/// What a service waits for.
#[derive(Debug, Deserialize)]
pub(super) struct Dependency {
    pub(super) condition: String,
}

/// How a service is asked whether it works.
#[derive(Debug, Deserialize)]
pub(super) struct Healthcheck {
    pub(super) test: Vec<String>,
}

impl Compose {
    /// Reads the file of this work tree.
    pub(super) fn read() -> Result<Compose> {
        let path = paths::work_tree()?.join("docker-compose.yml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut value: yaml_serde::Value = yaml_serde::from_str(&resolved(&text)?)?;
        value.apply_merge()?;
        let compose: Compose = yaml_serde::from_value(value)?;
        compose.check_names()?;
        Ok(compose)
    }

    /// A service that must be there.
    pub(super) fn service(&self, name: &str) -> &Service {
        self.services.get(name).unwrap_or_else(|| panic!("docker-compose.yml has no service {name}"))
    }

    /// What is named must be there: the reader of docker compose refuses the file otherwise.
    fn check_names(&self) -> Result<()> {
        for (name, service) in &self.services {
            for (other, dependency) in &service.depends_on {
                let on = self.services.get(other).with_context(|| format!("{name} waits for {other}"))?;
                match dependency.condition.as_str() {
                    "service_healthy" if on.healthcheck.is_some() => {}
                    // A program that is started again and again never completes.
                    "service_completed_successfully" if on.restart.as_deref() == Some("no") => {}
                    condition => bail!("{name} waits for {other} to be {condition}, which never comes"),
                }
            }
            for volume in &service.volumes {
                let (source, _) = volume.split_once(':').context("a volume without a place")?;
                self.volumes.get(source).with_context(|| format!("{name}: no volume {source}"))?;
            }
        }
        Ok(())
    }
}

/// Replaces `${NAME:-default}` by its default and `$$` by `$`. Everything else that begins with `$` would depend on the
/// shell of whoever starts it.
pub(super) fn resolved(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let (variable, after) =
            after.strip_prefix('{').and_then(|after| after.split_once('}')).context("a lonely $")?;
        let (name, default) =
            variable.split_once(":-").with_context(|| format!("{variable} has no default"))?;
        if default.is_empty() || !name.starts_with("DUESTREAM_") {
            bail!("{variable}: variables are called DUESTREAM_…, and have a default that is not empty");
        }
        out.push_str(default);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
