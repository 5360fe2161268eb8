//! Commit rows: one for each window, written after all data that it covers.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_schema::{ArrowError, SchemaRef};
use tierscope_core::{CpuTime, Time};

use crate::columns::Columns;
use crate::table::Table;

/// A commit row: a window's key figures, and the length of every other stream including the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Number of the window: 0, 1, 2, …
    pub window: u64,
    /// Start of the window.
    pub start: Time,
    /// End of the window.
    pub end: Time,
    /// Number of sampling intervals.
    pub samples: u32,
    /// CPU time at the window's end.
    pub cpu: CpuTime,
    /// Number of the layout (spaces and mappings) in force; 0 for none yet.
    pub layout: u64,
    /// Time at which that layout was read from the target.
    pub layout_taken: Time,
    /// Number of regions.
    pub regions: u64,
    /// Bytes in regions.
    pub region_bytes: u64,
    /// Mapped bytes, by the layout in force.
    pub mapped_bytes: u64,
    /// Bytes whose frequency is at least [`tierscope_core::metrics::HOT_FREQUENCY`].
    pub hot_bytes: u64,
    /// Length of each stream of [`Table::PAYLOAD`], including this window.
    pub ends: [u64; Table::PAYLOAD.len()],
    /// CRC-32 of the window's data in each of those streams.
    pub crcs: [u32; Table::PAYLOAD.len()],
    /// CRC-32 of this row, chained from the previous row's.
    pub row_crc: u32,
    /// Windows known to be on the medium when the row was written: a hint, which no checksum
    /// covers, since older readers do not know it.
    pub synced: u64,
}

impl Commit {
    /// The row's checksum; `previous` is that of the previous row.
    pub(crate) fn checksum(&self, previous: u32) -> u32 {
        let mut crc = crc32fast::Hasher::new_with_initial(previous);
        self.words().iter().for_each(|word| crc.update(&word.to_le_bytes()));
        crc.update(&self.samples.to_le_bytes());
        self.crcs.iter().for_each(|sum| crc.update(&sum.to_le_bytes()));
        crc.finalize()
    }

    /// The 64-bit columns, in order.
    fn words(&self) -> Vec<u64> {
        let mut words = vec![
            self.window,
            self.start.0,
            self.end.0,
            nanos(self.cpu.profiler),
            nanos(self.cpu.target),
            self.layout,
            self.layout_taken.0,
            self.regions,
            self.region_bytes,
            self.mapped_bytes,
            self.hot_bytes,
        ];
        words.extend(self.ends);
        words
    }

    /// Encodes the row as a batch.
    pub(crate) fn to_batch(&self, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let word = |value| Arc::new(UInt64Array::from(vec![value])) as ArrayRef;
        let half = |value| Arc::new(UInt32Array::from(vec![value])) as ArrayRef;
        let mut columns: Vec<ArrayRef> = self.words().into_iter().map(word).collect();
        columns.insert(3, half(self.samples));
        columns.extend(self.crcs.into_iter().map(half));
        columns.push(half(self.row_crc));
        columns.push(word(self.synced));
        RecordBatch::try_new(schema, columns)
    }

    /// Decodes the rows of a batch.
    pub(crate) fn from_batch(columns: &Columns) -> Result<Vec<Commit>, String> {
        (0..columns.rows()).map(|row| Self::from_row(columns, row)).collect()
    }

    fn from_row(columns: &Columns, row: usize) -> Result<Commit, String> {
        let word = |name: &str| Ok::<_, String>(columns.u64(name)?.value(row));
        let half = |name: &str| Ok::<_, String>(columns.u32(name)?.value(row));
        let mut ends = [0; Table::PAYLOAD.len()];
        let mut crcs = [0; Table::PAYLOAD.len()];
        for (index, table) in Table::PAYLOAD.iter().enumerate() {
            ends[index] = word(&format!("{}_end", table.name()))?;
            crcs[index] = half(&format!("{}_crc", table.name()))?;
        }
        Ok(Commit {
            window: word("window")?,
            start: Time(word("start_ns")?),
            end: Time(word("end_ns")?),
            samples: half("samples")?,
            cpu: CpuTime {
                profiler: Duration::from_nanos(word("profiler_ns")?),
                target: Duration::from_nanos(word("target_ns")?),
            },
            layout: word("layout")?,
            layout_taken: Time(word("layout_ns")?),
            regions: word("regions")?,
            region_bytes: word("region_bytes")?,
            mapped_bytes: word("mapped_bytes")?,
            hot_bytes: word("hot_bytes")?,
            ends,
            crcs,
            row_crc: half("row_crc")?,
            synced: if columns.has("synced") { word("synced")? } else { 0 },
        })
    }
}

/// A duration in ns, saturating at 584 years.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
