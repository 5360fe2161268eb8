//! Assignment of memory nodes to tiers: from the kernel, the firmware, or the user's configuration.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Node, Result};

use crate::mover::kernel::node_memory;

/// The user's configuration of tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierConfig {
    /// Nodes of each tier, fastest first; empty for automatic detection.
    pub nodes: Vec<Vec<u32>>,
    /// Bytes of the target that a tier may hold, fastest first; if missing or `None`, all of its
    /// nodes' memory.
    pub capacity: Vec<Option<u64>>,
}

/// Maximum number of tiers.
pub(crate) const MOST_TIERS: usize = 8;

/// The tiers to move pages between: at least two, all of them with memory.
///
/// # Errors
/// [`ErrorKind::Missing`] if there is only one tier; [`ErrorKind::Usage`] for missing or repeated
/// nodes, and for a tier without capacity.
pub(crate) fn find(sys: &Path, config: &TierConfig) -> Result<Vec<Vec<Node>>> {
    let found = match config.nodes.is_empty() {
        true => tiers(sys),
        false => config.nodes.iter().map(|tier| tier.iter().copied().map(Node).collect()).collect(),
    };
    check_nodes(sys, &found)?;
    if found.len() < 2 {
        return Err(Error::new(ErrorKind::Missing, "there is nowhere to move pages to")
            .cause(one_tier(&found))
            .remedy("add a node or CXL memory, or name the tiers in the configuration: [tiers] nodes = [[0], [1]]"));
    }
    if found.len() > MOST_TIERS {
        return Err(Error::new(ErrorKind::Usage, "there are too many tiers")
            .cause(format!("{} of at most {MOST_TIERS}", found.len()))
            .remedy("put nodes of like speed together"));
    }
    if let Some(tier) = config.capacity.iter().position(|bytes| *bytes == Some(0)) {
        return Err(Error::new(ErrorKind::Usage, format!("tier {tier} can hold nothing"))
            .cause("its capacity is set to 0")
            .remedy("give it a size like \"4GiB\", or leave it out"));
    }
    if config.capacity.len() > found.len() {
        return Err(Error::new(ErrorKind::Usage, "there are more capacities than tiers")
            .cause(format!("{} and {}", config.capacity.len(), found.len()))
            .remedy("give one for each tier, fastest first"));
    }
    Ok(found)
}

fn one_tier(found: &[Vec<Node>]) -> String {
    match found.first().map_or(0, Vec::len) {
        0 => "the kernel lists no memory node (CONFIG_NUMA)".into(),
        1 => "this machine has one memory node".into(),
        nodes => format!("all {nodes} memory nodes are of one tier"),
    }
}

fn check_nodes(sys: &Path, tiers: &[Vec<Node>]) -> Result<()> {
    let refuse = |node: &Node, cause: &str, remedy: &str| {
        let what = format!("cannot use memory node {}", node.0);
        Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
    };
    let mut seen = BTreeSet::new();
    for node in tiers.iter().flatten() {
        if !seen.insert(*node) {
            return refuse(node, "it is in two tiers", "name each node once");
        }
        match node_memory(sys, *node) {
            None => {
                let online = "see /sys/devices/system/node/online";
                return refuse(node, "it is not there, or offline", online);
            }
            Some(memory) if memory.total == 0 => {
                return refuse(node, "it has no memory", "name nodes of has_memory");
            }
            Some(_) => {}
        }
    }
    if let Some(tier) = tiers.iter().position(Vec::is_empty) {
        let what = format!("tier {tier} can hold nothing");
        return Err(Error::new(ErrorKind::Usage, what).cause("it has no node").remedy("name one"));
    }
    Ok(())
}

/// Nodes of each tier, fastest tier first; empty if the kernel has no NUMA.
///
/// These are the kernel's memory tiers (6.1 and newer, mm/memory-tiers.c: the smaller its number,
/// the faster a tier). If the kernel has none or only one: nodes by the latency that the firmware
/// states (HMAT, drivers/base/node.c: `access0`), else nodes with CPUs before all others
/// (include/linux/node.h before 6.1: `node_is_toptier`), those by their distance (SLIT).
pub(crate) fn tiers(sys: &Path) -> Vec<Vec<Node>> {
    let nodes = sys.join("devices/system/node");
    let by_kernel = memory_tiers(&sys.join("devices/virtual/memory_tiering"));
    if by_kernel.len() > 1 {
        return by_kernel;
    }
    let stated = by_latency(&nodes);
    if stated.len() > 1 {
        return stated;
    }
    if by_kernel.is_empty() { by_cpus(&nodes) } else { by_kernel }
}

