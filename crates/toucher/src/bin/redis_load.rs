//! `redis-load`: fills a Redis or memcached server with marked values, loads it with a known hot
//! set or a Zipf distribution, and writes the addresses of the hot values in the server's memory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tierscope_core::{Error, ErrorKind, Range, Result, SpaceId};
use tierscope_toucher::client::{Client, Dialect, Read};
use tierscope_toucher::numa_nodes;
use tierscope_toucher::operations::{Draw, Operations, Shares};
use tierscope_toucher::proc_mem::ProcMem;
use tierscope_toucher::server_truth;
use tierscope_workloads::bins::SCRAMBLED_RANKS;
use tierscope_workloads::hotspot::{Hotspot, Layout};
use tierscope_workloads::keys::{Chooser, Law};

/// Load a Redis or memcached server with a known hot set.
///
/// Give the same keys, value size and hot set to all commands. Exit codes: 0 done, 1 failed, 2
/// wrong use.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Set every key to its marked value.
    Fill {
        #[command(flatten)]
        set: DataSet,
        #[command(flatten)]
        server: Server,
    },
    /// Read keys for a while, optionally with updates and a scan; print the results as JSON.
    Load {
        #[command(flatten)]
        set: DataSet,
        #[command(flatten)]
        server: Server,
        /// Length of the load in seconds.
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        #[command(flatten)]
        mix: LoadMix,
        /// Command that reads a value.
        #[arg(long, value_enum, default_value = "get")]
        command: ReadCommand,
        /// Report the results of each interval of this length, in seconds.
        #[arg(long)]
        every: Option<f64>,
        /// Where the keys that were hot during fill begin, if others are hot now.
        #[arg(long)]
        filled_hot_begin: Option<f64>,
    },
    /// Read every value once, and compare all its bytes with the value set by `fill`.
    Check {
        #[command(flatten)]
        set: DataSet,
        #[command(flatten)]
        server: Server,
    },
    /// Find the address of each key's value in the server's memory; no load may be running.
    Places {
        #[command(flatten)]
        set: DataSet,
        /// Protocol of the server.
        #[arg(long, value_enum, default_value = "redis")]
        dialect: DialectName,
        /// Process id of the server.
        #[arg(long)]
        pid: u32,
        /// JSON file to write the addresses to.
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Print every second on which nodes the values of the hot keys are.
    Watch {
        #[command(flatten)]
        set: DataSet,
        /// File that `places` wrote.
        #[arg(long)]
        places: PathBuf,
        /// Process id of the server.
        #[arg(long)]
        pid: u32,
        /// Length of the watch in seconds.
        #[arg(long, default_value_t = 30)]
        seconds: u32,
    },
    /// Find the hot and cold values in the server's memory; no load may be running.
    Truth {
        #[command(flatten)]
        set: DataSet,
        /// Process id of the server.
        #[arg(long)]
        pid: u32,
        /// JSON file to write the address ranges to.
        #[arg(short, long)]
        output: PathBuf,
    },
}

/// Mix of the operations of a load.
#[derive(Args)]
struct LoadMix {
    /// Share of the operations that go to hot keys, 0..1.
    #[arg(long, default_value_t = 1.0)]
    hot_operations: f64,
    /// Draw keys from YCSB's scrambled Zipf distribution with this skew, below 1 (YCSB's own is
    /// 0.99), instead of the hot set.
    #[arg(long, conflicts_with = "hot_operations")]
    zipf: Option<f64>,
    /// Share of the operations that update a value, to the same bytes: Redis in place, memcached in
    /// another item.
    #[arg(long, default_value_t = 0.0)]
    update_share: f64,
    /// Share of the operations that belong to an endless scan: reads of all keys in order,
    /// repeatedly.
    #[arg(long, default_value_t = 0.0)]
    scan_share: f64,
}

impl LoadMix {
    fn operations(&self, set: &DataSet, spot: Hotspot) -> Result<Operations> {
        let shares = Shares { updates: self.update_share, scans: self.scan_share };
        if !shares.fit() {
            return Err(Error::new(ErrorKind::Usage, "--update-share and --scan-share")
                .cause("each is a share within 0..1, and both are at most 1 together"));
        }
        let draw = match self.zipf {
            None => Draw::Hotspot(spot),
            Some(theta) => {
                let law = Law::Scrambled { theta, ranks: SCRAMBLED_RANKS };
                law.check().map_err(|why| Error::new(ErrorKind::Usage, "--zipf").cause(why))?;
                Draw::Law(Chooser::new(law, set.keys.into(), 0, None))
            }
        };
        Ok(Operations::new(set.keys, draw, shares, set.seed))
    }
}

/// Commands that read a whole value.
#[derive(Clone, Copy, ValueEnum)]
enum ReadCommand {
    /// GET: the value is sent
    Get,
    /// BITCOUNT: the server reads the value and does not send it
    Bitcount,
}

#[derive(Args)]
struct Server {
    /// Path of the server's socket, or host:port.
    #[arg(long)]
    server: String,
    /// Protocol of the server.
    #[arg(long, value_enum, default_value = "redis")]
    dialect: DialectName,
}

/// Protocols of servers.
#[derive(Clone, Copy, ValueEnum)]
enum DialectName {
    /// RESP
    Redis,
    /// memcached's text protocol; values up to its largest item, by default 1 MiB
    Memcached,
}

impl From<DialectName> for Dialect {
    fn from(name: DialectName) -> Self {
        match name {
            DialectName::Redis => Self::Redis,
            DialectName::Memcached => Self::Memcached,
        }
    }
}

