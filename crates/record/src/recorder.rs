//! Writes a recording, window by window.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::channel;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, SchemaRef};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::session::WindowStore;
use tierscope_core::{
    Error, ErrorKind, Heat, Range, Region, Residence, Result, Snapshot, SpaceId, Time, Unknown,
};

use crate::access::Access;
use crate::background::background;
use crate::batch::Batch;
use crate::commit::{Commit, nanos};
use crate::dir::DirStore;
use crate::encode::{self, Metric};
use crate::message::MAX_ROWS;
use crate::meta::Meta;
use crate::not_resident::{Layout, NotResident};
use crate::residence;
use crate::store::{Store, end, sync_all};
use crate::sync::{Order, Pass, Syncing};
use crate::table::Table;
use crate::tiles::Pyramid;

/// Alignment of IPC buffers: Arrow's minimum, since commit rows are many small buffers.
const ALIGNMENT: usize = 8;

/// Writes a recording: a [`Sink`] for the drive loops.
///
/// A window is committed by one row of `windows.arrows`, written after all data that it covers.
/// Appends are passed to the kernel immediately, so that kill -9 loses at most the open window.
/// [`Recorder::keep_synced`] has a thread force them to the medium every 10 s of recorded time,
/// since waiting for a disk would stall sampling. After a power cut the reader keeps the windows
/// that reached the medium completely, by their checksums.
///
/// After an error nothing more is written: it would follow a torn message.
pub struct Recorder<S: Store = DirStore> {
    store: S,
    /// One stream per table, by table number.
    streams: Vec<Stream>,
    batch: Batch,
    pyramid: Pyramid,
    queued: Vec<Metric>,
    layout: Layout,
    last: Commit,
    committed: u64,
    syncing: Option<Syncing>,
    failed: Option<Error>,
}

impl Recorder {
    /// Begins a recording in the directory `dir`, which is created if necessary, for its owner
    /// only. A failed start leaves nothing behind.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the directory is not empty; [`ErrorKind::Io`] if it cannot be
    /// written to.
    pub fn create(dir: impl AsRef<Path>, meta: &Meta) -> Result<Self> {
        Self::create_for(dir, meta, Access::default())
    }

    /// Begins a recording as [`Recorder::create`] does, with that access.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Permission`] if the files cannot be given to the group.
    pub fn create_for(dir: impl AsRef<Path>, meta: &Meta, access: Access) -> Result<Self> {
        let store = DirStore::create(dir.as_ref(), access)?;
        let undo = store.undo();
        Recorder::create_in(store, meta).inspect_err(|_| undo())
    }
}

impl<S: Store> Recorder<S> {
    /// Begins a recording in an empty store.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be written to.
    pub fn create_in(store: S, meta: &Meta) -> Result<Self> {
        let metadata = meta.to_map();
        let open =
            |table: &Table| Stream::open(*table, &metadata).map_err(|e| encoding(*table, &e));
        let streams = Table::ALL.iter().map(open).collect::<Result<_>>()?;
        let mut recorder = Self {
            store,
            streams,
            batch: Batch::default(),
            pyramid: Pyramid::default(),
            queued: Vec::new(),
            layout: Layout::default(),
            last: Commit::origin(meta.started_nanos()),
            committed: 0,
            syncing: None,
            failed: None,
        };
        // `Table::ALL` ends with the windows: only their stream makes the directory a recording.
        Table::ALL.iter().try_for_each(|table| recorder.hand_over(*table).map(drop))?;
        Ok(recorder)
    }

