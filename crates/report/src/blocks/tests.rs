use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn named(space: u32, name: &str, start: u64, end: u64) -> Named {
    let range = Range::new(SpaceId(space), start, end);
    let file = name.starts_with('/').then_some((0, 0));
    Named { range, name: name.into(), file }
}

/// All of the mappings was seen.
fn all_seen(named: Vec<Named>) -> Memory {
    let seen = named.iter().map(|named| named.range).collect();
    Memory { named, seen, ..Memory::default() }
}

/// Name, and ranges in MiB, of each row.
fn rows(memory: &Memory, count: usize) -> Vec<(String, Vec<(u64, u64)>)> {
    let mib = |r: &Range| (r.start / MIB, r.end / MIB);
    let of = |block: &Block| {
        let name = block.name.clone();
        let row = move |row: Vec<Range>| (name.clone(), row.iter().map(mib).collect());
        block.rows().into_iter().map(row).collect::<Vec<_>>()
    };
    blocks(memory, count).0.iter().flat_map(of).collect()
}

fn mib(space: u32, name: &str, start: u64, end: u64) -> Named {
    named(space, name, start * MIB, end * MIB)
}

// A heap of 8 MiB, of which 4 MiB were never populated; a reservation of a TiB; a stack far away:
// 5 MiB in five rows.
#[test]
fn gaps_and_memory_that_is_not_resident_take_no_rows() {
    let mut memory = all_seen(vec![
        mib(0, "[heap]", 10, 18),
        mib(0, "anon", 1 << 20, 2 << 20),
        mib(0, "[stack]", 4 << 20, (4 << 20) + 1),
    ]);
    let seen = [mib(0, "", 10, 12), mib(0, "", 16, 18), mib(0, "", 4 << 20, (4 << 20) + 1)];
    memory.seen = seen.iter().map(|named| named.range).collect();
    let heap = |start: u64| ("[heap]".to_string(), vec![(start, start + 1)]);
    let stack = ("[stack]".to_string(), vec![(4 << 20, (4 << 20) + 1)]);
    assert_eq!(rows(&memory, 5), [heap(10), heap(11), heap(16), heap(17), stack]);
}

// Half a row is the border: rows of 4 MiB; the mappings of 1 MiB are one block, last.
#[test]
fn small_cold_mappings_share_a_block() {
    let mut memory = all_seen(vec![
        mib(0, "/a", 0, 1),
        mib(0, "[heap]", 10, 22),
        mib(0, "/b", 30, 31),
        mib(1, "/c", 0, 1),
        mib(1, "/d", 5, 7),
    ]);
    let row = |name: &str, parts: &[(u64, u64)]| (name.to_string(), parts.to_vec());
    let heap = [(10, 14), (14, 18), (18, 22)].map(|part| row("[heap]", &[part]));
    let rest = row("3 small mappings", &[(0, 1), (30, 31), (0, 1)]);
    let mut want = heap.to_vec();
    want.extend([row("/d", &[(5, 7)]), rest]);
    assert_eq!(rows(&memory, 5), want);
    let (all, bytes) = blocks(&memory, 5);
    assert_eq!((bytes, all[1].space, all[2].space), (4 * MIB, Some(SpaceId(1)), None));
    // A page of /a was hot: it has a row of its own, before the heap. Then five rows are too few
    // for rows of 4 MiB, and rows of 5 MiB leave /d with the small ones.
    memory.hot = [named(0, "", 0, 4096).range].into_iter().collect();
    want = vec![row("/a", &[(0, 1)])];
    want.extend([(10, 15), (15, 20), (20, 22)].map(|part| row("[heap]", &[part])));
    want.push(row("3 small mappings", &[(30, 31), (0, 1), (5, 7)]));
    assert_eq!(rows(&memory, 5), want);
}

// The kernel cut a mapping in two where permissions change; a library's segments have a gap; two
// anonymous mappings with a gap are two.
#[test]
fn a_block_is_a_whole_object() {
    let memory = all_seen(vec![
        mib(0, "[heap]", 0, 4),
        mib(0, "[heap]", 4, 8),
        mib(0, "/lib", 10, 12),
        mib(0, "/lib", 20, 22),
        mib(0, "anon", 30, 34),
        mib(0, "anon", 40, 44),
    ]);
    let names: Vec<String> = blocks(&memory, 20).0.into_iter().map(|block| block.name).collect();
    assert_eq!(names, ["[heap]", "/lib", "anon", "anon"]);
}

