use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tierscope_core::Backing;

use super::*;

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const SHARED: SpaceId = SpaceId(99);

/// A mapping of an object: space, address, bytes, inode, offset.
fn mapped(space: u32, at: u64, bytes: u64, inode: u64, offset: u64) -> Mapping {
    Mapping {
        range: Range::new(SpaceId(space), at, at + bytes),
        backing: Backing::File,
        name: format!("object {inode}").into(),
        writable: true,
        object: Some(Object { device: 1, inode, offset }),
    }
}

fn process(mappings: Vec<Mapping>) -> ProcessMaps {
    let shareable = (0..mappings.len() as u32).collect();
    ProcessMaps { mappings, shareable }
}

fn separated(memory: &mut SharedMemory, processes: &[ProcessMaps]) -> Separated {
    memory.update(processes);
    memory.separate(SHARED, processes.to_vec())
}

fn list(
    memory: &mut SharedMemory,
    processes: Vec<ProcessMaps>,
    next: &mut u32,
    out: &mut Mappings,
) {
    memory.list(processes, &RangeSet::default(), next, out);
}

/// Mappings as the machine reports them; the shared space is the last one.
fn layout(memory: &mut SharedMemory, processes: &[ProcessMaps]) -> Mappings {
    let mut mappings = Mappings::default();
    list(memory, processes.to_vec(), &mut SHARED.0.clone(), &mut mappings);
    mappings
}

/// Mappings in which spaces `0..` map `bytes` of one object at these addresses.
pub(crate) fn one_object(bytes: u64, addresses: &[u64]) -> Mappings {
    let of = |(space, at): (u32, &u64)| process(vec![mapped(space, *at, bytes, 7, 0)]);
    let processes: Vec<ProcessMaps> = (0..).zip(addresses).map(of).collect();
    layout(&mut SharedMemory::default(), &processes)
}

fn ranges(mappings: &[Mapping]) -> Vec<(u64, u64)> {
    mappings.iter().map(|mapping| (mapping.range.start, mapping.range.end)).collect()
}

// Spaces 0 and 2 share an object; the shared space was the next one, before space 2.
#[test]
fn mappings_are_in_the_order_of_the_spaces() {
    let mut memory = SharedMemory::default();
    let own = |space| mapped(space, 7 * GIB, PAGE, 50 + u64::from(space), 0);
    let maps = |space| process(vec![mapped(space, GIB, PAGE, 7, 0), own(space)]);
    let space = |id| Space { id: SpaceId(id), name: "".into() };
    let spaces = vec![space(0), space(2)];
    let (mut next, mut out) = (1, Mappings { spaces, ..Mappings::default() });
    list(&mut memory, vec![maps(0), maps(2)], &mut next, &mut out);
    assert_eq!((next, out.shared), (2, Some(SpaceId(1))));
    assert_eq!(out.spaces.iter().map(|of| of.id.0).collect::<Vec<_>>(), [0, 1, 2]);
    let spaces: Vec<u32> = out.mappings.iter().map(|of| of.range.space.0).collect();
    assert_eq!(spaces, [0, 1, 2]);
    let mut one = Mappings::default();
    list(&mut memory, vec![process(vec![own(0)])], &mut next, &mut one);
    assert_eq!((one.shared, one.mappings.len(), one.views.len()), (None, 1, 0));
}

// Two processes map 3 pages of an object at different addresses; the shared space's agree with the
// first one's modulo 1 GiB. The slot at 0 stays empty.
#[test]
fn an_object_of_two_processes_is_listed_once() {
    let first = mapped(0, 5 * GIB + 7 * PAGE, 3 * PAGE, 7, 0);
    let second = mapped(1, 9 * GIB, 3 * PAGE, 7, 0);
    let own = mapped(1, 20 * GIB, PAGE, 8, 0);
    let parts = separated(
        &mut SharedMemory::default(),
        &[process(vec![first.clone()]), process(vec![second, own.clone()])],
    );
    assert_eq!(parts.private, [own]);
    let memory = Range::new(SHARED, GIB + 7 * PAGE, GIB + 10 * PAGE);
    assert_eq!(parts.shared, [Mapping { range: memory, ..first }]);
    let views: Vec<_> = parts.views.iter().map(|view| (view.range.start, view.memory)).collect();
    assert_eq!(views, [(5 * GIB + 7 * PAGE, memory.at(0)), (9 * GIB, memory.at(0))]);
}