impl Server {
    fn connect(&self) -> Result<Client> {
        Client::connect(&self.server, self.dialect.into())
    }
}

#[derive(Clone, Args)]
struct DataSet {
    /// Number of keys.
    #[arg(long)]
    keys: u32,
    /// Bytes of a value. The default nearly fills a 64 KiB block of Redis's allocator.
    #[arg(long, default_value_t = 65_000)]
    value_bytes: usize,
    /// Share of the keys that is hot, 0..1.
    #[arg(long, default_value_t = 0.1)]
    hot_keys: f64,
    /// Where the hot keys begin, as a fraction of the keys in order of filling, 0..1.
    #[arg(long, default_value_t = 0.5)]
    hot_begin: f64,
    /// Scatter the hot keys among the others.
    #[arg(long)]
    scatter: bool,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl DataSet {
    fn hotspot(&self, hot_operations: f64) -> Result<Hotspot> {
        let shares = [self.hot_keys, self.hot_begin, hot_operations];
        if self.keys == 0
            || self.value_bytes == 0
            || !shares.iter().all(|s| (0.0..=1.0).contains(s))
        {
            return Err(Error::new(ErrorKind::Usage, "keys, value size and shares")
                .cause("there are none, or a share is not within 0..1"));
        }
        let layout =
            if self.scatter { Layout::Scattered(self.seed) } else { Layout::Run(self.hot_begin) };
        Ok(Hotspot::new(self.keys.into(), self.hot_keys, hot_operations, layout))
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redis-load: {error}");
            ExitCode::from(if error.kind() == ErrorKind::Usage { 2 } else { 1 })
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Fill { set, server } => {
            let spot = set.hotspot(1.0)?;
            server.connect()?.fill(set.keys, set.value_bytes, &spot)
        }
        Verb::Load { set, server, seconds, mix, command, every, filled_hot_begin } => {
            let spot = set.hotspot(mix.hot_operations)?;
            let filled = filled_hot_begin.unwrap_or(set.hot_begin);
            let marks = DataSet { hot_begin: filled, ..set.clone() }.hotspot(1.0)?;
            let mut operations = mix.operations(&set, spot)?;
            let time = |flag: &str, seconds: f64| {
                Duration::try_from_secs_f64(seconds)
                    .map_err(|e| Error::new(ErrorKind::Usage, format!("{flag} {seconds}")).cause(e))
            };
            let duration = time("--seconds", seconds)?;
            let every = every.map(|every| time("--every", every)).transpose()?;
            let report = server.connect()?.load(
                &mut operations,
                (&spot, &marks),
                set.value_bytes,
                match command {
                    ReadCommand::Get => Read::Get,
                    ReadCommand::Bitcount => Read::BitCount,
                },
                (duration, every),
            )?;
            print_json(&report)
        }
        Verb::Truth { set, pid, output } => write_truth(&set, pid, &output),
        Verb::Check { set, server } => {
            let spot = set.hotspot(1.0)?;
            server.connect()?.check(set.keys, set.value_bytes, &spot)?;
            print_json(&serde_json::json!({ "checked": set.keys, "bytes": set.value_bytes }))
        }
        Verb::Places { set, dialect, pid, output } => {
            let mem = ProcMem::open(Path::new("/proc"), pid)?;
            write_json(
                &server_truth::value_addresses(&mem, dialect.into(), set.keys, set.value_bytes)?,
                &output,
            )
        }
        Verb::Watch { set, places, pid, seconds } => watch(&set, &places, pid, seconds),
    }
}

/// Prints one line per second: the nodes of the hot values.
fn watch(set: &DataSet, places: &Path, pid: u32, seconds: u32) -> Result<()> {
    let spot = set.hotspot(1.0)?;
    let unreadable = |e: String| {
        Error::new(ErrorKind::Data, format!("cannot use {}", places.display())).cause(e)
    };
    let text = std::fs::read_to_string(places).map_err(|e| unreadable(e.to_string()))?;
    let all: Vec<(u32, u64)> =
        serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
    let hot = all.iter().filter(|(key, _)| spot.is_hot((*key).into()));
    let ranges: Vec<Range> =
        hot.map(|(_, at)| Range::new(SpaceId(0), *at, at + set.value_bytes as u64)).collect();
    let began = Instant::now();
    for second in 0..=seconds {
        let due = Duration::from_secs(second.into());
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let nodes = numa_nodes::bytes_by_node(pid, &ranges)?;
        print_json(&serde_json::json!({ "at": began.elapsed().as_secs_f64(), "nodes": nodes }))?;
    }
    Ok(())
}

fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string(value).map_err(|e| Error::new(ErrorKind::Other, "JSON").cause(e))?;
    println!("{text}");
    Ok(())
}

fn write_truth(set: &DataSet, pid: u32, output: &Path) -> Result<()> {
    let mem = ProcMem::open(Path::new("/proc"), pid)?;
    let thp =
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let truth =
        server_truth::find_values(&mem, pid, set.keys, set.value_bytes, thp.trim().to_owned())?;
    write_json(&truth, output)
}

fn write_json(value: &impl serde::Serialize, output: &Path) -> Result<()> {
    let text =
        serde_json::to_string(value).map_err(|e| Error::new(ErrorKind::Other, "JSON").cause(e))?;
    std::fs::write(output, text).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot write {}", output.display())).cause(e)
    })
}
