//! Counters in the memory controller: every memory request is counted by the block of its address.
//!
//! Source: Li et al., "Finding NEMO: Nimble and Expressive Memory Observability", listing 2: a
//! counter for each block of 2 MiB, reset when it is read. A pipeline's translation table has 8,192
//! entries (section 4); if the target has more blocks than all pipelines have entries, as many as
//! fit are watched for a window, then the next ones (section 6.1): a sweep takes M·τ / (P·S·G).
//!
//! A controller knows physical addresses only: [`Frames`](tierscope_core::Frames) translates the
//! target's, again after each [`Config::frames`] and whenever mappings changed. Requests to a
//! physical block that several of the target's blocks share are divided among them in proportion to
//! their bytes in it. Requests that the controllers do not serve are not observed.
//!
//! # Meaning of hits and samples
//!
//! A window has as many samples as it has intervals of [`Config::sampling`]. A block has as many
//! hits as the expected number of intervals with a request if its c requests are spread at random
//! over n intervals: n·(1 − e^(−c/n)). So a block is hot here where it would be hot by ACCESSED
//! bits at its size (at 5 of 40: from six requests in a window on), except that requests served by
//! a cache reach no controller, and prefetches do. A verdict holds until the block is watched
//! again; a block that was never watched has no samples.

mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::{
    Counters, ErrorKind, Instrument, Need, PAGE_SIZE, Ports, Range, Result, RuleId, Setting,
    Snapshot, SpaceId, Step, Time,
};