#[test]
fn memory_of_one_process_stays_in_its_space() {
    let mut memory = SharedMemory::default();
    let twice = process(vec![mapped(0, GIB, PAGE, 7, 0), mapped(0, 2 * GIB, PAGE, 7, 0)]);
    assert!(!memory.update(std::slice::from_ref(&twice)));
    let other = process(vec![mapped(1, GIB, PAGE, 8, 0)]);
    assert!(!memory.update(&[twice, other]));
}

// A private mapping that can be written to is not in `shareable`: the process has copies.
#[test]
fn copies_stay_in_their_space() {
    let mut first = process(vec![mapped(0, GIB, PAGE, 7, 0), mapped(0, 2 * GIB, PAGE, 7, 0)]);
    first.shareable = vec![1];
    let second = process(vec![mapped(1, GIB, PAGE, 7, 0)]);
    let parts = separated(&mut SharedMemory::default(), &[first.clone(), second]);
    assert_eq!(parts.private, [first.mappings[0].clone()]);
    assert_eq!(parts.views.len(), 2);
}

// The second user ends: the object stays until the first one ends as well.
#[test]
fn an_object_keeps_its_addresses_until_its_last_user_ends() {
    let mut memory = SharedMemory::default();
    let users =
        [process(vec![mapped(0, GIB, PAGE, 7, 0)]), process(vec![mapped(1, 0, PAGE, 7, 0)])];
    let before = separated(&mut memory, &users);
    let after = separated(&mut memory, &users[1..]);
    assert_eq!((before.shared, 1), (after.shared, after.views.len()));
    assert!(!memory.update(&[]));
}

// Two libraries of 2 and 3 pages, next to each other in the first process: one slot holds both.
#[test]
fn neighbours_in_the_first_process_share_a_slot() {
    let libraries = |space, at| {
        process(vec![
            mapped(space, at, 2 * PAGE, 7, 0),
            mapped(space, at + 2 * PAGE, 3 * PAGE, 8, 0),
        ])
    };
    let processes = [libraries(0, 3 * GIB), libraries(1, 4 * GIB + PAGE)];
    let parts = separated(&mut SharedMemory::default(), &processes);
    let first = (GIB, GIB + 2 * PAGE);
    assert_eq!(ranges(&parts.shared), [first, (first.1, first.1 + 3 * PAGE)]);
}

// Both objects want the same addresses modulo 1 GiB: the second one gets the next slot.
#[test]
fn addresses_in_use_are_not_given_again() {
    let maps = |space, at| {
        process(vec![mapped(space, at, PAGE, 7, 0), mapped(space, at + GIB, PAGE, 8, 0)])
    };
    let parts = separated(&mut SharedMemory::default(), &[maps(0, GIB), maps(1, 8 * GIB)]);
    assert_eq!(ranges(&parts.shared), [(GIB, GIB + PAGE), (2 * GIB, 2 * GIB + PAGE)]);
}

