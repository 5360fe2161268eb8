//! Linear scan: a hand sweeps the whole page table cyclically and clears every leaf's ACCESSED bit.
//!
//! The method of kstaled and of MGLRU's aging, and of the measurements in the Telescope article
//! under "Linear Scanning of Page Table Entries": complete, and slow where the table is large. The
//! article found more than 20 s for one pass over 1 TB at nearly half of a CPU.
//!
//! The hand moves in steps: once per interval it judges a limited number of entries, then rests for
//! an interval. With the defaults it advances 256 MiB per step, 50 GiB per second: a small target
//! is passed in every step, a terabyte in 20 s, over a hundred windows.
//!
//! # Meaning of hits and samples
//!
//! The unit is a block. A pass counts as an access to a block if any page of it was young.
//!
//! - `samples` are the passes over the block within the window, `hits` those passes that found it
//!   young.
//! - If no pass reached the block in the window, the verdict of the last one holds: one sample, and
//!   one hit or none. At terabytes this is the case for nearly all blocks, and *young* then means:
//!   accessed at least once in a whole pass, however long that took.
//! - Before the second pass there are no samples: the first pass finds bits set at any earlier
//!   time, and only clears them. Later mappings have no such past: their blocks count from the
//!   first pass on, and as cold until then.
//!
//! Neighbouring blocks become one region if they have the same samples and the same heat: no hit,
//! or the same eighth of 0..1, in which 5/40 is a boundary ([`HOT_FREQUENCY`]). A block that would
//! be hot is unknown unless its pages are accessed evenly (`spread.rs`): one hot page does not make
//! 2 MiB hot. Hits of a region
//! are the mean over its blocks; its age is the number of windows in which no block of it changed
//! its heat.
//!
//! # Pruning
//!
//! With [`Config::prune`] the hand judges upper entries first and skips the subtrees of old ones,
//! as MGLRU does where hardware sets the bits of upper levels. The instrument descends level by
//! level itself: an upper entry spans many steps, and must be cleared in the first of them only.
//!
//! # Memory
//!
//! 48 bytes per block and nothing that grows with time: with blocks of 2 MiB, 24 MiB per TiB
//! mapped, 120 MiB at 5 TiB. A window's regions are extra, 48 bytes each: at worst one for each
//! block.
//!
//! [`HOT_FREQUENCY`]: tierscope_core::metrics::HOT_FREQUENCY

use std::time::Duration;

use tierscope_core::{
    AccessBits, AccessedSet, Instrument, LeafKind, Level, Need, PAGE_SIZE, Ports, Probe, Range,
    Result, ScanMode, Setting, Snapshot, Step, Time,
};

use crate::checks::{intervals, refuse};
use crate::hidden::Hidden;
use crate::registry::{Common, CostClass, Entry, Variant, set};

mod blocks;
mod hand;
mod spread;

use blocks::{Blocks, Position};
use hand::{Hand, Task, overlaps};

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "scan",
    about: "linear scan of all leaves, step by step (kstaled, MGLRU aging)",
    needs: &[Need::AccessBits],
    granularity: "2 MiB",
    variants: &[
        Variant { name: "plain", about: "every leaf in every pass", cost: CostClass::AllMemory },
        Variant {
            name: "pruned",
            about: "skips what lies under upper entries found old",
            cost: CostClass::HotMemory,
        },
    ],
    removed: &[],
    make,
};

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config { prune: variant == "pruned", ..Default::default() };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(Scan::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two steps.
    pub sampling: Duration,
    /// Time over which passes are counted.
    pub window: Duration,
    /// Time after which mappings are read again, at the end of a window.
    pub update: Duration,
    /// Block size in bytes: a power of two, at least a page.
    pub block: u64,
    /// Maximum number of entries judged per step; at least a block's and at least a table's. 65,536
    /// take 0.3 to 0.7 ms if most are old, ten times as long if all are young.
    pub entries: u64,
    /// Skip the subtrees of upper entries found old.
    pub prune: bool,
}

/// A step of 256 MiB every 5 ms, windows of 200 ms, blocks of 2 MiB.
impl Default for Config {
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            block: Level::PMD.entry_bytes(),
            entries: 1 << 16,
            prune: false,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        intervals(self.sampling, self.window, 1)?;
        let steps = self.window.as_nanos() / self.sampling.as_nanos();
        if steps > u128::from(u16::MAX) {
            let cause = "it holds more than 65535 sampling intervals";
            return refuse("window", cause, "make it 40 sampling intervals");
        }
        if !self.block.is_power_of_two() || self.block < PAGE_SIZE {
            let cause = "it is not a power of two of at least 4 KiB";
            return refuse("block size", cause, "try 2M");
        }
        if self.entries < Level::FANOUT.max(self.block / PAGE_SIZE) {
            let cause = "a step does not cover a block and a table";
            return refuse("entries a step", cause, "try 65536");
        }
        Ok(())
    }
}

/// The scan instrument.
#[derive(Debug)]
pub struct Scan {
    config: Config,
    hand: Hand,
    blocks: Blocks,
    hidden: Hidden,
    set: AccessedSet,
    /// Start of the window, and the hand's position then; `None` before the first.
    window_start: Option<(Time, Position)>,
    samples: u32,
    next_step: Time,
    next_update: Time,
}

