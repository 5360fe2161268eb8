//! Rates: how often each part of memory is accessed, with credible intervals, at a bounded price.
//!
//! Our own instrument. An ACCESSED bit says "at least one access since the clear", not "hot": where cold
//! memory is touched too, entries of upper levels are set all the time, and what tells hot from cold is
//! *how soon* an entry is set again. So every look at an entry is kept with the time since its clear, and
//! rates are inferred from these by likelihood (`grid.rs`, `chain.rs`), for entries of 1 GiB, 2 MiB and
//! 4 KiB.
//!
//! A *visit* to a table (a page of 512 entries, the cheapest unit to read) clears all its bits, has the
//! target's translations flushed, waits, and reads and clears them again, once or more. How long it waits
//! depends on the rates: short enough that cold entries stay old, long enough that hot ones do not; for
//! tables of known heat about as long as leaves half of the hot entries old, where a look says most about
//! the rate. The flush makes resident translations walk again: without it the hottest memory of all looks
//! idle. The bits found at the clear are a look of their own, at the long time since the last visit.
//!
//! Which tables are visited is decided by weighted fair shares of the budget (`budget.rs`): entries of
//! 1 GiB order the visits but exclude nothing; all tables are visited in turn; hot and doubtful ones again
//! and again. The budget is a share of a CPU and covers everything the instrument does; what suffers where
//! memory is large is the time to an answer, and the answer says so: what was not looked at closely enough
//! is *unknown*.

mod apart;
mod budget;
mod chain;
mod curve;
mod draw;
mod grid;
mod looks;
mod table;
mod tally;

#[doc(hidden)]
pub mod bench;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Addr, ErrorKind, Instrument, LeafKind, Level, Ports, Probe, Range, Result, Rng,
    ScanMode, Setting, Snapshot, State, Step, Time,
};

use crate::areas::refresh;
use crate::checks::{intervals, refuse, require_lower_levels};
use budget::{Budget, Shares, Work};
use chain::{Chain, Prior, Segment};
use grid::{cell_of, rate_of};
use looks::{Bits, WORDS, sketched};
use table::{Key, Table};
use tally::Tally;

/// Areas are kept apart up to this many; beyond, the smallest gaps are closed.
const MAX_AREAS: usize = 4096;
/// Least time between two flushes: refilling 1536 translations at 30 ns is 46 us of each CPU, 0.23 %.
const FLUSH_EVERY: Duration = Duration::from_millis(15);
/// Flushes are remembered for so long.
const OLDEST_FLUSH: Duration = Duration::from_secs(100);
/// Times from clear to look below which it matters when within a beat a table is opened, in nanoseconds.
const SHORT: u64 = 10_000_000;
/// Shortest and longest time from a clear to a look, in seconds.
const DISTANCES: (f32, f32) = (150e-6, 0.5);
/// Likewise for entries of 1 GiB, which are few.
const SHORTEST_ABOVE: f32 = 30e-6;
/// Time from a clear to a look before rates are known, in seconds.
const FIRST_DISTANCE: f32 = 0.02;
/// Times from clear to look below which a visit is one look, in seconds: half a beat, as beats are by default.
const SHORTEST_REPEATED: f32 = 0.01;
/// Expected accesses from clear to look of an entry of the mean rate, in search of hot ones.
const SEARCH: f32 = 0.1;
/// Likewise of an entry that is as busy as those of its table are in the mean, where level 3 tells that.
const POINTED: f32 = 1.5;
/// Likewise of a sketch, over that: each of its entries is to be seen young.
const SKETCHED: f32 = 2.0;
/// Tables pointed out, from which on each is looked at but once.
const MANY_HINTS: usize = 16;
/// Cells by which that may be less than level 3 says.
const UNSURE: f32 = 4.0;
/// Factor from one time between clear and look to the next at level 3.
const RUNG: f32 = 16.0;
/// What a look is taken to cost before the first one, in openings.
const UNKNOWN_LOOK: u32 = 2;
/// Looks so many times later than they were to come are not those that were asked for.
const LATE: u64 = 3;
/// Expected accesses of an entry whose rate is to be measured: about half of them stay old.
const MEASURE: f32 = 0.7;
/// Entries young in so many looks of a visit from which on its last look comes sooner, where entries say nothing of
/// each other.
const SATURATED: u32 = 4;
const FIRST_LOOKS: usize = 3;
/// By how much sooner than the others the last look of a visit in turn comes.
const LADDER: [u64; 4] = [2, 4, 8, 16];
/// Level 3 points out a table at once if it tells of so many times the accesses that the table was found to have.
const UNEXPLAINED: f32 = 2.0;
/// Windows in which rates over all memory are worked out as soon as level 3 tells more.
const FIRST_WINDOWS: u32 = 5;
/// Time after which level 3 may point out a table again.
const HINT_AGAIN: Duration = Duration::from_secs(5);
/// Entries drawn at random, to which the distribution of rates is fitted; and steps of a fit.
const SAMPLE: usize = 256;
/// Part of the budget that may be spent on reconsidering, and tables of which it is asked in a beat.
const RECONSIDERED: f64 = 0.1;
const CONSIDERED: usize = 64;
/// Visits after which rates are fitted again, and windows in which any do.
const NEWS: u32 = 32;
const EARLY: u32 = 25;
/// Entries of a table drawn of each part.
const DRAWN: usize = 2;
const FITS: usize = 15;
/// Tables of level 3 that may be under way at a time, until all were visited.
const AT_ONCE: usize = 64;
/// Expected accesses of a page from clear to look, where pages of an entry are alike; and bounds in seconds.
const LEAF_MEASURE: f32 = 0.4;
const LEAF_DISTANCES: (f32, f32) = (0.001, 0.5);
/// Entries whose leaves are looked at, a second, chosen by chance; in one go where pages differ; and at most.
const LEAF_SAMPLES: usize = 8;
const LEAF_BATCH: usize = 512;
const MOST_LEAVES: usize = 8192;
/// Pages from one that the distribution of rates of pages is fitted to, to the next.
const LEAF_STRIDE: usize = 61;
/// Time after which leaves are looked at again.
const LEAVES_AGAIN: Duration = Duration::from_secs(10);
/// Time after which a hot table is visited again.
const REVISIT: Duration = Duration::from_millis(1000);
/// Likewise where its rates are not known closely.
const REVISIT_VAGUE: Duration = Duration::from_millis(200);
/// Cells that an interval of a closely known rate spans: a factor of 1.8.
const CLOSE: f32 = 2.0;

