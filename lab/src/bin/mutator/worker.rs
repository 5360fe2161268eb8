//! A thread that changes memory of its own in all ways.

use std::io;
use std::ptr;
use std::sync::Arc;

use tierscope_core::Rng;
use tierscope_lab::guest::mutations::{Kind, Mutations};

use crate::area::{Area, MADV_COLLAPSE, PAGE};
use crate::offers::Offers;
use crate::{huge, pages, userfault};

/// Maximum size of a mapping: a few level-2 entries, so that huge pages are made and split.
const LARGEST: usize = 8 << 20;
/// Maximum number of mappings of a thread.
const KEPT: usize = 8;

pub(crate) struct Worker {
    rng: Rng,
    areas: Vec<Area>,
    mutations: Arc<Mutations>,
    offers: Offers,
}

impl Worker {
    pub(crate) fn new(seed: u64, mutations: Arc<Mutations>) -> Self {
        let areas = Vec::with_capacity(KEPT);
        Worker { rng: Rng::seeded(seed), areas, mutations, offers: Offers::here() }
    }

    /// Until the process ends.
    pub(crate) fn live(mut self) {
        loop {
            self.act();
        }
    }

    fn act(&mut self) {
        if self.areas.is_empty() || (self.areas.len() < KEPT && self.rng.below(4) == 0) {
            return self.map();
        }
        let i = self.rng.below(self.areas.len() as u64) as usize;
        match self.rng.below(28) {
            0..=1 => self.unmap(i),
            2..=4 => self.remap(i),
            5..=7 => self.protect(i),
            8..=9 => self.advise(i, libc::MADV_HUGEPAGE),
            10 => self.advise(i, libc::MADV_NOHUGEPAGE),
            11..=12 => self.collapse(i),
            13..=14 => self.discard(i),
            15 => self.fork(i),
            16 => huge::collapse_and_split(&self.mutations),
            17 => huge::collapse_file(&self.mutations),
            18 => userfault::protect(&self.mutations),
            19 => userfault::shift(&self.mutations),
            20 => pages::lock(&self.mutations),
            21 if self.offers.pool => huge::from_pool(&self.mutations),
            22 if self.offers.swap => pages::swap(&self.mutations),
            23 if self.offers.merging => pages::merge(&self.mutations),
            24 if self.offers.nodes => pages::migrate(&self.mutations),
            _ => self.touch(i),
        }
    }

    fn map(&mut self) {
        let pages = 1 + self.rng.below((LARGEST / PAGE) as u64) as usize;
        let shared = self.rng.below(4) == 0;
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let Some(area) = Area::map(pages * PAGE, kind | libc::MAP_NORESERVE) else { return };
        self.areas.push(area);
        if self.rng.below(2) == 0 {
            area.advise(libc::MADV_NOHUGEPAGE);
        }
        self.touch(self.areas.len() - 1);
    }

    /// A random non-empty range of whole pages in an area.
    fn part(&mut self, i: usize) -> Area {
        let area = self.areas[i];
        let pages = (area.bytes / PAGE) as u64;
        let first = self.rng.below(pages);
        let count = 1 + self.rng.below(pages - first);
        Area { start: area.start + first as usize * PAGE, bytes: count as usize * PAGE }
    }

    fn touch(&mut self, i: usize) {
        self.part(i).touch(1);
    }

    fn unmap(&mut self, i: usize) {
        let area = self.areas.swap_remove(i);
        self.mutations.during(Kind::Unmap, || area.unmap());
    }

    /// Grows, shrinks or moves an area.
    fn remap(&mut self, i: usize) {
        let area = self.areas[i];
        let bytes = PAGE * (1 + self.rng.below((LARGEST / PAGE) as u64) as usize);
        let mut start = libc::MAP_FAILED;
        self.mutations.during(Kind::Remap, || {
            let (old, flags) = (area.start as *mut _, libc::MREMAP_MAYMOVE);
            // SAFETY: the area belongs to this thread; the kernel chooses the new address.
            start = unsafe { libc::mremap(old, area.bytes, bytes, flags) };
            start != libc::MAP_FAILED
        });
        if start == libc::MAP_FAILED {
            return;
        }
        // Pages beyond the end of a shared area's object cannot be touched: keep the old size.
        let kept = bytes.min(area.bytes);
        self.areas[i] = Area { start: start as usize, bytes: kept };
        if bytes > kept {
            let tail = Area { start: start as usize + kept, bytes: bytes - kept };
            self.mutations.during(Kind::Unmap, || tail.unmap());
        }
    }

    /// Temporarily removes all access rights of a part of an area.
    fn protect(&mut self, i: usize) {
        let part = self.part(i);
        self.mutations.during(Kind::Protect, || {
            part.protect(libc::PROT_NONE);
            let back = part.protect(libc::PROT_READ | libc::PROT_WRITE);
            assert!(back, "mprotect: {}", io::Error::last_os_error());
            back
        });
    }

    fn advise(&mut self, i: usize, advice: libc::c_int) {
        self.part(i).advise(advice);
    }

    fn collapse(&mut self, i: usize) {
        let part = self.part(i);
        self.mutations.during(Kind::Collapse, || part.advise(MADV_COLLAPSE));
    }

    fn discard(&mut self, i: usize) {
        let part = self.part(i);
        part.touch(1);
        self.mutations.during(Kind::Discard, || part.advise(libc::MADV_DONTNEED));
    }

    /// Forks a child that breaks copy-on-write pages, unmaps some and exits.
    fn fork(&mut self, i: usize) {
        let area = self.areas[i];
        self.mutations.begin(Kind::Fork);
        // SAFETY: the child calls only functions that are safe after fork in a program with
        // threads.
        match unsafe { libc::fork() } {
            0 => {
                area.touch(2);
                area.unmap();
                // SAFETY: runs no code of this program.
                unsafe { libc::_exit(0) }
            }
            -1 => {
                self.mutations.end(Kind::Fork, false);
                eprintln!("mutator: fork: {}", io::Error::last_os_error());
            }
            child => {
                self.mutations.end(Kind::Fork, true);
                // SAFETY: waits for a child of this process; its status is not needed.
                unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
            }
        }
    }
}
