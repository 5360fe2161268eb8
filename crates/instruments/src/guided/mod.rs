//! Telescope, guided: upper-level bits say where to look, leaves say what is hot.
//!
//! Our own instrument. It answers what reviewers held against Telescope when it was posted to the
//! kernel list: that blind binary splits are slow where the upper levels already know the way, and
//! that one upper-level bit reports 512 pages for one access.
//!
//! A window has two parts. In a *burst* of a few sampling intervals it
//!
//! 1. scans all level-3 entries (1 GiB each), pruned by those above, and clears them;
//! 2. scans the level-2 entries (2 MiB each) beneath the level-3 entries that were young, and clears
//!    them: a bitmap a table, so that ten thousand scattered hot entries cost no more than one
//!    contiguous hot range.
//!
//! Each scan after the first one is a sample. The cost follows what is accessed, not what is mapped:
//! nothing is split, so nothing has to converge. For the rest of the window it sleeps, while
//!
//! 3. the leaves of some hot entries, cleared at the end of the burst, gather touches. They are
//!    read at the end of the window (`leaf.rs`): a hot entry is called hot once its leaves have
//!    confirmed it, and only as far as they were touched. Where many entries were checked and
//!    nearly all found hot all over, they vouch for the ones not checked yet (`Peers` in `heat.rs`).
//!
//! A budget of entries a window bounds 1 to 3. Where the accessed part is too large for it, tables
//! take turns, and counts look back over several windows (`HORIZON` in `heat.rs`).

mod draw;
mod heat;
mod leaf;

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tierscope_core::{
    AccessBits, AccessedSet, Instrument, Level, Ports, Range, RangeSet, Result, ScanMode,
    ScanStats, Setting, Snapshot, SpaceId, Step, Time, metrics,
};

use crate::areas::refresh;
use crate::checks::{intervals, refuse, require_lower_levels};
use draw::draw;
use heat::{ENTRIES, HORIZON, Peers, Table, inside, is_one, ones};
use leaf::{Leaves, Touched};

/// Work of clearing one young entry, in entries looked at: an atomic operation that misses beside a
/// read that mostly does not (41..155 ns against 5..10 ns, measured in the virtual machine).
const CLEAR_COST: u64 = 10;

/// Windows after which a table that stayed cold is forgotten.
const FORGET: u32 = 300;

/// Time after which a confirmed entry is checked again.
const RECHECK: Duration = Duration::from_secs(5);

/// Part of what leaf checks may cost where peers vouch for each other: enough to notice that they
/// no longer should. Each check is two system calls, and a wide hot set has thousands of entries.
const VOUCHED_SHARE: u64 = 8;

/// Areas are kept apart up to this many; beyond, the smallest gaps are closed.
const MAX_AREAS: usize = 4096;

const LOOK: ScanMode = ScanMode { clear: false, prune: false, present: false };
const CLEAR: ScanMode = ScanMode { clear: true, prune: false, present: false };

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two scans of a burst.
    pub sampling: Duration,
    /// Time from one snapshot to the next.
    pub window: Duration,
    /// Time after which mappings are read anew.
    pub update: Duration,
    /// Work a window may cost, in entries looked at; clearing a young one counts as ten. A third is
    /// the burst's, two thirds are for leaf checks: until peers vouch for each other, they decide
    /// how soon heat is confirmed.
    pub budget: u64,
    /// Frequency from which an entry is worth a leaf check.
    pub hot: f64,
}

/// 5 ms, 200 ms, and at most about 1.5 % of a CPU at 5 ns an entry.
impl Default for Config {
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            budget: 600_000,
            hot: metrics::HOT_FREQUENCY,
        }
    }
}

impl Config {
    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        intervals(self.sampling, self.window, 4)?;
        if self.budget < 6 * Level::FANOUT {
            return refuse("budget is too small", "it must pay for six tables", "try 600000");
        }
        if !(self.hot > 0.0 && self.hot <= 1.0) {
            return refuse("hot threshold", "it lies outside of 0..1", "try 0.125");
        }
        Ok(())
    }
}

impl Config {
    /// What of the budget is for the burst.
    fn for_burst(&self) -> u64 {
        self.budget / 3
    }

