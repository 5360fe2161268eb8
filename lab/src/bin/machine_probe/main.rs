//! `machine-probe`: looks from the inside whether an instrumented virtual machine behaves as it was told to. Runs as
//! root in the guest and prints one line of JSON.

mod buffer;
mod calibrate;
mod checks;
mod outside;
mod speed;
mod tenants;
mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::TelemetryDevice;
use tierscope_wire::device::Command as Ring;
use tierscope_wire::stats::{Count, Switch};

/// Probe an instrumented virtual machine. Exit codes: 0 done, 1 a check failed, 2 wrong use.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Nanoseconds of a load that waits for the one before it.
    Chase(Load),
    /// MiB a second of loads one after the other.
    Stream(Load),
    /// Nanoseconds of a load that waits for the one before it, on node 0 and node 1 by turns.
    Compare {
        /// KiB on each.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Milliseconds of both together.
        #[arg(long, default_value_t = 2000)]
        millis: u64,
    },
    /// Makes node 1 slower than node 0 by a factor: measures both, and finds the delay that takes.
    Calibrate {
        /// Node 1 over node 0.
        #[arg(long)]
        factor: f64,
        /// KiB that the chase goes over.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Calibrations, each followed by a comparison; the median is told and stays.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Milliseconds of a comparison.
        #[arg(long, default_value_t = 2000)]
        millis: u64,
    },
    /// A hot set that starts on node 1 and may go where the kernel likes: how fast it is, second by second.
    Hot {
        /// KiB.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Seconds.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Sets the MiB a second of a node; 0 for no limit.
    Bandwidth {
        /// The node.
        node: u64,
        /// MiB a second.
        mib_s: u64,
    },
    /// Sets the nanoseconds that misses on a node take longer.
    Latency {
        /// The node.
        node: u64,
        /// Nanoseconds.
        nanos: u64,
    },
    /// Switches these parts on, and all others that can be switched off.
    Switch {
        /// raw, tlb, touched, flush.
        on: Vec<String>,
    },
    /// The physical address of a process's top table.
    Root {
        /// The process.
        pid: u32,
    },
    /// Where the referee sees pages that lie on two nodes, and where the kernel does.
    Placement {
        /// The directory that is shared with the lab.
        #[arg(long, default_value = "/out")]
        out: std::path::PathBuf,
        /// Pages.
        #[arg(long, default_value_t = 4096)]
        pages: usize,
    },
    /// A count of the plugin's.
    Count {
        /// Its name.
        name: String,
    },
    /// Migrated pages, misses by node and a server's bytes by node, line by line.
    Watch {
        /// The server.
        pid: u32,
        /// Looks until this file is there.
        #[arg(long)]
        until: std::path::PathBuf,
    },
    /// Counters by page against a pattern that no cache holds.
    Counters,
    /// Readings of counters under traffic from all CPUs.
    Doorbell {
        /// Milliseconds.
        #[arg(long, default_value_t = 1000)]
        millis: u64,
    },
    /// Interrupts that reach a waiting program.
    Interrupt {
        /// How many.
        #[arg(long, default_value_t = 200)]
        times: usize,
    },
    /// Sweeps over more pages than TLBs hold, whose misses this program reads itself.
    Rings {
        /// Pages.
        #[arg(long, default_value_t = 8192)]
        pages: usize,
        /// Sweeps.
        #[arg(long, default_value_t = 20)]
        sweeps: u64,
    },
    /// Traffic of two tenants, counted by the programmable memory controllers.
    Tenants,
    /// Accesses to random pages while misses and accesses are recorded; the pages go to a file.
    Misses {
        /// Where page and frame numbers go.
        #[arg(long)]
        pagemap: std::path::PathBuf,
        /// Pages.
        #[arg(long, default_value_t = 8192)]
        pages: u64,
        /// Accesses.
        #[arg(long, default_value_t = 300_000)]
        accesses: u64,
    },
}

