//! State of the live screen, and the effect of keys.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{Error, Mappings, Result, Snapshot, SpaceId, SpaceResidence};
use tierscope_record::{Recording, residence_of};

use super::addresses::Addresses;
use super::columns::Columns;
use super::draw::Layout;
use super::focus::{Scope, Step};
use super::key::Key;
use super::table::{self, Kind, Table};
use super::timeline::{Motion, Timeline};
use crate::blocks::Memory;
use crate::own_rows::OwnRows;
use crate::seen::Seen;
use crate::split::Outside;
use crate::style::Color;
use crate::view::View;

/// Start position of a screen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// At the newest window, following new ones.
    Newest,
    /// At the window of this time since the recording began, playing from there.
    Replay {
        /// Start time, since the recording began.
        from: Duration,
        /// Recorded seconds per second, within [`SPEEDS`](super::SPEEDS).
        speed: f64,
    },
}

/// The pane that the up and down arrows control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    /// The table: arrows select a row.
    #[default]
    Table,
    /// The heatmap: arrows move the addresses.
    Heatmap,
}

/// The displayed window.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) index: usize,
    pub(crate) layout: Arc<Mappings>,
    pub(crate) snapshot: Snapshot,
    pub(crate) residence: Vec<SpaceResidence>,
    /// Mapped bytes that are not resident, if recorded.
    pub(crate) outside: Option<Outside>,
    /// Spaces with rows of their own.
    pub(crate) own: OwnRows,
}

/// A live screen of a recording.
pub struct Live {
    pub(crate) recording: Recording,
    pub(crate) color: Color,
    pub(crate) timeline: Timeline,
    pub(crate) addresses: Addresses,
    /// Memory seen in the windows displayed so far.
    seen: Seen,
    pub(crate) columns: Columns,
    pub(crate) table: Table,
    pub(crate) pane: Pane,
    pub(crate) shown: Option<Shown>,
    pub(crate) help: bool,
    /// Message in the bottom line.
    pub(crate) note: Option<String>,
    /// Time from the end of the displayed window until it was displayed.
    pub(crate) lag: Option<Duration>,
    /// Motion to resume after a pause.
    resume: Motion,
    steps: Vec<Step>,
    /// Whether the table was made for another window than the displayed one.
    stale: bool,
    grows: bool,
    quits: bool,
}

impl Live {
    /// A screen that begins at `start`. Reads nothing yet beyond the data that `recording` holds
    /// already.
    #[must_use]
    pub fn new(recording: Recording, start: Start, color: Color) -> Self {
        let (resume, speed) = match start {
            Start::Newest => (Motion::Follow, 1.0),
            Start::Replay { speed, .. } => (Motion::Play, speed),
        };
        let mut live = Self {
            grows: !recording.is_ended(),
            recording,
            color,
            timeline: Timeline::new(resume, speed),
            addresses: Addresses::default(),
            seen: Seen::default(),
            columns: Columns::default(),
            table: Table::default(),
            pane: Pane::default(),
            shown: None,
            help: false,
            note: None,
            lag: None,
            resume,
            steps: Vec::new(),
            stale: true,
            quits: false,
        };
        let commits = live.recording.commits();
        live.timeline.set_windows(commits);
        if let (Start::Replay { from, .. }, Some(first)) = (start, commits.first()) {
            live.timeline.seek_time(first.start + from, commits);
            live.timeline.advance(Duration::ZERO, commits, live.grows);
        }
        live
    }

    /// Whether the user has quit.
    #[must_use]
    pub fn quits(&self) -> bool {
        self.quits
    }

    /// Whether windows may still be written to the recording.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// The displayed window, once [`Live::prepare`] has read it.
    #[must_use]
    pub fn shown(&self) -> Option<usize> {
        self.shown.as_ref().map(|shown| shown.index)
    }