    /// Windows after which a confirmed entry is checked again.
    fn recheck(&self) -> u32 {
        (RECHECK.as_nanos() / self.window.as_nanos().max(1)).max(1) as u32
    }

    /// What of it is for leaf checks, where peers vouch for each other or do not.
    fn for_leaves(&self, vouched: bool) -> u64 {
        (self.budget - self.for_burst()) / if vouched { VOUCHED_SHARE } else { 1 }
    }
}

/// Where in a window the instrument stands.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Before the first window.
    Idle,
    /// Scanning; so many samples may still come.
    Burst { left: u32 },
    /// Waiting for the window to end, while leaves gather touches.
    Rest { since: Time },
}

/// What a window has settled, for drawing its regions.
#[derive(Debug, Default)]
struct Settled {
    /// Frequency from which an entry is hot.
    hot: f64,
    /// Samples that the window had.
    samples: u32,
    /// Windows so far.
    windows: u32,
    peers: BTreeMap<SpaceId, Peers>,
}

/// The instrument.
#[derive(Debug)]
pub struct Guided {
    config: Config,
    phase: Phase,
    window_start: Time,
    next_update: Time,
    next_sample: Time,
    /// What is mapped, exactly.
    areas: Vec<Range>,
    /// The same in whole level-3 entries.
    upper: Vec<Range>,
    tables: BTreeMap<(SpaceId, u64), Table>,
    /// Keys of the tables that this burst samples, ascending.
    slice: Vec<(SpaceId, u64)>,
    /// Keys of known tables that nothing touched since the last burst, ascending: samples without a
    /// hit, for no more than a look from above.
    quiet: Vec<(SpaceId, u64)>,
    /// The first table of the next slice where tables take turns.
    turn_of: (SpaceId, u64),
    /// Entries whose leaves were cleared at the start of the window.
    checks: Vec<((SpaceId, u64), u16)>,
    samples: u32,
    windows: u32,
    /// Work of the burst so far.
    spent: u64,
    set: AccessedSet,
}

