//! Places of targets: DAMON knows a target by its index, and keeps an index's regions when its pid
//! changes.

use std::collections::HashSet;

use tierscope_core::SpaceId;

/// A process and its space.
type Target = (u32, SpaceId);

/// Whether both lists have the same targets, in any order.
pub(super) fn are_alike(some: &[Target], others: &[Target]) -> bool {
    let known: HashSet<&Target> = some.iter().collect();
    some.len() == others.len() && others.iter().all(|target| known.contains(target))
}

/// The targets of `new`, each at its index in `old` where possible: others fill the indices of
/// targets that left, then follow; the last ones fill what is still open.
pub(super) fn placed(old: &[Target], new: &[Target]) -> Vec<Target> {
    let (before, after): (HashSet<&Target>, HashSet<&Target>) =
        (old.iter().collect(), new.iter().collect());
    let mut others = new.iter().filter(|target| !before.contains(target)).copied();
    let place = |target: &Target| match after.contains(target) {
        true => Some(*target),
        false => others.next(),
    };
    let mut places: Vec<Option<Target>> = old.iter().map(place).collect();
    places.extend(others.map(Some));
    let mut at = 0;
    while at < places.len() {
        match places[at] {
            Some(_) => at += 1,
            None => drop(places.swap_remove(at)),
        }
    }
    places.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn targets(pids: &[u32]) -> Vec<Target> {
        pids.iter().map(|pid| (*pid, SpaceId(*pid))).collect()
    }

    #[test]
    fn targets_that_stay_keep_their_places() {
        let placed = |old: &[u32], new: &[u32]| -> Vec<u32> {
            let placed = placed(&targets(old), &targets(new));
            placed.into_iter().map(|(pid, _)| pid).collect()
        };
        assert_eq!(placed(&[1, 2, 3], &[9, 3, 1]), [1, 9, 3], "one left, one came");
        assert_eq!(placed(&[1, 2], &[1, 2, 7, 8]), [1, 2, 7, 8]);
        assert_eq!(placed(&[1, 2, 3], &[2, 3]), [3, 2], "the last one moves");
        assert_eq!(placed(&[1], &[2]), [2]);
    }

    proptest! {
        #[test]
        fn all_targets_are_placed_once(
            old in prop::collection::hash_set(0u32..20, 0..12),
            new in prop::collection::hash_set(0u32..20, 0..12),
        ) {
            let [old, new] = [old, new].map(|set| targets(&set.into_iter().collect::<Vec<_>>()));
            let placed = placed(&old, &new);
            prop_assert!(are_alike(&placed, &new));
            prop_assert_eq!(placed.len(), new.len());
        }
    }
}
