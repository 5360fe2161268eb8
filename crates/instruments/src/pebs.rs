//! Sampled accesses: every n-th load and store reports its address (Intel PEBS, AMD IBS).
//!
//! Source: the Telescope article, "Implementation": "From PEBS, we collected samples of retired
//! loads and stores every 200ms and converted them into a list of 2MB regions (2MB aligned), with
//! access counts proportional to the number of samples". At 5 kHz (moderate) and 10 kHz
//! (aggressive).
//!
//! The machine sets the sampling frequency of the hardware: [`Config::frequency`] is the value that
//! it has set, or is to set. The instrument drains the samples and counts them.
//!
//! # Meaning of hits and samples
//!
//! A block's hits are the samples that fell into it within the last [`Config::history`]; its
//! samples are the number of which [`Config::hot`] make the block hot (5 of 40), and hits are
//! capped at that number. The default history of one second is the time over which the authors
//! counted for precision and recall (their posting to the kernel list); for data tiering they took
//! 120 s: variant *patient*. Lost samples cannot be attributed to blocks.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{
    Instrument, Need, Ports, Range, Reads, Result, Sample, Setting, Snapshot, SpaceId, Step, Time,
    metrics,
};

use crate::areas::refresh;
use crate::block_heat::{BlockHeat, regions};
use crate::checks::refuse;
use crate::registry::{Common, CostClass, Entry, Variant, set};

/// Block size in bytes.
const BLOCK: u64 = 2 << 20;

/// The instrument in the list.
pub const ENTRY: Entry = Entry {
    name: "pebs",
    about: "sampled loads and stores in blocks of 2 MiB",
    needs: &[Need::Samples],
    granularity: "2 MiB",
    variants: &[
        Variant {
            name: "moderate",
            about: "5 kHz a core; five samples in a second are hot",
            cost: CostClass::Bounded,
        },
        Variant { name: "aggressive", about: "10 kHz a core", cost: CostClass::Bounded },
        Variant {
            name: "patient",
            about: "10 kHz a core; five samples in 120 s are hot, the article's rule for tiering",
            cost: CostClass::Bounded,
        },
    ],
    removed: &[],
    make,
};

/// Samples per second and core that a variant is made for; `None` is the first one.
#[must_use]
pub fn frequency(variant: Option<&str>) -> u64 {
    match variant {
        None | Some("moderate") => 5000,
        Some(_) => 10_000,
    }
}

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config { frequency: frequency(Some(variant)), ..Config::default() };
    if variant == "patient" {
        config.history = Duration::from_secs(120);
    }
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(Pebs::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Requested sampling frequency, in samples per second and core, for loads and for stores each.
    pub frequency: u64,
    /// Time from one snapshot to the next.
    pub window: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Time for which a sample counts.
    pub history: Duration,
    /// Samples within [`Config::history`] from which a block is hot.
    pub hot: u32,
}

/// 5 kHz, 200 ms; five samples within a second.
impl Default for Config {
    fn default() -> Self {
        Self {
            frequency: 5000,
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            history: Duration::from_secs(1),
            hot: 5,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        if self.window.is_zero() {
            return refuse("window is zero", "it must be above zero", "try 200ms");
        }
        if self.history < self.window {
            return refuse("history", "it is shorter than a window", "try 1s");
        }
        if self.frequency == 0 || self.hot == 0 {
            return refuse("frequency and hot", "one of them is 0", "try 5000 and 5");
        }
        Ok(())
    }

    /// Number of windows for which a sample counts.
    fn windows(&self) -> u32 {
        u32::try_from(self.history.as_nanos() / self.window.as_nanos()).unwrap_or(u32::MAX)
    }

    /// Value of [`Region::samples`](tierscope_core::Region::samples) at which [`Config::hot`] hits
    /// are the hot frequency.
    fn scale(&self) -> u32 {
        (f64::from(self.hot) / metrics::HOT_FREQUENCY).round() as u32
    }
}

/// The samples of a block.
#[derive(Clone, Debug, Default)]
struct Block {
    /// (window, count) pairs within the history, oldest first.
    counts: VecDeque<(u32, u32)>,
    /// Window of the oldest count, kept here so that blocks with nothing to drop need no access to
    /// `counts`.
    oldest: u32,
    total: u32,
    /// Window in which the block last became hot or cold.
    turned: u32,
    hot: bool,
}

impl Block {
    fn add(&mut self, window: u32, samples: u32) {
        if self.counts.is_empty() {
            self.oldest = window;
        }
        self.total += samples;
        match self.counts.back_mut() {
            Some((last, count)) if *last == window => *count += samples,
            _ => self.counts.push_back((window, samples)),
        }
    }

    /// Drops the counts of windows before `first`.
    fn forget(&mut self, first: u32) {
        if self.oldest >= first {
            return;
        }
        while let Some((window, count)) = self.counts.front().copied()
            && window < first
        {
            self.total -= count;
            self.counts.pop_front();
        }
        self.oldest = self.counts.front().map_or(u32::MAX, |(window, _)| *window);
    }

