//! Encodes resident memory as metrics of a window, and decodes it.

use std::collections::BTreeMap;

use tierscope_core::{Node, OnNode, Placed, Residence, SpaceId, SpaceResidence, Time};

use crate::encode::Metric;

/// Series: resident bytes of a space.
const RESIDENT: &str = "rss_bytes";
/// Series: sample size in pages, if the bytes by node were estimated from a sample.
const DRAWN: &str = "node_pages_drawn";

/// Name of a node's series: `node0_bytes`.
fn series_of(node: Node) -> String {
    format!("node{}_bytes", node.0)
}

/// The node of a series.
fn node_of(series: &str) -> Option<Node> {
    let number = series.strip_prefix("node")?.strip_suffix("_bytes")?;
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| number.parse().ok().map(Node))?
}

/// Whether a series of that name is about resident memory.
#[must_use]
pub fn is_residence(series: &str) -> bool {
    series == RESIDENT || series == DRAWN || node_of(series).is_some()
}

/// Encodes resident memory; each value has the time of its measurement.
pub(crate) fn metrics(residence: &Residence) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for of in &residence.spaces {
        let mut metric = |time, name: &str, value: u64| {
            let (name, space, value) = (name.into(), Some(of.space), value as f64);
            metrics.push(Metric { time, name, space, value });
        };
        metric(of.taken, RESIDENT, of.bytes);
        let Some(placed) = &of.placed else { continue };
        placed.nodes.iter().for_each(|on| metric(placed.taken, &series_of(on.node), on.bytes));
        if placed.drawn > 0 {
            metric(placed.taken, DRAWN, placed.drawn);
        }
    }
    metrics
}

/// Resident memory by space, decoded from the metrics of a window.
#[must_use]
pub fn residence_of(metrics: &[Metric]) -> Vec<SpaceResidence> {
    let mut spaces = BTreeMap::<SpaceId, SpaceValues>::new();
    for metric in metrics {
        let Some(space) = metric.space else { continue };
        let bytes = metric.value as u64;
        if metric.name == RESIDENT {
            spaces.entry(space).or_default().resident = Some((metric.time, bytes));
        } else if metric.name == DRAWN {
            spaces.entry(space).or_default().drawn = bytes;
        } else if let Some(node) = node_of(&metric.name) {
            let found = spaces.entry(space).or_default();
            found.placed = Some(metric.time);
            found.nodes.push(OnNode { node, bytes });
        }
    }
    spaces.into_iter().filter_map(|(space, found)| found.of(space)).collect()
}

/// Values decoded for a space so far.
#[derive(Default)]
struct SpaceValues {
    resident: Option<(Time, u64)>,
    placed: Option<Time>,
    nodes: Vec<OnNode>,
    drawn: u64,
}

impl SpaceValues {
    /// `None` without a value of the space's resident bytes.
    fn of(self, space: SpaceId) -> Option<SpaceResidence> {
        let (taken, bytes) = self.resident?;
        let (mut nodes, drawn) = (self.nodes, self.drawn);
        nodes.sort_unstable_by_key(|on| on.node);
        let placed = self.placed.map(|taken| Placed { taken, nodes, drawn });
        Some(SpaceResidence { space, taken, bytes, placed, extents: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_series() {
        assert_eq!(series_of(Node(12)), "node12_bytes");
        assert_eq!(node_of("node12_bytes"), Some(Node(12)));
        for other in ["node_bytes", "node+1_bytes", "node1_pages", "nodes1_bytes", "hot_bytes"] {
            assert_eq!(node_of(other), None, "{other}");
            assert!(!is_residence(other), "{other}");
        }
        assert!(["rss_bytes", "node0_bytes", "node_pages_drawn"].into_iter().all(is_residence));
    }

    #[test]
    fn a_node_without_its_space_is_ignored() {
        let lone = |space| Metric { time: Time(1), name: "node0_bytes".into(), space, value: 1.0 };
        assert_eq!(residence_of(&[lone(None), lone(Some(SpaceId(3)))]), []);
    }

    /// Resident bytes; optionally bytes by node, and the sample size in pages.
    type SharesPerNode = (u64, Option<(Vec<(u32, u64)>, u64)>);

    fn space() -> impl Strategy<Value = SharesPerNode> {
        let nodes = prop::collection::btree_map(0u32..5, 0u64..1 << 53, 1..4);
        let placed = (nodes.prop_map(|map| map.into_iter().collect()), 0u64..3);
        (0u64..1 << 53, prop::option::of(placed))
    }

    proptest! {
        // Nodes without bytes may be omitted; recorded nodes are read back.
        #[test]
        fn residence_is_read_back(spaces in prop::collection::vec(space(), 0..4)) {
            let spaces_of = |(id, (bytes, placed)): (usize, &SharesPerNode)| {
                let placed = placed.as_ref().map(|(nodes, drawn)| Placed {
                    taken: Time(5),
                    nodes: nodes.iter().map(|(n, bytes)| OnNode { node: Node(*n), bytes: *bytes }).collect(),
                    drawn: *drawn,
                });
                SpaceResidence { space: SpaceId(id as u32), taken: Time(7), bytes: *bytes, placed, extents: None }
            };
            let all: Vec<_> = spaces.iter().enumerate().map(spaces_of).collect();
            let residence = Residence { spaces: all.clone(), ..Residence::default() };
            prop_assert_eq!(residence_of(&metrics(&residence)), all);
        }
    }
}
