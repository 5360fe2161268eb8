//! Parsers of `/proc` files and cgroup directories. Each takes a root path, so that tests can
//! create their own root; each error contains path, line and item.

#[cfg(test)]
pub(crate) mod fake_root;
mod maps;
mod numa_maps;
mod processes;
mod smaps;
mod stat;
mod status;
mod tree;

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

pub use maps::{MapsLine, Names, ProcessMaps, parse_line};
pub use numa_maps::{ByNode, parse_numa_line};
pub use stat::{Stat, parse_stat};
pub use status::Resident;
pub use tree::Cgroup;

/// A mounted procfs, or a directory that a test uses as one.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Proc {
    /// The procfs mounted at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `/proc/PID/FILE`.
    pub(crate) fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    /// Release of the running kernel, as printed by `uname -r`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn kernel_release(&self) -> Result<String> {
        let text = read_whole(&self.root.join("sys/kernel/osrelease"))?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&text).trim().into())
    }
}

/// Whether the process vanished while its files were read.
fn vanished(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Opens a file of a process; `None` if the process is gone.
fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Initial buffer size, sufficient for most files of a process.
const ROOM: usize = 4096;

/// Reads a file of a process; `None` if the process is gone.
pub(crate) fn read_whole(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::with_capacity(ROOM);
    // Files of procfs have no size worth querying.
    match file.take(u64::MAX).read_to_end(&mut bytes) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Passes each line, without its end, to `take`, which returns the item that is malformed. `None`
/// if the process is gone.
fn each_line(
    mut text: impl BufRead,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), &'static str>,
) -> Result<Option<()>> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        match text.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if vanished(&error) => return Ok(None),
            Err(error) => return Err(unreadable(path, &error)),
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        take(line).map_err(|item| malformed(path, number, item, line))?;
    }
    Ok(Some(()))
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot read {}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::new(ErrorKind::Permission, what)
            .cause(error)
            .remedy("run as root, or with CAP_SYS_PTRACE"),
        _ => Error::new(ErrorKind::Io, what).cause(error).remedy("check that /proc is mounted"),
    }
}

/// The error for a malformed kernel file; `line` counts from 1.
fn malformed(path: &Path, line: usize, item: &str, text: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(text).chars().take(80).collect();
    Error::new(ErrorKind::Data, format!("cannot understand {}", path.display()))
        .cause(format!("line {line}: no {item} in {shown:?}"))
        .remedy("report it with the kernel version (`uname -r`)")
}
