//! Pages that go to swap, to other nodes, that are merged or locked.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tierscope_lab::guest::mutations::{Kind, Mutations};

use crate::area::{Area, PAGE};

const PAGES: usize = 64;
const LOCKED: usize = 512;
/// ksmd merges pages that it has met twice.
const PATIENCE: Duration = Duration::from_millis(500);

fn touched() -> Option<Area> {
    let area = Area::map(PAGES * PAGE, libc::MAP_PRIVATE)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    area.touch(1);
    Some(area)
}

/// Writes pages to swap and reads them back.
pub(crate) fn swap(mutations: &Mutations) {
    let Some(area) = touched() else { return };
    mutations.during(Kind::Swap, || {
        let mut resident = [1; PAGES];
        area.advise(libc::MADV_PAGEOUT);
        // SAFETY: one byte for each page.
        unsafe { libc::mincore(area.start as *mut _, area.bytes, resident.as_mut_ptr()) };
        area.touch(2);
        resident.iter().any(|byte| byte & 1 == 0)
    });
    mutations.during(Kind::Unmap, || area.unmap());
}

/// Offers equal pages to ksmd, and separates them when it has merged some.
pub(crate) fn merge(mutations: &Mutations) {
    let Some(area) = touched() else { return };
    mutations.during(Kind::Merge, || {
        area.advise(libc::MADV_MERGEABLE);
        let merged = merged_within(PATIENCE);
        area.touch(2);
        area.advise(libc::MADV_UNMERGEABLE) && merged
    });
    mutations.during(Kind::Unmap, || area.unmap());
}

fn merged_within(patience: Duration) -> bool {
    let started = Instant::now();
    while started.elapsed() < patience {
        let count = fs::read_to_string("/proc/self/ksm_merging_pages").unwrap_or_default();
        if count.trim().parse().unwrap_or(0) > 0 {
            return true;
        }
        thread::yield_now();
    }
    false
}

/// Moves pages to another node and back.
pub(crate) fn migrate(mutations: &Mutations) {
    const MPOL_MF_MOVE: libc::c_int = 2;
    let Some(area) = touched() else { return };
    let pages: Vec<usize> = area.pages().collect();
    mutations.during(Kind::Migrate, || {
        let moves = [1, 0].map(|node| {
            let (nodes, mut places) = ([node; PAGES], [-1; PAGES]);
            // SAFETY: three arrays with an element for each page, and pages of this process.
            let failed = unsafe {
                libc::syscall(
                    libc::SYS_move_pages,
                    0,
                    PAGES,
                    pages.as_ptr(),
                    nodes.as_ptr(),
                    places.as_mut_ptr(),
                    MPOL_MF_MOVE,
                )
            };
            failed >= 0 && places.contains(&node)
        });
        moves == [true; 2]
    });
    mutations.during(Kind::Unmap, || area.unmap());
}

/// Locks pages that were never touched, and unlocks them.
pub(crate) fn lock(mutations: &Mutations) {
    let Some(area) = Area::map(LOCKED * PAGE, libc::MAP_PRIVATE) else { return };
    mutations.during(Kind::Lock, || {
        // SAFETY: this thread's own mapping.
        let locked = unsafe { libc::mlock(area.start as *const _, area.bytes) } == 0;
        // SAFETY: as above.
        locked && unsafe { libc::munlock(area.start as *const _, area.bytes) } == 0
    });
    mutations.during(Kind::Unmap, || area.unmap());
}
