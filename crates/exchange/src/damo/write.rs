//! A recording as the JSON that `damo report` reads.
//!
//! damo's working set is the memory of regions with at least one access, and its hot set that of
//! regions with at least a number of accesses. Accesses are therefore rounded down: a region has
//! one if and only if [`Region::is_accessed`], and both tools print the same bytes.
//!
//! damo keeps one record per target, tierscope one window for all spaces: the snapshots of the
//! first space are written immediately, those of the other spaces are buffered in a scratch file.
//! Values that damo's format lacks (fractional counts, samples per region, level, confidence, rate,
//! CPU time) are written under the key `tierscope`, which damo ignores and our import reads.
//!
//! To damo a region without accesses is idle. Regions that are unknown or were not probed are
//! therefore omitted from the `regions` that damo reads, which leaves a gap. They are written as
//! `unknown` under the snapshot's key `tierscope`, so that an import loses nothing; [`LeftOut`]
//! counts them.

use std::collections::BTreeMap;
use std::io::{self, SeekFrom, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::json;
use tierscope_core::{Rate, Region, SpaceId};
use tierscope_record::{Commit, Fact, Recording};

use crate::spool::{Origin, SOURCE, Scratch, UPDATE};
use crate::tables::{Failure, Tick};

/// Encoding of damo's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Uncompressed text.
    Plain,
    /// zlib-compressed, as `damo record` writes it.
    Compressed,
}

/// Regions that are hidden from damo because they are unknown or were not probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LeftOut {
    /// Number of regions, each counted in every window.
    pub regions: u64,
    /// Windows that contain such regions.
    pub windows: u64,
}

/// Writes all windows of `recording`; `scratch` has to be empty. Returns how much damo will not
/// see.
///
/// # Errors
/// If the recording cannot be read, or writing to `out` or `scratch` fails.
pub fn write(
    recording: &Recording,
    shape: Shape,
    out: &mut dyn Write,
    scratch: &mut dyn Scratch,
    tick: Tick<'_>,
) -> Result<LeftOut, Failure> {
    let left_out = match shape {
        Shape::Plain => Writer::new(recording, out, scratch).all(tick)?,
        Shape::Compressed => {
            let mut zlib = ZlibEncoder::new(&mut *out, Compression::default());
            let left_out = Writer::new(recording, &mut zlib, scratch).all(tick)?;
            zlib.finish()?;
            left_out
        }
    };
    out.flush()?;
    Ok(left_out)
}

struct Writer<'a> {
    recording: &'a Recording,
    out: &'a mut dyn Write,
    scratch: &'a mut dyn Scratch,
    spilled: u64,
    /// The space whose snapshots are written immediately.
    first: Option<SpaceId>,
    /// Whether a snapshot of the first space has been written.
    begun: bool,
    others: BTreeMap<SpaceId, Other>,
    text: Vec<u8>,
    left_out: LeftOut,
}

/// A space whose snapshots are buffered in the scratch file.
struct Other {
    name: String,
    parts: Vec<(u64, usize)>,
}

impl<'a> Writer<'a> {
    fn new(recording: &'a Recording, out: &'a mut dyn Write, scratch: &'a mut dyn Scratch) -> Self {
        let (others, text) = (BTreeMap::new(), Vec::new());
        let left_out = LeftOut::default();
        Self {
            recording,
            out,
            scratch,
            spilled: 0,
            first: None,
            begun: false,
            others,
            text,
            left_out,
        }
    }

    fn all(mut self, tick: Tick<'_>) -> Result<LeftOut, Failure> {
        self.out.write_all(b"[")?;
        let windows = self.recording.commits().len();
        for index in 0..windows {
            self.window(index)?;
            tick(index as u64 + 1, windows as u64)?;
        }
        if self.first.is_some() {
            self.out.write_all(TAIL)?;
        }
        self.waiting()?;
        self.out.write_all(b"]\n")?;
        Ok(self.left_out)
    }

