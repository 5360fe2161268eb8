//! Which pages of a process are in memory or swapped: `/proc/PID/pagemap`, by its ioctl
//! PAGEMAP_SCAN (Linux 6.7), which walks page tables and skips what was never populated, or by
//! reading its entries (Documentation/admin-guide/mm/pagemap.rst). Neither sets or clears ACCESSED
//! bits. The entries also show which pages no other process maps.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE};

use crate::pagemap_scan::{Answer, Wanted, scan};

/// Adjacent pages that are all in memory, or all swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) swapped: bool,
}

/// Numbers of pages of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageCount {
    /// Pages in memory.
    pub(super) present: u64,
    /// Those of them that no other process maps.
    pub(super) exclusive: u64,
    pub(super) swapped: u64,
}

/// Categories of pages in PAGEMAP_SCAN (include/uapi/linux/fs.h).
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
/// The page of zeros that all processes share: nothing was written there.
const IS_ZERO_PAGE: u64 = 1 << 5;
/// A guard region (`MADV_GUARD_INSTALL`, Linux 6.13): no memory, and each access to it is an error.
/// Its entries count as swapped, too. This category, and its bit, are there since Linux 6.15.
const IS_GUARD: u64 = 1 << 8;
/// Bits of an entry of pagemap.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const GUARD: u64 = 1 << 58;
/// The page is mapped once.
const EXCLUSIVE: u64 = 1 << 56;

/// Answers per ioctl.
const ANSWERS: usize = 1024;
/// Entries per read: those of 32 MiB.
const ENTRIES: u64 = 8192;

/// The page map of a process.
pub(super) struct PageMap {
    file: File,
    scans: bool,
    /// Categories of pages that scans leave out, as far as this kernel knows them.
    left_out: u64,
    answers: Vec<Answer>,
    entries: Vec<u8>,
}

impl PageMap {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If the process is gone, or this process may not trace it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let (answers, entries) = (vec![Answer::default(); ANSWERS], Vec::new());
        let mut map = Self { file, scans: true, left_out: IS_GUARD, answers, entries };
        // Kernels without the category, or without the ioctl, say so for an empty range as well.
        if map.scan_once(0, 0).is_err() {
            map.left_out = 0;
            map.scans = map.scan_once(0, 0).is_ok();
        }
        Ok(map)
    }

    /// Whether pages that were never populated cost nothing.
    pub(super) fn skips_holes(&self) -> bool {
        self.scans
    }

    /// Passes the runs of pages from `start` to `end` to `take`, in order.
    ///
    /// # Errors
    /// If the process is gone.
    pub(super) fn runs(
        &mut self,
        start: u64,
        end: u64,
        take: &mut dyn FnMut(PageRun),
    ) -> io::Result<()> {
        let mut at = start;
        while at < end {
            at = match self.scans {
                true => {
                    let (count, walked) = self.scan_once(at, end)?;
                    runs_of_answers(&self.answers[..count], take);
                    // A kernel that makes no progress must not keep this thread.
                    walked.max(at + PAGE_SIZE)
                }
                false => self.read_once(at, end, take)?,
            };
        }
        Ok(())
    }

    /// Counts the pages from `start` to `end`, up to 32 MiB.
    ///
    /// # Errors
    /// If the process is gone.
    pub(super) fn count(&mut self, start: u64, end: u64) -> io::Result<PageCount> {
        let (first, last) = (start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE));
        self.entries.resize(((last - first).min(ENTRIES) * 8) as usize, 0);
        self.file.read_exact_at(&mut self.entries, first * 8)?;
        let mut count = PageCount::default();
        for entry in entries(&self.entries) {
            let swapped = is_swapped(entry);
            count.present += u64::from(swapped == Some(false));
            count.exclusive += u64::from(swapped == Some(false) && entry & EXCLUSIVE != 0);
            count.swapped += u64::from(swapped == Some(true));
        }
        Ok(count)
    }

    /// Fills in answers; returns their number and the address up to which they go.
    fn scan_once(&mut self, start: u64, end: u64) -> io::Result<(usize, u64)> {
        let wanted = Wanted {
            none_of: self.left_out,
            any_of: IS_PRESENT | IS_SWAPPED,
            named: IS_PRESENT | IS_SWAPPED | IS_ZERO_PAGE,
            ..Wanted::default()
        };
        scan(&self.file, (start, end), wanted, &mut self.answers)
    }

    /// Reads some entries; returns the address up to which they go.
    fn read_once(
        &mut self,
        start: u64,
        end: u64,
        take: &mut dyn FnMut(PageRun),
    ) -> io::Result<u64> {
        let (first, last) = (start >> PAGE_SHIFT, end.div_ceil(PAGE_SIZE));
        let count = (last - first).min(ENTRIES);
        self.entries.resize((count * 8) as usize, 0);
        self.file.read_exact_at(&mut self.entries, first * 8)?;
        runs_of_entries(&self.entries, first, take);
        Ok((first + count) << PAGE_SHIFT)
    }
}

