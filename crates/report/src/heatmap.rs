//! Heat by address and time.

use std::io::{self, Write};
use std::ops::Range as Span;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{Backing, Mappings, Range, RangeSet, Result, Time};
use tierscope_record::{Heat, HeatPart, Recording, windows_in};

use crate::areas::{self, Block};
use crate::names::{label, space_name};
use crate::style::{Color, DENSITY, DOUBT, FAINT, RESET, Style, background, step};
use crate::text::{self, unless_closed};
use crate::view::{View, since_start};

/// Size of a heatmap in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Columns (time); fewer if there are fewer windows.
    pub columns: usize,
    /// Approximate number of rows (addresses): every area has at least one row.
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

/// A row: a range of addresses over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// First byte of the row.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The mapping that covers most of it at the end of the time.
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

/// Adjacent rows without a gap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Area {
    /// Number of the space.
    pub space: u32,
    /// Name of the space.
    pub name: String,
    /// Bytes left out between the previous area of the same space and this one.
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
    /// Bytes per row; the last row of an area may be shorter.
    pub row_bytes: u64,
    /// Number of columns.
    pub columns: usize,
    /// The areas, ordered by space and address.
    pub areas: Vec<Area>,
}

/// Makes the heatmap of the view.
///
/// # Errors
/// Same as [`crate::summary`].
pub fn heatmap(recording: &Recording, view: &View, grid: Grid) -> Result<Heatmap> {
    let windows = view.windows(recording)?;
    let commits = &recording.commits()[windows.clone()];
    let columns = grid.columns.clamp(1, windows.len());
    let time = commits[0].start..commits[commits.len() - 1].end;
    let axis = Axis { time: time.clone(), columns };
    let layouts = layouts(recording, &windows, &axis)?;
    let shown = shown(recording, &windows, view, &layouts)?;
    let blocks = areas::blocks(&shown, grid.rows);
    let mut canvas = Canvas::new(&blocks, columns);
    recording.heat(windows.clone(), coarsest(windows.len(), columns), |heat| {
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
        row_bytes: blocks.first().map_or(0, |block| block.row_bytes),
        columns,
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

    fn length(&self) -> f64 {
        self.time.end.0.saturating_sub(self.time.start.0).max(1) as f64
    }

    /// End of a column.
    fn end_of(&self, column: usize) -> Time {
        let share = (column + 1) as f64 / self.columns as f64;
        Time(self.time.start.0 + (self.length() * share) as u64)
    }
}

/// The layout at the end of each column.
fn layouts(
    recording: &Recording,
    windows: &Span<usize>,
    axis: &Axis,
) -> Result<Vec<Arc<Mappings>>> {
    let commits = recording.commits();
    let at = |column| {
        let end = axis.end_of(column);
        let index = commits.partition_point(|row| row.end <= end);
        recording.layout(index.saturating_sub(1).clamp(windows.start, windows.end - 1))
    };
    (0..axis.columns).map(at).collect()
}

/// The addresses to show: everything that was mapped in the view; in recordings without mappings,
/// everything that was probed in the last window.
pub(crate) fn shown(
    recording: &Recording,
    windows: &Span<usize>,
    view: &View,
    layouts: &[Arc<Mappings>],
) -> Result<RangeSet> {
    let mut distinct: Vec<&Arc<Mappings>> = layouts.iter().collect();
    distinct.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let mappings = distinct.iter().flat_map(|layout| &layout.mappings);
    let visible = mappings.filter(|mapping| mapping.backing != Backing::Kernel);
    let mapped: RangeSet = visible.flat_map(|mapping| view.clip(&mapping.range)).collect();
    if !mapped.is_empty() {
        return Ok(mapped);
    }
    let last = recording.snapshot(windows.end - 1)?;
    Ok(last.regions.iter().flat_map(|region| view.clip(&region.range)).collect())
}

/// Sums of heat, by row and column.
struct Canvas {
    rows: Vec<Range>,
    columns: usize,
    /// Ordered by row, then column.
    sums: Vec<Sum>,
}

impl Canvas {
    fn new(blocks: &[Block], columns: usize) -> Self {
        let rows: Vec<Range> = blocks.iter().flat_map(Block::rows).collect();
        let sums = vec![Sum::default(); rows.len() * columns];
        Self { rows, columns, sums }
    }

    fn add(&mut self, heat: &Heat, axis: &Axis, view: &View) {
        let shares: Vec<_> = axis.shares(&heat.time).collect();
        for part in &heat.parts {
            view.clip(&part.range).for_each(|range| self.add_part(&range, part, &shares));
        }
    }

    fn add_part(&mut self, range: &Range, part: &HeatPart, shares: &[(usize, f64)]) {
        let key = (range.space, range.start);
        let first = self.rows.partition_point(|row| (row.space, row.end) <= key);
        for row in first..self.rows.len() {
            let Some(common) = self.rows[row].intersect(range) else { break };
            for (column, nanos) in shares {
                let sum = &mut self.sums[row * self.columns + column];
                sum.add(part, common.bytes() as f64 * nanos);
            }
        }
    }

    fn areas(&self, blocks: &[Block], layouts: &[Arc<Mappings>]) -> Vec<Area> {
        let mut areas = Vec::with_capacity(blocks.len());
        let mut row = 0;
        for (index, block) in blocks.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| blocks[before].range);
            let before = before.filter(|before| before.space == block.range.space);
            let count = block.rows().count();
            let rows = (row..row + count).map(|row| self.row(row, layouts)).collect();
            row += count;
            areas.push(Area {
                space: block.range.space.0,
                name: space_name(layouts.iter(), block.range.space),
                gap_before: before.map(|before| block.range.start - before.end),
                rows,
            });
        }
        areas
    }

    fn row(&self, row: usize, layouts: &[Arc<Mappings>]) -> Row {
        let range = self.rows[row];
        let sums = &self.sums[row * self.columns..(row + 1) * self.columns];
        let cells = |known: fn(&Sum) -> Option<Cell>| {
            let not_probed = |column: usize| match layouts[column].find(&range) {
                Some(_) => Cell::NotLookedAt,
                None => Cell::Unmapped,
            };
            let columns = sums.iter().enumerate();
            columns.map(|(column, sum)| known(sum).unwrap_or_else(|| not_probed(column))).collect()
        };
        let known: f64 = sums.iter().map(|sum| sum.known).sum();
        let hot: f64 = sums.iter().map(|sum| sum.hot).sum();
        let peak = sums.iter().map(|sum| sum.peak).fold(0.0, f64::max);
        Row {
            start: range.start,
            end: range.end,
            mapping: mapping_name(&layouts[layouts.len() - 1], &range),
            cells: cells(Sum::cell),
            peaks: cells(Sum::peak),
            peak: (known > 0.0).then_some(peak),
            mean: (known > 0.0).then(|| (hot / known).min(1.0)),
        }
    }
}

