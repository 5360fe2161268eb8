//! One instance of a cgroup: if its path is removed and created again, that is another one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use super::cpu_max::CpuMax;

/// Content of a `cpu.max` is shorter.
const MOST: u64 = 256;

/// An open cgroup.
pub(super) struct Group {
    directory: OwnedFd,
    /// Identifies the instance: the kernel does not use an inode of a cgroup again.
    pub(super) inode: u64,
}

impl Group {
    /// Opens the cgroup at `path`; `None` if there is none.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Some(directory) = present(openat(CWD, path, flags, Mode::empty()))? else {
            return Ok(None);
        };
        let inode = fstat(&directory)?.st_ino;
        Ok(Some(Self { directory, inode }))
    }

    fn file(&self, flags: OFlags) -> io::Result<Option<File>> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(present(openat(&self.directory, "cpu.max", flags, Mode::empty()))?.map(File::from))
    }

    /// The CPU limit; `None` if the cgroup is gone by now, or has no CPU controller.
    pub(super) fn read(&self) -> io::Result<Option<CpuMax>> {
        let Some(file) = self.file(OFlags::RDONLY)? else { return Ok(None) };
        let mut text = String::new();
        if present(file.take(MOST).read_to_string(&mut text))?.is_none() {
            return Ok(None);
        }
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, format!("it says {text:?}"));
        CpuMax::parse(&text).map(Some).ok_or_else(unknown)
    }

    /// Sets the CPU limit in one write; false if the cgroup is gone by now.
    pub(super) fn write(&self, limit: CpuMax) -> io::Result<bool> {
        let Some(mut file) = self.file(OFlags::WRONLY)? else { return Ok(false) };
        Ok(present(file.write_all(format!("{limit}\n").as_bytes()))?.is_some())
    }
}

/// `None` instead of the errors of a cgroup that is gone.
fn present<T, E: Into<io::Error>>(result: Result<T, E>) -> io::Result<Option<T>> {
    match result.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
        Err(error) => Err(error),
    }
}
