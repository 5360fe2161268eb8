//! Draws the prepared screen.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color as Paint, Modifier, Style};

use tierscope_core::{SpaceId, units};

use super::focus::Scope;
use super::help::KEYS;
use super::screen::{Live, Pane, Shown};
use super::table::{self, Kind, Row};
use super::timeline::Motion;
use super::totals::{self, CpuShares};
use crate::heatmap::{Cell, NOT_LOOKED_AT, UNKNOWN};
use crate::missing_accesses::missing_accesses;
use crate::style::{self, Color};
use crate::text;
use crate::tiers::{InMemory, NOT_TOLD, Tiers};
use crate::view::{View, since_start};

/// Minimum size of a terminal: columns, lines.
pub const LEAST_SIZE: (u16, u16) = (60, 16);

/// Columns before the cells of a row: its address, and a mark where addresses were left out.
const LEFT: u16 = 16;
/// Columns after the cells on a wide terminal: the name of the mapping.
const RIGHT: u16 = 22;
/// Lines above the heatmap: title, window, totals, tiers, and the heatmap's own title.
const ABOVE: u16 = 5;
/// Lines below the heatmap that are no rows of the table: time, the table's title and head, keys.
const BELOW: u16 = 4;

/// Sizes of the parts of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Columns of the heatmap.
    pub(crate) columns: u16,
    /// Rows of the heatmap.
    pub(crate) heat_rows: u16,
    pub(crate) table_rows: u16,
    /// Columns for the mapping's name to the right of the heatmap.
    names: u16,
}

impl Layout {
    /// Two thirds of the lines for the heatmap. All zero if the terminal is too small.
    pub(crate) fn of(width: u16, height: u16) -> Self {
        if width < LEAST_SIZE.0 || height < LEAST_SIZE.1 {
            return Self::default();
        }
        let rows = height - ABOVE - BELOW;
        let table_rows = (rows / 3).max(4);
        let names = RIGHT.min(width / 5);
        let columns = width - LEFT - names;
        Self { columns, heat_rows: rows - table_rows, table_rows, names }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);

impl Live {
    /// Draws the screen as prepared for this size.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        self.draw_in(area, frame.buffer_mut());
    }

    fn draw_in(&self, area: Rect, buffer: &mut Buffer) {
        let layout = Layout::of(area.width, area.height);
        let mut canvas = Canvas { buffer, area, color: self.color };
        if layout == Layout::default() {
            return canvas.too_small();
        }
        self.draw_title(&mut canvas);
        match &self.shown {
            Some(shown) => {
                self.draw_window(&mut canvas, shown);
                self.draw_totals(&mut canvas, shown);
                self.draw_heatmap(&mut canvas, &layout, shown);
                self.draw_table(&mut canvas, &layout, shown);
            }
            None => canvas.text(0, 2, "waiting for the first window to end", FAINT),
        }
        self.draw_bottom(&mut canvas);
        if self.help {
            canvas.help();
        }
    }

    fn draw_title(&self, canvas: &mut Canvas<'_>) {
        let meta = self.recording.meta();
        let variant = meta.settings.get("variant").map_or(String::new(), |v| format!(" {v}"));
        let [sampling, window] = [meta.sampling, meta.window].map(units::about_time);
        let title = format!("{}  {}{variant}, {sampling} / {window}", meta.target, meta.instrument);
        canvas.text(0, 0, &title, BOLD);
        canvas.right(0, &format!(" {} ", self.motion()), MARKED);
    }

    fn motion(&self) -> String {
        match self.timeline.motion() {
            Motion::Follow if self.grows() => "following".into(),
            Motion::Play => format!("playing ×{}", short(self.timeline.speed())),
            Motion::Follow => "ended".into(),
            Motion::Still if !self.grows() && self.is_at_end() => "ended".into(),
            Motion::Still => "paused".into(),
        }
    }

    fn is_at_end(&self) -> bool {
        self.timeline.head().is_none_or(|head| head + 1 >= self.recording.commits().len())
    }

    fn draw_window(&self, canvas: &mut Canvas<'_>, shown: &Shown) {
        let commits = self.recording.commits();
        let shares = CpuShares::at(commits, shown.index);
        let at = since_start(&self.recording, commits[shown.index].end);
        let lag =
            self.lag.map_or(String::new(), |lag| format!(", shown after {} ms", lag.as_millis()));
        let line = format!(
            "window {} of {} at {}{lag} · profiler {} of a CPU (mean {}) · target {}",
            shown.index + 1,
            commits.len(),
            units::about_time(at),
            units::percent(shares.profiler),
            units::percent(shares.profiler_mean),
            units::percent(shares.target),
        );
        canvas.text(0, 1, &line, Style::new());
    }

