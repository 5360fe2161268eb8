//! `machine-probe`: checks from inside whether an instrumented virtual machine behaves as
//! configured. Runs as root in the guest and prints one line of JSON.

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
use tierscope_linux::memory_controller::TelemetryDevice;
use tierscope_wire::device::Command as Ring;
use tierscope_wire::stats::{Count, Switch};

/// Probe an instrumented virtual machine. Exit codes: 0 success, 1 a check failed, 2 wrong use.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the latency of dependent loads, in nanoseconds.
    Chase(Load),
    /// Measure the bandwidth of sequential loads, in MiB/s.
    Stream(Load),
    /// Measure the latency of dependent loads on nodes 0 and 1 alternately.
    Compare {
        /// KiB of memory on each node.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Milliseconds for both nodes together.
        #[arg(long, default_value_t = 2000)]
        millis: u64,
    },
    /// Find and set the delay that makes node 1 slower than node 0 by a factor.
    Calibrate {
        /// Latency of node 1 relative to node 0.
        #[arg(long)]
        factor: f64,
        /// KiB of memory on each node.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Number of calibrations, each followed by a comparison; the median is reported and stays
        /// set.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Milliseconds of each comparison.
        #[arg(long, default_value_t = 2000)]
        millis: u64,
    },
    /// Measure, second by second, the latency of a hot set that starts on node 1 and that the
    /// kernel may migrate.
    Hot {
        /// KiB of the hot set.
        #[arg(long, default_value_t = 65536)]
        kib: u64,
        /// Seconds to measure.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Set the bandwidth limit of a node.
    Bandwidth {
        /// Number of the node.
        node: u64,
        /// Limit in MiB/s; 0 for none.
        mib_s: u64,
    },
    /// Set the delay that is added to misses on a node.
    Latency {
        /// Number of the node.
        node: u64,
        /// Delay in nanoseconds.
        nanos: u64,
    },
    /// Switch the named parts on, and all other switchable parts off.
    Switch {
        /// Parts to switch on: raw, tlb, touched, flush.
        on: Vec<String>,
    },
    /// Print the physical address of a process's top-level page table.
    Root {
        /// Process id.
        pid: u32,
    },
    /// Compare the nodes of pages found by the referee with the nodes reported by the kernel.
    Placement {
        /// Directory shared with the lab.
        #[arg(long, default_value = "/out")]
        out: std::path::PathBuf,
        /// Number of pages.
        #[arg(long, default_value_t = 4096)]
        pages: usize,
    },
    /// Print a counter of the plugin.
    Count {
        /// Name of the counter.
        name: String,
    },
    /// Print migrated pages, misses by node and a server's bytes by node, line by line.
    Watch {
        /// Process id of the server.
        pid: u32,
        /// Stop when this file exists.
        #[arg(long)]
        until: std::path::PathBuf,
    },
    /// Check counters of each page against an access pattern that always misses the cache.
    Counters,
    /// Check reads of counters under load from all CPUs.
    Doorbell {
        /// Milliseconds of the load.
        #[arg(long, default_value_t = 1000)]
        millis: u64,
    },
    /// Check that interrupts wake a waiting program.
    Interrupt {
        /// Number of interrupts.
        #[arg(long, default_value_t = 200)]
        times: usize,
    },
    /// Check the records of TLB misses during sweeps over more pages than the TLBs hold.
    Rings {
        /// Number of pages.
        #[arg(long, default_value_t = 8192)]
        pages: usize,
        /// Number of sweeps.
        #[arg(long, default_value_t = 20)]
        sweeps: u64,
    },
    /// Check the traffic of two tenants as counted by the programmable memory controllers.
    Tenants,
    /// Access random pages while misses and accesses are recorded, and write the page map to a
    /// file.
    Misses {
        /// Output file for the page map.
        #[arg(long)]
        pagemap: std::path::PathBuf,
        /// Number of pages.
        #[arg(long, default_value_t = 8192)]
        pages: u64,
        /// Number of accesses.
        #[arg(long, default_value_t = 300_000)]
        accesses: u64,
    },
}

#[derive(clap::Args)]
struct Load {
    /// Node of the memory.
    #[arg(long, default_value_t = 0)]
    node: u32,
    /// KiB of memory.
    #[arg(long, default_value_t = 65536)]
    kib: u64,
    /// Milliseconds to measure.
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// Number of threads, each on a CPU of its own.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Read all words of each line instead of one.
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
    let passed = |value| Ok((value, true));
    match command {
        Command::Chase(load) => {
            let nanos =
                speed::chase(load.node, load.kib << 10, Duration::from_millis(load.millis))?;
            passed(serde_json::json!({ "node": load.node, "kib": load.kib, "ns": nanos }))
        }
        Command::Stream(load) => {
            let time = Duration::from_millis(load.millis);
            let mib_s = speed::stream(load.node, load.kib << 10, time, load.threads, load.words)?;
            passed(serde_json::json!({
                "node": load.node, "kib": load.kib, "threads": load.threads, "mib_s": mib_s
            }))
        }
        Command::Compare { kib, millis } => {
            let pair = speed::Rings::new(kib << 10)?.compare(Duration::from_millis(millis));
            passed(serde_json::json!({ "kib": kib, "node_0_ns": pair.near, "node_1_ns": pair.far }))
        }
        Command::Calibrate { factor, kib, rounds, millis } => {
            let held = Duration::from_millis(millis);
            passed(calibrate::calibrate(factor, kib << 10, rounds, held)?)
        }
        Command::Hot { kib, seconds } => {
            let (nanos, on_first) = speed::hot(kib << 10, seconds)?;
            passed(serde_json::json!({ "kib": kib, "ns": nanos, "share_on_node_0": on_first }))
        }
        Command::Bandwidth { node, mib_s } => {
            passed(serde_json::json!({ "was": ring(Ring::Bandwidth, &[node, mib_s])? }))
        }
        Command::Latency { node, nanos } => {
            passed(serde_json::json!({ "was": ring(Ring::Latency, &[node, nanos])? }))
        }
        Command::Count { name } => {
            let known = Count::ALL.iter().find(|count| count.name() == name);
            let which = known.map_or(u64::MAX, |count| *count as u64);
            passed(serde_json::json!({ "count": ring(Ring::Count, &[which])? }))
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
            passed(serde_json::json!({ "was": ring(Ring::Switch, &[off])? }))
        }
        Command::Root { pid } => {
            passed(serde_json::json!({ "root": tierscope_linux::memory_controller::root_of(pid)? }))
        }
        Command::Placement { out, pages } => outside::placement(&out, pages),
        Command::Watch { pid, until } => passed(watch::watch(pid, &until)?),
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
