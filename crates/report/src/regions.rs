//! The region table: heat by address, over an interval of time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range as Span;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{
    CONFIRMED, Mapping, Mappings, Range, RangeSet, Rate, Region, Result, Snapshot, SpaceId,
};
use tierscope_record::{Fact, Meta, Metric, Recording, backing_name, windows_in};

use crate::heatmap::UNKNOWN_MEANS;
use crate::mean::{Mean, Means};
use crate::names;
use crate::split::NOT_RESIDENT;
use crate::style::Style;
use crate::table::Align::{Left, Right};
use crate::table::Table;
use crate::text::unless_closed;
use crate::view::{NOT_RECORDED, View, since_start};

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By space and address.
    #[default]
    Address,
    /// Hottest first, then largest.
    Heat,
}

/// Options of the region table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionsOptions {
    /// If the view has no time: averages over this last part of the recording.
    pub last: Duration,
    /// Order of the rows.
    pub sort: Sort,
}

impl Default for RegionsOptions {
    fn default() -> Self {
        Self { last: Duration::from_secs(5), sort: Sort::Address }
    }
}

/// Maximum number of windows that are read one by one; for more, tiles are used.
const EXACT_WINDOWS: usize = 512;

/// Accesses per second and 4 KiB page, with the 90 % credible interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RowRate {
    /// Lower bound of the interval.
    pub low: f32,
    /// The estimated rate.
    pub mean: f32,
    /// Upper bound of the interval.
    pub high: f32,
}

impl RowRate {
    pub(crate) fn of(rate: &Rate) -> Self {
        Self { low: rate.low, mean: rate.mean, high: rate.high }
    }

    pub(crate) fn text(&self) -> String {
        units::about_rate(self.low.into(), self.mean.into(), self.high.into())
    }
}

/// Legend of the rate column.
pub(crate) const RATE_MEANS: &str =
    "rate: accesses a second and page of 4 KiB at the end, and the 90 % interval";

/// A range of uniform heat, or an unknown one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionRow {
    /// Number of its space.
    pub space: u32,
    /// First byte of the row.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Resident bytes at the end of the time; the size if the recording does not have them.
    pub resident_bytes: u64,
    /// Whether there is too little evidence to separate hot from cold: at the end of the time, or
    /// in all of it. Such a row is neither hot nor cold.
    pub unknown: bool,
    /// Mean frequency while it was known, weighted by time, 0..=1; `None` if it is unknown.
    pub frequency: Option<f64>,
    /// Mean confidence of the instrument while it was known, weighted by time; `None` if it is
    /// unknown.
    pub confidence: Option<f64>,
    /// Access rate of its pages at the end of the time; `None` if it is unknown, or the instrument
    /// estimates no rates.
    pub rate: Option<RowRate>,
    /// Windows for which the count has stayed about the same, at the end of the time.
    pub age: Option<u32>,
    /// The page-table level of the evidence, at the end of the time.
    pub level: Option<u8>,
    /// `heap`, `stack`, `file`, `anon`, `kernel`; `None` if no longer mapped.
    pub backing: Option<&'static str>,
    /// Name of the mapping; empty for plain anonymous memory.
    pub name: String,
    /// Whether mean frequency and mean confidence reach those of hot memory.
    pub hot: bool,
    /// Whether the recording has mappings.
    #[serde(skip)]
    pub listed: bool,
}

/// Hot ranges of one space.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpaceHot {
    /// Number of the space.
    pub space: u32,
    /// Name of the space.
    pub name: String,
    /// Hot ranges `[start, end)`, sorted, disjoint.
    pub hot: Vec<(u64, u64)>,
    /// Resident bytes of the hot ranges.
    pub hot_bytes: u64,
}

