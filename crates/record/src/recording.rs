//! Reads a recording, finished or still being written.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use tierscope_core::drive::Window;
use tierscope_core::{
    Action, CpuTime, Error, ErrorKind, Mappings, Outcome, Result, Snapshot, SpaceResidence, Time,
    names,
};

use crate::columns::Columns;
use crate::commit::Commit;
use crate::decode::{self, MappingRow};
use crate::dir::DirSource;
use crate::encode::Metric;
use crate::head::Head;
use crate::heat::{self, Heat};
use crate::message::{self, Framed};
use crate::meta::Meta;
use crate::residence::residence_of;
use crate::store::Source;
use crate::table::Table;
use crate::tiles::{Bin, windows_in};

/// Bytes per read of commit rows, and of windows that are only checked.
const PIECE: u64 = 4 << 20;

/// Most bytes that a window may have added to a table: a sparse file can be as long as its commit
/// row says.
const MOST_BYTES: u64 = 256 << 20;

/// A recording, opened for reading.
///
/// Holds only its commit rows (about 250 bytes a window); windows and tiles are read on request,
/// and verified against the checksums in their commit rows.
pub struct Recording {
    source: Box<dyn Source + Send + Sync>,
    meta: Meta,
    /// Schemas of the tables, by table number.
    heads: Vec<Head>,
    commits: Vec<Commit>,
    /// Offset in `windows.arrows` up to which rows were read.
    at: u64,
    /// Start value of the checksum chain.
    origin: u32,
    ended: bool,
    damage: Option<Error>,
    /// Whether windows at the end were given up: no further ones are read.
    torn: bool,
    /// Cache of the layout read last: consecutive windows mostly share it.
    layout: Mutex<Option<(u64, Arc<Mappings>)>>,
}

/// A committed window.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Regions of the window.
    pub snapshot: Snapshot,
    /// Spaces and mappings, if they changed with this window.
    pub mappings: Option<Arc<Mappings>>,
    /// Actions issued during the window.
    pub actions: Vec<Action>,
    /// Actions completed during the window.
    pub outcomes: Vec<Outcome>,
    /// CPU time at the end of the window.
    pub cpu: CpuTime,
}

impl Frame {
    /// The window in the form that the drive loops pass to a sink.
    #[must_use]
    pub fn as_window(&self) -> Window<'_> {
        Window {
            mappings: self.mappings.as_deref(),
            actions: &self.actions,
            outcomes: &self.outcomes,
            cpu: self.cpu,
            ..Window::of(&self.snapshot)
        }
    }
}