// The object grows: its addresses continue, until those of another object are in the way.
#[test]
fn an_object_that_grows_keeps_its_addresses() {
    let mut memory = SharedMemory::default();
    let maps = |space, at, pages| {
        process(vec![
            mapped(space, at, pages * PAGE, 7, 0),
            mapped(space, at + 4 * PAGE, PAGE, 8, 0),
        ])
    };
    let shared = |memory: &mut SharedMemory, pages| {
        ranges(&separated(memory, &[maps(0, GIB, pages), maps(1, 8 * GIB, 2)]).shared)
    };
    let other = (GIB + 4 * PAGE, GIB + 5 * PAGE);
    assert_eq!(shared(&mut memory, 2), [(GIB, GIB + 2 * PAGE), other]);
    assert_eq!(shared(&mut memory, 4), [(GIB, GIB + 4 * PAGE), other]);
    // Mapped in the second process, where there is room for 8 pages.
    let longer = process(vec![mapped(1, 8 * GIB, 8 * PAGE, 7, 0)]);
    let parts = separated(&mut memory, &[maps(0, GIB, 4), longer]);
    let beyond = (2 * GIB + 4 * PAGE, 2 * GIB + 8 * PAGE);
    assert_eq!(ranges(&parts.shared), [(GIB, GIB + 4 * PAGE), other, beyond]);
    assert_eq!(parts.views.len(), 4, "the long mapping is cut in two");
}

// An offset whose end is no number, and mappings larger than all addresses: not shared. Distant
// offsets of one object, beyond 2^47, do not take the addresses between them.
#[test]
fn absurd_offsets_and_sizes_do_no_harm() {
    let maps = |space| {
        process(vec![
            mapped(space, GIB, PAGE, 7, u64::MAX - 5),
            mapped(space, 2 * GIB, PAGE, 8, 1 << 62),
            mapped(space, 3 * GIB, PAGE, 8, 4096),
            mapped(space, 4 * GIB, 1 << 60, 9, 0),
        ])
    };
    let parts = separated(&mut SharedMemory::default(), &[maps(0), maps(1)]);
    assert_eq!(parts.shared.len(), 2);
    assert_eq!((parts.views.len(), parts.private.len()), (4, 4));
}

#[test]
fn system_v_segments_are_objects_of_their_own() {
    let segment = |space, at| Mapping { name: "/SYSV0".into(), ..mapped(space, at, PAGE, 7, 0) };
    let maps = |space| process(vec![mapped(space, GIB, PAGE, 7, 0), segment(space, 2 * GIB)]);
    let parts = separated(&mut SharedMemory::default(), &[maps(0), maps(1)]);
    assert_eq!(parts.shared.len(), 2);
}

// A view of pages 2 to 4 of a process, and memory around it.
#[test]
fn a_range_of_a_process_is_split_at_views() {
    let mappings = one_object(2 * PAGE, &[2 * PAGE, GIB]);
    let (translation, memory) = (Translation::of(&mappings), mappings.mappings[0].range);
    let mut parts = Vec::new();
    translation.split(&Range::new(SpaceId(0), PAGE, 5 * PAGE), |from, to| parts.push((from, to)));
    let own = |start, end| Range::new(SpaceId(0), start * PAGE, end * PAGE);
    let expected = [(own(1, 2), own(1, 2)), (own(2, 4), memory), (own(4, 5), own(4, 5))];
    assert_eq!(parts, expected);
}

/// A page: a number, and the space or object that it belongs to.
type Page = (u64, u64);

/// What a naive observer knows of the processes: a page at a time.
#[derive(Default)]
struct Oracle {
    /// Address of every page of objects that was in the shared space at the last refresh.
    addresses: BTreeMap<Page, u64>,
    shared: BTreeSet<u64>,
}

