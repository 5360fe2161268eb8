//! Rates: estimates how often each part of memory is accessed, with credible intervals, within a
//! CPU budget.
//!
//! Our own instrument. An ACCESSED bit means "at least one access since the clear", not "hot":
//! where cold memory is accessed too, entries of upper levels are young all the time, and the
//! difference between hot and cold is *how soon* an entry becomes young again. So every look at an
//! entry is kept with the time since its clear, and rates are inferred from the looks by likelihood
//! (`grid.rs`, `chain.rs`), for entries of 1 GiB (level 3), 2 MiB (level 2) and 4 KiB (leaves).
//!
//! Terms, also of the other files:
//!
//! - *table*: a page of page table: 512 entries of one level, the cheapest unit to read.
//! - *clear*: a scan that reads and clears all bits of a table. *Flush*: invalidation of the
//!   target's translations in all TLBs, soon after a clear. Cached translations are then walked
//!   again and set their bits; without flushes the hottest memory of all looks idle.
//! - *look*: a scan of a table at a known time after its clear; it clears the bits again. The clear
//!   that opens a visit is a look too, at the long time since the last visit.
//! - *visit*: the clear of a table, and then, once or several times, a flush and a look. *Sketch*:
//!   a visit that probes only 16 of the 512 entries, each of which represents the 32 entries around
//!   it.
//! - *beat*: the time from one round of visits to the next, 20 ms by default.
//! - *flagged*: a level-2 table is flagged if the level-3 entry above it is much busier than
//!   others; such tables are visited early. *Round-robin visits* reach all level-2 tables, flagged
//!   or not.
//! - *cell*: a step of the logarithmic grid of rates, eight per decade (`grid.rs`).
//! - *hot threshold*: the minimum rate of hot memory (`tally.rs`). An entry that may be above or
//!   below it is *undecided*, and its memory is reported as unknown.
//! - *uncorrelated* entries have rates that say nothing about those of their neighbours (scrambled
//!   keys, `uncorrelated.rs`).
//!
//! The time from clear to look depends on the rates: short enough for cold entries to stay old,
//! long enough for hot ones to become young; for tables with known hot entries, the time that
//! leaves about half of these old, where a look is most informative. Weighted fair shares of the
//! budget decide which tables are visited (`budget.rs`): level-3 rates order the visits, and put
//! off only tables too rarely accessed to contain hot memory; all other tables are visited
//! round-robin, hot and undecided ones repeatedly, the more often the more memory a visit covers
//! for its price. The budget is a share of a CPU and covers all work of the instrument. With large
//! memory the time to an answer grows, and the answer is marked: memory without enough looks is
//! *unknown*.

mod ages;
mod budget;
mod chain;
mod curve;
mod grid;
mod leaves;
mod looks;
mod regions;
mod skew;
mod sweeps;
mod table;
mod tally;
mod together;
mod uncorrelated;

#[doc(hidden)]
pub mod bench;

pub use tally::hot_rate;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Addr, ErrorKind, Instrument, LeafKind, Level, Mappings, Need, Ports, Probe, Range,
    Result, Rng, ScanMode, Setting, Snapshot, State, Step, Time,
};

use crate::checks::{intervals, refuse, require_lower_levels};
use crate::hidden::Hidden;
use crate::registry::{Common, CostClass, Entry, GONE, Variant, set};
use ages::Ages;
use budget::{Budget, Shares, Work};
use chain::{Chain, Prior, Segment};
use grid::{cell_of, rate_of};
use looks::{Bits, WORDS, sketched};
use table::{Key, Table};
use tally::Tally;

/// Maximum number of areas; beyond it, the smallest gaps are closed.
const MAX_AREAS: usize = 4096;
/// Minimum time between two flushes: refilling 1536 translations at 30 ns takes 46 us of each CPU,
/// 0.31 % at most and 0.23 % at one flush per beat of 20 ms.
const FLUSH_EVERY: Duration = Duration::from_millis(15);
/// Time for which flushes are remembered.
const OLDEST_FLUSH: Duration = Duration::from_secs(100);
/// Times from clear to look, in nanoseconds, below which the clear must come right before the flush
/// at the end of the round.
const SHORT: u64 = 10_000_000;
/// Shortest and longest time from a clear to a look, in seconds.
const DISTANCES: (f32, f32) = (150e-6, 0.5);
/// Shortest time from a clear to a look at level 3, in seconds: these tables are few.
const SHORTEST_ABOVE: f32 = 30e-6;
/// Time from a clear to a look before rates are known, in seconds.
const FIRST_DISTANCE: f32 = 0.02;
/// Times from clear to look, in seconds, below which a visit has one look only: half a default
/// beat.
const SHORTEST_REPEATED: f32 = 0.01;
/// Expected accesses between clear and look of an entry with the mean rate, for visits in search of
/// hot entries.
const SEARCH: f32 = 0.1;
/// Expected accesses between clear and look of an entry with its table's mean rate, where that rate
/// is known from level 3.
const POINTED: f32 = 1.5;
/// Factor on the time from clear to look for a sketch: each probed entry should be found young.
const SKETCHED: f32 = 2.0;
/// Number of flagged tables above which each gets a single look.
const MANY_HINTS: usize = 16;
/// Cells by which the rate of a flagged table may be below its estimate from level 3.
const UNSURE: f32 = 4.0;
/// Factor between successive times from clear to look at level 3.
const RUNG: f32 = 16.0;
/// Assumed cost of a look before the first is measured, as a multiple of the cost of opening a
/// visit.
const UNKNOWN_LOOK: u32 = 2;
/// A look is late if its time since the clear exceeds the planned time by this factor.
const LATE: u64 = 3;
/// Expected accesses between clear and look of an entry whose rate is to be measured: about half of
/// such entries stay old.
const MEASURE: f32 = 0.7;
/// With uncorrelated entries, the last look of a visit comes sooner only if at least this many
/// entries were young in all of the last `FIRST_LOOKS` looks.
const SATURATED: u32 = 4;
const FIRST_LOOKS: usize = 3;
/// Divisors of the time from clear to look for the last look of a visit, used in rotation.
const LADDER: [u64; 4] = [2, 4, 8, 16];
/// A recently visited table is flagged at once if the lower bound of its rate at level 3 exceeds
/// its known rate by this factor.
const UNEXPLAINED: f32 = 2.0;
/// Number of turns at the start in which rates over all memory are recomputed after each visit at
/// level 3.
const FIRST_TURNS: u32 = 5;
/// Time after which a visited table may be flagged again.
const HINT_AGAIN: Duration = Duration::from_secs(5);
/// Number of randomly sampled entries to which the distribution of rates is fitted, in `FITS`
/// steps.
const SAMPLE: usize = 256;
/// Share of the budget for repeated inference of undecided tables, and maximum number of tables
/// considered for it per beat; and number of tables of which the one is visited that is most due.
const RECONSIDERED: f64 = 0.1;
const CONSIDERED: usize = 64;
const COMPARED: usize = 16;
/// Visits that a new fit of the distribution of rates requires, and number of turns at the start
/// in which one visit suffices.
const NEWS: u32 = 32;
const EARLY: u32 = 25;
/// Entries sampled from each part of a table: the mostly old and the mostly young ones.
const DRAWN: usize = 2;
const FITS: usize = 15;
/// Maximum number of level-3 tables under visit at a time, until all have been visited.
const AT_ONCE: usize = 64;
/// Distance in pages between two pages sampled for the fit of the distribution of page rates.
const LEAF_STRIDE: usize = 61;
/// Time after which a table with hot entries is visited again.
const REVISIT: Duration = Duration::from_millis(1000);
/// Time after which a table is visited again if it is undecided or its rates are not closely known.
const REVISIT_VAGUE: Duration = Duration::from_millis(200);
/// The same of a table whose entries become young together: looks are kept of four seconds, and
/// more of them would not make its rates known more closely.
const REVISIT_TOGETHER: Duration = Duration::from_millis(500);
/// Maximum width in cells of the interval of a closely known rate: a factor of 1.8.
const CLOSE: f32 = 2.0;

