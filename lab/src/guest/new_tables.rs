//! Probes pages while the kernel installs the tables that lead to them.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::abi;
use tierscope_linux::module::{Attachment, Module, Presence};

/// Bytes that an entry of level 2 maps: each page fault installs a table.
const APART: u64 = 2 << 20;
/// Number of page faults.
const FAULTS: u64 = 512;
/// Probes of a call.
const BATCH: usize = 256;

/// Number of probes of pages that are answered about the entry of a table; right is 0, as an entry
/// above a page's own is judged only if it is a leaf or absent. A walk that finds it absent must
/// look again when it holds the lock (kmod/walk.c: `still_there`).
///
/// # Errors
/// Those of the module, and if no memory can be mapped.
pub fn answers_about_tables(module: &Module) -> Result<u64> {
    let memory = Memory::map()?;
    let mut attachment = module.attach(std::process::id())?;
    let next = AtomicU64::new(memory.start);
    thread::scope(|scope| {
        scope.spawn(|| memory.touch_each(&next));
        let probed = memory.pages().map(|page| {
            next.store(page, Ordering::Release);
            probe_until_present(&mut attachment, page)
        });
        let wrong = probed.sum();
        next.store(u64::MAX, Ordering::Release);
        wrong
    })
}

/// Probes a page until it is present; returns the number of answers about a table.
fn probe_until_present(attachment: &mut Attachment, page: u64) -> Result<u64> {
    let ask = abi::Probe { addr: page, level: 1, op: abi::OP_TEST, ..Default::default() };
    let mut wrong = 0;
    loop {
        let mut probes = [ask; BATCH];
        if attachment.probe(&mut probes)? == Presence::Gone {
            return Err(Error::new(ErrorKind::NoTarget, "this process cannot be probed"));
        }
        wrong += probes.iter().filter(|probe| probe.kind == abi::KIND_TABLE).count() as u64;
        let last = &probes[BATCH - 1];
        if last.reached == 1 && last.state != abi::STATE_ABSENT {
            return Ok(wrong);
        }
    }
}

/// Memory of which no page is present.
struct Memory {
    start: u64,
    mapped: *mut libc::c_void,
}

// SAFETY: the memory stays mapped while this exists, and is only written as atomic integers.
unsafe impl Sync for Memory {}

impl Memory {
    const BYTES: usize = ((FAULTS + 1) * APART) as usize;

    fn map() -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which overlaps nothing.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(
                Error::new(ErrorKind::Other, "cannot map memory").cause(io::Error::last_os_error())
            );
        }
        let memory = Self { start: (mapped as u64).next_multiple_of(APART), mapped };
        // SAFETY: advice about a mapping that only this uses. A kernel without huge pages refuses.
        unsafe { libc::madvise(mapped, Self::BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(memory)
    }

    fn pages(&self) -> impl Iterator<Item = u64> + use<> {
        let start = self.start;
        (0..FAULTS).map(move |index| start + index * APART)
    }

    /// Touches each page once `next` has reached it.
    fn touch_each(&self, next: &AtomicU64) {
        for page in self.pages() {
            while next.load(Ordering::Acquire) < page {
                std::hint::spin_loop();
            }
            // SAFETY: aligned, and inside of the mapping.
            unsafe { &*(page as *const AtomicU64) }.store(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing uses any more.
        unsafe { libc::munmap(self.mapped, Self::BYTES) };
    }
}
