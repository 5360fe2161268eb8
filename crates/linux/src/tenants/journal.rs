//! The journal of limits: written before the first change, so that limits can be restored after the
//! death of the program that changed them.
//!
//! A journal is a file named `PID-START` after its owner, with the start time in clock ticks after
//! boot. Each line has the inode of a cgroup, its limit before, the limit in force, the limit about
//! to be written, and its path, separated by tabs; the last line is `end`. A journal is replaced as
//! a whole by rename: after a kill -9 it holds the limit in force in one of two columns. It is
//! forced to the medium when limits "before" change; those in force matter no longer after a crash
//! of the machine.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use tierscope_core::{Error, ErrorKind, Result};

use super::cpu_max::CpuMax;
use super::group::Group;
use crate::maker::Maker;
use crate::proc::Proc;

/// Maximum size of a journal in bytes; more is not read.
const MOST: u64 = 1 << 20;
/// Last line of a whole journal.
const END: &[u8] = b"end";

/// A cgroup whose limit is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    /// The administrator's limit.
    pub(super) before: CpuMax,
    /// The limit in force.
    pub(super) set: CpuMax,
    /// The limit that is about to be written, or was written last.
    pub(super) next: CpuMax,
}

impl Entry {
    /// The cgroup, unless it is gone: another one may have its path by now.
    pub(super) fn group(&self) -> io::Result<Option<Group>> {
        Ok(Group::open(&self.path)?.filter(|group| group.inode == self.inode))
    }

    /// Restores the limit of this instance of the cgroup, unless another program has changed it.
    /// Returns whether there was anything to restore.
    pub(super) fn restore(&self) -> io::Result<bool> {
        let Some(group) = self.group()? else { return Ok(false) };
        let ours =
            |limit: CpuMax| limit != self.before && (limit == self.set || limit == self.next);
        if !group.read()?.is_some_and(ours) || !group.write(self.before)? {
            return Ok(false);
        }
        match group.read()? {
            Some(limit) if ours(limit) => {
                Err(io::Error::other(format!("it still says {limit} after it was written")))
            }
            _ => Ok(true),
        }
    }

    /// The command that restores the limit.
    fn command(&self) -> String {
        let file = self.path.join("cpu.max").display().to_string().replace('\'', r"'\''");
        format!("echo '{}' > '{file}'", self.before)
    }

    fn line(&self) -> Vec<u8> {
        let Self { path, inode, before, set, next } = self;
        let mut line = format!("{inode}\t{before}\t{set}\t{next}\t").into_bytes();
        line.extend(path.as_os_str().as_bytes());
        line.push(b'\n');
        line
    }

    /// Parses a line; only a directory below `root` is a cgroup.
    fn parse(line: &[u8], root: &Path) -> Option<Self> {
        let mut words = line.splitn(5, |byte| *byte == b'\t');
        let mut text = || std::str::from_utf8(words.next()?).ok();
        let inode = text()?.parse().ok()?;
        let mut limit = || CpuMax::parse(text()?);
        let (before, set, next) = (limit()?, limit()?, limit()?);
        let path = PathBuf::from(OsStr::from_bytes(words.next()?));
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let below = path.starts_with(root) && path != root && path.components().all(plain);
        below.then_some(Self { path, inode, before, set, next })
    }
}

/// An error that names each limit that was not restored, with the command that restores it.
pub(super) fn not_restored(failed: &[(&Entry, io::Error)]) -> Error {
    let names: Vec<_> = failed.iter().map(|(entry, _)| entry.path.display().to_string()).collect();
    let commands: Vec<_> = failed.iter().map(|(entry, _)| entry.command()).collect();
    let causes: Vec<_> = failed.iter().map(|(_, cause)| cause.to_string()).collect();
    let denied = failed.iter().any(|(_, why)| why.kind() == io::ErrorKind::PermissionDenied);
    let kind = if denied { ErrorKind::Permission } else { ErrorKind::Io };
    Error::new(kind, format!("cannot restore the CPU limit of {}", names.join(", ")))
        .cause(causes.join(", "))
        .remedy(format!("run as root: {}", commands.join("; ")))
}

/// The journals of all owners, locked: of two programs that start, one waits for the other.
pub(super) struct Journals {
    directory: PathBuf,
    lock: File,
}

/// A journal of another owner, or what remains of one.
pub(super) struct Found {
    path: PathBuf,
    pub(super) owner: Maker,
    pub(super) runs: bool,
    /// The entries; `None` if the journal is damaged.
    pub(super) entries: Option<Vec<Entry>>,
}

