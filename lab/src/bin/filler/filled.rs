//! A mapping of `/dev/tierscope_filler` (lab/kmod/filler/tierscope_filler.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use tierscope_toucher::filler::Filler;

pub(crate) use tierscope_toucher::filler::{Fill, TABLE_BYTES};

/// A shared mapping of the device. It is never unmapped, which would take minutes per terabyte.
pub(crate) struct Filled {
    device: Filler,
    /// First address, a multiple of [`TABLE_BYTES`].
    pub(crate) start: u64,
    /// End address (exclusive).
    pub(crate) end: u64,
}

impl Filled {
    /// Maps `bytes`, a multiple of [`TABLE_BYTES`], without filling them.
    pub(crate) fn map(bytes: u64) -> io::Result<Self> {
        Self::map_at_multiple(2 << 20, bytes)
    }

    /// Maps `bytes` as [`Filled::map`] does, with no other mapping below the same level-4 entries
    /// (512 GiB).
    pub(crate) fn map_alone(bytes: u64) -> io::Result<Self> {
        Self::map_at_multiple(512 << 30, bytes)
    }

    /// Maps at a multiple of `apart`, with nothing else up to the next one. A kernel without huge
    /// pages aligns no mapping by itself.
    fn map_at_multiple(apart: u64, bytes: u64) -> io::Result<Self> {
        let reserved = (bytes.next_multiple_of(apart) + apart) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) } as u64;
        if at == libc::MAP_FAILED as u64 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: within the range that was just reserved, which no other code uses.
        unsafe {
            Self::map_at(at.next_multiple_of(apart), libc::MAP_SHARED | libc::MAP_FIXED, bytes)
        }
    }

    /// # Safety
    ///
    /// Same requirements as for `mmap` at that address with those flags.
    unsafe fn map_at(at: u64, flags: libc::c_int, bytes: u64) -> io::Result<Self> {
        let device = Filler::open().map_err(io::Error::other)?;
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, device.as_fd().as_raw_fd());
        // SAFETY: the caller fulfils the requirements.
        let start = unsafe { libc::mmap(at as *mut _, bytes as usize, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { device, start: start as u64, end: start as u64 + bytes })
    }

    /// Fills the part between cursor and end, up to the budget.
    pub(crate) fn fill(&self, fill: &mut Fill) -> io::Result<()> {
        self.device.fill(fill)
    }

    /// Empties the part between cursor and end, up to the budget.
    pub(crate) fn empty(&self, fill: &mut Fill) -> io::Result<()> {
        self.device.empty(fill)
    }

    /// A request for the whole mapping.
    pub(crate) fn all(&self) -> Fill {
        Fill::new(self.start, self.end)
    }
}
