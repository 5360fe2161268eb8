//! Parquet files, read back with the reader of the `parquet` crate.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use tierscope_core::{Level, Range, Rate, Region, SpaceId, Unknown};
use tierscope_exchange::parquet::write;
use tierscope_record::{Recording, Table};

use crate::common::{Seen, record, windows};

fn exported(recording: &Recording, table: Table) -> std::fs::File {
    let file = tempfile::tempfile().unwrap();
    write(recording, table, file.try_clone().unwrap(), &mut |_, _| Ok(())).unwrap();
    file
}

fn batches(recording: &Recording, table: Table) -> Vec<RecordBatch> {
    let file = exported(recording, table);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.map(|batch| batch.unwrap()).collect()
}

/// Regions of a recording by window.
fn regions(recording: &Recording) -> BTreeMap<u64, Vec<Region>> {
    let mut windows = BTreeMap::<u64, Vec<Region>>::new();
    for batch in batches(recording, Table::Regions) {
        let column = |name| batch.column_by_name(name).unwrap();
        let word = |name, row| column(name).as_primitive::<UInt64Type>().value(row);
        let half = |name, row| column(name).as_primitive::<UInt32Type>().value(row);
        let real = |name, row| column(name).as_primitive::<Float32Type>().value(row);
        let rate = |row| {
            let [low, mean, high] =
                ["rate_low", "rate_mean", "rate_high"].map(|name| real(name, row));
            column("rate_mean").is_valid(row).then_some(Rate { low, mean, high })
        };
        for row in 0..batch.num_rows() {
            let (start, bytes) = (word("start", row), word("bytes", row));
            windows.entry(word("window", row)).or_default().push(Region {
                range: Range::new(SpaceId(half("space", row)), start, start + bytes),
                hits: real("hits", row),
                samples: half("samples", row),
                age: half("age", row),
                level: column("level")
                    .as_primitive::<UInt8Type>()
                    .iter()
                    .nth(row)
                    .unwrap()
                    .and_then(Level::new),
                confidence: real("confidence", row),
                rate: rate(row),
                unknown: {
                    let reasons = column("unknown_reason").as_primitive::<UInt8Type>();
                    let reason = Unknown::ALL[usize::from(reasons.value(row)) % 3];
                    column("unknown").as_boolean().value(row).then_some(reason)
                },
                resident: {
                    let resident = column("resident").as_primitive::<UInt64Type>();
                    resident.is_valid(row).then(|| resident.value(row))
                },
            });
        }
    }
    windows
}

fn expected(seen: &[Seen]) -> BTreeMap<u64, Vec<Region>> {
    let numbered =
        seen.iter().enumerate().map(|(n, seen)| (n as u64, seen.snapshot.regions.clone()));
    numbered.filter(|(_, regions)| !regions.is_empty()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_region_is_there_to_the_last_count(seen in windows(6)) {
        prop_assert_eq!(regions(&record(&seen)), expected(&seen));
    }
}

#[test]
fn every_table_opens_and_says_whose_it_is() {
    let recording = record(&[]);
    for table in Table::ALL {
        let reader = SerializedFileReader::new(exported(&recording, table)).unwrap();
        let facts = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let fact =
            |key: &str| facts.iter().find(|fact| fact.key == key).and_then(|f| f.value.clone());
        assert_eq!(fact("tierscope.table").as_deref(), Some(table.name()));
        assert_eq!(fact("tierscope.target").as_deref(), Some("redis-server[4711]"));
    }
}