/// Latencies that differ by less than this factor are considered equal (assumed: firmware rounds).
const ALIKE: f64 = 1.1;

fn by_latency(dir: &Path) -> Vec<Vec<Node>> {
    let latency = |node: &Node| -> Option<u64> {
        let file = dir.join(format!("node{}/access0/initiators/read_latency", node.0));
        fs::read_to_string(file).ok()?.trim().parse().ok().filter(|latency| *latency > 0)
    };
    let nodes = list(&dir.join("has_memory"));
    let known: Option<Vec<(u64, Node)>> =
        nodes.iter().map(|node| Some((latency(node)?, *node))).collect();
    grouped(known.unwrap_or_default(), |one, other| other as f64 <= one as f64 * ALIKE)
}

/// Groups nodes by a value, in ascending order; nodes with like values form one group.
fn grouped(mut nodes: Vec<(u64, Node)>, alike: impl Fn(u64, u64) -> bool) -> Vec<Vec<Node>> {
    nodes.sort_unstable();
    let mut tiers: Vec<(u64, Vec<Node>)> = Vec::new();
    for (figure, node) in nodes {
        match tiers.last_mut() {
            Some((first, tier)) if alike(*first, figure) => tier.push(node),
            _ => tiers.push((figure, vec![node])),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}

fn memory_tiers(dir: &Path) -> Vec<Vec<Node>> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut tiers: Vec<(u32, Vec<Node>)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("memory_tier")?.parse().ok()?;
            Some((number, list(&entry.path().join("nodelist"))))
        })
        .filter(|(_, nodes)| !nodes.is_empty())
        .collect();
    tiers.sort_unstable();
    tiers.into_iter().map(|(_, nodes)| nodes).collect()
}

fn by_cpus(dir: &Path) -> Vec<Vec<Node>> {
    let with_cpus = list(&dir.join("has_cpu"));
    let nodes = list(&dir.join("has_memory")).into_iter();
    let (fast, slow): (Vec<_>, Vec<_>) = nodes.partition(|node| with_cpus.contains(node));
    let slow = slow.into_iter().map(|node| (nearest(dir, node, &with_cpus), node)).collect();
    let slower = grouped(slow, |one, other| one == other);
    [fast].into_iter().chain(slower).filter(|tier| !tier.is_empty()).collect()
}

/// Distance of a node to the nearest one with CPUs; 0 if the firmware states none.
fn nearest(dir: &Path, node: Node, with_cpus: &[Node]) -> u64 {
    let text = fs::read_to_string(dir.join(format!("node{}/distance", node.0))).unwrap_or_default();
    let online = list(&dir.join("online"));
    let to = online.iter().zip(text.split_whitespace());
    let near = to.filter(|(other, _)| with_cpus.contains(other));
    near.filter_map(|(_, distance)| distance.parse().ok()).min().unwrap_or(0)
}

/// Upper bound of node numbers in the kernel (`CONFIG_NODES_SHIFT` is at most 10).
const MOST: u32 = 1 << 10;

