//! Memory on a chosen node, in pages of 4 KiB, and the nodes of its pages.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tierscope_core::{Error, ErrorKind, Result};

/// Size of a page in bytes.
pub(crate) const PAGE: usize = 4096;
/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

const MPOL_BIND: libc::c_long = 2;
const MPOL_MF_MOVE: libc::c_int = 2;

/// An anonymous mapping.
#[derive(Debug)]
pub(crate) struct Buffer {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is not tied to a thread; threads that share it only read it, by volatile
// loads.
unsafe impl Send for Buffer {}
// SAFETY: threads that share the buffer only read its memory, by volatile loads.
unsafe impl Sync for Buffer {}

fn failed(what: &str) -> Error {
    Error::new(ErrorKind::Io, what.to_owned()).cause(std::io::Error::last_os_error())
}

impl Buffer {
    /// Maps `bytes` bytes on `node`, and writes to all pages.
    ///
    /// # Errors
    /// The kernel refuses to map or to bind the memory.
    pub(crate) fn on(node: u32, bytes: usize) -> Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mask: [libc::c_ulong; 16] =
            std::array::from_fn(
                |word| {
                    if word == node as usize / 64 { 1 << (node % 64) } else { 0 }
                },
            );
        // SAFETY: a new mapping; the calls below affect only that.
        let base = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let base = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return Err(failed("cannot map a buffer"));
            }
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            let bound =
                libc::syscall(libc::SYS_mbind, base, bytes, MPOL_BIND, mask.as_ptr(), 1024, 0);
            // Node 0 on a kernel without NUMA: binding fails, but is not needed.
            if bound != 0 && node != 0 {
                return Err(failed("cannot bind a buffer to a node"));
            }
            base.cast::<u8>()
        };
        let buffer = Self { base, bytes };
        (0..bytes / PAGE).for_each(|page| buffer.store(page * PAGE, page as u64 + 1));
        Ok(buffer)
    }

    /// Removes the binding: the kernel may move the pages to any node.
    pub(crate) fn unbind(&self) {
        // SAFETY: affects only this mapping; MPOL_DEFAULT takes no nodes.
        unsafe {
            libc::syscall(libc::SYS_mbind, self.base, self.bytes, 0, std::ptr::null::<u64>(), 0, 0);
        }
    }

    /// Share of the pages that are currently on `node`.
    pub(crate) fn share_on(&self, node: i32) -> f64 {
        let nodes = self.nodes();
        nodes.iter().filter(|on| **on == node).count() as f64 / nodes.len() as f64
    }

    /// Node of each page, as reported by the kernel; negative: not present.
    pub(crate) fn nodes(&self) -> Vec<i32> {
        let pages: Vec<*mut u8> =
            (0..self.bytes / PAGE).map(|page| self.base.wrapping_add(page * PAGE)).collect();
        let mut nodes = vec![-1i32; pages.len()];
        // SAFETY: the result array has one element per page; without target nodes no page is moved.
        unsafe {
            let none = std::ptr::null::<i32>();
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                none,
                nodes.as_mut_ptr(),
                0,
            );
        }
        nodes
    }

    /// Moves the pages with the numbers `pages` to `node`; pages that the kernel refuses to move
    /// stay.
    pub(crate) fn move_to(&self, pages: &[usize], node: i32) {
        let places: Vec<*mut u8> =
            pages.iter().map(|page| self.base.wrapping_add(page * PAGE)).collect();
        let (nodes, mut done) = (vec![node; pages.len()], vec![-1i32; pages.len()]);
        // SAFETY: the arrays of nodes and of results have one element per page; only pages of this
        // mapping are moved.
        unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                places.len(),
                places.as_ptr(),
                nodes.as_ptr(),
                done.as_mut_ptr(),
                MPOL_MF_MOVE,
            );
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Linear address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Loads the word at byte offset `at`.
    #[inline(always)]
    pub(crate) fn load(&self, at: usize) -> u64 {
        debug_assert!(at + 8 <= self.bytes);
        // SAFETY: within the mapping.
        unsafe { self.base.add(at).cast::<u64>().read_volatile() }
    }

    /// Stores a word at byte offset `at`.
    #[inline(always)]
    pub(crate) fn store(&self, at: usize, value: u64) {
        debug_assert!(at + 8 <= self.bytes);
        // SAFETY: within the mapping.
        unsafe { self.base.add(at).cast::<u64>().write_volatile(value) }
    }

    /// Frame numbers of the pages (Documentation/admin-guide/mm/pagemap.rst: bits 0..55, present in
    /// bit 63).
    ///
    /// # Errors
    /// They cannot be read, or a page is not present.
    pub(crate) fn frames(&self) -> Result<Vec<u64>> {
        let file = File::open("/proc/self/pagemap").map_err(|_| failed("/proc/self/pagemap"))?;
        let mut bytes = vec![0; self.bytes / PAGE * 8];
        file.read_exact_at(&mut bytes, self.address() / PAGE as u64 * 8)
            .map_err(|_| failed("/proc/self/pagemap"))?;
        let frame = |entry: &[u8]| {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            (entry >> 63 == 1 && entry << 9 != 0).then_some(entry & ((1 << 55) - 1))
        };
        let frames: Option<Vec<u64>> = bytes.chunks(8).map(frame).collect();
        frames.ok_or_else(|| {
            Error::new(ErrorKind::Permission, "frame numbers are hidden").remedy("run as root")
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped by `on`, and not used any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Restricts this thread to one CPU.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: a CPU set on the stack, passed with its own size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Next pseudo-random number (xorshift64*, Vigna).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
