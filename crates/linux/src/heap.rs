//! malloc settings of this process.

/// Buffers of at least this size are mapped individually.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 64 << 10;

/// Makes free(3) return large buffers to the system immediately.
///
/// By default glibc takes the free of a large buffer as a reason to allocate the next ones from the
/// heap, up to 32 MiB each (`mallopt(3)`, "dynamic mmap threshold"): between longer-lived
/// allocations they leave holes, so that the memory of one window with many regions would stay
/// allocated until the end of the recording.
pub fn return_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number within the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
