//! Notifies scripts that the memory is populated.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_workloads::truth_dir::AreaLine;

use crate::args::Args;

#[derive(Serialize)]
struct Ready<'a> {
    pid: u32,
    areas: &'a [AreaLine],
}

/// Writes the ready line to the requested file and descriptor. The file appears atomically.
pub(crate) fn announce(args: &Args, areas: &[AreaLine]) -> Result<()> {
    let ready = Ready { pid: std::process::id(), areas };
    let line = serde_json::to_string(&ready).map_err(|e| cannot("JSON").cause(e))? + "\n";
    if let Some(path) = &args.ready {
        write_whole(path, &line).map_err(|e| cannot(&path.display().to_string()).cause(e))?;
    }
    if let Some(fd) = args.ready_fd {
        write_fd(fd, &line).map_err(|e| cannot(&format!("descriptor {fd}")).cause(e))?;
    }
    Ok(())
}

fn write_whole(path: &Path, line: &str) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(".half");
    fs::write(&half, line)?;
    fs::rename(&half, path)
}

fn write_fd(fd: i32, line: &str) -> io::Result<()> {
    // SAFETY: only queries whether the number is an open descriptor.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and the user passed it to this process for writing and
    // closing.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(line.as_bytes())
}

fn cannot(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write the ready line to {what}"))
        .remedy("give --ready a file that can be written, --ready-fd an open descriptor")
}
