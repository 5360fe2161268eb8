//! Tables as CSV (RFC 4180): units in the column names of the header, quotes only where needed, an
//! empty field for a missing value. A spreadsheet takes no text for a formula (`cell`).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use tierscope_core::names::plain;
use tierscope_record::{Recording, Table};

use crate::tables::{self, Failure, Tick};

/// Writes `table` of `recording`.
///
/// # Errors
/// If the recording cannot be read, or writing to `out` fails.
pub fn write(
    recording: &Recording,
    table: Table,
    out: &mut dyn Write,
    tick: Tick<'_>,
) -> Result<(), Failure> {
    let schema = tables::schema(recording, table)?;
    let mut csv = csv::Writer::from_writer(out);
    written(csv.write_record(schema.fields().iter().map(|field| with_unit(field.name()))))?;
    let (mut record, mut text) = (csv::ByteRecord::new(), String::new());
    let take = |batch: &RecordBatch| {
        let columns: Vec<Column<'_>> = batch.columns().iter().map(Column::of).collect();
        for row in 0..batch.num_rows() {
            record.clear();
            columns.iter().for_each(|column| column.push(row, &mut text, &mut record));
            written(csv.write_byte_record(&record))?;
        }
        Ok(())
    };
    tables::each_batch(recording, table, take, tick)?;
    Ok(csv.flush()?)
}

/// The I/O error of a failed write; a caller may look for a closed pipe.
fn written(result: csv::Result<()>) -> io::Result<()> {
    result.map_err(|error| match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    })
}

/// Appends the unit to a column's name, unless the name already contains it.
fn with_unit(name: &str) -> &str {
    match name {
        "start" => "start_address",
        "age" => "age_windows",
        "done" => "done_bytes",
        "failed" => "failed_bytes",
        "shift" => "bin_bytes_log2",
        "heat" => "heat_255ths",
        "seen" => "seen_255ths",
        "rate_low" => "rate_low_per_second",
        "rate_mean" => "rate_mean_per_second",
        "rate_high" => "rate_high_per_second",
        "resident" => "resident_bytes",
        "unknown_share" => "unknown_255ths",
        "profiler_ns" => "profiler_cpu_ns",
        "target_ns" => "target_cpu_ns",
        name => name,
    }
}

/// The text of a cell: [plain], and after a `'` if a spreadsheet would compute it. Texts that begin
/// with a tab or carriage return are no formulas any more once these are written out.
fn cell(text: &str) -> Cow<'_, str> {
    match plain(text) {
        text if text.starts_with(['=', '+', '-', '@']) => format!("'{text}").into(),
        text => text,
    }
}