/// The instrument's own arithmetic: nanoseconds for a node of the chain, a table, and a region drawn or
/// copied, and to fit the distribution of rates, for each entry of the sample: by `cargo bench -p
/// tierscope-instruments --bench rates`.
const NODE_NS: u64 = 300;
const TABLE_NS: u64 = 1000;
const REGION_NS: u64 = 35;
const COPY_NS: u64 = 6;
const FIT_NS: u64 = 440;
/// Nanoseconds a window to pass by a table in sums and drawing.
const WALK_NS: u64 = 40;

/// Part of the budget that is planned with: a round of visits may cost more than expected.
const BUDGETED: f64 = 0.98;
/// Waking up may take one part of so many of the budget; and the longest time between two rounds of visits.
const OVERHEAD_SHARE: f64 = 10.0;
const LONGEST_BEAT: Duration = Duration::from_secs(1);
/// Showing regions may take one part of so many of the budget: where there are many, windows take longer.
const SHOWN_SHARE: f64 = 10.0;
/// Part of the budget of a window in which tables may be drawn for another bar alone.
const REDRAWN: f64 = 0.05;
/// Reading mappings may take one part of so many of the budget.
const MAPPINGS_SHARE: f64 = 5.0;

const CLEAR: ScanMode = ScanMode { clear: true, prune: false, present: false };

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Length of the samples that the derived frequency counts; a fourth of the time between two
    /// rounds of visits.
    pub sampling: Duration,
    /// Time from one snapshot to the next.
    pub window: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Share of one CPU that everything may take together.
    pub cpu: f64,
    /// Whether translations may be flushed.
    pub flush: bool,
    /// Seed of the order of visits.
    pub seed: u64,
}

/// 5 ms, 200 ms, 1 % of a CPU, with flushes.
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
    /// Checks that the settings make sense together.
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

/// An entry drawn at random, and how many it stands for.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    key: Key,
    entry: usize,
    weight: f32,
}

/// A look that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Time,
    number: u64,
    visit: Visit,
}

/// A visit under way: what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    level: Level,
    key: Key,
    work: Work,
    /// Nanoseconds from clear to look, and for the last look.
    distance: u64,
    last_distance: u64,
    /// Looks to come.
    looks: u32,
    /// Nanoseconds that were set aside for each of them.
    prepaid: u64,
    /// Chance has chosen the table by its accesses.
    sampled: bool,
    /// Looks at a few entries of the table only.
    sketch: bool,
}

impl Visit {
    /// What is set aside for the looks to come.
    fn prepaid(&self) -> Duration {
        Duration::from_nanos(self.prepaid) * self.looks
    }

    /// Its look comes so soon that the flush must follow the clear at once. Level 3 but orders visits: all of it
    /// is cleared before one flush.
    fn is_short(&self) -> bool {
        self.distance < SHORT && self.work != Work::Upper
    }
}

/// The instrument.
#[derive(Debug)]
pub struct Rates {
    config: Config,
    window_start: Option<Time>,
    next_update: Time,
    next_beat: Time,
    windows: u32,
    /// Regions of the last window, and what it cost to show them.
    regions: usize,
    shown: Duration,
    /// Visits since rates were fitted last, as of priors.
    news: [u32; 3],
    areas: Vec<Range>,
    /// Entries of 1 GiB, a table for each 512 GiB; ascending.
    upper: Vec<Table>,
    /// Entries of 2 MiB of the tables visited so far, by the GiB that they cover.
    lower: BTreeMap<Key, Table>,
    /// Leaves of some entries of 2 MiB, by these.
    leaves: BTreeMap<Key, Table>,
    /// Entries of 2 MiB whose leaves are to be looked at, with their rates a second; chance has chosen them
    /// by their accesses, or not.
    wanted: VecDeque<(Key, f32, bool)>,
    priors: [Prior; 3],
    tally: Tally,
    budget: Budget,
    shares: Shares,
    /// The thread's time when a step ended last.
    last_time: Option<Duration>,
    /// What a round of visits costs besides these, in the mean of the last ones.
    overhead: Duration,
    /// What opening a table costs, in the mean of the last ones, and what was planned with.
    price: Duration,
    planned: Duration,
    /// What a look costs with all that follows from it, likewise; nothing before the first one.
    look_price: Option<Duration>,
    /// Visits that wait for the next flush.
    cleared: Vec<Visit>,
    due: BinaryHeap<Reverse<Due>>,
    number: u64,
    /// Tables pointed out by level 3, with the cell of its rate there; the busiest last.
    hints: Vec<(f32, Key)>,
    /// Tables with hot entries, and those with doubtful ones.
    refined: [BTreeSet<Key>; 2],
    /// The bar that these were found for.
    sorted: f32,
    /// The last one visited of each.
    refine_from: [Key; 2],
    refine_turn: u32,
    /// The last table reconsidered.
    reconsidered: Key,
    ladder: usize,
    /// Entries drawn at random from tables visited in turn, the oldest first.
    sample: VecDeque<Drawn>,
    rng: Rng,
    upper_turn: usize,
    /// Tables of level 3 visited, at least, from the first on without a gap.
    upper_seen: usize,
    round: Round,
    /// When translations were flushed, ascending, as far back as looks reach.
    flushed: VecDeque<Time>,
    can_flush: bool,
    chain: Chain,
    set: AccessedSet,
    probes: Vec<Probe>,
    /// The last scan met a huge page.
    huge: bool,
}

