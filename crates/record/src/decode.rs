//! Decodes record batches into windows. Invalid data are an error, never a panic; names are
//! [plain], whatever the recording holds.

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, Float32Array, UInt8Array, UInt64Array};
use tierscope_core::{
    Action, ActionId, ActionKind, Addr, Backing, Failure, Level, Mapping, Object, Outcome, Range,
    Rate, Region, SharedView, Space, SpaceId, Tier, Time, Unknown, names::plain,
};

use crate::columns::{Columns, optional};
use crate::encode::{FAILURES, Metric};
use crate::tiles::Bin;

type Decoded<T> = Result<Vec<T>, String>;

pub(crate) fn regions(columns: &Columns) -> Decoded<Region> {
    let ranges = Ranges::of(columns)?;
    let hits = columns.f32("hits")?;
    let samples = columns.u32("samples")?;
    let age = columns.u32("age")?;
    let level = columns.u8("level")?;
    let confidence = columns.f32("confidence")?;
    let rates = Rates::of(columns)?;
    let why = Reasons::of(columns)?;
    let resident = columns.has("resident").then(|| columns.u64("resident")).transpose()?;
    let region = |row| {
        Ok(Region {
            range: ranges.get(row)?,
            hits: hits.value(row),
            samples: samples.value(row),
            age: age.value(row),
            level: optional(level, row).map(level_of).transpose()?,
            confidence: confidence.value(row),
            rate: rates.as_ref().and_then(|rates| rates.get(row)),
            unknown: why.get(row)?,
            resident: resident.and_then(|resident| optional(resident, row)),
        })
    };
    (0..columns.rows()).map(region).collect()
}

/// The columns of rates; absent in older recordings.
struct Rates<'a> {
    low: &'a Float32Array,
    mean: &'a Float32Array,
    high: &'a Float32Array,
}

impl<'a> Rates<'a> {
    fn of(columns: &'a Columns) -> Result<Option<Self>, String> {
        if !columns.has("rate_mean") {
            return Ok(None);
        }
        let [low, mean, high] =
            ["rate_low", "rate_mean", "rate_high"].map(|name| columns.f32(name));
        Ok(Some(Self { low: low?, mean: mean?, high: high? }))
    }

    fn get(&self, row: usize) -> Option<Rate> {
        Some(Rate {
            low: optional(self.low, row)?,
            mean: optional(self.mean, row)?,
            high: optional(self.high, row)?,
        })
    }
}

/// Columns of unknown regions; absent in older recordings, or without reasons.
struct Reasons<'a> {
    unknown: Option<&'a BooleanArray>,
    reason: Option<&'a UInt8Array>,
}

impl<'a> Reasons<'a> {
    fn of(columns: &'a Columns) -> Result<Self, String> {
        let unknown = columns.has("unknown").then(|| columns.boolean("unknown")).transpose()?;
        let reason = columns.has("unknown_reason").then(|| columns.u8("unknown_reason"));
        Ok(Self { unknown, reason: reason.transpose()? })
    }

    fn get(&self, row: usize) -> Result<Option<Unknown>, String> {
        if !self.unknown.is_some_and(|unknown| unknown.value(row)) {
            return Ok(None);
        }
        match self.reason.and_then(|reason| optional(reason, row)) {
            None => Ok(Some(Unknown::Evidence)),
            Some(number) => match Unknown::ALL.get(usize::from(number)) {
                Some(reason) => Ok(Some(*reason)),
                None => Err(format!("reason {number} of an unknown region")),
            },
        }
    }
}

fn level_of(number: u8) -> Result<Level, String> {
    Level::new(number).ok_or_else(|| format!("page-table level {number}"))
}

/// A row of a layout.
pub(crate) enum MappingRow {
    Mapping(Mapping),
    /// A view of memory of the shared space.
    Shared(SharedView),
    /// A view of memory that was inherited by fork.
    Inherited(SharedView),
}

pub(crate) fn mappings(columns: &Columns) -> Decoded<MappingRow> {
    let ranges = Ranges::of(columns)?;
    let backing = columns.text("backing")?;
    let name = columns.text("name")?;
    let writable = columns.boolean("writable")?;
    let number = |name| columns.has(name).then(|| columns.u64(name)).transpose();
    let [device, inode, offset] = [number("device")?, number("inode")?, number("offset")?];
    let memory_start = number("memory_start")?;
    let memory_space = columns.has("memory_space").then(|| columns.u32("memory_space"));
    let memory_space = memory_space.transpose()?;
    let at = |column: Option<&UInt64Array>, row| column.and_then(|column| optional(column, row));
    let mapping = |row| {
        let (range, name) = (ranges.get(row)?, Arc::from(plain(name.value(row))));
        let space = memory_space.and_then(|column| optional(column, row)).map(SpaceId);
        if let Some((space, start)) = space.zip(at(memory_start, row)) {
            let view = SharedView { range, memory: Addr { space, at: start }, name };
            return Ok(match backing_of(backing.value(row))? {
                Backing::File => MappingRow::Shared(view),
                _ => MappingRow::Inherited(view),
            });
        }
        let object = at(device, row).zip(at(inode, row)).zip(at(offset, row));
        Ok(MappingRow::Mapping(Mapping {
            range,
            backing: backing_of(backing.value(row))?,
            name,
            writable: writable.value(row),
            object: object.map(|((device, inode), offset)| Object { device, inode, offset }),
        }))
    };
    (0..columns.rows()).map(mapping).collect()
}

