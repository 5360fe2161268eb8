//! Summary of a recording: target, instrument, and how much memory is hot.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range as Span;
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{Charge, CpuTime, Mappings, Result, SpaceId};
use tierscope_record::{Commit, Fact, Metric, Recording, residence_of};

use crate::figures;
use crate::grain;
use crate::heatmap::UNKNOWN_MEANS;
use crate::missing_accesses::{self, of_hot_lists, of_readers, of_sessions};
use crate::own_rows::{Lives, OTHER, OwnRows};
use crate::split::{Outside, Split, ZSWAPPED};
use crate::style::Style;
use crate::table::Align::{Left, Right};
use crate::table::Table;
use crate::text::{self, unless_closed};
use crate::tiers::{InMemory, NOT_TOLD, TierName, Tiers};
use crate::view::{NOT_RECORDED, View};
use crate::windows::is_late;

/// Distribution of a number over the windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Value in the last window.
    pub now: u64,
    /// Mean over the windows.
    pub mean: f64,
    /// Minimum over the windows.
    pub min: u64,
    /// First quartile: the value that 25 % of the windows do not exceed.
    pub p25: u64,
    /// Median: the value that half of the windows do not exceed.
    pub p50: u64,
    /// Third quartile.
    pub p75: u64,
    /// 95th percentile.
    pub p95: u64,
    /// Maximum over the windows.
    pub max: u64,
}

impl Spread {
    /// The values in the order of a report's columns; the mean is rounded.
    fn figures(&self) -> [u64; 8] {
        let mean = self.mean.round() as u64;
        [self.now, mean, self.min, self.p25, self.p50, self.p75, self.p95, self.max]
    }

    /// The distribution of values given in order of time.
    #[must_use]
    pub fn of(values: &[u64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let (Some(&now), Some(&min), Some(&max)) = (values.last(), sorted.first(), sorted.last())
        else {
            return Self::default();
        };
        // Nearest rank: the smallest value that at least this share of the windows do not exceed.
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
        let mean = sum as f64 / values.len() as f64;
        Self { now, mean, min, p25: rank(25), p50: rank(50), p75: rank(75), p95: rank(95), max }
    }
}

/// The observed machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineFacts {
    /// Kernel release; empty if there is no kernel.
    pub kernel: String,
    /// Levels of the page table.
    pub page_table_levels: Option<u8>,
    /// Levels whose ACCESSED bits were proven to be set by hardware.
    pub proven_levels: Vec<u8>,
}

/// Figures of one space of the target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpaceSummary {
    /// Number of the space; `None` for the sum of short-lived ones.
    pub space: Option<u32>,
    /// Name of the space.
    pub name: String,
    /// Bytes mapped at the end; `None` if the recording has no mappings.
    pub mapped_bytes: Option<u64>,
    /// Bytes whose frequency is at least [`HOT_FREQUENCY`].
    pub hot_bytes: Spread,
    /// Bytes with too little evidence.
    pub unknown_bytes: Spread,
    /// Number of regions.
    pub regions: Spread,
}

/// Resident bytes of a tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierSummary {
    /// Number and nodes of the tier.
    #[serde(flatten)]
    pub tier: TierName,
    /// Resident bytes in it, over the windows that have this figure.
    pub bytes: Spread,
}

