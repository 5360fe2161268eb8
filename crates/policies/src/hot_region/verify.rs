//! Verifies a region by probes of its pages before it is moved because of upper-level ACCESSED
//! bits.
//!
//! An ACCESSED bit of an upper level is set by one access to any of 512 or more pages: the
//! reviewers' third objection to Telescope. So pages of the region are drawn at random, their leaf
//! entries are cleared, and then probed once per window for some windows. The young share of the
//! drawn pages estimates the region's. An instrument that probes leaves misses the bits cleared
//! here, but 32 of a region's thousands of pages do not matter.

use std::time::Duration;

use tierscope_core::{Addr, Level, Orders, PAGE_SIZE, Probe, Range, Rng, Time};

use crate::settings::Visit;

/// Settings of verification, all assumed: with 32 pages and a tenth, a region of which a quarter is
/// accessed passes in 99 of 100 cases, a region of which a hundredth is accessed in 1 of 25
/// (binomial).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Pages drawn per region.
    pub pages: u32,
    /// Share of them that must be found young for the region to be hot.
    pub share: f64,
    /// Rounds of probes, one per window, after the clearing round.
    pub looks: u32,
    /// Time for which a verdict is valid.
    pub valid: Duration,
    /// Seed of the page draws.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { pages: 32, share: 0.1, looks: 5, valid: Duration::from_secs(10), seed: 1 }
    }
}