    /// Windows committed so far.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.handed_over).sum()
    }

    /// Adds a value to a named series; it is committed with the next window.
    pub fn metric(&mut self, metric: Metric) {
        self.queued.push(metric);
    }

    /// Waits until the recording so far is on the medium, then has a thread sync it every 10 s of
    /// recorded time.
    ///
    /// # Errors
    /// The first sync failed, or no thread can be started.
    pub fn keep_synced(self) -> Result<Self> {
        self.sync()?;
        let (send, orders) = channel::<Order>();
        let work = move || orders.into_iter().for_each(Order::carry_out);
        background("sync", work)?;
        // The thread ends with the recorder.
        Ok(self.synced_by(Box::new(move |order| drop(send.send(order)))))
    }

    /// Waits until the recording so far is on the medium.
    pub(crate) fn sync(&self) -> Result<()> {
        sync_all(self.store.medium().as_ref()).map_err(|e| self.io_error("sync", &e))
    }

    /// Passes orders to sync this recording to `pass`.
    pub(crate) fn synced_by(mut self, pass: Pass) -> Self {
        self.syncing = Some(Syncing::begin(self.store.medium(), pass));
        self
    }

    /// Ends the recording cleanly, and waits until all of it is on the medium.
    ///
    /// # Errors
    /// An earlier write error that stopped the recording, or one that occurs now.
    pub fn finish(mut self) -> Result<()> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.synced_windows()?;
        end(&mut self.store).map_err(|e| self.io_error("end", &e))
    }

    /// Windows known to be on the medium.
    fn synced_windows(&self) -> Result<u64> {
        let windows = self.syncing.as_ref().map_or(Ok(0), Syncing::windows);
        windows.map_err(|e| self.io_error("sync", &e))
    }

    fn commit(&mut self, window: &Window<'_>) -> Result<()> {
        let regions = window.snapshot.regions.len();
        if regions > MAX_ROWS as usize {
            return Err(Error::new(ErrorKind::Data, "cannot record a window")
                .cause(format!("it has {regions} regions, and readers take {MAX_ROWS} at most"))
                .remedy("watch fewer processes, or limit the regions with --max-regions"));
        }
        let figures = figures(window.snapshot);
        let mut row = self.row_of(window, &figures);
        row.synced = self.synced_windows()?;
        self.encode(window, &figures, &row).map_err(|(table, e)| encoding(table, &e))?;
        for (index, table) in Table::PAYLOAD.into_iter().enumerate() {
            row.crcs[index] = self.hand_over(table)?;
            row.ends[index] = self.streams[table as usize].handed_over;
        }
        row.row_crc = row.checksum(self.last.row_crc);
        self.write(Table::Windows, |schema| row.to_batch(schema))
            .map_err(|(table, e)| encoding(table, &e))?;
        self.hand_over(Table::Windows)?;
        self.last = row;
        self.committed += 1;
        if let Some(syncing) = &mut self.syncing {
            syncing.after(self.committed, window.snapshot.end);
        }
        Ok(())
    }

    /// The commit row, without stream lengths and checksums.
    fn row_of(&self, window: &Window<'_>, figures: &[SpaceFigures]) -> Commit {
        let snapshot = window.snapshot;
        let sum =
            |of: fn(&SpaceFigures) -> u64| figures.iter().map(of).fold(0, u64::saturating_add);
        let mut row = Commit {
            window: self.committed,
            start: snapshot.start,
            end: snapshot.end,
            samples: snapshot.samples,
            cpu: window.cpu,
            regions: snapshot.regions.len() as u64,
            region_bytes: sum(|of| of.bytes),
            hot_bytes: sum(|of| of.hot),
            ..self.last.clone()
        };
        if let Some(mappings) = window.mappings {
            row.layout += 1;
            row.layout_taken = mappings.taken;
            row.mapped_bytes = total(mappings.mappings.iter().map(|m| &m.range));
        }
        row
    }

    fn encode(&mut self, window: &Window<'_>, figures: &[SpaceFigures], row: &Commit) -> Encoded {
        let (snapshot, number, layout) = (window.snapshot, row.window, row.layout);
        if !snapshot.regions.is_empty() {
            let stream = self.streams[Table::Regions as usize].writer.get_mut();
            encode::regions(&mut self.batch, number, &snapshot.regions, stream);
        }
        if let Some(mappings) = window.mappings {
            self.layout = Layout::of(mappings);
            self.write(Table::Mappings, |s| encode::mappings(s, layout, mappings))?;
            self.write(Table::Spaces, |s| encode::spaces(s, layout, &mappings.spaces))?;
        }
        self.write(Table::Actions, |s| encode::actions(s, number, window.actions))?;
        self.write(Table::Outcomes, |s| encode::outcomes(s, number, window.outcomes))?;
        let mut metrics = std::mem::take(&mut self.queued);
        metrics.extend(standard_metrics(window, figures));
        if let Some(residence) = window.residence {
            let rest = self.layout.not_resident(&snapshot.regions, residence);
            metrics.extend(residence_metrics(window, residence, figures, &rest));
        }
        self.write(Table::Metrics, |s| encode::metrics(s, number, &metrics))?;
        for tile in self.pyramid.window(snapshot) {
            self.write(Table::Tiles, |s| encode::tile(s, &tile))?;
        }
        Ok(())
    }

    /// Encodes a batch, unless it is empty.
    fn write(
        &mut self,
        table: Table,
        encode: impl FnOnce(SchemaRef) -> Result<RecordBatch, ArrowError>,
    ) -> Encoded {
        let stream = &mut self.streams[table as usize];
        let written = encode(stream.schema.clone()).and_then(|batch| match batch.num_rows() {
            0 => Ok(()),
            _ => stream.writer.write(&batch),
        });
        written.map_err(|e| (table, e))
    }

    /// Appends a table's encoded data to the store; returns their CRC-32.
    fn hand_over(&mut self, table: Table) -> Result<u32> {
        let stream = &mut self.streams[table as usize];
        let bytes = std::mem::take(stream.writer.get_mut());
        let crc = crc32fast::hash(&bytes);
        if !bytes.is_empty() {
            let appended = self.store.append(table, &bytes);
            appended.map_err(|e| self.io_error(&format!("write {} of", table.file_name()), &e))?;
        }
        let stream = &mut self.streams[table as usize];
        stream.handed_over += bytes.len() as u64;
        *stream.writer.get_mut() = emptied(bytes);
        Ok(crc)
    }

    fn io_error(&self, what: &str, cause: &io::Error) -> Error {
        let kept = match self.committed {
            1 => "1 window".into(),
            n => format!("{n} windows"),
        };
        Error::new(ErrorKind::Io, format!("cannot {what} recording {}", self.store.name()))
            .cause(cause)
            .remedy(format!("{kept} committed before can be read; free space or record elsewhere"))
    }
}