/// The summary of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the recording, usually its path.
    pub recording: String,
    /// Name of the target.
    pub target: String,
    /// Name of the instrument.
    pub instrument: String,
    /// Settings of the instrument.
    pub settings: BTreeMap<String, String>,
    /// Other annotations of the recording.
    pub annotations: BTreeMap<String, String>,
    /// The observed machine.
    pub machine: MachineFacts,
    /// The command line that made the recording.
    pub command: String,
    /// The version of tierscope that made the recording.
    pub version: String,
    /// Start of the recording, in nanoseconds of Unix time; `None` if the recording does not have
    /// it.
    pub started_unix_ns: Option<u64>,
    /// Sampling interval, likewise.
    pub sampling_ns: Option<u64>,
    /// Aggregation interval.
    pub window_ns: u64,
    /// Number of windows in the view.
    pub windows: u64,
    /// Time from the start of the first window to the end of the last one.
    pub duration_ns: u64,
    /// Whether the recording was closed properly.
    pub ended: bool,
    /// Why it ends early, if it is damaged.
    pub damage: Option<String>,
    /// Bytes mapped, of the whole target regardless of the view; `None` if the recording has no
    /// mappings.
    pub mapped_bytes: Option<Spread>,
    /// Resident bytes, over the windows that have this figure; `None` if none has it, or only some
    /// addresses are in the view.
    pub resident_bytes: Option<Spread>,
    /// Resident bytes by tier; empty if not recorded.
    pub tiers: Vec<TierSummary>,
    /// Number of sampled pages from which the tiers were estimated, of the space with the fewest; 0
    /// if all pages were counted.
    pub pages_drawn: u64,
    /// Bytes whose frequency is at least [`HOT_FREQUENCY`].
    pub hot_bytes: Spread,
    /// The hot bytes of the last window by the size of the entries that they were seen by, in bytes
    /// (`grain.rs`).
    pub hot_bytes_by_entry: BTreeMap<u64, u64>,
    /// Bytes known and not hot: warm or cold. For older recordings, all states but hot are computed
    /// from up to 1024 windows.
    pub not_hot_bytes: Spread,
    /// Bytes accessed and not hot.
    pub warm_bytes: Spread,
    /// Bytes without an access; resident ones only, if the recording has the bytes that are not.
    pub cold_bytes: Spread,
    /// Bytes whose hot and cold parts cannot be separated, for any reason.
    pub unknown_bytes: Spread,
    /// The unknown bytes that the machine refuses to judge.
    pub unknown_refused_bytes: Spread,
    /// The unknown bytes that are memory of a virtual machine.
    pub unknown_guest_bytes: Spread,
    /// Bytes in regions that were not probed. In each window, the hot, warm, cold, unknown and
    /// unseen bytes add up to the bytes of its regions, and, with absent, swapped and reserved
    /// bytes, to the mapped bytes.
    pub unseen_bytes: Spread,
    /// Bytes of files, shared memory and the kernel's own mappings that are not in memory. This and
    /// the next two are over the windows that have them, and `None` if none has.
    pub absent_bytes: Option<Spread>,
    /// Bytes in swap, zswap included.
    pub swapped_bytes: Option<Spread>,
    /// The swapped bytes that zswap holds compressed in memory, at their original size; `None` if
    /// not recorded, or if only some addresses or one space are in the view.
    pub zswapped_bytes: Option<Spread>,
    /// Bytes of anonymous memory that were never populated.
    pub reserved_bytes: Option<Spread>,
    /// Memory of the cgroup in no page table of its processes, which no ACCESSED bit shows and the
    /// mapped bytes do not include: bytes by series ([`Charge::series`]). Empty for other targets,
    /// and if only some addresses or one space are in the view; so is the next.
    pub charged_bytes: BTreeMap<&'static str, Spread>,
    /// Refaults and major faults of the cgroup from the first window to the last, by series.
    pub faults: BTreeMap<&'static str, u64>,
    /// Sampling intervals of a window.
    pub samples: Spread,
    /// Number of windows that took more than 1.5 times as long as configured; `None` if it is not
    /// known how long that is.
    pub late_windows: Option<u64>,
    /// ACCESSED bits of the target that other sessions cleared until the last window, of the whole
    /// target: accesses that the figures lack.
    pub cleared_by_others: u64,
    /// How often a hot list was found to have lost entries: the figures lack hot memory.
    pub hot_list_overflows: u64,
    /// Other readers that cleared ACCESSED bits on the machine: the figures lack accesses.
    pub other_readers: BTreeSet<String>,
    /// Number of regions.
    pub regions: Spread,
    /// Frequency from which a region counts as hot.
    pub hot_frequency: f64,
    /// CPU time of the profiler over wall time; 1 is one CPU. `None` for a single window.
    pub profiler_cpu: Option<f64>,
    /// CPU time of the target over wall time.
    pub target_cpu: Option<f64>,
    /// Figures by space.
    pub spaces: Vec<SpaceSummary>,
    /// Whether only some addresses are in the view.
    #[serde(skip)]
    partial: bool,
}

type BySpace = BTreeMap<SpaceId, Split>;