/// The region table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regions {
    /// Name of the recording, usually its path.
    pub recording: String,
    /// Name of the target.
    pub target: String,
    /// Start of the time, since the recording began.
    pub from_ns: u64,
    /// End of the time, since the recording began.
    pub to_ns: u64,
    /// Number of windows in that time.
    pub windows: u64,
    /// Whether windows were read one by one; if not, tiles were used, whose resolution is a page or
    /// coarser.
    pub exact: bool,
    /// Frequency from which a row counts as hot.
    pub hot_frequency: f64,
    /// Total hot bytes, resident ones.
    pub hot_bytes: u64,
    /// Total unknown bytes, resident ones.
    pub unknown_bytes: u64,
    /// Hot ranges `[start, end)` of all spaces, ordered by space.
    pub hot: Vec<(u64, u64)>,
    /// Hot ranges by space.
    pub spaces: Vec<SpaceHot>,
    /// The rows.
    pub regions: Vec<RegionRow>,
}

/// Tabulates the regions in the view.
///
/// # Errors
/// Same as [`crate::summary`].
pub fn regions(recording: &Recording, view: &View, options: &RegionsOptions) -> Result<Regions> {
    let view = with_last(recording, view, options.last);
    let windows = view.windows(recording)?;
    let exact = windows.len() <= EXACT_WINDOWS;
    let layout = recording.layout(windows.end - 1)?;
    let last = recording.snapshot(windows.end - 1)?;
    let mut means = if exact {
        means_of_windows(recording, &windows, &view)?
    } else {
        means_of_tiles(recording, &windows, &view)?
    };
    cut_unknown(&mut means, &last, &view);
    let last = LastWindow::new(&last, &recording.metrics(windows.end - 1)?);
    let mut rows = merge(split(&means.finish(), &layout), &last, recording.meta());
    // Memory that is no longer resident.
    rows.retain(|row| row.resident_bytes > 0);
    let hot = rows.iter().filter(|row| row.hot).map(RegionRow::range).collect::<RangeSet>();
    sort(&mut rows, options.sort);
    let commits = recording.commits();
    let nanos = |time| since_start(recording, time).as_nanos() as u64;
    Ok(Regions {
        recording: recording.name(),
        target: recording.meta().target.clone(),
        from_ns: nanos(commits[windows.start].start),
        to_ns: nanos(commits[windows.end - 1].end),
        windows: windows.len() as u64,
        exact,
        hot_frequency: HOT_FREQUENCY,
        hot_bytes: rows.iter().filter(|row| row.hot).map(|row| row.resident_bytes).sum(),
        unknown_bytes: rows.iter().filter(|row| row.unknown).map(|row| row.resident_bytes).sum(),
        hot: hot.as_slice().iter().map(|r| (r.start, r.end)).collect(),
        spaces: by_space(&hot, &rows, &named(recording, &windows, &hot, &layout)?),
        regions: rows,
    })
}

/// The view, restricted to the last part of the recording unless it has a time of its own.
fn with_last(recording: &Recording, view: &View, last: Duration) -> View {
    let mut view = view.clone();
    if let (None, Some(all)) = (&view.time, recording.time()) {
        let end = all.end.since(all.start);
        view.time = Some(end.saturating_sub(last)..end);
    }
    view
}

fn means_of_windows(recording: &Recording, windows: &Span<usize>, view: &View) -> Result<Means> {
    let mut means = Means::default();
    for index in windows.clone() {
        let snapshot = recording.snapshot(index)?;
        let nanos = snapshot.end.0.saturating_sub(snapshot.start.0).max(1);
        for region in snapshot.regions.iter().filter(|region| !region.is_unseen()) {
            for range in view.clip(&region.range) {
                match region.is_unknown() {
                    true => means.add_unknown(&range, nanos),
                    false => means.add(&range, nanos, region.frequency(), region.confidence.into()),
                }
            }
        }
    }
    Ok(means)
}

/// Separates the ranges that are unknown in the last window, so that no row is partly unknown.
fn cut_unknown(means: &mut Means, last: &Snapshot, view: &View) {
    let unknown = last.regions.iter().filter(|region| is_doubtful(region));
    for range in unknown.flat_map(|region| view.clip(&region.range)) {
        means.add_unknown(&range, 0);
    }
}