/// An Arrow column, downcast to the array type of its values.
enum Column<'a> {
    Byte(&'a arrow_array::UInt8Array),
    Half(&'a arrow_array::UInt32Array),
    Word(&'a arrow_array::UInt64Array),
    Single(&'a arrow_array::Float32Array),
    Double(&'a arrow_array::Float64Array),
    Flag(&'a arrow_array::BooleanArray),
    Text(&'a arrow_array::StringArray),
}

impl<'a> Column<'a> {
    fn of(array: &'a ArrayRef) -> Self {
        match array.data_type() {
            DataType::UInt8 => Self::Byte(array.as_primitive::<UInt8Type>()),
            DataType::UInt32 => Self::Half(array.as_primitive::<UInt32Type>()),
            DataType::UInt64 => Self::Word(array.as_primitive::<UInt64Type>()),
            DataType::Float32 => Self::Single(array.as_primitive::<Float32Type>()),
            DataType::Float64 => Self::Double(array.as_primitive::<Float64Type>()),
            DataType::Boolean => Self::Flag(array.as_boolean()),
            DataType::Utf8 => Self::Text(array.as_string()),
            other => unreachable!("no table has columns of type {other}"),
        }
    }

    fn array(&self) -> &dyn Array {
        match self {
            Self::Byte(array) => array,
            Self::Half(array) => array,
            Self::Word(array) => array,
            Self::Single(array) => array,
            Self::Double(array) => array,
            Self::Flag(array) => array,
            Self::Text(array) => array,
        }
    }

    /// Appends the value of `row` to the record; `text` is a buffer.
    fn push(&self, row: usize, text: &mut String, record: &mut csv::ByteRecord) {
        text.clear();
        let written = match self {
            _ if self.array().is_null(row) => Ok(()),
            Self::Byte(array) => write!(text, "{}", array.value(row)),
            Self::Half(array) => write!(text, "{}", array.value(row)),
            Self::Word(array) => write!(text, "{}", array.value(row)),
            Self::Single(array) => write!(text, "{}", array.value(row)),
            Self::Double(array) => write!(text, "{}", array.value(row)),
            Self::Flag(array) => write!(text, "{}", array.value(row)),
            Self::Text(array) => text.write_str(&cell(array.value(row))),
        };
        written.expect("memory takes all");
        record.push_field(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::{recorded, region, window};
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Mappings, Rate, Region, Snapshot, Space, SpaceId, Time, Unknown};
    use tierscope_record::{Memory, Meta, Recorder};

    fn text(recording: &Recording, table: Table) -> String {
        let mut out = Vec::new();
        write(recording, table, &mut out, &mut |_, _| Ok(())).unwrap();
        String::from_utf8(out).unwrap()
    }

    // One window of 200 ms with three regions of 4 KiB: 5 of 40 hits, 2.5 of 40 hits, and one that
    // is unknown, with a rate between 0.5 and 1000.
    #[test]
    fn a_table_reads_as_written_here() {
        let vague = Some(Rate { low: 0.5, mean: 8.0, high: 1000.0 });
        let recording = recorded(&[window(
            0,
            200,
            vec![
                region(0, 4096, 8192, 5.0),
                region(0, 8192, 12288, 2.5),
                Region {
                    rate: vague,
                    unknown: Some(Unknown::Evidence),
                    resident: Some(4095),
                    ..region(0, 12288, 16384, 40.0)
                },
            ],
        )]);
        assert_eq!(
            text(&recording, Table::Regions),
            "window,space,start_address,bytes,hits,samples,age_windows,level,confidence,\
             rate_low_per_second,rate_mean_per_second,rate_high_per_second,unknown,\
             unknown_reason,resident_bytes\n\
             0,0,4096,4096,5,40,0,,1,,,,false,,\n\
             0,0,8192,4096,2.5,40,0,,1,,,,false,,\n\
             0,0,12288,4096,40,40,0,,1,0.5,8,1000,true,0,4095\n"
        );
        assert!(text(&recording, Table::Windows).contains("\n0,0,200000000,40,0,0,"));
        assert_eq!(text(&recording, Table::Actions).lines().count(), 1);
    }

    #[test]
    fn text_breaks_no_line_and_is_no_formula() {
        let named = |name: &str| {
            let space = Space { id: SpaceId(0), name: name.into() };
            let spaces = Mappings { spaces: vec![space], ..Mappings::default() };
            let snapshot = Snapshot { end: Time(1), ..Snapshot::default() };
            let mut memory = Memory::default();
            let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
            recorder.window(&Window { mappings: Some(&spaces), ..Window::of(&snapshot) }).unwrap();
            recorder.finish().unwrap();
            let recording = Recording::from_source(Box::new(memory)).unwrap();
            let text = text(&recording, Table::Spaces);
            text.split_once('\n').unwrap().1.to_owned()
        };
        assert_eq!(named("/usr/bin/redis"), "1,0,/usr/bin/redis\n");
        assert_eq!(named("a,\"b\""), "1,0,\"a,\"\"b\"\"\"\n");
        assert_eq!(named("a\nb\u{1b}[2J"), "1,0,a\\u{a}b\\u{1b}[2J\n");
        for formula in ["=1+1", "+1", "-1", "@sum"] {
            assert_eq!(named(formula), format!("1,0,'{formula}\n"));
        }
        assert_eq!(named("\t=1"), "1,0,\\u{9}=1\n");
        assert_eq!(named("\r=1"), "1,0,\\u{d}=1\n");
    }
}
