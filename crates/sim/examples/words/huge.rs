//! Words in memory whose pages on the host are large or small, as asked for.

use rustix::mm::{Advice, madvise};

/// A huge page of the host.
const HUGE: usize = 2 << 20;

/// `count` words that `word` makes, on huge pages if `huge`, and if the host has them; otherwise on
/// small ones.
pub(crate) fn words<T>(count: usize, huge: bool, word: impl FnMut() -> T) -> Vec<T> {
    let mut words = Vec::with_capacity(count);
    let start = words.as_ptr() as usize;
    let (first, end) = (start.next_multiple_of(HUGE), start + count * size_of::<T>());
    let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
    if first < end {
        // SAFETY: the range lies within the allocation, and advice changes no contents; a host
        // without huge pages refuses.
        let _ = unsafe { madvise(first as *mut _, (end - first) & !4095, advice) };
    }
    words.resize_with(count, word);
    words
}
