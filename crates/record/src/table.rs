//! The tables of a recording and their columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

/// Version of the format. A reader accepts its own and older ones. Adding a column or a table keeps
/// the version: readers look columns up by name and ignore unknown ones.
pub const FORMAT: u32 = 1;

/// A table: one Arrow IPC stream in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Regions of every window.
    Regions,
    /// Mappings, whenever they changed.
    Mappings,
    /// Spaces, whenever they or the mappings changed.
    Spaces,
    /// Actions issued.
    Actions,
    /// Actions completed.
    Outcomes,
    /// Named time series.
    Metrics,
    /// The zoom pyramid.
    Tiles,
    /// The commit rows, written last.
    Windows,
}

impl Table {
    /// The tables covered by a commit row, in the order of their checksums.
    pub const PAYLOAD: [Table; 7] = [
        Table::Regions,
        Table::Mappings,
        Table::Spaces,
        Table::Actions,
        Table::Outcomes,
        Table::Metrics,
        Table::Tiles,
    ];

    /// Every table; the windows, which make a directory a recording, are last.
    pub const ALL: [Table; 8] = [
        Table::Regions,
        Table::Mappings,
        Table::Spaces,
        Table::Actions,
        Table::Outcomes,
        Table::Metrics,
        Table::Tiles,
        Table::Windows,
    ];

    /// The table's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Table::Regions => "regions",
            Table::Mappings => "mappings",
            Table::Spaces => "spaces",
            Table::Actions => "actions",
            Table::Outcomes => "outcomes",
            Table::Metrics => "metrics",
            Table::Tiles => "tiles",
            Table::Windows => "windows",
        }
    }

    /// The name of its file.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{}.arrows", self.name())
    }

    /// Whether the table's buffers are compressed. Those of commit rows are not: they are tiny, and
    /// are read before any checksum covers them.
    pub(crate) fn is_compressed(self) -> bool {
        self != Table::Windows
    }

    /// Whether an older recording of this format may lack that column.
    pub(crate) fn may_lack(self, column: &str) -> bool {
        match self {
            Table::Tiles => ["bytes", "confidence", "unknown_share"].contains(&column),
            Table::Regions => REGIONS_SINCE_1.contains(&column),
            Table::Mappings => MAPPINGS_SINCE_1.contains(&column),
            Table::Windows => column == "synced",
            _ => false,
        }
    }

    /// Columns of the table.
    fn fields(self) -> Vec<Field> {
        match self {
            Table::Regions => vec![
                field("window", DataType::UInt64),
                field("space", DataType::UInt32),
                field("start", DataType::UInt64),
                field("bytes", DataType::UInt64),
                field("hits", DataType::Float32),
                field("samples", DataType::UInt32),
                field("age", DataType::UInt32),
                nullable("level", DataType::UInt8),
                field("confidence", DataType::Float32),
                nullable("rate_low", DataType::Float32),
                nullable("rate_mean", DataType::Float32),
                nullable("rate_high", DataType::Float32),
                field("unknown", DataType::Boolean),
                nullable("unknown_reason", DataType::UInt8),
                nullable("resident", DataType::UInt64),
            ],
            Table::Mappings => vec![
                field("layout", DataType::UInt64),
                field("space", DataType::UInt32),
                field("start", DataType::UInt64),
                field("bytes", DataType::UInt64),
                field("backing", DataType::Utf8),
                field("name", DataType::Utf8),
                field("writable", DataType::Boolean),
                nullable("device", DataType::UInt64),
                nullable("inode", DataType::UInt64),
                nullable("offset", DataType::UInt64),
                nullable("memory_space", DataType::UInt32),
                nullable("memory_start", DataType::UInt64),
            ],
            Table::Spaces => vec![
                field("layout", DataType::UInt64),
                field("space", DataType::UInt32),
                field("name", DataType::Utf8),
            ],
            Table::Actions => vec![
                field("window", DataType::UInt64),
                field("action", DataType::UInt64),
                nullable("after", DataType::UInt64),
                field("space", DataType::UInt32),
                field("start", DataType::UInt64),
                field("bytes", DataType::UInt64),
                field("kind", DataType::Utf8),
                nullable("tier", DataType::UInt8),
            ],
            Table::Outcomes => vec![
                field("window", DataType::UInt64),
                field("action", DataType::UInt64),
                field("time_ns", DataType::UInt64),
                field("done", DataType::UInt64),
                field("failed", DataType::UInt64),
                nullable("why", DataType::Utf8),
            ],
            Table::Metrics => vec![
                field("window", DataType::UInt64),
                field("time_ns", DataType::UInt64),
                field("name", DataType::Utf8),
                nullable("space", DataType::UInt32),
                field("value", DataType::Float64),
            ],
            Table::Tiles => vec![
                field("zoom", DataType::UInt8),
                field("tile", DataType::UInt64),
                field("space", DataType::UInt32),
                field("start", DataType::UInt64),
                field("bytes", DataType::UInt64),
                field("heat", DataType::UInt8),
                field("seen", DataType::UInt8),
                field("confidence", DataType::UInt8),
                field("unknown_share", DataType::UInt8),
            ],
            Table::Windows => window_fields(),
        }
    }

    /// Schema of the table, with `metadata`.
    pub(crate) fn schema(self, metadata: &HashMap<String, String>) -> Arc<Schema> {
        let mut metadata = metadata.clone();
        metadata.insert("tierscope.table".into(), self.name().into());
        Arc::new(Schema::new_with_metadata(self.fields(), metadata))
    }
}

/// Columns of regions that the first recordings of this format lack.
const REGIONS_SINCE_1: [&str; 6] =
    ["rate_low", "rate_mean", "rate_high", "unknown", "unknown_reason", "resident"];
/// Columns of mappings that they lack.
const MAPPINGS_SINCE_1: [&str; 5] = ["device", "inode", "offset", "memory_space", "memory_start"];

fn window_fields() -> Vec<Field> {
    let mut fields = vec![
        field("window", DataType::UInt64),
        field("start_ns", DataType::UInt64),
        field("end_ns", DataType::UInt64),
        field("samples", DataType::UInt32),
        field("profiler_ns", DataType::UInt64),
        field("target_ns", DataType::UInt64),
        field("layout", DataType::UInt64),
        field("layout_ns", DataType::UInt64),
        field("regions", DataType::UInt64),
        field("region_bytes", DataType::UInt64),
        field("mapped_bytes", DataType::UInt64),
        field("hot_bytes", DataType::UInt64),
    ];
    let of_each = |what: &'static str, kind: DataType| {
        Table::PAYLOAD.map(|table| field(&format!("{}_{what}", table.name()), kind.clone()))
    };
    fields.extend(of_each("end", DataType::UInt64));
    fields.extend(of_each("crc", DataType::UInt32));
    fields.push(field("row_crc", DataType::UInt32));
    fields.push(field("synced", DataType::UInt64));
    fields
}

fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, false)
}

fn nullable(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}