#[derive(clap::Args)]
struct Load {
    /// Node that holds the memory.
    #[arg(long, default_value_t = 0)]
    node: u32,
    /// KiB.
    #[arg(long, default_value_t = 65536)]
    kib: u64,
    /// Milliseconds.
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// Programs at a time, each on a CPU of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// All words of a line, not one.
    #[arg(long)]
    words: bool,
}

fn device(block: usize) -> Result<TelemetryDevice> {
    TelemetryDevice::open(Path::new("/sys"), block)
}

fn ring(command: Ring, arguments: &[u64]) -> Result<u64> {
    device(0)?.client()?.ring(command, arguments)
}

fn run(command: Command) -> Result<(serde_json::Value, bool)> {
    let told = |value| Ok((value, true));
    match command {
        Command::Chase(load) => {
            let nanos =
                speed::chase(load.node, load.kib << 10, Duration::from_millis(load.millis))?;
            told(serde_json::json!({ "node": load.node, "kib": load.kib, "ns": nanos }))
        }
        Command::Stream(load) => {
            let time = Duration::from_millis(load.millis);
            let mib_s = speed::stream(load.node, load.kib << 10, time, load.threads, load.words)?;
            told(serde_json::json!({
                "node": load.node, "kib": load.kib, "threads": load.threads, "mib_s": mib_s
            }))
        }
        Command::Compare { kib, millis } => {
            let pair = speed::Rings::new(kib << 10)?.compare(Duration::from_millis(millis));
            told(serde_json::json!({ "kib": kib, "node_0_ns": pair.near, "node_1_ns": pair.far }))
        }
        Command::Calibrate { factor, kib, rounds, millis } => {
            let held = Duration::from_millis(millis);
            told(calibrate::calibrate(factor, kib << 10, rounds, held)?)
        }
        Command::Hot { kib, seconds } => {
            let (nanos, on_first) = speed::hot(kib << 10, seconds)?;
            told(serde_json::json!({ "kib": kib, "ns": nanos, "share_on_node_0": on_first }))
        }
        Command::Bandwidth { node, mib_s } => {
            told(serde_json::json!({ "was": ring(Ring::Bandwidth, &[node, mib_s])? }))
        }
        Command::Latency { node, nanos } => {
            told(serde_json::json!({ "was": ring(Ring::Latency, &[node, nanos])? }))
        }
        Command::Count { name } => {
            let known = Count::ALL.iter().find(|count| count.name() == name);
            let which = known.map_or(u64::MAX, |count| *count as u64);
            told(serde_json::json!({ "count": ring(Ring::Count, &[which])? }))
        }
        Command::Switch { on } => {
            let all: u64 = Switch::ALL.iter().map(|part| part.bit()).sum();
            let off = on.iter().try_fold(all, |off, name| {
                let part = Switch::named(name).ok_or_else(|| {
                    let names = Switch::ALL.map(Switch::name).join(", ");
                    Error::new(ErrorKind::Usage, format!("{name} cannot be switched"))
                        .remedy(format!("one of: {names}"))
                })?;
                Ok::<_, Error>(off & !part.bit())
            })?;
            told(serde_json::json!({ "was": ring(Ring::Switch, &[off])? }))
        }
        Command::Root { pid } => {
            told(serde_json::json!({ "root": tierscope_linux::telemetry::root_of(pid)? }))
        }
        Command::Placement { out, pages } => outside::placement(&out, pages),
        Command::Watch { pid, until } => told(watch::watch(pid, &until)?),
        Command::Counters => checks::counters(),
        Command::Doorbell { millis } => checks::doorbell(Duration::from_millis(millis)),
        Command::Rings { pages, sweeps } => checks::rings(pages, sweeps),
        Command::Tenants => tenants::tenants(),
        Command::Interrupt { times } => checks::interrupt(times),
        Command::Misses { pagemap, pages, accesses } => checks::misses(&pagemap, pages, accesses),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok((value, holds)) => {
            println!("{value}");
            ExitCode::from(u8::from(!holds))
        }
        Err(error) => {
            eprintln!("machine-probe: {error}");
            ExitCode::from(1)
        }
    }
}
