//! Estimates the NUMA placement of a large space from a random sample of its pages: `move_pages`
//! without target nodes only queries where pages are (mm/migrate.c: `do_pages_stat`). It takes the
//! mmap lock for 16 pages at a time, sets no ACCESSED bit, and its cost does not depend on the size
//! of the space.

use std::collections::BTreeMap;

use tierscope_core::{Node, OnNode, PAGE_SHIFT, Range, Rng};

/// Pages per query.
const BATCH: usize = 4096;
/// Maximum number of pages drawn: if most of the mapped pages are not resident, most draws miss.
const MOST: usize = 16 * BATCH;
/// Sufficient number of resident pages: the error of a share of one half is 1.1 % (one sigma).
const ENOUGH: u64 = 2048;
/// Minimum number of resident pages: the error of a share of one half is 6 %.
const LEAST: u64 = 64;

/// Resident pages drawn, by node and in total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageSample {
    hits: BTreeMap<Node, u64>,
    pub(super) pages: u64,
}

impl PageSample {
    /// Distributes `bytes` over the nodes in proportion.
    pub(super) fn distribute(&self, bytes: u64) -> Vec<OnNode> {
        let hit = |(node, hits): (&Node, &u64)| OnNode { node: *node, bytes: *hits };
        tierscope_core::distribute(bytes, &self.hits.iter().map(hit).collect::<Vec<_>>())
    }
}

/// Draws pages of `ranges` with equal probability, until enough of them are resident. `locate`
/// fills in the node of each address, or a negative number if no page is there, and returns whether
/// the query succeeded. `None` if it failed, or if too few pages were resident for an estimate.
pub(super) fn draw(
    ranges: &[Range],
    rng: &mut Rng,
    locate: &mut dyn FnMut(&[u64], &mut [i32]) -> bool,
) -> Option<PageSample> {
    let ends = page_ends(ranges);
    let all = *ends.last().filter(|all| **all > 0)?;
    let mut sample = PageSample { hits: BTreeMap::new(), pages: 0 };
    let (mut addresses, mut nodes) = (Vec::with_capacity(BATCH), vec![0; BATCH]);
    for _ in 0..MOST / BATCH {
        addresses.clear();
        addresses.extend((0..BATCH).map(|_| page(ranges, &ends, rng.below(all))));
        if !locate(&addresses, &mut nodes) {
            return None;
        }
        for node in nodes.iter().filter_map(|node| u32::try_from(*node).ok()) {
            *sample.hits.entry(Node(node)).or_default() += 1;
            sample.pages += 1;
        }
        // If a whole batch finds no resident page, all batches would find too few.
        if sample.pages >= ENOUGH || sample.pages == 0 {
            break;
        }
    }
    (sample.pages >= LEAST).then_some(sample)
}

/// For each range, the number of pages up to its end.
fn page_ends(ranges: &[Range]) -> Vec<u64> {
    let mut sum = 0;
    let end = |range: &Range| {
        sum += range.bytes() >> PAGE_SHIFT;
        sum
    };
    ranges.iter().map(end).collect()
}

/// The address of page `number`, counted over all ranges.
fn page(ranges: &[Range], ends: &[u64], number: u64) -> u64 {
    let index = ends.partition_point(|end| *end <= number);
    let before = index.checked_sub(1).map_or(0, |last| ends[last]);
    ranges[index].start + ((number - before) << PAGE_SHIFT)
}

/// Queries the nodes of pages of process `pid` from the running kernel.
pub(super) fn locate(pid: u32, addresses: &[u64], nodes: &mut [i32]) -> bool {
    assert!(nodes.len() >= addresses.len());
    // SAFETY: the kernel reads as many addresses, to which it does not write, and writes as many
    // statuses; the assertion checks the lengths.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    const PAGE: u64 = 1 << PAGE_SHIFT;
    /// -ENOENT: no page is there.
    const ABSENT: i32 = -2;

    fn range(start: u64, pages: u64) -> Range {
        Range::new(SpaceId(0), start * PAGE, (start + pages) * PAGE)
    }

    // Pages 10..13 and 20..22, five in total.
    #[test]
    fn every_page_has_a_number() {
        let ranges = [range(10, 3), range(15, 0), range(20, 2)];
        let ends = page_ends(&ranges);
        assert_eq!(ends, [3, 3, 5]);
        let pages: Vec<u64> = (0..5).map(|n| page(&ranges, &ends, n) / PAGE).collect();
        assert_eq!(pages, [10, 11, 12, 20, 21]);
    }

    #[test]
    fn bytes_are_distributed_by_hits() {
        let sample = PageSample { hits: [(Node(0), 3), (Node(2), 1)].into(), pages: 4 };
        let shares: Vec<_> =
            sample.distribute(1000).iter().map(|on| (on.node.0, on.bytes)).collect();
        assert_eq!(shares, [(0, 750), (2, 250)]);
    }

    /// Draws from a space in which page n is on node `of(n)`; also returns the number of pages
    /// drawn.
    fn drawn(pages: u64, of: impl Fn(u64) -> i32) -> (Option<PageSample>, usize) {
        let mut asked = 0;
        let mut locate = |addresses: &[u64], nodes: &mut [i32]| {
            asked += addresses.len();
            addresses.iter().zip(nodes).for_each(|(at, node)| *node = of(at / PAGE));
            true
        };
        let found = draw(&[range(0, pages)], &mut Rng::seeded(1), &mut locate);
        (found, asked)
    }

    // A quarter on node 1, all resident: one batch of 4096 suffices. The error of the share is
    // sqrt(0.25 * 0.75 / 4096) = 0.7 % (one sigma); five sigma are allowed, the seed is fixed.
    #[test]
    fn shares_of_the_sample_are_those_of_the_space() {
        let (found, asked) = drawn(1 << 30, |page| i32::from(page % 4 == 3));
        let found = found.unwrap();
        assert_eq!((asked, found.pages), (BATCH, BATCH as u64));
        let share = found.hits[&Node(1)] as f64 / found.pages as f64;
        assert!((share - 0.25).abs() < 0.034, "{share}");
    }

    // One page in a hundred is resident: all draws together find about 655 of them.
    #[test]
    fn more_pages_are_drawn_where_few_are_resident() {
        let (found, asked) = drawn(1 << 30, |page| if page % 100 == 0 { 0 } else { ABSENT });
        assert_eq!(asked, MOST);
        assert!((500..800).contains(&found.unwrap().pages));
    }

    #[test]
    fn too_few_resident_pages_give_no_estimate() {
        assert_eq!(drawn(1 << 30, |_| ABSENT), (None, BATCH));
        // One page in 2048 is resident: two per batch, 32 in total.
        let rare = |page| if page % 2048 == 0 { 0 } else { ABSENT };
        assert_eq!(drawn(1 << 30, rare), (None, MOST));
        assert_eq!(draw(&[], &mut Rng::seeded(1), &mut |_, _| true), None);
        assert_eq!(draw(&[range(0, 9)], &mut Rng::seeded(1), &mut |_, _| false), None);
    }
}