/// Summarises the view.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Data`] for a damaged or empty recording, `Usage` for a view outside
/// of it, `Io` if reading fails.
pub fn summary(recording: &Recording, view: &View) -> Result<Summary> {
    let windows = view.windows(recording)?;
    let commits = &recording.commits()[windows.clone()];
    let mut figures = Vec::with_capacity(commits.len());
    let (mut tiers, mut in_memory) = (Tiers::of(recording.meta()), Vec::new());
    let (mut zswapped, mut charges) = (Vec::new(), BTreeMap::<Charge, Vec<u64>>::new());
    let (mut lives, mut cleared_by_others, mut hot_list_overflows) = (Lives::default(), 0, 0);
    let mut other_readers = recording.meta().other_readers.clone();
    let is_whole = !view.is_partial() && view.space.is_none();
    for index in windows.clone() {
        let metrics = recording.metrics(index)?;
        lives.take(&metrics);
        cleared_by_others = cleared_by_others.max(missing_accesses::cleared_by_others(&metrics));
        hot_list_overflows = missing_accesses::hot_list_overflows(&metrics).max(hot_list_overflows);
        other_readers.extend(missing_accesses::other_readers(&metrics));
        in_memory.extend(InMemory::of(&residence_of(&metrics), &mut tiers, view));
        let whole = metrics.iter().filter(|metric| is_whole && metric.name == ZSWAPPED);
        zswapped.extend(whole.map(|metric| metric.value as u64));
        for metric in metrics.iter().filter(|_| is_whole) {
            if let Some(charge) = Charge::of_series(&metric.name) {
                charges.entry(charge).or_default().push(metric.value as u64);
            }
        }
        figures.push(figures_of(recording, index, &metrics, view)?);
    }
    let read = states_of_regions(recording, &windows, view)?;
    let states = read.as_ref().unwrap_or(&figures);
    let mapped: Vec<u64> = commits.iter().map(|row| row.mapped_bytes).collect();
    let first = recording.layout(windows.start)?;
    let layout = recording.layout(windows.end - 1)?;
    let own = match view.space {
        Some(_) => OwnRows::default(),
        None => lives.own_rows(&first, &layout),
    };
    let (profiler_cpu, target_cpu) = cpu_shares(commits);
    let mut summary = about(recording);
    summary.windows = commits.len() as u64;
    summary.duration_ns = commits[commits.len() - 1].end.0.saturating_sub(commits[0].start.0);
    summary.mapped_bytes = recording.meta().has(Fact::Mappings).then(|| Spread::of(&mapped));
    summary.partial = view.is_partial();
    summary.set_residence(&in_memory, &tiers);
    summary.hot_bytes = sum(&figures, |of| of.hot);
    summary.hot_bytes_by_entry = grain::hot_by_entry(recording, windows.end - 1, view)?;
    summary.set_states(states);
    summary.zswapped_bytes = (!zswapped.is_empty()).then(|| Spread::of(&zswapped));
    summary.set_charges(&charges);
    let meta = recording.meta();
    summary.set_windows(commits, meta.has(Fact::Intervals).then_some(meta.window));
    summary.cleared_by_others = cleared_by_others;
    summary.hot_list_overflows = hot_list_overflows;
    summary.other_readers = other_readers;
    summary.regions = sum(&figures, |of| of.regions);
    summary.profiler_cpu = profiler_cpu;
    summary.target_cpu = target_cpu;
    let listed = summary.mapped_bytes.is_some();
    summary.spaces = by_space((&figures, states), &layout, view, &own, listed);
    name_ended(recording, &windows, &figures, &layout, &mut summary.spaces)?;
    Ok(summary)
}

/// A figure summed over all spaces, window by window.
fn sum(windows: &[BySpace], of: fn(&Split) -> u64) -> Spread {
    let window = |spaces: &BySpace| spaces.values().map(of).sum();
    Spread::of(&windows.iter().map(window).collect::<Vec<u64>>())
}

/// Figures of windows whose regions were read because their metrics lack some states, as in older
/// recordings; `None` if the metrics have them, or all regions are read anyway.
fn states_of_regions(
    recording: &Recording,
    windows: &Span<usize>,
    view: &View,
) -> Result<Option<Vec<BySpace>>> {
    if view.is_partial() || figures::has_metrics(&recording.metrics(windows.start)?) {
        return Ok(None);
    }
    let of = |index| from_regions(recording, index, view);
    figures::spread(windows, figures::READ).map(of).collect::<Result<_>>().map(Some)
}

