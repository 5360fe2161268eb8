//! Telescope: region sampling that zooms through the levels of the page table.
//!
//! Source: "Telescope: Telemetry for Gargantuan Memory Footprint Applications", USENIX ATC'24, as
//! summarised in the authors' article (sections "Profiling", "Region Management", "Bounded and
//! Flexible Variants"). In short:
//!
//! - Every sampling interval one random address of each region is probed, at the highest level
//!   whose entry at that address lies within the region (*bounded*), or overshoots it by less than
//!   a share of the entry set for that level (*flexible*). A young entry is a hit.
//! - A hit at one level weighs 512 times a hit at the level above. Weights serve merging and
//!   splitting only; snapshots report plain hits of samples.
//! - At the end of each window neighbours with like counts merge, and then regions split: where one
//!   entry of level n+1 covers more than half of the region, into entries of level n, else into
//!   entries of level n+1. Merging applies the same rule in reverse.
//!
//! Details that the article leaves open follow Linux mm/damon/core.c, on which Telescope was built:
//! counts are alike within a tenth of the highest count; merged counts are means weighted by size;
//! no region grows beyond the mapped bytes over the minimum number of regions; the threshold is
//! raised while there are too many regions. Five rules are our own, each marked below: which
//! regions split first when not all may, that regions without a hit do not split, that a region
//! whose pieces merged again is cut as DAMON cuts, that weights are compared at the coarser level
//! of the two, and that few samples are little evidence.

use std::time::Duration;

use tierscope_core::{
    Addr, CONFIRMED, Instrument, LeafKind, Level, Need, PAGE_SHIFT, PAGE_SIZE, Ports, Probe, Radix,
    Range, Region, Result, Rng, Setting, Snapshot, State, Step, Time, Unknown,
};

use crate::areas::fit;
use crate::checks::{intervals, refuse, region_limits};
use crate::damon::random_left;
use crate::hidden::Hidden;
use crate::registry::{self, Common, CostClass, Entry, GONE, set};

/// How far a probed entry may extend beyond its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// An entry must lie within the region.
    Bounded,
    /// An entry may overshoot by less than a set share of its size, level by level.
    Flexible,
}

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "telescope",
    about: "region sampling that zooms through the levels of the page table (ATC'24)",
    needs: &[Need::AccessBits],
    granularity: "regions",
    variants: &[
        registry::Variant {
            name: "bounded",
            about: "an entry never reaches beyond its region",
            cost: CostClass::Bounded,
        },
        registry::Variant {
            name: "flexible",
            about: "an entry may reach beyond its region by a quarter",
            cost: CostClass::Bounded,
        },
    ],
    removed: &[GONE],
    make,
};

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let variant = match variant {
        "flexible" => Variant::Flexible,
        _ => Variant::Bounded,
    };
    let mut config = Config { variant, ..Default::default() };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.min_regions, &common.min_regions);
    set(&mut config.max_regions, &common.max_regions);
    set(&mut config.seed, &common.seed);
    Ok(Box::new(Telescope::new(config)?))
}

/// Settings of the instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The Telescope variant: bounded or flexible.
    pub variant: Variant,
    /// Sampling interval: time between two probes of a region.
    pub sampling: Duration,
    /// Time over which hits are counted before regions merge and split.
    pub window: Duration,
    /// Time after which mappings are read again, at the end of a window.
    pub update: Duration,
    /// Minimum number of regions: no region grows beyond the mapped bytes divided by this.
    pub min_regions: usize,
    /// Maximum number of regions: splitting stops there.
    pub max_regions: usize,
    /// Flexible only: share of an entry that may lie outside of the region, by level (index 0 =
    /// level 1), each 0..1.
    pub overshoot: [f64; 5],
    /// Seed of the random addresses.
    pub seed: u64,
}

