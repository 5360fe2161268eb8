//! DAMON: region sampling at the leaves, as in the kernel.
//!
//! Source: Linux v6.12, mm/damon/core.c and mm/damon/vaddr.c; interval tuning from v6.15; probes of
//! upper levels from Telescope's authors' posting to the kernel list ("mm/damon: Profiling
//! enhancements for DAMON", v2 of March 2024), which changes nothing else. Each step names the
//! kernel function that it follows. In short:
//!
//! - Every sampling interval one random page of each region is probed: its ACCESSED bit is cleared
//!   (`damon_va_prepare_access_checks`) and tested one interval later (`damon_va_check_accesses`).
//!   Only leaves are judged: the PTE, or the PMD of a huge page. With [`Config::upper_levels`] it
//!   is the highest entry of the page's walk that lies within the region (`pick_profile_level`).
//! - At the end of each window neighbours with like counts merge, the regions are reported, counts
//!   are reset, and every region splits at random (`kdamond_fn`).
//! - A window is a number of sampling intervals, not a time: an interval begins when the work of
//!   the last one is done, so that a slow machine stretches the window (`kdamond_fn`,
//!   `passed_sample_intervals`).
//!
//! Differences from the kernel:
//!
//! - The kernel also counts a page as accessed if its folio has lost the idle flag, which accesses
//!   through *other* mappings of the page clear as well. Here only the entry itself counts.
//! - The kernel caches the answer for the folio that it probed last, and reuses it for the next
//!   region if its page is in the same folio (`__damon_va_check_access`). A test changes nothing,
//!   so a second probe returns the same answer, at the price of a probe.
//! - `damon_rand` draws 32 bits. In a region of 4 GiB or more only the first `bytes mod 4 GiB` are
//!   ever probed, and if the size is a multiple of 4 GiB only the first page. That is an accident
//!   and not part of the algorithm: draws are 64 bits wide unless [`Config::narrow_draws`] is set.
//! - The kernel monitors no space with fewer than two gaps (`__damon_va_three_regions`); here such
//!   a space has one or two areas.
//! - Memory that the machine cannot judge is left out of the areas and reported as unknown. While
//!   there is any, and after a refused probe, regions are fitted once a second or more often.
//! - A space that appears while the instrument runs gets its first regions at the next update; a
//!   space that vanishes loses them at once. The kernel's targets are fixed.
//! - In the kernel, tuning postpones the update of regions (`damon_set_attrs` restarts its count),
//!   forever if intervals are short; not here.

use std::time::Duration;

use tierscope_core::{
    Instrument, Level, Mappings, Need, PAGE_SHIFT, Ports, Probe, Radix, Region, Result, Rng,
    Setting, Snapshot, SpaceId, State, Step, Time, Unknown,
};

mod areas;
mod regions;
mod tune;

use crate::checks::{intervals, region_limits};
use crate::hidden::Hidden;
use crate::registry::{Common, CostClass, Entry, Variant, set};
use areas::three_areas;
pub(crate) use regions::random_left;
use regions::{SampledRegion, Splitter, initial, merge, set_areas, size_limit};
pub use tune::Goal;

/// The instrument in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "damon",
    about: "region sampling at the leaves, as Linux v6.12 does it",
    needs: &[Need::AccessBits],
    granularity: "regions",
    variants: &[
        Variant { name: "fixed", about: "the intervals given", cost: CostClass::Bounded },
        Variant {
            name: "tuned",
            about: "intervals tuned to 4 % of accesses seen, 5 ms to 10 s (v6.15)",
            cost: CostClass::Bounded,
        },
        Variant {
            name: "narrow",
            about: "fixed, with the 32-bit draws of v6.12: blind beyond 4 GiB of a region",
            cost: CostClass::Bounded,
        },
        Variant {
            name: "levels",
            about: "fixed, with probes of upper levels as Telescope's authors posted it",
            cost: CostClass::Bounded,
        },
    ],
    removed: &[],
    make,
};

fn make(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = Config {
        auto_tune: (variant == "tuned").then(Goal::default),
        narrow_draws: variant == "narrow",
        upper_levels: variant == "levels",
        ..Default::default()
    };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.min_regions, &common.min_regions);
    set(&mut config.max_regions, &common.max_regions);
    set(&mut config.seed, &common.seed);
    Ok(Box::new(Damon::new(config)?))
}

