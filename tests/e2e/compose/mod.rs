//! docker-compose.yml, where no Docker is: what it says is compared with what `./dev` runs, and the commands and settings
//! of its programs drive the real programs (`run.rs`). `./dev lint` has the reader of `docker compose` look at it.

mod file;
mod run;

use anyhow::{Context, Result};
use devstack::{binaries, kafka, mysql, program, redis_server};
use file::{Compose, resolved};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Where the pipeline's servers are called so.
const SERVERS: [&str; 3] = ["kafka", "mysql", "redis"];

/// `DUESTREAM_SCANNER__` of `scanner`.
fn env_prefix(program: &str) -> String {
    format!("DUESTREAM_{}__", program.to_uppercase())
}

#[test]
fn every_variable_of_the_compose_file_has_a_default() -> Result<()> {
    Compose::read()?;
    assert_eq!(resolved("a ${DUESTREAM_X:-1} $$b")?, "a 1 $b");
    for depends_on_the_shell in ["${DUESTREAM_X}", "$X", "${DUESTREAM_X:-}", "${HOME:-x}", "${DUESTREAM_X-1}"]
    {
        assert!(resolved(depends_on_the_shell).is_err(), "{depends_on_the_shell}");
    }
    Ok(())
}

#[test]
fn every_port_of_the_compose_file_is_a_loopback_port_of_a_server() -> Result<()> {
    for (name, service) in &Compose::read()?.services {
        assert!(service.ports.is_empty() || SERVERS.contains(&name.as_str()), "{name} has ports");
        for port in &service.ports {
            let parts: Vec<&str> = port.split(':').collect();
            assert!(matches!(parts[..], ["127.0.0.1", _, _]), "{name}: {port}");
            assert!(parts[1..].iter().all(|port| port.parse::<u16>().is_ok()), "{name}: {port}");
        }
    }
    Ok(())
}

#[test]
fn every_stage_can_be_scaled() -> Result<()> {
    let compose = Compose::read()?;
    for name in program::NAMES {
        let service = compose.service(name);
        // A second container would want the same name, port or folder.
        assert!(service.container_name.is_none() && service.hostname.is_none(), "{name} has a fixed name");
        assert!(service.ports.is_empty() && service.volumes.is_empty(), "{name} has a port or volume");
        assert_eq!(service.restart.as_deref(), Some("unless-stopped"), "{name}");
        assert!(service.profiles.is_empty(), "{name} is not started by `docker compose up`");
        assert!(service.depends_on.contains_key("init"), "{name} does not wait for the topics and tables");
    }
    Ok(())
}

#[test]
fn every_service_that_ends_is_waited_for() -> Result<()> {
    let compose = Compose::read()?;
    let once = compose.services.iter().filter(|(_, service)| service.profiles.is_empty());
    for (name, _) in once.filter(|(_, service)| service.restart.as_deref() == Some("no")) {
        // `docker compose up --wait` calls a container that ended a failure, unless one that runs waited for its end.
        for stage in program::NAMES {
            let on = compose.service(stage).depends_on.get(name);
            assert!(on.is_some_and(|on| on.condition == "service_completed_successfully"), "{stage}: {name}");
        }
    }
    Ok(())
}

#[test]
fn every_image_is_pinned() -> Result<()> {
    let compose = Compose::read()?;
    for (name, service) in &compose.services {
        let (repository, tag) = service.image.rsplit_once(':').with_context(|| name.clone())?;
        let legal = |text: &str, more: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || more.contains(char::from(b)))
        };
        assert!(repository.split('/').all(|part| legal(part, "._-")), "{name}: {repository}");
        assert!(legal(tag, "._-") && tag != "latest", "{name}: {tag}");
        // Only what is built here is called `local`; and it is built once, because builds that run side by side may not export
        // the same name.
        assert!(service.build.is_none() || tag == "local", "{name}");
        assert_eq!(service.build.is_some(), name == "init", "{name}");
        assert!(service.build.as_deref().is_none_or(|folder| folder == "."), "{name}");
    }
    for name in ["kafka", "callbacks"] {
        assert_eq!(compose.service(name).image, format!("apache/kafka:{}", kafka::VERSION));
    }
    Ok(())
}

#[test]
fn the_servers_have_the_settings_that_dev_runs() -> Result<()> {
    let compose = Compose::read()?;
    for (key, value) in kafka::settings(1) {
        let variable = format!("KAFKA_{}", key.to_uppercase().replace('.', "_"));
        assert_eq!(compose.service("kafka").environment.get(&variable), Some(&value), "{variable}");
    }
    let mysql = &compose.service("mysql").command;
    for (key, value) in mysql::SETTINGS {
        assert!(mysql.contains(&format!("--{key}={value}")), "mysql: {key}={value}");
    }
    let redis = &compose.service("redis").command;
    for (key, value) in redis_server::SETTINGS {
        let value = value.trim_matches('"');
        let has = redis.windows(2).any(|pair| pair[0] == format!("--{key}") && pair[1] == value);
        assert!(has, "redis: {key} {value}");
    }
    assert!(redis.contains(&"--maxmemory".to_owned()), "Redis may grow until the system ends it");
    Ok(())
}

#[test]
fn every_program_has_the_settings_that_dev_gives_and_they_are_valid() -> Result<()> {
    let compose = Compose::read()?;
    for name in program::NAMES {
        let service = compose.service(name);
        let binary = format!("duestream-{name}");
        assert_eq!(service.command, [binary.as_str()], "{name}");
        let mut check = Command::new(binaries::path(&binary)?);
        let out = check.arg("check-config").env_clear().envs(&service.environment).output()?;
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));

        let mut print = Command::new(binaries::path(&binary)?);
        let out = print.arg("print-config").env_clear().envs(&service.environment).output()?;
        let text = String::from_utf8(out.stdout)?;
        let drain =
            text.lines().find_map(|line| line.strip_prefix("drain_timeout = ")).context("no drain")?;
        let seconds = |text: &str| text.trim_matches('"').strip_suffix('s').and_then(|n| n.parse().ok());
        let drain = seconds(drain).map(Duration::from_secs).context("a drain time-out in seconds")?;
        let grace = service.stop_grace_period.as_deref().and_then(seconds).map(Duration::from_secs);
        assert!(grace.is_some_and(|grace| grace > drain), "{name} is killed before it has drained");

        let probe = &service.healthcheck.as_ref().context("no health check")?.test;
        assert_eq!(probe[..], ["CMD", binary.as_str(), "healthcheck"], "{name}");
    }
    Ok(())
}

#[test]
fn every_server_is_asked_for_its_health() -> Result<()> {
    let compose = Compose::read()?;
    for (name, program) in
        [("kafka", "kafka-broker-api-versions.sh"), ("mysql", "mysql "), ("redis", "redis-cli ")]
    {
        let probe = &compose.service(name).healthcheck.as_ref().with_context(|| name)?.test;
        assert!(probe[0] == "CMD-SHELL" && probe[1].contains(program), "{name}: {probe:?}");
        // A shell that does not read it would call every server sick.
        let out = Command::new("sh").args(["-n", "-c", &probe[1]]).output()?;
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    }
    Ok(())
}

/// Settings of a service, with the addresses of this machine in place of those in the network of the containers.
fn settings_here(
    environment: &BTreeMap<String, String>,
    replace: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let here =
        |value: &String| replace.iter().fold(value.clone(), |value, (from, to)| value.replace(from, to));
    environment.iter().map(|(key, value)| (key.clone(), here(value))).collect()
}