/// Metadata of the recording; the figures are left at zero.
fn about(recording: &Recording) -> Summary {
    let meta = recording.meta();
    let radix = meta.machine.radix;
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let mut proven: Vec<u8> =
        radix.iter().flat_map(|r| r.proven.highest_first()).map(|l| l.number()).collect();
    proven.reverse();
    Summary {
        recording: recording.name(),
        target: meta.target.clone(),
        instrument: meta.instrument.clone(),
        settings: meta.settings.clone(),
        annotations: meta.annotations.clone(),
        machine: MachineFacts {
            kernel: meta.machine.kernel.clone(),
            page_table_levels: radix.map(|r| r.levels),
            proven_levels: proven,
        },
        command: meta.command.clone(),
        version: meta.version.clone(),
        started_unix_ns: meta
            .has(Fact::Start)
            .then(|| nanos(meta.started.duration_since(UNIX_EPOCH).unwrap_or_default())),
        sampling_ns: meta.has(Fact::Intervals).then(|| nanos(meta.sampling)),
        window_ns: nanos(meta.window),
        windows: 0,
        duration_ns: 0,
        ended: recording.is_ended(),
        damage: recording.damage().map(ToString::to_string),
        mapped_bytes: None,
        resident_bytes: None,
        tiers: Vec::new(),
        pages_drawn: 0,
        hot_bytes: Spread::default(),
        hot_bytes_by_entry: BTreeMap::new(),
        not_hot_bytes: Spread::default(),
        warm_bytes: Spread::default(),
        cold_bytes: Spread::default(),
        unknown_bytes: Spread::default(),
        unknown_refused_bytes: Spread::default(),
        unknown_guest_bytes: Spread::default(),
        unseen_bytes: Spread::default(),
        absent_bytes: None,
        swapped_bytes: None,
        zswapped_bytes: None,
        reserved_bytes: None,
        charged_bytes: BTreeMap::new(),
        faults: BTreeMap::new(),
        samples: Spread::default(),
        late_windows: None,
        cleared_by_others: 0,
        hot_list_overflows: 0,
        other_readers: BTreeSet::new(),
        regions: Spread::default(),
        hot_frequency: HOT_FREQUENCY,
        profiler_cpu: None,
        target_cpu: None,
        spaces: Vec::new(),
        partial: false,
    }
}

/// Figures of a window: from its metrics, or from its regions if only some addresses are in the
/// view.
fn figures_of(
    recording: &Recording,
    index: usize,
    metrics: &[Metric],
    view: &View,
) -> Result<BySpace> {
    if view.is_partial() {
        return from_regions(recording, index, view);
    }
    let mut spaces = BySpace::new();
    for metric in metrics {
        let Some(space) = metric.space.filter(|space| view.shows(*space)) else { continue };
        spaces.entry(space).or_default().add_metric(metric);
    }
    Ok(spaces)
}

fn from_regions(recording: &Recording, index: usize, view: &View) -> Result<BySpace> {
    let mut spaces = BySpace::new();
    for region in &recording.snapshot(index)?.regions {
        let bytes: u64 = view.clip(&region.range).map(|range| region.bytes_of(&range)).sum();
        if bytes > 0 {
            spaces.entry(region.range.space).or_default().add_region(region, bytes);
        }
    }
    Ok(spaces)
}

