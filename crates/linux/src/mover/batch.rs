//! Migrates one batch of pages to one node, and determines the outcome of each page.
//!
//! The kernel ends a call early when a page of its list cannot be moved now (mm/migrate.c:
//! `do_pages_move`, "Positive err means the number of failed pages"): the pages that it did not
//! reach keep their status, and so do pages of the list that failed. The location of pages is
//! therefore queried afterwards, and the remaining pages are retried, in halves if a call made no
//! progress, down to single pages.

use std::io;

use tierscope_core::Node;

use super::account::Cause;
use super::kernel::Kernel;

/// Initial status: a value that the kernel never writes.
const UNWRITTEN: i32 = i32::MIN;
/// Maximum number of calls for one batch; pages that remain are reported as busy.
const CALLS: u32 = 64;

/// Outcome of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The page is on the requested node.
    Moved,
    /// The page does not exist any more.
    Absent,
    Failed(Cause),
}

/// Outcomes of a batch, and the number of calls that it took.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchResult {
    pub(crate) fates: Vec<Fate>,
    pub(crate) calls: u32,
}

/// Moves pages of a process to a node, with `process.1` also pages that other processes map. None
/// of them may be there already.
pub(crate) fn carry(
    kernel: &mut dyn Kernel,
    process: (u32, bool),
    pages: &[u64],
    node: Node,
) -> BatchResult {
    let mut carried = BatchResult { fates: vec![Fate::Failed(Cause::Busy); pages.len()], calls: 0 };
    // Parts of the batch that are still to be tried.
    let mut parts = vec![(0..pages.len()).collect::<Vec<usize>>()];
    while let Some(part) = parts.pop()
        && carried.calls < CALLS
    {
        let left = attempt(kernel, process, pages, node, (&part, &mut carried));
        if left.is_empty() {
            continue;
        }
        if left.len() < part.len() {
            parts.push(left);
        } else if left.len() > 1 {
            let (one, other) = left.split_at(left.len() / 2);
            parts.extend([other.to_vec(), one.to_vec()]);
        }
        // A single page that the kernel does not move remains busy.
    }
    carried
}

/// Makes one call; returns the indices of the pages that it did not reach.
fn attempt(
    kernel: &mut dyn Kernel,
    process: (u32, bool),
    pages: &[u64],
    node: Node,
    (part, carried): (&[usize], &mut BatchResult),
) -> Vec<usize> {
    let addresses: Vec<u64> = part.iter().map(|index| pages[*index]).collect();
    let mut status = vec![UNWRITTEN; addresses.len()];
    carried.calls += 1;
    let called = kernel.move_pages(process, &addresses, node, &mut status);
    let mut now = vec![UNWRITTEN; addresses.len()];
    let unclear = called.is_err() || status.iter().any(|status| *status != node.0 as i32);
    if unclear && kernel.locate(process.0, &addresses, &mut now).is_err() {
        now.fill(UNWRITTEN);
    }
    let mut left = Vec::new();
    for (slot, index) in part.iter().enumerate() {
        match fate(status[slot], now[slot], node, &called) {
            Some(fate) => carried.fates[*index] = fate,
            None => left.push(*index),
        }
    }
    left
}

