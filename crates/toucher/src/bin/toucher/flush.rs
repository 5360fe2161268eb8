//! TLB flushes without a kernel module: an emulated CPU with a cached translation does not set its
//! ACCESSED bit again.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use tierscope_core::{Error, ErrorKind, Result};

/// More pages than x86 flushes individually (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c:
/// 33): the kernel flushes the whole TLB, on every CPU that runs a thread of this process.
const BYTES: usize = 64 * 4096;

/// Pages whose permissions are revoked and restored to cause flushes.
pub(crate) struct Flusher {
    pages: NonNull<u8>,
    period: Duration,
}

// SAFETY: sharing is sound, as the pages are never read or written.
unsafe impl Sync for Flusher {}

impl Flusher {
    /// A flusher with one flush per `period` once it runs.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(period: Duration) -> Result<Self> {
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
            mmap_anonymous(std::ptr::null_mut(), BYTES, all, flags)
        };
        let pages = start.ok().and_then(|start| NonNull::new(start.cast()));
        let cause = "no memory for the pages whose permissions change";
        let failed = || Error::new(ErrorKind::Missing, "cannot flush TLBs").cause(cause);
        Ok(Self { pages: pages.ok_or_else(failed)?, period })
    }

    /// Flushes until `stop` is set; returns the number of flushes.
    pub(crate) fn run(&self, stop: &AtomicBool) -> u64 {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) && self.flush() {
            count += 1;
            std::thread::sleep(self.period);
        }
        count
    }

    /// Flushes the TLB: revoking permissions requires it, restoring them does not.
    fn flush(&self) -> bool {
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        [MprotectFlags::empty(), all].into_iter().all(|flags| {
            // SAFETY: pages of this flusher, which are never accessed.
            unsafe { mprotect(self.pages.as_ptr().cast(), BYTES, flags) }.is_ok()
        })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and only used by this flusher.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_alternate_until_it_is_stopped() {
        let flusher = Flusher::new(Duration::ZERO).unwrap();
        assert!(flusher.flush() && flusher.flush());
        assert_eq!(flusher.run(&AtomicBool::new(true)), 0);
    }
}
