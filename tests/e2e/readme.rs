//! The first task of README.md, carried out as it stands there.

use anyhow::{Context, Result, ensure};
use devstack::{binaries, paths};
use std::process::Stdio;
use tests::World;
use tests::clients::Language;
use tests::world::PATIENCE;

#[tokio::test]
async fn the_first_task_of_the_readme_works_as_pasted() -> Result<()> {
    if Language::Kcat.client().await?.is_none() {
        return Ok(());
    }
    let readme = std::fs::read_to_string(paths::work_tree()?.join("README.md"))?;
    let (_, section) = readme.split_once("\n## Your first task").context("the section of the first task")?;
    let (section, _) = section.split_once("\n## ").context("the section's end")?;
    // The servers and programs are there already, under names of this test's own.
    let blocks = section.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let blocks: Vec<&str> = blocks.filter(|block| !block.contains("./dev")).collect();
    ensure!(blocks.len() == 5, "blocks to carry out: {blocks:#?}");

    let world = World::started("readme").await?;
    let topic = world.topic("out", 8).await?;
    let names = world.pipeline.names();
    let mut printed = String::new();
    for block in blocks {
        if block.starts_with("duectl get") {
            world.await_accepted(1).await?; // "Give it a second"
        }
        let block = block
            .replace("duestream.tasks", &names.tasks())
            .replace("duestream.rejected", &names.rejected())
            .replace("callbacks", &topic);
        printed.push_str(&shell(&world, &block).await?);
    }
    for expected in [
        "hello\n  headers: duestream-task-id=first,",
        "hello again",
        "duestream-rejected-reason=time_out_of_range",
    ] {
        assert!(printed.contains(expected), "{expected:?} is not in:\n{printed}");
    }
    Ok(())
}

/// Runs lines of the README and answers what they printed.
async fn shell(world: &World, lines: &str) -> Result<String> {
    binaries::path("duectl")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let child = tokio::process::Command::new("sh")
        .args(["-euc", lines])
        .envs(world.pipeline.client_env())
        .env("PATH", format!("{}:{path}", binaries::folder()?.display()))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let out = tokio::time::timeout(PATIENCE, child)
        .await
        .with_context(|| format!("still running after {PATIENCE:?}:\n{lines}"))??;
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(out.status.success(), "{lines}\nended with {}:\n{said}{error}", out.status);
    Ok(said.into_owned())
}