/// Nodes of a file like `0-2,4`; malformed parts are skipped.
fn list(path: &Path) -> Vec<Node> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let span = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        Some(first..=last.min(MOST))
    };
    text.split(',').filter_map(span).flatten().map(Node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn tiers_of(files: &[(&str, &str)]) -> Vec<Vec<u32>> {
        let dir = sysfs(files);
        let numbers = |tier: Vec<Node>| tier.into_iter().map(|node| node.0).collect();
        tiers(dir.path()).into_iter().map(numbers).collect()
    }

    const MEMORY: &str = "devices/system/node/has_memory";
    const CPU: &str = "devices/system/node/has_cpu";

    // Tiers are sorted as numbers, not as text: tier 4 precedes tier 22.
    #[test]
    fn tiers_are_ordered_by_the_kernels_numbers() {
        let tier = |n| format!("devices/virtual/memory_tiering/memory_tier{n}/nodelist");
        let files =
            [(&*tier(22), "2\n"), (&*tier(4), "0-1\n"), (&*tier(30), "\n"), (MEMORY, "0-2\n")];
        assert_eq!(tiers_of(&files), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn without_kernel_tiers_nodes_without_cpus_are_slower() {
        assert_eq!(tiers_of(&[(MEMORY, "0-3\n"), (CPU, "0,2\n")]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(tiers_of(&[(MEMORY, "0\n"), (CPU, "0\n")]), [vec![0]]);
        assert!(tiers_of(&[]).is_empty());
    }

    #[test]
    fn absurd_lists_are_bounded() {
        assert_eq!(tiers_of(&[(MEMORY, "3-1,x,5-4294967295\n")])[0].len(), MOST as usize - 4);
    }

    const ONLINE: &str = "devices/system/node/online";

    fn latency(node: u32) -> String {
        format!("devices/system/node/node{node}/access0/initiators/read_latency")
    }

    // One tier according to the kernel, two by latency: 100 and 105 ns are alike, 350 ns is not.
    #[test]
    fn distances_split_a_single_kernel_tier() {
        let one = "devices/virtual/memory_tiering/memory_tier4/nodelist";
        let (a, b, c) = (latency(0), latency(1), latency(2));
        let files =
            [(one, "0-2\n"), (MEMORY, "0-2\n"), (&*a, "100\n"), (&*b, "350\n"), (&*c, "105\n")];
        assert_eq!(tiers_of(&files), [vec![0, 2], vec![1]]);
        assert_eq!(tiers_of(&files[..4]), [vec![0, 1, 2]], "a node without a figure");
    }

    #[test]
    fn nodes_without_cpus_are_ordered_by_distance() {
        let distance = |node: u32| format!("devices/system/node/node{node}/distance");
        let (far, near) = (distance(1), distance(2));
        let files = [
            (MEMORY, "0-2\n"),
            (CPU, "0\n"),
            (ONLINE, "0-2\n"),
            (&*far, "40 10 30\n"),
            (&*near, "20 30 10\n"),
        ];
        assert_eq!(tiers_of(&files), [vec![0], vec![2], vec![1]]);
    }

    fn refused(files: &[(&str, &str)], config: &TierConfig) -> (ErrorKind, String) {
        let error = find(sysfs(files).path(), config).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn invalid_tiers_are_refused_with_cause_and_remedy() {
        let memory = |node: u32, kib: u32| {
            let path = format!("devices/system/node/node{node}/meminfo");
            (path, format!("Node {node} MemTotal: {kib} kB\nNode {node} MemFree: 1 kB\n"))
        };
        let (m0, m1, m2) = (memory(0, 100), memory(1, 100), memory(2, 0));
        let all = [
            (MEMORY, "0-1\n"),
            (CPU, "0-1\n"),
            (&*m0.0, &*m0.1),
            (&*m1.0, &*m1.1),
            (&*m2.0, &*m2.1),
        ];
        let tiers = |nodes: &[&[u32]]| TierConfig {
            nodes: nodes.iter().map(|tier| tier.to_vec()).collect(),
            ..TierConfig::default()
        };
        assert!(find(sysfs(&all).path(), &tiers(&[&[0], &[1]])).is_ok());
        let (kind, text) = refused(&all, &TierConfig::default());
        assert!(
            kind == ErrorKind::Missing && text.contains("all 2 memory nodes are of one tier"),
            "{text}"
        );
        let one = [(MEMORY, "0\n"), (CPU, "0\n"), (&*m0.0, &*m0.1)];
        let (kind, text) = refused(&one, &TierConfig::default());
        assert!(kind == ErrorKind::Missing && text.contains("one memory node"), "{text}");
        assert!(refused(&[], &TierConfig::default()).1.contains("CONFIG_NUMA"));
        for (config, cause) in [
            (tiers(&[&[0], &[9]]), "node 9: it is not there, or offline"),
            (tiers(&[&[0], &[2]]), "node 2: it has no memory"),
            (tiers(&[&[0], &[0]]), "in two tiers"),
            (tiers(&[&[0], &[]]), "it has no node"),
            (
                TierConfig { capacity: vec![Some(0)], ..tiers(&[&[0], &[1]]) },
                "capacity is set to 0",
            ),
            (TierConfig { capacity: vec![None; 3], ..tiers(&[&[0], &[1]]) }, "3 and 2"),
        ] {
            let (kind, text) = refused(&all, &config);
            assert!(kind == ErrorKind::Usage && text.contains(cause), "{text}");
        }
    }
}