impl Recording {
    /// Opens the recording in `dir`.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if it is no recording, was cut short before its first window, or was
    /// written by a newer version. Damage further on is no error here: see [`Recording::damage`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::from_source(Box::new(DirSource::open(dir.as_ref())?))
    }

    /// Opens the recording in `source`.
    ///
    /// # Errors
    /// As for [`Recording::open`].
    pub fn from_source(source: Box<dyn Source + Send + Sync>) -> Result<Self> {
        let name = source.name();
        let head =
            |table| Head::read(source.as_ref(), table).map_err(|e| foreign(&name, table, &e));
        // The windows are opened first: a directory without them is no recording.
        let windows = head(Table::Windows)?;
        let mut heads = Table::PAYLOAD.map(head).into_iter().collect::<Result<Vec<_>>>()?;
        check_same_recording(&name, &windows, &heads)?;
        let meta = Meta::from_map(windows.metadata()).map_err(|key| {
            foreign(&name, Table::Windows, &format!("its schema metadata has no sound `{key}`"))
        })?;
        let (at, origin) = (windows.len, Commit::origin(meta.started_nanos()).row_crc);
        heads.push(windows);
        let mut recording = Self {
            source,
            meta,
            heads,
            commits: Vec::new(),
            at,
            origin,
            ended: false,
            damage: None,
            torn: false,
            layout: Mutex::new(None),
        };
        recording.refresh()?;
        recording.drop_torn_end();
        Ok(recording)
    }

    /// Gives up windows at the end that did not reach the medium before a power cut, though their
    /// commit rows did.
    fn drop_torn_end(&mut self) {
        let count = self.commits.len();
        let sound = if self.ended {
            // The mark at the end vouches for the windows; a look at the last bytes costs little.
            Table::PAYLOAD.into_iter().filter_map(|table| self.torn_end(table)).min()
        } else {
            let synced = self.commits.last().map_or(0, |row| row.synced.min(row.window));
            (synced as usize..count).find(|index| self.torn_table(*index).is_some())
        };
        let sound = sound.unwrap_or(count);
        if sound < count {
            let (first, table) = (sound, self.torn_table(sound).unwrap_or(Table::Windows));
            self.commits.truncate(first);
            let cause = format!("window {first} does not have its checksum");
            self.damage = Some(self.cut_off(table, &cause));
            (self.torn, self.ended) = (true, false);
        }
    }

    /// The first of the windows at the end of `table` that do not have their checksums there.
    fn torn_end(&self, table: Table) -> Option<usize> {
        let end = |index: usize| self.commits[index].ends[table as usize];
        let written = |index: &usize| self.begin(table, *index) < end(*index);
        let last = (0..self.commits.len()).rev().filter(written);
        last.take_while(|index| self.is_torn(table, *index)).last()
    }

    /// The first table in which window `index` does not have its checksum.
    fn torn_table(&self, index: usize) -> Option<Table> {
        Table::PAYLOAD.into_iter().find(|table| self.is_torn(*table, index))
    }

    /// Whether the bytes of window `index` in `table` do not have their checksum. Bytes that cannot
    /// be read are left to readers of the window.
    fn is_torn(&self, table: Table, index: usize) -> bool {
        let row = &self.commits[index];
        let (mut at, end) = (self.begin(table, index), row.ends[table as usize]);
        let mut sum = crc32fast::Hasher::new();
        while at < end {
            let piece = (end - at).min(PIECE);
            let Ok(bytes) = self.source.read(table, at, piece as usize) else { return false };
            sum.update(&bytes);
            at += piece;
        }
        sum.finalize() != row.crcs[table as usize]
    }

    /// Reads the windows that were committed since the last call; returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if reading fails.
    pub fn refresh(&mut self) -> Result<usize> {
        if self.torn {
            return Ok(0);
        }
        let before = self.commits.len();
        self.damage = None;
        while !self.ended && self.read_piece()? {}
        Ok(self.commits.len() - before)
    }

    /// Reads some commit rows; whether there may be more.
    fn read_piece(&mut self) -> Result<bool> {
        let length = self.length(Table::Windows)?;
        let piece = length.saturating_sub(self.at).min(PIECE);
        let bytes = self.source.read(Table::Windows, self.at, piece as usize);
        let bytes = Buffer::from_vec(bytes.map_err(|e| self.unreadable(Table::Windows, &e))?);
        let lengths = self.payload_lengths()?;
        let mut at = 0;
        loop {
            match self.next_row(&bytes, at, &lengths) {
                Ok(Some(next)) => at = next,
                Ok(None) => break,
                Err(cause) => {
                    self.damage = Some(self.damaged(Table::Windows, &cause));
                    self.at += at as u64;
                    return Ok(false);
                }
            }
        }
        self.at += at as u64;
        Ok(at > 0 && self.at < length)
    }

    /// Reads the row at `at`; returns the offset of the next one, or `None` if the row is
    /// incomplete.
    fn next_row(
        &mut self,
        bytes: &Buffer,
        at: usize,
        lengths: &[u64],
    ) -> Result<Option<usize>, String> {
        let framing = match message::frame(bytes, at)? {
            Framed::Whole(framing) => framing,
            Framed::Incomplete => return Ok(None),
            Framed::End => {
                self.ended = true;
                return Ok(None);
            }
        };
        let columns = self.head(Table::Windows).batch(bytes, &framing)?;
        if columns.rows() != 1 {
            return Err(format!("a commit of {} rows", columns.rows()));
        }
        for row in Commit::from_batch(&columns)? {
            self.check(&row, lengths)?;
            self.commits.push(row);
        }
        Ok(Some(framing.end()))
    }

    /// Checks that a row follows the last one, and that the data it covers exist.
    fn check(&self, row: &Commit, lengths: &[u64]) -> Result<(), String> {
        let last = self.commits.last();
        if row.row_crc != row.checksum(last.map_or(self.origin, |row| row.row_crc)) {
            return Err("a commit row does not have its checksum".into());
        }
        if row.window != self.commits.len() as u64 {
            return Err(format!("window {} follows {} windows", row.window, self.commits.len()));
        }
        for (index, table) in Table::PAYLOAD.into_iter().enumerate() {
            if row.ends[index] > lengths[index] {
                return Err(format!("{} was cut short", table.file_name()));
            }
            if row.ends[index] < self.begin(table, self.commits.len()) {
                return Err(format!("window {} ends before it begins", row.window));
            }
        }
        Ok(())
    }

    /// Description of the recording.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The commit rows, in order: a window's key figures, available without reading the window.
    #[must_use]
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }

    /// Whether the recording was ended cleanly. If not, it is still being written, or its recorder
    /// was killed.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The damage that cuts off further windows, if any.
    #[must_use]
    pub fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Name of the recording, for errors and titles; [plain](names::plain).
    #[must_use]
    pub fn name(&self) -> String {
        names::plain(&self.source.name()).into()
    }

    /// From the first window's start to the last one's end.
    #[must_use]
    pub fn time(&self) -> Option<Range<Time>> {
        Some(self.commits.first()?.start..self.commits.last()?.end)
    }

    /// Indices of the windows that overlap `time`.
    #[must_use]
    pub fn during(&self, time: &Range<Time>) -> Range<usize> {
        let first = self.commits.partition_point(|row| row.end <= time.start);
        let end = self.commits.partition_point(|row| row.start < time.end);
        first..end.max(first)
    }

    /// Reads window `index` completely.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if its data are damaged; [`ErrorKind::Io`] if reading fails.
    ///
    /// # Panics
    /// If there is no such window.
    pub fn window(&self, index: usize) -> Result<Frame> {
        let row = &self.commits[index];
        let changed = row.layout != self.previous_layout(index);
        Ok(Frame {
            snapshot: self.snapshot(index)?,
            mappings: changed.then(|| self.layout(index)).transpose()?,
            actions: self.rows(Table::Actions, index, decode::actions)?,
            outcomes: self.rows(Table::Outcomes, index, decode::outcomes)?,
            cpu: row.cpu,
        })
    }

    /// Reads the windows of `range` one at a time.
    pub fn windows(&self, range: Range<usize>) -> impl Iterator<Item = Result<Frame>> + '_ {
        range.map(|index| self.window(index))
    }

    /// Reads the regions of window `index`.
    ///
    /// # Errors
    /// As for [`Recording::window`].
    ///
    /// # Panics
    /// If there is no such window.
    pub fn snapshot(&self, index: usize) -> Result<Snapshot> {
        let row = &self.commits[index];
        let regions = self.rows(Table::Regions, index, decode::regions)?;
        Ok(Snapshot { start: row.start, end: row.end, samples: row.samples, regions })
    }

    /// Reads the metrics committed with window `index`.
    ///
    /// # Errors
    /// As for [`Recording::window`].
    ///
    /// # Panics
    /// If there is no such window.
    pub fn metrics(&self, index: usize) -> Result<Vec<Metric>> {
        self.rows(Table::Metrics, index, decode::metrics)
    }

    /// Resident memory at the end of window `index` as last measured, by space; empty if it was not
    /// recorded.
    ///
    /// # Errors
    /// As for [`Recording::window`].
    ///
    /// # Panics
    /// If there is no such window.
    pub fn residence(&self, index: usize) -> Result<Vec<SpaceResidence>> {
        self.metrics(index).map(|metrics| residence_of(&metrics))
    }

    /// Spaces and mappings in force in window `index`.
    ///
    /// # Errors
    /// As for [`Recording::window`].
    ///
    /// # Panics
    /// If there is no such window.
    pub fn layout(&self, index: usize) -> Result<Arc<Mappings>> {
        let number = self.commits[index].layout;
        let mut last = self.layout.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*last {
            Some((known, layout)) if *known == number => Ok(Arc::clone(layout)),
            _ => {
                let layout = Arc::new(self.read_layout(number)?);
                *last = Some((number, Arc::clone(&layout)));
                Ok(layout)
            }
        }
    }

    fn read_layout(&self, number: u64) -> Result<Mappings> {
        if number == 0 {
            return Ok(Mappings::default());
        }
        let index = self.commits.partition_point(|row| row.layout < number);
        Ok(Mappings {
            taken: self.commits[index].layout_taken,
            spaces: self.rows(Table::Spaces, index, decode::spaces)?,
            ..self.mappings(index)?
        })
    }

    /// Mappings and views of the layout of window `index`, without spaces.
    fn mappings(&self, index: usize) -> Result<Mappings> {
        let mut layout = Mappings::default();
        for row in self.rows(Table::Mappings, index, decode::mappings)? {
            match row {
                MappingRow::Mapping(mapping) => layout.mappings.push(mapping),
                MappingRow::Shared(view) => {
                    layout.shared = Some(view.memory.space);
                    layout.views.push(view);
                }
                MappingRow::Inherited(view) => layout.views.push(view),
            }
        }
        Ok(layout)
    }

    fn previous_layout(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.commits[before].layout)
    }

    /// Heat over `windows`, in pieces of up to `8^coarsest` windows, in order of time: from tiles
    /// where they fit, else from regions. Each piece is passed to `take`.
    ///
    /// # Errors
    /// As for [`Recording::window`]; or the first error of `take`.
    pub fn heat(
        &self,
        windows: Range<usize>,
        coarsest: u8,
        take: impl FnMut(Heat) -> Result<()>,
    ) -> Result<()> {
        self.heat_where(windows, coarsest, |_, _| true, take)
    }

    /// As [`Recording::heat`], from tiles for whose zoom and windows `may_take` is true.
    ///
    /// # Errors
    /// As for [`Recording::heat`].
    pub fn heat_where(
        &self,
        windows: Range<usize>,
        coarsest: u8,
        may_take: impl Fn(u8, Range<usize>) -> bool,
        mut take: impl FnMut(Heat) -> Result<()>,
    ) -> Result<()> {
        let end = windows.end.min(self.commits.len());
        for (zoom, first) in heat::cover(windows.start..end, coarsest, may_take) {
            let last = first + windows_in(zoom) as usize - 1;
            let time = self.commits[first].start..self.commits[last].end;
            take(match zoom {
                0 => Heat::of_snapshot(&self.snapshot(first)?),
                _ => Heat::of_bins(time, &self.tile(zoom, last)?),
            })?;
        }
        Ok(())
    }

    /// Bins of the tile of `zoom` that window `last` completed; none if nothing was observed.
    fn tile(&self, zoom: u8, last: usize) -> Result<Vec<Bin>> {
        let index = last as u64 / windows_in(zoom);
        for columns in self.batches(Table::Tiles, last)? {
            let failed = |e: String| self.damaged(Table::Tiles, &e);
            if decode::tile_name(&columns).map_err(failed)? == Some((zoom, index)) {
                return decode::bins(&columns).map_err(failed);
            }
        }
        Ok(Vec::new())
    }

    /// Decodes the rows that window `index` added to `table`.
    fn rows<T>(
        &self,
        table: Table,
        index: usize,
        decode: impl Fn(&Columns) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        for columns in self.batches(table, index)? {
            let failed = |e: String| self.damaged(table, &format!("window {index}: {e}"));
            rows.append(&mut decode(&columns).map_err(failed)?);
        }
        Ok(rows)
    }

    fn batches(&self, table: Table, index: usize) -> Result<Vec<Columns>> {
        let bytes = self.bytes(table, index)?;
        if crc32fast::hash(&bytes) != self.commits[index].crcs[table as usize] {
            let cause = format!("window {index} does not have its checksum");
            return Err(self.damaged(table, &cause));
        }
        let failed = |e: String| self.damaged(table, &format!("window {index}: {e}"));
        self.head(table).batches(bytes).map_err(failed)
    }

    /// The bytes that window `index` added to `table`.
    fn bytes(&self, table: Table, index: usize) -> Result<Vec<u8>> {
        let (begin, end) = (self.begin(table, index), self.commits[index].ends[table as usize]);
        if begin == end {
            return Ok(Vec::new());
        }
        if end - begin > MOST_BYTES {
            let cause = format!("window {index} claims {} bytes", end - begin);
            return Err(self.damaged(table, &cause));
        }
        let bytes = self.source.read(table, begin, (end - begin) as usize);
        bytes.map_err(|e| self.unreadable(table, &e))
    }

    /// The data that window `index` added to `table`, as record batches of [`Recording::schema`];
    /// for [`Table::Windows`], its commit row.
    ///
    /// # Errors
    /// As for [`Recording::window`].
    ///
    /// # Panics
    /// If there is no such window.
    pub fn record_batches(&self, table: Table, index: usize) -> Result<Vec<RecordBatch>> {
        let failed = |e: &dyn std::fmt::Display| self.damaged(table, &e.to_string());
        let schema = self.schema(table);
        if table == Table::Windows {
            let row = self.commits[index].to_batch(schema).map_err(|e| failed(&e))?;
            return Ok(vec![row]);
        }
        let ours = |columns: Columns| columns.select(&schema, table).map_err(|e| failed(&e));
        self.batches(table, index)?.into_iter().map(ours).collect()
    }

    /// The columns of `table` known to this version, with the recording's metadata.
    #[must_use]
    pub fn schema(&self, table: Table) -> SchemaRef {
        table.schema(&self.meta.to_map())
    }

    /// Offset in `table` of window `index`.
    fn begin(&self, table: Table, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(before) => self.commits[before].ends[table as usize],
            None => self.head(table).len,
        }
    }

    fn head(&self, table: Table) -> &Head {
        &self.heads[table as usize]
    }

    fn payload_lengths(&self) -> Result<Vec<u64>> {
        Table::PAYLOAD.into_iter().map(|table| self.length(table)).collect()
    }

    fn length(&self, table: Table) -> Result<u64> {
        let length = self.source.len(table).map_err(|e| self.unreadable(table, &e))?;
        Ok(length.unwrap_or(0))
    }

    fn unreadable(&self, table: Table, cause: &std::io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("cannot read {} of {}", table.file_name(), self.name()))
            .cause(cause)
            .remedy("check the disk and the permissions of the recording")
    }

    fn damaged(&self, table: Table, cause: &str) -> Error {
        match table {
            Table::Windows => self.cut_off(table, cause),
            _ => self
                .damage_of(table, cause)
                .remedy("choose a time range without that window, or restore the file"),
        }
    }

    /// Damage that ends the recording.
    fn cut_off(&self, table: Table, cause: &str) -> Error {
        let kept = self.commits.len();
        self.damage_of(table, cause).remedy(format!("the {kept} windows before can be read"))
    }

    fn damage_of(&self, table: Table, cause: &str) -> Error {
        let file = table.file_name();
        Error::new(ErrorKind::Data, format!("{file} of recording {} is damaged", self.name()))
            .cause(cause)
    }
}

fn foreign(name: &str, table: Table, cause: &str) -> Error {
    let newer = cause.contains("newer tierscope");
    let remedy = if newer {
        "update tierscope"
    } else {
        "give the directory that `tierscope record -o DIR` wrote"
    };
    Error::new(ErrorKind::Data, format!("cannot open recording {name}"))
        .cause(format!("{}: {cause}", table.file_name()))
        .remedy(remedy)
}

fn check_same_recording(name: &str, windows: &Head, heads: &[Head]) -> Result<()> {
    let started = |head: &Head| head.metadata().get("tierscope.started_unix_ns").cloned();
    for (head, table) in heads.iter().zip(Table::PAYLOAD) {
        if started(head) != started(windows) {
            return Err(foreign(name, table, "it belongs to another recording"));
        }
    }
    Ok(())
}
