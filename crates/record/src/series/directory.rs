//! Directory of a series: lists its recordings, and locks it against other recorders.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use tierscope_core::{Error, ErrorKind, Result};

use super::name;
use crate::access::Access;
use crate::dir::{MadeDirs, NO_LINK, not_created, sync_dir};
use crate::message::{self, Framed};
use crate::recording::Recording;
use crate::table::Table;

const LOCK: &str = "lock";
/// Contents of the file `lock`; older versions left it empty.
const MARK: &[u8] = b"series of recordings of tierscope\n";
/// Name prefix of a recording that is being removed, so that a partial one is not read.
const REMOVING: &str = ".removing-";
/// A file of commit rows that is longer has a whole one.
const WITHOUT_ROWS: u64 = 64 << 10;

/// A recording of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Directory of the recording.
    pub path: PathBuf,
    /// Start of the recording, by its name.
    pub began: SystemTime,
    /// Time of its last write, by the wall clock at that time.
    pub written: SystemTime,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// Whether `dir` was written by a [`super::SeriesRecorder`].
#[must_use]
pub fn is_series(dir: &Path) -> bool {
    let lock = dir.join(LOCK);
    if !fs::symlink_metadata(&lock).is_ok_and(|lock| lock.is_file()) {
        return false;
    }
    let mut mark = Vec::new();
    let open = OpenOptions::new().read(true).custom_flags(NO_LINK).open(&lock);
    match open.and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut mark)) {
        Ok(_) if mark == MARK => true,
        Ok(_) if !is_blank(&mark) => false,
        // Programs of many kinds have a file of that name.
        _ => holds_recordings_only(dir),
    }
}

/// Whether a mark is not there: of an older version, not written to a full disk, or lost in a power
/// cut.
fn is_blank(mark: &[u8]) -> bool {
    mark.iter().all(|byte| *byte == 0)
}

/// Whether `dir` has a recording by name, or nothing at all.
fn holds_recordings_only(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    let mut others =
        entries.flatten().map(|entry| entry.path()).filter(|path| !path.ends_with(LOCK));
    match others.next() {
        None => true,
        Some(first) => std::iter::once(first).chain(others).any(|path| began(&path).is_some()),
    }
}

/// Start of the recording at `path` by its name; `None` if it is not a recording of a series.
fn began(path: &Path) -> Option<SystemTime> {
    let began = name::began(path.file_name()?.to_str()?)?;
    fs::symlink_metadata(path).ok()?.is_dir().then_some(began)
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
        if let Some(began) = began(&path) {
            let rows = fs::metadata(path.join(Table::Windows.file_name()));
            let written = rows.and_then(|file| file.modified()).unwrap_or(began);
            members.push(Member { bytes: bytes_in(&path), path, began, written });
        }
    }
    members.sort_unstable_by_key(|member| member.began);
    Ok(members)
}

/// The newest recording of the series in `dir` that can be opened and has a window; if there is no
/// such, the newest; `None` if it has none.
///
/// # Errors
/// As for [`members`].
pub fn newest(dir: &Path) -> Result<Option<PathBuf>> {
    let mut paths: Vec<PathBuf> = members(dir)?.into_iter().map(|member| member.path).collect();
    let has_window =
        |path: &PathBuf| Recording::open(path).is_ok_and(|found| !found.commits().is_empty());
    let found = paths.iter().rposition(has_window).or(paths.len().checked_sub(1));
    Ok(found.map(|index| paths.swap_remove(index)))
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
    access: Access,
    lock: File,
    /// Whether this made the lock, so that a failed start removes it.
    new: bool,
    made: MadeDirs,
}