fn by_space(
    (figures, states): (&[BySpace], &[BySpace]),
    layout: &Mappings,
    view: &View,
    own: &OwnRows,
    listed: bool,
) -> Vec<SpaceSummary> {
    let known = layout.spaces.iter().map(|space| space.id);
    let mut ids: Vec<SpaceId> =
        figures.iter().flat_map(|f| f.keys().copied()).chain(known).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|space| view.shows(*space));
    let (ids, short): (Vec<SpaceId>, Vec<SpaceId>) =
        ids.into_iter().partition(|space| own.has(*space));
    let spread = |windows: &[BySpace], spaces: &[SpaceId], of: fn(&Split) -> u64| {
        let value = |f: &BySpace| spaces.iter().filter_map(|space| f.get(space)).map(of).sum();
        Spread::of(&windows.iter().map(value).collect::<Vec<u64>>())
    };
    let mapped = |space: SpaceId| {
        let mine = layout.mappings.iter().filter(|m| m.range.space == space);
        mine.flat_map(|m| view.clip(&m.range)).map(|r| r.bytes()).sum::<u64>()
    };
    let summary = |space: Option<u32>, name: &str, spaces: &[SpaceId]| SpaceSummary {
        space,
        name: name.into(),
        mapped_bytes: listed.then(|| spaces.iter().map(|space| mapped(*space)).sum()),
        hot_bytes: spread(figures, spaces, |of| of.hot),
        unknown_bytes: spread(states, spaces, |of| of.unknown),
        regions: spread(figures, spaces, |of| of.regions),
    };
    let each = ids.iter().map(|id| summary(Some(id.0), &layout.space_name(*id), &[*id]));
    let other = (!short.is_empty()).then(|| summary(None, OTHER, &short));
    each.chain(other).collect()
}

/// Names spaces that have ended, as in their first window.
fn name_ended(
    recording: &Recording,
    windows: &Span<usize>,
    figures: &[BySpace],
    last: &Mappings,
    spaces: &mut [SpaceSummary],
) -> Result<()> {
    for space in spaces {
        let Some(id) = space.space.map(SpaceId).filter(|id| !last.has_space(*id)) else { continue };
        if let Some(index) = figures.iter().position(|spaces| spaces.contains_key(&id)) {
            let layout = recording.layout(windows.start + index)?;
            space.name = layout.space_name(id).to_string();
        }
    }
    Ok(())
}

/// CPU time over wall time, between the ends of the first and the last window.
fn cpu_shares(commits: &[Commit]) -> (Option<f64>, Option<f64>) {
    let (first, last) = (&commits[0], &commits[commits.len() - 1]);
    let wall = last.end.since(first.end).as_secs_f64();
    // Imported recordings have no CPU times.
    let is_measured = last.cpu != CpuTime::default();
    let share = |from: Duration, to: Duration| {
        (wall > 0.0 && is_measured).then(|| to.saturating_sub(from).as_secs_f64() / wall)
    };
    (share(first.cpu.profiler, last.cpu.profiler), share(first.cpu.target, last.cpu.target))
}

impl Summary {
    fn set_states(&mut self, windows: &[BySpace]) {
        self.not_hot_bytes = sum(windows, Split::not_hot);
        self.warm_bytes = sum(windows, Split::warm);
        self.cold_bytes = sum(windows, Split::cold);
        self.unknown_bytes = sum(windows, |of| of.unknown);
        self.unknown_refused_bytes = sum(windows, |of| of.refused);
        self.unknown_guest_bytes = sum(windows, |of| of.guest);
        self.unseen_bytes = sum(windows, |of| of.unseen);
        let all = |spaces: &BySpace| {
            let mut all = Split::default();
            spaces.values().for_each(|of| all.merge(of));
            all.outside
        };
        let known: Vec<Outside> = windows.iter().filter_map(all).collect();
        let spread = |of: fn(&Outside) -> u64| {
            let values = || known.iter().map(of).collect::<Vec<_>>();
            (!known.is_empty()).then(|| Spread::of(&values()))
        };
        self.absent_bytes = spread(|outside| outside.absent);
        self.swapped_bytes = spread(|outside| outside.swapped);
        self.reserved_bytes = spread(|outside| outside.reserved);
    }

    fn set_charges(&mut self, charges: &BTreeMap<Charge, Vec<u64>>) {
        for (charge, values) in charges {
            if charge.is_count() {
                let (first, last) = (values[0], values[values.len() - 1]);
                self.faults.insert(charge.series(), last.saturating_sub(first));
            } else {
                self.charged_bytes.insert(charge.series(), Spread::of(values));
            }
        }
    }

    fn set_windows(&mut self, commits: &[Commit], window: Option<Duration>) {
        self.samples =
            Spread::of(&commits.iter().map(|row| row.samples.into()).collect::<Vec<_>>());
        let late = |window| commits.iter().filter(|row| is_late(row, window)).count() as u64;
        self.late_windows = window.map(late);
    }

