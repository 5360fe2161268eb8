//! Parser of `/proc/PID/numa_maps` (fs/proc/task_mmu.c: `show_numa_map`): pages of each mapping by
//! node.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use tierscope_core::{Node, Result};

use super::{Proc, each_line, open};

/// Bytes by node.
pub type ByNode = BTreeMap<Node, u64>;

/// Resident bytes of a mapping by node, from one line. Pages that spaces share count in each;
/// transparent huge pages count as small pages, hugetlb pages at their own size.
///
/// # Errors
/// The first item that is malformed.
pub fn parse_numa_line(line: &[u8]) -> Result<Vec<(Node, u64)>, &'static str> {
    let words = || line.split(|byte| *byte == b' ');
    let size = words().find_map(|word| word.strip_prefix(b"kernelpagesize_kB="));
    let Some(size) = size else {
        // A mapping without resident pages has no page size either.
        return if words().any(|word| on_node(word).is_some()) {
            Err("page size")
        } else {
            Ok(Vec::new())
        };
    };
    let size = number(size).and_then(|kib| kib.checked_mul(1024)).ok_or("page size")?;
    let bytes = |(node, pages): (&[u8], &[u8])| {
        let node = number(node).and_then(|node| u32::try_from(node).ok()).ok_or("node")?;
        let bytes = number(pages).and_then(|pages| pages.checked_mul(size)).ok_or("pages")?;
        Ok((Node(node), bytes))
    };
    words().filter_map(on_node).map(bytes).collect()
}

/// Node and page count of a word like `N0=12`. Spaces and `=` within a file's name are escaped.
fn on_node(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = word.strip_prefix(b"N")?;
    let equals = rest.iter().position(|byte| *byte == b'=')?;
    rest[..equals].first()?.is_ascii_digit().then(|| (&rest[..equals], &rest[equals + 1..]))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Proc {
    /// Resident bytes of process `pid` by node; `None` if it is gone or the kernel has no NUMA.
    ///
    /// The kernel walks every page, and meanwhile holds the process's mmap lock, mapping by
    /// mapping.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn by_node(&self, pid: u32) -> Result<Option<ByNode>> {
        Ok(self.by_node_apart(pid, |_| false)?.map(|(nodes, _)| nodes))
    }

    /// As [`Proc::by_node`]; the mappings whose first address `apart` selects are summed up apart.
    pub(crate) fn by_node_apart(
        &self,
        pid: u32,
        apart: impl Fn(u64) -> bool,
    ) -> Result<Option<(ByNode, ByNode)>> {
        let path = self.path(pid, "numa_maps");
        let Some(file) = open(&path)? else { return Ok(None) };
        sum(BufReader::new(file), &path, apart)
    }
}

fn sum(
    text: impl BufRead,
    path: &Path,
    apart: impl Fn(u64) -> bool,
) -> Result<Option<(ByNode, ByNode)>> {
    let (mut nodes, mut others) = (ByNode::new(), ByNode::new());
    let read = each_line(text, path, |line| {
        let sums = if starts_at(line).is_some_and(&apart) { &mut others } else { &mut nodes };
        for (node, bytes) in parse_numa_line(line)? {
            let sum = sums.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
        Ok(())
    })?;
    Ok(read.map(|()| (nodes, others)))
}

/// First address of a line's mapping.
fn starts_at(line: &[u8]) -> Option<u64> {
    let first = line.split(|byte| *byte == b' ').next()?;
    u64::from_str_radix(std::str::from_utf8(first).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn read(text: &str) -> Result<ByNode> {
        Ok(sum(text.as_bytes(), Path::new("numa_maps"), |_| false)?.unwrap().0)
    }

    // Small pages, hugetlb pages, a mapping without pages, and a file whose name resembles a node's
    // count.
    #[test]
    fn bytes_are_pages_times_their_size() {
        let text = "\
            5555 default heap anon=7 dirty=7 N0=5 N1=2 kernelpagesize_kB=4\n\
            7f00 bind:0-1 file=/anon_hugepage\\040(deleted) huge anon=3 dirty=3 N1=3 kernelpagesize_kB=2048\n\
            7f80 prefer (many):0 file=/N9\\075 N0=1 kernelpagesize_kB=4\n\
            7ffc default\n";
        let expected = [(Node(0), 6 * 4 * KIB), (Node(1), (2 * 4 + 3 * 2048) * KIB)];
        assert_eq!(read(text), Ok(expected.into()));
        let apart = sum(text.as_bytes(), Path::new("numa_maps"), |start| start == 0x7f00);
        let own = [(Node(0), 6 * 4 * KIB), (Node(1), 2 * 4 * KIB)];
        assert_eq!(apart, Ok(Some((own.into(), [(Node(1), 3 * 2048 * KIB)].into()))));
    }

    #[test]
    fn an_error_names_item_and_line() {
        let fails = |line: &str| parse_numa_line(line.as_bytes()).unwrap_err();
        assert_eq!(fails("7f00 default N0=1"), "page size");
        assert_eq!(fails("7f00 default N0=1 kernelpagesize_kB=x"), "page size");
        assert_eq!(fails("7f00 default N4294967296=1 kernelpagesize_kB=4"), "node");
        assert_eq!(fails("7f00 default N0=-1 kernelpagesize_kB=4"), "pages");
        let error = read("7f00 default\n7f10 default N0=1\n").unwrap_err().to_string();
        assert!(error.contains("line 2: no page size"), "{error}");
    }

    /// Parses the corpus of `fuzz/fuzz_targets/proc_maps.rs`.
    #[test]
    fn the_fuzz_corpus_is_parsed_without_panic() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proc_maps");
        for file in std::fs::read_dir(corpus).unwrap() {
            let _ = sum(
                std::fs::read(file.unwrap().path()).unwrap().as_slice(),
                Path::new("x"),
                |_| false,
            );
        }
    }

    proptest! {
        #[test]
        fn printed_lines_are_parsed_back(
            nodes in prop::collection::btree_map(0u32..1024, 1u64..1 << 30, 1..5),
            huge in any::<bool>(),
        ) {
            let size = if huge { 2048 } else { 4 };
            let words: String = nodes.iter().map(|(n, pages)| format!(" N{n}={pages}")).collect();
            let line = format!("7f00 default anon=9{words} kernelpagesize_kB={size}\n");
            let expected = nodes.iter().map(|(n, pages)| (Node(*n), pages * size * KIB)).collect();
            prop_assert_eq!(read(&line), Ok(expected));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = sum(bytes.as_slice(), Path::new("x"), |_| true);
        }
    }
}
