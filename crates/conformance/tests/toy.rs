//! The toy machine passes the suite that it serves as the oracle of.

use tierscope_conformance::toy::{Toy, idle, random_touches};
use tierscope_conformance::{access_bits, residency};
use tierscope_core::{Addr, Level, Ports, Probe, Radix, Range, SpaceId};

const MIB: u64 = 1 << 20;

#[test]
fn accessed_bits_conform_at_four_and_five_levels() {
    let area = Range::new(SpaceId(0), 16 * MIB, 24 * MIB);
    for radix in [Radix::X86_64, Radix::X86_64_LA57] {
        access_bits::conforms(&mut Toy::new(&[area], idle()).with_radix(radix), area);
    }
}

#[test]
fn a_huge_leaf_answers_for_all_its_pages() {
    let area = Range::new(SpaceId(0), 0, 4 * MIB);
    let mut toy = Toy::new(&[area], idle()).with_huge_pages(&[Range { end: 2 * MIB, ..area }]);
    toy.touch(Addr { space: SpaceId(0), at: 4096 });
    let mut probe = Probe::test(area.at(MIB), Level::PTE);
    toy.access_bits().unwrap().probe(std::slice::from_mut(&mut probe)).unwrap();
    assert!(probe.is_young());
    assert_eq!(probe.answer.reached, Some(Level::PMD));
}

#[test]
fn two_mappings_beneath_one_entry_are_both_seen() {
    let (first, second) =
        (Range::new(SpaceId(0), 0, MIB), Range::new(SpaceId(0), MIB + 4096, 2 * MIB));
    let mut toy = Toy::new(&[first, second], idle());
    let pages = [first.at(8192), second.at(8192)];
    access_bits::a_shared_upper_entry_is_judged_once(&mut toy, pages);
}

#[test]
fn nothing_is_hidden_and_a_flush_changes_nothing() {
    let area = Range::new(SpaceId(0), 0, 16 * MIB);
    let hot = Range { end: 4096, ..area };
    let mut toy = Toy::new(&[area], random_touches(&[hot], 100_000, 1));
    residency::a_flush_uncovers_a_resident_page(&mut toy, hot.at(0), area.at(8 * MIB), false);
}

// 16,384 pages, 100,000 accesses per second: 6.1 accesses per second and page.
#[test]
fn background_is_seen() {
    let area = Range::new(SpaceId(0), 0, 64 * MIB);
    let mut toy = Toy::new(&[area], random_touches(&[area], 100_000, 1));
    residency::background_sets_leaves_at_its_rate(&mut toy, area, 100_000.0 / 16_384.0);
}