/// Whether the region was probed and is nevertheless unknown.
fn is_doubtful(region: &Region) -> bool {
    region.is_unknown() && !region.is_unseen()
}

fn means_of_tiles(recording: &Recording, windows: &Span<usize>, view: &View) -> Result<Means> {
    let wide = |zoom: &u8| windows_in(*zoom).saturating_mul(64) > windows.len() as u64;
    let coarsest = (1..u8::MAX).find(wide).unwrap_or(1) - 1;
    let mut means = Means::default();
    recording.heat(windows.clone(), coarsest, |heat| {
        let nanos = heat.time.end.0.saturating_sub(heat.time.start.0).max(1);
        for part in &heat.parts {
            let [seen, unknown] = [part.seen, part.unknown].map(|share| span(share, nanos));
            for range in view.clip(&part.range) {
                if seen > 0 {
                    means.add(&range, seen, part.heat, part.confidence);
                }
                if unknown > 0 {
                    means.add_unknown(&range, unknown);
                }
            }
        }
        Ok(())
    })?;
    Ok(means)
}

/// A share of `nanos`, at least 1 if the share is above zero.
fn span(share: f64, nanos: u64) -> u64 {
    if share > 0.0 { ((share * nanos as f64) as u64).max(1) } else { 0 }
}

/// The means, cut at the borders of mappings, each with its mapping.
fn split<'a>(means: &[Mean], layout: &'a Mappings) -> Vec<(Mean, Option<&'a Mapping>)> {
    let mut pieces = Vec::with_capacity(means.len());
    for mean in means {
        let mut rest = mean.range;
        while let Some(mapping) = layout.find(&rest) {
            let inside = rest.intersect(&mapping.range).unwrap_or(rest);
            if rest.start < inside.start {
                pieces.push((Mean { range: Range { end: inside.start, ..rest }, ..*mean }, None));
            }
            pieces.push((Mean { range: inside, ..*mean }, Some(mapping)));
            rest.start = inside.end;
        }
        if !rest.is_empty() {
            pieces.push((Mean { range: rest, ..*mean }, None));
        }
    }
    pieces
}

/// Makes rows of the pieces; neighbours with the same displayed values are joined.
fn merge(
    pieces: Vec<(Mean, Option<&Mapping>)>,
    last: &LastWindow<'_>,
    meta: &Meta,
) -> Vec<RegionRow> {
    let mut rows: Vec<RegionRow> = Vec::new();
    for (mean, mapping) in pieces {
        let region = last.region_at(&mean.range);
        let row = RegionRow::new(&mean, mapping, region, last.resident(&mean.range), meta);
        match rows.last_mut() {
            Some(before) if before.reads_like(&row) => before.join(&row),
            _ => rows.push(row),
        }
    }
    rows
}

/// The last window.
struct LastWindow<'a> {
    regions: &'a [Region],
    /// Spaces whose regions hold resident memory only.
    measured: BTreeSet<SpaceId>,
}

impl<'a> LastWindow<'a> {
    fn new(snapshot: &'a Snapshot, metrics: &[Metric]) -> Self {
        let outside = metrics.iter().filter(|metric| NOT_RESIDENT.contains(&&*metric.name));
        let measured = outside.filter_map(|metric| metric.space).collect();
        Self { regions: &snapshot.regions, measured }
    }

    /// The regions that overlap `range`.
    fn overlapping(&self, range: &Range) -> impl Iterator<Item = (&'a Region, Range)> {
        let key = (range.space, range.start);
        let from = self.regions.partition_point(|r| (r.range.space, r.range.end) <= key);
        let range = *range;
        self.regions[from..].iter().map_while(move |r| Some((r, r.range.intersect(&range)?)))
    }

