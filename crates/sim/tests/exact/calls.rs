//! System calls of programs, and actions with exact outcomes.

use tierscope_core::{
    Access, Action, ActionId, ActionKind, Addr, Budget, BusObserver, Clock, Failure, Mover as _,
    Outcome, PageEvent, PageEventKind, PageEvents, Range, SpaceId, Tier, Time,
};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{ACCESSED, PRESENT};
use tierscope_sim::exact::{Denied, Machine, Map};
use tierscope_workloads::app::Call;

use crate::stage::setup;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A machine with one mapping.
fn mapped(map: &Map) -> (Machine, Range) {
    let mut machine = Machine::new(&setup([64, 64])).expect("it is possible");
    let space = machine.spawn("toy", false).expect("there is room");
    let range = machine.map(space, map).expect("there is room");
    machine.wait(Time(0));
    (machine, range)
}

fn events(machine: &mut Machine) -> Vec<(u64, u64, PageEventKind)> {
    let mut events: Vec<PageEvent> = Vec::new();
    PageEvents::drain(machine, &mut events);
    events.iter().map(|e| (e.range.start, e.range.bytes(), e.kind)).collect()
}

fn leaves<B: BusObserver>(machine: &Machine<B>, space: SpaceId) -> Vec<(u64, u64)> {
    let entries = machine.page_table(space);
    let leaves = entries.iter().filter(|entry| entry.level.number() == 1);
    leaves.map(|entry| (entry.linear, entry.entry)).collect()
}

// Half of the first page, all of the second: both are present afterwards, without an access.
#[test]
fn a_file_is_read_past_the_programs_tables() {
    let (mut machine, range) = mapped(&Map::anonymous(4 * PAGE));
    let read = Call::File { at: range.start + 2048, bytes: 2048 + PAGE, writes: false };
    machine.call(0, range.space, read).expect("the host has memory").expect("it is mapped");
    let found = leaves(&machine, range.space);
    assert_eq!(
        found.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
        [range.start, range.start + PAGE]
    );
    assert!(found.iter().all(|(_, entry)| entry & (PRESENT | ACCESSED) == PRESENT));
    let seen = events(&mut machine);
    let allocated = PageEventKind::Allocated(Tier(0));
    let read = PageEventKind::FileAccess(Access::Load);
    assert_eq!(
        seen,
        [
            (range.start, PAGE, allocated),
            (range.start + PAGE, PAGE, allocated),
            (range.start, 2 * PAGE, read)
        ]
    );
    // Half a page and a page, in lines of 64 bytes.
    assert_eq!(machine.account().lines_read[0], 96);
    assert_eq!(machine.account().counts.walks, 0);
}

#[test]
fn locked_pages_are_present_and_do_not_move() {
    let (mut machine, range) = mapped(&Map::anonymous(4 * PAGE));
    let lock = |on| Call::Lock { at: range.start, bytes: 2 * PAGE, on };
    machine.call(0, range.space, lock(true)).expect("memory").expect("it is mapped");
    assert_eq!(leaves(&machine, range.space).len(), 2);
    machine.populate(range).expect("there is memory");
    let moved = carried_out(&mut machine, &[(range, ActionKind::Move(Tier(1)))]);
    let [locked, free] = [2 * PAGE, 2 * PAGE];
    assert_eq!((moved[0].done, moved[0].failed, moved[0].why), (free, locked, Some(Failure::Busy)));
    // Locked pages are not freed either.
    let free = Call::Free { at: range.start, bytes: 4 * PAGE };
    machine.call(0, range.space, free).expect("memory").expect("it is mapped");
    assert_eq!(leaves(&machine, range.space).len(), 2);
    machine.call(0, range.space, lock(false)).expect("memory").expect("it is mapped");
    let moved = carried_out(&mut machine, &[(range, ActionKind::Move(Tier(1)))]);
    assert_eq!((moved[0].done, moved[0].failed, moved[0].why), (2 * PAGE, 0, None));
    let kinds: Vec<_> = events(&mut machine).into_iter().map(|(_, _, kind)| kind).collect();
    let has = |kind| kinds.contains(&kind);
    assert!(
        has(PageEventKind::Locked) && has(PageEventKind::Unlocked) && has(PageEventKind::Freed)
    );
}

