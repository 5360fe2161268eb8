//! `tierscope bench`: compares instruments, and walks of reclaim policies, on simulated machines.

mod accuracy;
mod accuracy_table;
mod scan_cost;

use clap::Subcommand;
use tierscope_core::Result;

use crate::simulations::about;

use accuracy::AccuracyArgs;
use scan_cost::ScanCostArgs;

/// Subcommands of `tierscope bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// All instruments side by side on a simulated machine: precision, recall, detection, cost
    #[command(long_about = about("All instruments side by side on a simulated machine: precision, \
                                  recall, detection, cost"))]
    Accuracy(AccuracyArgs),
    /// Cost of a walk over page tables as mapped memory grows while the accessed part stays
    /// constant: reclaim policies, on simulated machines
    ScanCost(ScanCostArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// A scenario cannot be read or is invalid, reported before any run; or a file cannot be written.
pub fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Accuracy(args) => accuracy::run(args),
        BenchCommand::ScanCost(args) => scan_cost::run(args),
    }
}