impl Config {
    pub(super) fn visit(&mut self, each: &mut dyn Visit) {
        each.value("verify-pages", "pages drawn of an unsure region", &mut self.pages);
        each.value("verify-share", "share of them that must be young", &mut self.share);
        each.value("verify-looks", "looks at them, one a window", &mut self.looks);
        each.value("verify-valid", "time for which a verdict is valid", &mut self.valid);
        each.value("seed", "seed of the draws", &mut self.seed);
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.pages == 0 || self.looks == 0 || self.share > 1.0 || self.pages > 4096 {
            return Err(
                "`verify-pages` must be 1 to 4096, `verify-looks` above 0, `verify-share` up \
                        to 1"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Result of a region's verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Verdict not decided yet.
    Open,
    /// Hot: pages across the region are accessed.
    Hot,
    /// Cold: few of the drawn pages are accessed.
    Cold,
}

#[derive(Clone, Debug)]
struct Candidate {
    range: Range,
    /// Addresses of the drawn pages, and whether each was found young.
    pages: Vec<(u64, bool)>,
    /// Rounds of probes so far; the first one only clears.
    looks: u32,
    verdict: Verdict,
    until: Time,
}

/// Regions under verification, and verdicts.
#[derive(Clone, Debug)]
pub(super) struct Verifier {
    config: Config,
    rng: Rng,
    candidates: Vec<Candidate>,
    /// Candidate and page of each pending probe.
    probed: Vec<(usize, usize)>,
}

/// Maximum number of regions under verification or with a valid verdict.
const CANDIDATES: usize = 1024;

impl Verifier {
    pub(super) fn new(config: Config) -> Self {
        Self { rng: Rng::seeded(config.seed), config, candidates: Vec::new(), probed: Vec::new() }
    }

    /// The verdict on a region; without one, starts its verification.
    pub(super) fn ask(&mut self, range: &Range, now: Time, orders: &mut Orders) -> Verdict {
        if let Some(verdict) = self.known(range) {
            return verdict;
        }
        if self.candidates.len() < CANDIDATES {
            let draw = |_| {
                let at = range.start + self.rng.below(range.bytes());
                ((at & !(PAGE_SIZE - 1)).max(range.start), false)
            };
            let pages = (0..self.config.pages).map(draw).collect();
            let until = now + self.config.valid;
            let (looks, verdict) = (0, Verdict::Open);
            self.candidates.push(Candidate { range: *range, pages, looks, verdict, until });
            self.look_at(self.candidates.len() - 1, orders);
        }
        Verdict::Open
    }

    /// A valid verdict on the region or a region that covers it. A cold verdict does not apply to a
    /// part less than half as large: the few accessed pages may all be in this part.
    fn known(&self, range: &Range) -> Option<Verdict> {
        let covering = || self.candidates.iter().filter(|candidate| candidate.range.covers(range));
        if covering().any(|candidate| candidate.verdict == Verdict::Hot) {
            return Some(Verdict::Hot);
        }
        let alike = |candidate: &&Candidate| candidate.range.bytes() <= 2 * range.bytes();
        covering().find(alike).map(|candidate| candidate.verdict)
    }

    fn look_at(&mut self, candidate: usize, orders: &mut Orders) {
        let Candidate { range, pages, looks, .. } = &self.candidates[candidate];
        for (page, (at, _)) in pages.iter().enumerate() {
            let at = Addr { space: range.space, at: *at };
            let first = *looks == 0;
            let probe = if first { Probe::clear } else { Probe::test_and_clear };
            orders.probes.push(probe(at, Level::PTE));
            self.probed.push((candidate, page));
        }
    }

    /// Orders the next round of probes of all undecided regions; forgets expired verdicts.
    pub(super) fn look_again(&mut self, now: Time, orders: &mut Orders) {
        self.probed.clear();
        self.candidates.retain(|candidate| candidate.until > now);
        for candidate in 0..self.candidates.len() {
            if self.candidates[candidate].verdict == Verdict::Open {
                self.look_at(candidate, orders);
            }
        }
    }

    /// Applies the results of the round's probes.
    pub(super) fn answer(&mut self, probes: &[Probe]) {
        let mut looked = vec![false; self.candidates.len()];
        for ((candidate, page), probe) in std::mem::take(&mut self.probed).into_iter().zip(probes) {
            let Some(known) = self.candidates.get_mut(candidate) else { continue };
            let (at, young) = &mut known.pages[page];
            if *at == probe.at.at && known.range.space == probe.at.space {
                *young |= known.looks > 0 && probe.is_young();
                looked[candidate] = true;
            }
        }
        for (candidate, looked) in self.candidates.iter_mut().zip(looked) {
            if looked && candidate.verdict == Verdict::Open {
                candidate.looks += 1;
                candidate.verdict = judge(candidate, &self.config);
            }
        }
    }
}

fn judge(candidate: &Candidate, config: &Config) -> Verdict {
    let young = candidate.pages.iter().filter(|(_, young)| *young).count() as f64;
    if young >= (config.share * candidate.pages.len() as f64).max(1.0) {
        return Verdict::Hot;
    }
    if candidate.looks > config.looks { Verdict::Cold } else { Verdict::Open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{SpaceId, State};

    /// The verdict on a region of whose pages one in `one_in` is accessed in every window, and the
    /// number of rounds it took.
    fn verdict(one_in: u64) -> (Verdict, u32) {
        let mut verifier = Verifier::new(Config::default());
        let range = Range::new(SpaceId(0), 0, 1 << 30);
        let mut orders = Orders::default();
        let mut verdict = verifier.ask(&range, Time(0), &mut orders);
        let mut looks = 0;
        while verdict == Verdict::Open {
            for probe in &mut orders.probes {
                let young = (probe.at.at >> 12).is_multiple_of(one_in);
                probe.answer.state = if young { State::Young } else { State::Old };
            }
            verifier.answer(&orders.probes);
            orders.clear();
            looks += 1;
            verifier.look_again(Time(looks.into()), &mut orders);
            verdict = verifier.ask(&range, Time(looks.into()), &mut orders);
        }
        (verdict, looks)
    }

    // 32 draws, of which 3.2 must be young. The first round clears, the second may confirm, the
    // sixth is the last.
    #[test]
    fn hot_regions_are_confirmed_and_single_pages_are_not() {
        assert_eq!(verdict(1), (Verdict::Hot, 2));
        assert_eq!(verdict(3).0, Verdict::Hot);
        assert_eq!(verdict(512), (Verdict::Cold, 6));
    }

    // 1 GiB of which the last sixteenth is accessed: 2 of 32 pages, too few. That part verified on
    // its own passes; for seven eighths of the region, its cold verdict still applies.
    #[test]
    fn a_hot_part_of_a_cold_region_is_verified_separately() {
        let mut verifier = Verifier::new(Config::default());
        let [whole, most] = [1 << 30, 7 << 27].map(|bytes| Range::new(SpaceId(0), 0, bytes));
        let part = Range::new(SpaceId(0), 15 << 26, 1 << 30);
        let cold = |range| Candidate {
            range,
            pages: Vec::new(),
            looks: 6,
            verdict: Verdict::Cold,
            until: Time(0) + Duration::from_secs(10),
        };
        verifier.candidates.push(cold(whole));
        let mut orders = Orders::default();
        assert_eq!(verifier.ask(&most, Time(0), &mut orders), Verdict::Cold);
        assert!(orders.probes.is_empty());
        assert_eq!(verifier.ask(&part, Time(0), &mut orders), Verdict::Open);
        assert!(orders.probes.iter().all(|probe| probe.at.at >= part.start));
        assert_eq!(orders.probes.len(), 32);
    }

    #[test]
    fn verdicts_expire() {
        let mut verifier = Verifier::new(Config::default());
        let range = Range::new(SpaceId(0), 0, 1 << 21);
        let mut orders = Orders::default();
        verifier.ask(&range, Time(0), &mut orders);
        assert_eq!(orders.probes.len(), 32);
        verifier.look_again(Time(0) + Duration::from_secs(11), &mut orders);
        assert!(verifier.candidates.is_empty());
    }
}
