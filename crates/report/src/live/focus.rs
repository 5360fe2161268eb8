//! Scope of the live screen: everything, a process, one of its mappings, or a region.

use tierscope_core::{Range, SpaceId};

use super::table::Kind;
use crate::view::View;

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

    /// The scope as the view of a report.
    pub(crate) fn view(&self) -> View {
        match self {
            Scope::All => View::default(),
            Scope::Space(space) => View { space: Some(*space), ..View::default() },
            Scope::Range(Range { space, start, end }) => {
                View { space: Some(*space), addresses: Some(*start..*end), ..View::default() }
            }
        }
    }
}
