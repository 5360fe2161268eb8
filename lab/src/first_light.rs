//! `make run`: from sources to a profile of a real Redis server, with steps run concurrently where
//! possible.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use crate::command::missing;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch;
use crate::kbuild;
use crate::kernels::Kernel;
use crate::paths;
use crate::progress::say;
use crate::run::{self, Options};
use crate::scenario::Scenario;

/// Fetches `kernel` and builds our modules for it while cargo builds the programs; then runs the
/// scenario and shows the recording, which is kept in target/run/redis.
///
/// # Errors
/// Any step fails.
pub fn run(kernel: &Kernel, mut scenario: Scenario, seconds: u32) -> Result<()> {
    scenario.assign(&format!("seconds={seconds}"))?;
    let tree = thread::scope(|scope| {
        let tree = scope.spawn(|| prepare_kernel(kernel, &scenario));
        build_programs(&scenario)?;
        tree.join().unwrap_or_else(|_| {
            Err(Error::new(Kind::Environment, "fetching the kernel", "panicked"))
        })
    })?;
    let out = paths::root().join("target/run");
    say(format!("booting Linux {} and profiling Redis for {seconds} s", tree.release));
    let options = Options { out: Some(out.clone()), ..Options::default() };
    let done = run::run(&scenario, &kernel.name, &tree, &options)?;
    run::judge("first light", &done)?;
    show(&out.join("redis"))
}

fn prepare_kernel(kernel: &Kernel, scenario: &Scenario) -> Result<fetch::Tree> {
    let tree = fetch::tree(kernel)?;
    for module in &scenario.modules {
        kbuild::build(module, &tree, false)?;
    }
    say(format!("kernel {} and our modules for it are ready", kernel.name));
    Ok(tree)
}

/// Builds the scenario's programs, with cargo's progress on stderr.
///
/// # Errors
/// cargo is missing or fails.
fn build_programs(scenario: &Scenario) -> Result<()> {
    say("building the programs");
    // Without Parquet, which takes a quarter of the build and which this job does not need.
    let ours = scenario.programs.iter().filter(|program| !program.contains('='));
    let status = Command::new("cargo")
        .args(["build", "--no-default-features", "-p", "tierscope-cli", "-p", "tierscope-toucher"])
        .args(ours.flat_map(|program| ["--bin", program]))
        .current_dir(paths::root())
        .stdin(Stdio::null())
        .status()
        .map_err(|e| missing("cargo", e))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::new(Kind::Environment, "cargo build", status)),
    }
}

/// Prints the summary and the heatmap of a recording.
fn show(recording: &PathBuf) -> Result<()> {
    let tierscope =
        paths::programs().map_or_else(|| "tierscope".into(), |dir| dir.join("tierscope"));
    for view in ["summary", "heatmap"] {
        let status = Command::new(&tierscope).args(["report", view]).arg(recording).status();
        let status = status.map_err(|e| missing("tierscope", e))?;
        if !status.success() {
            return Err(Error::new(Kind::Job, format!("tierscope report {view}"), status));
        }
    }
    let recording = std::fs::canonicalize(recording).at(recording.display())?;
    say(format!("the recording is in {}", recording.display()));
    Ok(())
}
