//! Runs one scenario on one kernel: build, pack, boot, judge, clean up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::command::capture;
use crate::error::{Context, Result};
use crate::fetch::{self, Tree};
use crate::initramfs::{self, Contents};
use crate::instrumented::{self, AWAKE, Files, Readers, referee};
use crate::kbuild;
use crate::paths;
use crate::progress::say;
use crate::scenario::Scenario;
use crate::topology::Topologies;
use crate::vm::{self, Ending, Machine, Stream};

/// Options of a run that the scenario does not contain.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Host directory for the guest's /out; None: a directory in the cache, emptied first.
    pub out: Option<PathBuf>,
    /// Use 5-level page tables.
    pub la57: bool,
    /// Enable page-table isolation.
    pub pti: bool,
    /// Mount the host's root, read-only, at /host.
    pub host_tree: bool,
    /// Also show the kernel's console.
    pub console: bool,
    /// Show nothing during the run.
    pub quiet: bool,
}

/// Result of a scenario's run.
#[derive(Debug)]
pub struct Done {
    /// Result of the machine's run.
    pub ending: Ending,
    /// The host directory that was mounted at /out; it contains the console as `console.txt`.
    pub out: PathBuf,
}

/// Runs `scenario` on `kernel`, called `kernel_name`.
///
/// # Errors
/// The machine cannot be started. Failures inside the machine are judged by [`Ending::verdict`].
pub fn run(
    scenario: &Scenario,
    kernel_name: &str,
    kernel: &Tree,
    options: &Options,
) -> Result<Done> {
    let work = Work::new()?;
    let out = out_dir(scenario, kernel_name, options)?;
    let topologies = Topologies::load()?;
    let mut machine = prepare(scenario, kernel, options, &work, &out, &topologies, "")?;
    let stream =
        Stream { prefix: kernel_name.to_owned(), console: options.console, quiet: options.quiet };
    let timeout = Duration::from_secs(scenario.timeout_s);
    let ending = boot(|attempt| {
        let readers = instrument(&mut machine, scenario, &out)?;
        let ending = vm::run(&machine, &work.path, timeout, &stream)?;
        if let (Some(readers), Some(files)) = (readers, &machine.shared) {
            keep_outcome(files, readers, &out)?;
        }
        keep_console(&work.path, &out, attempt)?;
        Ok(ending)
    })?;
    Ok(Done { ending, out })
}

/// Number of attempts to boot a machine before the failure is reported.
///
/// QEMU before 8.1 may run a stale translation of code that another CPU is patching (it locked the
/// page after translating, not before): about one boot in some hundreds dies on the `int3` of a
/// jump label. Nothing of ours runs before the job begins, so such a failure is unrelated to our
/// code.
const STARTS: u32 = 3;

/// Calls `start` until the job begins, at most [`STARTS`] times.
fn boot(mut start: impl FnMut(u32) -> Result<Ending>) -> Result<Ending> {
    for attempt in 1..STARTS {
        let ending = start(attempt)?;
        if ending.boot_seconds.is_some() {
            return Ok(ending);
        }
        say(format!(
            "the machine died before its job began ({}); start {} of {STARTS}",
            ending.reason(),
            attempt + 1
        ));
    }
    start(STARTS)
}

/// Creates the shared files of an instrumented machine, for every attempt to boot, and starts the
/// ring readers.
fn instrument(machine: &mut Machine, scenario: &Scenario, out: &Path) -> Result<Option<Readers>> {
    let Some(table) = &scenario.plugin else { return Ok(None) };
    let nodes = machine.topology.node_mb(machine.memory_mb);
    let bytes: Vec<u64> = nodes.iter().map(|mib| mib << 20).collect();
    // Drop the files of the previous attempt first: the new ones have the same names.
    machine.shared = None;
    let _ = fs::remove_file(out.join(AWAKE));
    let files = machine.shared.insert(Files::new(table, machine.cpus, &bytes)?);
    Readers::start(files, out).map(Some)
}

/// Writes `plugin.json` with the counts and messages of the plugin and the numbers of records read,
/// and the touched pages if requested.
fn keep_outcome(files: &Files, readers: Readers, out: &Path) -> Result<()> {
    if files.wanted().keep.iter().any(|name| name == "touched") {
        referee::keep_touched(files, out)?;
    }
    let outcome = files.result(&readers.finish())?;
    let path = out.join("plugin.json");
    let text = serde_json::to_string_pretty(&outcome).map_err(std::io::Error::from);
    fs::write(&path, text.at(path.display())?).at(path.display())
}

/// Saves the console: as `console.txt` for the last attempt, `console-N.txt` for attempts that did
/// not boot.
fn keep_console(work: &Path, out: &Path, attempt: u32) -> Result<()> {
    let console = out.join("console.txt");
    if attempt > 1 {
        let earlier = out.join(format!("console-{}.txt", attempt - 1));
        fs::rename(&console, &earlier).at(earlier.display())?;
    }
    fs::copy(work.join("console"), &console).at(console.display()).map(|_| ())
}

/// Starts a machine for `scenario` with a shell.
///
/// # Errors
/// Same errors as [`run`].
pub fn shell(
    scenario: &Scenario,
    kernel_name: &str,
    kernel: &Tree,
    options: &Options,
) -> Result<()> {
    let work = Work::new()?;
    let out = out_dir(scenario, kernel_name, options)?;
    let topologies = Topologies::load()?;
    let mut machine =
        prepare(scenario, kernel, options, &work, &out, &topologies, "LAB_SHELL=1\n")?;
    let _readers = instrument(&mut machine, scenario, &out)?;
    vm::shell(&machine)
}

