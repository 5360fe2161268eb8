//! Encodes windows as record batches.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt8Array, UInt32Array,
    UInt64Array,
};
use arrow_schema::{ArrowError, SchemaRef};
use tierscope_core::{
    Action, ActionKind, Backing, Failure, Mappings, Object, Outcome, Range, Region, SharedView,
    Space, SpaceId, Time,
};

use crate::batch::Batch;
use crate::tiles::Tile;

type Encoded = Result<RecordBatch, ArrowError>;

/// A value of a named time series.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Time of the value.
    pub time: Time,
    /// Name of the series: lower case, words joined by `_`, the unit last (`hot_bytes`).
    pub name: String,
    /// The space measured; `None` for the whole target.
    pub space: Option<SpaceId>,
    /// The value.
    pub value: f64,
}

/// Appends the batch of a window's regions to its stream.
pub(crate) fn regions(batch: &mut Batch, window: u64, regions: &[Region], stream: &mut Vec<u8>) {
    batch.begin(regions.len());
    batch.column(std::iter::repeat_n(window.to_le_bytes(), regions.len()));
    batch.column(regions.iter().map(|r| r.range.space.0.to_le_bytes()));
    // Compression would save at most two of eight bytes.
    batch.plain(regions.iter().map(|r| r.range.start.to_le_bytes()));
    batch.column(regions.iter().map(|r| r.range.bytes().to_le_bytes()));
    batch.column(regions.iter().map(|r| r.hits.to_le_bytes()));
    batch.column(regions.iter().map(|r| r.samples.to_le_bytes()));
    batch.column(regions.iter().map(|r| r.age.to_le_bytes()));
    batch.nullable(regions.iter().map(|r| r.level.map(|level| [level.number()])));
    batch.column(regions.iter().map(|r| r.confidence.to_le_bytes()));
    batch.nullable(regions.iter().map(|r| r.rate.map(|rate| rate.low.to_le_bytes())));
    batch.nullable(regions.iter().map(|r| r.rate.map(|rate| rate.mean.to_le_bytes())));
    batch.nullable(regions.iter().map(|r| r.rate.map(|rate| rate.high.to_le_bytes())));
    batch.flags(regions.iter().map(|r| r.unknown.is_some()));
    batch.nullable(regions.iter().map(|r| r.unknown.map(|reason| [reason as u8])));
    batch.nullable(regions.iter().map(|r| r.resident.map(u64::to_le_bytes)));
    batch.end(stream);
}

/// Mappings, followed by the views: those of the shared space are files without an object, those of
/// memory inherited by fork are anonymous.
pub(crate) fn mappings(schema: SchemaRef, layout: u64, of: &Mappings) -> Encoded {
    let (mappings, views) = (&of.mappings, &of.views);
    let mut columns = vec![constant(layout, mappings.len() + views.len())];
    columns.extend(ranges(
        mappings.iter().map(|m| &m.range).chain(views.iter().map(|view| &view.range)),
    ));
    let object = |number: fn(&Object) -> u64| -> ArrayRef {
        let known = mappings.iter().map(|m| m.object.as_ref().map(number));
        Arc::new(known.chain(views.iter().map(|_| None)).collect::<UInt64Array>())
    };
    let backing = |view: &SharedView| match of.shared == Some(view.memory.space) {
        true => backing_name(Backing::File),
        false => backing_name(Backing::Anonymous),
    };
    let memory = || mappings.iter().map(|_| None).chain(views.iter().map(|v| Some(v.memory)));
    columns.extend::<[ArrayRef; 3]>([
        text(mappings.iter().map(|m| backing_name(m.backing)).chain(views.iter().map(backing))),
        text(mappings.iter().map(|m| &*m.name).chain(views.iter().map(|view| &*view.name))),
        Arc::new(
            mappings
                .iter()
                .map(|m| Some(m.writable))
                .chain(views.iter().map(|_| Some(false)))
                .collect::<BooleanArray>(),
        ),
    ]);
    columns.extend::<[ArrayRef; 5]>([
        object(|of| of.device),
        object(|of| of.inode),
        object(|of| of.offset),
        Arc::new(memory().map(|at| at.map(|at| at.space.0)).collect::<UInt32Array>()),
        Arc::new(memory().map(|at| at.map(|at| at.at)).collect::<UInt64Array>()),
    ]);
    RecordBatch::try_new(schema, columns)
}

pub(crate) fn spaces(schema: SchemaRef, layout: u64, spaces: &[Space]) -> Encoded {
    let ids = UInt32Array::from_iter_values(spaces.iter().map(|s| s.id.0));
    let names = text(spaces.iter().map(|s| &*s.name));
    RecordBatch::try_new(schema, vec![constant(layout, spaces.len()), Arc::new(ids), names])
}

