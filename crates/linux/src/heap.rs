//! The heap of this process.

/// Buffers from this size on are mapped one by one.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 64 << 10;

/// From now on large buffers go back to the system as soon as they are freed.
///
/// Left to itself, glibc takes a large buffer that is freed as a sign to carve the next ones from
/// the heap, up to 32 MiB each (`mallopt(3)`, "dynamic mmap threshold"): between what lives on, they
/// leave holes, and one window of many regions would be paid for until the end of an hour.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number within the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