impl Guided {
    /// The instrument with these settings.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            config,
            phase: Phase::Idle,
            window_start: Time(0),
            next_update: Time(0),
            next_sample: Time(0),
            areas: Vec::new(),
            upper: Vec::new(),
            tables: BTreeMap::new(),
            slice: Vec::new(),
            quiet: Vec::new(),
            turn_of: (SpaceId(0), 0),
            checks: Vec::new(),
            samples: 0,
            windows: 0,
            spent: 0,
            set: AccessedSet::default(),
        })
    }

    fn begin_window(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let now = ports.now();
        if let Some(areas) = refresh(ports, &mut self.next_update, self.config.update, MAX_AREAS)? {
            self.lay_out(areas);
        }
        let access = ports.access_bits()?;
        require_lower_levels(access.radix().proven, "telescope guided cannot work here")?;
        self.samples = 0;
        self.open_burst(access)?;
        let left = self.affordable();
        for key in &self.slice {
            self.tables.get_mut(key).expect("a slice holds known tables").fade(left);
        }
        // Not one touch since the last burst while others were touched: the heat has moved on. But
        // where nearly all is quiet the target itself was, and comes back to where it left.
        // Tables that heat left long ago say nothing of it.
        let left_now = self.quiet.iter().filter(|key| self.tables[*key].hot_before() > 0).count();
        let moved = 3 * (self.tables.len() - self.quiet.len()) >= left_now;
        let fade = if moved { HORIZON as u32 } else { left };
        for key in &self.quiet {
            self.tables.get_mut(key).expect("quiet tables are known").fade(fade);
        }
        self.phase = Phase::Burst { left };
        self.window_start = now;
        self.next_sample = now + self.config.sampling;
        Ok(())
    }

    /// Takes over new areas; tables outside of them are dropped.
    fn lay_out(&mut self, areas: Vec<Range>) {
        let whole: RangeSet = areas.iter().map(|area| Level::PUD.align(area)).collect();
        self.upper = whole.as_slice().to_vec();
        self.areas = areas;
        let mapped = |table: &Table| self.upper.iter().any(|range| range.covers(&table.range));
        self.tables.retain(|_, table| mapped(table));
    }

    /// Clears what the burst will look at, and chooses its slice: the tables touched since the
    /// last burst, in turns, as many as the budget lets be sampled once.
    fn open_burst(&mut self, access: &mut dyn AccessBits) -> Result<()> {
        self.spent = 0;
        self.slice.clear();
        let young = self.scan_upper(access)?;
        let from = young.partition_point(|key| *key < self.turn_of);
        self.turn_of = (SpaceId(0), 0);
        let in_turn: Vec<_> = young[from..].iter().chain(&young[..from]).copied().collect();
        self.quiet = without(self.tables.keys().copied(), &young).collect();
        if let Some(next) = self.open_tables(access, &in_turn)? {
            self.turn_of = next;
        }
        Ok(())
    }

    /// Clears the entries of tables and adds the tables to the slice. Returns the first one that the
    /// budget left out.
    fn open_tables(
        &mut self,
        access: &mut dyn AccessBits,
        keys: &[(SpaceId, u64)],
    ) -> Result<Option<(SpaceId, u64)>> {
        // As many again will be spent on each sample: half of the burst's budget is for opening.
        let limit = self.config.for_burst() / 2;
        let fit = keys.iter().scan(self.spent, |planned, key| {
            let hot = self.tables.get(key).map_or(0, Table::hot_before);
            *planned += Level::FANOUT + CLEAR_COST * u64::from(hot);
            Some(*planned)
        });
        let count = fit.take_while(|planned| *planned <= limit).count();
        let (open, rest) = keys.split_at(count);
        for run in runs(open) {
            self.scan(access, &run, Level::PMD, CLEAR)?;
        }
        for key in open {
            self.tables.entry(*key).or_insert_with(|| Table::new(upper_range(*key)));
        }
        self.slice.extend_from_slice(open);
        self.slice.sort_unstable();
        Ok(rest.first().copied())
    }

    /// How many samples the burst's part of the budget pays for, if each costs what opening did.
    fn affordable(&self) -> u32 {
        let intervals = self.config.window.as_nanos() / self.config.sampling.as_nanos();
        let fit = (self.config.for_burst() / self.spent.max(1)).saturating_sub(1);
        fit.clamp(2, intervals as u64 / 2) as u32
    }

    /// One sample: which tables are young, and which of their entries. Tables that were old so far
    /// join the slice for the next sample.
    fn sample(&mut self, access: &mut dyn AccessBits) -> Result<()> {
        self.samples += 1;
        let young = self.scan_upper(access)?;
        let slice = std::mem::take(&mut self.slice);
        let old: Vec<_> = without(slice.iter().copied(), &young).collect();
        let look: Vec<_> = without(slice.iter().copied(), &old).collect();
        for run in runs(&look) {
            self.scan(access, &run, Level::PMD, CLEAR)?;
            for (index, words) in self.set.young.chunks(ENTRIES / 64).enumerate() {
                let start = run.start + index as u64 * Level::PUD.entry_bytes();
                let table = self.tables.get_mut(&(run.space, start));
                table.expect("a slice holds known tables").count(Some(words));
            }
        }
        for key in &old {
            self.tables.get_mut(key).expect("a slice holds known tables").count(None);
        }
        self.quiet = without(std::mem::take(&mut self.quiet).into_iter(), &young).collect();
        for key in &self.quiet {
            self.tables.get_mut(key).expect("quiet tables are known").count(None);
        }
        let new: Vec<_> = without(young.into_iter(), &slice).collect();
        self.slice = slice;
        self.open_tables(access, &new)?;
        Ok(())
    }

    /// What follows a sample: another one if there is budget left for it, else the leaf checks.
    fn after_sample(&mut self, left: u32, now: Time, access: &mut dyn AccessBits) -> Result<Phase> {
        let next = self.spent / u64::from(self.samples + 1);
        // Samples come late on a busy machine: the leaves' half of the window is not theirs.
        let in_time = now < self.window_start + self.config.window / 2;
        let affordable = in_time && self.spent + next <= self.config.for_burst();
        if left > 0 && (self.samples < 2 || affordable) {
            return Ok(Phase::Burst { left });
        }
        self.open_checks(access)?;
        Ok(Phase::Rest { since: now })
    }

    /// Scans and clears all level-3 entries. Returns the young ones, ascending.
    fn scan_upper(&mut self, access: &mut dyn AccessBits) -> Result<Vec<(SpaceId, u64)>> {
        let mut young = Vec::new();
        for index in 0..self.upper.len() {
            let range = self.upper[index];
            self.scan(access, &range, Level::PUD, ScanMode { prune: true, ..CLEAR })?;
            for run in self.set.young_runs() {
                let starts = (run.start..run.end).step_by(Level::PUD.entry_bytes() as usize);
                young.extend(starts.map(|start| (run.space, start)));
            }
        }
        Ok(young)
    }

    /// Scans into `self.set` and adds up the work.
    fn scan(
        &mut self,
        access: &mut dyn AccessBits,
        range: &Range,
        level: Level,
        mode: ScanMode,
    ) -> Result<()> {
        let ScanStats { visited, young, .. } = access.scan(range, level, mode, &mut self.set)?;
        self.spent += visited + if mode.clear { CLEAR_COST * young } else { 0 };
        Ok(())
    }

    /// Chooses hot entries for a leaf check and clears their leaves: the ends of hot runs first,
    /// then entries inside, then those checked once, then the ones whose check is oldest.
    fn open_checks(&mut self, access: &mut dyn AccessBits) -> Result<()> {
        self.checks.clear();
        let peers = self.peers();
        let all_vouched = peers.values().all(|peers| peers.vouch());
        // Thousands may be due, a few hundred can be paid for.
        let most = (self.config.for_leaves(all_vouched) / (2 * Level::FANOUT)) as usize;
        let due = self.most_urgent(most);
        self.spent = 0;
        for (_, key, entry) in due {
            let vouched = peers.get(&key.0).is_some_and(|peers| peers.vouch());
            if self.spent + 2 * Level::FANOUT > self.config.for_leaves(vouched) {
                continue;
            }
            let range = self.tables[&key].entry(usize::from(entry));
            self.scan(access, &range, Level::PTE, CLEAR)?;
            self.spent += Level::FANOUT;
            self.checks.push((key, entry));
        }
        Ok(())
    }

    /// The most urgent entries to check, at most `most`, the most urgent first.
    fn most_urgent(&self, most: usize) -> Vec<Due> {
        let mut chosen = BinaryHeap::with_capacity(most + 1);
        let recheck = self.config.recheck();
        for (key, table) in &self.tables {
            let hot = table.hot(self.config.hot);
            let inside = inside(hot);
            let mut checked = table.leaves().peekable();
            for entry in ones(hot) {
                while checked.next_if(|(at, _)| *at < entry).is_some() {}
                let leaves = checked.next_if(|(at, _)| *at == entry).map(|(_, leaves)| leaves);
                let Some(urgency) =
                    urgency((table, entry), leaves, is_one(&inside, entry), recheck)
                else {
                    continue;
                };
                let due = (urgency, *key, entry as u16);
                if chosen.len() < most {
                    chosen.push(due);
                } else if chosen.peek().is_some_and(|last| due < *last) {
                    *chosen.peek_mut().expect("peeked at") = due;
                }
            }
        }
        chosen.into_sorted_vec()
    }

    /// Reads the leaves that were cleared at the start of the window.
    fn close_checks(&mut self, access: &mut dyn AccessBits) -> Result<()> {
        for (key, entry) in std::mem::take(&mut self.checks) {
            let Some(range) = self.tables.get(&key).map(|table| table.entry(usize::from(entry)))
            else {
                continue;
            };
            self.scan(access, &range, Level::PTE, LOOK)?;
            let touched: Touched =
                self.set.young.as_slice().try_into().expect("an entry has 512 leaves");
            self.tables.get_mut(&key).expect("looked up above").note(entry, touched);
        }
        Ok(())
    }

    fn close_window(&mut self, end: Time, access: &mut dyn AccessBits) -> Result<Snapshot> {
        self.close_checks(access)?;
        self.windows = self.windows.saturating_add(1);
        for table in self.tables.values_mut() {
            table.turn(self.config.hot);
        }
        self.tables.retain(|_, table| table.cold_for < FORGET);
        let settled = self.settle();
        let regions = draw(&self.areas, &mut self.tables, &settled);
        let most = regions.iter().map(|region| region.samples).max().unwrap_or(0);
        Ok(Snapshot { start: self.window_start, end, samples: most.max(self.samples), regions })
    }

    fn settle(&self) -> Settled {
        let Self { samples, windows, .. } = *self;
        Settled { hot: self.config.hot, samples, windows, peers: self.peers() }
    }

    fn peers(&self) -> BTreeMap<SpaceId, Peers> {
        let mut peers: BTreeMap<SpaceId, Peers> = BTreeMap::new();
        for ((space, _), table) in &self.tables {
            table.tell(peers.entry(*space).or_default());
        }
        peers
    }

    /// A window lasts longer rather than that its leaves have no time to be touched: what was not
    /// touched would count as cold.
    fn window_end(&self, rest_since: Time) -> Time {
        let window = self.config.window;
        (self.window_start + window).max(rest_since + window / 2)
    }
}

