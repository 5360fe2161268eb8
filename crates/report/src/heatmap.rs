//! Heat by address and time.

use std::io::{self, Write};
use std::ops::Range as Span;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{Backing, Mappings, Range, Result, Time};
use tierscope_record::{Heat, HeatPart, Recording, windows_in};

use crate::blocks::{Block, Places, blocks};
use crate::names::space_name;
use crate::seen;
use crate::style::{Color, DENSITY, DOUBT, FAINT, RESET, Style, background, step};
use crate::text::{self, unless_closed};
use crate::view::{View, since_start};

/// Size of a heatmap in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Columns (time); fewer if there are fewer windows.
    pub columns: usize,
    /// Maximum number of rows (addresses).
    pub rows: usize,
}

/// Characters before the cells of a row, for its address.
const LEFT: usize = 19;
/// Characters after the cells of a row, for its peak and mean.
const VALUES: usize = 10;
/// Characters after those, for the name of its mapping.
const NAME: usize = 18;

impl Grid {
    /// A grid for a terminal of `width` columns and `height` lines.
    #[must_use]
    pub fn for_terminal(width: usize, height: usize) -> Self {
        Self {
            columns: width.saturating_sub(LEFT + VALUES + NAME).max(10),
            rows: height.saturating_sub(11).clamp(8, 64),
        }
    }
}

/// State of a row's addresses during a column's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// Nothing was mapped there. In JSON: null.
    Unmapped,
    /// Mapped, but not probed. In JSON: -1.
    NotLookedAt,
    /// Probed, and unknown for more of it (bytes times time) than it is known. In JSON: -2.
    Unknown,
    /// Mean frequency of the known part, 0..=1. In JSON: the number.
    Heat(f64),
}

/// Sums of a cell, in bytes times nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    /// Amount that is known.
    known: f64,
    /// Amount that is known, times its frequency.
    hot: f64,
    /// Amount that is unknown.
    unknown: f64,
    /// Highest frequency of a known part.
    peak: f64,
}

impl Sum {
    /// Adds `amount` bytes times nanoseconds of `part`.
    pub(crate) fn add(&mut self, part: &HeatPart, amount: f64) {
        self.known += part.seen * amount;
        self.hot += part.seen * amount * part.heat;
        self.unknown += part.unknown * amount;
        if part.seen > 0.0 {
            self.peak = self.peak.max(part.heat.min(1.0));
        }
    }

    /// The state of the cell; `None` if nothing of it was probed.
    pub(crate) fn cell(&self) -> Option<Cell> {
        match () {
            () if self.unknown > self.known => Some(Cell::Unknown),
            () if self.known > 0.0 => Some(Cell::Heat((self.hot / self.known).min(1.0))),
            () => None,
        }
    }

    /// As [`Sum::cell`], with the peak instead of the mean: a known hot part shows even where most
    /// of the memory is unknown.
    fn peak(&self) -> Option<Cell> {
        match self.cell()? {
            Cell::Unknown if self.peak < HOT_FREQUENCY => Some(Cell::Unknown),
            _ => Some(Cell::Heat(self.peak)),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Unmapped => serializer.serialize_none(),
            Cell::NotLookedAt => serializer.serialize_i64(-1),
            Cell::Unknown => serializer.serialize_i64(-2),
            Cell::Heat(heat) => serializer.serialize_f64((heat * 1e6).round() / 1e6),
        }
    }
}

/// A row: addresses over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// First byte of the row.
    pub start: u64,
    /// One past the last byte of the same space. Memory in between that was never seen, or has a
    /// block of its own, is not in the row.
    pub end: u64,
    /// The ranges of the row, in order. Not in JSON.
    #[serde(skip)]
    pub parts: Vec<Range>,
    /// Name of the mapping, as in [`Area::mapping`].
    pub mapping: String,
    /// One cell for each column.
    pub cells: Vec<Cell>,
    /// One for each column, with the highest frequency of any memory of the row instead of the
    /// mean: one hot page in a large row shows here. Not in JSON.
    #[serde(skip)]
    pub peaks: Vec<Cell>,
    /// Highest frequency of any memory of the row at any time, where it is known. Not in JSON.
    #[serde(skip)]
    pub peak: Option<f64>,
    /// Mean frequency over all the time, where and while it is known. Not in JSON.
    #[serde(skip)]
    pub mean: Option<f64>,
}

