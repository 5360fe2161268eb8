//! A page of our own for the module's self-test to look at.

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tierscope_core::{Error, ErrorKind, PAGE_SIZE, Result};

/// A private, anonymous page that nobody else touches.
pub(crate) struct SelfTestPage(NonNull<u8>);

impl SelfTestPage {
    pub(crate) fn new() -> Result<Self> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_SIZE as usize, flags.0, flags.1) };
        page.ok().and_then(|page| NonNull::new(page.cast())).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::Other, "cannot map a page for the self-test")
                .cause("out of memory")
                .remedy("free some memory")
        })
    }

    /// Its address; the page is resident when this returns, since it was just written.
    pub(crate) fn touched(&self) -> u64 {
        // SAFETY: the mapping is ours, writable, and lives as long as `self`.
        unsafe { self.0.as_ptr().write_volatile(1) };
        self.0.as_ptr() as u64
    }
}

impl Drop for SelfTestPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows from it. If unmapping failed, a page
        // would stay behind, which harms nobody.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_SIZE as usize) };
    }
}
