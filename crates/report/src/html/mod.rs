//! A recording as a single HTML page: it loads no other files, and shows a static version without
//! JavaScript.
//!
//! The page either contains its data ([`Data::Inline`], a file to keep and to send) or fetches it
//! ([`Data::Url`]): a server that answers requests to that address with [`data`] makes the page
//! live.

mod base64;
mod layouts;
mod levels;
mod parts;
mod ruler;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::thread;

use serde::Serialize;
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{Error, ErrorKind, Range, Result, SpaceId};
use tierscope_record::Recording;

use crate::blocks::{Block, blocks};
use crate::svg::{self, escaped};
use crate::view::{View, since_start};
use crate::{names, ramp, seen};
use layouts::Layouts;
use levels::Level;
use parts::parts;
use ruler::Ruler;

/// Where the page gets its data from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// The data is contained in the page.
    Inline,
    /// From this address, relative to the page's own, polled until the recording has ended. Each
    /// request carries the page's current [`tag`] as `If-None-Match`: the server answers 304 if the
    /// tag is still the same, else [`data`] with the new tag as `ETag`. The page shows any other
    /// answer as a lost connection, and tries again.
    Url(&'a str),
}

/// Options of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The part of the recording to show.
    pub view: View,
    /// Maximum size of the heat data in the page, in bytes. Levels of the zoom pyramid that do not
    /// fit are left out, finest first; the coarsest is always included.
    pub budget: usize,
    /// Address of the page of the preceding recording, relative to the page's own.
    pub before: Option<String>,
}

impl Default for Options {
    /// The whole recording in a file of less than 10 MB.
    fn default() -> Self {
        Self { view: View::default(), budget: 9 << 20, before: None }
    }
}

impl Options {
    /// For a page that is fetched again with every window.
    #[must_use]
    pub fn live() -> Self {
        Self { view: View::default(), budget: 512 << 10, before: None }
    }
}

/// Rows of a heatmap that no terminal limits: of the page, without JavaScript and with it.
const ROWS: usize = 90;

/// The data that the page's JavaScript draws.
#[derive(Serialize)]
struct Document {
    tag: String,
    /// Whether more windows may follow.
    live: bool,
    /// Time between two polls of the data.
    poll_ms: u64,
    target: String,
    hot_frequency: f64,
    from_ns: u64,
    to_ns: u64,
    unit_bytes: u64,
    /// Names of the spaces.
    spaces: Vec<String>,
    areas: Vec<Area>,
    layouts: Layouts,
    levels: Vec<Level>,
    /// The other parts of the page by the ids of their elements, for pages that fetch their data.
    parts: BTreeMap<&'static str, String>,
}

/// A block of addresses: the memory of a mapping, or of several small ones.
#[derive(Serialize)]
struct Area {
    /// Name of the mapping.
    mapping: String,
    /// Whether it holds several small mappings.
    rest: bool,
    /// Rows that it takes of a heatmap with [`ROWS`] rows.
    rows: usize,
    first: u32,
    units: u32,
    /// Of each part: first address in hexadecimal (JSON numbers are not wide enough), first unit,
    /// and index in `spaces`.
    parts: Vec<(String, u32, usize)>,
}

/// The whole page.
///
/// # Errors
/// Same as [`crate::summary`], except that a page that fetches its data may be made before the
/// first window.
pub fn page(recording: &Recording, options: &Options, data: Data<'_>) -> Result<String> {
    let (parts, source) = match data {
        Data::Inline => {
            // Two threads, because a user is waiting.
            let (parts, document) = thread::scope(|scope| {
                let parts = scope.spawn(|| parts(recording, options));
                let document = document(recording, options, BTreeMap::new());
                (parts.join(), document)
            });
            let parts = parts.unwrap_or_else(|panic| resume_unwind(panic))?;
            (parts, inline(&to_json(&document?)?))
        }
        Data::Url(url) => {
            let waiting = recording.commits().is_empty();
            let parts = if waiting { BTreeMap::new() } else { parts(recording, options)? };
            (
                parts,
                format!(
                    r#"<script type="application/json" id="data" data-url="{}"></script>"#,
                    escaped(url)
                ),
            )
        }
    };
    Ok(filled(&|name| match name {
        "title" => escaped(&recording.meta().target),
        "ramp" => ramp::css(),
        "steps" => ramp::STEPS.to_string(),
        "charts" => svg::css(),
        "style" => include_str!("page.css").into(),
        "script" => include_str!("page.js").into(),
        "data" => source.clone(),
        part => parts.get(part).cloned().unwrap_or_default(),
    }))
}

