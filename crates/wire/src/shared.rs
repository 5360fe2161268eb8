//! Memory shared through a file: guest RAM, rings, counters, the registers of the telemetry device.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::ring::region;

/// A file, mapped whole and read-write; a device's BAR file counts as one.
#[derive(Debug)]
pub struct Shared {
    base: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is only accessed through atomics.
unsafe impl Send for Shared {}
// SAFETY: as for `Send` above: the mapping is only accessed through atomics.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps an existing file.
    ///
    /// # Errors
    /// It is missing, may not be opened, is shorter than `least` bytes, or cannot be mapped.
    pub fn open(path: &Path, least: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        if bytes < least {
            let what = format!("it has {bytes} bytes, {least} are needed");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let bytes = bytes as usize;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory of this
        // process.
        let base = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0)
        };
        match base == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self { base, bytes }),
        }
    }

    /// The mapping as words.
    ///
    /// # Errors
    /// The mapping is not aligned to a word.
    pub fn words(&self) -> tierscope_core::Result<&[AtomicU64]> {
        // SAFETY: mapped for as long as self lives, page-aligned; this process accesses it by
        // atomics only.
        unsafe { region(self.base.cast(), self.bytes) }
    }

    /// The mapping as words that stay valid until the process exits: it is never unmapped.
    ///
    /// # Errors
    /// As [`Shared::words`].
    pub fn leak(self) -> tierscope_core::Result<&'static [AtomicU64]> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: as in `words`; self is never dropped, so the mapping is never removed.
        unsafe { region(this.base.cast(), this.bytes) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no longer borrowed.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let one = Shared::open(file.path(), 4096).unwrap();
        let other = Shared::open(file.path(), 0).unwrap().leak().unwrap();
        one.words().unwrap()[7].store(9, Relaxed);
        assert_eq!((other[7].load(Relaxed), other.len()), (9, 512));
        let short = Shared::open(file.path(), 4097).unwrap_err();
        assert!(short.to_string().contains("4096 bytes, 4097 are needed"), "{short}");
        assert!(Shared::open(Path::new("/nowhere"), 1).is_err());
    }
}
