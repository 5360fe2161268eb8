//! Reclaim by `process_madvise(MADV_PAGEOUT)`, counted page by page before and after.
//!
//! The call returns how many bytes it processed, not what happened to them; /proc/PID/pagemap shows
//! that (Documentation/admin-guide/mm/pagemap.rst). A page that was present before and is not
//! afterwards was reclaimed: by us, or by the kernel at the same time, which has the same effect.

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE};

use super::account::Cause;
use super::kernel::Kernel;

/// State of a page in the pagemap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paged {
    /// Neither in memory nor in swap.
    #[default]
    Absent,
    /// In memory, mapped by this process only.
    Own,
    /// In memory, mapped by other processes, too.
    Shared,
    /// In swap.
    Swapped,
}

/// Bits of a pagemap entry, as documented by the kernel.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const EXCLUSIVE: u64 = 1 << 56;
/// A guard region, which is no memory: its entries look like swapped ones (Linux 6.15 shows it).
const GUARD: u64 = 1 << 58;

impl Paged {
    pub(crate) fn of_entry(entry: u64) -> Self {
        match (entry & PRESENT != 0, entry & EXCLUSIVE != 0, entry & (SWAPPED | GUARD) == SWAPPED) {
            (true, true, _) => Paged::Own,
            (true, false, _) => Paged::Shared,
            (false, _, true) => Paged::Swapped,
            (false, _, false) => Paged::Absent,
        }
    }

    pub(crate) fn is_present(self) -> bool {
        matches!(self, Paged::Own | Paged::Shared)
    }
}

/// Outcome of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The page was reclaimed.
    Out,
    /// The page was in swap before.
    Already,
    /// There was no page.
    Absent,
    /// The page remained resident, for this cause.
    Stayed(Cause),
}

/// Outcomes of a range, and the number of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paging {
    /// One outcome for each page.
    pub(crate) fates: Vec<Fate>,
    pub(crate) calls: u32,
}

/// Reclaims `count` pages from address `start` on, unless `dry`; returns the outcome of each page.
///
/// # Errors
/// If the pagemap cannot be read, because the process has ended or access is denied; nothing has
/// been done then.
pub(crate) fn reclaim(
    kernel: &mut dyn Kernel,
    pid: u32,
    (start, count): (u64, u64),
    dry: bool,
) -> Result<Paging, Cause> {
    let mut before = vec![Paged::Absent; count as usize];
    let refused = |e: std::io::Error| Cause::of_call(e.raw_os_error().unwrap_or(0));
    kernel.paged(pid, start, &mut before).map_err(refused)?;
    let mut calls = 0;
    let mut refusal = dry.then_some(Cause::DryRun);
    if !dry {
        for (first, pages) in present_runs(&before) {
            calls += 1;
            let at = start + (first << PAGE_SHIFT);
            let result = kernel.page_out(pid, at, pages * PAGE_SIZE);
            if let Err(error) = result {
                refusal = Some(of_page_out(error.raw_os_error().unwrap_or(0)));
            }
        }
    }
    let mut after = before.clone();
    if calls > 0 && kernel.paged(pid, start, &mut after).is_err() {
        // The process has ended in between, and its memory has been freed.
        after.fill(Paged::Absent);
        refusal = Some(Cause::Gone);
    }
    let full = calls > 0 && kernel.swap_free().is_some_and(|free| free < PAGE_SIZE);
    let fates = before.iter().zip(&after).map(|pair| fate(pair, refusal, full)).collect();
    Ok(Paging { fates, calls })
}

fn fate((before, after): (&Paged, &Paged), refusal: Option<Cause>, full: bool) -> Fate {
    match (before, after) {
        (Paged::Absent, _) => Fate::Absent,
        (Paged::Swapped, _) => Fate::Already,
        (_, Paged::Swapped) => Fate::Out,
        // A clean file page was dropped, unless the process has ended: then all its memory was
        // freed.
        (_, Paged::Absent) if refusal == Some(Cause::Gone) => Fate::Stayed(Cause::Gone),
        (_, Paged::Absent) => Fate::Out,
        (_, Paged::Shared) => Fate::Stayed(refusal.unwrap_or(Cause::Shared)),
        (_, Paged::Own) if full => Fate::Stayed(refusal.unwrap_or(Cause::NoSwap)),
        (_, Paged::Own) => Fate::Stayed(refusal.unwrap_or(Cause::Busy)),
    }
}

/// Runs of present pages: index of the first page, number of pages.
fn present_runs(pages: &[Paged]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (index, _) in (0u64..).zip(pages).filter(|(_, page)| page.is_present()) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == index => *count += 1,
            _ => runs.push((index, 1)),
        }
    }
    runs
}

/// Cause of a failed process_madvise() (mm/madvise.c: `can_madv_lru_vma` refuses locked mappings,
/// hugetlb and device memory with EINVAL).
fn of_page_out(errno: i32) -> Cause {
    match errno {
        libc::EINVAL => Cause::Locked,
        libc::ENOSYS => Cause::Unsupported,
        libc::ENOMEM => Cause::Gone,
        other => Cause::of_call(other),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, PID, page};
    use super::*;

    // Six pages: one is pinned, one shared, one already in swap, one was never mapped.
    #[test]
    fn every_page_has_an_outcome() {
        let mut fake = Fake::with_pages(6, 0);
        fake.swap(6);
        fake.share(1);
        fake.pin(2);
        fake.free_page(3);
        fake.swap_out(4);
        let done = reclaim(&mut fake, PID, (page(0), 6), false).unwrap();
        let stayed = Fate::Stayed;
        assert_eq!(
            done.fates,
            [
                Fate::Out,
                stayed(Cause::Shared),
                stayed(Cause::Busy),
                Fate::Absent,
                Fate::Already,
                Fate::Out
            ]
        );
        assert_eq!(done.calls, 2, "a call for each run of pages that are there");
    }

    #[test]
    fn pages_that_do_not_fit_into_swap_stay() {
        let mut fake = Fake::with_pages(4, 0);
        fake.swap(3);
        let done = reclaim(&mut fake, PID, (page(0), 4), false).unwrap();
        assert_eq!(done.fates[..3], [Fate::Out; 3]);
        assert_eq!(done.fates[3], Fate::Stayed(Cause::NoSwap));
    }

    #[test]
    fn a_dry_run_does_nothing() {
        let mut fake = Fake::with_pages(2, 0);
        fake.swap(9);
        let done = reclaim(&mut fake, PID, (page(0), 2), true).unwrap();
        assert_eq!((done.fates, done.calls), (vec![Fate::Stayed(Cause::DryRun); 2], 0));
        assert_eq!(fake.on(0), 2);
        fake.gone = true;
        assert_eq!(reclaim(&mut fake, PID, (page(0), 2), false), Err(Cause::Gone));
    }

    #[test]
    fn entries_are_read_as_documented() {
        for (entry, paged) in [
            (0, Paged::Absent),
            (1 << 63 | 1 << 56 | 5, Paged::Own),
            (1 << 63 | 1 << 61, Paged::Shared),
            (1 << 62 | 99, Paged::Swapped),
            (1 << 62 | 1 << 58 | 99, Paged::Absent),
        ] {
            assert_eq!(Paged::of_entry(entry), paged, "{entry:#x}");
        }
    }
}