impl Oracle {
    /// Checks a refresh.
    fn check(&mut self, processes: &[ProcessMaps], mappings: &Mappings) {
        let mut users: BTreeMap<u64, BTreeSet<SpaceId>> = BTreeMap::new();
        for mapping in processes.iter().flat_map(|maps| &maps.mappings) {
            users.entry(mapping.object.unwrap().inode).or_default().insert(mapping.range.space);
        }
        self.shared.retain(|inode| users.contains_key(inode));
        self.shared.extend(users.iter().filter(|(_, of)| of.len() > 1).map(|(inode, _)| *inode));
        let translation = Translation::of(mappings);
        let (mut addresses, mut views) = (BTreeMap::new(), BTreeMap::<u64, BTreeSet<Addr>>::new());
        for mapping in processes.iter().flat_map(|maps| &maps.mappings) {
            let object = mapping.object.unwrap();
            for at in (mapping.range.start..mapping.range.end).step_by(PAGE as usize) {
                let at = Addr { space: mapping.range.space, at };
                let page = Range::new(at.space, at.at, at.at + PAGE);
                let Some(memory) = translation.shared_address(at) else {
                    assert!(!self.shared.contains(&object.inode));
                    assert!(mappings.find(&page).is_some_and(|own| own.range.covers(&page)));
                    continue;
                };
                assert!(self.shared.contains(&object.inode) && mappings.find(&page).is_none());
                let offset = object.offset + (at.at - mapping.range.start);
                let known = *addresses.entry((object.inode, offset)).or_insert(memory.at);
                assert_eq!(known, memory.at, "one address for each page of an object");
                views.entry(memory.at).or_default().insert(at);
            }
        }
        for (page, address) in &addresses {
            assert!(self.addresses.get(page).is_none_or(|before| before == address));
        }
        let different: BTreeSet<&u64> = addresses.values().collect();
        assert_eq!(different.len(), addresses.len(), "no two pages have one address");
        check_users(&translation, mappings, &views);
        self.addresses = addresses;
    }
}

/// Checks the mappings of the shared space and their users, a page at a time.
fn check_users(
    translation: &Translation,
    mappings: &Mappings,
    views: &BTreeMap<u64, BTreeSet<Addr>>,
) {
    assert!(
        mappings
            .mappings
            .is_sorted_by(|a, b| a.range.end <= b.range.start || a.range.space != b.range.space)
    );
    let shared = mappings.mappings.iter().filter(|of| of.range.space == SHARED);
    let mut listed = BTreeSet::new();
    for mapping in shared {
        listed.extend((mapping.range.start..mapping.range.end).step_by(PAGE as usize));
    }
    assert!(listed.iter().eq(views.keys()));
    for (address, expected) in views {
        let page = Range::new(SHARED, *address, address + PAGE);
        let users: Vec<Addr> = translation.users(&page).map(|piece| piece.range.at(0)).collect();
        assert_eq!(users.len(), expected.len());
        assert_eq!(&users.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

/// A process: a row of mappings `(pages between it and the last one, pages, object, offset)`.
type Row = Vec<(u64, u64, u64, u64)>;

fn of_row(space: u32, row: &Row) -> ProcessMaps {
    let mut at = GIB - 20 * PAGE + u64::from(space) * PAGE;
    let mapping = |(gap, pages, inode, offset): &(u64, u64, u64, u64)| {
        let start = at + gap * PAGE;
        at = start + pages * PAGE;
        mapped(space, start, pages * PAGE, *inode, offset * PAGE)
    };
    process(row.iter().map(mapping).collect())
}

proptest! {
    // Up to 4 processes map up to 5 parts of 4 objects each; all of them change three times. Gaps
    // of 2^19 pages, twice the distance up to which ranges share a part.
    #[test]
    fn every_page_has_the_address_that_a_naive_observer_expects(
        times in prop::collection::vec(
            prop::collection::vec(
                prop::collection::vec(
                    (0u64..3, 1u64..6, 0u64..4, prop_oneof![0u64..12, (1u64 << 19)..(1 << 19) + 9]),
                    0..5,
                ),
                0..4,
            ),
            1..4,
        )
    ) {
        let (mut memory, mut oracle) = (SharedMemory::default(), Oracle::default());
        for rows in times {
            let processes: Vec<ProcessMaps> =
                (0..).zip(&rows).map(|(space, row)| of_row(space, row)).collect();
            let mappings = layout(&mut memory, &processes);
            oracle.check(&processes, &mappings);
        }
    }
}
