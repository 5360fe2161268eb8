//! Resident memory of the target, by tier.

use std::collections::BTreeMap;

use serde::Serialize;
use tierscope_core::units;
use tierscope_core::{Node, SpaceResidence};
use tierscope_record::Meta;

use crate::view::View;

/// A tier as recorded: a set of memory nodes of similar speed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TierName {
    /// Its number, 0 being the fastest; `None` for a node that is in no recorded tier.
    pub tier: Option<u8>,
    /// Numbers of its nodes.
    pub nodes: Vec<u32>,
}

impl TierName {
    /// Short form, for narrow output: `tier 0`.
    pub(crate) fn short(&self) -> String {
        self.tier.map_or_else(|| self.text(), |tier| format!("tier {tier}"))
    }

    /// Long form: `tier 0 (node 0)`.
    #[must_use]
    pub fn text(&self) -> String {
        let nodes = self.nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let nodes = format!("node{} {nodes}", if self.nodes.len() == 1 { "" } else { "s" });
        self.tier.map_or(nodes.clone(), |tier| format!("tier {tier} ({nodes})"))
    }
}

/// The tiers, and the nodes of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tiers {
    pub(crate) names: Vec<TierName>,
}

impl Tiers {
    /// The tiers in the recording's metadata.
    pub(crate) fn of(meta: &Meta) -> Self {
        let name = |(tier, nodes): (u8, &Vec<Node>)| TierName {
            tier: Some(tier),
            nodes: nodes.iter().map(|node| node.0).collect(),
        };
        Self { names: (0..).zip(&meta.machine.tiers).map(name).collect() }
    }

    /// The index of a node's tier in [`Tiers::names`]; a node without a tier is added as an entry
    /// of its own.
    fn index_of(&mut self, node: Node) -> usize {
        let known = self.names.iter().position(|name| name.nodes.contains(&node.0));
        known.unwrap_or_else(|| {
            self.names.push(TierName { tier: None, nodes: vec![node.0] });
            self.names.len() - 1
        })
    }

    /// The number of a node's tier as a metric label; empty if it has none.
    pub(crate) fn label_of(&self, node: Node) -> String {
        let name = self.names.iter().find(|name| name.nodes.contains(&node.0));
        name.and_then(|name| name.tier).map_or(String::new(), |tier| tier.to_string())
    }
}

/// Resident memory in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InMemory {
    /// Resident bytes.
    pub(crate) bytes: u64,
    /// Resident bytes by tier, indexed like [`Tiers::names`]; empty if not measured yet.
    pub(crate) tiers: Vec<u64>,
    /// Bytes of spaces whose tiers are not known.
    pub(crate) unplaced: u64,
    /// Minimum over the spaces of the number of pages that the tiers were estimated from; 0 if all
    /// pages were counted.
    pub(crate) drawn: u64,
}

impl InMemory {
    /// Sum over the spaces in the view; `None` if not recorded, or if only some addresses are in
    /// the view, for which there are no figures.
    pub(crate) fn of(spaces: &[SpaceResidence], tiers: &mut Tiers, view: &View) -> Option<Self> {
        let mut sum = Self::default();
        let mut nodes = BTreeMap::<Node, u64>::new();
        let mut any = false;
        for of in spaces.iter().filter(|of| view.shows(of.space) && !view.is_partial()) {
            any = true;
            add(&mut sum.bytes, of.bytes);
            let Some(placed) = &of.placed else {
                add(&mut sum.unplaced, of.bytes);
                continue;
            };
            placed.nodes.iter().for_each(|on| add(nodes.entry(on.node).or_default(), on.bytes));
            sum.drawn = match (sum.drawn, placed.drawn) {
                (0, one) | (one, 0) => one,
                (one, other) => one.min(other),
            };
        }
        for (node, bytes) in &nodes {
            let index = tiers.index_of(*node);
            sum.tiers.resize(sum.tiers.len().max(tiers.names.len()), 0);
            add(&mut sum.tiers[index], *bytes);
        }
        any.then_some(sum)
    }

    /// The resident bytes in total and by tier, as one line of text.
    pub(crate) fn text(&self, tiers: &Tiers) -> String {
        let mut parts = vec![format!("resident {}", units::about_size(self.bytes))];
        let part = |(name, bytes): (&TierName, &u64)| {
            format!("{} {}", name.text(), units::about_size(*bytes))
        };
        parts.extend(tiers.names.iter().zip(&self.tiers).map(part));
        if self.tiers.is_empty() {
            parts.push("tiers not known yet".into());
        } else if self.unplaced > 0 {
            parts.push(format!("{} not looked at yet", units::about_size(self.unplaced)));
        }
        if self.drawn > 0 {
            parts.push(format!("estimated from {} pages", self.drawn));
        }
        parts.join(" · ")
    }
}

/// Text for recordings without this data.
pub(crate) const NOT_TOLD: &str = "resident bytes and tiers: not in this recording";

/// Adds without overflow, for spaces of up to 2^64 bytes.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{OnNode, Placed, SpaceId, Time};
    use tierscope_record::Machine;

    const MIB: u64 = 1 << 20;

    fn space(id: u32, mib: u64, placed: Option<(&[(u32, u64)], u64)>) -> SpaceResidence {
        let placed = placed.map(|(nodes, drawn)| Placed {
            taken: Time(0),
            nodes: nodes
                .iter()
                .map(|(n, mib)| OnNode { node: Node(*n), bytes: mib * MIB })
                .collect(),
            drawn,
        });
        SpaceResidence {
            space: SpaceId(id),
            taken: Time(0),
            bytes: mib * MIB,
            placed,
            extents: None,
        }
    }

    fn two_tiers() -> Tiers {
        let tiers = vec![vec![Node(0), Node(1)], vec![Node(2)]];
        Tiers::of(&Meta { machine: Machine { tiers, ..Machine::default() }, ..Meta::default() })
    }

    #[test]
    fn nodes_add_up_to_tiers() {
        let mut tiers = two_tiers();
        let spaces = [
            space(0, 10, Some((&[(0, 3), (1, 2), (2, 5)], 0))),
            space(1, 4, Some((&[(2, 4)], 900))),
            space(2, 7, None),
        ];
        let sum = InMemory::of(&spaces, &mut tiers, &View::default()).unwrap();
        assert_eq!((sum.bytes, &*sum.tiers), (21 * MIB, &[5 * MIB, 9 * MIB][..]));
        assert_eq!(
            sum.text(&tiers),
            "resident 21 MiB · tier 0 (nodes 0, 1) 5 MiB · tier 1 (node 2) 9 MiB · \
             7 MiB not looked at yet · estimated from 900 pages"
        );
        let one = View { space: Some(SpaceId(2)), ..View::default() };
        let sum = InMemory::of(&spaces, &mut tiers, &one).unwrap();
        assert_eq!(sum.text(&tiers), "resident 7 MiB · tiers not known yet");
        let part = View { addresses: Some(0..9), ..View::default() };
        assert_eq!(InMemory::of(&spaces, &mut tiers, &part), None);
    }

    #[test]
    fn a_node_of_no_tier_has_its_own_name() {
        let mut tiers = two_tiers();
        let sum = InMemory::of(&[space(0, 1, Some((&[(7, 1)], 0)))], &mut tiers, &View::default());
        assert_eq!(sum.unwrap().tiers, [0, 0, MIB]);
        assert_eq!(tiers.names[2].text(), "node 7");
        assert_eq!((tiers.label_of(Node(7)), tiers.label_of(Node(2))), (String::new(), "1".into()));
    }
}