/// Goes through all GiB of the target in an order that visits near ones far apart.
#[derive(Debug, Default)]
struct Round {
    /// First GiB of each area, and how many there were before it.
    starts: Vec<(Key, u64)>,
    count: u64,
    stride: u64,
    at: u64,
    /// Visits since the layout changed last.
    done: u64,
}

impl Round {
    /// Over these areas, which are whole GiB.
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

impl Rates {
    /// The instrument with these settings.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            window_start: None,
            next_update: Time(0),
            next_beat: Time(0),
            windows: 0,
            regions: 0,
            shown: Duration::ZERO,
            news: [0; 3],
            areas: Vec::new(),
            upper: Vec::new(),
            lower: BTreeMap::new(),
            leaves: BTreeMap::new(),
            wanted: VecDeque::new(),
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
            sorted: f32::MAX,
            refine_from: [(tierscope_core::SpaceId(0), 0); 2],
            refine_turn: 0,
            reconsidered: (tierscope_core::SpaceId(0), 0),
            ladder: 0,
            sample: VecDeque::new(),
            rng: Rng::seeded(config.seed),
            upper_turn: 0,
            upper_seen: 0,
            round: Round::default(),
            flushed: VecDeque::new(),
            can_flush: config.flush,
            chain: Chain::default(),
            set: AccessedSet::default(),
            probes: Vec::new(),
            huge: false,
            config,
        })
    }

    /// Time between two rounds of visits: longer where waking up costs much, which a tenth of the budget
    /// must pay for.
    fn beat(&self) -> Duration {
        let affordable = self.overhead.mul_f64(OVERHEAD_SHARE / self.config.cpu);
        (4 * self.config.sampling).max(affordable).min(LONGEST_BEAT)
    }

    /// Length of a window: as asked for, or as many times that as a tenth of the budget needs to pay for its regions.
    fn window(&self) -> Duration {
        let affordable = self.shown.mul_f64(SHOWN_SHARE / self.config.cpu);
        let times = affordable.as_nanos().div_ceil(self.config.window.as_nanos()).max(1);
        self.config.window * times as u32
    }

    /// Reads the mappings when that is due: as often as was asked for, and as a fifth of the budget pays for.
    fn read_mappings(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let before = ports.own_time();
        let areas = refresh(ports, &mut self.next_update, self.config.update, MAX_AREAS)?;
        let Some(areas) = areas else { return Ok(()) };
        self.lay_out(areas);
        let cost = ports.own_time().saturating_sub(before);
        let pause = cost.mul_f64(MAPPINGS_SHARE / self.config.cpu);
        self.next_update = ports.now() + self.config.update.max(pause);
        Ok(())
    }

    /// Takes over new areas; tables outside of them are dropped.
    fn lay_out(&mut self, areas: Vec<Range>) {
        if areas == self.areas {
            return;
        }
        self.areas = areas;
        let areas = &self.areas;
        self.lower.retain(|_, table| table.fit(areas));
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
        self.round = Round::new(whole.as_slice(), self.config.seed);
        let bytes: u64 = self.areas.iter().map(Range::bytes).sum();
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

    /// Looks at a table's entries and clears them. Returns what was young, and when.
    fn scan(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<(Time, Bits)> {
        let Visit { level, key, .. } = visit;
        if visit.sketch {
            return self.sketch(ports, key);
        }
        let range = Range::new(key.0, key.1, key.1 + (level.entry_bytes() << 9));
        let began = ports.now();
        let stats = ports.access_bits()?.scan(&range, level, CLEAR, &mut self.set)?;
        self.huge = stats.leaves[1] > 0;
        let ended = ports.now();
        let mut young: Bits = [0; WORDS];
        young.iter_mut().zip(&self.set.young).for_each(|(to, from)| *to = *from);
        Ok((began + ended.since(began) / 2, young))
    }

    /// Likewise of a few entries of 2 MiB.
    fn sketch(&mut self, ports: &mut dyn Ports, key: Key) -> Result<(Time, Bits)> {
        let shift = Level::PMD.shift();
        let at = |entry: usize| Addr { space: key.0, at: key.1 + ((entry as u64) << shift) };
        let probe = |entry| Probe::test_and_clear(at(entry), Level::PMD);
        self.probes.clear();
        self.probes.extend(sketched().map(probe));
        let began = ports.now();
        ports.access_bits()?.probe(&mut self.probes)?;
        let ended = ports.now();
        self.huge = self.probes.iter().any(|probe| probe.answer.kind == LeafKind::Page);
        let mut young: Bits = [0; WORDS];
        for (entry, probe) in sketched().zip(&self.probes) {
            let bit = u64::from(probe.answer.state == State::Young);
            young[entry / 64] |= bit << (entry % 64);
        }
        Ok((began + ended.since(began) / 2, young))
    }

    /// From when on accesses to a table set its bits: translations that stayed in TLBs were flushed soon after its bits
    /// were cleared last, as far as they can be. What was not held is seen from the clear on, what was from the flush
    /// on: the middle is right for neither, and off by an eighth at most. Huge pages that are looked at within
    /// milliseconds are busy ones, which were held.
    fn seen_since(&mut self, visit: Visit, now: Time) -> Option<Time> {
        let cleared = self.table(visit.level, visit.key)?.cleared?;
        if !self.can_flush {
            return Some(cleared);
        }
        let next = self.flushed.partition_point(|flush| *flush < cleared);
        let waited = self.flushed.get(next)?.since(cleared);
        let passed = now.since(cleared);
        let held = (passed.as_nanos() as u64) < SHORT
            && self.table(visit.level, visit.key).is_some_and(|table| table.huge);
        let unseen = if held { waited } else { waited / 2 };
        (waited <= passed / 4).then_some(cleared + unseen)
    }

    /// Clears once more what was cleared too long ago for the time until its look, just before the flush.
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

    /// Clears a table; its looks follow after the next flush. Returns whether there is anything to look at.
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

    /// Whether the leaves to be looked at are one huge page: to clear it would take away what its entry of level 2
    /// has to say.
    fn is_huge_page(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<bool> {
        self.probes.clear();
        self.probes.push(Probe::test(Addr { space: visit.key.0, at: visit.key.1 }, Level::PMD));
        let now = ports.now();
        ports.access_bits()?.probe(&mut self.probes)?;
        if self.probes[0].answer.kind != LeafKind::Page {
            return Ok(false);
        }
        if let Some(table) = self.leaves.get_mut(&visit.key) {
            table.segments.clear();
            (table.busy, table.seen) = (false, Some(now));
        }
        self.tally.note_leaves(1.0);
        Ok(true)
    }

    /// A look that is due: the last one of a visit settles what its table says. Returns what is set aside for those
    /// to come.
    fn look(&mut self, ports: &mut dyn Ports, mut visit: Visit) -> Result<Duration> {
        if self.table(visit.level, visit.key).is_none() {
            return Ok(Duration::ZERO);
        }
        let (at, young) = self.scan(ports, visit)?;
        let since = self.seen_since(visit, at);
        let Some(table) = self.table(visit.level, visit.key) else { return Ok(Duration::ZERO) };
        // A look that comes late says little of busy entries: it does not take the place of one that said more.
        let late =
            since.is_some_and(|since| at.since(since).as_nanos() as u64 > LATE * visit.distance);
        table.look(since, at, young, !late || !table.looks.is_full());
        visit.looks -= 1;
        // Where no entries are so busy, most are better told apart by another look like those before.
        let saturated = table.looks.young_in_last(FIRST_LOOKS) >= SATURATED;
        if visit.looks > 0 {
            if visit.work == Work::Hint {
                self.settle(ports, visit)?;
            }
            if visit.looks == 1 && (saturated || !self.tally.are_strangers()) {
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

    /// Infers a table's rates after a visit.
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
        ports.charge(Duration::from_nanos(TABLE_NS + NODE_NS * nodes as u64));
        Ok(())
    }

    /// Infers rates of level-3 entries, and which tables they point out.
    fn settle_upper(&mut self, key: Key, now: Time) -> usize {
        let Ok(at) = self.upper.binary_search_by_key(&key, Table::key) else { return 0 };
        let table = &mut self.upper[at];
        let (lesson, nodes) = table.infer(&mut self.chain, &self.priors[1], now, false);
        self.priors[1].learn(&lesson);
        let range = table.range;
        let inside = |key: &Key| key.0 == range.space && (range.start..range.end).contains(&key.1);
        if self.upper.iter().all(|table| table.visits > 0) && self.windows < FIRST_WINDOWS {
            self.tally.count(&self.upper, &self.lower, &self.round);
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

    /// Infers rates of level-2 entries; chance has chosen the tables that are visited in turn, so that
    /// all rates are learned from them.
    fn settle_lower(&mut self, visit: Visit, now: Time) -> usize {
        // Entries as busy in the mean as level 3 says at least, if all are alike.
        let above =
            self.above(visit.key).map_or(0.0, |above| above.low - cell_of(512.0) + cell_of(1.0));
        let Some(table) = self.lower.get_mut(&visit.key) else { return 0 };
        if visit.work == Work::Round {
            self.tally.note_kinship(&table.looks, table.span.len());
        }
        let (lesson, nodes) = if table.sketch {
            let prior = self.priors[0].pointed(above);
            table.infer(&mut self.chain, &prior, now, false)
        } else {
            let apart = self.tally.are_apart(&table.looks, table.span.len());
            table.infer(&mut self.chain, &self.priors[0], now, apart)
        };
        let wanted = self.tally.wants_more(table);
        self.sort_in(visit.key, wanted);
        if visit.work == Work::Round {
            self.priors[0].learn(&lesson);
            self.draw_sample(visit.key);
        }
        nodes
    }

    /// Has a table visited again if it has hot entries or doubtful ones.
    fn sort_in(&mut self, key: Key, [hot, doubtful]: [bool; 2]) {
        for (set, wanted) in self.refined.iter_mut().zip([hot && !doubtful, doubtful]) {
            if wanted {
                set.insert(key)
            } else {
                set.remove(&key)
            };
        }
    }

    /// Likewise of all tables, if the bar has changed.
    fn sort_all(&mut self, ports: &mut dyn Ports) {
        if self.sorted == self.tally.bar() {
            return;
        }
        self.sorted = self.tally.bar();
        let (mut segments, mut sorted) = (0, Vec::with_capacity(self.lower.len()));
        for (key, table) in &self.lower {
            segments += table.segments.len() as u64;
            sorted.push((*key, self.tally.wants_more(table)));
        }
        sorted.into_iter().for_each(|(key, wanted)| self.sort_in(key, wanted));
        ports.charge(Duration::from_nanos(COPY_NS * segments + WALK_NS * self.lower.len() as u64));
    }

    /// Infers doubtful tables once more that were inferred before as much was learned of rates in general:
    /// cheaper than to look at them again. Takes a part of what may be spent in this beat.
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
            let apart = self.tally.are_apart(&table.looks, table.span.len());
            let (_, nodes) = table.infer(&mut self.chain, &self.priors[0], now, apart);
            let wanted = self.tally.wants_more(table);
            self.sort_in(key, wanted);
            let cost = TABLE_NS + NODE_NS * nodes as u64;
            ports.charge(Duration::from_nanos(cost));
            left -= cost as f64;
        }
    }

    /// Infers rates of the pages of an entry of 2 MiB. What chance has chosen tells how accesses are spread
    /// within such entries.
    fn settle_leaves(&mut self, visit: Visit, now: Time) -> usize {
        let Some(table) = self.leaves.get_mut(&visit.key) else { return 0 };
        if self.huge {
            table.segments.clear();
            self.tally.note_leaves(1.0);
            return 0;
        }
        let (lesson, nodes) = table.infer(&mut self.chain, &self.priors[2], now, false);
        self.priors[2].learn(&lesson);
        if let (true, Some(unevenness)) = (visit.sampled, table.looks.unevenness(table.span.len()))
        {
            self.tally.note_leaves(unevenness);
        }
        let above = Level::PUD.entry_of(Addr { space: visit.key.0, at: visit.key.1 });
        if let Some(table) = self.lower.get_mut(&(visit.key.0, above.start)) {
            table.drawn = None;
        }
        nodes
    }

    /// The next entry of 2 MiB whose leaves are looked at, and its rate.
    fn next_leaves(&mut self, now: Time) -> Option<(Key, f32, bool)> {
        while let Some((key, rate, sampled)) = self.wanted.pop_front() {
            let known = self.leaves.get(&key);
            if known.is_none_or(|table| {
                let pause = if sampled { LEAVES_AGAIN } else { REVISIT };
                !table.busy && table.seen.is_none_or(|seen| now.since(seen) >= pause)
            }) {
                return Some((key, rate, sampled));
            }
        }
        None
    }

    /// Chooses entries whose leaves are to be looked at: some by chance, an access each; and where pages
    /// within entries differ, the busiest ones as well.
    fn want_leaves(&mut self) {
        if !self.wanted.is_empty() {
            return;
        }
        let mut busy: Vec<(Key, f32)> = Vec::new();
        let bar = self.tally.worth_leaves();
        let mut total = 0.0f64;
        let mut next = self.rng.below(1 << 20) as f64 / f64::from(1 << 20);
        let step = self.tally.total_rate() / LEAF_SAMPLES as f64;
        let mut chosen = Vec::new();
        for table in self.lower.values() {
            let uneven = self.tally.is_uneven() && table.sums.most >= bar;
            if total + table.sums.rate < next * step && !uneven {
                total += table.sums.rate;
                continue;
            }
            for segment in table.segments.iter().filter(|segment| segment.mean > 0.0) {
                let rate = rate_of(segment.believed());
                let entry = |at: usize| {
                    (table.cover(&(at..at + 1)).space, table.cover(&(at..at + 1)).start)
                };
                let before = total;
                total += f64::from(rate) * segment.entries.len() as f64;
                while next * step < total && chosen.len() < LEAF_SAMPLES {
                    let into = ((next * step - before) / f64::from(rate)) as usize;
                    let at = (segment.entries.start + into).min(segment.entries.end - 1);
                    chosen.push((entry(at), rate, true));
                    next += 1.0;
                }
                if uneven && segment.mean >= bar && busy.len() < MOST_LEAVES {
                    busy.extend(segment.entries.clone().map(|at| (entry(at), rate)));
                }
            }
        }
        busy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        busy.truncate(LEAF_BATCH.max(self.leaves.len()));
        let (leaves, tally) = (&self.leaves, &self.tally);
        busy.retain(|(key, _)| leaves.get(key).is_none_or(|table| tally.wants_more_pages(table)));
        busy.truncate(LEAF_BATCH);
        self.wanted.extend(chosen);
        self.wanted.extend(busy.into_iter().map(|(key, rate)| (key, rate, false)));
        while self.leaves.len() > MOST_LEAVES {
            let oldest = self.leaves.iter().filter(|(_, table)| !table.busy);
            let Some(key) = oldest.min_by_key(|(_, table)| table.seen).map(|(key, _)| *key) else {
                break;
            };
            self.leaves.remove(&key);
        }
    }

    /// Time from clear to look for a table of level 2, in seconds; `busy` is the cell of the rate by which level 3
    /// has pointed it out.
    fn distance(&self, key: Key, busy: Option<f32>) -> f32 {
        let mean = self.tally.mean_rate();
        let search = if mean > 0.0 { SEARCH / mean } else { FIRST_DISTANCE };
        let table = self.lower.get(&key);
        let measured = table.filter(|table| !table.visits.is_multiple_of(4));
        let measure = measured.and_then(|table| {
            let aims = self.tally.aims(table);
            (!aims.is_empty()).then(|| MEASURE / aims[table.visits as usize % aims.len()])
        });
        // Some of its entries are at least as busy as all are in the mean.
        let above = self.above(key).filter(|above| busy.is_some() || self.tally.points_out(above));
        let least = above.map(|above| above.low.max(busy.unwrap_or(0.0) - UNSURE));
        let pointed = least.filter(|least| *least > 0.0);
        let pointed = pointed.map(|least| (POINTED * 512.0 / rate_of(least)).min(search));
        measure.or(pointed).unwrap_or(search).clamp(DISTANCES.0, DISTANCES.1)
    }

    /// What is known of the level-3 entry of a table.
    fn above(&self, key: Key) -> Option<&Segment> {
        let range = Level::P4D.entry_of(Addr { space: key.0, at: key.1 });
        let at = self.upper.binary_search_by_key(&(key.0, range.start), Table::key).ok()?;
        let entry = ((key.1 - range.start) >> Level::PUD.shift()) as usize;
        self.upper[at].segment(entry)
    }

    /// Time from clear to look for a table of level 3, in seconds: from the shortest on, by factors, in
    /// turn, up to where all would be young.
    fn distance_above(&self, key: Key) -> f32 {
        let at = self.upper.binary_search_by_key(&key, Table::key);
        let visits = at.map_or(0, |at| self.upper[at].visits);
        let longest =
            if self.tally.above() > 0.0 { 1.0 / self.tally.above() } else { FIRST_DISTANCE };
        let longest = longest.clamp(SHORTEST_ABOVE, FIRST_DISTANCE);
        let rungs = ((longest / SHORTEST_ABOVE).ln() / RUNG.ln()) as u32 + 1;
        SHORTEST_ABOVE * RUNG.powi((visits % rungs) as i32)
    }

    /// The next table for a kind of work.
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
        let distance = match level {
            Level::PMD => self.distance(key, busy),
            _ => self.distance_above(key),
        };
        let hurried = work == Work::Hint && self.hints.len() > MANY_HINTS;
        let once = level == Level::PUD || distance < SHORTEST_REPEATED || hurried;
        // Where entries say nothing of each other, each needs more looks.
        let looks = match once {
            true => 1,
            false if self.tally.are_strangers() => 4,
            false => 3,
        };
        // While level 3 has more to point out than can be looked at whole, a sketch of each table has to do.
        let sketch = hurried
            && self.shares.vast
            && self.can_flush
            && self.table(level, key).is_none_or(|table| table.is_new());
        let distance = if sketch { SKETCHED * distance } else { distance };
        // The last look comes sooner, by a different factor from visit to visit: whatever the rate of hot
        // entries, some look leaves some of them old.
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

    /// A visit to the leaves of an entry: it takes as long as leaves a third of them young if all are alike,
    /// or, every other time where some are known to be hot, about half of these.
    fn choose_leaves(&mut self, now: Time) -> Option<Visit> {
        let (key, rate, sampled) = self.next_leaves(now)?;
        let areas = &self.areas;
        let new = || Table::new(key.0, key.1, Level::PTE, areas);
        let table = &*self.leaves.entry(key).or_insert_with(new);
        let hot = self.tally.aims(table);
        let visits = table.visits as usize;
        // Where few pages take all accesses, they take them sooner.
        let sooner = if self.tally.is_uneven() { 4f32.powi((visits % 3) as i32) } else { 1.0 };
        let alike = LEAF_MEASURE * 512.0 / rate / sooner;
        let measured = !hot.is_empty() && visits % 2 == 1;
        let distance = match measured {
            true => (MEASURE / hot[visits / 2 % hot.len()]).clamp(DISTANCES.0, DISTANCES.1),
            false => alike.clamp(LEAF_DISTANCES.0, LEAF_DISTANCES.1),
        };
        let distance = (distance * 1e9) as u64;
        self.ladder = (self.ladder + 1) % LADDER.len();
        let last_distance = (distance / (2 * LADDER[self.ladder])).max((DISTANCES.0 * 1e9) as u64);
        Some(Visit {
            level: Level::PTE,
            key,
            work: Work::Leaves,
            distance,
            last_distance,
            looks: 2,
            prepaid: 0,
            sampled,
            sketch: false,
        })
    }

    /// Tables of level 3 in turn, those first that were not visited yet.
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
            let fresh = table.seen.is_some_and(|seen| now.since(seen) < pause);
            if !table.busy && !fresh {
                return Some(table.key());
            }
        }
        None
    }

    /// The next table pointed out, and the cell of the rate above it.
    fn next_hint(&mut self) -> Option<(f32, Key)> {
        while let Some((cell, key)) = self.hints.pop() {
            if self.lower.get(&key).is_none_or(|table| !table.busy) {
                return Some((cell, key));
            }
        }
        None
    }

    fn next_in_turn(&mut self, now: Time) -> Option<Key> {
        for _ in 0..64 {
            let key = self.round.next()?;
            let recent = |table: &Table| {
                table.busy || table.seen.is_some_and(|seen| now.since(seen) < self.beat())
            };
            let quiet = self.above(key).is_some_and(|above| self.tally.is_quiet(above));
            if !quiet && !self.lower.get(&key).is_some_and(recent) {
                return Some(key);
            }
        }
        None
    }

    /// Doubtful tables come before hot ones three times of four.
    fn next_refined(&mut self, now: Time) -> Option<Key> {
        self.refine_turn += 1;
        let first = usize::from(!self.refine_turn.is_multiple_of(4));
        [first, 1 - first].into_iter().find_map(|set| self.next_refined_of(set, now))
    }

    fn next_refined_of(&mut self, set: usize, now: Time) -> Option<Key> {
        let from = self.refine_from[set];
        let (tables, pauses) = (&self.refined[set], [REVISIT, REVISIT_VAGUE]);
        let after = tables.range((Bound::Excluded(from), Bound::Unbounded));
        let keys = after.chain(tables.range(..=from)).take(16);
        let ready = |key: &&Key| {
            self.lower.get(key).is_some_and(|table| {
                let vague = table.segments.iter().any(|s| s.high - s.low > CLOSE);
                let pause = if vague { REVISIT_VAGUE } else { pauses[set] };
                !table.busy && table.seen.is_none_or(|seen| now.since(seen) >= pause)
            })
        };
        let key = keys.into_iter().find(ready).copied()?;
        self.refine_from[set] = key;
        Some(key)
    }

    /// Visits for this beat, as many as the budget is expected to pay for.
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
            // What it then costs is added once more, alike for all kinds.
            self.shares.spend(visit.work, self.planned);
            left -= (self.planned + visit.looks * self.look_price()).as_nanos() as f64;
            if let Some(table) = self.table(visit.level, visit.key) {
                table.busy = true;
            }
            visits.push(visit);
        }
        visits
    }

    /// Opens the visits of a beat: those that wait longest first, so that the flush comes soon after those
    /// that are to wait but shortly. Returns what that cost.
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
            let cost = self.pay(ports, spent, visit.work);
            self.price = (self.price * 7 + cost) / 8;
            all += cost;
        }
        Ok(all)
    }

    /// Of the visits whose looks come soon after the clear, as many as can be opened before the flush is too
    /// late for them; those whose tables were not looked at for longest. The others are put back.
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

    /// A visit that did not fit into its beat.
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

    /// What a look is expected to cost with all that follows from it.
    fn look_price(&self) -> Duration {
        self.look_price.unwrap_or(UNKNOWN_LOOK * self.price)
    }

    /// Takes what was spent since the last call from the budget.
    fn pay(&mut self, ports: &dyn Ports, spent: &mut Duration, work: Work) -> Duration {
        let now = ports.own_time();
        let cost = now.saturating_sub(*spent);
        *spent = now;
        self.budget.spend(cost);
        self.shares.spend(work, cost);
        cost
    }

    /// Takes what was spent on no visit from the budget: flushes, snapshots.
    fn pay_rest(&mut self, ports: &dyn Ports, spent: Duration) {
        self.budget.spend(ports.own_time().saturating_sub(spent));
    }

    /// Has translations flushed where visits wait for it, and sets the times of their looks.
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
            // The flush is to come within a quarter of the time from the clear to the look.
            let cleared = self.table(visit.level, visit.key).and_then(|table| table.cleared);
            let waited = cleared.map_or(0, |cleared| now.since(cleared).as_nanos() as u64);
            let least = now + Duration::from_nanos(3 * waited + 1);
            let at = self.look_at(now, visit.distance).max(least);
            self.due.push(Reverse(Due { at, number: self.number, visit }));
        }
        Ok(())
    }

    /// Fits the distribution of rates to entries drawn at random.
    fn fit_priors(&mut self, ports: &mut dyn Ports, now: Time) {
        match self.windows % 15 {
            1 | 6 | 11 if self.has_news(0) => self.fit_lower(ports, now),
            2 if self.has_news(1) => self.fit_upper(ports, now),
            7 if self.has_news(2) => self.fit_pages(ports, now),
            _ => {}
        }
    }

    /// Whether there were enough visits for another fit.
    fn has_news(&mut self, kind: usize) -> bool {
        let few = self.windows > EARLY && self.news[kind] < NEWS;
        !few && std::mem::take(&mut self.news[kind]) > 0
    }

    fn fit_lower(&mut self, ports: &mut dyn Ports, now: Time) {
        let lower = &self.lower;
        let mut curves = Vec::with_capacity(self.sample.len());
        for drawn in &self.sample {
            if let Some(table) = lower.get(&drawn.key) {
                let pattern = table.looks.pattern(drawn.entry);
                let rates = self.priors[0].rates();
                let sight = chain::Sight::new(table.looks.all(), now);
                curves.push((chain::single(&sight, pattern, rates), drawn.weight));
            }
        }
        self.priors[0].fit(&curves, FITS);
        ports.charge(Duration::from_nanos(FIT_NS * curves.len() as u64));
    }

    fn fit_pages(&mut self, ports: &mut dyn Ports, now: Time) {
        let pages = self.leaves.values().flat_map(|table| {
            let rates = self.priors[2].rates();
            let sight = chain::Sight::new(table.looks.all(), now);
            let entries = (0..512).step_by(LEAF_STRIDE).map(|at| table.looks.pattern(at));
            entries.map(move |pattern| (chain::single(&sight, pattern, rates), 1.0))
        });
        let pages: Vec<_> = pages.take(SAMPLE).collect();
        ports.charge(Duration::from_nanos(FIT_NS * pages.len() as u64));
        self.priors[2].fit(&pages, FITS);
    }

    /// Tables visited in turn tell what their entries of level 3 take, to which looks at these may be blind.
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
                let sight = chain::Sight::new(table.looks.all(), now);
                let entries = (first..table.span.end).step_by(every);
                curves.extend(
                    entries.map(|at| (chain::single(&sight, table.looks.pattern(at), rates), 1.0)),
                );
            }
        }
        let weight = curves.len() as f32 / self.sample.len().max(1) as f32;
        let visited = self.sample.iter().filter_map(|drawn| lower.get(&drawn.key));
        curves.extend(visited.map(|table| (chain::near(cell_of(table.rate())), weight)));
        self.priors[1].fit(&curves, FITS);
        ports.charge(Duration::from_nanos(FIT_NS * curves.len() as u64));
    }

    /// Draws some entries of a table visited in turn into the sample, in place of the oldest: as many of
    /// those that were mostly young, which are few, as of the others.
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
                self.sample.push_back(Drawn { key, entry, weight });
            }
        }
    }

    /// When a look comes that is to follow a clear after some time: at the beginning of a beat, where that is
    /// close enough, so that the flush of that beat follows at once.
    fn look_at(&self, now: Time, distance: u64) -> Time {
        let beat = self.beat().as_nanos() as u64;
        let beats = (distance + beat / 2) / beat;
        match beats {
            0 => now + Duration::from_nanos(distance),
            _ => self.next_beat + Duration::from_nanos((beats - 1) * beat),
        }
    }

    /// From here on what TLBs and paging-structure caches hold looks idle, and cannot be judged.
    fn go_without_flushes(&mut self) {
        self.can_flush = false;
        self.tally.blind = true;
    }

    fn close_window(&mut self, ports: &mut dyn Ports, start: Time) -> Snapshot {
        let now = ports.now();
        self.windows += 1;
        let samples = (self.config.window.as_nanos() / self.config.sampling.as_nanos()) as u32;
        self.tally.count(&self.upper, &self.lower, &self.round);
        self.sort_all(ports);
        self.fit_priors(ports, now);
        if self.windows % 5 == 2 {
            self.want_leaves();
        }
        ports.charge(Duration::from_nanos(WALK_NS * self.lower.len() as u64));
        let before = ports.own_time();
        let elapsed = now.since(start).as_nanos() as f64;
        let redrawn = (REDRAWN * self.config.cpu * elapsed) as usize / REGION_NS as usize;
        let ground = draw::Ground {
            areas: &self.areas,
            upper: &self.upper,
            lower: &mut self.lower,
            leaves: &self.leaves,
            tally: &self.tally,
            samples,
            windows: self.windows,
            expected: self.regions,
            redrawn,
        };
        let (regions, [drawn, copied]) = ground.regions();
        self.regions = regions.len();
        ports.charge(Duration::from_nanos(REGION_NS * drawn as u64 + COPY_NS * copied as u64));
        // Drawing follows visits; what comes with each window is the rest.
        let [draw, copy] = [REGION_NS * drawn as u64, COPY_NS * copied as u64 + 1];
        let cost = ports.own_time().saturating_sub(before);
        self.shown = cost.mul_f64(copy as f64 / (draw + copy) as f64);
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
        self.budget.spend_elsewhere(woken.saturating_sub(self.last_time.unwrap_or(woken)));
        self.read_mappings(ports)?;
        let began = ports.own_time();
        self.budget.spend(began.saturating_sub(woken));
        let mut spent = began;
        require_lower_levels(ports.access_bits()?.radix().proven, "rates cannot be measured here")?;
        let start = *self.window_start.get_or_insert(now);
        let mut snapshot = None;
        let mut visits = Duration::ZERO;
        while let Some(Reverse(due)) = self.due.peek().copied()
            && due.at <= ports.now()
        {
            self.due.pop();
            let left = self.look(ports, due.visit)?;
            let cost = self.pay(ports, &mut spent, due.visit.work);
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
        if ports.now() >= start + self.window() {
            snapshot = Some(self.close_window(ports, start));
            self.window_start = snapshot.as_ref().map(|snapshot| snapshot.end);
        }
        self.pay_rest(ports, spent);
        self.last_time = Some(ports.own_time());
        let window_end = self.window_start.unwrap_or(now) + self.window();
        let due = self.due.peek().map_or(Time::NEVER, |Reverse(due)| due.at);
        let wake = window_end.min(due).min(self.next_beat);
        Ok(Step { wake, snapshot })
    }
}

/// The rate of an entry per page of 4 KiB.
fn per_page(cell: f32, level: Level) -> f32 {
    if cell <= 0.0 { 0.0 } else { rate_of(cell) / (level.entry_bytes() >> 12) as f32 }
}
