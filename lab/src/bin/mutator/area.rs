//! Anonymous memory, and the calls that every mutation makes.

use std::ptr;

pub(crate) const PAGE: usize = 4096;
pub(crate) const HUGE: usize = 2 << 20;
/// `MADV_COLLAPSE` of Linux 6.1 (include/uapi/asm-generic/mman-common.h).
pub(crate) const MADV_COLLAPSE: libc::c_int = 25;

/// A mapping that belongs to one thread.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Area {
    /// New anonymous memory, with further flags.
    pub(crate) fn map(bytes: usize, flags: libc::c_int) -> Option<Self> {
        let flags = flags | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        (start != libc::MAP_FAILED).then_some(Self { start: start as usize, bytes })
    }

    /// The first part of it that one entry of level 2 maps; it is there from 4 MiB on.
    pub(crate) fn huge(self) -> Self {
        Self { start: self.start.next_multiple_of(HUGE), bytes: HUGE }
    }

    pub(crate) fn pages(self) -> impl Iterator<Item = usize> {
        (self.start..self.start + self.bytes).step_by(PAGE)
    }

    /// Writes to each page. The area belongs to the calling thread, and is writable.
    pub(crate) fn touch(self, value: u8) {
        for page in self.pages() {
            // SAFETY: the caller's own memory, of which nothing is a Rust object.
            unsafe { (page as *mut u8).write_volatile(value) };
        }
    }

    /// Returns whether the kernel took the advice.
    pub(crate) fn advise(self, advice: libc::c_int) -> bool {
        // SAFETY: the contents of areas do not matter; the kernel checks the rest.
        unsafe { libc::madvise(self.start as *mut _, self.bytes, advice) == 0 }
    }

    pub(crate) fn protect(self, access: libc::c_int) -> bool {
        // SAFETY: no other thread uses this thread's areas.
        unsafe { libc::mprotect(self.start as *mut _, self.bytes, access) == 0 }
    }

    pub(crate) fn unmap(self) -> bool {
        // SAFETY: the area belongs to the calling thread and is not used after this.
        unsafe { libc::munmap(self.start as *mut _, self.bytes) == 0 }
    }
}