/// The article's 5 ms and 200 ms, DAMON's 10 to 1000 regions. The article has overshoot thresholds
/// per level and gives no values. Here a quarter of an entry may overshoot up to level 3, and
/// nothing above: an entry of 512 GiB that extends into a hot neighbour would make hundreds of GiB
/// look hot permanently, since both halves of a split do the same.
impl Default for Config {
    fn default() -> Self {
        Self {
            variant: Variant::Bounded,
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            update: Duration::from_secs(1),
            min_regions: 10,
            max_regions: 1000,
            overshoot: [0.25, 0.25, 0.25, 0.0, 0.0],
            seed: 1,
        }
    }
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        intervals(self.sampling, self.window, 2)?;
        region_limits(self.min_regions, self.max_regions, 1)?;
        if self.overshoot.iter().any(|share| !(0.0..1.0).contains(share)) {
            return refuse("overshoot", "a share lies outside of 0..1", "try 0.25");
        }
        Ok(())
    }

    /// The level at which to probe `addr` of `region`.
    fn level(&self, radix: &Radix, addr: Addr, region: &Range) -> Option<Level> {
        match self.variant {
            Variant::Bounded => radix.highest_within(addr, region),
            Variant::Flexible => radix
                .proven
                .highest_first()
                .find(|level| overshoot(*level, addr, region) <= self.allowed(*level)),
        }
    }

    /// The largest overshoot in bytes allowed at `level`: less than the threshold.
    fn allowed(&self, level: Level) -> u64 {
        let threshold = self.overshoot[usize::from(level.number()) - 1];
        let bytes = (threshold * level.entry_bytes() as f64).ceil() as u64;
        bytes.saturating_sub(1)
    }
}

/// Bytes of the entry of `level` at `addr` that lie outside of `region`.
fn overshoot(level: Level, addr: Addr, region: &Range) -> u64 {
    let entry = level.entry_of(addr);
    let inside = entry.intersect(region).map_or(0, |part| part.bytes());
    entry.bytes() - inside
}

/// Weight of a hit: 512 times that of a hit at the level above.
fn weight(level: Level) -> f64 {
    let above = i32::from(Level::PGD5.number() - level.number());
    (Level::FANOUT as f64).powi(above)
}

/// A sampling region.
#[derive(Clone, Debug)]
struct SampledRegion {
    range: Range,
    hits: f64,
    /// Weighted hits.
    count: f64,
    /// Coarsest level probed in this window.
    level: Option<Level>,
    /// Hits of the previous window.
    last: f64,
    age: u32,
    /// A single leaf covers the whole region: finer probes are impossible.
    leaf: bool,
    /// The machine refused a probe of this window.
    refused: bool,
    /// The region that was split into this one and others when the window began.
    whole: Option<Range>,
    /// It begins where a region was cut at random.
    cut: bool,
}

impl SampledRegion {
    fn new(range: Range) -> Self {
        Self {
            range,
            hits: 0.0,
            count: 0.0,
            level: None,
            last: 0.0,
            age: 0,
            leaf: false,
            refused: false,
            whole: None,
            cut: false,
        }
    }

    /// A part of the region, with its history.
    fn part(&self, range: Range) -> Self {
        Self { range, cut: self.cut && range.start == self.range.start, ..self.clone() }
    }

    /// Whether a region was split when the window began, and most of its pieces have merged into
    /// this one.
    fn is_whole_again(&self) -> bool {
        self.whole.is_some_and(|whole| {
            whole.covers(&self.range) && 2 * self.range.bytes() > whole.bytes()
        })
    }

    /// How to split the region, into at most `most` pieces; `None` if it stays as it is.
    ///
    /// Our rules: a region without a hit is known to be cold, and so is everything beneath the
    /// entries that were probed (the article's corollary). What the article's split did not tell
    /// apart is cut in two as in DAMON, at a place that is not an entry's: near to it, lower levels
    /// are probed. Without, two hot neighbours merge and are split into the same two forever.
    fn how_to_split(&self, levels: u8, most: u64, rng: &mut Rng) -> Option<Split> {
        let is_cold = self.level.is_some() && self.hits == 0.0;
        if self.leaf || is_cold {
            return None;
        }
        if self.is_whole_again() {
            let left = random_left(self.range.bytes(), rng);
            return (left > 0).then(|| Split::At(self.range.start + left));
        }
        let level = split_level(&self.range, levels)?;
        Some(Split::Entries(level, level.entries_in(&self.range).div_ceil(most)))
    }

    fn judge(&mut self, probe: &Probe) {
        self.refused |= probe.answer.state == State::Refused;
        let Some(level) = probe.answer.reached else { return };
        self.level = self.level.max(Some(level));
        let is_leaf = !matches!(probe.answer.kind, LeafKind::Table | LeafKind::None);
        self.leaf = is_leaf && level.entry_of(probe.at).covers(&self.range);
        if probe.is_young() {
            self.hits += 1.0;
            self.count += weight(level);
        }
    }