/// Outcome of one page; `None` if the kernel did not reach it.
fn fate(status: i32, now: i32, node: Node, called: &io::Result<u64>) -> Option<Fate> {
    let there = node.0 as i32;
    if status == there || now == there {
        return Some(Fate::Moved);
    }
    if now == -libc::ENOENT || status == -libc::ENOENT {
        return Some(Fate::Absent);
    }
    if let Err(error) = called {
        return Some(Fate::Failed(Cause::of_call(error.raw_os_error().unwrap_or(0))));
    }
    match status {
        // A zero page, or a page that was unmapped in between: nothing to move.
        status if status == -libc::EFAULT => Some(Fate::Absent),
        UNWRITTEN => None,
        status if status < 0 => Some(Fate::Failed(Cause::of_page(-status))),
        // The page is on another node than requested: not moved.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fake::{Fake, PID, page};
    use super::*;

    fn pages(numbers: std::ops::Range<u64>) -> Vec<u64> {
        numbers.map(page).collect()
    }

    #[test]
    fn movable_pages_move_in_one_call() {
        let mut fake = Fake::with_pages(8, 1);
        let carried = carry(&mut fake, (PID, false), &pages(0..8), Node(0));
        assert_eq!((carried.fates, carried.calls), (vec![Fate::Moved; 8], 1));
        assert_eq!(fake.on(0), 8);
    }

    // Page 5 is pinned: the call ends there, and the kernel reports no status for pages 4 to 7 (its
    // list).
    #[test]
    fn a_pinned_page_does_not_block_the_others() {
        let mut fake = Fake::with_pages(8, 1);
        fake.pin(5);
        let carried = carry(&mut fake, (PID, false), &pages(0..8), Node(0));
        let expected: Vec<Fate> = (0..8)
            .map(|page| if page == 5 { Fate::Failed(Cause::Busy) } else { Fate::Moved })
            .collect();
        assert_eq!(carried.fates, expected);
    }

    #[test]
    fn an_error_of_the_call_applies_to_pages_that_did_not_move() {
        let mut fake = Fake::with_pages(4, 1);
        fake.gone = true;
        let carried = carry(&mut fake, (PID, false), &pages(0..4), Node(0));
        assert_eq!(carried.fates, vec![Fate::Failed(Cause::Gone); 4]);
        let mut fake = Fake::with_pages(4, 1);
        fake.room[0] = 2;
        let carried = carry(&mut fake, (PID, false), &pages(0..4), Node(0));
        assert_eq!(carried.fates[..2], [Fate::Moved; 2]);
        assert_eq!(carried.fates[2..], [Fate::Failed(Cause::NoRoom); 2]);
        let mut fake = Fake::with_pages(4, 1);
        let carried = carry(&mut fake, (PID, false), &pages(0..4), Node(7));
        assert_eq!(carried.fates, vec![Fate::Failed(Cause::Offline); 4]);
    }

    #[test]
    fn every_page_has_its_own_cause() {
        let mut fake = Fake::with_pages(6, 1);
        fake.share(1);
        fake.free_page(2);
        fake.pin(4);
        let carried = carry(&mut fake, (PID, false), &pages(0..6), Node(0));
        let expected = [
            Fate::Moved,
            Fate::Failed(Cause::Shared),
            Fate::Absent,
            Fate::Moved,
            Fate::Failed(Cause::Busy),
            Fate::Moved,
        ];
        assert_eq!(carried.fates, expected);
        let carried = carry(&mut fake, (PID, true), &pages(1..2), Node(0));
        assert_eq!(carried.fates, [Fate::Moved], "with the processes that map it, too");
    }

    proptest! {
        // With any combination of pinned, shared and absent pages: exactly the pages reported as
        // moved are on the node.
        #[test]
        fn pages_reported_as_moved_are_on_the_node(
            pinned in prop::collection::btree_set(0u64..64, 0..6),
            shared in prop::collection::btree_set(0u64..64, 0..6),
            absent in prop::collection::btree_set(0u64..64, 0..6),
            room in 0u64..80,
        ) {
            let mut fake = Fake::with_pages(64, 1);
            pinned.iter().for_each(|page| fake.pin(*page));
            shared.iter().for_each(|page| fake.share(*page));
            absent.iter().for_each(|page| fake.free_page(*page));
            fake.room[0] = room;
            let carried = carry(&mut fake, (PID, false), &pages(0..64), Node(0));
            for (number, fate) in (0..).zip(&carried.fates) {
                prop_assert_eq!(fake.node_of(number) == Some(0), *fate == Fate::Moved, "{} {:?}", number, fate);
                prop_assert_eq!(fake.node_of(number).is_none(), *fate == Fate::Absent);
            }
            if room >= 64 {
                let failed = carried.fates.iter().filter(|fate| matches!(fate, Fate::Failed(_))).count();
                let still = |page: &&u64| !absent.contains(*page);
                let wanted = pinned.union(&shared).filter(still).count();
                prop_assert_eq!(failed, wanted);
            }
        }
    }
}
