//! `redis-load`: fills a Redis or memcached server with marked values, reads them with a known hot set, and
//! writes where in the server's memory the hot values lie.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_workloads::hotspot::{Hotspot, Layout};
use tierscope_workloads::proc_mem::ProcMem;
use tierscope_workloads::redis::{Client, Dialect, Read};
use tierscope_workloads::truth;

/// Load a Redis or memcached server with a known hot set.
///
/// Give the same keys, value size and hot set to all three commands. Exit codes: 0 done, 1 failed, 2 wrong use.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Set every key.
    Fill {
        #[command(flatten)]
        set: DataSet,
        #[command(flatten)]
        server: Server,
    },
    /// Read keys for a while; prints what was done as JSON.
    Load {
        #[command(flatten)]
        set: DataSet,
        #[command(flatten)]
        server: Server,
        /// How long, in seconds.
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        /// Share of the operations that go to hot keys, 0..1.
        #[arg(long, default_value_t = 1.0)]
        hot_operations: f64,
        /// How to read a value.
        #[arg(long, value_enum, default_value = "get")]
        command: ReadCommand,
    },
    /// Find the values in the server's memory; the load must have ended.
    Truth {
        #[command(flatten)]
        set: DataSet,
        /// Process id of the server.
        #[arg(long)]
        pid: u32,
        /// File to write.
        #[arg(short, long)]
        output: PathBuf,
    },
}

/// Commands that read a whole value.
#[derive(Clone, Copy, ValueEnum)]
enum ReadCommand {
    /// GET: the value is sent
    Get,
    /// BITCOUNT: the value is read by the server and not sent
    Bitcount,
}

#[derive(Args)]
struct Server {
    /// Path of the server's socket, or host:port.
    #[arg(long)]
    server: String,
    /// What it speaks.
    #[arg(long, value_enum, default_value = "redis")]
    dialect: DialectName,
}

/// Servers.
#[derive(Clone, Copy, ValueEnum)]
enum DialectName {
    /// RESP
    Redis,
    /// memcached's text protocol; values up to its largest item, 1 MiB unless told otherwise
    Memcached,
}

impl Server {
    fn connect(&self) -> Result<Client> {
        let dialect = match self.dialect {
            DialectName::Redis => Dialect::Redis,
            DialectName::Memcached => Dialect::Memcached,
        };
        Client::connect(&self.server, dialect)
    }
}

#[derive(Args)]
struct DataSet {
    /// Number of keys.
    #[arg(long)]
    keys: u32,
    /// Bytes of a value. The default fills a 64 KiB block of Redis's allocator nearly whole.
    #[arg(long, default_value_t = 65_000)]
    value_bytes: usize,
    /// Share of the keys that is hot, 0..1.
    #[arg(long, default_value_t = 0.1)]
    hot_keys: f64,
    /// Where the hot keys begin among the keys in order of filling, 0..1.
    #[arg(long, default_value_t = 0.5)]
    hot_begin: f64,
    /// Scatter the hot keys among the others.
    #[arg(long)]
    scatter: bool,
    /// Seed of all that is drawn.
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
        Verb::Load { set, server, seconds, hot_operations, command } => {
            let spot = set.hotspot(hot_operations)?;
            let duration = Duration::try_from_secs_f64(seconds).map_err(|e| {
                Error::new(ErrorKind::Usage, format!("--seconds {seconds}")).cause(e)
            })?;
            let report = server.connect()?.load(
                &spot,
                set.value_bytes,
                match command {
                    ReadCommand::Get => Read::Get,
                    ReadCommand::Bitcount => Read::BitCount,
                },
                set.seed,
                duration,
            )?;
            print_json(&report)
        }
        Verb::Truth { set, pid, output } => write_truth(&set, pid, &output),
    }
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
    let truth = truth::find(&mem, pid, set.keys, set.value_bytes, thp.trim().to_owned())?;
    let text =
        serde_json::to_string(&truth).map_err(|e| Error::new(ErrorKind::Other, "JSON").cause(e))?;
    std::fs::write(output, text).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot write {}", output.display())).cause(e)
    })
}