impl Journals {
    /// Opens the directory of journals, and creates it if need be.
    pub(super) fn lock(directory: &Path) -> Result<Self> {
        let failed = |cause: io::Error| unusable(directory, cause);
        if let Some(parent) = directory.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
        let lock = OpenOptions::new().read(true).custom_flags(flags).open(directory);
        let lock = lock.map_err(failed)?;
        let metadata = lock.metadata().map_err(failed)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(failed(io::Error::other("other users may write there")));
        }
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(Self { directory: directory.to_owned(), lock })
    }

    /// All journals. Files with other names, and unfinished ones, are left out; the latter are
    /// removed if their owner has ended.
    pub(super) fn found(&self, root: &Path, proc: &Proc) -> Result<Vec<Found>> {
        let failed = |cause: io::Error| unusable(&self.directory, cause);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let whole = name.strip_suffix(".new").unwrap_or(name);
            let Some(owner) = Maker::parse(whole) else { continue };
            let runs = owner.runs(proc)?;
            if whole == name {
                let entries = read(&path).ok().and_then(|text| parse(&text, root));
                found.push(Found { path, owner, runs, entries });
            } else if !runs {
                fs::remove_file(&path).map_err(failed)?;
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// A journal of `owner`, which writes it without a lock.
    pub(super) fn journal(&self, owner: Maker) -> Result<Journal> {
        let failed = |cause: io::Error| unusable(&self.directory, cause);
        let directory = self.lock.try_clone().map_err(failed)?;
        Ok(Journal { path: self.directory.join(owner.name()), directory })
    }
}

impl Drop for Journals {
    /// A clone of the descriptor, in a journal, would keep the lock.
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Found {
    /// Restores the limits that an ended owner left, and removes the journal. Returns the paths of
    /// the cgroups.
    ///
    /// # Errors
    /// If the journal is damaged, or a limit could not be restored: the journal stays.
    pub(super) fn restore(&self) -> Result<Vec<PathBuf>> {
        let entries = self.entries.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Data, format!("cannot read {}", self.path.display()))
                .cause("it is not a journal of limits, or a damaged one")
                .remedy("compare cpu.max of the tenants with their configuration, and remove it")
        })?;
        let (mut restored, mut failed) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry.restore() {
                Ok(true) => restored.push(entry.path.clone()),
                Ok(false) => {}
                Err(cause) => failed.push((entry, cause)),
            }
        }
        if !failed.is_empty() {
            return Err(not_restored(&failed));
        }
        fs::remove_file(&self.path).map_err(|cause| unusable(&self.path, cause))?;
        Ok(restored)
    }
}

/// The journal of this process.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    directory: File,
}

impl Journal {
    /// Replaces the journal; `durable` forces it to the medium.
    pub(super) fn write<'e>(
        &self,
        entries: impl Iterator<Item = &'e Entry>,
        durable: bool,
    ) -> Result<()> {
        let mut text: Vec<u8> = entries.flat_map(Entry::line).collect();
        text.extend(END);
        text.push(b'\n');
        self.replace(&text, durable).map_err(|cause| unusable(&self.path, cause))
    }

    fn replace(&self, text: &[u8], durable: bool) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&new)?;
        file.write_all(text)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&new, &self.path)?;
        if durable { self.directory.sync_all() } else { Ok(()) }
    }

    /// Removes the journal: there is nothing left to restore.
    pub(super) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(unusable(&self.path, cause))
            }
            _ => Ok(()),
        }
    }
}

fn unusable(path: &Path, cause: io::Error) -> Error {
    Error::new((&cause).into(), format!("cannot keep a journal of limits in {}", path.display()))
        .cause(cause)
        .remedy("run as root; limits are not changed without a journal")
}

/// Reads a journal that belongs to this user.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

/// Parses a journal; `None` if any line is invalid, or the end is missing.
fn parse(text: &[u8], root: &Path) -> Option<Vec<Entry>> {
    let text = text.strip_suffix(b"\n")?;
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    if lines.pop()? != END {
        return None;
    }
    lines.into_iter().map(|line| Entry::parse(line, root)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOT: &str = "/sys/fs/cgroup";

    fn entry(path: &str) -> Entry {
        let of = |text| CpuMax::parse(text).unwrap();
        let (before, set) = (of("max 100000"), of("25000 100000"));
        Entry { path: path.into(), inode: 7, before, set, next: of("5000 100000") }
    }

    fn text(entries: &[Entry]) -> Vec<u8> {
        let mut text: Vec<u8> = entries.iter().flat_map(Entry::line).collect();
        text.extend(b"end\n");
        text
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let entries = [entry("/sys/fs/cgroup/a"), entry("/sys/fs/cgroup/b\tc/d\\x2d.service")];
        assert_eq!(parse(&text(&entries), Path::new(ROOT)), Some(entries.to_vec()));
        assert_eq!(parse(b"end\n", Path::new(ROOT)), Some(Vec::new()));
    }

    // A journal that ends early would restore some limits and be removed with the others.
    #[test]
    fn a_journal_cut_anywhere_is_damaged() {
        let whole = text(&[entry("/sys/fs/cgroup/a"), entry("/sys/fs/cgroup/b")]);
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], Path::new(ROOT)), None, "{end}");
        }
    }

    #[test]
    fn only_cgroups_below_the_root_are_named() {
        for path in
            ["/etc", "/sys/fs/cgroup", "/sys/fs/cgroup/../../../etc", "a", "", "/sys/fs/cgroupx/a"]
        {
            assert_eq!(parse(&text(&[entry(path)]), Path::new(ROOT)), None, "{path}");
        }
        let line = b"7\t0 0\tmax 100000\tmax 100000\t/sys/fs/cgroup/a\nend\n";
        assert_eq!(parse(line, Path::new(ROOT)), None, "no limit of the kernel");
    }

    // systemd writes a dash in a name as \x2d.
    #[test]
    fn the_command_restores_the_limit_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(r"it's \x2d");
        fs::create_dir(&path).unwrap();
        let command = entry(path.to_str().unwrap()).command();
        let ran = std::process::Command::new("sh").args(["-c", &command]).status().unwrap();
        assert!(ran.success());
        assert_eq!(fs::read_to_string(path.join("cpu.max")).unwrap(), "max 100000\n");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Path::new(ROOT));
        }
    }
}