    fn turn(&mut self, window: u32, hot: u32) {
        let is_hot = self.total >= hot;
        if is_hot != self.hot {
            self.hot = is_hot;
            self.turned = window;
        }
    }
}

/// Space and first byte of a block.
type Key = (SpaceId, u64);

/// The PEBS instrument.
#[derive(Debug)]
pub struct Pebs {
    config: Config,
    areas: Vec<Range>,
    /// Sorted by address. At terabytes there are a million of them, and every window visits all.
    blocks: Vec<(Key, Block)>,
    /// Start of the window; `None` before the first.
    window_start: Option<Time>,
    windows: u32,
    next_update: Time,
    samples: Vec<Sample>,
}

impl Pebs {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            config,
            areas: Vec::new(),
            blocks: Vec::new(),
            window_start: None,
            windows: 0,
            next_update: Time(0),
            samples: Vec::new(),
        })
    }

    fn begin_window(&mut self, ports: &mut dyn Ports) -> Result<()> {
        if let Some(areas) = refresh(ports, &mut self.next_update, self.config.update, usize::MAX)?
        {
            self.areas = areas;
        }
        self.window_start = Some(ports.now());
        Ok(())
    }

    /// Drains the samples that arrived since the last call.
    fn read(&mut self, ports: &mut dyn Ports) -> Result<()> {
        self.samples.clear();
        ports.samples()?.drain(&mut self.samples);
        Ok(())
    }

    fn count(&mut self) {
        // Sorted first: most of the millions of samples fall into few blocks.
        let key = |sample: &Sample| (sample.at.space, sample.at.at / BLOCK * BLOCK);
        let mut keys: Vec<Key> = self.samples.iter().map(key).collect();
        keys.sort_unstable();
        let mut fresh: Vec<(Key, Block)> = Vec::new();
        let mut at = 0;
        for block in keys.chunk_by(|a, b| a == b) {
            let samples = u32::try_from(block.len()).unwrap_or(u32::MAX);
            at += self.blocks[at..].partition_point(|(key, _)| *key < block[0]);
            match self.blocks.get_mut(at) {
                Some((key, known)) if *key == block[0] => known.add(self.windows, samples),
                _ => {
                    let mut unknown = Block::default();
                    unknown.add(self.windows, samples);
                    fresh.push((block[0], unknown));
                }
            }
        }
        if !fresh.is_empty() {
            self.blocks.append(&mut fresh);
            // Two sorted runs: the sort merges them.
            self.blocks.sort_by_key(|(key, _)| *key);
        }
    }

    fn close_window(&mut self, start: Time, end: Time) -> Snapshot {
        self.count();
        let (window, hot) = (self.windows, self.config.hot);
        let first = (window + 1).saturating_sub(self.config.windows());
        self.blocks.retain_mut(|(_, block)| {
            block.forget(first);
            block.turn(window, hot);
            block.total > 0
        });
        self.windows += 1;
        let scale = self.config.scale();
        let spot = |((space, start), block): &(Key, Block)| BlockHeat {
            range: Range::new(*space, *start, start + BLOCK),
            hits: block.total.min(scale) as f32,
            samples: scale,
            age: window - block.turned,
        };
        let rest = |range| BlockHeat { range, hits: 0.0, samples: scale, age: window };
        let regions = regions(&self.areas, self.blocks.iter().map(spot), rest);
        Snapshot { start, end, samples: scale, regions }
    }
}

impl Instrument for Pebs {
    fn name(&self) -> &'static str {
        "pebs"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("frequency", config.frequency.to_string()),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("history", format!("{:?}", config.history)),
            setting("hot", config.hot.to_string()),
        ]
    }

    fn reads(&self) -> Reads {
        Reads { samples: true, ..Reads::default() }
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        match self.window_start {
            // Samples from before the first step do not belong to this window.
            None => {
                self.read(ports)?;
                self.begin_window(ports)?;
            }
            Some(start) if now < start + self.config.window => {}
            Some(start) => {
                self.read(ports)?;
                snapshot = Some(self.close_window(start, now));
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
    use tierscope_core::ErrorKind;

    // One second of 200 ms windows: samples count for five of them.
    #[test]
    fn samples_expire() {
        let config = Config::default();
        assert_eq!((config.windows(), config.scale()), (5, 40));
        let mut block = Block::default();
        for (window, samples) in [(0, 1), (0, 1), (3, 1), (4, 1)] {
            block.add(window, samples);
        }
        block.forget(0);
        assert_eq!(block.total, 4);
        block.forget(1);
        assert_eq!(block.total, 2);
        block.forget(5);
        assert_eq!((block.total, block.counts.len()), (0, 0));
    }

    #[test]
    fn absurd_settings_are_refused() {
        let refused = |config: Config| config.check().unwrap_err().kind() == ErrorKind::Usage;
        assert!(refused(Config { window: Duration::ZERO, ..Default::default() }));
        assert!(refused(Config { history: Duration::from_millis(1), ..Default::default() }));
        assert!(refused(Config { frequency: 0, ..Default::default() }));
        assert!(refused(Config { hot: 0, ..Default::default() }));
    }
}
