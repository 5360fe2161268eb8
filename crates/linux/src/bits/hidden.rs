//! Memory whose ACCESSED bits tell nothing: what the module refuses, and RAM of KVM guests.

use tierscope_core::{
    AccessBits as _, Level, Mapping, Mappings, Probe, Range, RangeSet, Result, State, Unknown,
};

use super::Bits;
use crate::guest_memory::guest_ram;

/// Number of times that refused memory is asked for: a lock that the module needs may be held for
/// the moment.
const TRIES: usize = 3;

impl Bits {
    /// The hidden parts of these mappings.
    pub(super) fn hidden_parts(&mut self, mappings: &Mappings) -> Result<Vec<(Range, Unknown)>> {
        let guest = guest_ram(mappings);
        let refused: RangeSet = self.refused(&mappings.mappings)?.into_iter().collect();
        let parts = |set: &RangeSet, why: Unknown| -> Vec<(Range, Unknown)> {
            set.as_slice().iter().map(|range| (*range, why)).collect()
        };
        let mut hidden = parts(&guest, Unknown::Guest);
        hidden.extend(parts(&refused.minus(&guest), Unknown::Refused));
        hidden.sort_unstable_by_key(|(range, _)| *range);
        Ok(hidden)
    }

    /// The mappings that the module refuses. Only mappings that consist of whole pages of a
    /// huge-page pool are asked for.
    fn refused(&mut self, mappings: &[Mapping]) -> Result<Vec<Range>> {
        let page = Level::PMD.entry_bytes();
        let whole = |range: &Range| (range.start | range.end).is_multiple_of(page);
        let mut refused: Vec<Range> =
            mappings.iter().map(|mapping| mapping.range).filter(whole).collect();
        for _ in 0..TRIES {
            let question = |range: &Range| Probe::test(range.at(0), Level::PMD);
            let mut probes: Vec<Probe> = refused.iter().map(question).collect();
            self.probe(&mut probes)?;
            let mut answers = probes.iter().map(|probe| probe.answer.state == State::Refused);
            refused.retain(|_| answers.next() == Some(true));
        }
        Ok(refused)
    }
}
