//! A mapping of `/dev/tierscope_filler` (lab/kmod/filler/tierscope_filler.h).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Where it is, and what it takes.
pub(crate) const DEVICE: &str = "/dev/tierscope_filler";
/// Bytes behind one table of the lowest level: what ranges are multiples of.
pub(crate) const TABLE_BYTES: u64 = 2 << 20;

/// `struct tierscope_fill`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Fill {
    pub(crate) size: u32,
    pub(crate) reserved: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) cursor: u64,
    pub(crate) budget: u64,
    pub(crate) needed: u64,
    pub(crate) available: u64,
}

impl Fill {
    /// All of `start..end`, nothing of it done.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        Self { size: size_of::<Fill>() as u32, start, end, cursor: start, ..Default::default() }
    }
}

/// `_IOWR(0xE8, number, struct tierscope_fill)` of asm-generic/ioctl.h.
const fn request(number: u32) -> u32 {
    (3 << 30) | ((size_of::<Fill>() as u32) << 16) | (0xE8 << 8) | number
}

const IOC_FILL: u32 = request(1);
const IOC_EMPTY: u32 = request(2);

/// A shared mapping of the device. It is not unmapped: that would take minutes a terabyte.
pub(crate) struct Filled {
    device: File,
    /// First address, a multiple of [`TABLE_BYTES`].
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
}

impl Filled {
    /// Maps `bytes`, a multiple of [`TABLE_BYTES`], without filling them.
    pub(crate) fn map(bytes: u64) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        unsafe { Self::map_at(0, libc::MAP_SHARED, bytes) }
    }

    /// As [`Filled::map`], with no other mapping below the same entries of level 4 (512 GiB).
    pub(crate) fn map_alone(bytes: u64) -> io::Result<Self> {
        const APART: u64 = 512 << 30;
        let reserved = (bytes.next_multiple_of(APART) + APART) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0) } as u64;
        if at == libc::MAP_FAILED as u64 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it lies in what was just reserved, and nobody knows of that.
        unsafe {
            Self::map_at(at.next_multiple_of(APART), libc::MAP_SHARED | libc::MAP_FIXED, bytes)
        }
    }

    /// # Safety
    /// As `mmap` at that address with those flags.
    unsafe fn map_at(at: u64, flags: libc::c_int, bytes: u64) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, device.as_raw_fd());
        // SAFETY: the caller's promise.
        let start = unsafe { libc::mmap(at as *mut _, bytes as usize, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { device, start: start as u64, end: start as u64 + bytes })
    }

    /// Fills what lies between cursor and end, up to the budget.
    pub(crate) fn fill(&self, fill: &mut Fill) -> io::Result<()> {
        self.call(IOC_FILL, fill)
    }

    /// Empties likewise.
    pub(crate) fn empty(&self, fill: &mut Fill) -> io::Result<()> {
        self.call(IOC_EMPTY, fill)
    }

    /// Everything.
    pub(crate) fn all(&self) -> Fill {
        Fill::new(self.start, self.end)
    }

    fn call(&self, request: u32, fill: &mut Fill) -> io::Result<()> {
        // SAFETY: both requests take a Fill, and check every address in it.
        let answer =
            unsafe { libc::ioctl(self.device.as_raw_fd(), request as _, ptr::from_mut(fill)) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
