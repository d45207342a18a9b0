//! The real binaries, built before anything is started.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

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
/// When it is missing, or older than a file it was built from: a test must never run yesterday's program.
pub fn path(name: &str) -> Result<PathBuf> {
    let file = folder()?.join(name);
    let changed = |file: &Path| file.metadata().and_then(|metadata| metadata.modified());
    let built = changed(&file).with_context(|| {
        format!("{} is not built; run ./dev test, or cargo build --release", file.display())
    })?;
    for source in built_from(name)? {
        if changed(&source).is_ok_and(|at| at > built) {
            bail!("{name} is older than {}; build it again: cargo build --release", source.display());
        }
    }
    Ok(file)
}

/// The files of ours that a binary was built from, which Cargo writes beside it. A distributed binary has no such list.
pub fn built_from(name: &str) -> Result<Vec<PathBuf>> {
    let list = std::fs::read_to_string(folder()?.join(name).with_extension("d"));
    Ok(list.map(|list| sources(&list)).unwrap_or_default())
}

/// The files after the colon of a makefile's rule; spaces within a name are escaped with a backslash.
fn sources(rule: &str) -> Vec<PathBuf> {
    let (_, files) = rule.split_once(": ").unwrap_or_default();
    let files = files.trim().replace("\\ ", "\0");
    files
        .split(' ')
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(name.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_binary_are_read_from_cargos_list() {
        let rule = "/t/duectl: /w/a.rs /w/with\\ space/b.rs\n";
        assert_eq!(sources(rule), [PathBuf::from("/w/a.rs"), PathBuf::from("/w/with space/b.rs")]);
    }
}
