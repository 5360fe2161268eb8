//! What the screen is narrowed to: a process, a mapping of it, a region of that.

use tierscope_core::{Backing, Mappings, Range, RangeSet, Region, SpaceId};

use super::table::Kind;

/// A step down: from everything to a space, on to a range of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) scope: Scope,
    /// Its name, for the title.
    pub(crate) name: String,
    /// What the table showed before.
    pub(crate) before: Kind,
}

/// A part of the target's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of it.
    #[default]
    All,
    /// A space.
    Space(SpaceId),
    /// A mapping, or a region.
    Range(Range),
}

impl Scope {
    /// The part of `range` in it.
    pub(crate) fn clip(&self, range: &Range) -> Option<Range> {
        match self {
            Scope::All => (!range.is_empty()).then_some(*range),
            Scope::Space(space) => (range.space == *space && !range.is_empty()).then_some(*range),
            Scope::Range(scope) => scope.intersect(range),
        }
    }

    /// What there is of it: the mappings; of recordings without any, what was looked at.
    pub(crate) fn domain(&self, layout: &Mappings, regions: &[Region]) -> RangeSet {
        let told = layout.mappings.iter().filter(|mapping| mapping.backing != Backing::Kernel);
        let mapped: RangeSet = told.filter_map(|mapping| self.clip(&mapping.range)).collect();
        if !mapped.is_empty() {
            return mapped;
        }
        regions.iter().filter_map(|region| self.clip(&region.range)).collect()
    }
}