/// The rows of a mapping, or of several small ones together, without gaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Area {
    /// Number of the space; `None` for small mappings of several spaces.
    pub space: Option<u32>,
    /// Name of the space; empty without a space.
    pub name: String,
    /// Name of the mapping in the last layout that has it, or how many small mappings there are.
    pub mapping: String,
    /// Bytes between the previous area of the same space and this one, which are not shown; `None`
    /// for the first area of a space and for small mappings.
    pub gap_before: Option<u64>,
    /// The rows, in order of address.
    pub rows: Vec<Row>,
}

/// Heat by address and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heatmap {
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
    /// Resident bytes per row; the last row of an area may have fewer.
    pub row_bytes: u64,
    /// Number of columns.
    pub columns: usize,
    /// Whether all regions were read; if not, tiles were used, whose bins are an approximation.
    pub exact: bool,
    /// Bytes that were mapped at the end, and are in no row: not resident, or never probed.
    pub left_out_bytes: u64,
    /// The areas, ordered by space and address; short-lived processes and small mappings come last.
    pub areas: Vec<Area>,
}

/// Regions up to which all windows of a view are read: they take less than a second.
const EXACT_REGIONS: u64 = 4 << 20;

/// Makes the heatmap of the view.
///
/// # Errors
/// Same as [`crate::summary`].
pub fn heatmap(recording: &Recording, view: &View, grid: Grid) -> Result<Heatmap> {
    heatmap_of(recording, view, grid, EXACT_REGIONS)
}

/// The heatmap, exact for views of up to `exact_regions` regions.
fn heatmap_of(
    recording: &Recording,
    view: &View,
    grid: Grid,
    exact_regions: u64,
) -> Result<Heatmap> {
    let windows = view.windows(recording)?;
    let commits = &recording.commits()[windows.clone()];
    let columns = grid.columns.clamp(1, windows.len());
    let time = commits[0].start..commits[commits.len() - 1].end;
    let axis = Axis { time: time.clone(), columns };
    let layouts = layouts(recording, &windows, &axis)?;
    let memory = seen::memory(recording, &windows, view, &layouts)?;
    let (blocks, row_bytes) = blocks(&memory, grid.rows);
    let mut canvas = Canvas::new(&blocks, columns);
    let regions: u64 = commits.iter().map(|row| row.regions).sum();
    let exact = regions <= exact_regions;
    let coarsest = if exact { 0 } else { coarsest(windows.len(), columns) };
    // A tile in two columns is split: into finer ones, and into windows if columns are so short
    // that the finest tile is much of them.
    let at_ends = 8 * columns as u64 * (regions / windows.len() as u64);
    let are_short = windows.len() < 64 * columns;
    let finest = if are_short && at_ends <= 4 * EXACT_REGIONS { 0 } else { 1 };
    let fits = |zoom: u8, tile: Span<usize>| {
        let all = recording.commits();
        zoom <= finest || axis.is_in_one(&(all[tile.start].start..all[tile.end - 1].end))
    };
    recording.heat_where(windows.clone(), coarsest, fits, |heat| {
        canvas.add(&heat, &axis, view);
        Ok(())
    })?;
    let nanos = |time| since_start(recording, time).as_nanos() as u64;
    Ok(Heatmap {
        recording: recording.name(),
        target: recording.meta().target.clone(),
        from_ns: nanos(time.start),
        to_ns: nanos(time.end),
        windows: windows.len() as u64,
        row_bytes,
        columns,
        exact,
        left_out_bytes: canvas.left_out(layouts.last(), view),
        areas: canvas.areas(&blocks, &layouts),
    })
}

/// The coarsest zoom whose tiles are no longer than a column.
fn coarsest(windows: usize, columns: usize) -> u8 {
    let fits = |zoom: &u8| windows_in(*zoom).saturating_mul(columns as u64) <= windows as u64;
    (0..u8::MAX).take_while(fits).last().unwrap_or(0)
}

