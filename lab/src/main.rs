//! `lab`: runs tierscope's scenarios on real kernels in QEMU.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tierscope_lab::error::{Error, Kind, Result};
use tierscope_lab::fetch::{self, Tree};
use tierscope_lab::kernels::Matrix;
use tierscope_lab::progress::say;
use tierscope_lab::run::{self, Options};
use tierscope_lab::scenario::Scenario;
use tierscope_lab::{
    accuracy, bench, debug, figures, first_light, kbuild, progress, results, suite, support, user,
};

/// Run tierscope on real kernels in QEMU (TCG).
///
/// Exit codes: 0 success, 1 the job or a check failed, 2 wrong use, 3 the kernel complained, 4
/// timeout, 5 this machine lacks something.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run one scenario on one kernel.
    Run {
        /// Name of a scenario, see `lab list`.
        scenario: String,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Open a shell in a scenario's machine.
    Shell {
        /// Name of a scenario, see `lab list`.
        #[arg(default_value = "smoke")]
        scenario: String,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Boot a kernel, profile a Redis server in it and show the result: `make run`.
    FirstLight {
        /// Name of a kernel.
        #[arg(long, default_value = first_light::KERNEL)]
        kernel: String,
        /// Seconds to profile.
        #[arg(long, default_value_t = first_light::SECONDS)]
        seconds: u32,
    },
    /// Run the checks that need a kernel: the cases of lab/suite.toml on every kernel.
    Test {
        /// Run only cases whose name contains this text.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// Build the modules for all kernels of lab/kernels.toml and run the cases that are for every
    /// kernel; results are stored in docs/kernels.json: `make test-kernels`.
    Kernels {
        /// Names of kernels; default: all that were not tested on this commit.
        names: Vec<String>,
    },
    /// On kernels built here with checks of their own: cases of lab/debug.toml and deliberate
    /// faults; results are stored in docs/debug-kernels.json: `make test-debug-kernel`.
    Debug {
        /// Names of kernels, or rows of the results; default: all that were not tested on this
        /// commit.
        names: Vec<String>,
    },
    /// Run the benchmarks of a chapter and write target/bench/CHAPTER.json.
    Bench {
        /// Name of the chapter.
        #[arg(value_parser = bench::names())]
        chapter: String,
        /// All chapters but module: run only rows whose name contains this text.
        #[arg(long, default_value = "")]
        only: String,
        /// accuracy: seconds that each instrument runs, instead of the case's.
        #[arg(long)]
        seconds: Option<u32>,
    },
    /// Run an unmodified program under QEMU with the plugin, and print what was recorded.
    Trace {
        /// Parts of the plugin, separated by commas: llc, raw, touched.
        #[arg(long, value_delimiter = ',', default_value = "raw")]
        parts: Vec<String>,
        /// Rings whose records are kept, separated by commas: raw.
        #[arg(long, value_delimiter = ',')]
        keep: Vec<String>,
        /// Output directory for plugin.json, mappings.log and kept records.
        #[arg(short, long, default_value = "target/lab/out/trace")]
        out: std::path::PathBuf,
        /// Plugin to load instead of the one built with this program.
        #[arg(long)]
        plugin: Option<std::path::PathBuf>,
        /// Program and its arguments.
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// Compare a recording with the workload's own truth (DIR/redis and DIR/truth.json).
    Accuracy {
        /// /out of a run of the scenario first-light.
        dir: std::path::PathBuf,
    },
    /// Build our kernel modules for every kernel, and check them with sparse.
    Modules,
    /// List scenarios and kernels.
    List,
    /// Print the tables of SUPPORT.md.
    Support,
    /// Write the table of figures in README.md from target/bench: `make figures`.
    Figures,
    /// Fetch kernels and headers into the cache.
    Fetch {
        /// Names of kernels; default: those of `make test`.
        kernels: Vec<String>,
    },
}

#[derive(Args)]
struct MachineArgs {
    /// Name of a kernel, see `lab list`.
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Set a parameter of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Memory in MiB instead of the scenario's.
    #[arg(long)]
    memory: Option<u64>,
    /// CPUs instead of the scenario's.
    #[arg(long)]
    cpus: Option<u32>,
    /// NUMA machine of topologies.toml instead of the scenario's.
    #[arg(long)]
    topology: Option<String>,
    /// Seconds until the machine is stopped instead of the scenario's.
    #[arg(long)]
    timeout: Option<u64>,
    /// Further kernel parameters.
    #[arg(long, default_value = "")]
    cmdline: String,
    /// Parts of the instrumented machine instead of the scenario's, separated by commas
    /// (lab/README.md).
    #[arg(long, value_delimiter = ',')]
    parts: Option<Vec<String>>,
    /// Plugin of the instrumented machine instead of the one built with this program.
    #[arg(long)]
    plugin: Option<std::path::PathBuf>,
    /// Use 5-level page tables.
    #[arg(long)]
    la57: bool,
    /// Enable page-table isolation.
    #[arg(long)]
    pti: bool,
    /// Mount the host's root, read-only, at /host.
    #[arg(long)]
    host: bool,
    /// Host directory for /out; existing files are kept.
    #[arg(long)]
    out: Option<std::path::PathBuf>,
    /// Also show the kernel's console.
    #[arg(short, long)]
    verbose: bool,
}

impl MachineArgs {
    fn options(&self) -> Options {
        Options {
            out: self.out.clone(),
            la57: self.la57,
            pti: self.pti,
            host_tree: self.host,
            console: self.verbose,
            quiet: false,
        }
    }

    fn scenario(&self, name: &str) -> Result<Scenario> {
        let mut scenario = Scenario::load(name)?;
        self.set.iter().try_for_each(|assignment| scenario.assign(assignment))?;
        scenario.memory_mb = self.memory.unwrap_or(scenario.memory_mb);
        scenario.cpus = self.cpus.unwrap_or(scenario.cpus);
        scenario.timeout_s = self.timeout.unwrap_or(scenario.timeout_s);
        if let Some(topology) = &self.topology {
            scenario.topology.clone_from(topology);
        }
        if let Some(parts) = &self.parts {
            scenario.set_parts(parts);
        }
        if let Some(plugin) = &self.plugin {
            scenario.set_plugin(plugin);
        }
        scenario.cmdline = format!("{} {}", scenario.cmdline, self.cmdline).trim().to_owned();
        Ok(scenario)
    }
}

fn main() -> ExitCode {
    progress::elapsed();
    run::sweep();
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(error.kind.exit_code())
        }
    }
}

fn dispatch(verb: Verb) -> Result<()> {
    let matrix = Matrix::load()?;
    match verb {
        Verb::Run { scenario, machine } => run_one(&matrix, &scenario, &machine),
        Verb::Shell { scenario, machine } => {
            let kernel = kernel(&matrix, &machine.kernel)?;
            run::shell(&machine.scenario(&scenario)?, &machine.kernel, &kernel, &machine.options())
        }
        Verb::FirstLight { kernel, seconds } => first_light::run(matrix.kernel(&kernel)?, seconds),
        Verb::Test { only } => test(&matrix, &only),
        Verb::Bench { chapter, only, seconds } => {
            bench::run(&chapter, &matrix, &bench::Choice { only, seconds })
        }
        Verb::Trace { parts, keep, out, plugin, program } => {
            trace(user::Program { words: program, parts, keep, quiet: false, plugin }, &out)
        }
        Verb::Accuracy { dir } => {
            println!("{}", accuracy::measure(&dir)?);
            Ok(())
        }
        Verb::Kernels { names } => {
            names.iter().try_for_each(|name| matrix.kernel(name).map(drop))?;
            results::test_kernels(&matrix, &names)
        }
        Verb::Debug { names } => debug::run(&matrix, &names),
        Verb::Modules => modules(&matrix),
        Verb::List => list(&matrix),
        Verb::Support => {
            let (results, suite) = (results::Results::load()?, suite::Suite::load()?);
            print!("{}", support::tables(&matrix, &results, &suite));
            Ok(())
        }
        Verb::Figures => figures::write(),
        Verb::Fetch { kernels } => fetch_all(&matrix, &kernels),
    }
}

fn kernel(matrix: &Matrix, name: &str) -> Result<Tree> {
    fetch::tree(matrix.kernel(name)?)
}

fn run_one(matrix: &Matrix, name: &str, machine: &MachineArgs) -> Result<()> {
    let scenario = machine.scenario(name)?;
    let kernel = kernel(matrix, &machine.kernel)?;
    say(format!("{name} on {} ({})", machine.kernel, kernel.release));
    let done = run::run(&scenario, &machine.kernel, &kernel, &machine.options())?;
    run::judge(name, &done)
}

fn test(matrix: &Matrix, only: &str) -> Result<()> {
    let tree = |name: &str| Ok((name.to_owned(), kernel(matrix, name)?));
    let kernels = matrix.names().into_iter().map(tree).collect::<Result<Vec<_>>>()?;
    suite::run_all(&kernels, only)
}

fn trace(program: user::Program, out: &std::path::Path) -> Result<()> {
    let ended = program.run(out)?;
    let failed =
        ended.outcome.as_ref().map(|outcome| outcome.read.failed.clone()).unwrap_or_default();
    let counts = ended.outcome.map(|outcome| outcome.counts);
    println!("{}", serde_json::json!({ "seconds": ended.seconds, "counts": counts }));
    match (ended.status.success(), failed.as_slice()) {
        (true, []) => Ok(()),
        (false, _) => Err(Error::new(Kind::Job, program.words.join(" "), ended.status)),
        (true, [cause, ..]) => Err(Error::new(Kind::Job, "a ring", cause)),
    }
}

fn modules(matrix: &Matrix) -> Result<()> {
    for name in matrix.names() {
        let tree = kernel(matrix, name)?;
        for module in kbuild::names() {
            println!("{name} {}", kbuild::build(module, &tree, true)?.display());
        }
    }
    Ok(())
}

fn list(matrix: &Matrix) -> Result<()> {
    for kernel in matrix.every() {
        println!("kernel    {:<16} {}", kernel.name, kernel.about);
    }
    for scenario in Scenario::all()? {
        println!("scenario  {:<16} {}", scenario.name, scenario.about);
    }
    Ok(())
}

fn fetch_all(matrix: &Matrix, names: &[String]) -> Result<()> {
    let all: Vec<String> = matrix.names().into_iter().map(str::to_owned).collect();
    for name in if names.is_empty() { &all } else { names } {
        let kernel = matrix.kernel(name)?;
        let tree = fetch::fetch(kernel)?;
        println!("{name} {} {}", tree.release, tree.dir.display());
    }
    Ok(())
}
