//! Tables as Parquet files: the columns of the recording's streams, row groups of a size that
//! DuckDB reads in parallel, Snappy (the best compression available in pure Rust).

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tierscope_record::{Recording, Table};

use crate::tables::{self, Failure, Tick};

/// Rows per row group: DuckDB assigns one to each thread, and wants 122,880 rows at least; more
/// rows take more memory here, about 40 bytes each.
const ROW_GROUP: usize = 1 << 19;

/// Writes `table` of `recording`; the file's metadata holds the recording's.
///
/// # Errors
/// If the recording cannot be read, or writing to `out` fails.
pub fn write<W: Write + Send>(
    recording: &Recording,
    table: Table,
    out: W,
    tick: Tick<'_>,
) -> Result<(), Failure> {
    let schema = tables::schema(recording, table)?;
    let mut facts: Vec<KeyValue> =
        schema.metadata().iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone())).collect();
    facts.sort_by(|a, b| a.key.cmp(&b.key));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(facts))
        .set_created_by(concat!("tierscope ", env!("CARGO_PKG_VERSION")).into())
        .build();
    let mut writer = ArrowWriter::try_new(out, schema, Some(properties)).map_err(failed)?;
    let take = |batch: &RecordBatch| writer.write(batch).map_err(failed);
    tables::each_batch(recording, table, take, tick)?;
    writer.close().map_err(failed)?;
    Ok(())
}

/// Extracts the I/O error of the output, such as `No space left on device`, if there is one.
fn failed(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(cause) => Failure::Write(*cause),
            Err(cause) => Failure::Write(std::io::Error::other(cause)),
        },
        other => Failure::Write(std::io::Error::other(other)),
    }
}
