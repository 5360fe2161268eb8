//! Resident memory of a target, by node.

use std::sync::Arc;

use crate::{Charge, Range, SpaceId, Time};

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
    /// at the time. `None` if not reported by the machine; of mappings that it has not measured
    /// yet, it may report even extents.
    pub extents: Option<Arc<[Extent]>>,
    /// Bytes by node; `None` if not measured yet, or not reported by the machine.
    pub placed: Option<Placed>,
}

impl SpaceResidence {
    /// Corrects the resident bytes; the nodes keep their shares of them.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
        if let Some(placed) = &mut self.placed {
            placed.nodes = distribute(bytes, &placed.nodes);
        }
    }
}

/// Distributes `bytes` in proportion to `nodes`, rounded down; empty if those hold nothing.
#[must_use]
pub fn distribute(bytes: u64, nodes: &[OnNode]) -> Vec<OnNode> {
    let all: u128 = nodes.iter().map(|on| u128::from(on.bytes)).sum();
    let share = |of: u64| (u128::from(bytes) * u128::from(of)).checked_div(all).map(|b| b as u64);
    let on = |on: &OnNode| share(on.bytes).map(|bytes| OnNode { node: on.node, bytes });
    nodes.iter().filter_map(on).collect()
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
    /// Memory of the whole target that is in none of its page tables: bytes, or events so far. What
    /// the machine does not report is absent.
    pub charges: Vec<(Charge, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(node: u32, bytes: u64) -> OnNode {
        OnNode { node: Node(node), bytes }
    }

    #[test]
    fn nodes_keep_their_shares_of_corrected_bytes() {
        let placed = Some(Placed { taken: Time(1), nodes: vec![on(0, 3), on(1, 1)], drawn: 0 });
        let (space, taken, extents) = (SpaceId(0), Time(2), None);
        let mut of = SpaceResidence { space, taken, bytes: 4, extents, placed };
        of.set_bytes(8);
        assert_eq!((of.bytes, of.placed.unwrap().nodes), (8, vec![on(0, 6), on(1, 2)]));
        assert_eq!(distribute(8, &[]), []);
        assert_eq!(distribute(8, &[on(0, 0)]), []);
    }
}
