//! Compares records of TLB misses with the guest's own page map, and their number with a model that
//! is fed with the records of accesses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use tierscope_wire::{RawAccess, Record, TlbMiss};

use super::naive::Tlb;
use super::{broken, json};
use crate::error::{Context, Result};

/// Result of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Records of misses in the buffer's pages.
    pub(crate) records: u64,
    /// Records whose page-table entry has the same frame as the page map.
    pub(crate) agreeing: u64,
    /// TLB misses of the program.
    pub(crate) misses: u64,
    /// TLB misses of the naive model for the program's accesses.
    pub(crate) expected: u64,
}

const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// L1 and L2 TLB of qemu-two-tiers for pages of 4 KiB: entries and ways.
const FIRST: (usize, usize) = (64, 4);
const SECOND: (usize, usize) = (1536, 12);

/// Compares the results of a run in `out`.
pub(crate) fn read(out: &Path) -> Result<Found> {
    let frames = read_pagemap(&out.join("pagemap.txt"))?;
    let space = json(&out.join("misses.json"))?["space"].as_u64().unwrap_or(u64::MAX);
    let mut found = Found::default();
    for cpu in 0..2 {
        let accesses = read_accesses(&out.join(format!("raw-{cpu}.bin")))?;
        let misses = read_misses(&out.join(format!("tlb-{cpu}.bin")))?;
        judge(&frames, space, &accesses, &misses, &mut found);
    }
    Ok(found)
}

impl Found {
    /// Whether every record agrees with the page map, and their number with the model.
    pub(crate) fn check(&self) -> Result<()> {
        if self.records == 0 || self.records != self.agreeing {
            let (agreeing, records) = (self.agreeing, self.records);
            return Err(broken(format!("{agreeing} of {records} records agree with the page map")));
        }
        if self.misses != self.expected {
            let (misses, expected) = (self.misses, self.expected);
            return Err(broken(format!("{misses} misses, an independent model has {expected}")));
        }
        Ok(())
    }
}

/// Frames by linear page number.
type Frames = BTreeMap<u64, u64>;

fn read_pagemap(path: &Path) -> Result<Frames> {
    let text = fs::read_to_string(path).at(path.display())?;
    parse_pagemap(&text).ok_or_else(|| broken(format!("{} makes no sense", path.display())))
}

fn parse_pagemap(text: &str) -> Option<Frames> {
    let mut lines = text.lines().map(|line| u64::from_str_radix(line, 16));
    let first = lines.next()?.ok()? >> 12;
    lines.enumerate().map(|(page, frame)| Some((first + page as u64, frame.ok()?))).collect()
}

fn words(path: &Path) -> Result<Vec<u64>> {
    let bytes = fs::read(path).at(path.display())?;
    Ok(bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect())
}

fn read_accesses(path: &Path) -> Result<Vec<RawAccess>> {
    Ok(words(path)?.chunks_exact(RawAccess::WORDS).filter_map(RawAccess::read).collect())
}

/// Reads the records of TLB misses, each with the guest's page-table entry.
fn read_misses(path: &Path) -> Result<Vec<(TlbMiss, u64)>> {
    let record = |words: &[u64]| Some((TlbMiss::read(words)?, words[TlbMiss::WORDS]));
    Ok(words(path)?.chunks_exact(TlbMiss::WORDS + 1).filter_map(record).collect())
}

fn judge(
    frames: &Frames,
    space: u64,
    accesses: &[RawAccess],
    misses: &[(TlbMiss, u64)],
    found: &mut Found,
) {
    let mut roots = BTreeSet::new();
    for (miss, entry) in misses {
        if let Some(frame) = frames.get(&(miss.address >> 12)) {
            found.records += 1;
            found.agreeing += u64::from((entry & FRAME) >> 12 == *frame);
            roots.insert(miss.root);
        }
    }
    let mut tlb = Tlb::new(FIRST, SECOND);
    let own = accesses.iter().filter(|access| u64::from(access.space) == space);
    found.expected += own.filter(|access| tlb.access(access.address >> 12)).count() as u64;
    // Misses of other processes have another root table.
    found.misses += misses.iter().filter(|(miss, _)| roots.contains(&miss.root)).count() as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Level, Time};

    fn access(page: u64, space: u8) -> RawAccess {
        RawAccess {
            address: page << 12,
            size_log2: 3,
            store: false,
            non_temporal: false,
            time: Time(0),
            cpu: 0,
            space,
        }
    }

    fn miss(page: u64) -> TlbMiss {
        TlbMiss {
            time: Time(0),
            address: page << 12,
            entry: 8,
            level: Level::PTE,
            root: 0x1000,
            cpu: 0,
        }
    }

    #[test]
    fn records_are_held_against_frames_and_counts_against_the_model() {
        let frames = parse_pagemap("5000\n9\na\n").unwrap();
        assert_eq!(frames, BTreeMap::from([(5, 9), (6, 10)]));
        let accesses = [access(5, 1), access(5, 1), access(6, 1), access(7, 2)];
        let mut found = Found::default();
        judge(&frames, 1, &accesses, &[(miss(5), 0x9067), (miss(6), 0xb067)], &mut found);
        assert_eq!(found, Found { records: 2, agreeing: 1, misses: 2, expected: 2 });
    }

    #[test]
    fn records_and_counts_must_agree() {
        let holds = |agreeing, misses| {
            Found { records: 9, agreeing, misses, expected: 100 }.check().is_ok()
        };
        assert!(holds(9, 100));
        assert!(!holds(8, 100) && !holds(9, 99) && !holds(9, 101));
    }

    #[test]
    fn a_damaged_page_map_is_refused() {
        assert_eq!(parse_pagemap(""), None);
        assert_eq!(parse_pagemap("5000\nx"), None);
    }
}