pub(crate) fn actions(schema: SchemaRef, window: u64, actions: &[Action]) -> Encoded {
    let tier = |action: &Action| match action.kind {
        ActionKind::Move(tier) => Some(tier.0),
        _ => None,
    };
    let mut columns = vec![
        constant(window, actions.len()),
        words(actions.iter().map(|a| a.id.0)),
        Arc::new(actions.iter().map(|a| a.after.map(|id| id.0)).collect::<UInt64Array>()),
    ];
    columns.extend(ranges(actions.iter().map(|a| &a.range)));
    columns.push(text(actions.iter().map(|a| action_name(a.kind))));
    columns.push(Arc::new(actions.iter().map(tier).collect::<UInt8Array>()));
    RecordBatch::try_new(schema, columns)
}

pub(crate) fn outcomes(schema: SchemaRef, window: u64, outcomes: &[Outcome]) -> Encoded {
    let why = outcomes.iter().map(|o| o.why.map(failure_name));
    let columns = vec![
        constant(window, outcomes.len()),
        words(outcomes.iter().map(|o| o.id.0)),
        words(outcomes.iter().map(|o| o.time.0)),
        words(outcomes.iter().map(|o| o.done)),
        words(outcomes.iter().map(|o| o.failed)),
        Arc::new(why.collect::<StringArray>()),
    ];
    RecordBatch::try_new(schema, columns)
}

pub(crate) fn metrics(schema: SchemaRef, window: u64, metrics: &[Metric]) -> Encoded {
    let columns = vec![
        constant(window, metrics.len()),
        words(metrics.iter().map(|m| m.time.0)),
        text(metrics.iter().map(|m| m.name.as_str())),
        Arc::new(metrics.iter().map(|m| m.space.map(|s| s.0)).collect::<UInt32Array>()),
        Arc::new(Float64Array::from_iter_values(metrics.iter().map(|m| m.value))),
    ];
    RecordBatch::try_new(schema, columns)
}

pub(crate) fn tile(schema: SchemaRef, tile: &Tile) -> Encoded {
    let bins = &tile.bins;
    let byte = |f: fn(&crate::Bin) -> u8| {
        Arc::new(UInt8Array::from_iter_values(bins.iter().map(f))) as ArrayRef
    };
    let columns = vec![
        Arc::new(UInt8Array::from(vec![tile.zoom; bins.len()])) as ArrayRef,
        constant(tile.index, bins.len()),
        Arc::new(UInt32Array::from_iter_values(bins.iter().map(|b| b.space.0))),
        words(bins.iter().map(|b| b.start)),
        words(bins.iter().map(|b| b.bytes)),
        byte(|b| b.heat),
        byte(|b| b.seen),
        byte(|b| b.sure),
        byte(|b| b.unknown),
    ];
    RecordBatch::try_new(schema, columns)
}

fn constant(value: u64, rows: usize) -> ArrayRef {
    Arc::new(UInt64Array::from(vec![value; rows]))
}

fn words(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(values))
}

fn text<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// The columns `space`, `start`, `bytes`.
fn ranges<'a>(ranges: impl Iterator<Item = &'a Range> + Clone) -> [ArrayRef; 3] {
    [
        Arc::new(UInt32Array::from_iter_values(ranges.clone().map(|r| r.space.0))),
        words(ranges.clone().map(|r| r.start)),
        words(ranges.map(Range::bytes)),
    ]
}

/// Name of a backing in `mappings`.
#[must_use]
pub fn backing_name(backing: Backing) -> &'static str {
    match backing {
        Backing::Anonymous => "anon",
        Backing::Heap => "heap",
        Backing::Stack => "stack",
        Backing::File => "file",
        Backing::Kernel => "kernel",
    }
}

/// Name of a kind of action in `actions`.
#[must_use]
pub fn action_name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Move(_) => "move",
        ActionKind::Split => "split",
        ActionKind::Collapse => "collapse",
        ActionKind::Reclaim => "reclaim",
    }
}

/// Every failure with its name in `outcomes`. `Failure` may grow: a variant unknown to this version
/// is written as `other` and read back as [`Failure::Unsupported`].
pub(crate) const FAILURES: [(Failure, &str); 7] = [
    (Failure::NoRoom, "no room"),
    (Failure::Busy, "busy"),
    (Failure::Shared, "shared"),
    (Failure::Unmapped, "unmapped"),
    (Failure::Gone, "gone"),
    (Failure::Permission, "permission"),
    (Failure::Unsupported, "unsupported"),
];

/// Name of a failure in `outcomes`.
#[must_use]
pub fn failure_name(failure: Failure) -> &'static str {
    FAILURES.iter().find(|(known, _)| *known == failure).map_or("other", |(_, name)| name)
}
