//! Docs that name a test must not outlive it.

use anyhow::{Context, Result};
use devstack::paths;
use std::path::Path;

#[test]
fn every_test_that_the_docs_name_exists() -> Result<()> {
    let root = paths::work_tree()?;
    let mut sources = String::new();
    for folder in [
        "schemas",
        "protocol",
        "runtime",
        "ingest",
        "scanner",
        "dispatcher",
        "compensator",
        "duectl",
        "devstack",
        "tests",
    ] {
        read_sources(&root.join(folder), &mut sources)?;
    }
    let text = std::fs::read_to_string(root.join("docs/INVARIANTS.md")).context("docs/INVARIANTS.md")?;
    // Names of tests are sentences; modules and settings are shorter or hold other characters.
    let is_name = |word: &str| {
        word.matches('_').count() >= 3 && word.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
    };
    let names: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| is_name(word)).collect();
    assert!(names.len() > 20, "the page names tests in backticks, found only {names:?}");
    let missing: Vec<&&str> = names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "docs/INVARIANTS.md names tests that do not exist: {missing:?}");
    Ok(())
}

fn read_sources(dir: &Path, into: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
