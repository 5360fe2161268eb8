//! Address spaces: the mappings of a process, and the placement of its memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_core::{Backing, PageId, Range, SpaceId};
use tierscope_hw::{PageSize, Root};

use super::cpu_set::CpuSet;
use crate::placement::Placement;

/// Memory to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address; `None` for any free one.
    pub at: Option<u64>,
    /// Bytes, in whole pages.
    pub bytes: u64,
    /// 4 KiB: small pages only; 2 MiB: huge pages where they fit, as transparent huge pages; 1 GiB:
    /// hugetlbfs pages.
    pub pages: PageSize,
    /// Whether stores are allowed.
    pub writable: bool,
    /// Tiers that the mapping's pages come from.
    pub placement: Placement,
    /// Anonymous memory or a file.
    pub backing: Backing,
    /// Name, for reports.
    pub name: Arc<str>,
}

impl Map {
    /// Anonymous, writable memory of 4 KiB pages, placed by first touch.
    #[must_use]
    pub fn anonymous(bytes: u64) -> Self {
        Self {
            at: None,
            bytes,
            pages: PageSize::K4,
            writable: true,
            placement: Placement::FirstTouch,
            backing: Backing::Anonymous,
            name: "".into(),
        }
    }
}

/// A mapping of a space.
#[derive(Clone, Debug)]
pub(in crate::exact) struct Vma {
    pub(in crate::exact) end: u64,
    pub(super) pages: PageSize,
    pub(super) writable: bool,
    /// Whether the mapping's pages are locked and may not be moved (mlock(2)).
    pub(super) locked: bool,
    /// Whether the mapping's pages are placed in the uncached region, as far as there is room.
    pub(super) watched: bool,
    pub(super) placement: Placement,
    pub(super) backing: Backing,
    pub(super) name: Arc<str>,
    /// Number of the mapping's first page; the others are consecutive.
    pub(in crate::exact) first_page: PageId,
}

/// A process's address space.
pub(in crate::exact) struct Space {
    pub(super) id: SpaceId,
    pub(super) name: Arc<str>,
    pub(in crate::exact) root: Root,
    /// Mappings by first byte.
    pub(in crate::exact) vmas: BTreeMap<u64, Vma>,
    /// Highest level of the space's tables in the uncached region; 0 for none.
    pub(super) uncached: u8,
    /// Whether the space has data in the uncached region.
    pub(super) watched: bool,
    /// Whether walks to the space's pages are trapped.
    pub(in crate::exact) trapped: bool,
    /// Cores that may cache translations of the space.
    pub(in crate::exact) cpus: CpuSet,
    pub(in crate::exact) alive: bool,
    /// Resident frames, by tier.
    pub(in crate::exact) resident: Vec<u64>,
}

impl Space {
    /// The mapping that holds the address, and its first byte.
    pub(in crate::exact) fn vma(&self, linear: u64) -> Option<(u64, &Vma)> {
        let (start, vma) = self.vmas.range(..=linear).next_back()?;
        (linear < vma.end).then_some((*start, vma))
    }

    /// Whether a mapping overlaps `start..end`.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.vmas.range(..end).next_back().is_some_and(|(_, vma)| vma.end > start)
    }

    /// A free range of that many bytes, aligned, above all mappings and above 4 GiB; returns its
    /// start.
    pub(in crate::exact) fn room(&self, bytes: u64, align: u64) -> Option<u64> {
        let last = self.vmas.values().next_back().map_or(0, |vma| vma.end);
        let start = last.max(1 << 32).checked_next_multiple_of(align)?;
        start.checked_add(bytes).map(|_| start)
    }

    /// Highest level of a mapping's tables in the uncached region: tables whose entries map its
    /// pages.
    pub(super) fn uncached_of(&self, vma: &Vma) -> u8 {
        if vma.pages == PageSize::K4 { self.uncached.min(1) } else { self.uncached }
    }

    pub(super) fn range(&self, start: u64, end: u64) -> Range {
        Range::new(self.id, start, end)
    }
}