    /// Ends the window: updates the age.
    fn turn(&mut self, threshold: f64) {
        let alike = (self.hits - self.last).abs() <= threshold;
        self.age = if alike { self.age.saturating_add(1) } else { 0 };
        self.last = self.hits;
    }

    fn start_over(&mut self) {
        self.hits = 0.0;
        self.count = 0.0;
        self.level = None;
        self.refused = false;
    }

    /// Whether the counts differ by no more than `threshold` hits. Our rule: hits of the coarser
    /// level of the two, so that a difference seen only at the finer level is not lost.
    fn is_like(&self, next: &SampledRegion, threshold: f64) -> bool {
        let coarser = self.level.max(next.level).map_or(1.0, weight);
        (self.count - next.count).abs() <= threshold * coarser
    }

    fn merge(&mut self, next: &SampledRegion) {
        let (mine, theirs) = (self.range.bytes() as f64, next.range.bytes() as f64);
        let mean = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
        self.hits = mean(self.hits, next.hits);
        self.count = mean(self.count, next.count);
        self.last = mean(self.last, next.last);
        self.age = mean(f64::from(self.age), f64::from(next.age)) as u32;
        self.level = self.level.max(next.level);
        self.range.end = next.range.end;
        self.leaf = false;
        self.refused |= next.refused;
    }
}

/// How a region is split.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Split {
    /// Into pieces of this number of entries of a level.
    Entries(Level, u64),
    /// In two, at an address.
    At(u64),
}

impl Split {
    /// The pieces of a region, from the left.
    fn pieces(self, zone: &SampledRegion) -> Vec<SampledRegion> {
        let mut all: Vec<SampledRegion> = match self {
            Split::Entries(level, group) => {
                pieces(zone.range, level, group).map(|piece| zone.part(piece)).collect()
            }
            Split::At(at) => {
                let Range { space, start, end } = zone.range;
                let right = SampledRegion { cut: true, ..zone.part(Range::new(space, at, end)) };
                vec![zone.part(Range::new(space, start, at)), right]
            }
        };
        all.iter_mut().for_each(|piece| piece.whole = Some(zone.range));
        all
    }
}

/// The level whose entries a region splits into: one below the lowest level of which one entry
/// covers more than half of the region; if there is none, the highest level that splits it at all.
/// `None` if the region cannot be split.
fn split_level(range: &Range, levels: u8) -> Option<Level> {
    let levels = || (1..=levels).filter_map(Level::new);
    match levels().find(|level| covers_half(*level, range)) {
        Some(level) => level.below(),
        None => levels().rev().find(|level| level.entries_in(range) > 1),
    }
}

/// Whether one entry of `level` covers more than half of `range`: then it contains the middle.
fn covers_half(level: Level, range: &Range) -> bool {
    let middle = range.at(range.bytes() / 2);
    let covered = level.entry_of(middle).intersect(range).map_or(0, |part| part.bytes());
    2 * covered > range.bytes()
}

/// Cuts `range` at entries of `level`, `group` entries per piece.
fn pieces(range: Range, level: Level, group: u64) -> impl Iterator<Item = Range> {
    let stride = group * level.entry_bytes();
    let mut start = range.start;
    std::iter::from_fn(move || {
        if start >= range.end {
            return None;
        }
        let first_entry = level.entry_of(Addr { space: range.space, at: start }).start;
        let end = first_entry.saturating_add(stride).min(range.end);
        let piece = Range::new(range.space, start, end);
        start = end;
        Some(piece)
    })
}

/// The Telescope instrument.
#[derive(Debug)]
pub struct Telescope {
    config: Config,
    rng: Rng,
    zones: Vec<SampledRegion>,
    hidden: Hidden,
    /// One probe per region, in the same order: entries cleared now, to be tested next.
    picks: Vec<Probe>,
    batch: Vec<Probe>,
    /// Start of the window; `None` before the first.
    window_start: Option<Time>,
    samples: u32,
    next_sample: Time,
    next_update: Time,
}

