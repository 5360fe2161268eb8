//! Memory that programs share through a file: the machine's RAM, rings, counts, the device's registers.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use crate::ring::region;

/// A file, mapped whole for reading and writing; a device's BAR counts as one.
#[derive(Debug)]
pub struct Shared {
    base: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread, and is only accessed through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps a file that is there.
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
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0)
        };
        match base == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self { base, bytes }),
        }
    }

    /// Its words.
    ///
    /// # Errors
    /// It is not a whole number of them.
    pub fn words(&self) -> tierscope_core::Result<&[AtomicU64]> {
        // SAFETY: mapped as long as self is, page-aligned; in this process only atomics access it.
        unsafe { region(self.base.cast(), self.bytes) }
    }

    /// Its words for good: it stays mapped as long as the process runs.
    ///
    /// # Errors
    /// As [`Shared::words`].
    pub fn leak(self) -> tierscope_core::Result<&'static [AtomicU64]> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: as `words`; what is never dropped is never unmapped.
        unsafe { region(this.base.cast(), this.bytes) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and borrowed by nobody any more.
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
