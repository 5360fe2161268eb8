//! Single parts of the arithmetic, for `cargo bench -p tierscope-instruments --bench rates`, which
//! measures the constants that simulations charge for them.

use std::collections::BTreeMap;

use tierscope_core::{Level, Range, Rng, SpaceId, Time};

use super::ages::Ages;
use super::chain::{Chain, LookModel, Prior, single};
use super::looks::{Bits, DEPTH, ENTRIES, Look, Looks, WORDS};
use super::regions::RegionInput;
use super::table::{Key, Table};
use super::tally::Tally;
use super::{FITS, VisitOrder, uncorrelated};

/// Infers the rates of a table with `hot` hot entries at random places among cold ones. Returns the
/// number of nodes of the chain.
#[must_use]
pub fn infer(hot: usize, seed: u64) -> usize {
    let mut rng = Rng::seeded(seed);
    let mut looks = Looks::default();
    let spots: Vec<u64> = (0..hot).map(|_| rng.below(512)).collect();
    for index in 0..DEPTH as u64 {
        let mut young: Bits = [0; WORDS];
        let cold: Vec<u64> = (0..5).map(|_| rng.below(512)).collect();
        for entry in spots.iter().chain(&cold) {
            young[*entry as usize / 64] |= 1 << (entry % 64);
        }
        looks.add(Look { at: Time(index * 20_000_000), seconds: 0.02, young });
    }
    let now = Time(DEPTH as u64 * 20_000_000);
    let (mut chain, mut segments) = (Chain::default(), Vec::new());
    chain.infer(&looks, &(0..ENTRIES), &Prior::default(), now, &mut segments).1
}

/// Looks in which a sixth of the entries is young, at random.
fn scrambled(rng: &mut Rng, depth: usize) -> Looks {
    let mut looks = Looks::default();
    for index in 0..depth as u64 {
        let mut young: Bits = [0; WORDS];
        (0..94).map(|_| rng.below(512)).for_each(|at| young[at as usize / 64] |= 1 << (at % 64));
        looks.add(Look { at: Time(index * 20_000_000), seconds: 0.02, young });
    }
    looks
}

/// Infers the rates of a table of uncorrelated entries from `depth` looks. Returns the work in
/// nodes.
#[must_use]
pub fn infer_apart(depth: usize, seed: u64) -> usize {
    let looks = scrambled(&mut Rng::seeded(seed), depth);
    let (now, mut segments) = (Time(depth as u64 * 20_000_000), Vec::new());
    uncorrelated::infer(&looks, &(0..ENTRIES), &Prior::default(), now, &mut segments)
}

/// Fits the distribution of rates to `entries` entries with eight looks each. Returns their number.
#[must_use]
pub fn fit(entries: usize) -> usize {
    let (looks, mut prior) = (scrambled(&mut Rng::seeded(1), DEPTH), Prior::default());
    let model = LookModel::new(looks.all(), Time(0));
    let curve = |at: usize| (single(&model, looks.pattern(at % ENTRIES), prior.rates()), 1.0);
    let curves: Vec<_> = (0..entries).map(curve).collect();
    prior.fit(&curves, FITS);
    entries
}

/// Tables of uncorrelated entries, whose regions are to be built.
#[derive(Debug)]
pub struct Drawing {
    areas: Vec<Range>,
    tables: BTreeMap<Key, Table>,
    tally: Tally,
    ages: Ages,
    windows: u32,
}

impl Drawing {
    /// Makes `count` tables with five looks each.
    #[must_use]
    pub fn new(count: u64) -> Self {
        let mut rng = Rng::seeded(1);
        let areas = vec![Range::new(SpaceId(0), 0, count << Level::PUD.shift())];
        let mut tables = BTreeMap::new();
        for number in 0..count {
            let start = number << Level::PUD.shift();
            let mut table = Table::new(SpaceId(0), start, Level::PMD, &areas);
            table.looks = scrambled(&mut rng, 5);
            table.infer(&mut Chain::default(), &Prior::default(), Time(60_000_000), true);
            tables.insert(table.key(), table);
        }
        let mut tally = Tally::new(false);
        tally.count(&[], &tables, &BTreeMap::new(), &VisitOrder::new(&areas, 1), Time(0));
        Self { areas, tables, tally, ages: Ages::default(), windows: 0 }
    }

    /// Builds the regions of a window with their ages, either from the segments (`afresh`) or by
    /// copying the last ones. Returns the numbers of regions built and copied.
    pub fn regions(&mut self, afresh: bool) -> [usize; 2] {
        if afresh {
            self.tables.values_mut().for_each(|table| table.built = None);
        }
        let expected = ENTRIES * self.tables.len();
        let input = RegionInput {
            areas: &self.areas,
            upper: &[],
            lower: &mut self.tables,
            leaves: &BTreeMap::new(),
            tally: &self.tally,
            samples: 40,
            now: Time(60_000_000),
            expected,
            rebuilt: usize::MAX,
        };
        let (mut regions, numbers) = input.regions();
        self.windows += 1;
        self.ages.add_to(&mut regions, self.windows);
        std::hint::black_box(regions);
        numbers
    }
}