/// The JSON document that a page of [`Data::Url`] fetches.
///
/// # Errors
/// Same as [`crate::summary`]: [`ErrorKind::Data`] before the first window.
pub fn data(recording: &Recording, options: &Options) -> Result<String> {
    to_json(&document(recording, options, parts(recording, options)?)?)
}

/// Identifies the state of a recording: the tag changes whenever the recording grows or ends.
/// Suitable as HTTP's `ETag`, quotes included.
#[must_use]
pub fn tag(recording: &Recording) -> String {
    let last = recording.commits().last().map_or(0, |row| row.row_crc);
    let ended = if recording.is_ended() { "-ended" } else { "" };
    format!("\"{}-{last:08x}{ended}\"", recording.commits().len())
}

fn document(
    recording: &Recording,
    options: &Options,
    parts: BTreeMap<&'static str, String>,
) -> Result<Document> {
    let view = &options.view;
    let windows = view.windows(recording)?;
    let seen = names::distinct(recording, &windows, layouts::MOMENTS)?;
    let all: Vec<_> = seen.iter().map(|(_, layout)| layout.clone()).collect();
    let memory = seen::memory(recording, &windows, view, &all)?;
    let (blocks, _) = blocks(&memory, ROWS);
    let ruler = Ruler::new(blocks.iter().map(|block| block.parts.as_slice()));
    let spaces: BTreeSet<SpaceId> =
        blocks.iter().flat_map(|block| block.parts.iter().map(|part| part.space)).collect();
    let spaces: Vec<SpaceId> = spaces.into_iter().collect();
    let commits = recording.commits();
    let nanos = |time| since_start(recording, time).as_nanos() as u64;
    let window = recording.meta().window.as_millis() as u64;
    // The longer the recording, the more work per poll, and the less one window changes.
    let busy = windows.len() as u64 / 10;
    Ok(Document {
        tag: tag(recording),
        live: !recording.is_ended(),
        poll_ms: window.max(busy).clamp(200, 10_000),
        target: recording.meta().target.clone(),
        hot_frequency: HOT_FREQUENCY,
        from_ns: nanos(commits[windows.start].start),
        to_ns: nanos(commits[windows.end - 1].end),
        unit_bytes: ruler.unit_bytes(),
        areas: areas(&ruler, &blocks, &spaces),
        spaces: spaces.iter().map(|space| names::space_name(all.iter(), *space)).collect(),
        layouts: layouts::layouts(recording, &seen, view, &ruler),
        levels: levels::levels(recording, &windows, view, &ruler, options.budget)?,
        parts,
    })
}

fn areas(ruler: &Ruler, blocks: &[Block], spaces: &[SpaceId]) -> Vec<Area> {
    let mut next = 0;
    let mut area = |block: &Block| {
        let first = next;
        let part = |part: &Range| {
            let here = next;
            next += ruler.units_of(part);
            (format!("{:#x}", part.start), here, spaces.partition_point(|s| *s < part.space))
        };
        let parts = block.parts.iter().map(part).collect();
        let (mapping, rest, rows) = (block.name.clone(), block.is_rest, block.count());
        Area { mapping, rest, rows, first, units: next - first, parts }
    };
    blocks.iter().map(&mut area).collect()
}

fn to_json(document: &Document) -> Result<String> {
    serde_json::to_string(document).map_err(|error| {
        Error::new(ErrorKind::Other, "cannot write the page's data")
            .cause(error)
            .remedy("this is a fault of tierscope: please report it")
    })
}

/// JSON as an element of a page, with `<` escaped so that it never begins a tag.
fn inline(json: &str) -> String {
    let json = json.replace('<', "\\u003c");
    format!(r#"<script type="application/json" id="data">{json}</script>"#)
}

/// The page template, with each `{{name}}` replaced by its value.
fn filled(value: &dyn Fn(&str) -> String) -> String {
    let mut pieces = include_str!("page.html").split("{{");
    let mut page = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        page.push_str(&value(name));
        page.push_str(rest);
    }
    page
}
