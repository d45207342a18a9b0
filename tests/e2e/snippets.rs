//! What docs/CLIENTS.md shows is what is tested: each snippet is taken from a program under `tests/clients`, between
//! `begin snippet NAME` and `end snippet`. `UPDATE=1` writes the page anew.

use anyhow::{Context, Result, bail, ensure};
use devstack::paths;
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = "docs/CLIENTS.md";
const FOLDER: &str = "tests/clients";
/// Begins the line that names a snippet, above the fenced block that shows it.
const MARK: &str = "<!-- snippet ";

#[test]
fn the_page_of_the_clients_shows_every_snippet_as_it_is_tested() -> Result<()> {
    let root = paths::work_tree()?;
    let page = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let (wanted, shown) = with_snippets(&root, &page)?;
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root.join(PAGE), &wanted)?;
    } else {
        assert!(page == wanted, "{PAGE} is not what is tested; run: UPDATE=1 ./dev test snippets");
    }
    let mut there = BTreeSet::new();
    find_snippets(&root, &root.join(FOLDER), &mut there)?;
    assert_eq!(shown, there, "every snippet stands on the page");
    Ok(())
}

#[test]
fn the_page_of_the_clients_names_the_versions_that_are_tested() -> Result<()> {
    let root = paths::work_tree()?.join(FOLDER);
    let page = std::fs::read_to_string(paths::work_tree()?.join(PAGE))?;
    for (file, before, after) in [
        ("java/pom.xml", "<artifactId>kafka-clients</artifactId>\n      <version>", "<"),
        ("java/pom.xml", "<artifactId>avro</artifactId>\n      <version>", "<"),
        ("python/requirements.in", "confluent-kafka[avro,schemaregistry]==", "\n"),
        ("go/go.mod", "require github.com/twmb/franz-go v", "\n"),
        ("node/package.json", "\"@platformatic/kafka\": \"", "\""),
    ] {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let (_, rest) = text.split_once(before).with_context(|| format!("{file} holds {before:?}"))?;
        let (version, _) = rest.split_once(after).context("a version ends")?;
        let named = page.split(|c: char| c.is_whitespace() || "();,".contains(c)).any(|word| word == version);
        assert!(named, "{PAGE} does not name {version} of {file}");
    }
    Ok(())
}

/// The page with each marked block filled from its file, and the names of the snippets it shows.
fn with_snippets(root: &Path, page: &str) -> Result<(String, BTreeSet<String>)> {
    let mut out = String::new();
    let mut shown = BTreeSet::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(mark) = line.strip_prefix(MARK) else { continue };
        let mark = mark.strip_suffix(" -->").with_context(|| format!("the end of {line:?}"))?;
        let (file, name) = mark.split_once(' ').with_context(|| format!("a file and a name in {line:?}"))?;
        let fence = lines.next().filter(|line| line.starts_with("```")).context("a block after its mark")?;
        ensure!(lines.by_ref().any(|line| line == "```"), "the block of {mark} does not end");
        out.push_str(&format!("{fence}\n{}```\n", snippet(root, file, name)?));
        ensure!(shown.insert(mark.to_owned()), "{mark} stands twice");
    }
    Ok((out, shown))
}

/// The lines of one snippet, without the indentation that they share.
fn snippet(root: &Path, file: &str, name: &str) -> Result<String> {
    let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    let begin = format!("begin snippet {name}");
    let mut lines = text.lines().skip_while(|line| !line.ends_with(&begin));
    lines.next().with_context(|| format!("{file} has no snippet {name}"))?;
    let lines: Vec<&str> = lines.take_while(|line| !line.ends_with("end snippet")).collect();
    let indent = |line: &&&str| line.len() - line.trim_start().len();
    let shared = lines.iter().filter(|line| !line.is_empty()).map(|line| indent(&line)).min().unwrap_or(0);
    let cut = |line: &&str| format!("{}\n", line.get(shared..).unwrap_or_default());
    Ok(lines.iter().map(cut).collect())
}

fn find_snippets(root: &Path, dir: &Path, into: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find_snippets(root, &path, into)?;
            continue;
        }
        let file = path.strip_prefix(root)?.to_str().context("a path in UTF-8")?.to_owned();
        let text = std::fs::read_to_string(&path).with_context(|| file.clone())?;
        for line in text.lines() {
            if let Some((_, name)) = line.split_once("begin snippet ")
                && !into.insert(format!("{file} {name}"))
            {
                bail!("{file} has two snippets called {name}");
            }
        }
    }
    Ok(())
}