/// Cost of the instrument's own arithmetic in nanoseconds: per node of the chain, per table, per
/// region built, per region copied, per age, and per sampled entry of a fit; measured by `cargo
/// bench -p tierscope-instruments --bench rates`.
const NODE_NS: u64 = 300;
const TABLE_NS: u64 = 1000;
const REGION_NS: u64 = 35;
const COPY_NS: u64 = 6;
const AGE_NS: u64 = 9;
const FIT_NS: u64 = 440;
/// Nanoseconds per table and window to pass over the table in sums and in building regions.
const WALK_NS: u64 = 40;

/// Share of the CPU budget that is used for planning: a round of visits may cost more than
/// expected.
const BUDGETED: f64 = 0.98;
/// The overhead of a round, such as waking up, may take the budget divided by this; and the longest
/// beat.
const OVERHEAD_SHARE: f64 = 10.0;
const LONGEST_BEAT: Duration = Duration::from_secs(1);
/// Output of regions may take the budget divided by this: with many regions, windows become longer.
const SHOWN_SHARE: f64 = 10.0;
/// The same of all output of a window, also by the drive loop: with many processes, windows become
/// longer.
const OUTPUT_SHARE: f64 = 4.0;
/// Factor by which tables of little memory, or expensive ones, may be visited less often.
const SELDOM: f64 = 16.0;
/// Number of tables considered for a round-robin visit.
const PASSED_OVER: usize = 512;
/// Share of a window's budget for rebuilding the regions of tables for which only the hot threshold
/// has changed.
const REBUILT: f64 = 0.05;
/// Reading mappings may take the budget divided by this.
const MAPPINGS_SHARE: f64 = 5.0;
/// Number of times per interval of updates that the machine is asked for newer mappings.
const ASKED_AGAIN: u32 = 8;

const CLEAR: ScanMode = ScanMode { clear: true, prune: false, present: false };

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "rates",
    about: "access rates with credible intervals, from times between clear and look",
    needs: &[Need::AccessBits],
    granularity: "4 KiB to 2 MiB",
    variants: &[Variant {
        name: "bayes",
        about: "rates by likelihood, within a share of one CPU",
        cost: CostClass::Bounded,
    }],
    removed: &[GONE],
    make,
};

fn make(_: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config::default();
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.seed, &common.seed);
    set(&mut config.cpu, &common.cpu);
    set(&mut config.flush, &common.flush);
    Ok(Box::new(Rates::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Length of the samples that the derived frequency counts; a fourth of the time between two
    /// rounds of visits, unless these are less frequent.
    pub sampling: Duration,
    /// Time between two snapshots.
    pub window: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Share of one CPU for all work of the instrument.
    pub cpu: f64,
    /// Whether the instrument may flush the target's translations.
    pub flush: bool,
    /// Seed of the order of visits.
    pub seed: u64,
}

/// Samples of 5 ms, windows of 200 ms, mappings every second, 1 % of a CPU, with flushes.
impl Default for Config {
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            cpu: 0.01,
            flush: true,
            seed: 1,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        intervals(self.sampling, self.window, 4)?;
        if !(self.cpu > 0.0 && self.cpu <= 1.0) {
            let cause = format!("{} is not above 0 and at most 1", self.cpu);
            return refuse("CPU budget", cause, "give a share of one CPU, such as 1%");
        }
        Ok(())
    }
}

/// A randomly sampled entry, and the number of entries that it represents.
#[derive(Clone, Copy, Debug)]
struct SampledEntry {
    key: Key,
    entry: usize,
    weight: f32,
}

/// A scheduled look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScheduledLook {
    at: Time,
    number: u64,
    visit: Visit,
}

/// State of a planned or open visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    level: Level,
    key: Key,
    work: Work,
    /// Nanoseconds from clear to look; and for the last look of the visit.
    distance: u64,
    last_distance: u64,
    /// Number of looks left.
    looks: u32,
    /// CPU time in nanoseconds reserved for each look left.
    prepaid: u64,
    /// Whether the table was chosen at random, in proportion to its accesses.
    sampled: bool,
    /// Whether the visit is a sketch: probes of a few entries of the table.
    sketch: bool,
}

impl Visit {
    /// CPU time reserved for the looks left.
    fn prepaid(&self) -> Duration {
        Duration::from_nanos(self.prepaid) * self.looks
    }

    /// Whether the look comes so soon that the flush must follow the clear at once. False at level
    /// 3, which only orders visits: all its tables are cleared before one flush.
    fn is_short(&self) -> bool {
        self.distance < SHORT && self.work != Work::Upper
    }
}

/// The `rates` instrument.
#[derive(Debug)]
pub struct Rates {
    config: Config,
    window_start: Option<Time>,
    next_update: Time,
    next_beat: Time,
    windows: u32,
    ages: Ages,
    /// Number of turns (configured windows) in which rates over all memory were recomputed, and the
    /// time of the next one.
    turns: u32,
    next_turn: Time,
    /// Number of regions of the last window, and the CPU time of their output.
    regions: usize,
    shown: Duration,
    /// CPU time of all output of a window, averaged over recent ones; and whether what the drive
    /// loop does with the last one is still to be added.
    output: Duration,
    is_output: bool,
    /// Visits with accesses since the last fit, per prior.
    news: [u32; 3],
    areas: Vec<Range>,
    hidden: Hidden,
    /// The mappings that `areas` was made of.
    mappings: Option<Arc<Mappings>>,
    /// Tables of level 3 (entries of 1 GiB), one for each 512 GiB; ascending.
    upper: Vec<Table>,
    /// Tables of level 2 (entries of 2 MiB) visited so far, by the GiB that they cover.
    lower: BTreeMap<Key, Table>,
    /// Leaf tables of some entries of 2 MiB, by the entry's address.
    leaves: BTreeMap<Key, Table>,
    /// Entries of 2 MiB whose leaves are to be visited, by kind, with their rates per second, and
    /// whether they were chosen at random in proportion to their accesses; and the turn of kinds.
    wanted: [VecDeque<(Key, f32, bool)>; 3],
    leaf_turn: usize,
    priors: [Prior; 3],
    tally: Tally,
    budget: Budget,
    shares: Shares,
    /// The thread's CPU time at the end of the last step.
    last_time: Option<Duration>,
    /// CPU time of a round besides its visits, averaged over recent rounds.
    overhead: Duration,
    /// CPU time to open a visit, averaged over recent visits; and its value in the current plan.
    price: Duration,
    planned: Duration,
    /// CPU time of a look with the inference that follows, averaged over recent looks; `None`
    /// before the first.
    look_price: Option<Duration>,
    /// Visits whose tables are cleared and that wait for the next flush.
    cleared: Vec<Visit>,
    due: BinaryHeap<Reverse<ScheduledLook>>,
    number: u64,
    /// Tables flagged by level 3, with the cell of their level-3 rate; busiest last.
    hints: Vec<(f32, Key)>,
    /// Tables to visit again: those with hot and no undecided entries, and those with undecided
    /// ones.
    refined: [BTreeSet<Key>; 2],
    /// Hot threshold for which `refined` was computed.
    sorted: [f32; 2],
    /// Last table visited of each set of `refined`.
    refine_from: [Key; 2],
    refine_turn: u32,
    /// Last undecided table that was considered for repeated inference.
    reconsidered: Key,
    ladder: usize,
    /// Entries sampled at random from tables of round-robin visits, oldest first.
    sample: VecDeque<SampledEntry>,
    rng: Rng,
    upper_turn: usize,
    /// Number of tables at the beginning of `upper` that have all been visited.
    upper_seen: usize,
    round: VisitOrder,
    /// Number of times that `round` has passed over all tables.
    passes: u32,
    /// When the next table may be visited that level 3 reports as too rarely accessed.
    next_quiet: Time,
    /// The most urgent table of levels 3 and 2 and of the leaves ([`Table::urgency`]).
    most_urgent: [f64; 3],
    /// Times of flushes, ascending, as far back as looks need them.
    flushed: VecDeque<Time>,
    can_flush: bool,
    chain: Chain,
    set: AccessedSet,
    probes: Vec<Probe>,
    /// Number of huge pages that the last scan found.
    huge: u64,
    /// Entry whose leaves were last checked for being outdated, and table whose segments were for
    /// being undecided.
    leaves_from: Key,
    late_from: Key,
}

