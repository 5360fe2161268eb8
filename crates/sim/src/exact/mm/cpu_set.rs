//! Sets of cores.

/// Set of cores, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::exact) struct CpuSet(Vec<u64>);

impl CpuSet {
    pub(in crate::exact) fn insert(&mut self, cpu: usize) {
        if self.0.len() <= cpu / 64 {
            self.0.resize(cpu / 64 + 1, 0);
        }
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    /// In ascending order.
    pub(in crate::exact) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        self.0
            .iter()
            .enumerate()
            .flat_map(move |(at, word)| bits(*word).map(move |bit| at * 64 + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_cores_of_any_number() {
        let mut set = CpuSet::default();
        [130, 0, 63, 0].into_iter().for_each(|cpu| set.insert(cpu));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 130]);
    }
}
