//! Readers of `/proc` and of cgroup directories. Each takes a root path, so that tests build a
//! root of their own; each error carries path, line and item.

mod maps;
mod stat;
mod tree;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

pub use maps::{MapsLine, Names, parse_line};
pub use stat::{Stat, parse_stat};
pub use tree::Cgroup;

/// A mounted procfs, or what a test takes for one.
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
    fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    /// The thread group that `tid` belongs to; `None` if there is no such thread or process.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn thread_group(&self, tid: u32) -> Result<Option<u32>> {
        let path = self.path(tid, "status");
        let Some(text) = read_whole(&path)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&text);
        let tgid = text.lines().find_map(|line| line.strip_prefix("Tgid:"));
        match tgid.and_then(|tgid| tgid.trim().parse().ok()) {
            Some(tgid) => Ok(Some(tgid)),
            None => Err(malformed(&path, 1, "Tgid", text.as_bytes())),
        }
    }

    /// Release of the running kernel, as `uname -r`.
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

/// `None` if the process is gone.
fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// `None` if the process is gone.
fn read_whole(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    match file.read_to_end(&mut bytes) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
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

/// A file of the kernel's that does not say what it should; `line` counts from 1.
fn malformed(path: &Path, line: usize, item: &str, text: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(text).chars().take(80).collect();
    Error::new(ErrorKind::Data, format!("cannot understand {}", path.display()))
        .cause(format!("line {line}: no {item} in {shown:?}"))
        .remedy("report it with the kernel version (`uname -r`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, Proc) {
        let dir = tempfile::tempdir().unwrap();
        let proc = Proc::at(dir.path());
        (dir, proc)
    }

    #[test]
    fn errors_carry_path_line_and_item() {
        let (dir, proc) = root();
        std::fs::create_dir(dir.path().join("7")).unwrap();
        std::fs::write(dir.path().join("7/status"), "Name:\tx\n").unwrap();
        let error = proc.thread_group(7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let text = error.to_string();
        assert!(text.contains("7/status") && text.contains("line 1: no Tgid"), "{text}");
    }

    #[test]
    fn nobody_is_not_an_error() {
        assert_eq!(root().1.thread_group(1), Ok(None));
    }

    #[test]
    fn reads_this_process() {
        let pid = std::process::id();
        assert_eq!(Proc::default().thread_group(pid), Ok(Some(pid)));
    }
}