fn backing_of(name: &str) -> Result<Backing, String> {
    match name {
        "anon" => Ok(Backing::Anonymous),
        "heap" => Ok(Backing::Heap),
        "stack" => Ok(Backing::Stack),
        "file" => Ok(Backing::File),
        "kernel" => Ok(Backing::Kernel),
        _ => Err(format!("backing `{name}`")),
    }
}

pub(crate) fn spaces(columns: &Columns) -> Decoded<Space> {
    let id = columns.u32("space")?;
    let name = columns.text("name")?;
    let space =
        |row| Ok(Space { id: SpaceId(id.value(row)), name: Arc::from(plain(name.value(row))) });
    (0..columns.rows()).map(space).collect()
}

pub(crate) fn actions(columns: &Columns) -> Decoded<Action> {
    let ranges = Ranges::of(columns)?;
    let id = columns.u64("action")?;
    let after = columns.u64("after")?;
    let kind = columns.text("kind")?;
    let tier = columns.u8("tier")?;
    let action = |row| {
        Ok(Action {
            id: ActionId(id.value(row)),
            after: optional(after, row).map(ActionId),
            range: ranges.get(row)?,
            kind: kind_of(kind.value(row), optional(tier, row))?,
        })
    };
    (0..columns.rows()).map(action).collect()
}

fn kind_of(name: &str, tier: Option<u8>) -> Result<ActionKind, String> {
    match (name, tier) {
        ("move", Some(tier)) => Ok(ActionKind::Move(Tier(tier))),
        ("split", None) => Ok(ActionKind::Split),
        ("collapse", None) => Ok(ActionKind::Collapse),
        ("reclaim", None) => Ok(ActionKind::Reclaim),
        _ => Err(format!("action `{name}` with tier {tier:?}")),
    }
}

pub(crate) fn outcomes(columns: &Columns) -> Decoded<Outcome> {
    let id = columns.u64("action")?;
    let time = columns.u64("time_ns")?;
    let done = columns.u64("done")?;
    let failed = columns.u64("failed")?;
    let why = columns.text("why")?;
    let outcome = |row| Outcome {
        id: ActionId(id.value(row)),
        time: Time(time.value(row)),
        done: done.value(row),
        failed: failed.value(row),
        why: why.is_valid(row).then(|| failure_of(why.value(row))),
    };
    Ok((0..columns.rows()).map(outcome).collect())
}

fn failure_of(name: &str) -> Failure {
    FAILURES.iter().find(|(_, known)| *known == name).map_or(Failure::Unsupported, |(f, _)| *f)
}

pub(crate) fn metrics(columns: &Columns) -> Decoded<Metric> {
    let time = columns.u64("time_ns")?;
    let name = columns.text("name")?;
    let space = columns.u32("space")?;
    let value = columns.f64("value")?;
    let metric = |row| Metric {
        time: Time(time.value(row)),
        name: plain(name.value(row)).into(),
        space: optional(space, row).map(SpaceId),
        value: value.value(row),
    };
    Ok((0..columns.rows()).map(metric).collect())
}

/// Zoom and index of a batch's tile; `None` for an empty batch.
pub(crate) fn tile_name(columns: &Columns) -> Result<Option<(u8, u64)>, String> {
    let (zoom, tile) = (columns.u8("zoom")?, columns.u64("tile")?);
    Ok((columns.rows() > 0).then(|| (zoom.value(0), tile.value(0))))
}

pub(crate) fn bins(columns: &Columns) -> Decoded<Bin> {
    let space = columns.u32("space")?;
    let start = columns.u64("start")?;
    let bytes = columns.has("bytes").then(|| columns.u64("bytes")).transpose()?;
    // Older recordings have log2 of it instead.
    let shift = if bytes.is_none() { Some(columns.u8("shift")?) } else { None };
    let size = |row: usize| {
        let power = shift.and_then(|shift| 1u64.checked_shl(shift.value(row).into()));
        bytes.map_or(power.unwrap_or(0), |bytes| bytes.value(row))
    };
    let heat = columns.u8("heat")?;
    let seen = columns.u8("seen")?;
    // Columns that older recordings lack.
    let newer = |name: &str| columns.has(name).then(|| columns.u8(name)).transpose();
    let (sure, unknown) = (newer("confidence")?, newer("unknown_share")?);
    let bin = |row| {
        let bin = Bin {
            space: SpaceId(space.value(row)),
            start: start.value(row),
            bytes: size(row),
            heat: heat.value(row),
            seen: seen.value(row),
            sure: sure.map_or(255, |sure| sure.value(row)),
            unknown: unknown.map_or(0, |unknown| unknown.value(row)),
        };
        if bin.is_sane() { Ok(bin) } else { Err(format!("a tile holds {bin:?}")) }
    };
    (0..columns.rows()).map(bin).collect()
}

/// The columns `space`, `start`, `bytes`.
struct Ranges<'a> {
    space: &'a arrow_array::UInt32Array,
    start: &'a arrow_array::UInt64Array,
    bytes: &'a arrow_array::UInt64Array,
}

impl<'a> Ranges<'a> {
    fn of(columns: &'a Columns) -> Result<Self, String> {
        Ok(Self {
            space: columns.u32("space")?,
            start: columns.u64("start")?,
            bytes: columns.u64("bytes")?,
        })
    }

    fn get(&self, row: usize) -> Result<Range, String> {
        let (start, bytes) = (self.start.value(row), self.bytes.value(row));
        let end = start.checked_add(bytes);
        let end = end.ok_or_else(|| format!("{bytes} bytes from {start:#x} on pass the end"))?;
        Ok(Range::new(SpaceId(self.space.value(row)), start, end))
    }
}
