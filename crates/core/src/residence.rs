//! Resident memory of a target, by node.

use std::sync::Arc;

use crate::{Range, SpaceId, Time};

/// A memory node, by the machine's own number. A tier consists of one or more nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// Resident bytes on a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnNode {
    /// The memory node.
    pub node: Node,
    /// Resident bytes on the node.
    pub bytes: u64,
}

/// Resident bytes of a space, by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// When the bytes were counted.
    pub taken: Time,
    /// Bytes by node, ascending; nodes that hold nothing may be left out.
    pub nodes: Vec<OnNode>,
    /// 0 if every page was counted. Otherwise the number of resident pages drawn at random, from
    /// whose nodes the shares are estimated; the standard error of a share is
    /// `sqrt(share * (1 - share) / drawn)`.
    pub drawn: u64,
}

/// Resident and swapped bytes of a part of a space, taken as spread evenly over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The part.
    pub range: Range,
    /// Resident bytes in it, at most its size.
    pub resident: u64,
    /// Bytes in swap, zswap included.
    pub swapped: u64,
}

/// Resident memory of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceResidence {
    /// The measured space.
    pub space: SpaceId,
    /// When the space was measured.
    pub taken: Time,
    /// Resident bytes, huge-page pools included. Memory of the shared space
    /// ([`crate::Mappings::shared`]) counts there only.
    pub bytes: u64,
    /// Parts that hold resident or swapped memory, sorted, disjoint; nothing else of the space did
    /// at the time. `None` if not measured yet, or not reported by the machine.
    pub extents: Option<Arc<[Extent]>>,
    /// Bytes by node; `None` if not measured yet, or not reported by the machine.
    pub placed: Option<Placed>,
}

/// Resident memory of a target, as last measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residence {
    /// The nodes of each tier, fastest tier first; empty if the machine does not report them.
    pub tiers: Vec<Vec<Node>>,
    /// The measured spaces, ascending.
    pub spaces: Vec<SpaceResidence>,
    /// Swapped bytes of the whole target that are compressed in memory by zswap, at their original
    /// size; `None` if the machine does not report them.
    pub zswapped: Option<u64>,
}
