//! The page state diagram (MULTI-CLOCK, HPCA'22, figure 4), as a table.
//!
//! The states are those of the kernel's page reclaim, and `Promote`, which MULTI-CLOCK adds. The
//! numbers are the figure's. The text names some transitions in pairs, "(1), and (2)" and "(7) or
//! (8)": the first of each is a scan's, which finds ACCESSED set or clear (`shrink_inactive_list`,
//! `shrink_active_list`), the second a supervised access's (`mark_page_accessed`, section III-A).
//! By section III-A a scan marks unaccessed pages as not referenced: transitions 1 and 7 have that
//! direction too.
//!
//! | from | seen by a scan | idle | by a system call | else |
//! |---|---|---|---|---|
//! | not on a list | | | | 5: added, inactive unreferenced |
//! | inactive unreferenced | 1 | stays | 2 | 3: demoted; 4: freed |
//! | inactive referenced | 6 | 1 | 6 | |
//! | active unreferenced | 7 | stays | 8 | 9: the active list outgrew the inactive one |
//! | active referenced | 10 | 7 | 10 | |
//! | promote | 12 | 11 | 12 | 11: cannot be promoted; 13: promoted |

/// A page's state: a vertex of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageState {
    /// On no list: not resident, or its tier is not known yet.
    Absent,
    /// New, or not accessed for a long time.
    InactiveUnreferenced,
    /// Inactive, and accessed once.
    InactiveReferenced,
    /// Active: accessed twice.
    ActiveUnreferenced,
    /// Active, and accessed once more.
    ActiveReferenced,
    /// On the promote list.
    Promote,
}

/// Cause of a state transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The page is put on a list.
    Added,
    /// A scan found that the page had been accessed (unsupervised access).
    Seen,
    /// A scan found that the page had not been accessed.
    Idle,
    /// A system call accessed the page (supervised access).
    Called,
    /// A scan found that the page had not been accessed, and its active list is too long.
    Shrunk,
    /// The page was moved to the next lower tier.
    Demoted,
    /// The page was written back or reclaimed.
    Freed,
    /// The page cannot be promoted: it is locked, or there is no room.
    Refused,
    /// The page was moved to the next higher tier.
    Promoted,
}

/// A transition: an edge of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Number of the transition in the figure.
    pub number: u8,
    /// State of the page before the transition.
    pub from: PageState,
    /// Event that causes the transition.
    pub on: Event,
    /// State after the transition; after a promotion or demotion, in the other tier.
    pub to: PageState,
}

const fn edge(number: u8, from: PageState, on: Event, to: PageState) -> Transition {
    Transition { number, from, on, to }
}

use Event::{Added, Called, Demoted, Freed, Idle, Promoted, Refused, Seen, Shrunk};
use PageState::{
    Absent, ActiveReferenced, ActiveUnreferenced, InactiveReferenced, InactiveUnreferenced, Promote,
};

/// All transitions. A pair of state and event that is not listed leaves the page in its state.
pub const TRANSITIONS: [Transition; 19] = [
    edge(1, InactiveUnreferenced, Seen, InactiveReferenced),
    edge(1, InactiveReferenced, Idle, InactiveUnreferenced),
    edge(2, InactiveUnreferenced, Called, InactiveReferenced),
    edge(3, InactiveUnreferenced, Demoted, InactiveUnreferenced),
    edge(4, InactiveUnreferenced, Freed, Absent),
    edge(5, Absent, Added, InactiveUnreferenced),
    edge(6, InactiveReferenced, Seen, ActiveUnreferenced),
    edge(6, InactiveReferenced, Called, ActiveUnreferenced),
    edge(7, ActiveUnreferenced, Seen, ActiveReferenced),
    edge(7, ActiveReferenced, Idle, ActiveUnreferenced),
    edge(8, ActiveUnreferenced, Called, ActiveReferenced),
    edge(9, ActiveUnreferenced, Shrunk, InactiveUnreferenced),
    edge(10, ActiveReferenced, Seen, Promote),
    edge(10, ActiveReferenced, Called, Promote),
    edge(11, Promote, Idle, ActiveUnreferenced),
    edge(11, Promote, Refused, ActiveUnreferenced),
    edge(12, Promote, Seen, Promote),
    edge(12, Promote, Called, Promote),
    // "the higher tier's active list" (figure 3): a page that was just accessed often must not be a
    // candidate for demotion.
    edge(13, Promote, Promoted, ActiveUnreferenced),
];

const STATES: usize = 6;
const EVENTS: usize = 9;

/// Lookup table of the next state, by state and event.
const TABLE: [[PageState; EVENTS]; STATES] = {
    let states = [
        Absent,
        InactiveUnreferenced,
        InactiveReferenced,
        ActiveUnreferenced,
        ActiveReferenced,
        Promote,
    ];
    let mut table = [[Absent; EVENTS]; STATES];
    let mut state = 0;
    while state < STATES {
        table[state] = [states[state]; EVENTS];
        state += 1;
    }
    let mut number = 0;
    while number < TRANSITIONS.len() {
        let edge = TRANSITIONS[number];
        table[edge.from as usize][edge.on as usize] = edge.to;
        number += 1;
    }
    table
};