    fn set_residence(&mut self, in_memory: &[InMemory], tiers: &Tiers) {
        let spread = |of: &mut dyn Iterator<Item = u64>| Spread::of(&of.collect::<Vec<_>>());
        let known = !in_memory.is_empty();
        self.resident_bytes = known.then(|| spread(&mut in_memory.iter().map(|m| m.bytes)));
        let placed = || in_memory.iter().filter(|memory| !memory.tiers.is_empty());
        if let Some(last) = placed().next_back() {
            self.pages_drawn = last.drawn;
            let bytes = |index: usize| {
                let of = |memory: &InMemory| memory.tiers.get(index).copied().unwrap_or(0);
                spread(&mut placed().map(of))
            };
            let tier = |(index, tier): (usize, &TierName)| TierSummary {
                tier: tier.clone(),
                bytes: bytes(index),
            };
            self.tiers = tiers.names.iter().enumerate().map(tier).collect();
        }
    }

    /// How resident bytes and tiers were measured, or why they are missing.
    pub(crate) fn residence_text(&self) -> String {
        match (&self.resident_bytes, self.tiers.is_empty(), self.pages_drawn) {
            (None, ..) if self.partial => {
                "resident bytes and tiers: known of whole processes only".into()
            }
            (None, ..) => NOT_TOLD.into(),
            (Some(_), true, _) => "tiers: not in this recording".into(),
            (Some(_), false, 0) => "tiers: all resident pages counted".into(),
            (Some(_), false, drawn) => format!("tiers: estimated from {drawn} pages at the end"),
        }
    }