// Space 1 has rows of its own; of spaces 0, 2 and 3, the memory is one block.
#[test]
fn short_lived_spaces_share_a_block() {
    let mut memory = all_seen(vec![
        mib(0, "[heap]", 4, 8),
        mib(1, "[heap]", 0, 4),
        mib(2, "[heap]", 0, 2),
        mib(2, "anon", 4, 5),
        mib(3, "[heap]", 4, 5),
    ]);
    memory.own = OwnRows::only([SpaceId(1)]);
    let row = |name: &str, parts: &[(u64, u64)]| (name.to_string(), parts.to_vec());
    let other = [row("other", &[(4, 8)]), row("other", &[(0, 2), (4, 5), (4, 5)])];
    assert_eq!(rows(&memory, 3), [&[row("[heap]", &[(0, 4)])], &other[..]].concat());
    assert_eq!(blocks(&memory, 3).0[1].space, None);
}

// 60 MiB of which 4 MiB are resident, next to 4 MiB that are: four rows each.
#[test]
fn sparse_memory_has_rows_by_its_resident_bytes() {
    let mut memory = all_seen(vec![mib(0, "hash", 0, 60), mib(0, "[heap]", 100, 104)]);
    memory.sparse = vec![(mib(0, "", 0, 60).range, 4 * MIB)];
    let (all, bytes) = blocks(&memory, 8);
    let shown: Vec<_> =
        all.iter().map(|b| (b.name.as_str(), b.count(), b.row_bytes / MIB)).collect();
    assert_eq!((bytes, shown), (MIB, vec![("hash", 4, 15), ("[heap]", 4, 1)]));
}

#[test]
fn a_hundred_processes_fit_into_the_rows() {
    let of = |space: u32| [mib(space, "[heap]", 0, 3), mib(space, "[stack]", 50, 51)];
    let mut memory = all_seen((0..100).flat_map(of).collect());
    memory.hot = memory.named.iter().filter(|n| n.range.space.0 < 4).map(|n| n.range).collect();
    let (all, _) = blocks(&memory, 20);
    assert!(all.iter().map(Block::count).sum::<usize>() <= 20);
    let spaces: Vec<u32> = all.iter().filter_map(|b| Some(b.space?.0)).collect();
    assert_eq!(spaces, [0, 0, 1, 1, 2, 2, 3, 3], "the hot ones have rows of their own");
    assert_eq!(all.last().map(|b| b.name.as_str()), Some("192 small mappings"));
}

#[test]
fn nothing_makes_no_rows() {
    assert_eq!(blocks(&Memory::default(), 8), (Vec::new(), 0));
}

#[test]
fn row_sizes_are_round() {
    assert_eq!([1, 4096, 4097, 9 << 20].map(round), [4096, 4096, 8192, 10 << 20]);
    assert_eq!(round(u64::MAX), 1 << 60);
}

/// Pages of a space in the generated memory.
const PAGES: u64 = 160;

/// A page: space and number.
type Page = (u32, u64);

fn pages(named: &Named) -> impl Iterator<Item = Page> + use<> {
    let Range { space, start, end } = named.range;
    (start / PAGE_SIZE..end / PAGE_SIZE).map(move |page| (space.0, page))
}

