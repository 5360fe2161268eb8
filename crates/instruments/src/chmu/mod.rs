//! Hot lists: a monitoring unit in a memory device reports the units of memory with the most
//! requests (CHMU).
//!
//! Source: CXL 3.2, section 8.2.8, and the documentation of the posted Linux driver
//! (`Documentation/trace/cxl-hmu.rst`), which leave open what a reader makes of the lists. Here:
//!
//! - With epochs, an epoch is as long as a window. A unit on the list has its count; a unit that is
//!   not is below the threshold, unless entries were lost or left unread: then the last verdict on
//!   it holds for [`Config::history`].
//! - Without epochs (*always-on*), each entry of a unit means as many requests as the
//!   threshold; a unit has the entries of [`Config::history`].
//! - The threshold is the smallest count that is hot by METRICS.md, so that all hot memory is
//!   reported.
//! - A reader with a budget ([`Config::cpu`]) reads as many entries as it can pay, oldest first.
//!
//! A device knows physical addresses only: [`Frames`](tierscope_core::Frames) translates the
//! target's. Memory of other devices has no samples: nothing is known about it.
//!
//! # Meaning of hits and samples
//!
//! As in [`crate::nemo`]: a window has as many samples as intervals of [`Config::sampling`], and c
//! requests in a window are n·(1 − e^(−c/n)) hits.

mod places;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tierscope_core::{
    HotProgram, HotUnit, Instrument, Need, PAGE_SIZE, Ports, Range, Reporting, RequestKind, Result,
    Setting, Snapshot, Step, Time,
};

use crate::areas::refresh;
use crate::block_heat::{BlockHeat, regions};
use crate::checks::{intervals, refuse};
use crate::registry::{Common, CostClass, Entry, Variant, set};
use places::Places;

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "chmu",
    about: "hot lists of a monitoring unit in a memory device (CXL 3.2)",
    needs: &[Need::HotLists],
    granularity: "4 KiB",
    variants: &[
        Variant {
            name: "epochs",
            about: "units of 2 MiB, counted for a window",
            cost: CostClass::HotMemory,
        },
        Variant {
            name: "always-on",
            about: "units of 2 MiB, an entry for each 256 requests",
            cost: CostClass::HotMemory,
        },
        Variant {
            name: "pages",
            about: "units of 4 KiB, counted for a window",
            cost: CostClass::HotMemory,
        },
    ],
    removed: &[],
    make,
};