// The last quarter of a huge page is freed; the rest of it becomes small pages, and the freed part
// is allocated again.
#[test]
fn discarded_pages_are_allocated_again() {
    let map = Map { pages: PageSize::M2, ..Map::anonymous(2 * MIB) };
    let (mut machine, range) = mapped(&map);
    let at = |offset| Addr { space: range.space, at: range.start + offset };
    let before = machine.access(0, at(0), true).expect("it may");
    let gone = machine.access(0, at(2 * MIB - PAGE), true).expect("it may");
    let free = Call::Free { at: range.start + MIB * 3 / 2, bytes: MIB / 2 };
    machine.call(0, range.space, free).expect("memory").expect("it is mapped");
    assert_eq!(leaves(&machine, range.space).len(), 384);
    assert_eq!(machine.access(0, at(0), false), Ok(before), "what stays stays");
    let faults = machine.account().counts.first_touches;
    machine.access(0, at(2 * MIB - PAGE), false).expect("it may");
    assert_eq!(machine.account().counts.first_touches[0], faults[0] + 1, "{gone:#x}");
}

#[test]
fn calls_beyond_the_mapping_are_denied() {
    let (mut machine, range) = mapped(&Map::anonymous(2 * PAGE));
    let read = Call::File { at: range.end, bytes: 1, writes: false };
    assert_eq!(machine.call(0, range.space, read).expect("memory"), Err(Denied::Unmapped));
    let lock = Call::Lock { at: range.end, bytes: 1, on: true };
    assert_eq!(machine.call(0, range.space, lock).expect("memory"), Err(Denied::Unmapped));
}

fn carried_out(machine: &mut Machine, wanted: &[(Range, ActionKind)]) -> Vec<Outcome> {
    let actions: Vec<Action> = wanted
        .iter()
        .enumerate()
        .map(|(id, (range, kind))| Action {
            id: ActionId(id as u64),
            after: None,
            range: *range,
            kind: *kind,
        })
        .collect();
    let mut mover = machine.mover();
    mover.submit(&actions, Budget { bytes: 1 << 40 }).expect("it can");
    let until = Time(machine.now().0 + 1_000_000_000);
    let mut outcomes = Vec::new();
    while machine.now() < until && outcomes.len() < wanted.len() {
        machine.wait(until);
        mover.poll(&mut outcomes).expect("it can");
    }
    outcomes
}

// A page that needs no change is not a failure; a page that cannot be changed is, with its reason.
#[test]
fn outcomes_of_splits_and_collapses_count_the_changed_bytes() {
    let map = Map { pages: PageSize::M2, ..Map::anonymous(4 * MIB) };
    let (mut machine, range) = mapped(&map);
    machine.populate(range).expect("there is memory");
    let small = machine.map(range.space, &Map::anonymous(MIB)).expect("there is room");
    machine.populate(small).expect("there is memory");
    let nothing = machine.map(range.space, &Map::anonymous(4 * MIB)).expect("there is room");
    let outcomes = carried_out(
        &mut machine,
        &[
            (range, ActionKind::Collapse),
            (range, ActionKind::Split),
            (range, ActionKind::Split),
            (range, ActionKind::Collapse),
            (small, ActionKind::Collapse),
            (nothing, ActionKind::Split),
            (range, ActionKind::Move(Tier(0))),
        ],
    );
    let results: Vec<_> = outcomes.iter().map(|o| (o.done, o.failed, o.why)).collect();
    assert_eq!(
        results,
        [
            (0, 0, None),
            (4 * MIB, 0, None),
            (0, 0, None),
            (4 * MIB, 0, None),
            (0, MIB, Some(Failure::Unsupported)),
            (0, 0, Some(Failure::Unmapped)),
            (0, 0, None),
        ]
    );
}