/// The time axis, in columns.
struct Axis {
    time: Span<Time>,
    columns: usize,
}

impl Axis {
    /// The columns that overlap `time`, with the nanoseconds in each.
    fn shares(&self, time: &Span<Time>) -> impl Iterator<Item = (usize, f64)> + '_ {
        let all = self.length();
        let place =
            |at: Time| at.0.saturating_sub(self.time.start.0) as f64 / all * self.columns as f64;
        let (from, to) = (place(time.start), place(time.end).max(place(time.start) + 1e-9));
        let first = (from as usize).min(self.columns - 1);
        let last = (to.ceil() as usize).clamp(first + 1, self.columns);
        (first..last).filter_map(move |column| {
            let share = to.min(column as f64 + 1.0) - from.max(column as f64);
            (share > 1e-9 || last == first + 1).then_some((column, share.max(1e-9) * all))
        })
    }

    /// Whether a time is in one column.
    fn is_in_one(&self, time: &Span<Time>) -> bool {
        self.shares(time).count() == 1
    }

    fn length(&self) -> f64 {
        self.time.end.0.saturating_sub(self.time.start.0).max(1) as f64
    }

    /// Start of a column; end of the one before.
    fn start_of(&self, column: usize) -> Time {
        let share = column as f64 / self.columns as f64;
        Time(self.time.start.0 + (self.length() * share) as u64)
    }
}

/// Two layouts for each column, in order: those of its first and of its last window.
fn layouts(
    recording: &Recording,
    windows: &Span<usize>,
    axis: &Axis,
) -> Result<Vec<Arc<Mappings>>> {
    let commits = recording.commits();
    let first = |at: Time| commits.partition_point(|row| row.end <= at);
    let last = |at: Time| commits.partition_point(|row| row.end < at);
    let of = |column| [first(axis.start_of(column)), last(axis.start_of(column + 1))];
    (0..axis.columns)
        .flat_map(of)
        .map(|index| recording.layout(index.clamp(windows.start, windows.end - 1)))
        .collect()
}

/// Whether some of `parts` is mapped in one of the layouts; `None` if they hold no mappings.
pub(crate) fn is_mapped(parts: &[Range], layouts: [&Mappings; 2]) -> Option<bool> {
    let known = layouts.iter().any(|layout| !layout.mappings.is_empty());
    let visible = |layout: &Mappings, part| {
        layout.find(part).is_some_and(|mapping| mapping.backing != Backing::Kernel)
    };
    let mapped = || parts.iter().any(|part| layouts.iter().any(|layout| visible(layout, part)));
    known.then(mapped)
}

/// The cell of memory that is mapped or not, as far as that is known: nothing is hot where nothing
/// is mapped, although a tile of the zoom pyramid may reach beyond a mapping.
pub(crate) fn masked(heat: Option<Cell>, mapped: Option<bool>) -> Cell {
    match (heat, mapped) {
        (_, Some(false)) | (None, None) => Cell::Unmapped,
        (Some(cell), _) => cell,
        (None, Some(true)) => Cell::NotLookedAt,
    }
}

/// Sums of heat, by row and column.
struct Canvas {
    rows: Vec<Vec<Range>>,
    places: Places,
    columns: usize,
    /// Ordered by row, then column.
    sums: Vec<Sum>,
}

impl Canvas {
    fn new(blocks: &[Block], columns: usize) -> Self {
        let rows: Vec<Vec<Range>> = blocks.iter().flat_map(Block::rows).collect();
        let places = Places::of(rows.iter().map(Vec::as_slice));
        let sums = vec![Sum::default(); rows.len() * columns];
        Self { rows, places, columns, sums }
    }

    fn add(&mut self, heat: &Heat, axis: &Axis, view: &View) {
        let shares: Vec<_> = axis.shares(&heat.time).collect();
        for part in &heat.parts {
            view.clip(&part.range).for_each(|range| self.add_part(&range, part, &shares));
        }
    }

    fn add_part(&mut self, range: &Range, part: &HeatPart, shares: &[(usize, f64)]) {
        for (row, bytes) in self.places.shares(range) {
            for (column, nanos) in shares {
                self.sums[row * self.columns + column].add(part, bytes as f64 * nanos);
            }
        }
    }

