//! Orders of a policy, and their outcomes.

use std::time::Duration;

use crate::{Level, Probe, Range, Rule, RuleId, ScanMode, Tier, Time};

/// Id of an action within one policy run: dense, in order of issue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// Operation on a range.
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

/// An order to the mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its id, used in [`Outcome`]s and in `after`.
    pub id: ActionId,
    /// Start only after this action has ended, whether it succeeded or not (a promotion after the
    /// demotion that makes room for it).
    pub after: Option<ActionId>,
    /// The pages to operate on.
    pub range: Range,
    /// The operation on the pages.
    pub kind: ActionKind,
}

/// A change to the telemetry rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrder {
    /// Install a rule with this number of states, or with `None` a state for each sub-region that
    /// its filter accepts. The first [`crate::Evidence::Counters`] returns its id.
    Register(Rule, Option<u64>),
    /// Map a key to a state, or to none.
    Translate(RuleId, u64, Option<u32>),
    /// Read the first n states of a rule now.
    Read(RuleId, u32),
}

/// A scan: every entry of a level in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanOrder {
    /// The addresses to scan.
    pub range: Range,
    /// The level of the entries.
    pub level: Level,
    /// Whether to clear, to prune, and to report present entries.
    pub mode: ScanMode,
}

impl ScanOrder {
    /// Maximum number of entries per call to the machine: 1 GiB of pages. A longer scan is carried
    /// out, and answered, in parts.
    pub const ENTRIES: u64 = 1 << 18;

    /// Splits the order into parts of at most [`ScanOrder::ENTRIES`] entries, in order of address.
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

/// All orders of one call of a policy; the drive loop relays and clears them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    /// Entries to probe; the answers arrive as [`crate::Evidence::Bits`].
    pub probes: Vec<Probe>,
    /// Ranges to scan; the answers arrive as [`crate::Evidence::Scanned`], one for each of
    /// [`ScanOrder::parts`].
    pub scans: Vec<ScanOrder>,
    /// Ranges to arm for hint faults.
    pub arm: Vec<Range>,
    /// Changes to the telemetry rules.
    pub rules: Vec<RuleOrder>,
    /// Moves, splits, collapses, reclaims, in the order in which to start them.
    pub actions: Vec<Action>,
    /// CPU time that the policy spent: charged to the machine in simulation.
    pub work: Duration,
}

impl Orders {
    /// Empties the orders and keeps their buffers.
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
    /// Pages are shared with other processes and may not be moved.
    Shared,
    /// The range is not mapped, or no longer mapped.
    Unmapped,
    /// The target is gone.
    Gone,
    /// Permission was denied.
    Permission,
    /// The machine cannot do it.
    Unsupported,
}

/// Outcome of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The action that ended.
    pub id: ActionId,
    /// When the action ended.
    pub time: Time,
    /// Bytes of the action that were carried out.
    pub done: u64,
    /// Bytes of the action that failed.
    pub failed: u64,
    /// The most frequent cause, if any bytes failed.
    pub why: Option<Failure>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    // 2.5 GiB of pages take three calls, of PMD entries one, an empty range none.
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