impl Telescope {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            rng: Rng::seeded(config.seed),
            config,
            zones: Vec::new(),
            hidden: Hidden::default(),
            picks: Vec::new(),
            batch: Vec::new(),
            window_start: None,
            samples: 0,
            next_sample: Time(0),
            next_update: Time(0),
        })
    }

    /// Difference in hits up to which counts are alike: a tenth of the highest count, rounded down,
    /// as `kdamond_fn` passes to `kdamond_merge_regions`.
    fn threshold(&self) -> f64 {
        let highest = self.zones.iter().map(|zone| zone.hits).fold(0.0, f64::max);
        (highest / 10.0).floor()
    }

    /// Tests the entries cleared one interval ago and, within a window, clears the next picks in
    /// the same batch.
    fn sample(&mut self, ports: &mut dyn Ports, window_ends: bool) -> Result<()> {
        let access = ports.access_bits()?;
        self.batch.clear();
        self.batch.extend(self.picks.iter().map(|pick| Probe::test(pick.at, pick.level)));
        if !window_ends {
            self.pick(&access.radix());
            self.batch.extend_from_slice(&self.picks);
        }
        access.probe(&mut self.batch)?;
        self.samples += 1;
        for (zone, probe) in self.zones.iter_mut().zip(&self.batch) {
            zone.judge(probe);
        }
        let outdated = |probe: &Probe| matches!(probe.answer.state, State::Gone | State::Refused);
        if self.batch.iter().any(outdated) {
            self.next_update = Time(0);
        }
        Ok(())
    }

    /// Picks a random address and its level for every region.
    fn pick(&mut self, radix: &Radix) {
        self.picks.clear();
        for zone in &self.zones {
            let page = self.rng.below(zone.range.bytes() >> PAGE_SHIFT);
            let at = zone.range.at(page << PAGE_SHIFT);
            let level = self.config.level(radix, at, &zone.range).unwrap_or(Level::PTE);
            self.picks.push(Probe::clear(at, level));
        }
    }

    fn clear_picks(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let access = ports.access_bits()?;
        self.pick(&access.radix());
        self.batch.clone_from(&self.picks);
        access.probe(&mut self.batch)
    }

    fn close_window(&mut self, start: Time, end: Time, levels: u8) -> Snapshot {
        let threshold = self.threshold();
        self.zones.iter_mut().for_each(|zone| zone.turn(threshold));
        self.merge(levels);
        let confidence = self.confidence();
        let region = |zone| region_of(zone, self.samples, confidence);
        let mut regions = self.zones.iter().map(region).collect();
        self.hidden.add_to(&mut regions);
        Snapshot { start, end, samples: self.samples, regions }
    }

    /// Confidence in a window's counts. Our rule: where probes are late, a window has fewer samples
    /// than it was to have; the confidence is twice the share of those that it has, at most 1.
    fn confidence(&self) -> f32 {
        let intended = self.config.window.as_secs_f32() / self.config.sampling.as_secs_f32();
        (2.0 * self.samples as f32 / intended).min(1.0)
    }

    /// Merges neighbours with like counts, the split rule in reverse: two neighbours merge if
    /// splitting their union would separate them again, smallest pieces first.
    fn merge(&mut self, levels: u8) {
        let limit = self.largest_region();
        let mut threshold = self.threshold();
        loop {
            for level in (1..=levels).filter_map(Level::new) {
                merge_at(&mut self.zones, level, levels, threshold, limit);
            }
            if self.zones.len() <= self.config.max_regions || threshold > f64::from(self.samples) {
                return;
            }
            threshold = (2.0 * threshold).max(1.0);
        }
    }

    /// `damon_region_sz_limit`: mapped bytes over the minimum number of regions.
    fn largest_region(&self) -> u64 {
        let mapped: u64 = self.zones.iter().map(|zone| zone.range.bytes()).sum();
        (mapped / self.config.min_regions as u64).max(PAGE_SIZE)
    }

    /// Splits regions by the half-covered rule until the maximum number is reached. Our rule:
    /// regions with the highest counts split first, ties in random order; the last one that still
    /// has room splits into as many equal groups of entries as fit.
    fn split(&mut self, levels: u8) {
        let mut room =
            self.config.max_regions.saturating_sub(self.zones.len() + self.hidden.count());
        let mut order: Vec<(f64, u64, usize)> = (self.zones.iter().enumerate())
            .map(|(index, zone)| (zone.count, self.rng.next_u64(), index))
            .collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut split: Vec<Vec<SampledRegion>> = vec![Vec::new(); self.zones.len()];
        for (_, _, index) in order {
            let zone = &mut self.zones[index];
            let how = match room {
                0 => None,
                _ => zone.how_to_split(levels, room as u64 + 1, &mut self.rng),
            };
            zone.whole = None;
            split[index] = how.map_or_else(|| vec![zone.clone()], |how| how.pieces(zone));
            room -= split[index].len() - 1;
        }
        self.zones = split.into_iter().flatten().collect();
        self.zones.iter_mut().for_each(SampledRegion::start_over);
    }

    fn begin_window(&mut self, ports: &mut dyn Ports, levels: u8) -> Result<()> {
        let now = ports.now();
        // At most half of the regions are spent on areas, to leave room for splitting.
        let limit = (self.config.max_regions / 2).max(1);
        let (due, update) = (&mut self.next_update, self.config.update);
        if let Some(areas) = self.hidden.refresh(ports, due, update, limit)? {
            self.zones = fit(
                &self.zones,
                &areas,
                |zone| zone.range,
                SampledRegion::part,
                SampledRegion::new,
            );
        }
        self.split(levels);
        self.clear_picks(ports)?;
        self.samples = 0;
        self.window_start = Some(now);
        Ok(())
    }

    /// Time of the next probes: one sampling interval after the previous due time. If steps are
    /// late, one interval from now, because a probe soon after its clear would find nothing.
    fn schedule(&mut self, now: Time) -> Time {
        let due = self.next_sample + self.config.sampling;
        let late = due < now + self.config.sampling / 2;
        self.next_sample = if late { now + self.config.sampling } else { due };
        self.next_sample
    }
}

