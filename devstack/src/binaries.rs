//! The real binaries, built before anything is started.

use crate::paths;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folder of the built binaries: `DUESTREAM_BIN`, else where this very executable (or test) was built.
pub fn folder() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("DUESTREAM_BIN") {
        return Ok(PathBuf::from(dir));
    }
    let exe = std::env::current_exe()?;
    let dir = exe.parent().context("the executable has no folder")?;
    // Tests lie in target/release/deps, binaries in target/release.
    Ok(if dir.ends_with("deps") { dir.parent().context("no parent folder")? } else { dir }.to_path_buf())
}

/// Path of one binary.
///
/// # Errors
/// When it is missing, or older than a source file of the work tree: a test must never run yesterday's program.
pub fn path(name: &str) -> Result<PathBuf> {
    let file = folder()?.join(name);
    let built = file.metadata().and_then(|metadata| metadata.modified()).with_context(|| {
        format!("{} is not built; run ./dev test, or cargo build --release", file.display())
    })?;
    let root = paths::work_tree()?;
    let crates = ["schemas", "protocol", "runtime", name.trim_start_matches("duestream-")];
    for krate in crates {
        if let Some((newest, changed)) = newest_source(&root.join(krate))?
            && changed > built
        {
            bail!("{name} is older than {}; build it again: cargo build --release", newest.display());
        }
    }
    Ok(file)
}

fn newest_source(dir: &Path) -> Result<Option<(PathBuf, SystemTime)>> {
    let mut newest: Option<(PathBuf, SystemTime)> = None;
    let mut todo = vec![dir.join("src"), dir.join("migrations"), dir.join("avsc")];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                todo.push(entry.path());
            } else if newest.as_ref().is_none_or(|(_, at)| metadata.modified().is_ok_and(|m| m > *at)) {
                newest = Some((entry.path(), metadata.modified()?));
            }
        }
    }
    Ok(newest)
}