    fn draw_totals(&self, canvas: &mut Canvas<'_>, shown: &Shown) {
        let commit = &self.recording.commits()[shown.index];
        let regions = &shown.snapshot.regions;
        let tiers = match totals::nodes(&shown.layout, regions) {
            None => self.in_memory(shown),
            Some(nodes) => {
                let node = |node: &totals::Node| {
                    let (bytes, hot) = (units::about_size(node.bytes), units::about_size(node.hot));
                    format!("{}: {bytes}, {hot} hot", node.name)
                };
                nodes.iter().map(node).collect::<Vec<_>>().join(" · ")
            }
        };
        // Where the machine knows it, regions are resident memory.
        let of = if shown.outside.is_some() { commit.region_bytes } else { commit.mapped_bytes };
        let line = format!(
            "mapped {} · hot {} · unknown {} · {} regions{}",
            units::about_size(commit.mapped_bytes),
            part(commit.hot_bytes, of),
            part(totals::unknown(regions), of),
            commit.regions,
            shown.outside.map_or(String::new(), |outside| outside.text()),
        );
        canvas.text(0, 2, &line, Style::new());
        canvas.text(0, 3, &tiers, Style::new());
    }

    /// Text on resident bytes and their tiers.
    fn in_memory(&self, shown: &Shown) -> String {
        let mut tiers = Tiers::of(self.recording.meta());
        let memory = InMemory::of(&shown.residence, &mut tiers, &View::default());
        match memory {
            Some(memory) => memory.text(&tiers),
            None if self.grows() => "resident bytes and tiers: not known yet".into(),
            None => NOT_TOLD.into(),
        }
    }

    fn draw_heatmap(&self, canvas: &mut Canvas<'_>, layout: &Layout, shown: &Shown) {
        self.draw_heatmap_title(canvas);
        let columns = self.timeline.columns();
        let rows = self.addresses.rows();
        for (index, row) in rows.iter().enumerate() {
            let y = ABOVE + index as u16;
            let first = index == 0;
            let last = if first { None } else { rows[index - 1].parts.last() };
            let gap = last.is_some_and(|last| !last.touches(&row.parts[0]));
            let mark = if gap { '┆' } else { ' ' };
            canvas.text(0, y, &format!("{:>#14x}{mark}", row.parts[0].start), FAINT);
            let cells = columns
                .clone()
                .map(|column| self.columns.cells(column).and_then(|cells| cells.get(index)));
            let from = LEFT + layout.columns - columns.len() as u16;
            cells.zip(from..).for_each(|(cell, x)| canvas.cell(x, y, cell));
            let x = LEFT + layout.columns + 1;
            let room = usize::from(layout.names) - 1;
            let title = row.title.as_ref();
            let name = title.map_or(String::new(), |(name, space)| {
                text::two(
                    name,
                    &space.map_or(String::new(), |space| self.block_space(space, shown)),
                    room,
                )
            });
            canvas.text(x, y, &name, FAINT);
        }
        self.draw_time(canvas, layout);
    }

    /// Name of the space of a block, if there are several.
    fn block_space(&self, space: SpaceId, shown: &Shown) -> String {
        match shown.layout.spaces.len() > 1 && self.scope() == Scope::All {
            true => self.space_name(space),
            false => String::new(),
        }
    }

    fn draw_heatmap_title(&self, canvas: &mut Canvas<'_>) {
        let path: String = self.path().map(|name| format!(" ▸ {name}")).collect();
        let row = self.addresses.row_bytes();
        let part = if self.addresses.is_whole() { "" } else { ", zoomed" };
        let title = format!(
            "heat of all{path}: {}{part}, {} a row, {} a column",
            units::about_size(self.addresses.bytes()),
            units::about_size(row),
            match self.timeline.per_column() {
                1 => "1 window".to_string(),
                windows => format!("{windows} windows"),
            },
        );
        canvas.bar(ABOVE - 1, &title, self.pane == Pane::Heatmap);
    }