/// The level-3 entry of that key.
fn upper_range((space, start): (SpaceId, u64)) -> Range {
    Range::new(space, start, start + Level::PUD.entry_bytes())
}

/// Those of the ascending `keys` that are not among the ascending `others`.
fn without<K: Ord>(keys: impl Iterator<Item = K>, others: &[K]) -> impl Iterator<Item = K> {
    let mut others = others.iter().peekable();
    keys.filter(move |key| {
        while others.next_if(|other| *other < key).is_some() {}
        others.next_if(|other| *other == key).is_none()
    })
}

/// Neighbouring level-3 entries as one range: one scan instead of many.
fn runs(keys: &[(SpaceId, u64)]) -> Vec<Range> {
    let set: RangeSet = keys.iter().map(|key| upper_range(*key)).collect();
    set.as_slice().to_vec()
}

/// An entry whose leaves may be checked, after its urgency.
type Due = ((u32, u32, u64), (SpaceId, u64), u16);

/// How soon an entry's leaves should be checked: less is sooner, `None` for not now. Among equals
/// chance decides, as good as a product of the address is.
fn urgency(
    (table, entry): (&Table, usize),
    leaves: Option<&Leaves>,
    inside: bool,
    recheck: u32,
) -> Option<(u32, u32, u64)> {
    let number = (table.range.start >> Level::PMD.shift()) + entry as u64;
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match leaves.map(|leaves| (leaves.checks, table.since(leaves))) {
        None => Some((u32::from(inside), 0, mixed)),
        Some((0 | 1, _)) => Some((2, 0, mixed)),
        Some((_, since)) if since < recheck => None,
        Some((_, since)) => Some((3, u32::MAX - since, mixed)),
    }
}

