//! What a policy asks for, and what became of it.

use std::time::Duration;

use crate::{Level, Probe, Range, Rule, RuleId, ScanMode, Tier, Time};

/// Names an action of one policy run: dense, in order of issue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// What to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    /// Move its pages to a tier: a promotion or a demotion.
    Move(Tier),
    /// Split its huge pages.
    Split,
    /// Collapse it into huge pages.
    Collapse,
    /// Give its pages back (swap, zswap, write-back).
    Reclaim,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Names it in [`Outcome`]s and in `after`.
    pub id: ActionId,
    /// Not before this one has ended, well or badly (a promotion after the demotion that makes
    /// room for it).
    pub after: Option<ActionId>,
    /// The pages.
    pub range: Range,
    /// What to do with them.
    pub kind: ActionKind,
}

/// A change to the telemetry rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrder {
    /// Install a rule, with a state for each sub-region that its filter lets through, or with that many; its id comes
    /// back with the first [`crate::Evidence::Counters`].
    Register(Rule, Option<u64>),
    /// Let a key select a state, or none.
    Translate(RuleId, u64, Option<u32>),
    /// Read the first n states of a rule now.
    Read(RuleId, u32),
}

/// A scan: every entry of a level in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanOrder {
    /// The addresses.
    pub range: Range,
    /// The level of the entries.
    pub level: Level,
    /// Clear, prune, tell what is present.
    pub mode: ScanMode,
}

impl ScanOrder {
    /// Entries that one call to the machine looks at, at most: 1 GiB of pages. What is longer is scanned,
    /// and answered, in parts.
    pub const ENTRIES: u64 = 1 << 18;

    /// The order in parts that one call takes, in order of address, cut between entries.
    pub fn parts(self) -> impl Iterator<Item = ScanOrder> {
        let bytes = Self::ENTRIES.saturating_mul(self.level.entry_bytes());
        let whole = self.level.align(&self.range);
        let mut next = whole.start;
        std::iter::from_fn(move || {
            if next >= whole.end {
                return None;
            }
            let range =
                Range { start: next, end: next.saturating_add(bytes).min(whole.end), ..whole };
            next = range.end;
            Some(ScanOrder { range, ..self })
        })
    }
}

/// Everything a policy orders in one go; the drive loop relays it and clears it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    /// Entries to test or test-and-clear; answers come as [`crate::Evidence::Bits`].
    pub probes: Vec<Probe>,
    /// Ranges to scan; answers come as [`crate::Evidence::Scanned`], one for each of [`ScanOrder::parts`].
    pub scans: Vec<ScanOrder>,
    /// Ranges to arm for hint faults.
    pub arm: Vec<Range>,
    /// Telemetry rules.
    pub rules: Vec<RuleOrder>,
    /// Moves, splits, collapses, reclaims, in the order in which to start them.
    pub actions: Vec<Action>,
    /// CPU time that the policy spent: charged to the machine in simulation.
    pub work: Duration,
}

impl Orders {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.probes.clear();
        self.scans.clear();
        self.arm.clear();
        self.rules.clear();
        self.actions.clear();
        self.work = Duration::ZERO;
    }
}

/// Why an action, or a part of it, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The destination has no room.
    NoRoom,
    /// Pages are pinned, locked or under write-back.
    Busy,
    /// Pages are shared with others and may not be moved by us.
    Shared,
    /// The range is not mapped, or not any more.
    Unmapped,
    /// The target is gone.
    Gone,
    /// The caller may not do it.
    Permission,
    /// The machine cannot do it.
    Unsupported,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The action.
    pub id: ActionId,
    /// When it ended.
    pub time: Time,
    /// Bytes done.
    pub done: u64,
    /// Bytes not done.
    pub failed: u64,
    /// Why, if any failed: the most frequent cause.
    pub why: Option<Failure>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    // 2.5 GiB of pages are three calls; of PMD entries, one; nothing is none.
    #[test]
    fn a_long_scan_is_cut_between_entries() {
        let of = |level, from: u64, to: u64| {
            let range = Range::new(SpaceId(0), from << 20, to << 20);
            let parts = ScanOrder { range, level, mode: ScanMode::default() }.parts();
            parts.map(|part| (part.range.start >> 20, part.range.end >> 20)).collect::<Vec<_>>()
        };
        assert_eq!(of(Level::PTE, 1, 2561), [(1, 1025), (1025, 2049), (2049, 2561)]);
        assert_eq!(of(Level::PMD, 1, 2561), [(0, 2562)]);
        assert_eq!(of(Level::PTE, 7, 7), []);
    }
}
