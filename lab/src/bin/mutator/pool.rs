//! Threads that map a file of a huge-page pool, shared, with all other mutators. Their mappings are
//! 1 GiB long and aligned to it, so that the kernel shares their level-2 tables between processes,
//! and takes them apart again when a part is protected, unmapped or punched out of the file. They
//! are not moved: mremap of such a mapping makes Linux 6.12 wait for itself, with or without the
//! module (move_hugetlb_page_tables() holds i_mmap_rwsem, which huge_pmd_share() takes).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use tierscope_core::Rng;

const HUGE: usize = 2 << 20;
/// Size of a mapping and of the file: all that a level-2 table maps.
const WHOLE: usize = 1 << 30;
/// Pages at the beginning of the file that are accessed; the pool needs no more.
const PAGES: u64 = 8;
/// Where mappings begin; each thread has two places for its mapping.
const FIRST: usize = 0x5000_0000_0000;

struct Worker {
    rng: Rng,
    file: File,
    /// Number of the first of the thread's two places.
    places: usize,
    /// Address of the mapping.
    start: Option<usize>,
}

/// Main function of thread `number`.
pub(crate) fn live(file: &OsStr, seed: u64, number: u64) {
    let file = File::options().read(true).write(true).open(file).expect("the pool's file opens");
    let rng = Rng::seeded(seed + number);
    let mut worker = Worker { rng, file, places: 2 * number as usize, start: None };
    loop {
        worker.act();
    }
}

impl Worker {
    fn act(&mut self) {
        let Some(start) = self.start else { return self.map() };
        match self.rng.below(10) {
            0 => self.unmap(start),
            1 => self.unmap_half(start),
            2 => self.protect(start),
            3 => self.discard(start),
            4 => self.punch(),
            5 => self.fork(start),
            _ => self.touch(start),
        }
    }

    fn place(&mut self) -> usize {
        FIRST + (self.places + self.rng.below(2) as usize) * WHOLE
    }

    fn map(&mut self) {
        let at = self.place();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let fd = self.file.as_raw_fd();
        // SAFETY: the address space at this thread's places is used by this thread only.
        let start = unsafe { libc::mmap(at as *mut _, WHOLE, protection, flags, fd, 0) };
        assert!(start != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
        self.start = Some(at);
        self.touch(at);
    }

    /// Offset and size of some of the accessed pages.
    fn part(&mut self) -> (usize, usize) {
        let first = self.rng.below(PAGES);
        let pages = 1 + self.rng.below(PAGES - first);
        (first as usize * HUGE, pages as usize * HUGE)
    }

    fn touch(&mut self, start: usize) {
        let (offset, bytes) = self.part();
        touch(start + offset, bytes);
    }

    fn unmap(&mut self, start: usize) {
        // SAFETY: the mapping belongs to this thread and is not used after this call.
        unsafe { libc::munmap(start as *mut _, WHOLE) };
        self.start = None;
    }

    /// Splits the mapping, and unmaps the part that is never accessed; then the other one.
    fn unmap_half(&mut self, start: usize) {
        // SAFETY: as in `unmap`.
        unsafe { libc::munmap((start + WHOLE / 2) as *mut _, WHOLE / 2) };
        self.touch(start);
        self.unmap(start);
    }

    fn protect(&mut self, start: usize) {
        let (offset, bytes) = self.part();
        for protection in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
            // SAFETY: no other thread uses this thread's mapping.
            let done = unsafe { libc::mprotect((start + offset) as *mut _, bytes, protection) };
            assert!(done == 0, "mprotect: {}", io::Error::last_os_error());
        }
    }

    fn discard(&mut self, start: usize) {
        let (offset, bytes) = self.part();
        // SAFETY: the contents of the file do not matter.
        unsafe { libc::madvise((start + offset) as *mut _, bytes, libc::MADV_DONTNEED) };
    }

    /// Takes pages out of the file and of all mappings of it.
    fn punch(&mut self) {
        let (offset, bytes) = self.part();
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a system call on an open file.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, bytes as i64) };
    }

    /// Forks a child that accesses the pages, unmaps them and exits.
    fn fork(&mut self, start: usize) {
        let (offset, bytes) = self.part();
        // SAFETY: the child calls only functions that are safe after fork in a program with
        // threads.
        match unsafe { libc::fork() } {
            0 => {
                touch(start + offset, bytes);
                // SAFETY: the mapping is not used again; _exit runs no code of this program.
                unsafe {
                    libc::munmap(start as *mut _, WHOLE);
                    libc::_exit(0)
                }
            }
            -1 => eprintln!("mutator: fork: {}", io::Error::last_os_error()),
            child => {
                // SAFETY: waits for a child of this process; its status is not needed.
                unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
            }
        }
    }
}

fn touch(start: usize, bytes: usize) {
    for page in (start..start + bytes).step_by(HUGE) {
        // SAFETY: the page is in the caller's mapping, which is writable between its actions.
        unsafe { (page as *mut u8).write_volatile(1) };
    }
}