/// Shortest time between two updates that hidden memory requires.
const FIT_AGAIN: Duration = Duration::from_secs(1);

/// Settings of the instrument (`struct damon_attrs`).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between clearing a page's ACCESSED bit and testing it; also the probing interval.
    pub sampling: Duration,
    /// Time over which accesses are counted, in whole sampling intervals.
    pub window: Duration,
    /// Time after which regions are fitted to the mappings again.
    pub update: Duration,
    /// Minimum number of regions: merging grows no region beyond the monitored bytes divided by
    /// this. At least 3.
    pub min_regions: usize,
    /// Maximum number of regions: they split only while there are at most half as many.
    pub max_regions: usize,
    /// Goal of interval tuning; `None` keeps the intervals fixed.
    pub auto_tune: Option<Goal>,
    /// Draws random pages with 32 bits, as v6.12 does.
    pub narrow_draws: bool,
    /// Probes the highest entry that lies within the region instead of the leaf.
    pub upper_levels: bool,
    /// Seed of the random pages and splits.
    pub seed: u64,
}

/// `damon_new_ctx`: 5 ms, 100 ms, 60 s, 10..1000 regions.
impl Default for Config {
    fn default() -> Self {
        Self {
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(100),
            update: Duration::from_secs(60),
            min_regions: 10,
            max_regions: 1000,
            auto_tune: None,
            narrow_draws: false,
            upper_levels: false,
            seed: 1,
        }
    }
}

