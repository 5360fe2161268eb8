//! `tierscope nemo`: resource estimates for telemetry in the memory controller (NEMO).

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tierscope_core::{Cell, Error, ErrorKind, Result, Rule};
use tierscope_nemo::plan::Inputs;
use tierscope_nemo::{Driver, Functional, Memory, Plan, Spec};

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
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "16G")]
    pub memory: u64,

    /// Memory that one state covers
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "4K")]
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
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "500ms")]
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
    #[arg(long, value_name = "BYTES", value_parser = units::bytes, default_value = "16G")]
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
        println!("{value}");
    } else {
        print!("{plan}");
    }
    Ok(())
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
        println!("{value}");
        return Ok(());
    }
    println!("{rule}");
    println!(
        "# {} states to a key; {pipelines} pipelines and {banks} banks in each channel",
        rule.states_per_key()
    );
    println!("# a state is folded from {} banks", driver.banks(id)?);
    losses.iter().for_each(|loss| println!("# folding loses: {loss}"));
    Ok(())
}

/// Reads the rule from a file if the path exists; otherwise the argument is the rule itself.
fn text_of(words: &str) -> Result<String> {
    let path = PathBuf::from(words);
    if !Path::new(words).exists() {
        return Ok(words.to_owned());
    }
    fs::read_to_string(&path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {}", path.display())).cause(error)
    })
}
