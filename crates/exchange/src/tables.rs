//! The tables of a recording, as Arrow record batches.

use std::io;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use tierscope_core::Error;
use tierscope_record::{Fact, Recording, Table};

/// Progress callback: windows done, windows in total.
pub type Tick<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), Error>;

/// Why an export failed.
#[derive(Debug)]
pub enum Failure {
    /// The recording could not be read.
    Read(Error),
    /// Writing to the output failed.
    Write(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Indices of the columns of `table` that make sense outside of a recording: all but the lengths,
/// checksums and syncs of its streams.
pub(crate) fn columns(table: Table, schema: &SchemaRef) -> Vec<usize> {
    let of_commit = |name: &str| {
        let stream = Table::PAYLOAD.iter().find_map(|t| name.strip_prefix(t.name()));
        ["row_crc", "synced"].contains(&name) || matches!(stream, Some("_end" | "_crc"))
    };
    let kept = |(_, name): &(usize, &String)| table != Table::Windows || !of_commit(name);
    let fields = schema.fields().iter().map(|field| field.name()).enumerate();
    fields.filter(kept).map(|(index, _)| index).collect()
}

/// Passes every batch of `table` to `take`, reduced to [`columns`].
pub(crate) fn each_batch(
    recording: &Recording,
    table: Table,
    mut take: impl FnMut(&RecordBatch) -> Result<(), Failure>,
    tick: Tick<'_>,
) -> Result<(), Failure> {
    let kept = columns(table, &recording.schema(table));
    let schema = schema(recording, table)?;
    let lacks_ages = lacks_ages(recording, table);
    let windows = recording.commits().len();
    for index in 0..windows {
        for batch in recording.record_batches(table, index)? {
            let mut columns = batch.project(&kept).map_err(io::Error::other)?.columns().to_vec();
            if let (true, Ok(at)) = (lacks_ages, schema.index_of(AGE)) {
                columns[at] = new_null_array(columns[at].data_type(), batch.num_rows());
            }
            let batch = RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)?;
            take(&batch)?;
        }
        tick(index as u64 + 1, windows as u64)?;
    }
    Ok(())
}

/// The schema of the batches of [`each_batch`].
pub(crate) fn schema(recording: &Recording, table: Table) -> Result<SchemaRef, Failure> {
    let schema = recording.schema(table);
    let kept = schema.project(&columns(table, &schema)).map_err(io::Error::other)?;
    if !lacks_ages(recording, table) {
        return Ok(kept.into());
    }
    let nullable = |field: &FieldRef| match field.name() == AGE {
        true => FieldRef::new(field.as_ref().clone().with_nullable(true)),
        false => FieldRef::clone(field),
    };
    let fields: Vec<FieldRef> = kept.fields().iter().map(nullable).collect();
    Ok(Schema::new_with_metadata(fields, kept.metadata).into())
}

/// The column of ages.
const AGE: &str = "age";

/// Whether ages are missing values: an imported file may not have had them.
fn lacks_ages(recording: &Recording, table: Table) -> bool {
    table == Table::Regions && !recording.meta().has(Fact::Ages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::recorded;

    #[test]
    fn lengths_and_checksums_stay_at_home() {
        let recording = recorded(&[]);
        let names = |table| {
            let schema = schema(&recording, table).unwrap();
            schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        };
        let windows = names(Table::Windows);
        assert_eq!(windows.first().map(String::as_str), Some("window"));
        assert_eq!(windows.last().map(String::as_str), Some("hot_bytes"));
        assert!(windows.contains(&"region_bytes".to_owned()));
        assert_eq!(names(Table::Regions).len(), 15);
    }
}