impl Config {
    /// Checks the settings (`damon_set_attrs`, `damon_valid_intervals_goal`).
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`], naming the setting.
    pub fn check(&self) -> Result<()> {
        intervals(self.sampling, self.window, 1)?;
        region_limits(self.min_regions, self.max_regions, 3)?;
        match &self.auto_tune {
            Some(goal) => goal.check(self.sampling),
            None => Ok(()),
        }
    }

    /// Sampling intervals per window (`damon_max_nr_accesses`).
    fn samples(&self) -> u32 {
        let samples = self.window.as_nanos() / self.sampling.as_nanos();
        u32::try_from(samples).unwrap_or(u32::MAX)
    }
}

/// The DAMON instrument.
#[derive(Debug)]
pub struct Damon {
    config: Config,
    rng: Rng,
    zones: Vec<SampledRegion>,
    hidden: Hidden,
    /// Maximum size of merged regions, in bytes.
    limit: u64,
    splitter: Splitter,
    /// One probe per region, in the same order: pages cleared now, to be tested next.
    picks: Vec<Probe>,
    batch: Vec<Probe>,
    /// The current sampling interval, as tuned.
    sampling: Duration,
    /// Start of the window; `None` before the first.
    window_start: Option<Time>,
    samples: u32,
    /// Windows since the last tuning.
    untuned: u32,
    next_sample: Time,
    /// Time of the last update.
    fitted: Time,
    next_update: Time,
}

impl Damon {
    /// Makes the instrument with these settings.
    ///
    /// # Errors
    /// Same as [`Config::check`].
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self {
            rng: Rng::seeded(config.seed),
            sampling: config.sampling,
            config,
            zones: Vec::new(),
            hidden: Hidden::default(),
            limit: 0,
            splitter: Splitter::default(),
            picks: Vec::new(),
            batch: Vec::new(),
            window_start: None,
            samples: 0,
            untuned: 0,
            next_sample: Time(0),
            fitted: Time(0),
            next_update: Time(0),
        })
    }

    /// `damon_va_init` and `damon_va_update`, for each space.
    fn update(&mut self, mappings: &Mappings) {
        let mut zones = Vec::new();
        for space in mappings.mappings.chunk_by(|a, b| a.range.space == b.range.space) {
            let areas = self.hidden.cut(three_areas(space));
            let Some(first) = areas.first() else { continue };
            let known = self.zones.iter().filter(|zone| zone.range.space == first.space);
            let known: Vec<SampledRegion> = known.cloned().collect();
            zones.extend(if known.is_empty() {
                initial(&areas, self.config.min_regions)
            } else {
                set_areas(known, &areas)
            });
        }
        self.zones = zones;
        self.limit = size_limit(&self.zones, self.config.min_regions);
    }

    /// `damon_va_check_accesses` and, in the same batch, `damon_va_prepare_access_checks`.
    fn sample(&mut self, ports: &mut dyn Ports, prepare: bool) -> Result<()> {
        let access = ports.access_bits()?;
        self.batch.clear();
        self.batch.extend(self.picks.iter().map(|pick| Probe::test(pick.at, pick.level)));
        if prepare {
            self.pick(&access.radix());
            self.batch.extend_from_slice(&self.picks);
        }
        access.probe(&mut self.batch)?;
        self.samples += 1;
        for (zone, probe) in self.zones.iter_mut().zip(&self.batch) {
            zone.judge(probe);
        }
        self.drop_gone();
        if self.zones.iter().any(|zone| zone.refused) {
            self.next_update = self.next_update.min(self.fitted + FIT_AGAIN);
        }
        Ok(())
    }

    /// Drops the regions of spaces that a probe found gone.
    fn drop_gone(&mut self) {
        let is_gone = |probe: &&Probe| probe.answer.state == State::Gone;
        let mut gone: Vec<SpaceId> =
            self.batch.iter().filter(is_gone).map(|p| p.at.space).collect();
        if gone.is_empty() {
            return;
        }
        gone.dedup();
        self.hidden.forget(&gone);
        self.zones.retain(|zone| !gone.contains(&zone.range.space));
        self.picks.retain(|pick| !gone.contains(&pick.at.space));
        self.limit = size_limit(&self.zones, self.config.min_regions);
    }

    /// `damon_va_prepare_access_checks` alone.
    fn prepare(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let access = ports.access_bits()?;
        self.pick(&access.radix());
        self.batch.clone_from(&self.picks);
        access.probe(&mut self.batch)
    }

    /// Picks a random page of every region (`__damon_va_prepare_access_check`).
    fn pick(&mut self, radix: &Radix) {
        self.picks.clear();
        let Config { narrow_draws: narrow, upper_levels, .. } = self.config;
        for zone in &self.zones {
            let offset = draw(&mut self.rng, zone.range.bytes(), narrow);
            let at = zone.range.at(offset >> PAGE_SHIFT << PAGE_SHIFT);
            let upper = upper_levels.then(|| radix.highest_within(at, &zone.range)).flatten();
            self.picks.push(Probe::clear(at, upper.unwrap_or(Level::PTE)));
        }
    }

    /// The end of a window in `kdamond_fn`: merges, reports, tunes, resets, splits.
    fn close_window(&mut self, start: Time, end: Time) -> Snapshot {
        let samples = self.samples;
        let most = self.config.max_regions.saturating_sub(self.hidden.count());
        merge(&mut self.zones, self.limit, most, samples);
        let mut regions = self.zones.iter().map(|zone| region_of(zone, samples)).collect();
        self.hidden.add_to(&mut regions);
        self.tune();
        self.zones.iter_mut().for_each(SampledRegion::start_over);
        self.splitter.split(&mut self.zones, most, &mut self.rng);
        self.samples = 0;
        Snapshot { start, end, samples, regions }
    }

    /// `kdamond_tune_intervals`, every [`Goal::windows`] windows.
    fn tune(&mut self) {
        let Some(goal) = &self.config.auto_tune else { return };
        self.untuned += 1;
        if self.untuned < goal.windows {
            return;
        }
        self.untuned = 0;
        let tuned = goal.next_sampling(self.sampling, &self.zones, self.samples);
        for zone in &mut self.zones {
            zone.rescale_age(self.sampling, tuned);
        }
        self.sampling = tuned;
    }

    fn refresh(&mut self, ports: &mut dyn Ports) -> Result<()> {
        let mappings = ports.mappings(self.config.update.min(FIT_AGAIN))?;
        self.hidden.update(ports, &mappings)?;
        self.update(&mappings);
        self.fitted = ports.now();
        let every = self.config.update;
        let every = if self.hidden.count() > 0 { every.min(FIT_AGAIN) } else { every };
        self.next_update = self.fitted + every;
        Ok(())
    }

    /// One iteration of the loop in `kdamond_fn`, from the end of one sleep to the next.
    fn turn(&mut self, ports: &mut dyn Ports, start: Time) -> Result<Option<Snapshot>> {
        let now = ports.now();
        let closes = self.samples + 1 >= self.config.samples();
        let updates = now >= self.next_update;
        self.sample(ports, !closes && !updates)?;
        let snapshot = closes.then(|| self.close_window(start, now));
        if updates {
            self.refresh(ports)?;
        }
        if closes || updates {
            self.prepare(ports)?;
        }
        if closes {
            self.window_start = Some(now);
        }
        Ok(snapshot)
    }
}

/// `damon_rand` from zero: uniform below `bytes`, or below its low 32 bits if `narrow`.
fn draw(rng: &mut Rng, bytes: u64, narrow: bool) -> u64 {
    let bound = if narrow { bytes & u64::from(u32::MAX) } else { bytes };
    if bound == 0 { 0 } else { rng.below(bound) }
}

fn region_of(zone: &SampledRegion, samples: u32) -> Region {
    let SampledRegion { range, accesses, age, level, refused, .. } = *zone;
    let unknown = refused.then_some(Unknown::Refused);
    Region { age, level, unknown, ..Region::sampled(range, accesses as f32, samples) }
}

impl Instrument for Damon {
    fn name(&self) -> &'static str {
        "damon"
    }

    fn settings(&self) -> Vec<Setting> {
        let config = &self.config;
        let setting = |name, value: String| Setting { name, value };
        let mut settings = vec![
            setting("sampling", format!("{:?}", config.sampling)),
            setting("window", format!("{:?}", config.window)),
            setting("update", format!("{:?}", config.update)),
            setting("min-regions", config.min_regions.to_string()),
            setting("max-regions", config.max_regions.to_string()),
            setting("narrow-draws", config.narrow_draws.to_string()),
            setting("upper-levels", config.upper_levels.to_string()),
            setting("seed", config.seed.to_string()),
        ];
        if let Some(goal) = &config.auto_tune {
            settings.push(setting("auto-tune", goal.to_string()));
        }
        settings
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let mut snapshot = None;
        match self.window_start {
            Some(_) if now < self.next_sample => {
                return Ok(Step { wake: self.next_sample, snapshot });
            }
            Some(start) => snapshot = self.turn(ports, start)?,
            None => {
                self.refresh(ports)?;
                self.prepare(ports)?;
                self.window_start = Some(now);
            }
        }
        self.next_sample = ports.now() + self.sampling;
        Ok(Step { wake: self.next_sample, snapshot })
    }
}

/// A range of space 0.
#[cfg(test)]
fn test_range(start: u64, end: u64) -> tierscope_core::Range {
    tierscope_core::Range::new(SpaceId(0), start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::ErrorKind;

    const GIB: u64 = 1 << 30;

    // 100 GiB is a multiple of 4 GiB: its low 32 bits are zero. Those of 6 GiB are 2 GiB.
    #[test]
    fn narrow_draws_reach_the_size_modulo_four_gibibytes() {
        let mut rng = Rng::seeded(1);
        let mut most = |bytes, narrow| (0..2000).map(|_| draw(&mut rng, bytes, narrow)).max();
        assert_eq!(most(100 * GIB, true), Some(0));
        let reach = most(6 * GIB, true).unwrap();
        assert!(reach < 2 * GIB && reach > 19 * GIB / 10, "{reach:#x}");
        assert!(most(100 * GIB, false).unwrap() > 99 * GIB);
    }

    #[test]
    fn absurd_settings_are_refused() {
        let refused = |config: Config| config.check().unwrap_err().kind() == ErrorKind::Usage;
        assert!(refused(Config { sampling: Duration::ZERO, ..Default::default() }));
        assert!(refused(Config { window: Duration::from_millis(4), ..Default::default() }));
        assert!(refused(Config { min_regions: 2, ..Default::default() }));
        assert!(refused(Config { max_regions: 9, ..Default::default() }));
        let goal = Goal { min_sampling: Duration::from_millis(6), ..Default::default() };
        assert!(refused(Config { auto_tune: Some(goal), ..Default::default() }));
    }

    #[test]
    fn a_refused_zone_is_not_cold() {
        let zone = SampledRegion::new(test_range(0, GIB));
        let mut refused = zone.clone();
        let mut probe = Probe::test(zone.range.at(0), Level::PTE);
        probe.answer.state = State::Refused;
        refused.judge(&probe);
        assert_eq!(region_of(&zone, 20).unknown, None);
        assert_eq!(region_of(&refused, 20).unknown, Some(Unknown::Refused));
        refused.start_over();
        assert_eq!(region_of(&refused, 20).unknown, None);
    }

    #[test]
    fn a_window_is_a_number_of_intervals() {
        assert_eq!(Config::default().samples(), 20);
        let window = Duration::from_millis(200);
        assert_eq!(Config { window, ..Default::default() }.samples(), 40);
    }
}