impl Directory {
    /// Locks `path`, which is created if necessary.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if another process records into it, or it is no series. Nothing is left
    /// behind.
    pub(super) fn take(path: &Path, access: Access) -> Result<Self> {
        let failed = |e: io::Error| not_created(path, access, &e);
        let made = MadeDirs::make(path, access).map_err(failed)?;
        if !is_series(path) && fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(refused(path, "it holds something other than a series of recordings")
                .remedy("choose a new directory"));
        }
        let (lock, new) = open_lock(&path.join(LOCK)).map_err(|e| {
            made.remove();
            failed(e)
        })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(refused(path, "another tierscope records into it")
                    .remedy("choose another directory, or stop that one first"));
            }
            Err(error) => return Err(failed(error.into())),
        }
        let directory = Self { path: path.into(), access, lock, new, made };
        match directory.mark() {
            Ok(()) => Ok(directory),
            Err(error) => {
                directory.undo();
                Err(failed(error))
            }
        }
    }

    /// Completes a new lock file, and gives a group access.
    fn mark(&self) -> io::Result<()> {
        let lock = &self.lock;
        if self.new || lock.metadata()?.len() == 0 {
            // On a full disk the file stays empty, as those of older versions.
            let _ = lock.write_all_at(MARK, 0);
        }
        if self.new || self.access.is_shared() {
            self.access.of_file(lock)?;
        }
        if self.access.is_shared() {
            self.access.of_dir(&File::open(&self.path)?)?;
        }
        sync_dir(&self.path)?;
        self.made.sync()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Removes what a failed start made.
    pub(super) fn undo(self) {
        if self.new {
            let _ = fs::remove_file(self.path.join(LOCK));
            self.made.remove();
        }
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

    /// Completes interrupted removals, and removes recordings that were left without a window.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // A removal that fails again is retried at the next start.
            if name.starts_with(REMOVING) {
                let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
            } else if began(&path).is_some() && is_void(&path) {
                let _ = remove(&path);
            }
        }
    }
}

impl Drop for Directory {
    /// A child between fork and exec has the descriptor too, which would keep the lock.
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Opens the lock file, created if necessary; whether it was. It is neither emptied nor followed to
/// another place.
fn open_lock(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(NO_LINK);
    match options.clone().create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok((options.open(path)?, false)),
        made => Ok((made?, true)),
    }
}

fn refused(path: &Path, cause: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot record into {}", path.display())).cause(cause)
}

/// Whether a recording certainly has no window: it was never begun whole, or was ended before its
/// first window. Newer formats and damaged recordings are not certain.
fn is_void(recording: &Path) -> bool {
    let rows = recording.join(Table::Windows.file_name());
    match fs::metadata(&rows) {
        Err(e) => e.kind() == io::ErrorKind::NotFound,
        Ok(file) if file.len() > WITHOUT_ROWS => false,
        Ok(_) => match (fs::read(&rows), Recording::open(recording)) {
            (Ok(bytes), _) if !has_row(&bytes) => true,
            (_, Ok(found)) => found.commits().is_empty(),
            _ => false,
        },
    }
}

/// Whether a commit row follows the schema message, or could: a power cut leaves zeros, but foreign
/// bytes are kept.
fn has_row(bytes: &[u8]) -> bool {
    let foreign = |at: usize| !is_blank(&bytes[at..]);
    let head = match message::frame(bytes, 0) {
        Ok(Framed::Whole(framing)) => framing.end(),
        Ok(_) => return false,
        Err(_) => return foreign(0),
    };
    match message::frame(bytes, head) {
        Ok(found) => matches!(found, Framed::Whole(_)),
        Err(_) => foreign(head),
    }
}

/// Removes a recording: renames it, then deletes its files.
pub(super) fn remove(member: &Path) -> io::Result<()> {
    let name = member.file_name().unwrap_or_default().to_string_lossy();
    let away = member.with_file_name(format!("{REMOVING}{name}"));
    fs::rename(member, &away)?;
    fs::remove_dir_all(away)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The copy stands for that of a child which has not called exec yet.
    #[test]
    fn a_copied_descriptor_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Directory::take(dir.path(), Access::default()).expect("it is free");
        let copy = first.lock.try_clone().expect("a descriptor is free");
        Directory::take(dir.path(), Access::default()).expect_err("the first records into it");
        drop(first);
        Directory::take(dir.path(), Access::default()).expect("the first has ended");
        drop(copy);
    }
}