    fn window(&mut self, index: usize) -> Result<(), Failure> {
        let snapshot = self.recording.snapshot(index)?;
        let first = match self.first {
            Some(first) => first,
            None => self.begin(index, snapshot.regions.first())?,
        };
        let row = &self.recording.commits()[index];
        let unknown = snapshot.regions.iter().filter(|region| region.is_unknown()).count() as u64;
        self.left_out.regions += unknown;
        self.left_out.windows += u64::from(unknown > 0);
        // A window without regions is written as an empty snapshot.
        if snapshot.regions.is_empty() {
            self.snapshot(first, index, row, &[])?;
        }
        for regions in snapshot.regions.chunk_by(|a, b| a.range.space == b.range.space) {
            self.snapshot(regions[0].range.space, index, row, regions)?;
        }
        Ok(())
    }

    /// Begins the record of the first space.
    fn begin(&mut self, index: usize, region: Option<&Region>) -> Result<SpaceId, Failure> {
        let layout = self.recording.layout(index)?;
        let known = layout.spaces.first().map(|space| space.id);
        let space = region.map(|region| region.range.space).or(known).unwrap_or_default();
        let name = layout.space_name(space);
        self.head(space, &name, true)?;
        self.first = Some(space);
        Ok(space)
    }

    fn head(&mut self, space: SpaceId, name: &str, first: bool) -> io::Result<()> {
        let meta = self.recording.meta();
        let micros = |span: std::time::Duration| span.as_micros().max(1) as u64;
        // damo needs one; its default.
        let update = meta.annotations.get(UPDATE).and_then(|text| text.parse().ok());
        let update: u64 = update.unwrap_or(1_000_000);
        let intervals = meta.has(Fact::Intervals).then(|| {
            json!({
                "sample_us": micros(meta.sampling),
                "aggr_us": micros(meta.window),
                "ops_update_us": update,
            })
        });
        let intervals = json!(intervals);
        let source = meta.annotations.get(&format!("{SOURCE}{}", space.0));
        let source = source.and_then(|text| Origin::of_text(text));
        let own = Origin::target(space.0.into());
        let Origin { context: [kdamond, context, scheme], target, .. } = source.unwrap_or(own);
        let [kdamond, context, scheme] = [kdamond, context, scheme].map(|index| json!(index));
        let mut ours = json!({"space": space.0, "name": name});
        if first {
            ours["recording"] = json!(meta.to_map());
        }
        let comma = if first { "" } else { "," };
        write!(
            self.out,
            "{comma}\n{{\"kdamond_idx\": {kdamond}, \"context_idx\": {context}, \"intervals\": {intervals}, \
             \"scheme_idx\": {scheme}, \"target_id\": {target}, \"scheme_filters\": [], \
             \"data_source\": \"tierscope\", \"tierscope\": {ours}, \"snapshots\": [",
        )
    }

    /// Writes a snapshot to the output if `space` is the first one, else to the scratch file.
    fn snapshot(
        &mut self,
        space: SpaceId,
        index: usize,
        row: &Commit,
        regions: &[Region],
    ) -> Result<(), Failure> {
        let nominal = self.nominal();
        self.text.clear();
        push_snapshot(row, regions, nominal, &mut self.text)?;
        if self.first == Some(space) {
            self.out.write_all(if self.begun { b"," } else { b"" })?;
            self.begun = true;
            return Ok(self.out.write_all(&self.text)?);
        }
        if !self.others.contains_key(&space) {
            let name = self.recording.layout(index)?.space_name(space).to_string();
            self.others.insert(space, Other { name, parts: Vec::new() });
        }
        self.scratch.write_all(&self.text)?;
        let part = (self.spilled, self.text.len());
        self.spilled += self.text.len() as u64;
        if let Some(other) = self.others.get_mut(&space) {
            other.parts.push(part);
        }
        Ok(())
    }

    /// Copies the buffered snapshots of the other spaces from the scratch file to the output.
    fn waiting(&mut self) -> Result<(), Failure> {
        for (space, other) in std::mem::take(&mut self.others) {
            self.head(space, &other.name, false)?;
            for (index, (at, length)) in other.parts.into_iter().enumerate() {
                self.text.resize(length, 0);
                self.scratch.seek(SeekFrom::Start(at))?;
                self.scratch.read_exact(&mut self.text)?;
                self.out.write_all(if index == 0 { b"" } else { b"," })?;
                self.out.write_all(&self.text)?;
            }
            self.out.write_all(TAIL)?;
        }
        Ok(())
    }