    /// Bytes of a layout in the view that are in no row.
    fn left_out(&self, layout: Option<&Arc<Mappings>>, view: &View) -> u64 {
        let layouts: Vec<_> = layout.into_iter().cloned().collect();
        let left_out = |range: &Range| {
            let shown: u64 = self.places.shares(range).map(|(_, bytes)| bytes).sum();
            range.bytes() - shown
        };
        seen::named(&layouts, view).iter().map(|named| left_out(&named.range)).sum()
    }

    fn areas(&self, blocks: &[Block], layouts: &[Arc<Mappings>]) -> Vec<Area> {
        let mut areas = Vec::with_capacity(blocks.len());
        let mut row = 0;
        let mut before: Option<Range> = None;
        for block in blocks {
            let (first, last) = (block.parts[0], block.parts[block.parts.len() - 1]);
            let follows = |before: &Range| before.space == first.space && before.end <= first.start;
            let gap = before.filter(|before| follows(before) && !block.is_rest);
            before = Some(last);
            let count = block.count();
            let rows = (row..row + count).map(|row| self.row(row, &block.name, layouts)).collect();
            row += count;
            areas.push(Area {
                space: block.space.map(|space| space.0),
                name: block.space.map_or(String::new(), |space| space_name(layouts.iter(), space)),
                mapping: block.name.clone(),
                gap_before: gap.map(|before| first.start - before.end),
                rows,
            });
        }
        areas
    }

    fn row(&self, row: usize, name: &str, layouts: &[Arc<Mappings>]) -> Row {
        let parts = &self.rows[row];
        let sums = &self.sums[row * self.columns..(row + 1) * self.columns];
        let mapped = |of: &[Arc<Mappings>]| is_mapped(parts, [&*of[0], &*of[1]]);
        let mapped: Vec<Option<bool>> = layouts.chunks_exact(2).map(mapped).collect();
        let cells = |known: fn(&Sum) -> Option<Cell>| {
            sums.iter().zip(&mapped).map(|(sum, mapped)| masked(known(sum), *mapped)).collect()
        };
        let shown = || sums.iter().zip(&mapped).filter(|(_, mapped)| **mapped != Some(false));
        let known: f64 = shown().map(|(sum, _)| sum.known).sum();
        let hot: f64 = shown().map(|(sum, _)| sum.hot).sum();
        let peak = shown().map(|(sum, _)| sum.peak).fold(0.0, f64::max);
        let end = parts.iter().take_while(|part| part.space == parts[0].space).last();
        Row {
            start: parts[0].start,
            end: end.map_or(parts[0].end, |part| part.end),
            parts: parts.clone(),
            mapping: name.to_string(),
            cells: cells(Sum::cell),
            peaks: cells(Sum::peak),
            peak: (known > 0.0).then_some(peak),
            mean: (known > 0.0).then(|| (hot / known).min(1.0)),
        }
    }
}

/// Character for memory that was not probed.
pub(crate) const NOT_LOOKED_AT: char = '?';
/// Character for memory with too little evidence.
pub(crate) const UNKNOWN: char = 'u';
/// Legend for the character [`UNKNOWN`].
pub(crate) const UNKNOWN_MEANS: &str = "unknown: too little evidence to tell hot from cold";

/// Text on mapped bytes that are in no row.
pub(crate) fn left_out_text(bytes: u64) -> String {
    format!("no rows: {}, mapped but not resident or never seen", units::about_size(bytes))
}

