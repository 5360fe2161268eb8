//! Hint faults: arms pages so that their next access faults, a part of memory at a time.
//!
//! Source: Linux kernel/sched/fair.c, `task_numa_work` and `numa_hint_fault_latency`, as used by
//! memory tiering: every second the next 256 MiB of an address space are armed
//! (`sysctl_numa_balancing_scan_size`, `_scan_period_min`), and a page that faults within a second
//! of being armed (`sysctl_numa_balancing_hot_threshold`) is hot. The hand sweeps memory
//! cyclically: 5 TiB take more than five hours.
//!
//! # Meaning of hits and samples
//!
//! The unit is a block of 2 MiB. Each armed page of a block is a sample, each page that faulted in
//! time a hit. A block is judged when the latency limit of its pages is over; the verdict holds
//! until the next one. Blocks that were never armed have no samples.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::{
    Addr, HintFault, Instrument, Need, PAGE_SIZE, Ports, Range, Reads, Result, Setting, Snapshot,
    SpaceId, Step, Time,
};

use crate::areas::refresh;
use crate::block_heat::{BlockHeat, is_mapped, regions};
use crate::checks::refuse;
use crate::paid::Paid;
use crate::registry::{Common, CostClass, Entry, Variant, set};

/// Block size in bytes.
const BLOCK: u64 = 2 << 20;

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "hint-fault",
    about: "pages are made to fault, 256 MiB a second (NUMA balancing, memory tiering)",
    needs: &[Need::HintFaults],
    granularity: "2 MiB",
    variants: &[Variant {
        name: "tiering",
        about: "a page that faults within a second of being armed is hot",
        cost: CostClass::AllMemory,
    }],
    removed: &[],
    make,
};

fn make(_: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config::default();
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    config.cpu = common.cpu;
    Ok(Box::new(HintFaulting::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes armed per second.
    pub scan: u64,
    /// Maximum latency from arming to the fault at which a page is hot.
    pub latency: Duration,
    /// Time between snapshots; a window's share of `scan` is armed at its start.
    pub window: Duration,
    /// Time after which mappings are read again.
    pub update: Duration,
    /// Share of one CPU for arming and faults: nothing is armed until what was armed before is
    /// paid;
    /// `None` for no limit.
    pub cpu: Option<f64>,
}

/// 256 MiB per second, hot within a second, windows of 200 ms.
impl Default for Config {
    fn default() -> Self {
        Self {
            scan: 256 << 20,
            latency: Duration::from_secs(1),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
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
        if self.window.is_zero() || self.latency.is_zero() {
            return refuse("window and latency", "one of them is zero", "try 200ms and 1s");
        }
        if self.step() < BLOCK {
            return refuse("scan", "a window arms less than 2 MiB", "try 268435456 bytes a second");
        }
        Ok(())
    }

    /// Bytes armed per window.
    fn step(&self) -> u64 {
        (self.scan as f64 * self.window.as_secs_f64()) as u64
    }
}

/// A block that was armed at least once.
#[derive(Clone, Debug, Default)]
struct Block {
    /// Time of arming and number of armed pages; `None` if not armed.
    armed: Option<(Time, u32)>,
    /// Pages that faulted in time since then.
    faults: u32,
    /// The last verdict: faults and pages.
    verdict: Option<(u32, u32)>,
    /// Window in which the verdict last changed.
    turned: u32,
}

impl Block {
    /// Judges the block if its time is over.
    fn judge(&mut self, now: Time, latency: Duration, window: u32) {
        let Some((_, pages)) = self.armed.filter(|(since, _)| now >= *since + latency) else {
            return;
        };
        let before = self.verdict.map(|(faults, _)| faults > 0);
        if before != Some(self.faults > 0) {
            self.turned = window;
        }
        self.verdict = Some((self.faults.min(pages), pages));
        self.faults = 0;
        self.armed = None;
    }
}

/// The hint-fault instrument.
#[derive(Debug)]
pub struct HintFaulting {
    config: Config,
    areas: Vec<Range>,
    blocks: BTreeMap<(SpaceId, u64), Block>,
    /// Position of the hand.
    hand: Addr,
    window_start: Option<Time>,
    windows: u32,
    next_update: Time,
    faults: Vec<HintFault>,
    paid: Paid,
}

impl HintFaulting {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            config,
            areas: Vec::new(),
            blocks: BTreeMap::new(),
            hand: Addr::default(),
            window_start: None,
            windows: 0,
            next_update: Time(0),
            faults: Vec::new(),
            paid: Paid::default(),
        })
    }

    fn begin_window(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let now = ports.now();
        if let Some(areas) = refresh(ports, &mut self.next_update, self.config.update, usize::MAX)?
        {
            self.blocks.retain(|(space, start), _| {
                is_mapped(&areas, &Range::new(*space, *start, start + BLOCK))
            });
            self.areas = areas;
        }
        let paid = self.paid.is_paid(ports, self.config.cpu);
        let wanted = if paid { self.next_ranges(now) } else { Vec::new() };
        ports.hint_faults()?.arm(&wanted)?;
        self.window_start = Some(now);
        Ok(())
    }

    /// The ranges to arm next: the hand's advance for a window, without blocks that are still
    /// armed. At most one round over memory.
    fn next_ranges(&mut self, now: Time) -> Vec<Range> {
        let mapped: u64 = self.areas.iter().map(Range::bytes).sum();
        let mut left = self.config.step().min(mapped);
        let mut wanted = Vec::new();
        while left > 0 {
            let part = self.next_part();
            left = left.saturating_sub(part.bytes());
            let key = (part.space, part.start / BLOCK * BLOCK);
            let block = self.blocks.entry(key).or_default();
            // The parts of a block that spans several mappings are armed separately.
            let pages = (part.bytes() / PAGE_SIZE) as u32;
            match &mut block.armed {
                None => block.armed = Some((now, pages)),
                Some((since, armed)) if *since == now => *armed += pages,
                Some(_) => continue,
            }
            wanted.push(part);
        }
        wanted
    }

    /// The rest of the block at the hand; advances the hand.
    fn next_part(&mut self) -> Range {
        let hand = (self.hand.space, self.hand.at);
        let next = self.areas.partition_point(|area| (area.space, area.end) <= hand);
        let area = self.areas.get(next).copied().unwrap_or(self.areas[0]);
        let inside = area.contains(self.hand);
        let start = if inside { self.hand.at } else { area.start };
        let end = (start / BLOCK * BLOCK + BLOCK).min(area.end);
        self.hand = Addr { space: area.space, at: end };
        Range::new(area.space, start, end)
    }

    fn count(&mut self) {
        for fault in &self.faults {
            let key = (fault.at.space, fault.at.at / BLOCK * BLOCK);
            if fault.time - fault.armed < self.config.latency
                && let Some(block) = self.blocks.get_mut(&key)
                && block.armed.is_some_and(|(since, _)| since <= fault.armed)
            {
                block.faults += 1;
            }
        }
    }

    fn close_window(&mut self, start: Time, end: Time) -> Snapshot {
        self.count();
        self.windows += 1;
        let window = self.windows;
        for block in self.blocks.values_mut() {
            block.judge(end, self.config.latency, window);
        }
        let spot = |((space, start), block): (&(SpaceId, u64), &Block)| {
            let (faults, pages) = block.verdict?;
            let range = Range::new(*space, *start, start + BLOCK);
            Some(BlockHeat {
                range,
                hits: faults as f32,
                samples: pages,
                age: window - block.turned,
            })
        };
        let rest = |range| BlockHeat { range, hits: 0.0, samples: 0, age: 0 };
        let regions = regions(&self.areas, self.blocks.iter().filter_map(spot), rest);
        let samples = (BLOCK / PAGE_SIZE) as u32;
        Snapshot { start, end, samples, regions }
    }
}