/// Requests for which an always-on unit reports an entry.
const ALWAYS_ON: u32 = 256;

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config::default();
    match variant {
        "pages" => config.granularity = PAGE_SIZE,
        "always-on" => (config.always_on, config.threshold) = (true, ALWAYS_ON),
        _ => {}
    }
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    config.cpu = common.cpu;
    Ok(Box::new(Chmu::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Unit size in bytes: a power of two, at least a page.
    pub granularity: u64,
    /// Reports without epochs; then a list that is half full interrupts.
    pub always_on: bool,
    /// Count from which a unit is reported.
    pub threshold: u32,
    /// log2 of the downsampling factor.
    pub downsampling: u8,
    /// Length of the interval that a hit refers to.
    pub sampling: Duration,
    /// Time between snapshots, and the length of an epoch.
    pub window: Duration,
    /// Time for which a report counts where a later one may be missing.
    pub history: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Time after which physical addresses are read again even if no mapping changed: pages move.
    pub frames: Duration,
    /// Share of one CPU for reading; `None` for no limit.
    pub cpu: Option<f64>,
}

/// Units of 2 MiB; six requests in a window are hot, as for `nemo`; history as for `pebs`; lifetime
/// of physical addresses as for `nemo`.
impl Default for Config {
    fn default() -> Self {
        Self {
            granularity: 2 << 20,
            always_on: false,
            threshold: 6,
            downsampling: 0,
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            history: Duration::from_secs(1),
            update: Duration::from_secs(1),
            frames: Duration::from_secs(10),
            cpu: None,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        if !self.granularity.is_power_of_two() || self.granularity < PAGE_SIZE {
            let cause =
                format!("{} bytes are no power of two of a page and more", self.granularity);
            return refuse("granularity", cause, "try 2097152");
        }
        if self.history < self.window {
            return refuse("history", "it is shorter than a window", "try 1s");
        }
        if self.cpu.is_some_and(|share| share <= 0.0) {
            return refuse("cpu", "a share of nothing reads nothing", "try 0.005");
        }
        intervals(self.sampling, self.window, 1)
    }

    /// Sampling intervals per window.
    fn samples(&self) -> u32 {
        u32::try_from(self.window.as_nanos() / self.sampling.as_nanos()).unwrap_or(u32::MAX)
    }

    /// Windows for which a report counts.
    fn windows(&self) -> u32 {
        u32::try_from(self.history.as_nanos() / self.window.as_nanos()).unwrap_or(u32::MAX)
    }

    fn program(&self) -> HotProgram {
        HotProgram {
            unit_shift: self.granularity.trailing_zeros() as u8,
            reporting: match self.always_on {
                true => Reporting::AlwaysOn,
                false => Reporting::Epoch(self.window),
            },
            threshold: self.threshold,
            downsampling: self.downsampling,
            requests: RequestKind::All,
            interrupts: self.always_on,
        }
    }
}

/// Reports on a unit of memory.
#[derive(Clone, Debug, Default)]
struct Reports {
    /// (window, requests) pairs within the history, oldest first.
    counts: VecDeque<(u32, u64)>,
    /// Window in which the unit was first reported without interruption.
    turned: u32,
}

/// CPU time that may be spent on entries.
#[derive(Clone, Copy, Debug)]
struct Purse {
    /// Nanoseconds that may be spent now.
    left: f64,
    filled: Time,
    /// The machine's figure of CPU time when it was last compared.
    spent: Duration,
    /// Nanoseconds of an entry, as measured.
    entry: f64,
    /// Entries read since `spent` was compared.
    read: usize,
    /// Nanoseconds of CPU time a second that translating takes.
    translating: f64,
}

/// Assumed cost of an entry before any was read, in nanoseconds.
const ENTRY_NS: f64 = 1000.0;
/// Largest part of the budget that translating may take.
const TRANSLATING: f64 = 0.5;

/// The CHMU instrument.
#[derive(Debug)]
pub struct Chmu {
    config: Config,
    areas: Vec<Range>,
    places: Places,
    /// By physical address of the unit.
    units: BTreeMap<u64, Reports>,
    /// Entries read in this window.
    listed: Vec<HotUnit>,
    /// Overflows up to this window, and whether entries were left unread in it.
    overflows: u64,
    incomplete: bool,
    purse: Purse,
    windows: u32,
    /// Start of the window, and when it is to end; `None` before the first.
    window: Option<(Time, Time)>,
    next_update: Time,
    next_frames: Time,
}

impl Chmu {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        let purse = Purse {
            left: 0.0,
            filled: Time(0),
            spent: Duration::ZERO,
            entry: ENTRY_NS,
            read: 0,
            translating: 0.0,
        };
        Ok(Self {
            config,
            areas: Vec::new(),
            places: Places::default(),
            units: BTreeMap::new(),
            listed: Vec::new(),
            overflows: 0,
            incomplete: false,
            purse,
            windows: 0,
            window: None,
            next_update: Time(0),
            next_frames: Time(0),
        })
    }

    fn begin(&mut self, ports: &mut dyn Ports) -> Result<()> {
        self.follow(ports)?;
        let lists = ports.hot_lists()?;
        lists.enable(&self.config.program())?;
        self.overflows = lists.overflows();
        let now = ports.now();
        (self.purse.filled, self.purse.spent) = (now, ports.own_time());
        self.window = Some((now, now + self.config.window));
        Ok(())
    }

    /// Reads mappings and physical addresses again if it is time to.
    fn follow(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let sees = ports.hot_lists()?.sees();
        if let Some(areas) = refresh(ports, &mut self.next_update, self.config.update, usize::MAX)?
            && areas != self.areas
        {
            self.areas = areas;
            self.next_frames = ports.now();
        }
        if ports.now() < self.next_frames {
            return Ok(());
        }
        let before = ports.own_time();
        self.places = Places::read(ports, &self.areas, &sees)?;
        let cost = ports.own_time().saturating_sub(before);
        self.purse.spent += cost;
        let least = self.config.cpu.map_or(Duration::ZERO, |share| {
            Duration::from_secs_f64(cost.as_secs_f64() / (share * TRANSLATING))
        });
        let pause = self.config.frames.max(least);
        self.purse.translating = cost.as_secs_f64() / pause.as_secs_f64() * 1e9;
        self.next_frames = ports.now() + pause;
        Ok(())
    }

    /// Entries that may be read now.
    fn affordable(&mut self, ports: &mut dyn Ports) -> usize {
        let Some(share) = self.config.cpu else { return usize::MAX };
        let (now, spent) = (ports.now(), ports.own_time());
        let purse = &mut self.purse;
        let used = spent.saturating_sub(purse.spent).as_nanos() as f64;
        if purse.read > 0 && used > 0.0 {
            purse.entry = used / purse.read as f64;
        }
        let seconds = now.since(purse.filled).as_secs_f64();
        let income = (share * 1e9 - purse.translating).max(0.0);
        // What was not spent is saved for a window, not for a burst after a quiet hour.
        let most = income * 2.0 * self.config.window.as_secs_f64();
        purse.left = (purse.left + income * seconds - used).min(most);
        (purse.filled, purse.spent, purse.read) = (now, spent, 0);
        (purse.left / purse.entry).max(0.0) as usize
    }

    /// Reads entries of the hot lists into this window.
    fn drain(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let most = self.affordable(ports);
        let before = self.listed.len();
        ports.hot_lists()?.drain(most, &mut self.listed)?;
        let read = self.listed.len() - before;
        self.purse.read += read;
        self.incomplete |= read == most;
        Ok(())
    }

    /// Adds this window's entries to the units, and forgets what is over.
    fn judge(&mut self, overflowed: bool) {
        let window = self.windows;
        for unit in self.listed.drain(..) {
            let reports = self.units.entry(unit.address).or_default();
            if reports.counts.is_empty() {
                reports.turned = window;
            }
            match reports.counts.back_mut() {
                Some((last, count)) if *last == window => *count += unit.count,
                _ => reports.counts.push_back((window, unit.count)),
            }
        }
        let kept = match overflowed || self.incomplete || self.config.always_on {
            true => self.config.windows(),
            false => 1,
        };
        let first = (window + 1).saturating_sub(kept);
        self.units.retain(|_, reports| {
            while reports.counts.front().is_some_and(|(window, _)| *window < first) {
                reports.counts.pop_front();
            }
            !reports.counts.is_empty()
        });
        self.incomplete = false;
    }

    /// Hits of a unit in a window, by its reports.
    fn hits(&self, reports: &Reports) -> f32 {
        let sum = reports.counts.iter().map(|(_, count)| *count).sum::<u64>() as f64;
        let windows = match self.config.always_on {
            true => self.config.windows().min(self.windows) as usize,
            false => reports.counts.len(),
        };
        let requests = sum * f64::from(1u32 << self.config.downsampling) / windows.max(1) as f64;
        let samples = f64::from(self.config.samples());
        (samples * -(-requests / samples).exp_m1()) as f32
    }

    fn close(&mut self, ports: &mut dyn Ports, start: Time) -> Result<Snapshot> {
        self.drain(ports)?;
        let overflows = ports.hot_lists()?.overflows();
        let end = ports.now();
        self.windows += 1;
        self.judge(overflows > self.overflows);
        self.overflows = overflows;
        let samples = self.config.samples();
        let mut hot: Vec<BlockHeat> = Vec::new();
        for (address, reports) in &self.units {
            let (hits, age) = (self.hits(reports), self.windows - reports.turned);
            let ranges = self.places.of(*address, self.config.granularity);
            hot.extend(ranges.map(|range| BlockHeat { range, hits, samples, age }));
        }
        hot.sort_by_key(|spot| spot.range);
        let cold = |range| BlockHeat { range, hits: 0.0, samples, age: self.windows };
        let spots = self.places.fill(hot, cold);
        let unseen = |range| BlockHeat { range, hits: 0.0, samples: 0, age: 0 };
        Ok(Snapshot { start, end, samples, regions: regions(&self.areas, spots, unseen) })
    }
}

impl Instrument for Chmu {
    fn name(&self) -> &'static str {
        "chmu"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("granularity", config.granularity.to_string()),
            setting("always-on", config.always_on.to_string()),
            setting("threshold", config.threshold.to_string()),
            setting("downsampling", config.downsampling.to_string()),
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("history", format!("{:?}", config.history)),
            setting("update", format!("{:?}", config.update)),
            setting("frames", format!("{:?}", config.frames)),
            setting("cpu", config.cpu.map_or("none".into(), |share| share.to_string())),
        ]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let mut snapshot = None;
        match self.window {
            None => self.begin(ports)?,
            Some((_, due)) if ports.now() < due => self.drain(ports)?,
            Some((start, due)) => {
                let closed = self.close(ports, start)?;
                // The next window ends on the grid of the first, as epochs do.
                let (mut next, end) = (due, closed.end);
                while next <= end {
                    next += self.config.window;
                }
                snapshot = Some(closed);
                self.follow(ports)?;
                self.window = Some((end, next));
            }
        }
        let (_, due) = self.window.expect("begun above");
        Ok(Step { wake: due, snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chmu(config: Config) -> Chmu {
        Chmu::new(config).expect("it makes sense")
    }

    fn window(chmu: &mut Chmu, listed: &[(u64, u64)], overflowed: bool) -> Vec<(u64, f32)> {
        chmu.windows += 1;
        chmu.listed = listed
            .iter()
            .map(|(address, count)| HotUnit { address: *address, count: *count })
            .collect();
        chmu.judge(overflowed);
        chmu.units.iter().map(|(address, reports)| (*address, chmu.hits(reports))).collect()
    }

    // 40 samples: 6 requests are 5.57 hits, 1000 are all 40.
    #[test]
    fn a_count_is_as_many_hits_as_intervals_with_a_request() {
        let mut chmu = chmu(Config::default());
        let found = window(&mut chmu, &[(0, 6), (64, 1000)], false);
        assert!((found[0].1 - 5.57).abs() < 0.01 && (found[1].1 - 40.0).abs() < 1e-3, "{found:?}");
    }

    // Without an overflow a unit that is not listed is below the threshold; with one, its last
    // verdict holds for a second: five windows.
    #[test]
    fn what_an_overflow_may_have_hidden_keeps_its_verdict_for_a_while() {
        let mut chmu = chmu(Config::default());
        window(&mut chmu, &[(0, 6)], false);
        assert_eq!(window(&mut chmu, &[], false), []);
        window(&mut chmu, &[(0, 6)], true);
        let kept = (0..5).map(|_| window(&mut chmu, &[(64, 6)], true).len());
        assert_eq!(kept.collect::<Vec<_>>(), [2, 2, 2, 2, 1]);
    }

    // Two entries of 256 requests in five windows are 102.4 a window.
    #[test]
    fn always_on_units_have_the_entries_of_a_second() {
        let mut chmu = chmu(Config { always_on: true, threshold: 256, ..Config::default() });
        for listed in [&[(0, 256)][..], &[], &[(0, 256)], &[], &[]] {
            window(&mut chmu, listed, false);
        }
        let hits = chmu.hits(&chmu.units[&0]);
        assert!((f64::from(hits) - 40.0 * (1.0 - (-102.4f64 / 40.0).exp())).abs() < 1e-4, "{hits}");
        assert_eq!(window(&mut chmu, &[], false).len(), 1);
        window(&mut chmu, &[], false);
        assert_eq!(window(&mut chmu, &[], false).len(), 0);
    }

    #[test]
    fn absurd_settings_are_refused() {
        let bad = |config: Config| config.check().expect_err("it makes no sense").to_string();
        assert!(bad(Config { granularity: 5000, ..Config::default() }).contains("granularity"));
        assert!(bad(Config { cpu: Some(0.0), ..Config::default() }).contains("cpu"));
        let short = Config { history: Duration::from_millis(1), ..Config::default() };
        assert!(bad(short).contains("history"));
        assert!(bad(Config { sampling: Duration::ZERO, ..Config::default() }).contains("sampling"));
    }
}