impl Heatmap {
    /// Writes the report as text. A closed pipe is no error.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        unless_closed(self.write(out, style).and_then(|()| out.flush()))
    }

    fn write(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        self.write_title(out)?;
        let name = match (self.has_one_space(), self.areas.first()) {
            (true, Some(area)) => format!("space {} {}", area.space.unwrap_or(0), area.name),
            _ => String::new(),
        };
        writeln!(out, "{name:<width$} peak mean", width = LEFT + self.columns)?;
        self.areas.iter().try_for_each(|area| self.write_area(out, area, style))?;
        self.write_time_axis(out)?;
        self.write_left_out(out)?;
        write_legend(out, style.color)
    }

    fn has_one_space(&self) -> bool {
        let mut spaces = self.areas.iter().map(|area| area.space);
        let first = spaces.next();
        spaces.all(|space| Some(space) == first)
    }

    /// Name of the mapping, with that of its space if there are several, in `width` characters.
    pub(crate) fn title(&self, area: &Area, width: usize) -> String {
        let space = if self.has_one_space() { "" } else { &area.name };
        text::two(&area.mapping, space, width)
    }

    fn write_left_out(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.left_out_bytes {
            0 => Ok(()),
            bytes => writeln!(out, "{:LEFT$}{}", "", left_out_text(bytes)),
        }
    }

    fn write_title(&self, out: &mut dyn Write) -> io::Result<()> {
        let [from, to, column] =
            [self.from_ns, self.to_ns, (self.to_ns - self.from_ns) / self.columns as u64]
                .map(|ns| units::about_time(Duration::from_nanos(ns)));
        let how = if self.exact { "" } else { " (from tiles)" };
        writeln!(
            out,
            "{}: {} windows from {from} to {to}, column {column}, row {}{how}",
            self.target,
            self.windows,
            units::about_size(self.row_bytes)
        )
    }

    fn write_area(&self, out: &mut dyn Write, area: &Area, style: &Style) -> io::Result<()> {
        let room = style.width.saturating_sub(LEFT + self.columns + VALUES + 1).min(60);
        for (index, row) in area.rows.iter().enumerate() {
            let address = format!("{:#x}", row.start);
            write!(out, "{address:>width$} ", width = LEFT - 1)?;
            write_cells(out, &row.peaks, style.color)?;
            let [peak, mean] = [row.peak, row.mean]
                .map(|value| value.map_or_else(|| "-".into(), units::short_share));
            write!(out, " {peak:>4} {mean:>4}")?;
            let is_named = index == 0 && room >= 8 && !area.mapping.is_empty();
            let name = if is_named { self.title(area, room) } else { String::new() };
            writeln!(out, "{}{name}", if is_named { " " } else { "" })?;
        }
        Ok(())
    }

    /// Writes a tick every 16 columns, with the start time of its column.
    fn write_time_axis(&self, out: &mut dyn Write) -> io::Result<()> {
        let (mut ticks, mut labels) = (" ".repeat(LEFT), " ".repeat(LEFT));
        for column in 0..self.columns {
            let is_tick = column % 16 == 0;
            ticks.push(if is_tick { '|' } else { ' ' });
            if is_tick {
                let span = (self.to_ns - self.from_ns) as u128 * column as u128;
                let at = self.from_ns + (span / self.columns as u128) as u64;
                let label = units::about_time(Duration::from_nanos(at));
                labels.push_str(&format!("{label:<16}"));
            }
        }
        writeln!(out, "{}\n{}", ticks.trim_end(), labels.trim_end())
    }
}

fn write_cells(out: &mut dyn Write, cells: &[Cell], color: Color) -> io::Result<()> {
    if color == Color::None {
        return out.write_all(cells.iter().map(plain).collect::<String>().as_bytes());
    }
    let mut line = String::new();
    let mut now = String::new();
    for cell in cells {
        let (mode, text) = colored(cell, color);
        if mode != now {
            line.push_str(RESET);
            line.push_str(&mode);
            now = mode;
        }
        line.push(text);
    }
    line.push_str(RESET);
    out.write_all(line.as_bytes())
}

fn plain(cell: &Cell) -> char {
    match cell {
        Cell::Unmapped => ' ',
        Cell::NotLookedAt => NOT_LOOKED_AT,
        Cell::Unknown => UNKNOWN,
        Cell::Heat(heat) => DENSITY[step(*heat, DENSITY.len())],
    }
}

fn colored(cell: &Cell, color: Color) -> (String, char) {
    match cell {
        Cell::Unmapped => (String::new(), ' '),
        Cell::NotLookedAt => (FAINT.into(), NOT_LOOKED_AT),
        Cell::Unknown => (DOUBT.into(), UNKNOWN),
        Cell::Heat(heat) => (background(color, *heat), ' '),
    }
}