    /// The region that holds the first byte of `range`.
    fn region_at(&self, range: &Range) -> Option<&'a Region> {
        let first = self.overlapping(range).next();
        first.filter(|(_, common)| common.start == range.start).map(|(region, _)| region)
    }

    /// Resident bytes of `range`; all of them where that was not measured.
    fn resident(&self, range: &Range) -> u64 {
        match self.measured.contains(&range.space) {
            true => self.overlapping(range).map(|(region, part)| region.bytes_of(&part)).sum(),
            false => range.bytes(),
        }
    }
}

impl RegionRow {
    fn new(
        mean: &Mean,
        mapping: Option<&Mapping>,
        region: Option<&Region>,
        resident_bytes: u64,
        meta: &Meta,
    ) -> Self {
        let sure = mean.confidence >= f64::from(CONFIRMED);
        let unknown = mean.seen == 0 || region.is_some_and(is_doubtful);
        let known = |share: f64| (!unknown).then_some(share);
        Self {
            space: mean.range.space.0,
            start: mean.range.start,
            end: mean.range.end,
            bytes: mean.range.bytes(),
            resident_bytes,
            unknown,
            frequency: known(mean.frequency),
            confidence: known(mean.confidence),
            rate: region.and_then(|r| r.rate.as_ref()).filter(|_| !unknown).map(RowRate::of),
            age: region.filter(|_| meta.has(Fact::Ages)).map(|r| r.age),
            level: region.and_then(|r| r.level).map(|level| level.number()),
            backing: mapping.map(|m| backing_name(m.backing)),
            name: mapping.map(|m| m.name.to_string()).unwrap_or_default(),
            hot: !unknown && sure && mean.frequency >= HOT_FREQUENCY,
            listed: meta.has(Fact::Mappings),
        }
    }

    fn range(&self) -> Range {
        Range::new(SpaceId(self.space), self.start, self.end)
    }

    /// Whether `next` is adjacent and has the same displayed values.
    fn reads_like(&self, next: &RegionRow) -> bool {
        let per_mille = |share: Option<f64>| share.map(|share| (share * 1000.0).round() as u32);
        self.range().touches(&next.range())
            && per_mille(self.frequency) == per_mille(next.frequency)
            && per_mille(self.confidence) == per_mille(next.confidence)
            && (self.age, self.level, self.hot) == (next.age, next.level, next.hot)
            && (self.unknown, self.rate) == (next.unknown, next.rate)
            && (self.backing, &self.name) == (next.backing, &next.name)
    }

    fn join(&mut self, next: &RegionRow) {
        let (mine, theirs) = (self.bytes as f64, next.bytes as f64);
        let mean = |a: Option<f64>, b: Option<f64>| {
            a.zip(b).map(|(a, b)| (a * mine + b * theirs) / (mine + theirs))
        };
        self.frequency = mean(self.frequency, next.frequency);
        self.confidence = mean(self.confidence, next.confidence);
        self.end = next.end;
        self.bytes += next.bytes;
        self.resident_bytes += next.resident_bytes;
    }

    /// Display name of the mapping: `[heap]`, `libc.so.6`, `anon`.
    pub(crate) fn label(&self) -> String {
        match (self.backing, self.name.as_str()) {
            (None, _) if !self.listed => NOT_RECORDED.into(),
            (None, _) => "not mapped any more".into(),
            (Some(backing), "") => backing.into(),
            (Some(_), name) => name.into(),
        }
    }
}

fn sort(rows: &mut [RegionRow], order: Sort) {
    if order == Sort::Heat {
        // Rows with unknown heat sort last.
        let key = |row: &RegionRow| (row.frequency, row.bytes);
        rows.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal));
    }
}

/// Layouts that hold the names of the spaces of `hot`: the last one, and earlier ones if a space
/// has ended.
fn named(
    recording: &Recording,
    windows: &Span<usize>,
    hot: &RangeSet,
    last: &Arc<Mappings>,
) -> Result<Vec<Arc<Mappings>>> {
    if hot.as_slice().iter().all(|range| last.has_space(range.space)) {
        return Ok(vec![Arc::clone(last)]);
    }
    let seen = names::distinct(recording, windows, names::ASKED)?;
    Ok(seen.into_iter().map(|(_, layout)| layout).collect())
}