/// The region of a zone; it is unknown if the machine refused to judge it, or if too few samples
/// were taken to confirm that it is hot or cold.
fn region_of(zone: &SampledRegion, samples: u32, confidence: f32) -> Region {
    let unknown = match zone.refused {
        true => Some(Unknown::Refused),
        false => (confidence < CONFIRMED).then_some(Unknown::Evidence),
    };
    Region {
        age: zone.age,
        level: zone.level,
        confidence,
        unknown,
        ..Region::sampled(zone.range, zone.hits as f32, samples)
    }
}

/// Merges like neighbours whose union splits at `level` or below, at the boundary between them; and
/// at a random cut neighbours with like hits, as in DAMON.
fn merge_at(zones: &mut Vec<SampledRegion>, level: Level, levels: u8, threshold: f64, limit: u64) {
    zones.dedup_by(|next, zone| {
        if !zone.range.touches(&next.range) {
            return false;
        }
        let union = Range::new(zone.range.space, zone.range.start, next.range.end);
        let apart = |at: Level| at <= level && next.range.start.is_multiple_of(at.entry_bytes());
        let is_reverse = || split_level(&union, levels).is_some_and(apart);
        let alike = match next.cut {
            true => (zone.hits - next.hits).abs() <= threshold,
            false => zone.is_like(next, threshold) && is_reverse(),
        };
        let merges = alike && union.bytes() <= limit;
        if merges {
            zone.merge(next);
        }
        merges
    });
}

