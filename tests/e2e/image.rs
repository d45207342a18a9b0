//! The Dockerfile and what it is given, where no Docker is. `./dev lint` has hadolint look at it.

use anyhow::{Context, Result};
use devstack::{binaries, paths, program};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Instructions of the Dockerfile: name and the rest, continuation lines joined, comments left out.
fn instructions() -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(paths::work_tree()?.join("Dockerfile"))?;
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let instruction =
        |line: &str| line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.to_owned()));
    Ok(joined.lines().filter_map(instruction).collect())
}

fn all<'i>(instructions: &'i [(String, String)], name: &str) -> Vec<&'i str> {
    instructions.iter().filter(|(other, _)| other == name).map(|(_, rest)| rest.as_str()).collect()
}

#[test]
fn every_stage_of_the_image_stands_on_a_pinned_image_or_an_earlier_stage() -> Result<()> {
    let instructions = instructions()?;
    let mut stages = BTreeSet::new();
    for from in all(&instructions, "FROM") {
        let words: Vec<&str> = from.split_whitespace().collect();
        let tag = words[0].split_once(':').map(|(_, tag)| tag);
        assert!(stages.contains(words[0]) || tag.is_some_and(|tag| tag != "latest"), "{from}");
        stages.extend(words.get(2).copied());
    }
    for copy in all(&instructions, "COPY") {
        let stage =
            copy.strip_prefix("--from=").and_then(|rest| rest.split_once(' ')).map(|(stage, _)| stage);
        assert!(copy == ". ." || stage.is_some_and(|stage| stages.contains(stage)), "{copy}");
    }
    Ok(())
}

#[test]
fn the_image_is_built_by_the_oldest_compiler_that_is_promised() -> Result<()> {
    let manifest = fs::read_to_string(paths::work_tree()?.join("Cargo.toml"))?;
    let promised =
        manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).context("rust-version")?;
    let from = format!("rust:{}.", promised.trim_matches('"'));
    let instructions = instructions()?;
    assert!(all(&instructions, "FROM").iter().any(|image| image.starts_with(&from)), "no FROM {from}…");
    Ok(())
}

#[test]
fn nothing_in_the_image_runs_as_root() -> Result<()> {
    let instructions = instructions()?;
    let last = instructions.iter().rposition(|(name, _)| name == "FROM").context("FROM")?;
    let users = all(&instructions[last..], "USER");
    // A number: an orchestrator that demands another user than root cannot read a name.
    let (user, group) = users.last().and_then(|user| user.split_once(':')).context("no USER")?;
    assert!(user.parse::<u32>()? > 0 && group.parse::<u32>()? > 0);
    Ok(())
}

#[test]
fn the_image_holds_the_programs_and_is_built_with_what_dev_installs() -> Result<()> {
    let instructions = instructions()?;
    let runs = all(&instructions, "RUN").join(" ");
    for name in
        program::NAMES.map(|name| format!("duestream-{name}")).iter().map(String::as_str).chain(["duectl"])
    {
        let package = name.trim_start_matches("duestream-");
        // Once for the dependencies, once for our own code.
        assert_eq!(runs.matches(&format!("--package {package}")).count(), 2, "{package}");
        assert!(runs.contains(&format!("target/dist/{name}")), "{name} is not put into the image");
    }
    let dev = fs::read_to_string(paths::work_tree()?.join("dev"))?;
    let (_, rest) = dev.split_once("need_build_tools() {").context("need_build_tools")?;
    let (tools, _) = rest.split_once("\n}").context("its end")?;
    for line in tools.lines().filter_map(|line| line.split_once("missing+=(")) {
        let packages = line.1.split(')').next().unwrap_or_default();
        for package in packages.split_whitespace().filter(|package| !package.starts_with('"')) {
            assert!(runs.contains(&format!(" {package} ")), "{package} is missing in the stage that builds");
        }
    }
    Ok(())
}

/// Whether a line of .dockerignore means this path. Lines are plain paths, or `*.suffix` for files at the top.
fn is_ignored(line: &str, path: &Path) -> bool {
    match line.strip_prefix('*') {
        Some(suffix) => path.components().count() == 1 && path.to_string_lossy().ends_with(suffix),
        None => path.starts_with(line),
    }
}

#[test]
fn no_file_that_a_program_is_built_from_is_kept_from_the_build() -> Result<()> {
    let root = paths::work_tree()?;
    let text = fs::read_to_string(root.join(".dockerignore"))?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(
        lines.iter().all(|line| !line[1..].contains(['*', '!', '?', '['])),
        "a pattern this test cannot read"
    );
    let mut needed: BTreeSet<_> = ["Cargo.toml".into(), "Cargo.lock".into()].into();
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let (_, members) = manifest.split_once("members = [").context("members")?;
    let members = members.split(']').next().unwrap_or_default();
    needed.extend(members.split('"').skip(1).step_by(2).map(|member| Path::new(member).join("Cargo.toml")));
    for name in program::NAMES {
        let listed = binaries::built_from(&format!("duestream-{name}"))?;
        needed.extend(listed.iter().filter_map(|path| path.strip_prefix(&root).ok()).map(Path::to_path_buf));
    }
    assert!(needed.len() > 50, "only {} files", needed.len());
    for path in &needed {
        assert!(root.join(path).is_file(), "{} does not exist", path.display());
        for line in &lines {
            assert!(!is_ignored(line, path), ".dockerignore: {line} keeps {} from the build", path.display());
        }
    }
    Ok(())
}
