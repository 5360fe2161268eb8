//! userfaultfd: what programs in the guest use of it (include/uapi/linux/userfaultfd.h).

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const API: u64 = 0xaa;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_MOVE: u64 = 0xc028_aa05;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const UFFDIO_RWPROTECT: u64 = 0xc018_aa09;
/// UFFD_FEATURE_RWP and UFFD_FEATURE_RWP_ASYNC: the kernel resolves the faults itself.
const ACCESSES: u64 = 3 << 17;

/// What a range is registered for.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Pages that are missing.
    Missing = 1,
    /// Protection from writes.
    Writes = 2,
    /// Protection from every access (Linux 7.3).
    Accesses = 8,
}

/// A userfaultfd of this process.
pub struct Userfaults(OwnedFd);

impl Userfaults {
    /// Opens one without further features.
    ///
    /// # Errors
    /// The kernel has no userfaultfd.
    pub fn open() -> io::Result<Self> {
        Self::with(0)
    }

    /// Opens one that notes accesses to protected pages and lets them pass.
    ///
    /// # Errors
    /// The kernel is older than Linux 7.3, or has no such feature.
    pub fn of_accesses() -> io::Result<Self> {
        Self::with(ACCESSES)
    }

    fn with(features: u64) -> io::Result<Self> {
        // SAFETY: a descriptor that nothing else owns.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let all = Self(fd);
        all.ioctl(UFFDIO_API, &mut [API, features, 0])?;
        Ok(all)
    }

    /// `argument`: the structure of the call, which consists of 64-bit fields.
    fn ioctl<const N: usize>(&self, call: u64, argument: &mut [u64; N]) -> io::Result<()> {
        debug_assert_eq!(call >> 16 & 0x3fff, 8 * N as u64, "its size is in the call's number");
        // SAFETY: the kernel reads and writes as many bytes as the call's number states.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), call, argument.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Registers a range of addresses.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn register(&self, range: &Range<u64>, mode: Mode) -> io::Result<()> {
        let bytes = range.end - range.start;
        self.ioctl(UFFDIO_REGISTER, &mut [range.start, bytes, mode as u64, 0])
    }

    /// Protects a registered range from writes, or lifts that.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn protect_from_writes(&self, range: &Range<u64>, on: bool) -> io::Result<()> {
        let bytes = range.end - range.start;
        self.ioctl(UFFDIO_WRITEPROTECT, &mut [range.start, bytes, on.into()])
    }

    /// Protects the present pages of a registered range from every access.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn protect_from_accesses(&self, range: &Range<u64>) -> io::Result<()> {
        self.ioctl(UFFDIO_RWPROTECT, &mut [range.start, range.end - range.start, 1])
    }

    /// Moves pages to a registered range that has none.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn shift(&self, target: u64, source: &Range<u64>) -> io::Result<()> {
        let bytes = source.end - source.start;
        self.ioctl(UFFDIO_MOVE, &mut [target, source.start, bytes, 0, 0])
    }
}