/// State after an event. Without a promote list, as in the fastest tier and in the kernel itself,
/// an active referenced page stays active referenced.
#[must_use]
#[inline]
pub fn next(state: PageState, event: Event, promotes: bool) -> PageState {
    match TABLE[state as usize][event as usize] {
        Promote if !promotes && state != Promote => ActiveReferenced,
        state => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that this transition, with this number, is in the table.
    fn leads(number: u8, from: PageState, on: Event, to: PageState) {
        let edge = TRANSITIONS.iter().find(|edge| edge.from == from && edge.on == on);
        assert_eq!(edge, Some(&Transition { number, from, on, to }));
        assert_eq!(next(from, on, true), to);
    }

    #[test]
    fn transition_1_a_scan_marks_inactive_pages_and_unmarks_them() {
        leads(1, InactiveUnreferenced, Seen, InactiveReferenced);
        leads(1, InactiveReferenced, Idle, InactiveUnreferenced);
    }

    #[test]
    fn transition_2_a_system_call_marks_inactive_pages() {
        leads(2, InactiveUnreferenced, Called, InactiveReferenced);
    }

    #[test]
    fn transition_3_a_cold_page_is_demoted() {
        leads(3, InactiveUnreferenced, Demoted, InactiveUnreferenced);
    }

    #[test]
    fn transition_4_a_cold_page_of_the_lowest_tier_is_freed() {
        leads(4, InactiveUnreferenced, Freed, Absent);
    }

    #[test]
    fn transition_5_new_pages_are_inactive_and_unreferenced() {
        leads(5, Absent, Added, InactiveUnreferenced);
    }

    #[test]
    fn transition_6_a_second_access_activates() {
        leads(6, InactiveReferenced, Seen, ActiveUnreferenced);
        leads(6, InactiveReferenced, Called, ActiveUnreferenced);
    }

    #[test]
    fn transition_7_a_scan_marks_active_pages_and_unmarks_them() {
        leads(7, ActiveUnreferenced, Seen, ActiveReferenced);
        leads(7, ActiveReferenced, Idle, ActiveUnreferenced);
    }

    #[test]
    fn transition_8_a_system_call_marks_active_pages() {
        leads(8, ActiveUnreferenced, Called, ActiveReferenced);
    }

    #[test]
    fn transition_9_an_active_page_that_is_not_accessed_becomes_inactive() {
        leads(9, ActiveUnreferenced, Shrunk, InactiveUnreferenced);
    }

    #[test]
    fn transition_10_an_active_page_that_is_accessed_again_is_to_be_promoted() {
        leads(10, ActiveReferenced, Seen, Promote);
        leads(10, ActiveReferenced, Called, Promote);
        assert_eq!(next(ActiveReferenced, Seen, false), ActiveReferenced, "the fastest tier");
        assert_eq!(next(ActiveReferenced, Called, false), ActiveReferenced);
    }

    #[test]
    fn transition_11_a_page_that_is_not_promoted_is_active() {
        leads(11, Promote, Idle, ActiveUnreferenced);
        leads(11, Promote, Refused, ActiveUnreferenced);
    }

    #[test]
    fn transition_12_a_promotion_candidate_stays_one_when_accessed() {
        leads(12, Promote, Seen, Promote);
        leads(12, Promote, Called, Promote);
    }

    #[test]
    fn transition_13_a_promoted_page_is_active_in_the_higher_tier() {
        leads(13, Promote, Promoted, ActiveUnreferenced);
    }

    #[test]
    fn all_thirteen_transitions_exist_once() {
        let numbers: std::collections::BTreeSet<u8> =
            TRANSITIONS.iter().map(|edge| edge.number).collect();
        assert_eq!(numbers, (1..=13).collect());
        for (index, edge) in TRANSITIONS.iter().enumerate() {
            let same = |other: &&Transition| (other.from, other.on) == (edge.from, edge.on);
            assert_eq!(TRANSITIONS[index..].iter().filter(same).count(), 1, "{edge:?}");
        }
    }

    // Four accesses in four scans make a new page a candidate; two scans without an access undo it.
    #[test]
    fn a_page_passes_through_all_states() {
        let walk = |from, events: &[Event]| {
            events.iter().fold(from, |state, event| next(state, *event, true))
        };
        assert_eq!(walk(Absent, &[Added, Seen, Seen, Seen, Seen]), Promote);
        assert_eq!(walk(Promote, &[Idle, Idle]), ActiveUnreferenced, "the ratio decides");
        assert_eq!(walk(Promote, &[Idle, Shrunk]), InactiveUnreferenced);
        assert_eq!(walk(Absent, &[Added, Called, Called, Called, Called]), Promote);
    }
}
