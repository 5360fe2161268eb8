//! A program under QEMU's user emulation with tierscope's plugin: the files that both share, and
//! the rings into which the plugin writes every access.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_wire::stats::{self, Count};
use tierscope_wire::{Consumer, RawAccess, Shared};

/// Largest number of concurrent threads: the plugin's limit.
pub const MOST_THREADS: u32 = 64;
/// Bytes of a thread's ring: a million records.
const RING: u64 = 16 << 20;
const PLUGIN: &str = "libtierscope_plugin.so";
/// Directory of the shared files: a tmpfs.
const SHARED: &str = "/dev/shm";

/// Parameters of a run under QEMU.
pub struct Emulation<'a> {
    /// QEMU's name or path.
    pub qemu: &'a Path,
    /// Path of the plugin.
    pub plugin: PathBuf,
    /// Largest number of concurrent threads.
    pub threads: u32,
    /// Record functions and call sites of allocations; the list names allocation wrappers in
    /// addition to malloc and its like, whose callers count as the call sites. `None`: record
    /// neither.
    pub names: Option<&'a [String]>,
}

fn failed(what: impl std::fmt::Display, cause: impl std::fmt::Display, remedy: &str) -> Error {
    Error::new(ErrorKind::Io, format!("cannot use {what}")).cause(cause).remedy(remedy)
}

/// Path of the plugin: as given by the user, otherwise next to this executable.
///
/// # Errors
/// [`ErrorKind::Missing`] if the file does not exist.
pub fn plugin(told: Option<&Path>) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(PLUGIN));
    let path = told.map(Path::to_owned).or_else(beside).unwrap_or_else(|| PLUGIN.into());
    if path.is_file() {
        return fs::canonicalize(&path).map_err(|e| failed(path.display(), e, "check its path"));
    }
    Err(Error::new(ErrorKind::Missing, "cannot record without QEMU's plugin")
        .cause(format!("there is no {}", path.display()))
        .remedy(
            "build it (cargo build -p tierscope-plugin), and name it with --plugin or TIERSCOPE_PLUGIN",
        ))
}

/// Resolves a program in PATH as a shell does; QEMU does not search PATH.
///
/// # Errors
/// [`ErrorKind::NoTarget`] if it is not found.
pub fn in_path(program: &OsString) -> Result<PathBuf> {
    let own = PathBuf::from(program);
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = match own.components().count() {
        0 | 1 => std::env::split_paths(&places).map(|place| place.join(&own)).find(|p| p.is_file()),
        _ => Some(own.clone()).filter(|path| path.is_file()),
    };
    found.ok_or_else(|| {
        Error::new(ErrorKind::NoTarget, format!("cannot run {}", own.display()))
            .cause("there is no such program")
            .remedy("check its name, or give its path")
    })
}

/// A running emulated program; dropping it removes the shared files.
pub struct Emulated {
    /// QEMU's process.
    pub child: Child,
    directory: tempfile::TempDir,
    stats: Shared,
    rings: Vec<Ring>,
}

/// Counts of the plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Accesses of the program.
    pub accesses: u64,
    /// Records lost to full rings.
    pub lost: u64,
}

/// A thread's ring. The plugin gives up a ring whose consumer is gone, so the reader is kept until
/// the end.
struct Ring {
    words: &'static [AtomicU64],
    /// `None` until the thread has started and set up the ring.
    reader: Option<Consumer<'static, RawAccess>>,
    lost: u64,
}

impl Emulation<'_> {
    /// Starts the program under QEMU.
    ///
    /// # Errors
    /// QEMU is not found, or the rings cannot be allocated.
    pub fn start(&self, program: &Path, arguments: &[OsString]) -> Result<Emulated> {
        let room = "free memory in /dev/shm, or record fewer threads";
        let directory = tempfile::Builder::new()
            .prefix("tierscope-tlb-")
            .tempdir_in(SHARED)
            .map_err(|e| failed(SHARED, e, room))?;
        let make = |name: &str, bytes: u64| -> Result<Shared> {
            let path = directory.path().join(name);
            let shared = File::create(&path)
                .and_then(|file| file.set_len(bytes))
                .and_then(|()| Shared::open(&path, bytes));
            shared.map_err(|e| failed(path.display(), e, room))
        };
        let stats = make("stats", stats::bytes_for(self.threads))?;
        let ring = |thread: u32| {
            let words = make(&format!("raw-{thread}"), RING)?.leak()?;
            Ok(Ring { words, reader: None, lost: 0 })
        };
        let rings = (0..self.threads).map(ring).collect::<Result<Vec<Ring>>>()?;
        let options = directory.path().join("options.toml");
        fs::write(&options, self.options(directory.path()))
            .map_err(|e| failed(options.display(), e, room))?;
        let argument = format!("{},options={}", self.plugin.display(), options.display());
        let mut command = Command::new(self.qemu);
        command.args(["-plugin", &argument]).arg(program).args(arguments);
        // SAFETY: between fork and exec the closure makes a single system call, which touches no
        // memory.
        unsafe {
            command.pre_exec(|| {
                // The program would wait forever for a reader that was killed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| {
            Error::new(ErrorKind::Missing, format!("cannot start {}", self.qemu.display()))
                .cause(e)
                .remedy("install QEMU's user emulation (qemu-user), or name it with --qemu")
        })?;
        Ok(Emulated { child, directory, stats, rings })
    }

    fn options(&self, run: &Path) -> String {
        let wrappers: Vec<String> =
            self.names.iter().flat_map(|all| all.iter()).map(|name| format!("{name:?}")).collect();
        format!(
            "run = \"{}\"\nparts = [\"raw\"]\nring_bytes = {RING}\ncpus = {}\nnames = {}\nwrappers = [{}]\n",
            run.display(),
            self.threads,
            self.names.is_some(),
            wrappers.join(", ")
        )
    }
}

impl Emulated {
    /// Appends the records of all threads since the last call. Returns whether some ring was full
    /// enough that more records are likely to have arrived meanwhile.
    ///
    /// # Errors
    /// A ring is damaged.
    pub(super) fn drain(&mut self, out: &mut Vec<RawAccess>) -> Result<bool> {
        let mut full = false;
        for ring in &mut self.rings {
            if ring.reader.is_none() {
                ring.reader = Consumer::attach(ring.words).ok();
            }
            let Some(reader) = &mut ring.reader else { continue };
            let before = out.len();
            ring.lost += reader.drain(out)?.lost.0;
            full |= (out.len() - before) as u64 > reader.capacity() / 8;
        }
        Ok(full)
    }

    /// Path of a file that the plugin writes.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The plugin's counts.
    pub(super) fn counted(&self) -> Result<Counted> {
        let words = self.stats.words()?;
        let lost: u64 = self.rings.iter().map(|ring| ring.lost).sum();
        let accesses = stats::sum(words, Count::Accesses);
        Ok(Counted { accesses, lost: lost.max(stats::sum(words, Count::Lost)) })
    }
}

impl Drop for Emulated {
    /// Kills a program that is still running: without a reader it would block on a full ring.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_reported_with_their_remedy() {
        let error = plugin(Some(Path::new("/nowhere/x.so"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.so") && error.contains("--plugin"), "{error}");
        assert!(in_path(&"no-such-program".into()).is_err());
        assert!(in_path(&"sh".into()).unwrap().is_absolute());
    }
}
