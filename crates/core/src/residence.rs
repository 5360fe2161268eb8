//! How much of a target is in memory, and on which nodes.

use crate::{SpaceId, Time};

/// A memory node, by the machine's own number. One or more of them are a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// Bytes on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnNode {
    /// The node.
    pub node: Node,
    /// Bytes.
    pub bytes: u64,
}

/// Where the resident bytes of a space are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// When they were there.
    pub taken: Time,
    /// By node, ascending; nodes that hold nothing may be left out.
    pub nodes: Vec<OnNode>,
    /// 0 if every page was counted. Else so many resident pages were drawn at random, and their
    /// shares of the nodes stand for all: a share is off by `sqrt(share * (1 - share) / drawn)`.
    pub drawn: u64,
}

/// What of a space is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceResidence {
    /// The space.
    pub space: SpaceId,
    /// When it was so.
    pub taken: Time,
    /// Resident bytes, those of huge-page pools included. What spaces share counts in each.
    pub bytes: u64,
    /// Where; `None` if nobody has looked yet, or the machine does not say.
    pub placed: Option<Placed>,
}

/// What of a target is in memory, as it was found last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    /// The nodes of each tier, fastest tier first; empty if the machine does not say.
    pub tiers: Vec<Vec<Node>>,
    /// Spaces that were looked at, ascending.
    pub spaces: Vec<SpaceResidence>,
}
