//! Totals of the displayed window.

use std::time::Duration;

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{Mappings, Region};
use tierscope_record::Commit;

/// Period over which CPU shares are averaged, so that they are readable.
const RECENT: Duration = Duration::from_secs(5);

/// Shares of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuShares {
    /// Profiler, over the last [`RECENT`] seconds.
    pub(crate) profiler: f64,
    /// Profiler, since the recording began, including its start-up.
    pub(crate) profiler_mean: f64,
    /// Target, over the last [`RECENT`] seconds.
    pub(crate) target: f64,
}

impl CpuShares {
    /// CPU shares at the end of window `head`.
    pub(crate) fn at(commits: &[Commit], head: usize) -> Self {
        let now = &commits[head];
        let since = tierscope_core::Time(now.end.0.saturating_sub(RECENT.as_nanos() as u64));
        let from = commits[..head].partition_point(|row| row.end <= since);
        // The first window has no predecessor: its CPU time counts from its start.
        let before = head.checked_sub(1).map(|last| &commits[from.min(last)]);
        let (start, cpu) = before.map_or((now.start, Default::default()), |row| (row.end, row.cpu));
        let share = |cpu: Duration, span: Duration| match span.as_secs_f64() {
            seconds if seconds > 0.0 => cpu.as_secs_f64() / seconds,
            _ => 0.0,
        };
        let span = now.end.since(start);
        Self {
            profiler: share(now.cpu.profiler.saturating_sub(cpu.profiler), span),
            profiler_mean: share(now.cpu.profiler, now.end.since(commits[0].start)),
            target: share(now.cpu.target.saturating_sub(cpu.target), span),
        }
    }
}

/// Bytes probed with too little evidence.
pub(crate) fn unknown(regions: &[Region]) -> u64 {
    let unknown = regions.iter().filter(|region| region.is_unknown() && !region.is_unseen());
    unknown.map(Region::bytes).fold(0, u64::saturating_add)
}

/// Bytes on a memory node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) hot: u64,
}

/// Bytes by node, if every space is a node's physical one. Virtual addresses do not reveal the
/// nodes of their pages.
pub(crate) fn nodes(layout: &Mappings, regions: &[Region]) -> Option<Vec<Node>> {
    let physical = |name: &str| {
        let number = name.strip_prefix("node ");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let all = !layout.spaces.is_empty() && layout.spaces.iter().all(|space| physical(&space.name));
    let node = |space: &tierscope_core::Space| {
        let of = layout.mappings.iter().filter(|mapping| mapping.range.space == space.id);
        let here = regions.iter().filter(|region| region.range.space == space.id);
        let hot = here.filter(|region| region.is_hot(HOT_FREQUENCY));
        Node {
            name: space.name.to_string(),
            bytes: of.map(|mapping| mapping.range.bytes()).sum(),
            hot: hot.map(Region::bytes).sum(),
        }
    };
    all.then(|| layout.spaces.iter().map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Backing, Mapping, Range, Space, SpaceId, Time};

    fn layout(names: &[&str]) -> Mappings {
        let ids = (0..).map(SpaceId);
        let space = |(id, name): (SpaceId, &&str)| Space { id, name: (*name).into() };
        let mapping = |(id, _): (SpaceId, &&str)| Mapping {
            range: Range::new(id, 0, 1 << 20),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        };
        Mappings {
            taken: Time(0),
            spaces: ids.clone().zip(names).map(space).collect(),
            mappings: ids.zip(names).map(mapping).collect(),
            ..Mappings::default()
        }
    }

    #[test]
    fn nodes_are_shown_where_spaces_are_nodes() {
        let range = Range::new(SpaceId(1), 0, 4096);
        let hot = Region::sampled(range, 9.0, 9);
        let node = |name: &str, hot| Node { name: name.into(), bytes: 1 << 20, hot };
        let bytes = nodes(&layout(&["node 0", "node 1"]), &[hot]);
        assert_eq!(bytes, Some(vec![node("node 0", 0), node("node 1", 4096)]));
        assert_eq!(nodes(&layout(&["node 0", "node[17]"]), &[hot]), None);
        assert_eq!(nodes(&layout(&[]), &[]), None);
    }
}