    /// Writes the report as text. A closed pipe is no error.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, _style: &Style) -> io::Result<()> {
        unless_closed(self.write(out).and_then(|()| out.flush()))
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.write_about(out)?;
        writeln!(out)?;
        self.write_figures(out)?;
        if self.spaces.len() > 1 {
            writeln!(out)?;
            self.write_spaces(out)?;
        }
        Ok(())
    }

    fn write_about(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::without_heads([Left, Left]);
        for (name, value) in self.facts() {
            table.row([name.to_owned(), value]);
        }
        write!(out, "{table}")
    }

    /// Facts about target, instrument and machine, by name; empty ones are left out.
    pub(crate) fn facts(&self) -> Vec<(&str, String)> {
        let date = |nanos: u64| text::date(UNIX_EPOCH + Duration::from_nanos(nanos));
        let mapped = match self.mapped_bytes {
            Some(_) => String::new(),
            None => NOT_RECORDED.into(),
        };
        let mut facts = vec![
            ("target", self.target.clone()),
            ("recording", self.recording.clone()),
            ("started", self.started_unix_ns.map_or(NOT_RECORDED.into(), date)),
            ("duration", self.length()),
            ("instrument", named(&self.instrument, &self.settings)),
            ("intervals", self.intervals()),
            ("mappings", mapped),
            ("machine", self.machine_text()),
            ("tiers", self.tiers_text()),
            ("command", self.command.clone()),
        ];
        facts.extend(self.annotations.iter().map(|(name, value)| (name.as_str(), value.clone())));
        facts.extend(self.damage.iter().map(|damage| ("damage", damage.clone())));
        facts.extend(of_sessions(self.cleared_by_others).map(|text| ("shared", text)));
        facts.extend(of_readers(&self.other_readers).map(|text| ("other readers", text)));
        facts.extend(of_hot_lists(self.hot_list_overflows).map(|text| ("hot lists", text)));
        facts.retain(|(_, value)| !value.is_empty());
        facts
    }

    pub(crate) fn length(&self) -> String {
        let how = if self.ended { "" } else { ", not ended: still being written, or killed" };
        let duration = units::about_time(Duration::from_nanos(self.duration_ns));
        let late = match self.late_windows {
            None | Some(0) => String::new(),
            Some(late) => format!(", {late} of them late"),
        };
        format!("{duration} in {} windows{late}{how}", self.windows)
    }

    fn intervals(&self) -> String {
        let time = |ns: u64| units::about_time(Duration::from_nanos(ns));
        let window = time(self.window_ns);
        match self.sampling_ns {
            Some(sampling) => format!("{} sampling, {window} window", time(sampling)),
            None => format!("{NOT_RECORDED}; windows of {window} on average"),
        }
    }

    fn tiers_text(&self) -> String {
        self.tiers.iter().map(|tier| tier.tier.text()).collect::<Vec<_>>().join(", ")
    }

    fn machine_text(&self) -> String {
        let levels = self.machine.page_table_levels.map(|levels| {
            let proven: Vec<_> = self.machine.proven_levels.iter().map(u8::to_string).collect();
            format!("{levels}-level page table, proven: {}", proven.join(" "))
        });
        let kernel = match self.machine.kernel.as_str() {
            "" => None,
            release => Some(format!("Linux {release}")),
        };
        kernel.into_iter().chain(levels).collect::<Vec<_>>().join(", ")
    }

    fn write_figures(&self, out: &mut dyn Write) -> io::Result<()> {
        let heads = ["now", "mean", "min", "25 %", "50 %", "75 %", "95 %", "max"];
        let heads = heads.map(|head| (head, Right));
        let mut table = Table::new([("", Left)].into_iter().chain(heads));
        let size: fn(u64) -> String = units::about_size;
        let mut add = |name: &str, spread: &Spread, show: fn(u64) -> String| {
            table.row([name.to_owned()].into_iter().chain(spread.figures().map(show)));
        };
        if let Some(mapped) = &self.mapped_bytes {
            add("mapped", mapped, size);
        }
        if let Some(resident) = &self.resident_bytes {
            add("resident", resident, size);
        }
        for tier in &self.tiers {
            add(&tier.tier.short(), &tier.bytes, size);
        }
        for (name, spread) in self.states() {
            add(name, spread, size);
        }
        for (charge, spread) in self.charged() {
            add(charge.title(), spread, size);
        }
        add("regions", &self.regions, |n| n.to_string());
        add("samples", &self.samples, |n| n.to_string());
        write!(out, "{table}")?;
        writeln!(out, "hot: frequency of at least {}", units::percent(self.hot_frequency))?;
        if let Some(grains) = grain::line(&self.hot_bytes_by_entry) {
            writeln!(out, "{grains}")?;
        }
        writeln!(out, "{UNKNOWN_MEANS}")?;
        if let Some(meaning) = self.refusals() {
            writeln!(out, "{meaning}")?;
        }
        if self.absent_bytes.is_some() {
            writeln!(out, "{ALL_STATES}")?;
        }
        if !self.charged_bytes.is_empty() {
            writeln!(out, "{CHARGED}")?;
        }
        if let Some(faults) = self.faults_text() {
            writeln!(out, "cgroup: {faults}")?;
        }
        if self.late_windows.is_some_and(|late| late > 0) {
            writeln!(out, "late windows: more than 1.5 times as long as configured")?;
        }
        writeln!(out, "{}", self.residence_text())?;
        writeln!(out, "CPU: {}", self.cpu())
    }

    /// The states of memory, with the bytes in each, in the order of reports.
    fn states(&self) -> Vec<(&'static str, &Spread)> {
        let mut states = vec![
            ("hot", &self.hot_bytes),
            ("warm", &self.warm_bytes),
            ("cold", &self.cold_bytes),
            ("unknown", &self.unknown_bytes),
        ];
        let reasons =
            [("- refused", &self.unknown_refused_bytes), ("- guest", &self.unknown_guest_bytes)];
        states.extend(reasons.into_iter().filter(|(_, spread)| spread.max > 0));
        states.push(("not looked at", &self.unseen_bytes));
        let outside = [
            ("not resident", &self.absent_bytes),
            ("swapped", &self.swapped_bytes),
            ("- in zswap", &self.zswapped_bytes),
            ("reserved", &self.reserved_bytes),
        ];
        states.extend(outside.into_iter().filter_map(|(name, of)| Some((name, of.as_ref()?))));
        states
    }

    /// The bytes in each state at the end, as text.
    pub(crate) fn states_text(&self) -> String {
        let state = |(name, of): (&str, &Spread)| {
            let (of_it, name) = name.strip_prefix("- ").map_or(("", name), |name| ("of it ", name));
            format!("{of_it}{name} {}", units::about_size(of.now))
        };
        self.states().into_iter().map(state).collect::<Vec<_>>().join(", ")
    }

    /// Kinds of memory in no page table, with their bytes, in the order of reports.
    fn charged(&self) -> impl Iterator<Item = (Charge, &Spread)> {
        let known = |charge: Charge| Some((charge, self.charged_bytes.get(charge.series())?));
        Charge::ALL.into_iter().filter_map(known)
    }

    /// The bytes in no page table at the end, as text; `None` if not recorded.
    pub(crate) fn charged_text(&self) -> Option<String> {
        let one = |(charge, of): (Charge, &Spread)| {
            format!("{} {}", charge.title(), units::about_size(of.now))
        };
        let all: Vec<_> = self.charged().map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Refaults and major faults, as text; `None` if not recorded.
    pub(crate) fn faults_text(&self) -> Option<String> {
        let one = |charge: Charge| {
            Some(format!("{} {}", self.faults.get(charge.series())?, charge.title()))
        };
        let all: Vec<_> = Charge::ALL.into_iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Sampling intervals of a window, as text.
    pub(crate) fn samples_text(&self) -> String {
        format!("at least {} a window, {} in the median", self.samples.min, self.samples.p50)
    }

    /// Legend for the reasons of unknown memory other than too little evidence.
    fn refusals(&self) -> Option<String> {
        let refused = "refused: the machine does not judge these pages; record with --instrument \
                       kernel-damon";
        let guest = "guest: memory of a virtual machine, which accesses it through its own tables; \
                     run tierscope inside of it, or --instrument kernel-damon on its host";
        let reasons = [(&self.unknown_refused_bytes, refused), (&self.unknown_guest_bytes, guest)];
        let some: Vec<_> =
            reasons.into_iter().filter(|(of, _)| of.max > 0).map(|(_, text)| text).collect();
        (!some.is_empty()).then(|| some.join("\n"))
    }

    pub(crate) fn cpu(&self) -> String {
        let cpu = |share: Option<f64>| share.map_or("not measured".into(), units::percent);
        let (profiler, target) = (cpu(self.profiler_cpu), cpu(self.target_cpu));
        format!("profiler {profiler}, target {target} (100 % = one CPU)")
    }

    fn write_spaces(&self, out: &mut dyn Write) -> io::Result<()> {
        let heads = ["mapped", "hot now", "hot mean", "hot max", "unknown", "regions"];
        let mut table =
            Table::new([("space", Left)].into_iter().chain(heads.map(|head| (head, Right))));
        for space in &self.spaces {
            let number = space.space.map_or(String::new(), |number| format!("{number} "));
            let name = text::tail(&format!("{number}{}", space.name), 28);
            let (hot, unknown) = (&space.hot_bytes, space.unknown_bytes.now);
            let mapped = space.mapped_bytes.map_or("-".into(), units::about_size);
            let bytes = [hot.now, hot.mean as u64, hot.max, unknown].map(units::about_size);
            let regions = space.regions.now.to_string();
            table.row([name, mapped].into_iter().chain(bytes).chain([regions]));
        }
        write!(out, "{table}")
    }
}

/// Legend for the states of memory that is not resident.
const ALL_STATES: &str = "not resident: of files and shared memory; reserved: anonymous memory never \
                          touched\nhot to reserved add up to mapped; cold memory is resident";

/// Legend for memory in no page table.
const CHARGED: &str = "page cache: of files read and not mapped; it and the kernel's memory are the \
                       cgroup's,\nnot visible to ACCESSED bits, and not part of mapped";

/// The instrument with its settings: `telescope (variant bounded)`.
fn named(instrument: &str, settings: &BTreeMap<String, String>) -> String {
    if settings.is_empty() {
        return instrument.into();
    }
    let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{instrument} ({})", settings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // 1..=8 in reverse: a quarter of the windows, two, do not exceed 2.
    #[test]
    fn percentiles_by_nearest_rank() {
        let spread = Spread::of(&[8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!((spread.now, spread.min, spread.max), (1, 1, 8));
        assert_eq!((spread.p25, spread.p50, spread.p75, spread.p95), (2, 4, 6, 8));
        assert!((spread.mean - 4.5).abs() < 1e-12);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
