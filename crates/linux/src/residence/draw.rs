//! Where the pages of a large space are, from some of them: `move_pages` without nodes to move to
//! only says where pages are (mm/migrate.c: `do_pages_stat`). It takes the mmap lock for 16 pages at a
//! time, sets no ACCESSED bit, and costs the same however large the space is.

use std::collections::BTreeMap;

use tierscope_core::{Node, OnNode, PAGE_SHIFT, Range, Rng};

/// Pages asked about at once.
const BATCH: usize = 4096;
/// Pages asked about at most: where most of what is mapped is not resident, most draws miss.
const MOST: usize = 16 * BATCH;
/// Resident pages that are enough: a share of one half is off by 1.1 % (one sigma).
const ENOUGH: u64 = 2048;
/// Fewer resident pages than these say too little: a share of one half is off by 6 %.
const LEAST: u64 = 64;

/// Nodes by share, and how many resident pages tell so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    hits: BTreeMap<Node, u64>,
    pub(super) pages: u64,
}

impl Drawn {
    /// `bytes`, shared out among the nodes.
    pub(super) fn share_out(&self, bytes: u64) -> Vec<OnNode> {
        let share =
            |hits: u64| (u128::from(bytes) * u128::from(hits) / u128::from(self.pages)) as u64;
        self.hits.iter().map(|(node, hits)| OnNode { node: *node, bytes: share(*hits) }).collect()
    }
}

/// Draws pages of `ranges`, each as likely as any other, until enough of them are resident. `locate`
/// fills in the node of each address, or a negative number where no page is, and tells whether it
/// could. `None` if it could not, or if too few pages were found to say anything.
pub(super) fn draw(
    ranges: &[Range],
    rng: &mut Rng,
    locate: &mut dyn FnMut(&[u64], &mut [i32]) -> bool,
) -> Option<Drawn> {
    let ends = page_ends(ranges);
    let all = *ends.last().filter(|all| **all > 0)?;
    let mut drawn = Drawn { hits: BTreeMap::new(), pages: 0 };
    let (mut addresses, mut nodes) = (Vec::with_capacity(BATCH), vec![0; BATCH]);
    for _ in 0..MOST / BATCH {
        addresses.clear();
        addresses.extend((0..BATCH).map(|_| page(ranges, &ends, rng.below(all))));
        if !locate(&addresses, &mut nodes) {
            return None;
        }
        for node in nodes.iter().filter_map(|node| u32::try_from(*node).ok()) {
            *drawn.hits.entry(Node(node)).or_default() += 1;
            drawn.pages += 1;
        }
        // Where a whole batch found nothing, all of them would find too little.
        if drawn.pages >= ENOUGH || drawn.pages == 0 {
            break;
        }
    }
    (drawn.pages >= LEAST).then_some(drawn)
}

/// Pages up to the end of each range.
fn page_ends(ranges: &[Range]) -> Vec<u64> {
    let mut sum = 0;
    let end = |range: &Range| {
        sum += range.bytes() >> PAGE_SHIFT;
        sum
    };
    ranges.iter().map(end).collect()
}

/// The address of page `number` of all.
fn page(ranges: &[Range], ends: &[u64], number: u64) -> u64 {
    let index = ends.partition_point(|end| *end <= number);
    let before = index.checked_sub(1).map_or(0, |last| ends[last]);
    ranges[index].start + ((number - before) << PAGE_SHIFT)
}

/// Where pages of process `pid` are, as the running kernel says.
pub(super) fn locate(pid: u32, addresses: &[u64], nodes: &mut [i32]) -> bool {
    assert!(nodes.len() >= addresses.len());
    let nowhere = std::ptr::null::<i32>();
    // SAFETY: the kernel reads as many addresses, none of which it writes to, and writes as many
    // numbers; both are there.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len(),
            addresses.as_ptr(),
            nowhere,
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
    /// -ENOENT: there is no page.
    const ABSENT: i32 = -2;

    fn range(start: u64, pages: u64) -> Range {
        Range::new(SpaceId(0), start * PAGE, (start + pages) * PAGE)
    }

    // Pages 10..13 and 20..22: five of them.
    #[test]
    fn every_page_has_a_number() {
        let ranges = [range(10, 3), range(15, 0), range(20, 2)];
        let ends = page_ends(&ranges);
        assert_eq!(ends, [3, 3, 5]);
        let pages: Vec<u64> = (0..5).map(|n| page(&ranges, &ends, n) / PAGE).collect();
        assert_eq!(pages, [10, 11, 12, 20, 21]);
    }

    #[test]
    fn bytes_are_shared_out_by_hits() {
        let drawn = Drawn { hits: [(Node(0), 3), (Node(2), 1)].into(), pages: 4 };
        let shares: Vec<_> = drawn.share_out(1000).iter().map(|on| (on.node.0, on.bytes)).collect();
        assert_eq!(shares, [(0, 750), (2, 250)]);
    }

    /// A machine where page n is on the node that `of` says.
    fn drawn(pages: u64, of: impl Fn(u64) -> i32) -> (Option<Drawn>, usize) {
        let mut asked = 0;
        let mut locate = |addresses: &[u64], nodes: &mut [i32]| {
            asked += addresses.len();
            addresses.iter().zip(nodes).for_each(|(at, node)| *node = of(at / PAGE));
            true
        };
        let found = draw(&[range(0, pages)], &mut Rng::seeded(1), &mut locate);
        (found, asked)
    }

    // A quarter on node 1, all resident: one batch of 4096 is enough. The share is off by
    // sqrt(0.25 * 0.75 / 4096) = 0.7 % (one sigma); five sigma are allowed, the seed is fixed.
    #[test]
    fn shares_are_those_of_the_space() {
        let (found, asked) = drawn(1 << 30, |page| i32::from(page % 4 == 3));
        let found = found.unwrap();
        assert_eq!((asked, found.pages), (BATCH, BATCH as u64));
        let share = found.hits[&Node(1)] as f64 / found.pages as f64;
        assert!((share - 0.25).abs() < 0.034, "{share}");
    }

    // One page of a hundred is resident: it takes all draws to see 655 of them.
    #[test]
    fn it_looks_longer_where_little_is_resident() {
        let (found, asked) = drawn(1 << 30, |page| if page % 100 == 0 { 0 } else { ABSENT });
        assert_eq!(asked, MOST);
        assert!((500..800).contains(&found.unwrap().pages));
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(drawn(1 << 30, |_| ABSENT), (None, BATCH));
        // One of 2048: two a batch, 32 in all.
        let rare = |page| if page % 2048 == 0 { 0 } else { ABSENT };
        assert_eq!(drawn(1 << 30, rare), (None, MOST));
        assert_eq!(draw(&[], &mut Rng::seeded(1), &mut |_, _| true), None);
        assert_eq!(draw(&[range(0, 9)], &mut Rng::seeded(1), &mut |_, _| false), None);
    }
}
