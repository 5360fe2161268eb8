//! A minimal TLB as a reference for the plugin's: two levels, least recently used, written to be
//! obviously correct.

/// A set-associative array of page numbers, each set ordered from least to most recently used.
#[derive(Debug)]
struct Array {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Array {
    fn new(entries: usize, ways: usize) -> Self {
        Array { sets: vec![Vec::new(); entries / ways], ways }
    }

    /// Whether the page is present; if so, marks it as most recently used.
    fn find(&mut self, page: u64) -> bool {
        let number = (page % self.sets.len() as u64) as usize;
        let set = &mut self.sets[number];
        match set.iter().position(|each| *each == page) {
            Some(at) => {
                let page = set.remove(at);
                set.push(page);
                true
            }
            None => false,
        }
    }

    fn insert(&mut self, page: u64) {
        let number = (page % self.sets.len() as u64) as usize;
        let set = &mut self.sets[number];
        if set.len() == self.ways {
            set.remove(0);
        }
        set.push(page);
    }
}

/// Two levels: a miss fills both, a hit in the second level fills the first; they are neither
/// inclusive nor exclusive.
#[derive(Debug)]
pub(super) struct Tlb {
    first: Array,
    second: Array,
}

impl Tlb {
    /// A TLB with the given entries and ways of its first and second level.
    pub(super) fn new(first: (usize, usize), second: (usize, usize)) -> Self {
        Tlb { first: Array::new(first.0, first.1), second: Array::new(second.0, second.1) }
    }

    /// Accesses a page; returns whether both levels missed.
    pub(super) fn access(&mut self, page: u64) -> bool {
        if self.first.find(page) {
            return false;
        }
        let missed = !self.second.find(page);
        if missed {
            self.second.insert(page);
        }
        self.first.insert(page);
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One set of two ways in front of two sets of two: pages 0, 2, 4 share a set of the second
    // level.
    #[test]
    fn the_second_level_holds_evictions_of_the_first() {
        let mut tlb = Tlb::new((2, 2), (4, 2));
        let missed: Vec<bool> = [0, 2, 0, 1, 2, 0, 4, 2].map(|page| tlb.access(page)).into();
        // Page 1 evicts 2 from the first level, but not from the second; 4 evicts 2 from both.
        assert_eq!(missed, [true, true, false, true, false, false, true, true]);
    }
}