/// Whether a probed entry is a page, not a table.
fn is_one_page(probe: &Probe) -> bool {
    matches!(probe.answer.kind, LeafKind::Page | LeafKind::Hugetlb | LeafKind::Special)
}

/// Round-robin order over all GiB of the target, in which adjacent GiB are visited at distant
/// times.
#[derive(Debug, Default)]
struct VisitOrder {
    /// First GiB of each area, and the number of GiB before it.
    starts: Vec<(Key, u64)>,
    count: u64,
    stride: u64,
    at: u64,
    /// Visits since the order was made.
    done: u64,
}

impl VisitOrder {
    /// Makes the order over `areas`, which consist of whole GiB.
    fn new(areas: &[Range], seed: u64) -> Self {
        let mut count = 0;
        let mut starts = Vec::with_capacity(areas.len());
        for area in areas {
            starts.push(((area.space, area.start), count));
            count += area.bytes() >> Level::PUD.shift();
        }
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let golden = (count as f64 * 0.618) as u64;
        let stride = (golden.max(1)..).find(|stride| gcd(*stride, count.max(1)) == 1).unwrap_or(1);
        let at = if count > 0 { seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count } else { 0 };
        Self { starts, count, stride, at, done: 0 }
    }

    fn next(&mut self) -> Option<Key> {
        if self.count == 0 {
            return None;
        }
        self.at = (self.at + self.stride) % self.count;
        self.done += 1;
        let area = self.starts.partition_point(|(_, before)| *before <= self.at) - 1;
        let ((space, start), before) = self.starts[area];
        Some((space, start + ((self.at - before) << Level::PUD.shift())))
    }
}

/// Bytes of the target's memory: the resident ones, where the machine knows them, else all of the
/// areas.
fn memory(ports: &mut dyn Ports, areas: &[Range]) -> u64 {
    let mapped = areas.iter().map(Range::bytes).sum();
    let Ok(residence) = ports.residence() else { return mapped };
    let mut extents = residence.spaces.iter().filter_map(|space| space.extents.as_ref()).peekable();
    if extents.peek().is_none() {
        return mapped;
    }
    extents.flat_map(|all| all.iter()).map(|extent| extent.resident).sum::<u64>().min(mapped)
}