    /// Draws the start of the first column and the end of the last one.
    fn draw_time(&self, canvas: &mut Canvas<'_>, layout: &Layout) {
        let (columns, commits) = (self.timeline.columns(), self.recording.commits());
        let per_column = self.timeline.per_column();
        let Some(first) = commits.get(columns.start * per_column) else { return };
        let last = (columns.end * per_column).min(commits.len()) - 1;
        let last = last.min(self.timeline.head().unwrap_or(last));
        let [from, to] = [first.start, commits[last].end]
            .map(|time| units::about_time(since_start(&self.recording, time)));
        let y = ABOVE + layout.heat_rows;
        let to = if self.timeline.is_at_head() { to } else { format!("{to} …") };
        let end = LEFT + layout.columns;
        let begin = end - columns.len() as u16;
        let room = usize::from(end.saturating_sub(begin));
        if from.chars().count() + to.chars().count() + 2 <= room {
            canvas.text(begin, y, &from, FAINT);
        }
        canvas.text(end.saturating_sub(to.chars().count() as u16), y, &to, FAINT);
    }

    fn draw_table(&self, canvas: &mut Canvas<'_>, layout: &Layout, shown: &Shown) {
        let y = ABOVE + layout.heat_rows + 1;
        let table = &self.table;
        let (first, last) = table.numbers();
        let title = match table.rows.len() {
            0 => format!("no {}", table.kind.name()),
            all => format!(
                "{} by {}: {first} to {last} of {all}",
                table.kind.name(),
                table.order.name()
            ),
        };
        canvas.bar(y, &title, self.pane == Pane::Table);
        let wide = canvas.area.width >= 100;
        let rates = if wide { rate_width(table) } else { 0 };
        canvas.text(0, y + 1, &head_line(wide, rates), FAINT);
        for (offset, (row, selected)) in (y + 2..).zip(table.in_view()) {
            let name = self.row_name(row, shown);
            let selected = selected && self.pane == Pane::Table;
            canvas.row(offset, row, &name, (wide, rates), selected);
        }
    }

    fn row_name(&self, row: &Row, shown: &Shown) -> String {
        let name = table::name(self.table.kind, &shown.layout, row);
        let many = shown.layout.spaces.len() > 1 && self.table.kind != Kind::Processes;
        match many && !row.is_other && matches!(self.scope(), Scope::All) {
            true => format!("{name}  {}", self.space_name(row.range.space)),
            false => name,
        }
    }

    fn draw_bottom(&self, canvas: &mut Canvas<'_>) {
        let y = canvas.area.height - 1;
        let damage = self.recording.damage().map(ToString::to_string);
        let missing = || missing_accesses(&self.recording).ok()?.into_iter().next();
        match self.note.clone().or(damage).or_else(missing) {
            Some(note) => canvas.text(0, y, &note, BOLD),
            None => canvas.text(0, y, BOTTOM, FAINT),
        }
    }
}

const BOTTOM: &str =
    "? help · q quit · Space pause · Enter/Esc in/out · +/- z/Z zoom · s sort · Tab";

/// Bytes with their share of `of`: `3 MiB (25.0 %)`.
fn part(bytes: u64, of: u64) -> String {
    let shown = units::about_size(bytes);
    match of {
        0 => shown,
        of => format!("{shown} ({})", units::percent(bytes as f64 / of as f64)),
    }
}

/// A number with at most two decimals: `1`, `0.5`, `16`.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Header line of the table.
fn head_line(wide: bool, rates: usize) -> String {
    let more = |head: &str, width| if wide { format!(" {head:>width$}") } else { String::new() };
    let (end, unknown) = (more("end", 14), more("unknown", 9));
    let rate = if rates > 0 { more("rate /s a page", rates) } else { String::new() };
    format!(
        "{:>14}{end} {:>9} {:>9} {:>9}{unknown}{rate} {:>5} {:>5} name",
        "start", "size", "freq", "hot", "age", "level"
    )
}

/// Width of the rate column for the rows in view; 0 if there are no rates.
fn rate_width(table: &table::Table) -> usize {
    let rates = table.in_view().filter_map(|(row, _)| row.rate);
    rates.map(|rate| rate.text().len().max(14)).max().unwrap_or(0)
}

/// A drawing surface within the terminal's buffer.
struct Canvas<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    color: Color,
}