impl Instrument for Guided {
    fn name(&self) -> &'static str {
        "telescope"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("variant", "guided".into()),
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("budget", config.budget.to_string()),
            setting("hot", config.hot.to_string()),
        ]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        match self.phase {
            Phase::Idle => self.begin_window(ports)?,
            Phase::Burst { .. } if now < self.next_sample => {}
            Phase::Burst { left } => {
                let access = ports.access_bits()?;
                self.sample(access)?;
                self.next_sample = now + self.config.sampling;
                self.phase = self.after_sample(left - 1, now, access)?;
            }
            Phase::Rest { since } if now < self.window_end(since) => {}
            Phase::Rest { .. } => {
                snapshot = Some(self.close_window(now, ports.access_bits()?)?);
                self.begin_window(ports)?;
            }
        }
        let wake = match self.phase {
            Phase::Rest { since } => self.window_end(since),
            _ => self.next_sample,
        };
        Ok(Step { wake, snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 25 windows of 200 ms, 6 of 800 ms: what was missed in one check is not cold for longer than 5 s.
    #[test]
    fn confirmed_entries_are_checked_again_after_a_time() {
        let of = |ms: u64| Config { window: Duration::from_millis(ms), ..Config::default() };
        assert_eq!([200, 800, 5_000, 60_000].map(|ms| of(ms).recheck()), [25, 6, 1, 1]);
    }

    #[test]
    fn what_is_not_among_others() {
        let left = |keys: &[u32], others| without(keys.iter().copied(), others).collect::<Vec<_>>();
        assert_eq!(left(&[1, 3, 5, 7], &[0, 3, 4, 7, 9]), [1, 5]);
        assert_eq!(left(&[1, 2], &[]), [1, 2]);
        assert_eq!(left(&[], &[1]), []);
    }
}
