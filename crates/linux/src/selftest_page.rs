//! A page of this process for the module's self-test.

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tierscope_core::{Error, ErrorKind, PAGE_SIZE, Result};

/// A private, anonymous page without other users.
pub(crate) struct SelfTestPage(NonNull<u8>);

impl SelfTestPage {
    pub(crate) fn new() -> Result<Self> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: this creates an anonymous mapping at an address that the kernel chooses.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_SIZE as usize, flags.0, flags.1) };
        page.ok().and_then(|page| NonNull::new(page.cast())).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::Other, "cannot map a page for the self-test")
                .cause("out of memory")
                .remedy("free some memory")
        })
    }

    /// Writes to the page, so that it is resident, and returns its address.
    pub(crate) fn touched(&self) -> u64 {
        // SAFETY: the mapping belongs to `self`, is writable, and lives as long as `self`.
        unsafe { self.0.as_ptr().write_volatile(1) };
        self.0.as_ptr() as u64
    }
}

impl Drop for SelfTestPage {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`, and nothing borrows from it. If munmap failed, one
        // page would be leaked, which is harmless.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_SIZE as usize) };
    }
}