type Encoded = Result<(), (Table, ArrowError)>;

fn emptied(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.clear();
    bytes
}

impl<S: Store> WindowStore for Recorder<S> {
    fn finish(self) -> Result<()> {
        Recorder::finish(self)
    }
}

impl<S: Store> Sink for Recorder<S> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.commit(window).inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// Encoder of a table, with the data not yet passed to the store.
struct Stream {
    schema: SchemaRef,
    writer: StreamWriter<Vec<u8>>,
    handed_over: u64,
}

impl Stream {
    fn open(table: Table, metadata: &HashMap<String, String>) -> Result<Self, ArrowError> {
        let schema = table.schema(metadata);
        let codec = table.is_compressed().then_some(CompressionType::LZ4_FRAME);
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, arrow_ipc::MetadataVersion::V5)?
            .try_with_compression(codec)?;
        let writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options)?;
        Ok(Self { schema, writer, handed_over: 0 })
    }
}

fn encoding(table: Table, cause: &ArrowError) -> Error {
    Error::new(ErrorKind::Other, format!("cannot encode a window for {}", table.file_name()))
        .cause(cause)
        .remedy("this is a fault of tierscope: please report it")
}

/// Series: ACCESSED bits of the target that other sessions cleared so far. Not recorded while there
/// are none.
pub const CLEARED_BY_OTHERS: &str = "cleared_by_others";

/// Series, followed by the reader's name: another reader of ACCESSED bits has run so far. Not
/// recorded while none has.
pub const OTHER_READER: &str = "other_reader.";

/// Series: how often a hot list was found to have lost entries so far. Not recorded while none was.
pub const HOT_LIST_OVERFLOWS: &str = "hot_list_overflows";