use crate::areas::refresh;
use crate::block_heat::{BlockHeat, is_mapped, regions};
use crate::checks::{intervals, refuse};
use crate::paid::Paid;
use crate::registry::{Common, CostClass, Entry, Variant, set};
use watch::{STATES, SweepPosition, Watch, WatchSet};

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "nemo",
    about: "counters in the memory controller: every request, by block (NEMO)",
    needs: &[Need::Counters],
    granularity: "4 KiB",
    variants: &[
        Variant {
            name: "blocks",
            about: "2 MiB: eight pipelines watch 128 GiB at a time, and sweep over more",
            cost: CostClass::AllMemory,
        },
        Variant {
            name: "pages",
            about: "4 KiB: eight pipelines watch 256 MiB at a time, and sweep over more",
            cost: CostClass::AllMemory,
        },
    ],
    removed: &[],
    make,
};

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config::default();
    if variant == "pages" {
        config.granularity = PAGE_SIZE;
    }
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    config.cpu = common.cpu;
    Ok(Box::new(Nemo::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Block size in bytes: a power of two, at least a page.
    pub granularity: u64,
    /// Maximum number of pipelines to use; fewer if the controllers have fewer.
    pub pipelines: usize,
    /// Length of the interval that a hit refers to.
    pub sampling: Duration,
    /// Time between snapshots; also the time for which a block is watched.
    pub window: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Time after which physical addresses are read again even if no mapping changed: pages move.
    pub frames: Duration,
    /// Share of one CPU: the watched blocks change when the last change is paid; `None` for no
    /// limit.
    pub cpu: Option<f64>,
}

/// Blocks of 2 MiB; the eight pipelines of the paper's largest deployment. The lifetime of physical
/// addresses is an assumption: reading them costs as much as a scan of all entries, 8 ns each.
impl Default for Config {
    fn default() -> Self {
        Self {
            granularity: 2 << 20,
            pipelines: 8,
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
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
    /// [`ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        if !self.granularity.is_power_of_two() || self.granularity < PAGE_SIZE {
            let cause =
                format!("{} bytes are no power of two of a page and more", self.granularity);
            return refuse("granularity", cause, "try 2097152");
        }
        if self.cpu.is_some_and(|share| share <= 0.0) {
            return refuse("cpu", "a share of nothing counts nothing", "try 0.005");
        }
        if self.pipelines == 0 {
            return refuse("pipelines", "nothing counts without one", "try 8");
        }
        intervals(self.sampling, self.window, 1)
    }

    /// Sampling intervals per window.
    fn samples(&self) -> u32 {
        u32::try_from(self.window.as_nanos() / self.sampling.as_nanos()).unwrap_or(u32::MAX)
    }

    fn shift(&self) -> u8 {
        self.granularity.trailing_zeros() as u8
    }
}

/// Last known heat of a block of the target's addresses.
#[derive(Clone, Copy, Debug)]
struct KnownHeat {
    hits: f32,
    /// Window in which requests to the block last started or ceased.
    turned: u32,
}

/// The NEMO instrument.
#[derive(Debug)]
pub struct Nemo {
    config: Config,
    /// Number of pipelines that are available, as far as known.
    room: usize,
    areas: Vec<Range>,
    blocks: BTreeMap<(SpaceId, u64), KnownHeat>,
    watches: Vec<Watch>,
    wanted: WatchSet,
    sweep: SweepPosition,
    window_start: Option<Time>,
    windows: u32,
    next_update: Time,
    /// When physical addresses are read again.
    next_frames: Time,
    paid: Paid,
    states: Vec<u64>,
}

impl Nemo {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            room: config.pipelines,
            areas: Vec::new(),
            blocks: BTreeMap::new(),
            watches: Vec::new(),
            wanted: WatchSet::default(),
            sweep: SweepPosition::default(),
            window_start: None,
            windows: 0,
            next_update: Time(0),
            next_frames: Time(0),
            paid: Paid::default(),
            states: Vec::new(),
            config,
        })
    }

    fn begin_window(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let now = ports.now();
        let update = self.config.update;
        if let Some(areas) = refresh(ports, &mut self.next_update, update, usize::MAX)?
            && areas != self.areas
        {
            let bytes = self.config.granularity;
            self.blocks.retain(|(space, start), _| {
                is_mapped(&areas, &Range::new(*space, *start, start + bytes))
            });
            self.areas = areas;
            self.next_frames = now;
        }
        // Keep the watched blocks, unless pages may have moved or other blocks are waiting.
        if (now >= self.next_frames || !self.wanted.is_all)
            && self.paid.is_paid(ports, self.config.cpu)
        {
            self.watch_next(ports)?;
            self.next_frames = now + self.config.frames;
        }
        self.window_start = Some(ports.now());
        Ok(())
    }

    /// Watches the next blocks from the sweep position on, as many as the pipelines hold.
    fn watch_next(&mut self, ports: &mut dyn Ports) -> Result<()> {
        loop {
            let wanted = self.sweep.wanted(ports, &self.areas, &self.config, self.room)?;
            let counters = ports.counters()?;
            match watch::assign(counters, &mut self.watches, &wanted, self.config.shift()) {
                Ok(()) => {
                    self.sweep.go_on(&wanted);
                    self.wanted = wanted;
                    return Ok(());
                }
                // Fewer pipelines than requested: others are in use.
                Err(error)
                    if error.kind() == ErrorKind::Missing
                        && (1..self.room).contains(&self.watches.len()) =>
                {
                    self.room = self.watches.len();
                    forget(counters, &mut self.watches)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the request counts of the window, by block of the target.
    fn read(&mut self, ports: &mut dyn Ports) -> Result<BTreeMap<(SpaceId, u64), f64>> {
        let mut requests = BTreeMap::new();
        let counters = ports.counters()?;
        for watch in &self.watches {
            self.states.clear();
            self.states.resize(watch.reach(), 0);
            counters.read(watch.rule, &mut self.states)?;
            for (state, count) in self.states.iter().enumerate().filter(|(_, count)| **count > 0) {
                let key = watch.first + state as u64;
                for (block, share) in self.wanted.shares(key) {
                    *requests.entry(block).or_default() += *count as f64 * share;
                }
            }
        }
        Ok(requests)
    }

    fn judge(&mut self, requests: &BTreeMap<(SpaceId, u64), f64>) {
        let (samples, window) = (f64::from(self.config.samples()), self.windows);
        for block in &self.wanted.blocks {
            let count = requests.get(block).copied().unwrap_or(0.0);
            let hits = (samples * -(-count / samples).exp_m1()) as f32;
            let verdict =
                self.blocks.entry(*block).or_insert(KnownHeat { hits: -1.0, turned: window });
            if (hits > 0.0) != (verdict.hits > 0.0) {
                verdict.turned = window;
            }
            verdict.hits = hits;
        }
    }

    fn close_window(&mut self, ports: &mut dyn Ports, start: Time, end: Time) -> Result<Snapshot> {
        let requests = self.read(ports)?;
        self.windows += 1;
        self.judge(&requests);
        let (samples, window, bytes) =
            (self.config.samples(), self.windows, self.config.granularity);
        let spot = |((space, start), verdict): (&(SpaceId, u64), &KnownHeat)| BlockHeat {
            range: Range::new(*space, *start, start + bytes),
            hits: verdict.hits,
            samples,
            age: window - verdict.turned,
        };
        let rest = |range| BlockHeat { range, hits: 0.0, samples: 0, age: 0 };
        let regions = regions(&self.areas, self.blocks.iter().map(spot), rest);
        Ok(Snapshot { start, end, samples, regions })
    }
}

/// Unregisters all rules, which frees their pipelines.
fn forget(counters: &mut dyn Counters, watches: &mut Vec<Watch>) -> Result<()> {
    watches.drain(..).map(|watch| watch.rule).try_for_each(|rule: RuleId| counters.unregister(rule))
}

impl Instrument for Nemo {
    fn name(&self) -> &'static str {
        "nemo"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("granularity", config.granularity.to_string()),
            setting("pipelines", config.pipelines.to_string()),
            setting("states", STATES.to_string()),
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("frames", format!("{:?}", config.frames)),
            setting("cpu", config.cpu.map_or("none".into(), |share| share.to_string())),
        ]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        match self.window_start {
            None => self.begin_window(ports)?,
            Some(start) if now < start + self.config.window => {}
            Some(start) => {
                snapshot = Some(self.close_window(ports, start, now)?);
                self.begin_window(ports)?;
            }
        }
        let start = self.window_start.expect("begun above");
        Ok(Step { wake: start + self.config.window, snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_settings_are_refused() {
        let bad = |config: Config| config.check().expect_err("it makes no sense").to_string();
        assert!(bad(Config { granularity: 5000, ..Config::default() }).contains("granularity"));
        assert!(bad(Config { granularity: 2048, ..Config::default() }).contains("granularity"));
        assert!(bad(Config { pipelines: 0, ..Config::default() }).contains("pipelines"));
        assert!(bad(Config { sampling: Duration::ZERO, ..Config::default() }).contains("sampling"));
        assert!(bad(Config { window: Duration::ZERO, ..Config::default() }).contains("window"));
    }

    // 40 samples: six requests are 5.57 hits, five 4.70; a thousand are all 40.
    #[test]
    fn six_requests_in_a_window_are_hot() {
        let mut nemo = Nemo::new(Config::default()).unwrap();
        nemo.wanted.blocks = [(SpaceId(0), 0)].into();
        let mut hits = |count: f64| {
            nemo.judge(&BTreeMap::from([((SpaceId(0), 0), count)]));
            nemo.blocks[&(SpaceId(0), 0)].hits
        };
        let (five, six, all) = (hits(5.0), hits(6.0), hits(1000.0));
        assert!((five - 4.70).abs() < 0.01 && (six - 5.57).abs() < 0.01, "{five} {six}");
        assert!((all - 40.0).abs() < 1e-3, "{all}");
        assert_eq!(hits(0.0), 0.0);
    }
}