fn by_space(hot: &RangeSet, rows: &[RegionRow], layouts: &[Arc<Mappings>]) -> Vec<SpaceHot> {
    let mut bytes = BTreeMap::<u32, u64>::new();
    for row in rows.iter().filter(|row| row.hot) {
        *bytes.entry(row.space).or_default() += row.resident_bytes;
    }
    let of = |ranges: &[Range]| SpaceHot {
        space: ranges[0].space.0,
        name: names::space_name(layouts.iter(), ranges[0].space),
        hot: ranges.iter().map(|r| (r.start, r.end)).collect(),
        hot_bytes: bytes.get(&ranges[0].space.0).copied().unwrap_or(0),
    };
    hot.as_slice().chunk_by(|a, b| a.space == b.space).map(of).collect()
}

impl Regions {
    /// Writes the report as text. A closed pipe is no error.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        unless_closed(self.write(out, style).and_then(|()| out.flush()))
    }

    fn write(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        self.write_title(out)?;
        let spaces = self.regions.iter().any(|row| row.space != self.regions[0].space);
        let rates = self.has_rates();
        let partly = self.regions.iter().any(|row| row.resident_bytes < row.bytes);
        let columns = [
            spaces.then_some(("space", Right)),
            Some(("start", Right)),
            Some(("end", Right)),
            Some(("size", Right)),
            partly.then_some(("resident", Right)),
            Some(("freq", Right)),
            rates.then_some(("rate", Right)),
            Some(("age", Right)),
            Some(("level", Right)),
            Some(("hot", Right)),
            Some(("mapping", Left)),
        ];
        let mut table = Table::new(columns.into_iter().flatten());
        for row in &self.regions {
            table.row(row.cells([spaces, partly, rates]).into_iter().flatten());
        }
        table.fit_last(style.width, 12);
        write!(out, "{table}")
    }

    fn has_rates(&self) -> bool {
        self.regions.iter().any(|row| row.rate.is_some())
    }

    fn write_title(&self, out: &mut dyn Write) -> io::Result<()> {
        let [from, to] =
            [self.from_ns, self.to_ns].map(|ns| units::about_time(Duration::from_nanos(ns)));
        let how = if self.exact { "" } else { " (from tiles)" };
        writeln!(
            out,
            "{}: mean of {} windows from {from} to {to}{how}",
            self.target, self.windows
        )?;
        let share = units::percent(self.hot_frequency);
        writeln!(out, "{} hot (frequency of at least {share})", units::about_size(self.hot_bytes))?;
        if self.unknown_bytes > 0 {
            writeln!(out, "{} {UNKNOWN_MEANS}", units::about_size(self.unknown_bytes))?;
        }
        if self.has_rates() {
            writeln!(out, "{RATE_MEANS}")?;
        }
        writeln!(out)
    }
}

impl RegionRow {
    /// The cells of the row; those of columns that are not shown are `None`.
    fn cells(&self, [spaces, partly, rates]: [bool; 3]) -> [Option<String>; 11] {
        let number = |n: Option<u32>| n.map_or("-".into(), |n| n.to_string());
        let level = self.level.and_then(tierscope_core::Level::new);
        [
            spaces.then(|| self.space.to_string()),
            Some(format!("{:#x}", self.start)),
            Some(format!("{:#x}", self.end)),
            Some(units::about_size(self.bytes)),
            partly.then(|| units::about_size(self.resident_bytes)),
            Some(self.frequency.map_or("unknown".into(), units::percent)),
            rates.then(|| self.rate.map_or(String::new(), |rate| rate.text())),
            Some(number(self.age)),
            Some(level.map_or("-".into(), |level| level.to_string())),
            Some(if self.hot { "hot" } else { "" }.into()),
            Some(self.label()),
        ]
    }
}
