//! Helpers that depend on the host's CPU.

/// Prefetches an item into the host's first-level cache. An index beyond the end is harmless.
#[inline(always)]
pub fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let item = items.as_ptr().wrapping_add(index);
        // SAFETY: PREFETCHT0 never faults, whatever the address (Intel SDM volume 2, PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(item.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}
