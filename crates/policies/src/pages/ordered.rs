//! A map with ascending keys and mostly short-lived entries: insertion, access and removal without
//! a search.

use std::collections::VecDeque;

/// Entries by number, and in `first` the number of the first slot.
#[derive(Clone, Debug)]
pub(super) struct Ordered<V> {
    first: u64,
    places: VecDeque<Option<V>>,
}

impl<V> Ordered<V> {
    pub(super) fn new() -> Self {
        Self { first: 0, places: VecDeque::new() }
    }

    /// Number of entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Adds a value. Returns its number, which is the next one.
    pub(super) fn push(&mut self, value: V) -> u64 {
        self.places.push_back(Some(value));
        self.first + self.places.len() as u64 - 1
    }

    /// Removes the entry with this number.
    pub(super) fn remove(&mut self, number: u64) -> Option<V> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let value = self.places.get_mut(place)?.take()?;
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        Some(value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.places.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Compared with a `BTreeMap`: insertions, and removals of any number.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec(prop::option::of(0u64..40), 0..80)) {
            let (mut ordered, mut naive, mut next) = (Ordered::new(), BTreeMap::new(), 0);
            for step in steps {
                match step {
                    None => {
                        prop_assert_eq!(ordered.push(next * 3), next);
                        naive.insert(next, next * 3);
                        next += 1;
                    }
                    Some(number) => prop_assert_eq!(ordered.remove(number), naive.remove(&number)),
                }
                prop_assert_eq!(ordered.len(), naive.len());
                prop_assert!(ordered.values_mut().map(|value| *value).eq(naive.values().copied()));
            }
            if naive.is_empty() {
                prop_assert!(ordered.places.is_empty(), "what is gone takes no room");
            }
        }
    }
}