/// The metrics recorded for every window.
fn standard_metrics(window: &Window<'_>, figures: &[SpaceFigures]) -> Vec<Metric> {
    let time = window.snapshot.end;
    let metric = |name: &str, space, value| Metric { time, name: name.into(), space, value };
    let mut metrics = vec![
        metric("profiler_cpu_seconds", None, nanos(window.cpu.profiler) as f64 / 1e9),
        metric("target_cpu_seconds", None, nanos(window.cpu.target) as f64 / 1e9),
    ];
    if window.cleared_by_others > 0 {
        metrics.push(metric(CLEARED_BY_OTHERS, None, window.cleared_by_others as f64));
    }
    if window.hot_list_overflows > 0 {
        metrics.push(metric(HOT_LIST_OVERFLOWS, None, window.hot_list_overflows as f64));
    }
    for reader in window.other_readers {
        metrics.push(metric(&format!("{OTHER_READER}{reader}"), None, 1.0));
    }
    for of in figures {
        let space = Some(of.space);
        metrics.push(metric("regions", space, of.regions as f64));
        metrics.push(metric("region_bytes", space, of.bytes as f64));
        metrics.push(metric("hot_bytes", space, of.hot as f64));
        metrics.push(metric("accessed_bytes", space, of.accessed as f64));
        metrics.push(metric("unknown_bytes", space, of.unknown as f64));
        metrics.push(metric("unseen_bytes", space, of.unseen as f64));
        let reasons = [("unknown_refused_bytes", of.refused), ("unknown_guest_bytes", of.guest)];
        let some = reasons.into_iter().filter(|(_, bytes)| *bytes > 0);
        metrics.extend(some.map(|(name, bytes)| metric(name, space, bytes as f64)));
    }
    metrics
}

/// Resident memory, by node too, of which at least the bytes of the regions are resident: they may
/// hold memory that was populated since the measurement, and older kernels count per thread.
fn with_regions(residence: &Residence, figures: &[SpaceFigures]) -> Residence {
    let mut residence = residence.clone();
    for of in residence.spaces.iter_mut().filter(|of| of.extents.is_some()) {
        let counted = figures.iter().find(|figures| figures.space == of.space);
        of.set_bytes(of.bytes.max(counted.map_or(0, |figures| figures.bytes)));
    }
    residence
}

/// The metrics of resident memory, and of memory that is not resident.
fn residence_metrics(
    window: &Window<'_>,
    residence: &Residence,
    figures: &[SpaceFigures],
    rest: &[NotResident],
) -> Vec<Metric> {
    let residence = with_regions(residence, figures);
    let mut metrics = residence::metrics(&residence);
    let charges = residence.charges.iter().map(|(charge, value)| (charge.series(), *value));
    let zswapped = residence.zswapped.map(|bytes| ("zswapped_bytes", bytes));
    metrics.extend(zswapped.into_iter().chain(charges).map(|(name, value)| Metric {
        time: window.snapshot.end,
        name: name.into(),
        space: None,
        value: value as f64,
    }));
    for of in rest {
        let bytes = [
            ("swapped_bytes", of.swapped),
            ("reserved_bytes", of.reserved),
            ("absent_bytes", of.absent),
        ];
        let (time, space) = (window.snapshot.end, Some(of.space));
        metrics.extend(bytes.map(|(name, bytes)| Metric {
            time,
            name: name.into(),
            space,
            value: bytes as f64,
        }));
    }
    metrics
}

/// Totals of the regions of a space; they saturate, so that spaces of 2^64 bytes are recordable.
struct SpaceFigures {
    space: SpaceId,
    regions: u64,
    bytes: u64,
    hot: u64,
    accessed: u64,
    /// Bytes that cannot be classified as hot or cold, for any reason.
    unknown: u64,
    /// Those of them that the machine refuses to judge.
    refused: u64,
    /// Those of them that are memory of a virtual machine.
    guest: u64,
    /// Bytes that were not observed.
    unseen: u64,
}

