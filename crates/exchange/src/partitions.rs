//! Tables of many machines as partitioned Parquet: `DIRECTORY/TABLE/machine=NAME/part-0.parquet`,
//! the layout that DuckDB, Spark and ClickHouse expect. Each machine writes its own partition and
//! reads no other, so a fleet can share one directory.
//!
//! Numbers are signed 64-bit integers, since Spark has no unsigned ones. A file gets its final name
//! once it is complete.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use tierscope_core::{Error, ErrorKind, Result};

/// Rows that are buffered before they are passed to the writer.
const BATCH: usize = 1 << 15;
/// Rows per row group, the unit that readers distribute over threads.
const ROW_GROUP: usize = 1 << 19;

/// A column: its name, and whether it holds text.
pub type Column = (&'static str, bool);

/// A value in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Value of a column of numbers; saturates at 2^63 - 1.
    Number(u64),
    /// Value of a column of text.
    Text(&'a str),
}

enum Kept {
    Numbers(Vec<i64>),
    Texts(Vec<String>),
}

impl Kept {
    fn take(&mut self) -> ArrayRef {
        match self {
            Kept::Numbers(values) => Arc::new(Int64Array::from(std::mem::take(values))),
            Kept::Texts(values) => Arc::new(StringArray::from(std::mem::take(values))),
        }
    }
}

/// A machine's partition of a table, being written.
pub struct Partition {
    path: PathBuf,
    partial: PathBuf,
    schema: Arc<Schema>,
    writer: Option<ArrowWriter<File>>,
    kept: Vec<Kept>,
    rows: usize,
}

/// Checks that a machine's name can be part of a directory's name.
///
/// # Errors
/// [`ErrorKind::Usage`] if it cannot.
pub fn check_machine(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(plain) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Usage, format!("no machine can be called `{name}`"))
            .cause("a partition is named after it")
            .remedy("use letters, digits, -, _ and .")),
    }
}

impl Partition {
    /// Creates a machine's partition of a table.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an invalid name, or if the partition exists; [`ErrorKind::Io`] if
    /// the directory cannot be written.
    pub fn create(
        directory: &Path,
        table: &str,
        machine: &str,
        columns: &[Column],
    ) -> Result<Self> {
        check_machine(machine)?;
        let folder = directory.join(table).join(format!("machine={machine}"));
        let (path, partial) = (folder.join("part-0.parquet"), folder.join(".part-0.partial"));
        if path.exists() {
            return Err(Error::new(ErrorKind::Usage, format!("cannot write {}", path.display()))
                .cause("it is there already")
                .remedy("remove it, or give the machine another name"));
        }
        fs::create_dir_all(&folder).map_err(|e| failed(&folder, e))?;
        let field = |(name, text): &Column| {
            Field::new(*name, if *text { DataType::Utf8 } else { DataType::Int64 }, false)
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<Field>>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(ROW_GROUP))
            .set_created_by(concat!("tierscope ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let file = File::create(&partial).map_err(|e| failed(&partial, e))?;
        let writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties))
            .map_err(|e| failed(&partial, e))?;
        let kept = |(_, text): &Column| {
            if *text { Kept::Texts(Vec::new()) } else { Kept::Numbers(Vec::new()) }
        };
        let kept = columns.iter().map(kept).collect();
        Ok(Self { path, partial, schema, writer: Some(writer), kept, rows: 0 })
    }

    /// Appends a row; number and types of the cells match the columns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if writing fails.
    pub fn row(&mut self, cells: &[Cell<'_>]) -> Result<()> {
        debug_assert_eq!(cells.len(), self.kept.len());
        for (kept, cell) in self.kept.iter_mut().zip(cells) {
            match (kept, cell) {
                (Kept::Numbers(values), Cell::Number(value)) => {
                    values.push(i64::try_from(*value).unwrap_or(i64::MAX));
                }
                (Kept::Texts(values), Cell::Text(value)) => values.push((*value).to_owned()),
                _ => unreachable!("a cell of another kind than its column"),
            }
        }
        self.rows += 1;
        if self.rows < BATCH {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        let columns = self.kept.iter_mut().map(Kept::take).collect();
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|e| failed(&self.partial, e))?;
        writer.write(&batch).map_err(|e| failed(&self.partial, e))
    }

    /// Completes the partition, and gives it its final name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if writing fails.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        if let Some(writer) = self.writer.take() {
            writer.close().map_err(|e| failed(&self.partial, e))?;
        }
        fs::rename(&self.partial, &self.path).map_err(|e| failed(&self.path, e))
    }
}

impl Drop for Partition {
    // Removes the temporary file of an unfinished partition.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.partial);
    }
}

fn failed(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
        .cause(cause)
        .remedy("check the disk and the directory's permissions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    const COLUMNS: [Column; 2] = [("page", false), ("name", true)];

    fn written(directory: &Path, machine: &str, rows: u64) -> Result<()> {
        let mut part = Partition::create(directory, "pages", machine, &COLUMNS)?;
        for row in 0..rows {
            part.row(&[Cell::Number(row * 3), Cell::Text(&format!("object {}", row % 7))])?;
        }
        part.finish()
    }

    // More rows than a batch holds, and one number too large for 63 bits.
    #[test]
    fn written_partitions_are_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let rows = BATCH as u64 + 5;
        written(directory.path(), "a-1.lab", rows).expect("there is room");
        let path = directory.path().join("pages/machine=a-1.lab/part-0.parquet");
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("written"))
            .and_then(|builder| builder.build())
            .expect("Parquet");
        let mut at = 0u64;
        for batch in reader {
            let batch = batch.expect("a batch");
            let names = batch.column(1).as_string::<i32>();
            for (page, name) in
                batch.column(0).as_primitive::<Int64Type>().values().iter().zip(names)
            {
                assert_eq!((*page as u64, name), (at * 3, Some(&*format!("object {}", at % 7))));
                at += 1;
            }
        }
        assert_eq!(at, rows);
    }

    #[test]
    fn a_part_is_there_once_it_is_whole_and_never_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("pages/machine=b");
        let part =
            Partition::create(directory.path(), "pages", "b", &COLUMNS).expect("there is room");
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 1);
        drop(part);
        assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
        written(directory.path(), "b", 0).expect("no rows are a part too");
        let error = written(directory.path(), "b", 1).expect_err("it is there").to_string();
        assert!(error.contains("it is there already"), "{error}");
        for name in ["", "a/b", "..", "a b"] {
            assert!(written(directory.path(), name, 0).is_err(), "{name}");
        }
    }
}
