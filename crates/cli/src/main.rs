//! The `tierscope` command: parses the command line, runs the command, and ends with its exit code.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write as _;
use std::process::ExitCode;

use tierscope_cli::args::{self, Cli, Command};
use tierscope_cli::plan::Plan;
use tierscope_cli::print::print_note;
use tierscope_cli::{
    bench, compare, doctor, exit, export, import, list, live, nemo, qos, reclaim, record, report,
    reproduce, serve, sim, tier, tlb, trace, whatif,
};
use tierscope_core::Result;

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let as_text = line.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let ended = match args::parse(line) {
        Ok(cli) => run(cli, as_text),
        Err(error) => return say(&error),
    };
    match ended {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            print_note(&error.to_string());
            ExitCode::from(exit::code_of(error.kind()))
        }
    }
}

fn run(cli: Cli, line: String) -> Result<()> {
    match cli.command {
        Command::Record(args) => {
            let as_json = args.json;
            record::run(Plan::new(args, line)?, as_json)
        }
        Command::Report(command) => report::run(&command),
        Command::List(command) => list::run(&command),
        Command::Live(args) => live::run(args, line),
        Command::Tier(args) => tier::run(*args, line),
        Command::Reclaim(args) => reclaim::run(*args, line),
        Command::Compare(args) => compare::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args, &line),
        Command::Trace(command) => trace::run(&command),
        Command::Tlb(command) => tlb::run(&command),
        Command::Serve(args) => serve::run(args, line),
        Command::Sim(command) => sim::run(&command, &line),
        Command::Bench(command) => bench::run(&command),
        Command::Nemo(command) => nemo::run(&command),
        Command::Qos(args) => qos::run(&args),
        Command::Whatif(args) => whatif::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
    }
}

/// Prints help and version on stdout, and errors of the command line on stderr.
fn say(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        print_note(&args::one_line(error));
        return ExitCode::from(2);
    }
    // If stdout fails, there is no other place to report it.
    let _ = write!(std::io::stdout(), "{}", error.render());
    ExitCode::from(exit::OK)
}