    /// Whether [`Live::prepare`] has yet to read the window that should be displayed.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.timeline.head() != self.shown()
    }

    /// The displayed recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Shows a message in the bottom line until the next key.
    pub fn say(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }

    /// Sets the time from the end of the displayed window until it was displayed.
    pub fn set_lag(&mut self, lag: Option<Duration>) {
        self.lag = lag;
    }

    /// Marks the recording as complete: no more windows will be written, for the reason `why`.
    pub fn end(&mut self, why: impl Into<String>) {
        self.grows = false;
        self.say(why);
    }

    /// Processes a key. Reads nothing from the recording.
    pub fn update(&mut self, key: Key) {
        self.note = None;
        if std::mem::take(&mut self.help) && key != Key::Interrupt && key != Key::Char('q') {
            return;
        }
        match key {
            Key::Char('q') | Key::Interrupt => self.quits = true,
            Key::Char('?') => self.help = true,
            Key::Tab => self.pane = self.pane.other(),
            Key::Enter => self.step_down(),
            Key::Esc => self.step_up(),
            Key::Char('s') => self.table.set_order(self.table.order.next()),
            Key::Char('p') => self.tabulate(Kind::Processes),
            Key::Char('m') => self.tabulate(Kind::Mappings),
            Key::Char('r') => self.tabulate(Kind::Regions),
            Key::Up | Key::Char('k') => self.vertical(-1),
            Key::Down | Key::Char('j') => self.vertical(1),
            Key::PageUp => self.vertical(-self.page()),
            Key::PageDown => self.vertical(self.page()),
            Key::Char('+' | '=') => self.addresses.zoom_in(),
            Key::Char('-') => self.addresses.zoom_out(),
            key => self.update_time(key),
        }
    }

    fn update_time(&mut self, key: Key) {
        let commits = self.recording.commits();
        match key {
            Key::Left | Key::Char('h') => self.timeline.scroll(-1),
            Key::Right | Key::Char('l') => self.timeline.scroll(1),
            Key::Char('H') => self.timeline.scroll(-PAGE_OF_COLUMNS),
            Key::Char('L') => self.timeline.scroll(PAGE_OF_COLUMNS),
            Key::Char('z') => self.timeline.zoom_in(),
            Key::Char('Z') => self.timeline.zoom_out(),
            Key::Char('0') => {
                self.addresses.reset();
                self.timeline.reset();
            }
            Key::Char(' ') => self.timeline.toggle(self.resume, commits),
            Key::Char('<' | ',') => self.timeline.step(-1, commits),
            Key::Char('>' | '.') => self.timeline.step(1, commits),
            Key::Home => self.timeline.seek_start(commits),
            Key::End => self.timeline.seek_end(commits, self.grows),
            Key::Char('[') => self.timeline.change_speed(0.5),
            Key::Char(']') => self.timeline.change_speed(2.0),
            _ => {}
        }
    }

    fn vertical(&mut self, rows: i64) {
        match self.pane {
            Pane::Table => self.table.select(rows),
            Pane::Heatmap => self.addresses.scroll(rows),
        }
    }

    fn page(&self) -> i64 {
        let rows = match self.pane {
            Pane::Table => self.table.room(),
            Pane::Heatmap => self.addresses.rows().len() / 2,
        };
        rows.max(1) as i64
    }

    fn tabulate(&mut self, kind: Kind) {
        if self.table.kind != kind {
            self.table.set_kind(kind);
            self.stale = true;
        }
    }

    /// The current scope.
    pub(crate) fn scope(&self) -> Scope {
        self.steps.last().map_or(Scope::All, |step| step.scope)
    }

    /// Names of the steps from everything down to the current scope.
    pub(crate) fn path(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| step.name.as_str())
    }

    /// Narrows the scope to the selected row: from process to mapping to region.
    fn step_down(&mut self) {
        let (Some(row), Some(shown)) = (self.table.selected(), &self.shown) else { return };
        if row.is_other {
            return;
        }
        let before = self.table.kind;
        let name = match before {
            Kind::Regions => format!("{:#x}-{:#x}", row.range.start, row.range.end),
            kind => table::name(kind, &shown.layout, row),
        };
        let (scope, next) = match before {
            Kind::Processes => (Scope::Space(row.range.space), Kind::Mappings),
            Kind::Mappings | Kind::Regions => (Scope::Range(row.range), Kind::Regions),
        };
        if scope == self.scope() {
            return;
        }
        self.steps.push(Step { scope, name, before });
        self.table.set_kind(next);
        self.rescope();
    }

    fn step_up(&mut self) {
        if let Some(step) = self.steps.pop() {
            self.table.set_kind(step.before);
            self.rescope();
        }
    }

    fn rescope(&mut self) {
        self.addresses.reset();
        self.stale = true;
        self.set_domain();
    }

    /// Advances a replay by `elapsed`.
    pub fn advance(&mut self, elapsed: Duration) {
        self.timeline.advance(elapsed, self.recording.commits(), self.grows);
    }

    /// Time until a replay shows its next window, if nothing else happens.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.timeline.due(self.recording.commits())
    }

    /// Reads newly committed windows; returns whether there is anything new to show.
    ///
    /// # Errors
    /// If reading fails. Data read earlier is kept.
    pub fn refresh(&mut self) -> Result<bool> {
        let new = self.recording.refresh()?;
        if self.recording.is_ended() {
            self.grows = false;
        }
        self.timeline.set_windows(self.recording.commits());
        Ok(new > 0)
    }

    /// Fits the screen to its size, and reads the data to be shown: all of the displayed window,
    /// and a limited part of the heatmap. Returns whether the data is complete; if not, call again.
    pub fn prepare(&mut self, width: u16, height: u16) -> bool {
        let layout = Layout::of(width, height);
        self.timeline.set_room(layout.columns.into());
        self.addresses.set_room(layout.heat_rows.into());
        self.table.set_room(layout.table_rows.into());
        self.try_prepare().unwrap_or_else(|error| {
            self.say(error.to_string());
            true
        })
    }

    fn try_prepare(&mut self) -> Result<bool, Error> {
        let Some(head) = self.timeline.head() else { return Ok(true) };
        self.show(head)?;
        let Some(shown) = &self.shown else { return Ok(true) };
        if std::mem::take(&mut self.stale) {
            let scope = self.scope();
            self.table.rebuild(&shown.layout, &shown.snapshot.regions, &scope, &shown.own);
        }
        self.columns.set(self.addresses.rows(), self.timeline.per_column());
        self.columns.fill(&self.recording, self.timeline.columns(), head)
    }

    /// Reads window `head`, unless it is displayed already.
    fn show(&mut self, head: usize) -> Result<()> {
        if self.shown() == Some(head) {
            return Ok(());
        }
        let snapshot = self.recording.snapshot(head)?;
        // Before the layout: the recording keeps the one that was read last.
        let own = OwnRows::at(&self.recording, head)?;
        let layout = self.recording.layout(head)?;
        let same = self.shown.as_ref().is_some_and(|shown| {
            Arc::ptr_eq(&shown.layout, &layout) && !layout.mappings.is_empty()
        });
        let metrics = self.recording.metrics(head)?;
        let (residence, outside) = (residence_of(&metrics), Outside::of(&metrics));
        self.seen.add(&snapshot.regions, &View::default());
        self.seen.keep(&layout);
        self.shown = Some(Shown { index: head, layout, snapshot, residence, outside, own });
        self.stale = true;
        match self.memory() {
            Some(memory) if same => self.addresses.grow(memory),
            _ => self.set_domain(),
        }
        Ok(())
    }

    fn set_domain(&mut self) {
        if let Some(memory) = self.memory() {
            self.addresses.set_domain(memory);
        }
    }

    /// The memory of the scope.
    fn memory(&self) -> Option<Memory> {
        let shown = self.shown.as_ref()?;
        let own = match self.scope() {
            Scope::All => shown.own.clone(),
            Scope::Space(_) | Scope::Range(_) => OwnRows::default(),
        };
        let layouts = std::slice::from_ref(&shown.layout);
        Some(self.seen.memory(layouts, &self.scope().view(), own))
    }

    /// The name of a space in the displayed window.
    pub(crate) fn space_name(&self, space: SpaceId) -> String {
        self.shown
            .as_ref()
            .map_or(String::new(), |shown| shown.layout.space_name(space).to_string())
    }
}

impl Pane {
    fn other(self) -> Self {
        match self {
            Pane::Table => Pane::Heatmap,
            Pane::Heatmap => Pane::Table,
        }
    }
}

/// Columns that the keys H and L scroll by.
const PAGE_OF_COLUMNS: i64 = 20;
