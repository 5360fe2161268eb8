//! Directory of a series: lists its recordings, and locks it against other recorders.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use tierscope_core::{Error, ErrorKind, Result};

use super::name;

const LOCK: &str = "lock";
/// Name prefix of a recording that is being removed, so that a partial one is not read.
const REMOVING: &str = ".removing-";

/// A recording of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Directory of the recording.
    pub path: PathBuf,
    /// Start of the recording, by its name.
    pub began: SystemTime,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// Whether `dir` was written by a [`super::SeriesRecorder`].
#[must_use]
pub fn is_series(dir: &Path) -> bool {
    dir.join(LOCK).is_file()
}

/// The recordings of the series in `dir`, oldest first.
///
/// # Errors
/// The directory cannot be read.
pub fn members(dir: &Path) -> Result<Vec<Member>> {
    let failed = |e: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot list recordings in {}", dir.display()))
            .cause(e)
            .remedy("check the directory and its permissions")
    };
    let mut members = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let file_name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(began) = name::began(file_name) {
            members.push(Member { bytes: bytes_in(&path), path, began });
        }
    }
    members.sort_unstable_by_key(|member| member.began);
    Ok(members)
}

/// The newest recording of the series in `dir`; `None` if it has none.
///
/// # Errors
/// As for [`members`].
pub fn newest(dir: &Path) -> Result<Option<PathBuf>> {
    Ok(members(dir)?.pop().map(|member| member.path))
}

/// Size of a recording's files; 0 if it is concurrently being removed.
fn bytes_in(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

/// The locked directory of a series. One recorder at a time: the kernel releases the lock when the
/// process ends.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Locks `path`, which is created if necessary.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if another process records into it, or it is no series.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let what = || format!("cannot record into {}", path.display());
        let failed = |e: io::Error| {
            Error::new(ErrorKind::Io, what())
                .cause(e)
                .remedy("choose a directory that you may write to, with -o DIR")
        };
        fs::create_dir_all(path).map_err(failed)?;
        let foreign = !is_series(path) && fs::read_dir(path).map_err(failed)?.next().is_some();
        if foreign {
            return Err(Error::new(ErrorKind::Usage, what())
                .cause("it holds something other than a series of recordings")
                .remedy("choose a new directory"));
        }
        let lock = File::create(path.join(LOCK)).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.into(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::new(ErrorKind::Usage, what())
                .cause("another tierscope records into it")
                .remedy("choose another directory, or stop that one first")),
            Err(error) => Err(failed(error.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory for a recording that begins now. Its name sorts after the existing ones even if
    /// the clock went back.
    ///
    /// # Errors
    /// As for [`members`].
    pub(super) fn next(&self, now: SystemTime) -> Result<PathBuf> {
        let last = members(&self.path)?.pop().map(|last| last.began + Duration::from_millis(1));
        Ok(self.path.join(name::name(last.map_or(now, |last| last.max(now)))))
    }

    /// Completes interrupted removals.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(REMOVING) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Removes a recording: renames it, then deletes its files.
pub(super) fn remove(member: &Path) -> io::Result<()> {
    let name = member.file_name().unwrap_or_default().to_string_lossy();
    let away = member.with_file_name(format!("{REMOVING}{name}"));
    fs::rename(member, &away)?;
    fs::remove_dir_all(away)
}
