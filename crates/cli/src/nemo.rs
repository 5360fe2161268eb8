//! `tierscope nemo`: resource estimates for telemetry in the memory controller (NEMO).

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tierscope_core::{Cell, Error, ErrorKind, Result, Rule};
use tierscope_nemo::plan::Inputs;
use tierscope_nemo::{Driver, Functional, Memory, Plan, Spec};
use tierscope_report::table::Table;

use crate::print::print;
use crate::units;

/// Subcommands of `tierscope nemo`.
#[derive(Debug, Subcommand)]
pub enum NemoCommand {
    /// Estimate the time of a sweep over memory with more regions than the controller has states
    Plan(PlanArgs),
    /// Check a telemetry rule: its states, the pipelines that it needs, and the loss from folding
    /// over channels
    Rule(RuleArgs),
}

/// Flags of `nemo plan`. The defaults are the paper's prototype.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Memory to sweep over
    #[arg(long, value_name = "BYTES", value_parser = units::address, default_value = "16G")]
    pub memory: u64,

    /// Memory that one state covers
    #[arg(long, value_name = "BYTES", value_parser = units::address, default_value = "4K")]
    pub granularity: u64,

    /// Pipelines
    #[arg(long, value_name = "N", default_value_t = Inputs::PROTOTYPE.pipelines)]
    pub pipelines: u64,

    /// States of a pipeline
    #[arg(long, value_name = "N", default_value_t = Inputs::PROTOTYPE.states)]
    pub states: u64,

    /// Bytes of a counter, 1 to 8
    #[arg(long, value_name = "BYTES", default_value_t = Inputs::PROTOTYPE.counter)]
    pub counter: u64,

    /// Time for which a region is watched
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "500ms")]
    pub period: std::time::Duration,

    /// Memory channels
    #[arg(long, value_name = "N", default_value_t = Inputs::PROTOTYPE.channels)]
    pub channels: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `nemo rule`.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The rule: a file, or the text itself, such as "key all >> 21; update + 1"
    #[arg(value_name = "RULE")]
    pub rule: String,

    /// Memory that the controller serves
    #[arg(long, value_name = "BYTES", value_parser = units::address, default_value = "16G")]
    pub memory: u64,

    /// Pipelines of the controller
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub pipelines: usize,

    /// Memory channels
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub channels: usize,

    /// Banks of 1,024 words of state in each channel
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub banks: usize,

    /// Bytes of a counter, 1 to 8
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    pub counter: u8,

    /// Counters stay at their largest value instead of wrapping around to zero
    #[arg(long)]
    pub saturate: bool,

    /// Number of states, if a table maps keys to states; by default one for each sub-region
    #[arg(long, value_name = "N")]
    pub states: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs a subcommand.
///
/// # Errors
/// An invalid value, with the name of its field; or a plan or rule that does not fit the
/// controller, with the shortfall.
pub fn run(command: &NemoCommand) -> Result<()> {
    match command {
        NemoCommand::Plan(args) => plan(args),
        NemoCommand::Rule(args) => rule(args),
    }
}

fn plan(args: &PlanArgs) -> Result<()> {
    let plan = Plan::new(Inputs {
        memory: args.memory,
        granularity: args.granularity,
        pipelines: args.pipelines,
        states: args.states,
        counter: args.counter,
        period: args.period.as_secs_f64(),
        channels: args.channels,
    })?;
    if args.json {
        let value = serde_json::to_value(&plan).map_err(|error| {
            Error::new(ErrorKind::Other, "the plan cannot be printed").cause(error)
        })?;
        print(&format!("{value}\n"))
    } else {
        print(&text(&plan))
    }
}

fn text(plan: &Plan) -> String {
    let Plan { regions, at_once, periods, sweep, sweep_in_periods, .. } = plan;
    let Inputs { memory, granularity, pipelines, states, counter, period, channels } = plan.inputs;
    let (memory, granularity) = (size(memory as f64), size(granularity as f64));
    let heads = ["", "sweep by M·τ·W/(|SRAM|·G)", "1 TiB takes"];
    let sram = format!("SRAM with counters of {counter} B, {channels} channels");
    let mut table = Table::default().text(&sram).numbers(heads);
    for reading in &plan.readings {
        table.row([
            reading.assumption.to_owned(),
            size(reading.sram),
            format!("{:.2} s", reading.sweep),
            size(reading.for_a_tebibyte),
        ]);
    }
    format!(
        "{memory} in units of {granularity}: {regions} states; \
         {pipelines} pipelines x {states} hold {at_once} at a time\n\
         a sweep at {period} s takes {sweep:.2} s; \
         in whole periods {periods} x {period} s = {sweep_in_periods:.2} s\n\n{table}"
    )
}

/// A size with two decimals, which the readings differ by.
fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = (bytes.max(1.0).log2() / 10.0) as usize;
    let step = step.min(UNITS.len() - 1);
    let value = bytes / 1024f64.powi(step as i32);
    let digits = usize::from(value < 100.0 && value.fract() != 0.0) * 2;
    format!("{value:.digits$} {}", UNITS[step])
}

fn rule(args: &RuleArgs) -> Result<()> {
    let rule: Rule = text_of(&args.rule)?.parse()?;
    let cell = Cell::new(args.counter, args.saturate)?;
    let memory = Memory::single(args.memory, args.channels)?;
    let mut driver = Driver::new(Functional::new(memory, args.pipelines, args.banks)?);
    let (pipelines, banks) = driver.free()[0];
    let id = driver.install(&Spec { rule, cell, states: args.states })?;
    let (pipelines_left, banks_left) = driver.free()[0];
    let losses: Vec<String> = driver.losses(id)?.iter().map(ToString::to_string).collect();
    let (pipelines, banks) = (pipelines - pipelines_left, banks - banks_left);
    if args.json {
        let value = json!({
            "rule": rule.to_string(), "states_per_key": rule.states_per_key(),
            "pipelines": pipelines, "banks": banks, "folds_over": driver.banks(id)?, "loses": losses,
        });
        return print(&format!("{value}\n"));
    }
    let mut text = format!(
        "{rule}\n# {} states to a key; {pipelines} pipelines and {banks} banks in each channel\n\
         # a state is folded from {} banks\n",
        rule.states_per_key(),
        driver.banks(id)?
    );
    text.extend(losses.iter().map(|loss| format!("# folding loses: {loss}\n")));
    print(&text)
}

/// Reads the rule from a file if the path exists; otherwise the argument is the rule itself.
fn text_of(words: &str) -> Result<String> {
    let path = PathBuf::from(words);
    if !Path::new(words).exists() {
        return Ok(words.to_owned());
    }
    tierscope_workloads::text_file::read(&path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {}", path.display())).cause(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_print_what_each_reading_takes() {
        let text = text(&Plan::new(Inputs::PROTOTYPE).expect("the prototype's plan is valid"));
        assert!(text.contains("16 GiB in units of 4 KiB: 4194304 states"), "{text}");
        assert!(text.contains("36.57 s; in whole periods 74 x 0.5 s = 37.00 s"), "{text}");
        assert!(text.contains("1.41 MiB") && text.contains("90.11 MiB"), "{text}");
    }
}
