//! `make run`: from sources to a profile of a real Redis server, with steps run concurrently where
//! possible.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::command::missing;
use crate::error::{Error, Kind, Result};
use crate::fetch;
use crate::kbuild;
use crate::kernels::Kernel;
use crate::paths;
use crate::progress::say;
use crate::run::{self, Options};
use crate::scenario::Scenario;

/// The kernel that is booted by default, and the seconds that Redis is profiled.
pub const KERNEL: &str = "6.12";
/// See [`KERNEL`].
pub const SECONDS: u32 = 30;

/// Profile, packages and features of the build: those of `make run` in the Makefile, so that
/// nothing is compiled twice. Parquet and decompression take much of a build and are not used here.
const BUILD: [&str; 10] = [
    "build",
    "--profile",
    "quick",
    "--no-default-features",
    "-p",
    "tierscope-lab",
    "-p",
    "tierscope-cli",
    "-p",
    "tierscope-toucher",
];

/// Directory for the results, relative to the project's root.
const OUT: &str = "target/run";

/// Fetches `kernel` and builds our modules for it while cargo builds the programs; then runs the
/// scenario `first-light` and shows the recording, which is kept in target/run/redis.
///
/// # Errors
/// Any step fails.
pub fn run(kernel: &Kernel, seconds: u32) -> Result<()> {
    let mut scenario = Scenario::load("first-light")?;
    scenario.assign(&format!("seconds={seconds}"))?;
    let tree = thread::scope(|scope| {
        let tree = scope.spawn(|| prepare_kernel(kernel, &scenario));
        build_programs(&scenario)?;
        tree.join().unwrap_or_else(|_| {
            Err(Error::new(Kind::Environment, "fetching the kernel", "panicked"))
        })
    })?;
    say(format!("booting Linux {} and profiling Redis for {seconds} s", tree.release));
    let out = paths::root().join(OUT);
    let options = Options { out: Some(out), ..Options::default() };
    let done = run::run(&scenario, &kernel.name, &tree, &options)?;
    run::judge("first light", &done)?;
    show()
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
    let ours = scenario.programs.iter().filter(|program| !program.contains('='));
    let status = Command::new("cargo")
        .args(BUILD)
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

/// Reports that are printed or written: arguments of `tierscope report`.
const REPORTS: [&[&str]; 3] =
    [&["heatmap"], &["summary"], &["summary", "--html", "-o", "target/run/redis.html"]];

/// Commands to try next: arguments of `tierscope`, and their purpose. They work in the project's
/// root.
const NEXT: [(&str, &str); 3] = [
    ("report regions target/run/redis", "hot addresses, and their access rates"),
    ("live --replay target/run/redis", "the recording on the live screen; q ends"),
    ("whatif --fast 16M target/run/redis", "placement policies with 16 MiB of fast memory"),
];

/// Prints heatmap and summary of the recording, and writes its page; prints the paths, and commands
/// to try next.
fn show() -> Result<()> {
    let root = paths::root();
    let programs = paths::programs().unwrap_or_default();
    for report in REPORTS {
        let mut command = Command::new(programs.join("tierscope"));
        command.arg("report").args(report).arg("target/run/redis").current_dir(&root);
        let status = command.status().map_err(|e| missing("tierscope", e))?;
        if !status.success() {
            return Err(Error::new(
                Kind::Job,
                format!("tierscope report {}", report.join(" ")),
                status,
            ));
        }
        println!();
    }
    let program = programs.strip_prefix(&root).unwrap_or(&programs).join("tierscope");
    print!("{}", ending(&root.join(OUT), &program));
    Ok(())
}

/// The last lines: paths of page and recording, and the commands in [`NEXT`] for `tierscope`.
fn ending(out: &Path, tierscope: &Path) -> String {
    let (out, tierscope) = (out.display(), tierscope.display());
    let mut text = format!(
        "page       {out}/redis.html (for a browser)\nrecording  {out}/redis\n\ntry next:\n"
    );
    for (command, purpose) in NEXT {
        let _ = writeln!(text, "  {:<64} # {purpose}", format!("{tierscope} {command}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_makefile_builds_with_the_same_packages_and_features() {
        let text = std::fs::read_to_string(paths::root().join("Makefile")).unwrap();
        let line = format!("cargo {} --bin first-light", BUILD.join(" "));
        assert!(text.contains(&line), "{line}");
    }

    #[test]
    fn the_last_lines_name_page_recording_and_three_commands() {
        let text = ending(Path::new("/src/target/run"), Path::new("target/quick/tierscope"));
        assert!(
            text.contains("/src/target/run/redis.html") && text.contains("/src/target/run/redis\n")
        );
        assert_eq!(text.matches("  target/quick/tierscope ").count(), 3);
    }
}
