//! `tierscope tlb capture`: runs the simulated machine with a monitor on its memory bus (PTAT).

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tierscope_core::Result;
use tierscope_exchange::PartialDir;
use tierscope_hw::PageSize;
use tierscope_sim::experiment::Experiment;
use tierscope_tlb::capture::guests;
use tierscope_tlb::capture::simulated::{Captured, Simulation};
use tierscope_tlb::ptat::Boards;

use super::source::page_size;
use crate::print::{note, print};
use crate::sim::{OverrideArgs, experiment};
use crate::stop::stop_flag;
use crate::ticker::Ticker;
use crate::units::exact_time;

/// Flags of `tierscope tlb capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// A ready-made experiment of `tierscope sim run`, or a TOML file. All its processes have their
    /// page tables in the uncached region, of the size of its table-region, or 256 MiB
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,

    /// Directory to write to; must be new
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Boards of the monitor; cache lines are interleaved over them
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub boards: u8,

    /// Granularity of the monitor, in bytes
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = ["64", "32"])]
    pub grain: String,

    /// Requests that a board buffers, and nanoseconds to fetch one, as 1024,5; by default boards
    /// lose nothing
    #[arg(long, value_name = "N,NS", value_parser = buffer)]
    pub buffer: Option<(u64, u64)>,

    /// Areas of the processes whose every access the monitor is to see, by name: they are put into
    /// the uncached region as well, in pages of 4 KiB
    #[arg(long, value_name = "AREAS", value_delimiter = ',')]
    pub watch: Vec<String>,

    /// Run the processes in a guest, which a hypervisor backs with pages of this size: both
    /// dimensions of its walks are captured. The programs then go through TLBs only; caches and
    /// time are not simulated
    #[arg(long, value_name = "SIZE", value_parser = page_size, conflicts_with_all = ["watch", "buffer"])]
    pub guest: Option<PageSize>,

    /// Number of accesses of each process in a guest
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "guest")]
    pub accesses: u64,

    /// Overrides of the experiment's settings.
    #[command(flatten)]
    pub overrides: OverrideArgs,

    /// Print a summary of the capture as JSON
    #[arg(long)]
    pub json: bool,
}

fn buffer(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(',').and_then(|(room, each)| {
        Some((room.trim().parse().ok()?, each.trim().parse().ok().filter(|ns| *ns > 0)?))
    });
    parts.ok_or_else(|| "give requests and nanoseconds, as 1024,5".into())
}

pub(super) fn run(args: &CaptureArgs) -> Result<()> {
    let experiment = experiment(&args.experiment, &args.overrides, &[])?;
    if let Some(size) = args.guest {
        return of_guest(args, &experiment, size);
    }
    let simulation = Simulation::new(&experiment, &args.watch)?;
    let stop = stop_flag()?;
    let directory = PartialDir::create(&args.output)?;
    let mut ticker = Ticker::new("simulating", |done, all| {
        let show = |nanos| exact_time(Duration::from_nanos(nanos));
        format!("{} of {}", show(done), show(all))
    });
    let progress = |done, all| ticker.tick(done, all);
    let captured = simulation.run(boards(args), directory.path(), &stop, progress)?;
    drop(ticker);
    directory.keep()?;
    summarize(args, &captured, stop.load(Ordering::Relaxed))
}

fn boards(args: &CaptureArgs) -> Boards {
    let grain = if args.grain == "32" { 5 } else { 6 };
    Boards { count: args.boards, grain, buffer: args.buffer, ..Boards::default() }
}

/// Runs a capture with `--guest`: walks of programs in a guest.
fn of_guest(args: &CaptureArgs, experiment: &Experiment, size: PageSize) -> Result<()> {
    let stop = stop_flag()?;
    let directory = PartialDir::create(&args.output)?;
    let (boards, accesses) = (boards(args), args.accesses);
    let captured = guests::capture(experiment, size, accesses, boards, directory.path(), &stop)?;
    directory.keep()?;
    let name = args.output.display();
    let stopped = if stop.load(Ordering::Relaxed) { ", as far as it came" } else { "" };
    note!("captured {} accesses in a guest into {name}{stopped}", captured.accesses);
    if !args.json {
        return Ok(());
    }
    let said = json!({
        "capture": name.to_string(), "accesses": captured.accesses, "boards": args.boards,
        "walks_of_the_guest": captured.walks, "walks_of_the_hypervisor": captured.second.walks,
    });
    print(&format!("{said:#}\n"))
}

fn summarize(args: &CaptureArgs, captured: &Captured, stopped: bool) -> Result<()> {
    let name = args.output.display();
    let stopped = if stopped { ", as far as it came" } else { "" };
    note!("captured {} of simulated time into {name}{stopped}", exact_time(captured.time));
    if args.json {
        let said = json!({
            "capture": name.to_string(),
            "simulated_ns": captured.time.as_nanos() as u64,
            "walks_of_the_machine": captured.walks,
            "accesses_of_the_machine": captured.accesses,
            "boards": args.boards,
        });
        return print(&format!("{said:#}\n"));
    }
    Ok(())
}
