//! TLB flushes without a module: an emulated CPU that keeps a translation never sets its ACCESSED bit
//! again.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use tierscope_core::{Error, ErrorKind, Result};

/// More pages than x86 flushes one by one (`tlb_single_page_flush_ceiling`, arch/x86/mm/tlb.c: 33): the
/// whole TLB goes, on every CPU that runs a thread of ours.
const BYTES: usize = 64 * 4096;

/// Some pages of our own, whose permissions come and go.
pub(crate) struct Flusher {
    pages: NonNull<u8>,
    period: Duration,
}

// The pages are never read or written.
unsafe impl Sync for Flusher {}

impl Flusher {
    /// One flush each `period`, once it runs.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(period: Duration) -> Result<Self> {
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
            mmap_anonymous(std::ptr::null_mut(), BYTES, all, flags)
        };
        let pages = start.ok().and_then(|start| NonNull::new(start.cast()));
        let cause = "no memory for the pages whose permissions change";
        let failed = || Error::new(ErrorKind::Missing, "cannot flush TLBs").cause(cause);
        Ok(Self { pages: pages.ok_or_else(failed)?, period })
    }

    /// Flushes until `stop`; how often it did.
    pub(crate) fn run(&self, stop: &AtomicBool) -> u64 {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) && self.flush() {
            count += 1;
            std::thread::sleep(self.period);
        }
        count
    }

    /// Taking permissions away flushes; giving them back need not.
    fn flush(&self) -> bool {
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        [MprotectFlags::empty(), all].into_iter().all(|flags| {
            // SAFETY: pages of our own that nobody accesses.
            unsafe { mprotect(self.pages.as_ptr().cast(), BYTES, flags) }.is_ok()
        })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, used by nobody else.
        let _ = unsafe { munmap(self.pages.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_come_and_go_until_it_is_stopped() {
        let flusher = Flusher::new(Duration::ZERO).unwrap();
        assert!(flusher.flush() && flusher.flush());
        assert_eq!(flusher.run(&AtomicBool::new(true)), 0);
    }
}