/// The name of the mapping that covers most of `range`.
fn mapping_name(layout: &Mappings, range: &Range) -> String {
    let from = layout
        .mappings
        .partition_point(|m| (m.range.space, m.range.end) <= (range.space, range.start));
    let inside = layout.mappings[from..]
        .iter()
        .map_while(|mapping| Some((mapping.range.intersect(range)?.bytes(), mapping)));
    match inside.max_by_key(|(bytes, _)| *bytes) {
        Some((_, mapping)) => label(mapping).into(),
        None => String::new(),
    }
}

/// Character for memory that was not probed.
pub(crate) const NOT_LOOKED_AT: char = '?';
/// Character for memory with too little evidence.
pub(crate) const UNKNOWN: char = 'u';
/// Legend for the character [`UNKNOWN`].
pub(crate) const UNKNOWN_MEANS: &str = "unknown: too little evidence to tell hot from cold";

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
        let mut space = None;
        for area in &self.areas {
            if space != Some(area.space) {
                let name = format!("space {} {}", area.space, area.name);
                writeln!(out, "{name:<width$} peak mean", width = LEFT + self.columns)?;
                space = Some(area.space);
            }
            self.write_area(out, area, style)?;
        }
        self.write_time_axis(out)?;
        write_legend(out, style.color)
    }

    fn write_title(&self, out: &mut dyn Write) -> io::Result<()> {
        let [from, to, column] =
            [self.from_ns, self.to_ns, (self.to_ns - self.from_ns) / self.columns as u64]
                .map(|ns| units::about_time(Duration::from_nanos(ns)));
        writeln!(
            out,
            "{}: {} windows from {from} to {to}, column {column}, row {}",
            self.target,
            self.windows,
            units::about_size(self.row_bytes)
        )
    }

    fn write_area(&self, out: &mut dyn Write, area: &Area, style: &Style) -> io::Result<()> {
        if let Some(gap) = area.gap_before {
            writeln!(out, "{:>1$}~~ gap of {2} ~~", "", LEFT, units::about_size(gap))?;
        }
        let room = style.width.saturating_sub(LEFT + self.columns + VALUES + 1).min(60);
        let mut named = None;
        for row in &area.rows {
            let address = format!("{:#x}", row.start);
            write!(out, "{address:>width$} ", width = LEFT - 1)?;
            write_cells(out, &row.peaks, style.color)?;
            let [peak, mean] = [row.peak, row.mean]
                .map(|value| value.map_or_else(|| "-".into(), units::short_share));
            write!(out, " {peak:>4} {mean:>4}")?;
            let is_named = named != Some(&row.mapping) && !row.mapping.is_empty() && room >= 8;
            let name = if is_named { text::tail(&row.mapping, room) } else { String::new() };
            writeln!(out, "{}{name}", if is_named { " " } else { "" })?;
            named = Some(&row.mapping);
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
    use tierscope_core::SpaceId;

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

    #[test]
    fn a_known_hot_page_shows_in_unknown_memory() {
        assert_eq!(mostly_unknown(1.0).peak(), Some(Cell::Heat(1.0)));
        assert_eq!(mostly_unknown(HOT_FREQUENCY).peak(), Some(Cell::Heat(HOT_FREQUENCY)));
        assert_eq!(mostly_unknown(0.1).peak(), Some(Cell::Unknown));
        assert_eq!(mostly_unknown(1.0).cell(), Some(Cell::Unknown));
        assert_eq!(Sum::default().peak(), None);
    }
}
