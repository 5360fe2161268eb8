//! Memory mode: the fastest tier is a direct-mapped, write-back cache of 64-byte lines in front of
//! the next one, and no memory of its own (Intel Optane persistent memory, memory mode).

use tierscope_core::Result;

use crate::exact::arena::Arena;

const VALID: u8 = 1;
const DIRTY: u8 = 2;
const TAG_SHIFT: u32 = 2;
/// Number of distinct tags in a byte: the largest ratio of far memory to near memory.
pub(super) const MAX_RATIO: u64 = 1 << (8 - TAG_SHIFT);

/// The tags of the near memory, one byte a line.
pub(super) struct NearMemory {
    tags: Arena<u8>,
    lines: u64,
}

/// Result of an access to the near memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) hit: bool,
    /// A dirty line had to be written back.
    pub(super) writeback: bool,
}

impl NearMemory {
    pub(super) fn new(mib: u64) -> Result<Self> {
        let lines = mib << 14;
        let mut tags = Arena::new();
        tags.reach(lines as usize)?;
        Ok(Self { tags, lines })
    }

    /// Reads or writes the line at an address, counted from the first byte of the far memory.
    #[inline]
    pub(super) fn access(&mut self, address: u64, write: bool) -> Found {
        let line = address >> 6;
        let tag = ((line / self.lines) as u8) << TAG_SHIFT | VALID;
        let place = &mut self.tags[(line % self.lines) as usize];
        let hit = *place & !DIRTY == tag;
        let writeback = !hit && *place & DIRTY != 0;
        let kept = if hit { *place & DIRTY } else { 0 };
        *place = tag | kept | if write { DIRTY } else { 0 };
        Found { hit, writeback }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_a_cache_size_apart_evict_each_other() {
        let mut near = NearMemory::new(1).expect("16 KiB of tags");
        let go = |near: &mut NearMemory, address, write| {
            let found = near.access(address, write);
            (found.hit, found.writeback)
        };
        assert_eq!(go(&mut near, 64, true), (false, false));
        assert_eq!(go(&mut near, 64 + 63, false), (true, false));
        assert_eq!(go(&mut near, 64 + (1 << 20), false), (false, true), "dirty");
        assert_eq!(go(&mut near, 64, false), (false, false), "clean");
    }
}