impl Instrument for Telescope {
    fn name(&self) -> &'static str {
        "telescope"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        let mut settings = vec![
            setting("variant", format!("{:?}", config.variant).to_lowercase()),
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("min-regions", config.min_regions.to_string()),
            setting("max-regions", config.max_regions.to_string()),
            setting("seed", config.seed.to_string()),
        ];
        if config.variant == Variant::Flexible {
            settings.push(setting("overshoot", format!("{:?}", config.overshoot)));
        }
        settings
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let levels = ports.access_bits()?.radix().levels;
        let now = ports.now();
        let mut snapshot = None;
        match self.window_start {
            None => {
                self.next_sample = now;
                self.begin_window(ports, levels)?;
            }
            Some(_) if now < self.next_sample => {
                return Ok(Step { wake: self.next_sample, snapshot });
            }
            Some(start) => {
                let window_ends = now - start >= self.config.window;
                self.sample(ports, window_ends)?;
                if window_ends {
                    snapshot = Some(self.close_window(start, now, levels));
                    self.begin_window(ports, levels)?;
                }
            }
        }
        Ok(Step { wake: self.schedule(ports.now()), snapshot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::ErrorKind;
    use tierscope_core::{Judged, SpaceId};

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    fn a(at: u64) -> Addr {
        Addr { space: SpaceId(0), at }
    }

    fn zone(start: u64, end: u64, hits: f64, level: Level) -> SampledRegion {
        let count = hits * weight(level);
        SampledRegion { hits, count, level: Some(level), ..SampledRegion::new(r(start, end)) }
    }

    fn split(range: Range) -> Option<u8> {
        split_level(&range, 4).map(Level::number)
    }

    #[test]
    fn a_hit_weighs_512_times_a_hit_one_level_up() {
        assert_eq!(weight(Level::PMD), 512.0 * weight(Level::PUD));
        assert_eq!(weight(Level::PTE), 512.0 * weight(Level::PMD));
    }

    // The article: more than half covered by one entry at n+1 → pieces of level n; else of n+1.
    #[test]
    fn half_covered_rule() {
        assert_eq!(split(r(0, GIB)), Some(2), "one PUD entry is all of it");
        assert_eq!(split(r(0, GIB + GIB / 2)), Some(2), "one PUD entry is two thirds");
        assert_eq!(split(r(0, 2 * GIB)), Some(3), "one PUD entry is half, not more");
        assert_eq!(split(r(0, 512 * GIB)), Some(3));
        assert_eq!(split(r(0, 1024 * GIB)), Some(4), "one P4D entry is half, not more");
        assert_eq!(split(r(0, 2 * MIB)), Some(1));
        assert_eq!(split(r(0, 4096)), None, "a page is the end of it");
    }

    // Half on each side of a boundary of every level: no entry covers more than half.
    #[test]
    fn a_region_astride_a_boundary_splits_there() {
        let astride = r(512 * GIB - 4096, 512 * GIB + 4096);
        assert_eq!(split(astride), Some(4));
        let parts: Vec<_> = pieces(astride, Level::P4D, 1).collect();
        assert_eq!(parts, [r(astride.start, 512 * GIB), r(512 * GIB, astride.end)]);
    }

    #[test]
    fn pieces_end_at_entries() {
        let parts: Vec<_> = pieces(r(MIB, 5 * MIB), Level::PMD, 1).collect();
        assert_eq!(parts, [r(MIB, 2 * MIB), r(2 * MIB, 4 * MIB), r(4 * MIB, 5 * MIB)]);
        let parts: Vec<_> = pieces(r(MIB, 9 * MIB), Level::PMD, 2).collect();
        assert_eq!(parts, [r(MIB, 4 * MIB), r(4 * MIB, 8 * MIB), r(8 * MIB, 9 * MIB)]);
    }

    //  0        1 GiB            2 GiB
    //  |      [##|################)#|
    //        0.9                 1.9        the PUD entry of 1..2 GiB overshoots by a tenth
    #[test]
    fn flexible_overshoots_by_less_than_its_threshold() {
        let region = r(GIB - GIB / 10, 2 * GIB - GIB / 10);
        let level = |variant, share| {
            let config = Config { variant, overshoot: [share; 5], ..Default::default() };
            config.level(&Radix::X86_64, a(GIB + 5 * MIB), &region)
        };
        assert_eq!(level(Variant::Bounded, 0.25), Some(Level::PMD));
        assert_eq!(level(Variant::Flexible, 0.25), Some(Level::PUD));
        assert_eq!(level(Variant::Flexible, 0.05), Some(Level::PMD));
        assert_eq!(level(Variant::Flexible, 0.0), Some(Level::PMD));
    }

    #[test]
    fn overshoot_thresholds_are_per_level() {
        let region = r(0, 9 * GIB / 10);
        let mut config = Config { variant: Variant::Flexible, ..Default::default() };
        assert_eq!(config.level(&Radix::X86_64, a(0), &region), Some(Level::PUD));
        config.overshoot[2] = 0.01;
        assert_eq!(config.level(&Radix::X86_64, a(0), &region), Some(Level::PMD));
    }

    // 10 of 512 GiB are hot, followed by 433 GiB of cold memory: 85 % of the entry.
    #[test]
    fn a_cold_region_next_to_a_hot_one_is_not_judged_by_their_common_entry() {
        let cold = r(79 * GIB, 512 * GIB);
        let config = Config { variant: Variant::Flexible, ..Default::default() };
        assert_eq!(config.level(&Radix::X86_64, a(100 * GIB), &cold), Some(Level::PUD));
    }

    fn merged(mut zones: Vec<SampledRegion>) -> Vec<Range> {
        for level in (1..=4).filter_map(Level::new) {
            merge_at(&mut zones, level, 4, 4.0, u64::MAX);
        }
        zones.iter().map(|zone| zone.range).collect()
    }

    // As in the kernel: a tenth of the highest count, rounded down; not of the samples.
    #[test]
    fn counts_are_alike_within_a_tenth_of_the_highest() {
        let mut telescope = Telescope::new(Config::default()).unwrap();
        telescope.samples = 40;
        telescope.zones = vec![zone(0, MIB, 29.0, Level::PMD), zone(MIB, GIB, 3.0, Level::PMD)];
        assert_eq!(telescope.threshold(), 2.0);
    }

    // Counts are alike within 4 hits.
    #[test]
    fn neighbours_of_like_counts_merge() {
        let pmd = |i: u64, hits| zone(i * 2 * MIB, (i + 1) * 2 * MIB, hits, Level::PMD);
        let ranges = merged(vec![pmd(0, 0.0), pmd(1, 3.0), pmd(2, 30.0), pmd(3, 33.0)]);
        assert_eq!(ranges, [r(0, 4 * MIB), r(4 * MIB, 8 * MIB)]);
    }

    // Splitting 0..1 GiB would cut at 2 MiB, not at 4 KiB: the page is not merged before its
    // siblings.
    #[test]
    fn merging_is_the_split_rule_backwards() {
        let page = zone(0, 4096, 0.0, Level::PTE);
        let rest = zone(4096, GIB, 0.0, Level::PMD);
        assert_eq!(merged(vec![page.clone(), rest]).len(), 2);
        let siblings = zone(4096, 2 * MIB, 0.0, Level::PTE);
        let rest = zone(2 * MIB, GIB, 0.0, Level::PMD);
        assert_eq!(merged(vec![page, siblings, rest]), [r(0, GIB)]);
    }

    // Ten hits of a PUD entry next to no hits of a PMD entry: one PMD hit outweighs them all, and
    // yet the difference counts.
    #[test]
    fn a_coarse_hot_region_does_not_merge_with_a_fine_cold_one() {
        let hot = zone(0, GIB, 10.0, Level::PUD);
        let cold = zone(GIB, GIB + 2 * MIB, 0.0, Level::PMD);
        assert!(!hot.is_like(&cold, 4.0));
        assert!(zone(0, GIB, 3.0, Level::PUD).is_like(&cold, 4.0));
    }

    #[test]
    fn merged_counts_are_means_weighted_by_size() {
        let mut big = zone(0, 3 * MIB, 4.0, Level::PMD);
        big.merge(&zone(3 * MIB, 4 * MIB, 8.0, Level::PMD));
        assert_eq!((big.hits, big.range), (5.0, r(0, 4 * MIB)));
    }

    #[test]
    fn ages_grow_while_hits_stay_similar() {
        let mut zone = zone(0, 4096, 10.0, Level::PTE);
        zone.turn(4.0);
        assert_eq!(zone.age, 0, "from 0 to 10 is a change");
        zone.hits = 13.0;
        zone.turn(4.0);
        assert_eq!(zone.age, 1);
    }

    // One look at the only entry settles it; of many, no look of the window found one young.
    #[test]
    fn regions_without_a_hit_are_not_split() {
        let answer = |kind| {
            let (state, reached) = (State::Old, Some(Level::PMD));
            Judged { state, reached, kind, dirty: false }
        };
        let judge = |kind, start, end| {
            let mut zone = SampledRegion::new(r(start, end));
            let mut probe = Probe::test(a(start), Level::PMD);
            probe.answer = answer(kind);
            zone.judge(&probe);
            zone
        };
        let how = |zone: &SampledRegion| zone.how_to_split(4, 1000, &mut Rng::seeded(1));
        assert_eq!(how(&judge(LeafKind::Table, 0, 2 * MIB)), None, "cold entry");
        let mut two = judge(LeafKind::Table, 0, 4 * MIB);
        assert_eq!(how(&two), None, "two cold entries");
        two.hits = 0.01;
        assert_eq!(how(&two), Some(Split::Entries(Level::PMD, 1)));
        let mut huge = judge(LeafKind::Page, 0, 2 * MIB);
        huge.hits = 9.0;
        assert_eq!(how(&huge), None, "one huge page");
        let new = SampledRegion::new(r(0, 4 * MIB));
        assert_eq!(how(&new), Some(Split::Entries(Level::PMD, 1)), "nothing is known of it");
    }

    // Two hot entries merge, and are split into the same two; then they are cut in two elsewhere,
    // and merge again if both parts have like hits, although few were at the lower level.
    #[test]
    fn a_region_whose_pieces_merged_again_is_cut_at_random() {
        let config = Config { min_regions: 1, ..Default::default() };
        let mut telescope = Telescope::new(config).unwrap();
        telescope.zones = vec![zone(0, 2 * GIB, 40.0, Level::PUD)];
        // Splits, and merges by these hits of both parts; returns where the right one began.
        let mut window = |hits: [(f64, Level); 2]| {
            telescope.split(4);
            assert_eq!(telescope.zones.len(), 2);
            for (part, (hits, level)) in telescope.zones.iter_mut().zip(hits) {
                (part.hits, part.count) = (hits, hits * weight(level));
                part.level = Some(Level::PUD);
            }
            let cut = telescope.zones[1].range.start;
            telescope.merge(4);
            (cut, telescope.zones.len())
        };
        let (pud, pmd) = (Level::PUD, Level::PMD);
        assert_eq!(window([(40.0, pud), (40.0, pud)]), (GIB, 1));
        let cuts = [(); 4].map(|()| window([(40.0, pmd), (38.0, pud)]));
        assert!(cuts.iter().all(|(_, merged)| *merged == 1), "like hits: {cuts:?}");
        assert!(cuts.iter().any(|(cut, _)| !cut.is_multiple_of(GIB)), "{cuts:?}");
        assert_eq!(window([(12.0, pmd), (40.0, pud)]).1, 2, "a part of the left one is cold");
    }

    #[test]
    fn splits_the_hottest_first_and_within_the_limit() {
        let config = Config { max_regions: 6, min_regions: 1, ..Default::default() };
        let mut telescope = Telescope::new(config).unwrap();
        telescope.zones =
            vec![zone(0, 8 * MIB, 1.0, Level::PMD), zone(8 * MIB, 16 * MIB, 9.0, Level::PMD)];
        telescope.split(4);
        let ranges: Vec<_> = telescope.zones.iter().map(|z| z.range).collect();
        // Room for four more: three go to the hotter region, the last one halves the other.
        assert_eq!(
            ranges,
            [
                r(0, 4 * MIB),
                r(4 * MIB, 8 * MIB),
                r(8 * MIB, 10 * MIB),
                r(10 * MIB, 12 * MIB),
                r(12 * MIB, 14 * MIB),
                r(14 * MIB, 16 * MIB),
            ]
        );
    }

    // 200 ms are to have 40 samples. With 10 of them the confidence is a half; below that, neither
    // a hit in each sample nor none at all is evidence.
    #[test]
    fn few_samples_are_little_evidence() {
        let judged = |samples| {
            let mut telescope = Telescope::new(Config::default()).unwrap();
            let hits = f64::from(samples);
            telescope.zones =
                vec![zone(0, MIB, hits, Level::PMD), zone(4 * MIB, 5 * MIB, 0.0, Level::PMD)];
            telescope.samples = samples;
            let regions = telescope.close_window(Time(0), Time(1), 4).regions;
            assert_eq!(regions[0].unknown, regions[1].unknown);
            let hot = regions[0].is_hot(0.125);
            (regions[0].confidence, regions[0].unknown, hot)
        };
        assert_eq!(judged(40), (1.0, None, true));
        assert_eq!(judged(20), (1.0, None, true));
        assert_eq!(judged(10), (0.5, None, true));
        assert_eq!(judged(6), (0.3, Some(Unknown::Evidence), false));
        assert_eq!(judged(1), (0.05, Some(Unknown::Evidence), false));
    }

    // One of two zones was refused a probe: it is not cold, and neither is what it merges into. The
    // next window begins without.
    #[test]
    fn a_refused_zone_is_not_cold() {
        let mut refused = Probe::test(a(0), Level::PMD);
        refused.answer.state = State::Refused;
        let mut one = SampledRegion::new(r(0, MIB));
        one.judge(&refused);
        let two = SampledRegion::new(r(MIB, 2 * MIB));
        let why = |zone: &SampledRegion| region_of(zone, 40, 1.0).unknown;
        assert_eq!([why(&one), why(&two)], [Some(Unknown::Refused), None]);
        let mut both = two;
        both.merge(&one);
        assert_eq!(why(&both), Some(Unknown::Refused));
        both.start_over();
        assert_eq!(why(&both), None);
    }

    #[test]
    fn absurd_settings_are_refused() {
        let refused = |config: Config| config.check().unwrap_err().kind() == ErrorKind::Usage;
        assert!(refused(Config { sampling: Duration::ZERO, ..Default::default() }));
        assert!(refused(Config { window: Duration::from_millis(9), ..Default::default() }));
        assert!(refused(Config { max_regions: 9, ..Default::default() }));
        assert!(refused(Config { overshoot: [1.0; 5], ..Default::default() }));
    }
}
