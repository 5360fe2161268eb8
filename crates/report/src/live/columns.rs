//! The heatmap's columns, cached from one drawing to the next: a new window costs its own column,
//! not all of them. Missing columns are read newest first, a limited amount at a time, so that keys
//! stay responsive while a large recording is read.

use std::collections::BTreeMap;
use std::ops::Range as Span;
use std::sync::Arc;

use tierscope_core::{Mappings, Result};
use tierscope_record::{BINS, Heat, Recording, windows_in};

use super::addresses::Row;
use crate::blocks::Places;
use crate::heatmap::{Cell, Sum, is_mapped, masked};

/// Limit of one call of [`Columns::fill`] beyond the first column, in parts of heat.
const PARTS_AT_ONCE: u64 = 200_000;
/// Columns cached in addition to those in view, as a multiple of them.
const KEPT: usize = 4;

#[derive(Clone, Debug)]
struct Column {
    /// First window that the sums do not include yet.
    through: usize,
    sums: Vec<Sum>,
    cells: Vec<Cell>,
}

/// Columns of cells, for given rows of addresses and a given number of windows per column.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Row>,
    places: Places,
    per_column: usize,
    columns: BTreeMap<usize, Column>,
    /// Recently used layouts, by number.
    layouts: BTreeMap<u64, Arc<Mappings>>,
}

impl Columns {
    /// Sets rows and windows per column. If they differ from before, all columns are read again.
    pub(crate) fn set(&mut self, rows: &[Row], per_column: usize) {
        if self.rows != rows || self.per_column != per_column {
            self.places = Places::of(rows.iter().map(|row| row.parts.as_slice()));
            self.rows = rows.to_vec();
            self.per_column = per_column;
            self.columns.clear();
        }
    }

    /// The cells of a column, if it has been read.
    pub(crate) fn cells(&self, column: usize) -> Option<&[Cell]> {
        self.columns.get(&column).map(|column| column.cells.as_slice())
    }

    /// Reads the missing data of the columns `in_view` up to window `head`, within the limit of one
    /// call. Returns whether the columns are complete.
    ///
    /// # Errors
    /// Same as [`Recording::heat`].
    pub(crate) fn fill(
        &mut self,
        recording: &Recording,
        in_view: Span<usize>,
        head: usize,
    ) -> Result<bool> {
        self.forget_far(&in_view);
        let mut parts = 0;
        for column in in_view.rev() {
            let windows = column * self.per_column..((column + 1) * self.per_column).min(head + 1);
            if self.columns.get(&column).is_some_and(|known| known.through == windows.end) {
                continue;
            }
            if parts > PARTS_AT_ONCE {
                return Ok(false);
            }
            parts += self.read(recording, column, windows)?;
        }
        Ok(true)
    }

    /// Updates a column; returns the number of parts read.
    fn read(&mut self, recording: &Recording, index: usize, windows: Span<usize>) -> Result<u64> {
        let known = self.columns.remove(&index).filter(|column| column.through <= windows.end);
        let mut column = known.unwrap_or_else(|| Column {
            through: windows.start,
            sums: vec![Sum::default(); self.rows.len()],
            cells: Vec::new(),
        });
        let mut parts = 0;
        recording.heat(column.through..windows.end, coarsest(self.per_column), |heat| {
            parts += heat.parts.len() as u64;
            add(&mut column.sums, &self.places, &heat);
            Ok(())
        })?;
        column.through = windows.end;
        let first = self.layout(recording, windows.start.saturating_sub(1))?;
        let last = self.layout(recording, windows.end - 1)?;
        let mapped = |row: &Row| is_mapped(&row.parts, [&*first, &*last]);
        let cell = |(sum, row): (&Sum, &Row)| masked(sum.cell(), mapped(row));
        column.cells = column.sums.iter().zip(&self.rows).map(cell).collect();
        self.columns.insert(index, column);
        Ok(parts)
    }

    fn layout(&mut self, recording: &Recording, window: usize) -> Result<Arc<Mappings>> {
        let number = recording.commits()[window].layout;
        if let Some(layout) = self.layouts.get(&number) {
            return Ok(Arc::clone(layout));
        }
        let layout = recording.layout(window)?;
        // Layouts can be large, and hundreds of them in view: the lowest-numbered one is evicted.
        while self.layouts.len() >= 16 {
            self.layouts.pop_first();
        }
        self.layouts.insert(number, Arc::clone(&layout));
        Ok(layout)
    }

    fn forget_far(&mut self, in_view: &Span<usize>) {
        let margin = in_view.len() * KEPT;
        let near = in_view.start.saturating_sub(margin)..in_view.end + margin;
        self.columns.retain(|column, _| near.contains(column));
    }
}

/// The coarsest zoom whose tiles are no longer than a column.
fn coarsest(per_column: usize) -> u8 {
    (0..u8::MAX).take_while(|zoom| windows_in(*zoom) <= per_column as u64).last().unwrap_or(0)
}

fn add(sums: &mut [Sum], places: &Places, heat: &Heat) {
    let nanos = heat.time.end.since(heat.time.start).as_nanos().max(1) as f64;
    for part in &heat.parts {
        places
            .shares(&part.range)
            .for_each(|(row, bytes)| sums[row].add(part, bytes as f64 * nanos));
    }
}

/// A single tile must stay well below [`PARTS_AT_ONCE`].
const _: () = assert!(BINS as u64 * 8 < PARTS_AT_ONCE);
