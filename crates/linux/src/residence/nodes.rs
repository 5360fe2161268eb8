//! Which memory nodes make a tier.

use std::fs;
use std::path::Path;

use tierscope_core::Node;

/// Nodes of each tier, fastest tier first; empty where the kernel has no NUMA.
///
/// They are the kernel's memory tiers (6.1 and newer, mm/memory-tiers.c: the smaller its number the
/// faster a tier is). Kernels that have none count nodes with CPUs as the top tier and all others as
/// slower (include/linux/node.h before 6.1: `node_is_toptier`); so do we there.
pub(crate) fn tiers(sys: &Path) -> Vec<Vec<Node>> {
    let told = memory_tiers(&sys.join("devices/virtual/memory_tiering"));
    if told.is_empty() { by_cpus(&sys.join("devices/system/node")) } else { told }
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
    [fast, slow].into_iter().filter(|tier| !tier.is_empty()).collect()
}

/// The kernel has no more nodes than this (`CONFIG_NODES_SHIFT` is at most 10).
const MOST: u32 = 1 << 10;

/// Nodes of a file like `0-2,4`; what makes no sense is left out.
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

    fn tiers_of(files: &[(&str, &str)]) -> Vec<Vec<u32>> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let numbers = |tier: Vec<Node>| tier.into_iter().map(|node| node.0).collect();
        tiers(dir.path()).into_iter().map(numbers).collect()
    }

    const MEMORY: &str = "devices/system/node/has_memory";
    const CPU: &str = "devices/system/node/has_cpu";

    // Numbers are no text: tier 4 comes before tier 22.
    #[test]
    fn the_kernel_s_tiers_by_their_numbers() {
        let tier = |n| format!("devices/virtual/memory_tiering/memory_tier{n}/nodelist");
        let files =
            [(&*tier(22), "2\n"), (&*tier(4), "0-1\n"), (&*tier(30), "\n"), (MEMORY, "0-2\n")];
        assert_eq!(tiers_of(&files), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn without_them_nodes_without_cpus_are_slower() {
        assert_eq!(tiers_of(&[(MEMORY, "0-3\n"), (CPU, "0,2\n")]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(tiers_of(&[(MEMORY, "0\n"), (CPU, "0\n")]), [vec![0]]);
        assert!(tiers_of(&[]).is_empty());
    }

    #[test]
    fn absurd_lists_do_no_harm() {
        assert_eq!(tiers_of(&[(MEMORY, "3-1,x,5-4294967295\n")])[0].len(), MOST as usize - 4);
    }
}
