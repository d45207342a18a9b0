//! Where things lie: the state of stacks, the cache of downloads.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Folder that holds the stacks: `DUESTREAM_HOME`, else `.devstack` in the work tree `./dev` was called from.
pub fn home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("DUESTREAM_HOME") {
        return Ok(PathBuf::from(home));
    }
    Ok(work_tree()?.join(".devstack"))
}

/// The work tree: `DUESTREAM_ROOT` (set by `./dev`), else the parent of this crate's folder at build time.
pub fn work_tree() -> Result<PathBuf> {
    if let Some(root) = std::env::var_os("DUESTREAM_ROOT") {
        return Ok(PathBuf::from(root));
    }
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("the crate has no parent folder")?.to_path_buf())
}

/// Cache shared by all work trees: `XDG_CACHE_HOME/duestream`, else `~/.cache/duestream`.
pub fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("duestream"))
}

/// Fills the folder `target`, unless it is there: `fill` works in a folder aside, which is then renamed, so that a
/// killed fetch leaves nothing that looks whole.
pub fn fill_once(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if target.is_dir() {
        return Ok(());
    }
    let mut name = target.file_name().context("a folder with a name")?.to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let aside = target.with_file_name(name);
    fs::create_dir_all(&aside).with_context(|| format!("create {}", aside.display()))?;
    if let Err(error) = fill(&aside) {
        drop(fs::remove_dir_all(&aside));
        return Err(error);
    }
    match fs::rename(&aside, target) {
        Ok(()) => Ok(()),
        // Another run was faster: its folder is as good.
        Err(_) if target.is_dir() => Ok(fs::remove_dir_all(&aside)?),
        Err(error) => Err(error).with_context(|| format!("rename {}", aside.display())),
    }
}

/// First of `names` found on PATH or in the folders where distributions put servers.
pub fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"].map(PathBuf::from))
        .collect();
    names.iter().find_map(|name| dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file()))
}