impl Rates {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            window_start: None,
            next_update: Time(0),
            next_beat: Time(0),
            windows: 0,
            ages: Ages::default(),
            turns: 0,
            next_turn: Time(0),
            regions: 0,
            shown: Duration::ZERO,
            output: Duration::ZERO,
            is_output: false,
            news: [0; 3],
            areas: Vec::new(),
            hidden: Hidden::default(),
            mappings: None,
            upper: Vec::new(),
            lower: BTreeMap::new(),
            leaves: BTreeMap::new(),
            wanted: Default::default(),
            leaf_turn: 0,
            leaves_from: Key::default(),
            late_from: Key::default(),
            priors: [Prior::default(), Prior::default(), Prior::default()],
            tally: Tally::new(!config.flush),
            budget: Budget::new(BUDGETED * config.cpu),
            shares: Shares::default(),
            last_time: None,
            overhead: Duration::ZERO,
            price: Duration::from_micros(30),
            planned: Duration::ZERO,
            look_price: None,
            cleared: Vec::new(),
            due: BinaryHeap::new(),
            number: 0,
            hints: Vec::new(),
            refined: Default::default(),
            sorted: [f32::MAX; 2],
            refine_from: [(tierscope_core::SpaceId(0), 0); 2],
            refine_turn: 0,
            reconsidered: (tierscope_core::SpaceId(0), 0),
            ladder: 0,
            sample: VecDeque::new(),
            rng: Rng::seeded(config.seed),
            upper_turn: 0,
            upper_seen: 0,
            round: VisitOrder::default(),
            passes: 0,
            next_quiet: Time(0),
            most_urgent: [0.0; 3],
            flushed: VecDeque::new(),
            can_flush: config.flush,
            chain: Chain::default(),
            set: AccessedSet::default(),
            probes: Vec::new(),
            huge: 0,
            config,
        })
    }

    /// Time between two rounds of visits: long enough for the overhead of a round to stay within a
    /// tenth of the budget.
    fn beat(&self) -> Duration {
        let affordable = self.overhead.mul_f64(OVERHEAD_SHARE / self.config.cpu);
        (4 * self.config.sampling).max(affordable).min(LONGEST_BEAT)
    }

    /// Length of a window: the configured one, or the multiple of it in which a tenth of the budget
    /// pays for the output of its regions, and a quarter for all of its output.
    fn window(&self) -> Duration {
        let shown = self.shown.mul_f64(SHOWN_SHARE / self.config.cpu);
        let affordable = shown.max(self.output.mul_f64(OUTPUT_SHARE / self.config.cpu));
        let times = affordable.as_nanos().div_ceil(self.config.window.as_nanos()).max(1);
        self.config.window * times as u32
    }

    /// Takes up new mappings, which are read at the configured interval, or earlier by a machine
    /// that finds them outdated; less often if a fifth of the budget does not pay for it.
    fn read_mappings(&mut self, ports: &mut dyn Ports) -> Result<()> {
        if ports.now() < self.next_update {
            return Ok(());
        }
        let before = ports.own_time();
        let mappings = ports.mappings(self.config.update)?;
        if self.mappings.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &mappings)) {
            let areas = self.hidden.areas(ports, &mappings, MAX_AREAS)?;
            self.lay_out(areas);
            self.mappings = Some(mappings);
        }
        let cost = ports.own_time().saturating_sub(before);
        let pause = cost.mul_f64(MAPPINGS_SHARE / self.config.cpu);
        self.next_update = ports.now() + (self.config.update / ASKED_AGAIN).max(pause);
        Ok(())
    }

    /// Sets new areas: fits the tables to them and drops tables outside of them.
    fn lay_out(&mut self, areas: Vec<Range>) {
        if areas == self.areas {
            return;
        }
        self.areas = areas;
        let areas = &self.areas;
        self.lower.retain(|_, table| table.fit(areas));
        self.leaves.retain(|_, table| table.fit_pages(areas));
        let mut upper: Vec<Table> = Vec::new();
        let mut old = std::mem::take(&mut self.upper).into_iter().peekable();
        for area in areas {
            let whole = Level::P4D.align(area);
            let mut start = whole.start;
            while start < whole.end {
                let key = (area.space, start);
                if upper.last().is_none_or(|last| last.key() != key) {
                    while old.next_if(|table| table.key() < key).is_some() {}
                    let known = old.next_if(|table| table.key() == key);
                    let fitted = known.map(|mut table| {
                        table.fit(areas);
                        table
                    });
                    let new = || Table::new(area.space, start, Level::PUD, areas);
                    upper.push(fitted.unwrap_or_else(new));
                }
                start += Level::P4D.entry_bytes();
            }
        }
        self.upper = upper;
        self.upper_seen = 0;
        let whole: tierscope_core::RangeSet =
            self.areas.iter().map(|area| Level::PUD.align(area)).collect();
        let round = VisitOrder::new(whole.as_slice(), self.config.seed);
        if (&round.starts, round.count) != (&self.round.starts, self.round.count) {
            self.round = round;
        }
        let bytes: u64 = self.areas.iter().map(Range::bytes).sum();
        self.tally.set_memory(bytes);
        self.priors[0].set_entries(bytes >> Level::PMD.shift());
    }

    fn table(&mut self, level: Level, key: Key) -> Option<&mut Table> {
        if level == Level::PUD {
            let at = self.upper.binary_search_by_key(&key, Table::key).ok()?;
            return Some(&mut self.upper[at]);
        }
        if level == Level::PTE {
            return self.leaves.get_mut(&key);
        }
        self.lower.get_mut(&key)
    }

    /// Reads and clears the bits of a table (of a few entries, for a sketch). Returns the time of
    /// the scan and the young entries.
    fn scan(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<(Time, Bits)> {
        let Visit { level, key, .. } = visit;
        if visit.sketch {
            return self.sketch(ports, key);
        }
        let range = Range::new(key.0, key.1, key.1 + (level.entry_bytes() << 9));
        let began = ports.now();
        let stats = ports.access_bits()?.scan(&range, level, CLEAR, &mut self.set)?;
        self.huge = stats.leaves[1];
        let ended = ports.now();
        let mut young: Bits = [0; WORDS];
        young.iter_mut().zip(&self.set.young).for_each(|(to, from)| *to = *from);
        Ok((began + ended.since(began) / 2, young))
    }

    /// Finds the entries of a table that are huge pages, if that matters and their number has
    /// changed: their rates hold for all of their memory, however skewed accesses to small pages
    /// are.
    fn find_huge_pages(&mut self, ports: &mut dyn Ports, key: Key) -> Result<()> {
        let Some(table) = self.lower.get_mut(&key) else { return Ok(()) };
        let is_known = table.huge == table.known_huge;
        let matters = self.tally.tells_huge_pages() || self.tally.veil(table) < f32::INFINITY;
        if table.sketch || is_known || !matters {
            return Ok(());
        }
        let at = |entry| Addr { space: key.0, at: table.entry(entry).1 };
        self.probes.clear();
        self.probes.extend(table.span.clone().map(|entry| Probe::test(at(entry), Level::PMD)));
        ports.access_bits()?.probe(&mut self.probes)?;
        (table.known_huge, table.whole, table.built) = (table.huge, [0; WORDS], None);
        for (entry, probe) in table.span.clone().zip(&self.probes) {
            table.whole[entry / 64] |= u64::from(is_one_page(probe)) << (entry % 64);
        }
        Ok(())
    }

    /// Probes and clears the entries of a sketch, in a level-2 table. Returns the time of the
    /// probes and the young entries.
    fn sketch(&mut self, ports: &mut dyn Ports, key: Key) -> Result<(Time, Bits)> {
        let shift = Level::PMD.shift();
        let at = |entry: usize| Addr { space: key.0, at: key.1 + ((entry as u64) << shift) };
        let probe = |entry| Probe::test_and_clear(at(entry), Level::PMD);
        self.probes.clear();
        self.probes.extend(sketched().map(probe));
        let began = ports.now();
        ports.access_bits()?.probe(&mut self.probes)?;
        let ended = ports.now();
        self.huge = self.probes.iter().filter(|probe| is_one_page(probe)).count() as u64;
        let mut young: Bits = [0; WORDS];
        for (entry, probe) in sketched().zip(&self.probes) {
            let bit = u64::from(probe.answer.state == State::Young);
            young[entry / 64] |= bit << (entry % 64);
        }
        Ok((began + ended.since(began) / 2, young))
    }

    /// Earliest time at which accesses to a table set its bits; `None` if that is unknown. Accesses
    /// through translations that were cached in TLBs become visible at the first flush after the
    /// clear, all others at the clear: the middle of the two is exact for neither, and off by at
    /// most an eighth of the time to `now`. Huge pages that are looked at within milliseconds are
    /// busy ones, whose translations were cached: their time counts from the flush.
    fn seen_since(&mut self, visit: Visit, now: Time) -> Option<Time> {
        let cleared = self.table(visit.level, visit.key)?.cleared?;
        if !self.can_flush {
            return Some(cleared);
        }
        let next = self.flushed.partition_point(|flush| *flush < cleared);
        let waited = self.flushed.get(next)?.since(cleared);
        let passed = now.since(cleared);
        let held = (passed.as_nanos() as u64) < SHORT
            && self.table(visit.level, visit.key).is_some_and(|table| table.huge > 0);
        let unseen = if held { waited } else { waited / 2 };
        (waited <= passed / 4).then_some(cleared + unseen)
    }

    /// Right before a flush, clears those tables again whose clear is more than a quarter of the
    /// time to their look ago.
    fn clear_again(&mut self, ports: &mut dyn Ports) -> Result<()> {
        for index in 0..self.cleared.len() {
            let visit = self.cleared[index];
            let Some(cleared) = self.table(visit.level, visit.key).and_then(|t| t.cleared) else {
                continue;
            };
            if ports.now().since(cleared).as_nanos() as u64 > visit.distance / 4 {
                let (at, young) = self.scan(ports, visit)?;
                let since = self.seen_since(visit, at);
                if let Some(table) = self.table(visit.level, visit.key) {
                    table.look(since, at, young, false);
                }
            }
        }
        Ok(())
    }

    /// Opens a visit: clears its table; the looks follow after the next flush. Returns false if
    /// there is nothing to look at.
    fn open(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<bool> {
        if visit.level == Level::PTE && self.is_huge_page(ports, visit)? {
            return Ok(false);
        }
        if let Some(table) = self.table(visit.level, visit.key) {
            table.begin(visit.sketch);
        }
        let (at, young) = self.scan(ports, visit)?;
        let since = self.seen_since(visit, at);
        let huge = self.huge;
        let Some(table) = self.table(visit.level, visit.key) else { return Ok(false) };
        table.huge = huge;
        table.look(since, at, young, false);
        self.cleared.push(visit);
        Ok(true)
    }

    /// Carries out a look that is due; after the last one of a visit the table's rates are
    /// inferred. Returns the CPU time reserved for the looks left.
    fn look(&mut self, ports: &mut dyn Ports, mut visit: Visit) -> Result<Duration> {
        if self.table(visit.level, visit.key).is_none() {
            return Ok(Duration::ZERO);
        }
        let (at, young) = self.scan(ports, visit)?;
        let since = self.seen_since(visit, at);
        let Some(table) = self.table(visit.level, visit.key) else { return Ok(Duration::ZERO) };
        // A late look is weak evidence about busy entries: if it finds all entries young, it does
        // not replace an earlier look.
        let late =
            since.is_some_and(|since| at.since(since).as_nanos() as u64 > LATE * visit.distance);
        table.look(since, at, young, !late || !table.looks.is_full());
        visit.looks -= 1;
        if visit.looks > 0 {
            if visit.work == Work::Hint {
                self.settle(ports, visit)?;
            }
            // With uncorrelated entries, few of them busy, another look after the same time
            // resolves most entries better than a sooner one.
            if visit.looks == 1 && visit.work == Work::Leaves {
                visit.distance = self.last_distance(visit);
            } else if visit.looks == 1 && (!self.tally.are_strangers() || self.is_saturated(visit))
            {
                visit.distance = visit.last_distance;
            }
            self.cleared.push(visit);
            return Ok(visit.prepaid());
        }
        table.busy = false;
        table.visits += 1;
        self.settle(ports, visit)?;
        Ok(Duration::ZERO)
    }

    /// Whether many entries of a table were young in each of the last looks.
    fn is_saturated(&mut self, visit: Visit) -> bool {
        self.table(visit.level, visit.key)
            .is_some_and(|table| table.looks.young_in_last(FIRST_LOOKS) >= SATURATED)
    }

    /// Infers a table's rates from its looks.
    fn settle(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<()> {
        let now = ports.now();
        let kind = match visit.level {
            Level::PUD => 1,
            Level::PTE => 2,
            _ => 0,
        };
        let table = self.table(visit.level, visit.key);
        let accessed =
            table.is_some_and(|table| table.looks.all().iter().any(|look| !look.is_old()));
        self.news[kind] += u32::from(accessed);
        let nodes = match visit.level {
            Level::PUD => self.settle_upper(visit.key, now),
            Level::PTE => self.settle_leaves(visit, now),
            _ => self.settle_lower(visit, now),
        };
        if visit.level == Level::PMD {
            self.find_huge_pages(ports, visit.key)?;
        }
        ports.charge(Duration::from_nanos(TABLE_NS + NODE_NS * nodes as u64));
        Ok(())
    }

    /// Infers the rates of level-3 entries, and flags tables beneath them. Returns the work in
    /// nodes.
    fn settle_upper(&mut self, key: Key, now: Time) -> usize {
        let Ok(at) = self.upper.binary_search_by_key(&key, Table::key) else { return 0 };
        let table = &mut self.upper[at];
        let (changes, nodes) = table.infer(&mut self.chain, &self.priors[1], now, false);
        self.priors[1].learn(&changes);
        let range = table.range;
        let inside = |key: &Key| key.0 == range.space && (range.start..range.end).contains(&key.1);
        if self.upper.iter().all(|table| table.visits > 0) && self.turns < FIRST_TURNS {
            self.tally.count(&self.upper, &self.lower, &self.leaves, &self.round, now);
        }
        let table = &self.upper[at];
        self.hints.retain(|(_, key)| !inside(key));
        for (cell, low, key) in self.tally.hints(table) {
            let surprising = self.lower.get(&key).is_none_or(|table| {
                let old = table.seen.is_none_or(|seen| now.since(seen) >= HINT_AGAIN);
                !table.busy && (old || rate_of(low) > UNEXPLAINED * table.rate())
            });
            if surprising {
                self.hints.push((cell, key));
            }
        }
        self.hints.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        nodes
    }

    /// Infers the rates of level-2 entries. The tables of round-robin visits are a random sample:
    /// priors are learned from them. Returns the work in nodes.
    fn settle_lower(&mut self, visit: Visit, now: Time) -> usize {
        // Lower bound of the table's mean rate per entry, from level 3.
        let above =
            self.above(visit.key).map_or(0.0, |above| above.low - cell_of(512.0) + cell_of(1.0));
        let Some(table) = self.lower.get_mut(&visit.key) else { return 0 };
        if visit.work == Work::Round {
            self.tally.note_correlation(&table.looks, table.span.len());
        }
        let (changes, nodes) = if table.sketch {
            let prior = self.priors[0].pointed(above);
            table.infer(&mut self.chain, &prior, now, false)
        } else {
            let apart = self.tally.are_uncorrelated(&table.looks, table.span.len());
            table.infer(&mut self.chain, &self.priors[0], now, apart)
        };
        let wanted = self.tally.wants_more(table);
        self.sort_in(visit.key, wanted);
        if visit.work == Work::Round {
            self.priors[0].learn(&changes);
            self.draw_sample(visit.key);
        }
        nodes
    }

    /// Adds a table to the sets of tables to visit again, or removes it.
    fn sort_in(&mut self, key: Key, [hot, doubtful]: [bool; 2]) {
        for (set, wanted) in self.refined.iter_mut().zip([hot && !doubtful, doubtful]) {
            if wanted {
                set.insert(key)
            } else {
                set.remove(&key)
            };
        }
    }

    /// Recomputes the sets of tables to visit again if the hot threshold has changed.
    fn sort_all(&mut self, ports: &mut dyn Ports) {
        let now = [self.tally.hot_threshold(), self.tally.page_hot()];
        if self.sorted == now {
            return;
        }
        self.sorted = now;
        let (mut segments, mut sorted) = (0, Vec::with_capacity(self.lower.len()));
        for (key, table) in &self.lower {
            segments += table.segments.len() as u64;
            sorted.push((*key, self.tally.wants_more(table)));
        }
        sorted.into_iter().for_each(|(key, wanted)| self.sort_in(key, wanted));
        ports.charge(Duration::from_nanos(COPY_NS * segments + WALK_NS * self.lower.len() as u64));
    }

    /// Repeats the inference of undecided tables that was made with an older edition of the prior:
    /// cheaper than another visit. Takes a share of this beat's budget.
    fn reconsider(&mut self, ports: &mut dyn Ports) {
        let now = ports.now();
        let mut left = RECONSIDERED * self.budget.left();
        let edition = self.priors[0].edition();
        let after = (Bound::Excluded(self.reconsidered), Bound::Unbounded);
        let doubtful = &self.refined[1];
        let keys: Vec<Key> =
            doubtful.range(after).chain(doubtful).copied().take(CONSIDERED).collect();
        for key in keys {
            if left <= 0.0 {
                break;
            }
            self.reconsidered = key;
            let Some(table) = self.lower.get_mut(&key) else { continue };
            if table.busy || table.sketch || table.edition == edition {
                continue;
            }
            let apart = self.tally.are_uncorrelated(&table.looks, table.span.len());
            let (_, nodes) = table.infer(&mut self.chain, &self.priors[0], now, apart);
            let wanted = self.tally.wants_more(table);
            self.sort_in(key, wanted);
            let cost = TABLE_NS + NODE_NS * nodes as u64;
            ports.charge(Duration::from_nanos(cost));
            left -= cost as f64;
        }
    }

    /// Time from clear to look for a level-2 table, in seconds; `busy` is the cell of its level-3
    /// rate if the table is flagged.
    fn distance(&self, key: Key, busy: Option<f32>) -> f32 {
        let mean = self.tally.mean_rate();
        let search = if mean > 0.0 { SEARCH / mean } else { FIRST_DISTANCE };
        let table = self.lower.get(&key);
        let measured = table.filter(|table| !table.visits.is_multiple_of(4));
        let measure = measured.and_then(|table| {
            let aims = self.tally.aims(table);
            (!aims.is_empty()).then(|| MEASURE / aims[table.visits as usize % aims.len()])
        });
        // At least one entry of the table is as busy as the table's mean.
        let above = self.above(key).filter(|above| busy.is_some() || self.tally.points_out(above));
        let least = above.map(|above| above.low.max(busy.unwrap_or(0.0) - UNSURE));
        let pointed = least.filter(|least| *least > 0.0);
        let pointed = pointed.map(|least| (POINTED * 512.0 / rate_of(least)).min(search));
        measure.or(pointed).unwrap_or(search).clamp(DISTANCES.0, DISTANCES.1)
    }

    /// The segment of the level-3 entry above a table.
    fn above(&self, key: Key) -> Option<&Segment> {
        let range = Level::P4D.entry_of(Addr { space: key.0, at: key.1 });
        let at = self.upper.binary_search_by_key(&(key.0, range.start), Table::key).ok()?;
        let entry = ((key.1 - range.start) >> Level::PUD.shift()) as usize;
        self.upper[at].segment(entry)
    }

    /// Time from clear to look for a level-3 table, in seconds: from the shortest on, multiplied by
    /// `RUNG` from visit to visit, up to the mean time between two accesses; then from the shortest
    /// again.
    fn distance_above(&self, key: Key) -> f32 {
        let at = self.upper.binary_search_by_key(&key, Table::key);
        let visits = at.map_or(0, |at| self.upper[at].visits);
        let longest =
            if self.tally.above() > 0.0 { 1.0 / self.tally.above() } else { FIRST_DISTANCE };
        let longest = longest.clamp(SHORTEST_ABOVE, FIRST_DISTANCE);
        let rungs = ((longest / SHORTEST_ABOVE).ln() / RUNG.ln()) as u32 + 1;
        SHORTEST_ABOVE * RUNG.powi((visits % rungs) as i32)
    }

    /// Chooses the next visit of a kind of work.
    fn choose(&mut self, work: Work, now: Time) -> Option<Visit> {
        if work == Work::Leaves {
            return self.choose_leaves(now);
        }
        let mut busy = None;
        let (level, key) = match work {
            Work::Upper => (Level::PUD, self.next_upper(now)?),
            Work::Hint => {
                let (cell, key) = self.next_hint()?;
                busy = Some(cell);
                (Level::PMD, key)
            }
            Work::Refine => (Level::PMD, self.next_refined(now)?),
            _ => (Level::PMD, self.next_in_turn(now)?),
        };
        if level == Level::PMD && !self.lower.contains_key(&key) {
            self.lower.insert(key, Table::new(key.0, key.1, Level::PMD, &self.areas));
        }
        if work == Work::Round
            && let Some(table) = self.lower.get_mut(&key)
        {
            table.passed = Some(self.passes);
        }
        let distance = match level {
            Level::PMD => self.distance(key, busy),
            _ => self.distance_above(key),
        };
        let hurried = work == Work::Hint && self.hints.len() > MANY_HINTS;
        let once = level == Level::PUD || distance < SHORTEST_REPEATED || hurried;
        // Uncorrelated entries do not share evidence: each needs more looks.
        let looks = match once {
            true => 1,
            false if self.tally.are_strangers() => 4,
            false => 3,
        };
        // While much of level 3 is unvisited, it flags more tables than full visits can cover: each
        // gets a sketch.
        let sketch = hurried
            && self.shares.vast
            && self.can_flush
            && self.table(level, key).is_none_or(|table| table.is_new());
        let distance = if sketch { SKETCHED * distance } else { distance };
        // The last look comes sooner, by a factor that changes from visit to visit: at any rate of
        // the hot entries, some look finds part of them old.
        self.ladder = (self.ladder + 1) % LADDER.len();
        let distance = (distance * 1e9) as u64;
        let last_distance = (distance / LADDER[self.ladder]).max((DISTANCES.0 * 1e9) as u64);
        Some(Visit {
            level,
            key,
            work,
            distance,
            last_distance,
            looks,
            prepaid: 0,
            sampled: false,
            sketch,
        })
    }

    /// The next table of level 3: unvisited ones first, then round-robin.
    fn next_upper(&mut self, now: Time) -> Option<Key> {
        while self.upper.get(self.upper_seen).is_some_and(|table| table.visits > 0) {
            self.upper_seen += 1;
        }
        let mut unseen = self.upper[self.upper_seen..].iter().take(AT_ONCE);
        if let Some(table) = unseen.find(|table| table.visits == 0 && !table.busy) {
            return Some(table.key());
        }
        for _ in 0..self.upper.len().min(8) {
            self.upper_turn = (self.upper_turn + 1) % self.upper.len();
            let table = &self.upper[self.upper_turn];
            let pause = self.beat() * if table.is_idle() { 10 } else { 2 };
            let pause = pause.mul_f64(self.seldom(table));
            let fresh = table.seen.is_some_and(|seen| now.since(seen) < pause);
            if !table.busy && !fresh {
                return Some(table.key());
            }
        }
        None
    }

    /// The next flagged table, and the cell of its level-3 rate.
    fn next_hint(&mut self) -> Option<(f32, Key)> {
        while let Some((cell, key)) = self.hints.pop() {
            if self.lower.get(&key).is_none_or(|table| !table.busy) {
                return Some((cell, key));
            }
        }
        None
    }

    /// The next table of a round-robin visit. A pass over all tables leaves out those that are to
    /// be visited less often; of those that level 3 reports as too rarely accessed, one is visited
    /// in a beat, since level 3 may be wrong.
    fn next_in_turn(&mut self, now: Time) -> Option<Key> {
        for _ in 0..PASSED_OVER {
            let key = self.round.next()?;
            self.passes += u32::from(self.round.done.is_multiple_of(self.round.count));
            let quiet = self.above(key).is_some_and(|above| self.tally.is_quiet(above));
            if quiet && now < self.next_quiet {
                continue;
            }
            let due = self.lower.get(&key).is_none_or(|table| {
                let fresh = table.seen.is_some_and(|seen| now.since(seen) < self.beat());
                let since = |pass: u32| f64::from(self.passes - pass);
                let turn = table.passed.is_none_or(|pass| since(pass) >= self.seldom(table));
                !table.busy && !fresh && turn
            });
            if due {
                self.next_quiet = if quiet { now + self.beat() } else { self.next_quiet };
                return Some(key);
            }
        }
        None
    }

    /// The factor by which a table is visited less often than the most urgent one of its level.
    fn seldom(&self, table: &Table) -> f64 {
        let most = self.most_urgent[level_number(table.level)];
        (most / table.urgency()).clamp(1.0, SELDOM)
    }

    /// The next table to visit again: in three of four calls from the undecided tables first, else
    /// from the hot ones first.
    fn next_refined(&mut self, now: Time) -> Option<Key> {
        self.refine_turn += 1;
        let first = usize::from(!self.refine_turn.is_multiple_of(4));
        [first, 1 - first].into_iter().find_map(|set| self.next_refined_of(set, now))
    }

    fn next_refined_of(&mut self, set: usize, now: Time) -> Option<Key> {
        let from = self.refine_from[set];
        let (tables, pauses) = (&self.refined[set], [REVISIT, REVISIT_VAGUE]);
        let after = tables.range((Bound::Excluded(from), Bound::Unbounded));
        let keys = after.chain(tables.range(..=from)).take(COMPARED);
        // How many times over a visit is due.
        let due = |key: &Key| {
            let table = self.lower.get(key).filter(|table| !table.busy)?;
            let vague = table.segments.iter().any(|s| s.high - s.low > CLOSE);
            let pause = match vague {
                true if table.is_together() => REVISIT_TOGETHER,
                true => REVISIT_VAGUE,
                false => pauses[set],
            };
            let Some(seen) = table.seen else { return Some(f64::INFINITY) };
            let times = now.since(seen).div_duration_f64(pause);
            (times >= 1.0).then(|| times / self.seldom(table))
        };
        let (mut last, mut found) = (from, None);
        for key in keys {
            last = *key;
            if let Some(due) = due(key)
                && found.is_none_or(|(most, _)| due > most)
            {
                found = Some((due, *key));
            }
        }
        self.refine_from[set] = last;
        found.map(|(_, key)| key)
    }

    /// Plans the visits of this beat: as many as the budget is expected to pay for.
    fn plan(&mut self, now: Time) -> Vec<Visit> {
        let mut visits = Vec::new();
        self.planned = self.price;
        let mut left = self.budget.left();
        self.shares.begun = self.upper_seen >= self.upper.len();
        self.shares.vast = self.upper.len() > self.upper_seen + AT_ONCE;
        while left > 0.0 {
            self.shares.covered = self.round.done > self.round.count;
            let order = self.shares.in_order();
            let mut found = None;
            for work in order {
                found = self.choose(work, now);
                if found.is_some() {
                    break;
                }
                self.shares.idle(work);
            }
            let Some(visit) = found else { break };
            // The true cost is charged as well, when the visit is opened; the planned one is the
            // same for all kinds of work.
            self.shares.spend(visit.work, self.planned);
            left -= (self.planned + visit.looks * self.look_price()).as_nanos() as f64;
            if let Some(table) = self.table(visit.level, visit.key) {
                table.busy = true;
            }
            visits.push(visit);
        }
        visits
    }

    /// Opens the visits of a beat: those with the longest times to their looks first, so that the
    /// flush comes soon after the clears with short times. Returns the CPU time spent.
    fn open_visits(&mut self, ports: &mut dyn Ports, spent: &mut Duration) -> Result<Duration> {
        let visits = self.plan(ports.now());
        let mut visits = self.those_in_time(visits);
        visits.sort_by_key(|visit| (Reverse(visit.distance), visit.key));
        let mut began = None;
        let mut all = Duration::ZERO;
        for visit in visits {
            let now = ports.now();
            let short = visit.is_short();
            let waited = began.map_or(Duration::ZERO, |began| now.since(began));
            if !self.budget.is_open() || short && waited.as_nanos() as u64 > visit.distance / 3 {
                self.put_back(visit);
                continue;
            }
            if short {
                began.get_or_insert(now);
            }
            let visit = Visit { prepaid: self.look_price().as_nanos() as u64, ..visit };
            if self.open(ports, visit)? {
                self.budget.spend(visit.prepaid());
            }
            let cost = self.pay(ports, spent, &visit);
            self.price = (self.price * 7 + cost) / 8;
            all += cost;
        }
        Ok(all)
    }

    /// Selects those visits with a short time to the look that can be opened before the flush would
    /// be too late for them, least recently visited tables first. The others are cancelled.
    fn those_in_time(&mut self, mut visits: Vec<Visit>) -> Vec<Visit> {
        visits.sort_by_key(|visit| {
            let table = visit.is_short().then(|| self.table(visit.level, visit.key)).flatten();
            table.and_then(|table| table.seen)
        });
        let price = self.price.as_nanos() as u64;
        let (mut opening, mut nearest) = (0, u64::MAX);
        visits.retain(|visit| {
            if !visit.is_short() {
                return true;
            }
            let soonest = nearest.min(visit.distance);
            let fits = opening <= soonest / 3;
            if fits {
                (opening, nearest) = (opening + price, soonest);
            } else {
                self.put_back(*visit);
            }
            fits
        });
        visits
    }

    /// Cancels a visit that did not fit into its beat; a flagged table is queued again.
    fn put_back(&mut self, visit: Visit) {
        self.shares.refund(visit.work, self.planned);
        if let Some(table) = self.table(visit.level, visit.key) {
            table.busy = false;
        }
        if visit.work == Work::Hint {
            let cell = self.above(visit.key).map_or(0.0, |above| above.mean);
            self.hints.push((cell, visit.key));
        }
    }

    /// Expected CPU time of a look with the inference that follows.
    fn look_price(&self) -> Duration {
        self.look_price.unwrap_or(UNKNOWN_LOOK * self.price)
    }

    /// Charges the CPU time since the last call to the budget, to a visit's kind of work, and to
    /// its table. Returns it.
    fn pay(&mut self, ports: &dyn Ports, spent: &mut Duration, visit: &Visit) -> Duration {
        let now = ports.own_time();
        let cost = now.saturating_sub(*spent);
        *spent = now;
        self.budget.spend(cost);
        self.shares.spend(visit.work, cost);
        if let Some(table) = self.table(visit.level, visit.key) {
            table.price = table.price.map_or(Some(cost), |price| Some((price * 3 + cost) / 4));
        }
        cost
    }

    /// Charges CPU time that belongs to no visit (flushes, snapshots) to the budget.
    fn pay_rest(&mut self, ports: &dyn Ports, spent: Duration) {
        self.budget.spend(ports.own_time().saturating_sub(spent));
    }

    /// Flushes translations if visits wait for it, and schedules their looks.
    fn flush(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let now = ports.now();
        if self.cleared.is_empty() {
            return Ok(());
        }
        if self.can_flush {
            if self.flushed.back().is_some_and(|last| now.since(*last) < FLUSH_EVERY) {
                return Ok(());
            }
            self.clear_again(ports)?;
            let now = ports.now();

            match ports.access_bits()?.flush() {
                Ok(_) => self.flushed.push_back(now),
                Err(error) if error.kind() == ErrorKind::Missing => self.go_without_flushes(),
                Err(error) => return Err(error),
            }
            while self.flushed.front().is_some_and(|first| now.since(*first) > OLDEST_FLUSH) {
                self.flushed.pop_front();
            }
        }
        let now = ports.now();
        for visit in std::mem::take(&mut self.cleared) {
            self.number += 1;
            // The time from clear to flush must be at most a quarter of the time from clear to
            // look.
            let cleared = self.table(visit.level, visit.key).and_then(|table| table.cleared);
            let waited = cleared.map_or(0, |cleared| now.since(cleared).as_nanos() as u64);
            let least = now + Duration::from_nanos(3 * waited + 1);
            let at = self.look_at(now, visit.distance).max(least);
            self.due.push(Reverse(ScheduledLook { at, number: self.number, visit }));
        }
        Ok(())
    }

    /// Fits the distributions of rates to randomly sampled entries; which one depends on the turn.
    fn fit_priors(&mut self, ports: &mut dyn Ports, now: Time) {
        match self.turns % 15 {
            1 | 6 | 11 if self.has_news(0) => self.fit_lower(ports, now),
            2 if self.has_news(1) => self.fit_upper(ports, now),
            7 if self.has_news(2) => self.fit_pages(ports, now),
            _ => {}
        }
    }

    /// Whether there were enough visits for another fit; if so, resets their number.
    fn has_news(&mut self, kind: usize) -> bool {
        let few = self.turns > EARLY && self.news[kind] < NEWS;
        !few && std::mem::take(&mut self.news[kind]) > 0
    }

    fn fit_lower(&mut self, ports: &mut dyn Ports, now: Time) {
        let lower = &self.lower;
        let mut curves = Vec::with_capacity(self.sample.len());
        for drawn in &self.sample {
            if let Some(table) = lower.get(&drawn.key) {
                let pattern = table.looks.pattern(drawn.entry);
                let rates = self.priors[0].rates();
                let model = chain::LookModel::new(table.looks.all(), now);
                curves.push((chain::single(&model, pattern, rates), drawn.weight));
            }
        }
        self.priors[0].fit(&curves, FITS);
        ports.charge(Duration::from_nanos(FIT_NS * curves.len() as u64));
    }

    fn fit_pages(&mut self, ports: &mut dyn Ports, now: Time) {
        let pages = self.leaves.values().flat_map(|table| {
            let rates = self.priors[2].rates();
            let model = chain::LookModel::new(table.looks.all(), now);
            let entries = (0..512).step_by(LEAF_STRIDE).map(|at| table.looks.pattern(at));
            entries.map(move |pattern| (chain::single(&model, pattern, rates), 1.0))
        });
        let pages: Vec<_> = pages.take(SAMPLE).collect();
        ports.charge(Duration::from_nanos(FIT_NS * pages.len() as u64));
        self.priors[2].fit(&pages, FITS);
    }

    /// Fits the distribution of rates of level-3 entries: to the looks at level 3, and to the total
    /// rates of sampled level-2 tables, since looks at level 3 may miss these accesses.
    fn fit_upper(&mut self, ports: &mut dyn Ports, now: Time) {
        let lower = &self.lower;
        let every = (self.round.count as usize).div_ceil(SAMPLE).max(1);
        let rates = self.priors[1].rates();
        let mut curves = Vec::with_capacity(2 * SAMPLE);
        let mut passed = 0;
        for table in &self.upper {
            let first = table.span.start + (every - passed % every) % every;
            passed += table.span.len();
            if first < table.span.end {
                let model = chain::LookModel::new(table.looks.all(), now);
                let entries = (first..table.span.end).step_by(every);
                curves.extend(
                    entries.map(|at| (chain::single(&model, table.looks.pattern(at), rates), 1.0)),
                );
            }
        }
        let weight = curves.len() as f32 / self.sample.len().max(1) as f32;
        let visited = self.sample.iter().filter_map(|drawn| lower.get(&drawn.key));
        curves.extend(visited.map(|table| (chain::near(cell_of(table.rate())), weight)));
        self.priors[1].fit(&curves, FITS);
        ports.charge(Duration::from_nanos(FIT_NS * curves.len() as u64));
    }

    /// Samples some entries of a table of a round-robin visit, in place of the oldest ones: as many
    /// from the mostly young entries, which are few, as from the others.
    fn draw_sample(&mut self, key: Key) {
        let Some(table) = self.lower.get(&key) else { return };
        let parts = table.looks.parted(&table.span);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            for _ in 0..DRAWN {
                let entry = part[self.rng.below(part.len() as u64) as usize];
                if self.sample.len() == SAMPLE {
                    self.sample.pop_front();
                }
                let weight = part.len() as f32 / DRAWN as f32;
                self.sample.push_back(SampledEntry { key, entry, weight });
            }
        }
    }

    /// Time of a look that is to come `distance` nanoseconds after a clear: at the beginning of a
    /// beat, unless that is less than half a beat away, so that the beat's flush follows the look
    /// at once.
    fn look_at(&self, now: Time, distance: u64) -> Time {
        let beat = self.beat().as_nanos() as u64;
        let beats = (distance + beat / 2) / beat;
        match beats {
            0 => now + Duration::from_nanos(distance),
            _ => self.next_beat + Duration::from_nanos((beats - 1) * beat),
        }
    }

    /// Disables flushes: entries cached in TLBs and paging-structure caches then look idle, and
    /// cannot be judged.
    fn go_without_flushes(&mut self) {
        self.can_flush = false;
        self.tally.blind = true;
    }

    /// Recomputes the rates over all memory and what follows, once in each configured window.
    fn take_turn(&mut self, ports: &mut dyn Ports) {
        let now = ports.now();
        self.turns += 1;
        self.tally.set_memory(memory(ports, &self.areas));
        self.tally.count(&self.upper, &self.lower, &self.leaves, &self.round, now);
        let most = |urgent: f64, table: &Table| urgent.max(table.known_urgency());
        self.most_urgent = [
            self.upper.iter().fold(0.0, most),
            self.lower.values().fold(0.0, most),
            self.leaves.values().fold(0.0, most),
        ];
        self.find_swept_tables(now);
        self.sort_all(ports);
        self.fit_priors(ports, now);
        self.want_leaves(now);
        self.find_undecided_leaves(now);
        let tables = self.lower.len() + self.leaves.len();
        ports.charge(Duration::from_nanos(WALK_NS * tables as u64));
        while self.next_turn <= now {
            self.next_turn += self.config.window;
        }
    }

    fn close_window(&mut self, ports: &mut dyn Ports, start: Time) -> Snapshot {
        let now = ports.now();
        self.windows += 1;
        let before = ports.own_time();
        let elapsed = now.since(start).as_nanos() as f64;
        // Of the window as long as it was: a policy adds up the hits of windows over a time.
        let samples = (elapsed / self.config.sampling.as_nanos() as f64).round().max(1.0) as u32;
        let rebuilt = (REBUILT * self.config.cpu * elapsed) as usize / REGION_NS as usize;
        let input = regions::RegionInput {
            areas: &self.areas,
            upper: &self.upper,
            lower: &mut self.lower,
            leaves: &self.leaves,
            tally: &self.tally,
            samples,
            now,
            expected: self.regions,
            rebuilt,
        };
        let (mut regions, [built, copied]) = input.regions();
        self.hidden.add_to(&mut regions);
        self.ages.add_to(&mut regions, self.windows);
        self.regions = regions.len();
        // Building regions is a cost of visits; the rest of the cost comes with every window.
        let build = REGION_NS * built as u64;
        let copy = COPY_NS * copied as u64 + AGE_NS * regions.len() as u64 + 1;
        ports.charge(Duration::from_nanos(build + copy));
        let cost = ports.own_time().saturating_sub(before);
        self.shown = cost.mul_f64(copy as f64 / (build + copy) as f64);
        self.is_output = true;
        Snapshot { start, end: ports.now(), samples, regions }
    }
}

impl Instrument for Rates {
    fn name(&self) -> &'static str {
        "rates"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("cpu", format!("{}%", config.cpu * 100.0)),
            setting("flush", if config.flush { "yes" } else { "no" }.into()),
            setting("seed", config.seed.to_string()),
        ]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let woken = ports.own_time();
        self.budget.fill(now);
        if self.last_time.is_none() {
            self.budget.owe(woken);
        }
        let elsewhere = woken.saturating_sub(self.last_time.unwrap_or(woken));
        self.budget.spend_elsewhere(elsewhere);
        if std::mem::take(&mut self.is_output) {
            self.output = (self.output * 3 + self.shown + elsewhere) / 4;
        }
        self.read_mappings(ports)?;
        let began = ports.own_time();
        self.budget.spend(began.saturating_sub(woken));
        let mut spent = began;
        require_lower_levels(ports.access_bits()?.radix().proven, "rates cannot be measured here")?;
        let start = *self.window_start.get_or_insert_with(|| {
            self.next_turn = now + self.config.window;
            now
        });
        let mut snapshot = None;
        let mut visits = Duration::ZERO;
        while let Some(Reverse(due)) = self.due.peek().copied()
            && due.at <= ports.now()
        {
            self.due.pop();
            let left = self.look(ports, due.visit)?;
            let cost = self.pay(ports, &mut spent, &due.visit);
            self.budget.give_back(due.visit.prepaid() - left);
            self.look_price = Some(self.look_price.map_or(cost, |price| (price * 7 + cost) / 8));
            visits += cost;
        }
        if now >= self.next_beat {
            self.reconsider(ports);
            self.pay_rest(ports, spent);
            visits += ports.own_time().saturating_sub(spent);
            spent = ports.own_time();
            visits += self.open_visits(ports, &mut spent)?;
            let rest = ports.own_time().saturating_sub(began + visits);
            self.overhead = (self.overhead * 7 + rest) / 8;
            self.budget.keep(self.beat());
            self.next_beat = now + self.beat();
        }
        self.flush(ports)?;
        if ports.now() >= self.next_turn {
            self.take_turn(ports);
        }
        if ports.now() >= start + self.window() {
            let closed = self.close_window(ports, start);
            self.window_start = Some(closed.end);
            self.next_turn = closed.end + self.config.window;
            snapshot = Some(closed);
        }
        self.pay_rest(ports, spent);
        self.last_time = Some(ports.own_time());
        let window_end = self.window_start.unwrap_or(now) + self.window();
        let due = self.due.peek().map_or(Time::NEVER, |Reverse(due)| due.at);
        let wake = window_end.min(self.next_turn).min(due).min(self.next_beat);
        Ok(Step { wake, snapshot })
    }
}

