//! An allocator that counts: what a piece of work takes at most, and what it leaves. A test program
//! installs it with `#[global_allocator]`; then it runs one piece at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The allocator.
pub struct Peak;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    MOST.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: all calls are forwarded to the system's allocator; the counters do not affect them.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Large blocks are moved by mremap: they are never there twice.
        grow(size.saturating_sub(layout.size()));
        LIVE.fetch_sub(layout.size().saturating_sub(size), Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Bytes allocated and not freed.
#[must_use]
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// Runs `work`; returns its result, and the most bytes that were allocated meanwhile, above those
/// before.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = live();
    MOST.store(before, Relaxed);
    let done = work();
    (done, MOST.load(Relaxed).saturating_sub(before))
}
