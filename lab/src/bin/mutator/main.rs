//! `mutator`: a process whose address space changes all the time. Threads map, unmap, move, protect
//! and advise memory, fork, execute this program again and exit, in a pseudo-random order that the
//! seed determines.
//!
//! Usage: mutator SEED THREADS LIFE_MS. The process keeps its pid across executions. If the
//! variable POOL_FILE names a file of a huge-page pool, the threads of all mutators map that file
//! (`pool.rs`).

mod pool;

use std::io;
use std::process::ExitCode;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use tierscope_core::Rng;

const PAGE: usize = 4096;
/// Maximum size of a mapping: a few level-2 entries, so that huge pages are made and split.
const LARGEST: usize = 8 << 20;
/// Maximum number of mappings of a thread.
const KEPT: usize = 8;
/// `MADV_COLLAPSE` of Linux 6.1 (include/uapi/asm-generic/mman-common.h).
const MADV_COLLAPSE: libc::c_int = 25;

/// A mapping that belongs to one thread.
#[derive(Clone, Copy)]
struct Area {
    start: usize,
    bytes: usize,
}

fn main() -> ExitCode {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [seed, threads, life_ms] = arguments[..] else {
        eprintln!("usage: mutator SEED THREADS LIFE_MS");
        return ExitCode::from(2);
    };
    let end = Instant::now() + Duration::from_millis(life_ms);
    let file = std::env::var_os("POOL_FILE");
    let live = move |number| match &file {
        Some(file) => pool::live(file, seed, number, end),
        None => Worker::new(seed + number).live(end),
    };
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let live = live.clone();
            thread::spawn(move || live(number))
        })
        .collect();
    for worker in workers {
        if worker.join().is_err() {
            return ExitCode::FAILURE;
        }
    }
    // Half of all lives end with exec, half with exit.
    if Rng::seeded(seed).below(2) == 0 {
        again(seed + 1000, threads, life_ms)
    } else {
        ExitCode::SUCCESS
    }
}

/// Executes this program again in the same process.
fn again(seed: u64, threads: u64, life_ms: u64) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let arguments = [seed, threads, life_ms].map(|n| n.to_string());
    let error = std::process::Command::new("/proc/self/exe").args(arguments).exec();
    eprintln!("mutator: exec: {error}");
    ExitCode::FAILURE
}

struct Worker {
    rng: Rng,
    areas: Vec<Area>,
}

impl Worker {
    fn new(seed: u64) -> Self {
        Worker { rng: Rng::seeded(seed), areas: Vec::with_capacity(KEPT) }
    }

    fn live(mut self, end: Instant) {
        while Instant::now() < end {
            self.act();
        }
    }

    fn act(&mut self) {
        if self.areas.is_empty() || (self.areas.len() < KEPT && self.rng.below(4) == 0) {
            return self.map();
        }
        let i = self.rng.below(self.areas.len() as u64) as usize;
        match self.rng.below(20) {
            0..=1 => self.unmap(i),
            2..=4 => self.remap(i),
            5..=7 => self.protect(i),
            8..=9 => self.advise(i, libc::MADV_HUGEPAGE),
            10 => self.advise(i, libc::MADV_NOHUGEPAGE),
            11..=12 => self.advise(i, MADV_COLLAPSE),
            13..=14 => self.advise(i, libc::MADV_DONTNEED),
            15 => self.fork(i),
            _ => self.touch(i),
        }
    }

    fn map(&mut self) {
        let pages = 1 + self.rng.below((LARGEST / PAGE) as u64) as usize;
        let shared = self.rng.below(4) == 0;
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if start != libc::MAP_FAILED {
            self.areas.push(Area { start: start as usize, bytes: pages * PAGE });
            if self.rng.below(2) == 0 {
                // SAFETY: advice about a mapping of this thread.
                unsafe { libc::madvise(start, pages * PAGE, libc::MADV_NOHUGEPAGE) };
            }
            self.touch(self.areas.len() - 1);
        }
    }

    /// A random non-empty range of whole pages in an area.
    fn part(&mut self, area: Area) -> (usize, usize) {
        let pages = (area.bytes / PAGE) as u64;
        let first = self.rng.below(pages);
        let count = 1 + self.rng.below(pages - first);
        (area.start + first as usize * PAGE, count as usize * PAGE)
    }

    fn touch(&mut self, i: usize) {
        let (start, bytes) = self.part(self.areas[i]);
        for page in (start..start + bytes).step_by(PAGE) {
            // SAFETY: the page is in an area of this thread, which is writable between calls of
            // act.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
    }

    fn unmap(&mut self, i: usize) {
        let area = self.areas.swap_remove(i);
        // SAFETY: the area belongs to this thread and is not used after this call.
        unsafe { libc::munmap(area.start as *mut _, area.bytes) };
    }

    /// Grows, shrinks or moves an area.
    fn remap(&mut self, i: usize) {
        let area = self.areas[i];
        let bytes = PAGE * (1 + self.rng.below((LARGEST / PAGE) as u64) as usize);
        // SAFETY: the area belongs to this thread; the kernel chooses the new address.
        let start =
            unsafe { libc::mremap(area.start as *mut _, area.bytes, bytes, libc::MREMAP_MAYMOVE) };
        if start == libc::MAP_FAILED {
            return;
        }
        // Pages beyond the end of a shared area's object cannot be touched: keep the old size.
        let kept = bytes.min(area.bytes);
        self.areas[i] = Area { start: start as usize, bytes: kept };
        if bytes > kept {
            // SAFETY: the tail was just added by mremap and is not used anywhere.
            unsafe { libc::munmap((start as usize + kept) as *mut _, bytes - kept) };
        }
    }

    /// Temporarily removes all access rights of a part of an area.
    fn protect(&mut self, i: usize) {
        let (start, bytes) = self.part(self.areas[i]);
        let protect = |protection| {
            // SAFETY: no other thread uses this thread's areas.
            unsafe { libc::mprotect(start as *mut _, bytes, protection) }
        };
        protect(libc::PROT_NONE);
        let back = protect(libc::PROT_READ | libc::PROT_WRITE);
        assert!(back == 0, "mprotect: {}", io::Error::last_os_error());
    }

    fn advise(&mut self, i: usize, advice: libc::c_int) {
        let (start, bytes) = self.part(self.areas[i]);
        // SAFETY: the contents of the areas do not matter; the kernel checks the rest.
        unsafe { libc::madvise(start as *mut _, bytes, advice) };
    }

    /// Forks a child that breaks copy-on-write pages, unmaps some and exits.
    fn fork(&mut self, i: usize) {
        let area = self.areas[i];
        // SAFETY: the child calls only functions that are safe after fork in a program with
        // threads.
        match unsafe { libc::fork() } {
            0 => {
                for page in (area.start..area.start + area.bytes).step_by(PAGE) {
                    // SAFETY: the child has its own copy of the area.
                    unsafe { (page as *mut u8).write_volatile(2) };
                }
                // SAFETY: the area is not used again; _exit runs no code of this program.
                unsafe {
                    libc::munmap(area.start as *mut _, area.bytes);
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
