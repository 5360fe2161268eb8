//! The directory of a series: the user's, or a temporary one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::proc::Proc;

/// Beginning of the names of temporary directories: `PREFIX-PID-START-RANDOM`, where pid and start
/// time are of the process that made it.
const PREFIX: &str = "tierscope-serve";

/// Directory of a series; a temporary one is removed on drop.
pub(super) enum Room {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Room {
    /// The directory that was asked for, or a temporary one, after those were removed whose process
    /// was killed.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be created.
    pub(super) fn of(asked: Option<PathBuf>) -> Result<Self> {
        match asked {
            Some(path) => Ok(Self::Given(path)),
            None => Self::temporary(&std::env::temp_dir(), &Proc::default()),
        }
    }

    fn temporary(parent: &Path, proc: &Proc) -> Result<Self> {
        let me = std::process::id();
        let started = started(proc, me).unwrap_or_default();
        let made = tempfile::Builder::new()
            // For its owner only: a target's mappings are private.
            .permissions(fs::Permissions::from_mode(0o700))
            .prefix(&format!("{PREFIX}-{me}-{started}-"))
            .tempdir_in(parent)
            .map_err(|e| {
                let what = format!("cannot create a directory in {}", parent.display());
                let remedy = "give a directory with -o DIR";
                Error::new(ErrorKind::Io, what).cause(e).remedy(remedy)
            })?;
        sweep(parent, proc, &made);
        Ok(Self::Temporary(made))
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(made) => made.path(),
        }
    }
}

fn started(proc: &Proc, pid: u32) -> Option<u64> {
    proc.stat(pid).ok().flatten().map(|stat| stat.started)
}

/// Removes temporary directories of this user whose process is gone. What cannot be removed stays.
fn sweep(parent: &Path, proc: &Proc, mine: &TempDir) {
    let owner = |path: &Path| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir);
    let Some(me) = owner(mine.path()).map(|dir| dir.uid()) else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(maker) else { continue };
        let gone = started(proc, pid) != Some(start);
        if gone && owner(&entry.path()).is_some_and(|dir| dir.uid() == me) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Pid and start time of the process that made a temporary directory, by its name.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.splitn(3, '-');
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| (pid, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_processes_that_are_gone_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let proc = Proc::default();
        let me = std::process::id();
        let at = started(&proc, me).unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir_all(path.join("20260101T000000.000Z")).unwrap();
            path
        };
        let gone = make(&format!("{PREFIX}-4194305-7-aaaaaa"));
        let reused = make(&format!("{PREFIX}-{me}-{}-aaaaaa", at + 1));
        let stays: Vec<_> = [
            format!("{PREFIX}-{me}-{at}-aaaaaa"),
            format!("{PREFIX}-x-7-aaaaaa"),
            format!("{PREFIX}-4194305"),
            "other-4194305-7-aaaaaa".into(),
        ]
        .iter()
        .map(|name| make(name))
        .collect();
        let link = parent.path().join(format!("{PREFIX}-4194305-8-aaaaaa"));
        std::os::unix::fs::symlink(&stays[3], &link).unwrap();
        let room = Room::temporary(parent.path(), &proc).unwrap();
        assert!(!gone.exists() && !reused.exists());
        assert!(stays.iter().all(|path| path.join("20260101T000000.000Z").exists()));
        assert!(link.symlink_metadata().is_ok(), "a link is not followed");
        let mine = room.path().to_owned();
        assert_eq!(fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(maker(mine.file_name().unwrap().to_str().unwrap()), Some((me, at)));
        drop(room);
        assert!(!mine.exists());
    }
}
