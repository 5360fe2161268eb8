//! One answer from those of several processes that map the same memory.

use tierscope_core::{AccessedSet, Judged, LeafKind, State};

use crate::shared_memory::Piece;

/// Unites two answers: accessed if either process accessed it.
///
/// A refusal is the answer unless an entry could be judged: where another process has no entry, the
/// memory may still be there. The level is the finer one: memory that one process maps by a huge
/// page and the other by pages has bits of its pages.
pub(super) fn unite(one: Judged, other: Judged) -> Judged {
    let (first, second) = if rank(one) >= rank(other) { (one, other) } else { (other, one) };
    let reached = match (first.reached, second.reached) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    };
    let kind = match (first.kind, second.kind) {
        (LeafKind::Table, _) | (_, LeafKind::Table) => LeafKind::Table,
        (LeafKind::None, second) => second,
        (first, _) => first,
    };
    Judged { state: first.state, reached, kind, dirty: first.dirty || second.dirty }
}

fn rank(answer: Judged) -> u8 {
    match answer.state {
        State::Gone => 0,
        State::Unmapped => 1,
        State::Absent => 2,
        State::Refused => 3,
        State::Old => 4,
        State::Young => 5,
    }
}

/// Adds the bits of a process's scan that belong to `piece` to those of the memory. Where entries
/// of the process and of the memory have different borders, both entries that overlap get the bit.
pub(super) fn add_bits(to: &mut AccessedSet, from: &AccessedSet, piece: &Piece) {
    let shift = to.level.shift();
    let first = (piece.range.start - from.range.start) >> shift;
    let end = ((piece.range.end - 1 - from.range.start) >> shift) + 1;
    let aligned = piece.memory.at.wrapping_sub(piece.range.start).is_multiple_of(1 << shift);
    let target = |address: u64| {
        let memory = address.clamp(piece.range.start, piece.range.end - 1) - piece.range.start;
        (piece.memory.at + memory - to.range.start) >> shift
    };
    let to_first = target(piece.range.start);
    let of_entry = |entry: u64| {
        let start = from.range.start + (entry << shift);
        (target(start), target(start + ((1 << shift) - 1)))
    };
    for (to, from) in [(&mut to.young, &from.young), (&mut to.present, &from.present)] {
        if to.is_empty() || from.is_empty() {
            continue;
        }
        if aligned {
            add_run(to, to_first, from, first, end - first);
            continue;
        }
        for entry in
            (first..end).filter(|entry| from[(entry / 64) as usize] >> (entry % 64) & 1 == 1)
        {
            let (one, other) = of_entry(entry);
            for bit in [one, other] {
                to[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
    }
}

/// Adds `count` bits of `from`, from bit `first` on, to those of `to` from bit `to_first` on.
fn add_run(to: &mut [u64], to_first: u64, from: &[u64], first: u64, count: u64) {
    let mut done = 0;
    while done < count {
        let (source, target) = (first + done, to_first + done);
        let room = (64 - source % 64).min(64 - target % 64).min(count - done);
        let mask = u64::MAX >> (64 - room);
        let bits = from[(source / 64) as usize] >> (source % 64) & mask;
        to[(target / 64) as usize] |= bits << (target % 64);
        done += room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::{Addr, Level, Range, SpaceId};

    fn judged(state: State, reached: Option<Level>, kind: LeafKind) -> Judged {
        Judged { state, reached, kind, dirty: false }
    }

    #[test]
    fn young_precedes_old_and_old_precedes_a_refusal() {
        let states =
            [State::Gone, State::Unmapped, State::Absent, State::Refused, State::Old, State::Young];
        for (index, state) in states.iter().enumerate() {
            for other in &states[index..] {
                let of = |state: &State| judged(*state, None, LeafKind::None);
                assert_eq!(unite(of(state), of(other)).state, *other);
                assert_eq!(unite(of(other), of(state)).state, *other);
            }
        }
    }

    // One process maps it by a huge page, the other one by pages.
    #[test]
    fn the_finer_level_answers() {
        let (pte, pmd) = (Some(Level::PTE), Some(Level::PMD));
        let huge = judged(State::Young, pmd, LeafKind::Page);
        let page = judged(State::Old, pte, LeafKind::Page);
        assert_eq!(unite(huge, page), judged(State::Young, pte, LeafKind::Page));
        let table = judged(State::Old, pmd, LeafKind::Table);
        assert_eq!(unite(huge, table), judged(State::Young, pmd, LeafKind::Table));
        let hole = judged(State::Absent, pmd, LeafKind::None);
        assert_eq!(unite(hole, page), page);
    }

    proptest! {
        // 200 entries of a process; a part of them, at any distance, is added to 400 entries. The
        // oracle sets a bit of the memory for each page of a young entry.
        #[test]
        fn bits_are_those_of_a_naive_observer(
            young in prop::collection::vec(any::<u64>(), 4),
            start in 0u64..1000, pages in 1u64..500, memory in 0u64..3000,
            level in 1u8..3, aligned in any::<bool>(),
        ) {
            let level = Level::new(level).unwrap();
            let entry = level.entry_bytes() >> 12;
            let (start, end) = (start.min(200 * entry - 1), (start + pages).min(200 * entry));
            let memory = if aligned { memory / entry * entry + start % entry } else { memory };
            let range = |pages: u64| Range::new(SpaceId(1), 0, pages << 12);
            let mut from = AccessedSet::default();
            from.reset(&range(200 * entry), level, false);
            from.young.copy_from_slice(&young);
            let mut to = AccessedSet::default();
            to.reset(&range(4096 + 400 * entry), level, false);
            let piece = Piece {
                range: Range::new(SpaceId(1), start << 12, end << 12),
                memory: Addr { space: SpaceId(0), at: memory << 12 },
                writable: true,
            };
            let mut expected = to.young.clone();
            for page in start..end {
                if from.is_young(page / entry) {
                    let bit = (memory + page - start) / entry;
                    expected[(bit / 64) as usize] |= 1 << (bit % 64);
                }
            }
            add_bits(&mut to, &from, &piece);
            prop_assert_eq!(to.young, expected);
        }
    }
}
