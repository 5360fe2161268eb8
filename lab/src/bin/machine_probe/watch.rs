//! Samples a server while a placement policy runs: pages migrated by the kernel, misses by node,
//! and the server's bytes by node. A single program samples all of it, because starting programs on
//! an emulated machine would disturb the measurement.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tierscope_core::{Error, ErrorKind, Node, Result};
use tierscope_linux::proc::Proc;
use tierscope_wire::device::Command;
use tierscope_wire::stats::Count;

use crate::device;

/// Number of samples of migrated pages per sample of the other figures.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Prints a line for each sample until a file exists: `at` in seconds since the start, `migrated`
/// in pages, and once a second the misses served by node 0 and by other nodes and the server's
/// bytes on both.
///
/// # Errors
/// The machine has no device that counts misses, or the server's or the kernel's counts cannot be
/// read.
pub(crate) fn watch(pid: u32, until: &Path) -> Result<Value> {
    let device = device(0)?;
    let began = Instant::now();
    let mut look = 0;
    while !until.exists() {
        let mut line = json!({ "at": began.elapsed().as_secs_f64(), "migrated": migrated()? });
        if look % LOOKS == 0 {
            let count = |count: Count| device.client()?.ring(Command::Count, &[count as u64]);
            line["near_misses"] = count(Count::Node0)?.into();
            line["far_misses"] = count(Count::OtherNodes)?.into();
            let nodes = Proc::default().by_node(pid)?.unwrap_or_default();
            let near = nodes.get(&Node(0)).copied().unwrap_or(0);
            line["near"] = near.into();
            line["far"] = (nodes.values().sum::<u64>() - near).into();
        }
        writeln!(stdout(), "{line}").map_err(|e| unreadable("cannot print", e))?;
        look += 1;
        sleep((PAUSE * look).saturating_sub(began.elapsed()));
    }
    Ok(json!({ "looks": look }))
}

/// Pages that the kernel has migrated since boot.
fn migrated() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").map_err(|e| unreadable("cannot read", e))?;
    let count = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success ")?.parse().ok());
    count.ok_or_else(|| Error::new(ErrorKind::Data, "/proc/vmstat has no count of migrated pages"))
}

fn unreadable(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{what} what is watched")).cause(error)
}