prop_compose! {
    /// Mappings of two spaces, each as pages of gap, pages, and the number of its name; and which
    /// pages were seen and hot.
    fn any_memory()(
        plans in prop::collection::vec(prop::collection::vec((0u64..6, 1u64..40, 0usize..4), 0..8), 2),
        seen in prop::collection::vec(any::<bool>(), 2 * PAGES as usize),
        hot in prop::collection::vec(prop::bool::weighted(0.05), 2 * PAGES as usize),
    ) -> Memory {
        let names = ["[heap]", "anon", "/lib/libc.so.6", "/bin/toy"];
        let mut mappings = Vec::new();
        for (space, plan) in plans.iter().enumerate() {
            let mut at = 0;
            for (gap, pages, name) in plan {
                let start = at + gap;
                at = (start + pages).min(PAGES);
                if start < at {
                    mappings.push(named(space as u32, names[*name], start * PAGE_SIZE, at * PAGE_SIZE));
                }
            }
        }
        let chosen = |flags: &[bool]| -> RangeSet {
            let all = mappings.iter().flat_map(pages);
            let is = all.filter(|(space, page)| flags[(u64::from(*space) * PAGES + page) as usize]);
            let range = |(space, page)| Range::new(SpaceId(space), page * PAGE_SIZE, (page + 1) * PAGE_SIZE);
            is.map(range).collect()
        };
        let (seen, hot) = (chosen(&seen), chosen(&hot));
        Memory { seen, hot, named: mappings, ..Memory::default() }
    }
}

proptest! {
    // A painter that takes the mappings page by page: each page that was seen is in exactly one
    // row, and each page of a row belongs to the mapping that names it.
    #[test]
    fn rows_are_those_of_a_naive_painter(memory in any_memory(), count in 1usize..24) {
        let (all, row_bytes) = blocks(&memory, count);
        let mut painted = std::collections::BTreeMap::<Page, Vec<&Block>>::new();
        for block in &all {
            let rows = block.rows();
            prop_assert_eq!(rows.len(), block.count());
            prop_assert!(rows.iter().all(|row| !row.is_empty()));
            for part in rows.iter().flatten() {
                let part = Named { range: *part, name: "".into(), file: None };
                pages(&part).for_each(|page| painted.entry(page).or_default().push(block));
            }
        }
        prop_assert!(all.iter().map(Block::count).sum::<usize>() <= count);
        let name_of = |page: Page| memory.named.iter().find(|named| pages(named).any(|p| p == page));
        for (page, blocks) in &painted {
            prop_assert_eq!(blocks.len(), 1, "page {:?} is in several rows", page);
            match name_of(*page) {
                Some(named) if !blocks[0].is_rest => prop_assert_eq!(&*named.name, &blocks[0].name),
                Some(_) => {}
                // Only small gaps between segments of a file.
                None => prop_assert!(row_bytes >= 8 * PAGE_SIZE),
            }
        }
        for range in memory.seen.as_slice() {
            let seen = Named { range: *range, name: "".into(), file: None };
            prop_assert!(pages(&seen).all(|page| painted.contains_key(&page)));
        }
        // Blocks and rows follow addresses; small mappings are last.
        let own: Vec<Range> = all.iter().filter(|b| !b.is_rest).flat_map(|b| b.rows().concat()).collect();
        prop_assert!(own.windows(2).all(|p| (p[0].space, p[0].end) <= (p[1].space, p[1].start)));
        prop_assert!(all.iter().rev().skip(1).all(|block| !block.is_rest));
        // The small ones are as many as the name says.
        if let Some(rest) = all.last().filter(|block| block.is_rest) {
            let runs = memory.named.chunk_by(Named::continues);
            let seen = |run: &[Named]| run.iter().flat_map(pages).any(|page| {
                painted.get(&page).is_some_and(|blocks| blocks[0].is_rest)
            });
            prop_assert_eq!(&rest.name, &small(runs.filter(|run| seen(run)).count()));
        }
    }

    // Shares of a range over the rows add up to the range's painted bytes.
    #[test]
    fn places_find_every_row(memory in any_memory(), count in 1usize..24, from in 0..PAGES, length in 0..PAGES) {
        let rows: Vec<Vec<Range>> = blocks(&memory, count).0.iter().flat_map(Block::rows).collect();
        let places = Places::of(rows.iter().map(Vec::as_slice));
        let range = Range::new(SpaceId(1), from * PAGE_SIZE, (from + length) * PAGE_SIZE);
        let mut found = vec![0; rows.len()];
        places.shares(&range).for_each(|(row, bytes)| found[row] += bytes);
        let common = |row: &Vec<Range>| row.iter().filter_map(|r| r.intersect(&range)).map(|r| r.bytes()).sum::<u64>();
        prop_assert_eq!(found, rows.iter().map(common).collect::<Vec<_>>());
    }
}