/// Passes the runs in answers of PAGEMAP_SCAN to `take`.
fn runs_of_answers(answers: &[Answer], take: &mut dyn FnMut(PageRun)) {
    for &[start, end, categories] in answers {
        let swapped = categories & IS_PRESENT == 0;
        if categories & IS_ZERO_PAGE == 0 && categories & (IS_PRESENT | IS_SWAPPED) != 0 {
            take(PageRun { start, end, swapped });
        }
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

/// Whether the page of an entry is in memory or swapped; `None` if it is neither.
fn is_swapped(entry: u64) -> Option<bool> {
    match (entry & PRESENT != 0, entry & (SWAPPED | GUARD)) {
        (true, _) => Some(false),
        (false, SWAPPED) => Some(true),
        (false, _) => None,
    }
}

/// Passes the runs in entries of pagemap, those of page `first` and the next ones, to `take`.
fn runs_of_entries(bytes: &[u8], first: u64, take: &mut dyn FnMut(PageRun)) {
    let states: Vec<_> = entries(bytes).map(is_swapped).collect();
    let mut page = first;
    for same in states.chunk_by(|a, b| a == b) {
        let end = page + same.len() as u64;
        if let Some(swapped) = same[0] {
            take(PageRun { start: page << PAGE_SHIFT, end: end << PAGE_SHIFT, swapped });
        }
        page = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    fn collect(of: impl FnOnce(&mut dyn FnMut(PageRun))) -> Vec<(u64, u64, bool)> {
        let mut found = Vec::new();
        of(&mut |run| found.push((run.start >> 12, run.end >> 12, run.swapped)));
        found
    }

    // Recorded on Linux 6.18: private memory of which pages 3 and 4 were written, and page 6 was
    // only read, so that it is the page of zeros. Without the ioctl it counts as in memory.
    #[test]
    fn recorded_entries() {
        let (one, two, zeros) =
            (0x8100_0000_0020_ab09, 0x8100_0000_002a_b774, 0x8000_0000_0000_3b34);
        let entries: [u64; 8] = [0, 0, 0, one, two, 0, zeros, 0];
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        let found = collect(|take| runs_of_entries(&bytes, 16, take));
        assert_eq!(found, [(19, 21, false), (22, 23, false)]);
    }

    // The answers of PAGEMAP_SCAN for the same memory; the third one, of swapped pages, is made up.
    #[test]
    fn recorded_answers() {
        let answers: [Answer; 3] = [
            [0x7fb4_1f20_3000, 0x7fb4_1f20_5000, 0x8],
            [0x7fb4_1f20_6000, 0x7fb4_1f20_7000, 0x28],
            [0x7fb4_1f20_7000, 0x7fb4_1f20_a000, 0x10],
        ];
        let found = collect(|take| runs_of_answers(&answers, take));
        let first = 0x7fb4_1f20_0000 >> 12;
        assert_eq!(found, [(first + 3, first + 5, false), (first + 7, first + 10, true)]);
    }

    proptest! {
        // Page by page: a page is in a run of its state, or in none.
        #[test]
        fn runs_agree_with_a_naive_oracle(states in prop::collection::vec(0u64..4, 0..40), first in 0u64..99) {
            let bytes: Vec<u8> = states.iter().flat_map(|state| ((state << 62) | 5).to_le_bytes()).collect();
            let found = collect(|take| runs_of_entries(&bytes, first, take));
            for (page, state) in (first..).zip(&states) {
                let of = found.iter().find(|(start, end, _)| (*start..*end).contains(&page));
                let naive = match state { 0 => None, 1 => Some(true), _ => Some(false) };
                prop_assert_eq!(of.map(|(_, _, swapped)| *swapped), naive);
            }
            prop_assert!(found.is_sorted_by(|a, b| a.1 <= b.0));
            prop_assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0 || pair[0].2 != pair[1].2));
        }
    }

    /// A new reservation; `written` pages of it are in memory.
    fn reserved(bytes: usize, written: &[usize]) -> *mut std::ffi::c_void {
        // SAFETY: new memory, which nothing else refers to; advice and writes are inside of it.
        unsafe {
            let (access, flags) =
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            let memory = mmap_anonymous(std::ptr::null_mut(), bytes, access, flags).unwrap();
            madvise(memory, bytes, Advice::LinuxNoHugepage).unwrap();
            for page in written {
                memory.cast::<u8>().add(page << 12).write_volatile(1);
            }
            memory
        }
    }

    // Entries of MADV_GUARD_INSTALL (Linux 6.13) look like swapped ones to kernels before 6.15.
    #[test]
    fn a_guard_region_is_neither_in_memory_nor_swapped() {
        const BYTES: usize = 64 << 12;
        const GUARD_INSTALL: i32 = 102;
        let memory = reserved(BYTES, &[3, 4, 5, 6]);
        // SAFETY: two pages of the mapping; nothing accesses them afterwards.
        let guarded = unsafe {
            libc::madvise(memory.cast::<u8>().add(4 << 12).cast(), 2 << 12, GUARD_INSTALL)
        };
        let mut map = PageMap::open(Path::new("/proc/self/pagemap")).unwrap();
        if guarded != 0 || map.left_out == 0 {
            eprintln!("this kernel has no guard regions, or does not show them");
            return;
        }
        let (start, first) = (memory as u64, memory as u64 >> 12);
        for scans in [map.scans, false] {
            map.scans = scans;
            let found = collect(|take| map.runs(start, start + BYTES as u64, take).unwrap());
            let expected = [(first + 3, first + 4, false), (first + 6, first + 7, false)];
            assert_eq!(found, expected, "scans: {scans}");
        }
        let count = map.count(start, start + BYTES as u64).unwrap();
        assert_eq!((count.present, count.exclusive, count.swapped), (2, 2, 0));
        // SAFETY: the mapping of above, no longer used.
        unsafe { munmap(memory, BYTES) }.unwrap();
    }

    // A GiB is reserved, and pages 3, 4 and 70,000 of it are touched. Both ways find these; the
    // scan is there on Linux 6.7 and later.
    #[test]
    fn the_kernel_finds_touched_pages_in_a_reservation() {
        const GIB: usize = 1 << 30;
        let memory = reserved(GIB, &[3, 4, 70_000]);
        let (start, first) = (memory as u64, memory as u64 >> 12);
        let mut map = PageMap::open(Path::new("/proc/self/pagemap")).unwrap();
        for scans in [map.scans, false] {
            map.scans = scans;
            let mut found = Vec::new();
            map.runs(start, start + GIB as u64, &mut |run| found.push(run)).unwrap();
            let pages: Vec<_> =
                found.iter().map(|r| ((r.start >> 12) - first, (r.end >> 12) - first)).collect();
            assert_eq!(pages, [(3, 5), (70_000, 70_001)], "scans: {scans}");
        }
        // SAFETY: the mapping of above, no longer used.
        unsafe { munmap(memory, GIB) }.unwrap();
    }
}
