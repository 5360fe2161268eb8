//! Scope of the live screen: everything, a process, one of its mappings, or a region.

use tierscope_core::{Backing, Mappings, Range, RangeSet, Region, SpaceId};

use super::table::Kind;

/// A step of narrowing: from everything to a space, then to a range of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) scope: Scope,
    /// Name of the scope, for the title.
    pub(crate) name: String,
    /// Kind of table shown before the step.
    pub(crate) before: Kind,
}

/// A part of the target's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All memory of the target.
    #[default]
    All,
    /// The memory of one space.
    Space(SpaceId),
    /// A mapping, or a region.
    Range(Range),
}

impl Scope {
    /// The part of `range` within the scope.
    pub(crate) fn clip(&self, range: &Range) -> Option<Range> {
        match self {
            Scope::All => (!range.is_empty()).then_some(*range),
            Scope::Space(space) => (range.space == *space && !range.is_empty()).then_some(*range),
            Scope::Range(scope) => scope.intersect(range),
        }
    }

    /// The addresses of the scope: its mappings; in recordings without mappings, the regions.
    pub(crate) fn domain(&self, layout: &Mappings, regions: &[Region]) -> RangeSet {
        let visible = layout.mappings.iter().filter(|mapping| mapping.backing != Backing::Kernel);
        let mapped: RangeSet = visible.filter_map(|mapping| self.clip(&mapping.range)).collect();
        if !mapped.is_empty() {
            return mapped;
        }
        regions.iter().filter_map(|region| self.clip(&region.range)).collect()
    }
}