    /// Sampling intervals per window, computed as damo does; `None` if the recording does not have
    /// them, so that counts stay as they are.
    fn nominal(&self) -> Option<f64> {
        let meta = self.recording.meta();
        let ratio = meta.window.as_nanos() as f64 / meta.sampling.as_nanos() as f64;
        meta.has(Fact::Intervals).then_some(ratio.max(1.0))
    }
}

/// Text that ends a record.
const TAIL: &[u8] = b"\n]}";

fn push_snapshot(
    row: &Commit,
    regions: &[Region],
    nominal: Option<f64>,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let known = || regions.iter().filter(|region| !region.is_unknown());
    let bytes: u64 = known().map(|r| r.range.bytes()).fold(0, u64::saturating_add);
    write!(
        text,
        "\n{{\"start_time\": {}, \"end_time\": {}, \"total_bytes\": {bytes}, \"damos_stats\": null, \
         \"sample_interval_us\": null, \"tierscope\": {{\"window\": {}, \"samples\": {}, \
         \"profiler_ns\": {}, \"target_ns\": {}, \"unknown\": [",
        row.start.0,
        row.end.0,
        row.window,
        row.samples,
        row.cpu.profiler.as_nanos(),
        row.cpu.target.as_nanos(),
    )?;
    for (index, region) in regions.iter().filter(|region| region.is_unknown()).enumerate() {
        text.extend_from_slice(if index == 0 { b"" } else { b", " });
        push_unknown(region, text)?;
    }
    text.extend_from_slice(b"]}, \"regions\": [");
    for (index, region) in known().enumerate() {
        text.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        push_region(row, region, nominal, text)?;
    }
    text.extend_from_slice(b"]}");
    Ok(())
}

/// Writes an unknown region, which damo would take for idle.
fn push_unknown(region: &Region, text: &mut Vec<u8>) -> io::Result<()> {
    write!(
        text,
        "{{\"start\": {}, \"end\": {}, \"age\": {}, \"unknown\": {}, ",
        region.range.start,
        region.range.end,
        region.age,
        region.unknown.is_some()
    )?;
    if let Some(reason) = region.unknown {
        write!(text, "\"reason\": \"{}\", ", reason.name())?;
    }
    push_ours(region, text)?;
    text.push(b'}');
    Ok(())
}

/// Writes a region's fields that damo's format lacks.
fn push_ours(region: &Region, text: &mut Vec<u8>) -> io::Result<()> {
    let level = region.level.map_or("null".into(), |level| level.number().to_string());
    write!(
        text,
        "\"hits\": {}, \"samples\": {}, \"level\": {level}, \"confidence\": {}",
        region.hits, region.samples, region.confidence
    )?;
    if let Some(Rate { low, mean, high }) = region.rate {
        write!(text, ", \"rate\": [{low}, {mean}, {high}]")?;
    }
    if let Some(resident) = region.resident {
        write!(text, ", \"resident\": {resident}")?;
    }
    Ok(())
}

/// Writes a region as damo has them. Its age is a number even if the recording has none: damo ends
/// with an error otherwise.
fn push_region(
    row: &Commit,
    region: &Region,
    nominal: Option<f64>,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let accesses = accesses(region, nominal.unwrap_or(region.samples.into()));
    write!(
        text,
        "{{\"start\": {}, \"end\": {}, \"nr_accesses\": {{\"samples\": {accesses}, \"percent\": null}}, \
         \"age\": {{\"usec\": null, \"aggr_intervals\": {}}}, \"sz_filter_passed\": 0",
        region.range.start, region.range.end, region.age
    )?;
    let damo_says_it_all = region.hits == accesses as f32
        && region.samples == row.samples
        && region.level.is_none()
        && region.rate.is_none()
        && region.resident.is_none()
        && region.confidence == 1.0;
    if !damo_says_it_all {
        text.extend_from_slice(b", \"tierscope\": {");
        push_ours(region, text)?;
        text.push(b'}');
    }
    text.push(b'}');
    Ok(())
}

/// Accesses per `nominal` sampling intervals, rounded down to damo's integers, but to at least 1 if
/// the region counts as accessed, and else to 0.
fn accesses(region: &Region, nominal: f64) -> u64 {
    if !region.is_accessed() {
        return 0;
    }
    let hits = f64::from(region.hits).min(region.samples.into());
    ((hits * nominal / f64::from(region.samples)) as u64).max(1)
}
