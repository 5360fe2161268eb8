//! What becomes of a server while a policy works: pages that the kernel has migrated, misses by node and the server's
//! pages by node. One program tells all of it, for on an emulated machine each that is started takes what is measured.

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

/// Looks at the kernel's count between two looks at all.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Prints a line for each look until a file is there: `at` in seconds since this began, `migrated` in pages, and once a
/// second the misses that node 0 and the others have answered and the server's bytes on both.
///
/// # Errors
/// The machine has no device that counts misses, or the server or the kernel's counts cannot be read.
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

/// Pages that the kernel has migrated since it began.
fn migrated() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").map_err(|e| unreadable("cannot read", e))?;
    let count = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success ")?.parse().ok());
    count.ok_or_else(|| Error::new(ErrorKind::Data, "/proc/vmstat tells of no migrated pages"))
}

fn unreadable(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{what} what is watched")).cause(error)
}
