//! A TLB as plain as can be: what the plugin's is held against. Two levels, least recently used, written for
//! nothing but to be obviously right.

/// A set-associative array of pages, each set in order of use.
#[derive(Debug)]
struct Array {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Array {
    fn new(entries: usize, ways: usize) -> Self {
        Array { sets: vec![Vec::new(); entries / ways], ways }
    }

    /// Whether the page is there; it is the last used afterwards if so.
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

/// Two levels: a miss fills both, the second fills the first, neither follows the other.
#[derive(Debug)]
pub(super) struct Tlb {
    first: Array,
    second: Array,
}

impl Tlb {
    /// Of so many entries and ways, level by level.
    pub(super) fn new(first: (usize, usize), second: (usize, usize)) -> Self {
        Tlb { first: Array::new(first.0, first.1), second: Array::new(second.0, second.1) }
    }

    /// An access to a page; whether it missed both.
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

    // One set of two ways before two sets of two: pages 0, 2, 4 share a set of the second.
    #[test]
    fn the_second_level_catches_what_the_first_lets_go() {
        let mut tlb = Tlb::new((2, 2), (4, 2));
        let missed: Vec<bool> = [0, 2, 0, 1, 2, 0, 4, 2].map(|page| tlb.access(page)).into();
        // 1 pushes 2 out of the first, and the second has it; 4 pushes 2 out of both.
        assert_eq!(missed, [true, true, false, true, false, false, true, true]);
    }
}