impl Canvas<'_> {
    /// Writes text from column `x` of line `y`, cut at the right border.
    fn text(&mut self, x: u16, y: u16, text: &str, style: Style) {
        if x < self.area.width && y < self.area.height {
            let room = usize::from(self.area.width - x);
            self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, room, style);
        }
    }

    /// Writes right-aligned text.
    fn right(&mut self, y: u16, text: &str, style: Style) {
        let width = text.chars().count() as u16;
        self.text(self.area.width.saturating_sub(width), y, text, style);
    }

    /// Writes the title of a pane; marked if the arrows control it.
    fn bar(&mut self, y: u16, text: &str, active: bool) {
        let mark = if active { "▶ " } else { "  " };
        self.text(0, y, &format!("{mark}{text}"), BOLD);
    }

    /// Draws a cell of the heatmap; `None` if it has not been read yet.
    fn cell(&mut self, x: u16, y: u16, cell: Option<&Cell>) {
        match cell {
            None | Some(Cell::Unmapped) => {}
            Some(Cell::NotLookedAt) => self.mark(x, y, NOT_LOOKED_AT, FAINT),
            Some(Cell::Unknown) => self.mark(x, y, UNKNOWN, self.doubt()),
            Some(Cell::Heat(heat)) => self.swatch(x, y, *heat),
        }
    }

    fn mark(&mut self, x: u16, y: u16, mark: char, style: Style) {
        self.text(x, y, mark.encode_utf8(&mut [0; 4]), style);
    }

    /// Style of unknown memory: cyan, which is not in the ramp.
    fn doubt(&self) -> Style {
        match self.color {
            Color::None => Style::new(),
            _ => Style::new().fg(Paint::Cyan),
        }
    }

    /// Draws one cell in the colour of `heat`.
    fn swatch(&mut self, x: u16, y: u16, heat: f64) {
        let (text, style) = match style::shade(self.color, heat) {
            style::Shade::Density(density) => (density, Style::new()),
            style::Shade::Indexed(index) => (' ', Style::new().bg(Paint::Indexed(index))),
            style::Shade::Rgb(r, g, b) => (' ', Style::new().bg(Paint::Rgb(r, g, b))),
        };
        let style = style.remove_modifier(Modifier::REVERSED);
        self.text(x, y, text.encode_utf8(&mut [0; 4]), style);
    }

    fn row(&mut self, y: u16, row: &Row, name: &str, (wide, rates): (bool, usize), selected: bool) {
        let end = if wide { format!(" {:>#14x}", row.range.end) } else { String::new() };
        let frequency = match row.frequency() {
            Some(frequency) => units::percent(frequency),
            None if row.unknown > 0 => "unknown".into(),
            None => NOT_LOOKED_AT.into(),
        };
        let bytes = |bytes: u64| if bytes == 0 { String::new() } else { units::about_size(bytes) };
        let hot = bytes(row.hot);
        let unknown = if wide { format!(" {:>9}", bytes(row.unknown)) } else { String::new() };
        let rate = row.rate.map_or(String::new(), |rate| rate.text());
        let rate = if rates > 0 { format!(" {rate:>rates$}") } else { String::new() };
        let text = format!(
            "{:>#14x}{end} {:>9} {frequency:>9} {hot:>9}{unknown}{rate} {:>5} {:>5} ",
            row.range.start,
            units::about_size(row.bytes),
            row.age.map_or(String::new(), |age| age.to_string()),
            row.level.map_or(String::new(), |level| level.to_string()),
        );
        let room = usize::from(self.area.width).saturating_sub(text.chars().count());
        let style = if selected { MARKED } else { Style::new() };
        let line = format!("{text}{}", text::tail(name, room));
        let width = usize::from(self.area.width);
        self.text(0, y, &format!("{line:<width$}"), style);
        if let Some(heat) = row.frequency() {
            let x = if wide { 40 } else { 25 };
            self.swatch(x, y, heat);
        }
    }

    fn too_small(&mut self) {
        let (width, height) = LEAST_SIZE;
        let lines = [
            format!("too small: {} × {}", self.area.width, self.area.height),
            format!("at least {width} × {height} needed"),
            "enlarge the terminal, or q".to_string(),
        ];
        for (y, line) in (0..).zip(&lines) {
            self.text(0, y, line, Style::new());
        }
    }

    /// Draws the help over the screen.
    fn help(&mut self) {
        let room = usize::from(self.area.width);
        for y in 0..self.area.height {
            self.text(0, y, &" ".repeat(room), Style::reset());
        }
        self.text(0, 0, "keys (any key goes back)", BOLD);
        for (y, (keys, meaning)) in (1..).zip(KEYS) {
            self.text(0, y, &format!("{keys:<18} {meaning}"), Style::new());
        }
    }
}