fn write_legend(out: &mut dyn Write, color: Color) -> io::Result<()> {
    let indent = " ".repeat(LEFT);
    write!(out, "{indent}0 ")?;
    // The middle of each step of the ramp, after exactly 0.
    let steps = (DENSITY.len() - 1) as f64;
    let middle = |step: usize| (step as f64 - 0.5).max(0.0) / steps;
    let ramp: Vec<Cell> = (0..DENSITY.len()).map(|step| Cell::Heat(middle(step))).collect();
    write_cells(out, &ramp, color)?;
    writeln!(out, " 1 frequency of the hottest memory in a cell")?;
    write!(out, "{indent}")?;
    write_cells(out, &[Cell::Heat(HOT_FREQUENCY)], color)?;
    writeln!(out, " hot from here ({HOT_FREQUENCY}); peak, mean: of a row, all the time")?;
    write!(out, "{indent}")?;
    write_cells(out, &[Cell::Unknown], color)?;
    write!(out, " unknown: little evidence; ")?;
    write_cells(out, &[Cell::NotLookedAt], color)?;
    writeln!(out, " not looked at, or not resident")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Rng;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Mapping, Region, Snapshot, Space, SpaceId};
    use tierscope_record::{Memory, Meta, Recorder};

    /// A cell of 100 pages: one page known with this frequency, the others unknown.
    fn mostly_unknown(frequency: f64) -> Sum {
        let part = |seen: f64| HeatPart {
            range: Range::new(SpaceId(0), 0, 4096),
            heat: frequency,
            seen,
            confidence: 1.0,
            unknown: 1.0 - seen,
        };
        let mut sum = Sum::default();
        sum.add(&part(1.0), 1.0);
        sum.add(&part(0.0), 99.0);
        sum
    }

    /// A recording of `count` windows; `regions` gives those of each.
    fn recorded(
        count: u64,
        layout: &Mappings,
        mut regions: impl FnMut(u64) -> Vec<Region>,
    ) -> Recording {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        for number in 0..count {
            let start = Time(number * 200_000_000);
            let end = start + Duration::from_millis(200);
            let snapshot = Snapshot { start, end, samples: 40, regions: regions(number) };
            let mappings = (number == 0).then_some(layout);
            recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    /// Mappings of 64 KiB to 8 GiB, with gaps in between.
    fn mappings(rng: &mut Rng, count: u64) -> Mappings {
        let mut at = 0x5500_0000_0000;
        let mapping = |number| {
            let start = at + (1 + rng.below(64)) * 4096;
            let bytes = (64 << 10) << rng.below(18);
            at = start + bytes;
            if number % 8 == 7 {
                at += 1 << 36;
            }
            let range = Range::new(SpaceId(0), start, start + bytes);
            let name = format!("lib{number}.so").into();
            Mapping { range, backing: Backing::File, name, writable: true, object: None }
        };
        let mappings = (0..count).map(mapping).collect();
        let spaces = vec![Space { id: SpaceId(0), name: "toy".into() }];
        Mappings { taken: Time(0), spaces, mappings, ..Mappings::default() }
    }

    /// Cuts each mapping into about `pieces` regions at random pages.
    fn cut(rng: &mut Rng, layout: &Mappings, pieces: u64) -> Vec<Range> {
        let mut ranges = Vec::new();
        for mapping in &layout.mappings {
            let pages = mapping.range.bytes() / 4096;
            let cuts = (1..pieces).map(|_| mapping.range.start + rng.below(pages) * 4096);
            let ends = [mapping.range.start, mapping.range.end];
            let points: std::collections::BTreeSet<u64> = cuts.chain(ends).collect();
            let points: Vec<u64> = points.into_iter().collect();
            ranges.extend(points.windows(2).map(|pair| Range::new(SpaceId(0), pair[0], pair[1])));
        }
        ranges
    }

    /// Differences of the cells of two maps of one grid, in order of size; and the number of cells
    /// that show heat in one of them only.
    fn compared(a: &Heatmap, b: &Heatmap) -> (Vec<f64>, usize) {
        let cells = |map: &Heatmap| -> Vec<Cell> {
            map.areas.iter().flat_map(|area| &area.rows).flat_map(|row| row.cells.clone()).collect()
        };
        let (a, b) = (cells(a), cells(b));
        assert_eq!(a.len(), b.len());
        let mut off = Vec::new();
        let mut other = 0;
        for pair in a.into_iter().zip(b) {
            match pair {
                (Cell::Heat(a), Cell::Heat(b)) => off.push((a - b).abs()),
                (a, b) => other += usize::from(a != b),
            }
        }
        off.sort_unstable_by(f64::total_cmp);
        (off, other)
    }

    // Of views that are made of tiles, p99 of the cells' error is at most 0.01, and at most one
    // cell in a hundred shows heat where the exact one does not, or the other way round.
    #[test]
    fn cells_of_tiles_are_nearly_exact() {
        let mut rng = Rng::seeded(7);
        let layout = mappings(&mut rng, 40);
        let fixed = cut(&mut rng, &layout, 60);
        let heats: Vec<f64> = fixed.iter().map(|_| rng.below(41) as f64).collect();
        type Regions<'a> = Box<dyn FnMut(u64) -> Vec<Region> + 'a>;
        let region =
            |range: Range, hits: f64| Region::sampled(range, hits.clamp(0.0, 40.0) as f32, 40);
        let (mut one, mut two, mut three) = (Rng::seeded(1), Rng::seeded(2), Rng::seeded(3));
        let kinds: [(&str, Regions<'_>); 5] = [
            (
                "constant",
                Box::new(|_| fixed.iter().zip(&heats).map(|(r, h)| region(*r, *h)).collect()),
            ),
            (
                "noise",
                Box::new(|_| {
                    fixed
                        .iter()
                        .zip(&heats)
                        .map(|(r, h)| region(*r, h + one.below(9) as f64 - 4.0))
                        .collect()
                }),
            ),
            (
                "regions that split",
                Box::new(|_| {
                    let ranges = cut(&mut two, &layout, 60);
                    ranges.into_iter().map(|r| region(r, ((r.start >> 24) % 41) as f64)).collect()
                }),
            ),
            (
                "come and go",
                Box::new(|number| {
                    let lives = |r: &Range| (r.start >> 24) % 7 != (number / 37) % 7;
                    fixed
                        .iter()
                        .zip(&heats)
                        .filter(|(r, _)| lives(r))
                        .map(|(r, h)| region(*r, *h))
                        .collect()
                }),
            ),
            (
                "phases",
                Box::new(|number| {
                    let phase = number / 130;
                    let heat =
                        |at: usize| if (at as u64 * 7 + phase * 13) % 20 < 4 { 36.0 } else { 0.0 };
                    let noise = three.below(4) as f64;
                    fixed.iter().enumerate().map(|(at, r)| region(*r, heat(at) + noise)).collect()
                }),
            ),
        ];
        for (name, regions) in kinds {
            let recording = recorded(1100, &layout, regions);
            for columns in [17, 60] {
                let grid = Grid { columns, rows: 40 };
                let tiles = heatmap_of(&recording, &View::default(), grid, 0).unwrap();
                let exact = heatmap_of(&recording, &View::default(), grid, u64::MAX).unwrap();
                let (off, other) = compared(&tiles, &exact);
                let at = |share: f64| off[((off.len() - 1) as f64 * share) as usize];
                let mean = off.iter().sum::<f64>() / off.len() as f64;
                println!(
                    "{name}: {} cells, mean {mean:.4}, p99 {:.4}, most {:.4}; {other} others",
                    off.len(),
                    at(0.99),
                    at(1.0)
                );
                assert!(at(0.99) <= 0.01 && other * 100 <= off.len());
            }
        }
    }

    #[test]
    fn a_known_hot_page_shows_in_unknown_memory() {
        assert_eq!(mostly_unknown(1.0).peak(), Some(Cell::Heat(1.0)));
        assert_eq!(mostly_unknown(HOT_FREQUENCY).peak(), Some(Cell::Heat(HOT_FREQUENCY)));
        assert_eq!(mostly_unknown(0.1).peak(), Some(Cell::Unknown));
        assert_eq!(mostly_unknown(1.0).cell(), Some(Cell::Unknown));
        assert_eq!(Sum::default().peak(), None);
    }
}