/// Number of a level in arrays of tables of all levels.
fn level_number(level: Level) -> usize {
    match level {
        Level::PUD => 0,
        Level::PTE => 2,
        _ => 1,
    }
}

/// The rate of a cell per page of 4 KiB of an entry; 0 at or below the lowest cell.
fn per_page(cell: f32, level: Level) -> f32 {
    if cell <= 0.0 { 0.0 } else { rate_of(cell) / (level.entry_bytes() >> 12) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_conformance::toy::{Toy, idle};
    use tierscope_core::{Clock as _, SpaceId};

    // A heap that grows within its fifth GiB, and then beyond: a target that grows all the time
    // would otherwise never be visited as a whole.
    #[test]
    fn the_order_of_visits_goes_on_while_the_same_gib_are_mapped() {
        let mut rates = Rates::new(Config::default()).unwrap();
        let mib = |end: u64| vec![Range::new(SpaceId(0), 0, end << 20)];
        rates.lay_out(mib(4100));
        assert_eq!((rates.round.count, rates.round.next().is_some()), (5, true));
        rates.lay_out(mib(4200));
        assert_eq!((rates.round.count, rates.round.done), (5, 1));
        rates.lay_out(mib(5121));
        assert_eq!((rates.round.count, rates.round.done), (6, 0));
    }

    // A process copies pages 0 to 63 of the memory that it inherited below its own pages 64 to 127,
    // and pages 128 to 191 of its heap are mapped. Of pages 64 to 127 the rates remain. Then all of
    // it is unmapped.
    #[test]
    fn pages_mapped_next_to_known_ones_are_unknown() {
        let mut rates = Rates::new(Config::default()).unwrap();
        let pages = |start: u64, end: u64| Range::new(SpaceId(0), start << 12, end << 12);
        rates.lay_out(vec![pages(64, 128)]);
        let mut table = Table::new(SpaceId(0), 0, Level::PTE, &rates.areas);
        let known = Segment { entries: 64..128, mean: 9.0, ..Segment::unknown(0..0) };
        table.segments = vec![known.clone()];
        table.look(Some(Time(0)), Time(10_000_000), [u64::MAX; WORDS], true);
        let key = table.key();
        rates.leaves.insert(key, table);
        rates.lay_out(vec![pages(80, 128)]);
        assert_eq!(
            (rates.leaves[&key].span.clone(), rates.leaves[&key].is_new()),
            (80..128, false)
        );
        rates.lay_out(vec![pages(0, 192)]);
        let table = &rates.leaves[&key];
        assert_eq!((table.span.clone(), table.is_new()), (0..192, true));
        let expected = [Segment::unknown(0..64), known, Segment::unknown(128..192)];
        assert_eq!(table.segments, expected);
        rates.lay_out(vec![pages(1024, 2048)]);
        assert!(rates.leaves.is_empty());
    }

    // Samples of 5 ms: 40 in 200 ms, and 320 in a window that was stretched to 1.6 s.
    #[test]
    fn a_window_has_the_samples_of_its_length() {
        let mut rates = Rates::new(Config::default()).unwrap();
        let mut machine = Toy::new(&[Range::new(SpaceId(0), 0, 1 << 21)], idle());
        for (end, samples) in [(200, 40), (1800, 320)] {
            let start = machine.now();
            machine.wait(Time(end * 1_000_000));
            assert_eq!(rates.close_window(&mut machine, start).samples, samples);
        }
    }
}
