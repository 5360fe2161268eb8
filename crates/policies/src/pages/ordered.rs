//! Things by numbers that ascend, most of which go soon: found and taken without a search.

use std::collections::VecDeque;

/// The things; the number of the first place, then what is there.
#[derive(Clone, Debug)]
pub(super) struct Ordered<V> {
    first: u64,
    places: VecDeque<Option<V>>,
}

impl<V> Ordered<V> {
    pub(super) fn new() -> Self {
        Self { first: 0, places: VecDeque::new() }
    }

    /// Things that are there.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// The next number is the thing's.
    pub(super) fn push(&mut self, value: V) -> u64 {
        self.places.push_back(Some(value));
        self.first + self.places.len() as u64 - 1
    }

    /// Takes out the thing of that number.
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
        // Held against a map: pushes, and takes of any number.
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