/// The totals of each space, in ascending order of spaces.
fn figures(snapshot: &Snapshot) -> Vec<SpaceFigures> {
    let spaces = snapshot.regions.chunk_by(|a, b| a.range.space == b.range.space);
    let of = |regions: &[Region]| {
        let sum = |counts: &dyn Fn(&Region) -> bool| {
            let counted = regions.iter().filter(|region| counts(region));
            counted.map(Region::bytes).fold(0, u64::saturating_add)
        };
        SpaceFigures {
            space: regions[0].range.space,
            regions: regions.len() as u64,
            bytes: sum(&|_| true),
            hot: sum(&|region| region.heat() == Heat::Hot),
            accessed: sum(&Region::is_accessed),
            unknown: sum(&|region| matches!(region.heat(), Heat::Unknown(_))),
            refused: sum(&|region| region.heat() == Heat::Unknown(Unknown::Refused)),
            guest: sum(&|region| region.heat() == Heat::Unknown(Unknown::Guest)),
            unseen: sum(&Region::is_unseen),
        }
    };
    spaces.map(of).collect()
}

/// Total bytes of ranges, saturating.
fn total<'a>(ranges: impl Iterator<Item = &'a Range>) -> u64 {
    ranges.map(Range::bytes).fold(0, u64::saturating_add)
}

impl Commit {
    /// The virtual predecessor of the first row, for the checksum chain.
    pub(crate) fn origin(started_nanos: u64) -> Self {
        Commit {
            window: 0,
            start: Time(0),
            end: Time(0),
            samples: 0,
            cpu: tierscope_core::CpuTime::default(),
            layout: 0,
            layout_taken: Time(0),
            regions: 0,
            region_bytes: 0,
            mapped_bytes: 0,
            hot_bytes: 0,
            ends: [0; Table::PAYLOAD.len()],
            crcs: [0; Table::PAYLOAD.len()],
            row_crc: crc32fast::hash(&started_nanos.to_le_bytes()),
            synced: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Level, Node, OnNode, Placed, SpaceResidence, Unknown};

    // Pages: 2 hot, 3 cold, 4 unknown though every probe found them accessed, 5 not observed.
    #[test]
    fn every_byte_counts_once() {
        let mut at = 0;
        let mut region = |pages: u64, hits: f32, samples: u32, unknown: bool| {
            let range = Range::new(SpaceId(0), at, at + pages * 4096);
            at = range.end;
            let (age, level, confidence, rate) = (0, Some(Level::PMD), 1.0, None);
            let unknown = unknown.then_some(Unknown::Evidence);
            let resident = None;
            Region { range, hits, samples, age, level, confidence, rate, unknown, resident }
        };
        let regions = vec![
            region(2, 40.0, 40, false),
            region(3, 0.0, 40, false),
            region(4, 40.0, 40, true),
            region(5, 0.0, 0, true),
        ];
        let of = &figures(&Snapshot { samples: 40, regions, ..Snapshot::default() })[0];
        let pages =
            [of.bytes, of.hot, of.accessed, of.unknown, of.unseen].map(|bytes| bytes / 4096);
        assert_eq!(pages, [14, 2, 2, 4, 5]);
    }

    // Two pages on node 1 were resident when they were counted, a third belongs to a region since.
    #[test]
    fn bytes_by_node_add_up_to_resident_bytes() {
        let space = SpaceId(0);
        let nodes = vec![OnNode { node: Node(1), bytes: 8192 }];
        let placed = Some(Placed { taken: Time(1), nodes, drawn: 0 });
        let (taken, extents) = (Time(1), Some([].into()));
        let of = SpaceResidence { space, taken, bytes: 8192, extents, placed };
        let range = Range::new(space, 0, 3 * 4096);
        let snapshot =
            Snapshot { regions: vec![Region::sampled(range, 0.0, 1)], ..Snapshot::default() };
        let found = Residence { spaces: vec![of], ..Residence::default() };
        let of = with_regions(&found, &figures(&snapshot)).spaces.remove(0);
        assert_eq!(of.bytes, 3 * 4096);
        assert_eq!(of.placed.unwrap().nodes, [OnNode { node: Node(1), bytes: 3 * 4096 }]);
    }
}