impl Instrument for HintFaulting {
    fn name(&self) -> &'static str {
        "hint-fault"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        vec![
            setting("scan", config.scan.to_string()),
            setting("latency", format!("{:?}", config.latency)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("cpu", config.cpu.map_or("none".into(), |share| share.to_string())),
        ]
    }

    fn reads(&self) -> Reads {
        Reads { faults: true, ..Reads::default() }
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        match self.window_start {
            None => self.begin_window(ports)?,
            Some(start) if now < start + self.config.window => {}
            Some(start) => {
                self.faults.clear();
                ports.hint_faults()?.drain(&mut self.faults);
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

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    // 5 MiB from 1 MiB on: 1..2, 2..4, 4..6, and then from the start again.
    #[test]
    fn the_hand_wraps_around_block_by_block() {
        let mut instrument = HintFaulting::new(Config::default()).unwrap();
        instrument.areas = vec![r(1 << 20, 6 << 20)];
        let parts: Vec<_> = (0..4).map(|_| instrument.next_part()).collect();
        assert_eq!(
            parts.iter().map(|p| (p.start >> 20, p.end >> 20)).collect::<Vec<_>>(),
            [(1, 2), (2, 4), (4, 6), (1, 2)]
        );
    }

    // A window arms 51.2 MiB; all of 5 MiB are armed, and then wait for their faults.
    #[test]
    fn armed_blocks_are_not_armed_again() {
        let mut instrument = HintFaulting::new(Config::default()).unwrap();
        instrument.areas = vec![r(0, 5 << 20)];
        let bytes = |ranges: Vec<Range>| ranges.iter().map(Range::bytes).sum::<u64>();
        assert_eq!(bytes(instrument.next_ranges(Time(0))), 5 << 20);
        assert_eq!(bytes(instrument.next_ranges(Time(1))), 0);
    }

    #[test]
    fn a_block_is_judged_at_the_end_of_its_time() {
        let mut block = Block { armed: Some((Time(0), 512)), faults: 3, ..Default::default() };
        block.judge(Time(999_999_999), Duration::from_secs(1), 1);
        assert_eq!(block.verdict, None);
        block.judge(Time(1_000_000_000), Duration::from_secs(1), 2);
        assert_eq!((block.verdict, block.armed, block.turned), (Some((3, 512)), None, 2));
    }

    #[test]
    fn absurd_settings_are_refused() {
        assert!(Config { scan: 4096, ..Default::default() }.check().is_err());
        assert!(Config { window: Duration::ZERO, ..Default::default() }.check().is_err());
    }
}
