//! Boots of scenarios in instrumented virtual machines.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::section::Inputs;
use crate::command::capture;
use crate::error::Result;
use crate::fetch;
use crate::paths;
use crate::run::{self, Options};
use crate::scenario::Scenario;

/// The kernel for all rows but those of [`boot_on`].
const KERNEL: &str = "6.12";

/// Runs a scenario after applying a change; `label` distinguishes the output directory from those
/// of other runs. Returns the host directory of /out.
pub(crate) fn boot(
    inputs: &Inputs<'_>,
    name: &str,
    label: &str,
    change: impl FnOnce(&mut Scenario) -> Result<()>,
) -> Result<PathBuf> {
    Ok(done(inputs, name, label, change)?.out)
}

/// Runs a scenario as [`boot`] does, on a kernel of the matrix.
pub(crate) fn boot_on(
    kernel: &str,
    inputs: &Inputs<'_>,
    (name, label): (&str, &str),
    change: impl FnOnce(&mut Scenario) -> Result<()>,
) -> Result<PathBuf> {
    Ok(done_on(kernel, inputs, (name, label), change)?.out)
}

/// Runs a scenario as [`boot`] does; returns the whole result.
pub(crate) fn done(
    inputs: &Inputs<'_>,
    name: &str,
    label: &str,
    change: impl FnOnce(&mut Scenario) -> Result<()>,
) -> Result<run::Done> {
    done_on(KERNEL, inputs, (name, label), change)
}

fn done_on(
    kernel: &str,
    inputs: &Inputs<'_>,
    (name, label): (&str, &str),
    change: impl FnOnce(&mut Scenario) -> Result<()>,
) -> Result<run::Done> {
    let mut scenario = Scenario::load(name)?;
    change(&mut scenario)?;
    let out = paths::cache().join("out").join(format!("{name}{label}-{kernel}"));
    let _ = fs::remove_dir_all(&out);
    let tree = fetch::tree(inputs.matrix.kernel(kernel)?)?;
    let options = Options { out: Some(out), quiet: true, ..Options::default() };
    let done = run::run(&scenario, kernel, &tree, &options)?;
    run::judge(&format!("{name}{label}"), &done)?;
    Ok(done)
}

/// The command that runs a scenario with a parameter.
pub(crate) fn command_of(name: &str, set: &str) -> String {
    format!("lab run {name} --set '{set}'")
}

/// Builds the plugin without debug assertions, for measurements of speed; returns its path.
pub(crate) fn fast_plugin() -> Result<PathBuf> {
    let words = ["build", "--release", "--quiet", "--lib", "--package", "tierscope-plugin"];
    capture(Command::new("cargo").args(words).current_dir(paths::root()))?;
    Ok(PathBuf::from(FAST_PLUGIN))
}

/// Output path of that build, relative to the project's root.
pub(crate) const FAST_PLUGIN: &str = "target/release/libtierscope_plugin.so";