impl Scan {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            hand: Hand::new(config.block),
            blocks: Blocks::new(config.block),
            config,
            hidden: Hidden::default(),
            set: AccessedSet::default(),
            window_start: None,
            samples: 0,
            next_step: Time(0),
            next_update: Time(0),
        })
    }

    fn update(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let (due, update) = (&mut self.next_update, self.config.update);
        let Some(areas) = self.hidden.refresh(ports, due, update, usize::MAX)? else {
            return Ok(());
        };
        if areas == self.blocks.areas() {
            return Ok(());
        }
        let proven = ports.access_bits()?.radix().proven;
        let upper = proven.highest_first().filter(|level| self.config.prune && *level > Level::PTE);
        self.hand.fit(&areas, upper);
        self.blocks.fit(areas);
        Ok(())
    }

    /// Advances the hand by at most a step's entries, and never beyond the end of a pass: no block
    /// is passed twice in a step.
    fn advance(&mut self, access: &mut dyn AccessBits) -> Result<()> {
        self.hand.begin_if_over();
        let mut left = self.config.entries;
        while let Some((range, task)) = self.hand.take(left, left == self.config.entries) {
            let entries = match task {
                Task::Young => {
                    self.blocks.mark_whole(&range, self.hand.pass());
                    0
                }
                Task::Scan(level) => {
                    self.scan(access, &range, level)?;
                    level.entries_in(&range)
                }
            };
            left = left.saturating_sub(entries.max(FEWEST_CHARGED));
        }
        self.hand.finish();
        self.samples += 1;
        Ok(())
    }

    fn scan(&mut self, access: &mut dyn AccessBits, range: &Range, level: Level) -> Result<()> {
        let mode = ScanMode { clear: true, present: level == Level::PTE, ..Default::default() };
        let stats = access.scan(range, level, mode, &mut self.set)?;
        let leaves = |level: Level| stats.leaves[usize::from(level.number()) - 1] > 0;
        if level > Level::PTE {
            return self.descend(access, level, leaves(level));
        }
        self.blocks.record(&self.set, self.hand.pass());
        // Scanning the first part of a leaf clears the whole leaf.
        if leaves(Level::PUD) {
            self.hand.keep_whole(Level::PUD);
        }
        Ok(())
    }

    /// Continues the pass below young tables. Leaves among the young entries are already judged and
    /// cleared: a scan below them would find them old.
    fn descend(&mut self, access: &mut dyn AccessBits, level: Level, leaves: bool) -> Result<()> {
        if !leaves {
            self.hand.descend(level, self.set.young_runs().map(|run| (run, false)));
            return Ok(());
        }
        let mut probes = self.young_entries();
        access.probe(&mut probes)?;
        let entry = |probe: &Probe| {
            let is_leaf = !matches!(probe.answer.kind, LeafKind::Table | LeafKind::None);
            (level.entry_of(probe.at), is_leaf)
        };
        self.hand.descend(level, probes.iter().map(entry));
        Ok(())
    }

    /// Test probes for the young entries of the last scan, each at a mapped address.
    fn young_entries(&self) -> Vec<Probe> {
        let (level, areas) = (self.set.level, self.blocks.areas());
        let entries = (0..self.set.entries()).filter(|index| self.set.is_young(*index));
        let range = |index: u64| {
            let start = self.set.range.start + (index << level.shift());
            Range::new(self.set.range.space, start, start + level.entry_bytes())
        };
        let mapped = entries.filter_map(|index| overlaps(areas, range(index)).next());
        mapped.map(|part| Probe::test(part.at(0), level)).collect()
    }

    fn close_window(&mut self, start: (Time, Position), end: Time) -> Snapshot {
        let level = (!self.config.prune).then_some(Level::PTE);
        let mut regions = self.blocks.close_window(start.1, self.hand.position(), level);
        self.hidden.add_to(&mut regions);
        Snapshot { start: start.0, end, samples: self.samples, regions }
    }

    fn begin_window(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let now = ports.now();
        self.update(ports)?;
        self.samples = 0;
        self.window_start = Some((now, self.hand.position()));
        Ok(())
    }
}

/// Minimum cost of a scan, in entries: calls have a fixed cost.
const FEWEST_CHARGED: u64 = 64;

impl Instrument for Scan {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("block", config.block.to_string()),
            setting("entries", config.entries.to_string()),
            setting("prune", config.prune.to_string()),
        ]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        let Some(start) = self.window_start else {
            self.begin_window(ports)?;
            self.advance(ports.access_bits()?)?;
            self.next_step = ports.now() + self.config.sampling;
            return Ok(Step { wake: self.next_step, snapshot });
        };
        if now < self.next_step {
            return Ok(Step { wake: self.next_step, snapshot });
        }
        if now - start.0 >= self.config.window {
            snapshot = Some(self.close_window(start, now));
            self.begin_window(ports)?;
        }
        self.advance(ports.access_bits()?)?;
        self.next_step = ports.now() + self.config.sampling;
        Ok(Step { wake: self.next_step, snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::ErrorKind;

    #[test]
    fn absurd_settings_are_refused() {
        let refused = |config: Config| config.check().unwrap_err().kind() == ErrorKind::Usage;
        assert!(refused(Config { sampling: Duration::ZERO, ..Default::default() }));
        assert!(refused(Config { window: Duration::from_millis(4), ..Default::default() }));
        assert!(refused(Config { window: Duration::from_secs(400), ..Default::default() }));
        assert!(refused(Config { block: 3 << 20, ..Default::default() }));
        assert!(refused(Config { block: 2048, ..Default::default() }));
        assert!(refused(Config { block: 1 << 30, ..Default::default() }));
        assert!(refused(Config { entries: 511, ..Default::default() }));
    }
}