/// Prints how a run ended, and turns it into a verdict.
///
/// # Errors
/// The run failed.
pub fn judge(name: &str, done: &Done) -> Result<()> {
    let verdict = done.ending.verdict(name);
    if verdict.is_err() {
        done.ending.explain().iter().for_each(|line| eprintln!("  {line}"));
        eprintln!("  whole console: {}", done.out.join("console.txt").display());
    }
    let boot = done
        .ending
        .boot_seconds
        .map_or_else(|| "never booted".to_owned(), |s| format!("booted in {s:.1} s"));
    say(format!("{name}: {boot}, ended after {:.1} s", done.ending.seconds));
    verdict
}

fn prepare<'a>(
    scenario: &Scenario,
    kernel: &Tree,
    options: &Options,
    work: &Work,
    out: &Path,
    topologies: &'a Topologies,
    environment: &str,
) -> Result<Machine<'a>> {
    let topology = topologies.get(&scenario.topology)?;
    if let Some(script) = scenario.prepare_script() {
        on_host(&script, scenario, kernel, out)?;
    }
    let initramfs = work.path.join("initramfs");
    initramfs::pack(&contents(scenario, kernel, environment)?, kernel, &initramfs)?;
    Ok(Machine {
        kernel: kernel.image(),
        initramfs,
        out: out.to_owned(),
        host_tree: options.host_tree || scenario.host,
        topology,
        memory_mb: scenario.memory_mb,
        cpus: scenario.cpus,
        instructions: scenario.instructions,
        la57: options.la57,
        pti: options.pti,
        cmdline: scenario.cmdline.clone(),
        shared: None,
    })
}

/// Runs a scenario's script on the host, with the scenario's parameters, the path of /out, the
/// kernel's release and paths, and the directory of our programs in its environment.
fn on_host(script: &Path, scenario: &Scenario, kernel: &Tree, out: &Path) -> Result<()> {
    let mut command = Command::new("bash");
    command.envs(scenario.parameters());
    command.arg(script).env("LAB_OUT", out).env("LAB_RELEASE", &kernel.release);
    command.env("LAB_BUILD", kernel.build()).env("LAB_MODULES", kernel.modules());
    command.env("LAB_PROGRAMS", paths::programs().unwrap_or_default());
    capture(command.current_dir(paths::root())).map(|_| ())
}

fn contents(scenario: &Scenario, kernel: &Tree, environment: &str) -> Result<Contents> {
    let awake = if scenario.plugin.is_some() { "LAB_AWAKE=1\n" } else { "" };
    let environment = scenario.environment() + environment + awake;
    let mut files = vec![
        ("lab/job".to_owned(), scenario.job_text()?),
        ("lab/env".to_owned(), environment.into_bytes()),
    ];
    for (number, part) in scenario.parts.iter().enumerate() {
        let dir = format!("lab/jobs/{}", Scenario::job_name(number));
        files.push((format!("{dir}/job"), part.job_text()?));
        files.push((format!("{dir}/env"), part.environment().into_bytes()));
    }
    for module in &scenario.modules {
        let built = kbuild::build(module, kernel, false)?;
        files.push((format!("lab/{module}.ko"), fs::read(&built).at(built.display())?));
    }
    Ok(Contents {
        programs: scenario.programs.clone(),
        kernel_modules: scenario.kernel_modules.clone(),
        files,
    })
}

fn out_dir(scenario: &Scenario, kernel_name: &str, options: &Options) -> Result<PathBuf> {
    let default = || paths::cache().join("out").join(format!("{}-{kernel_name}", scenario.name));
    let out = options.out.clone().unwrap_or_else(default);
    if options.out.is_none() && out.exists() {
        fs::remove_dir_all(&out).at(out.display())?;
    }
    fs::create_dir_all(&out).at(out.display())?;
    fs::canonicalize(&out).at(out.display())
}

/// Directory for the files of one machine, removed at the end of the run.
struct Work {
    path: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Work {
    fn new() -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = work_dir().join(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&path).at(path.display())?;
        Ok(Work { path })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn work_dir() -> PathBuf {
    paths::cache().join("work")
}

/// Removes files left by killed processes of the lab. Called once per start.
pub fn sweep() {
    fetch::sweep();
    instrumented::sweep(fetch::alive);
    let Ok(entries) = fs::read_dir(work_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| !fetch::alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Scanner;

    fn ending(boot_seconds: Option<f64>) -> Ending {
        Ending {
            status: boot_seconds.map(|_| 1),
            timed_out: false,
            console: Scanner::default(),
            boot_seconds,
            seconds: 3.4,
            last_words: Vec::new(),
        }
    }

    fn starts(booting_at: u32) -> (u32, bool) {
        let mut starts = 0;
        let last = boot(|attempt| {
            starts = attempt;
            Ok(ending((attempt == booting_at).then_some(2.0)))
        });
        (starts, last.unwrap().boot_seconds.is_some())
    }

    #[test]
    fn only_a_machine_that_did_not_boot_is_started_again() {
        assert_eq!(starts(1), (1, true), "a job that fails is not repeated");
        assert_eq!(starts(3), (3, true));
        assert_eq!(starts(9), (STARTS, false));
    }

    #[test]
    fn consoles_of_failed_starts_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for attempt in 1..=2 {
            fs::write(dir.path().join("console"), attempt.to_string()).unwrap();
            keep_console(dir.path(), dir.path(), attempt).unwrap();
        }
        let text = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((text("console-1.txt"), text("console.txt")), ("1".into(), "2".into()));
    }
}
