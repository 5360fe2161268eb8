//! `tierscope sim`: experiments on the simulated machine, recorded like live targets.

mod overrides;
mod run;
mod run_table;
mod tier;
pub(crate) mod tier_table;
mod vary;

use clap::Subcommand;
use tierscope_core::Result;

use crate::simulations::about;

pub use overrides::OverrideArgs;
pub(crate) use overrides::experiment;

use run::RunArgs;
use tier::TierArgs;
use vary::VaryArgs;

/// Subcommands of `tierscope sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run an experiment: record what its instruments see, and account for what the machine did
    #[command(long_about = about("Run an experiment: record what its instruments see, and account \
                                  for what the machine did"))]
    Run(RunArgs),
    /// Let placement policies run side by side, each on a machine of its own that begins alike
    #[command(long_about = about("Let placement policies run side by side, each on a machine of its \
                                  own that begins alike"))]
    Tier(TierArgs),
    /// Run an experiment repeatedly with one parameter changed, and judge its instruments
    Vary(VaryArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// The experiment cannot be read or is invalid, or the output cannot be written: reported before
/// any run. Later the first error of a run; recordings up to then are kept.
pub fn run(command: &SimCommand, line: &str) -> Result<()> {
    match command {
        SimCommand::Run(args) => run::run(args, line),
        SimCommand::Tier(args) => tier::run(args, line),
        SimCommand::Vary(args) => vary::run(args),
    }
}
