//! The zoom pyramid, packed for the page: as many levels as fit into a budget of bytes, coarsest
//! first.

use std::ops::Range as Span;

use miniz_oxide::deflate::compress_to_vec;
use serde::Serialize;
use tierscope_core::Result;
use tierscope_record::{BINS, Heat, HeatPart, Recording, windows_in};

use super::base64;
use super::ruler::Ruler;
use crate::view::{View, since_start};

/// Maximum number of pieces of the coarsest level: about the number of columns on a screen.
const PIECES: usize = 512;
/// Approximate size of a part in bytes, before compression.
const PART_BYTES: usize = 6;
/// Approximate upper limit of the compression ratio: a level that would exceed the budget at this
/// ratio is not tried.
const DEFLATES: usize = 6;
/// Compression level of deflate: higher levels gain little on bytes of heat.
const EFFORT: u8 = 3;

/// A level: pieces of time, each with parts of the addresses.
///
/// `packed` is base64 of raw deflate (RFC 1951) of five concatenated streams. For each part they
/// hold the units between the end of the previous part and its start, its length in units (both
/// LEB128), its heat, and the shares of it that are known and unknown (a byte each, in 1/255).
#[derive(Debug, Serialize)]
pub(super) struct Level {
    /// Windows per piece: 8 to the power of this; fewer where no tile is complete.
    zoom: u8,
    /// Start of each piece, in nanoseconds since the recording began.
    from: Vec<u64>,
    /// End of each piece, in nanoseconds since the recording began.
    to: Vec<u64>,
    /// Number of parts of each piece.
    parts: Vec<u32>,
    /// Lengths of the five streams, in bytes.
    streams: [usize; 5],
    packed: String,
}

/// The levels of `windows` that fit into `budget` bytes, coarsest first; the coarsest is always
/// included.
pub(super) fn levels(
    recording: &Recording,
    windows: &Span<usize>,
    view: &View,
    ruler: &Ruler,
    budget: usize,
) -> Result<Vec<Level>> {
    let coarsest = coarsest(windows.len());
    let mut left = budget;
    let mut levels = Vec::new();
    for zoom in (0..=coarsest).rev() {
        let hopeless = guess(recording, windows, zoom) / DEFLATES > left;
        if hopeless && zoom < coarsest {
            break;
        }
        let level = Packer::new(ruler, view).pack(recording, windows, zoom)?;
        if level.packed.len() > left && zoom < coarsest {
            break;
        }
        left = left.saturating_sub(level.packed.len());
        levels.push(level);
    }
    Ok(levels)
}

/// The finest zoom at which `windows` make at most [`PIECES`] pieces.
fn coarsest(windows: usize) -> u8 {
    let fits = |zoom: &u8| windows as u64 / windows_in(*zoom) <= PIECES as u64;
    (0..u8::MAX).find(fits).unwrap_or(0)
}

/// Approximate size of a level in bytes, before compression.
fn guess(recording: &Recording, windows: &Span<usize>, zoom: u8) -> usize {
    let parts = match zoom {
        0 => recording.commits()[windows.clone()].iter().map(|row| row.regions as usize).sum(),
        _ => windows.len() / windows_in(zoom) as usize * BINS,
    };
    parts.saturating_mul(PART_BYTES)
}

struct Packer<'a> {
    ruler: &'a Ruler,
    view: &'a View,
    from: Vec<u64>,
    to: Vec<u64>,
    parts: Vec<u32>,
    gaps: Vec<u8>,
    lengths: Vec<u8>,
    heats: Vec<u8>,
    seens: Vec<u8>,
    unknowns: Vec<u8>,
}

impl<'a> Packer<'a> {
    fn new(ruler: &'a Ruler, view: &'a View) -> Self {
        let (from, to, parts) = (Vec::new(), Vec::new(), Vec::new());
        let (gaps, lengths) = (Vec::new(), Vec::new());
        let (heats, seens, unknowns) = (Vec::new(), Vec::new(), Vec::new());
        Self { ruler, view, from, to, parts, gaps, lengths, heats, seens, unknowns }
    }

    fn pack(mut self, recording: &Recording, windows: &Span<usize>, zoom: u8) -> Result<Level> {
        recording.heat(windows.clone(), zoom, |heat| {
            let nanos = |time| since_start(recording, time).as_nanos() as u64;
            self.from.push(nanos(heat.time.start));
            self.to.push(nanos(heat.time.end));
            self.add(&heat);
            Ok(())
        })?;
        let streams = [&self.gaps, &self.lengths, &self.heats, &self.seens, &self.unknowns];
        Ok(Level {
            zoom,
            streams: streams.map(Vec::len),
            packed: base64::encode(&compress_to_vec(&streams.map(Vec::as_slice).concat(), EFFORT)),
            from: self.from,
            to: self.to,
            parts: self.parts,
        })
    }

    fn add(&mut self, heat: &Heat) {
        let (ruler, view) = (self.ruler, self.view);
        let clipped = |part: &HeatPart| view.clip(&part.range).collect::<Vec<_>>();
        let all =
            heat.parts.iter().flat_map(|part| clipped(part).into_iter().map(move |r| (r, part)));
        let place = |(range, part)| ruler.place(range).map(move |units| (units, part));
        let mut placed: Vec<((u32, u32), &HeatPart)> = all.flat_map(place).collect();
        placed.sort_by_key(|(units, _)| *units);
        let (mut end, mut count) = (0, 0);
        for ((first, past), part) in placed {
            // A region that begins inside a unit shares that unit with the previous region.
            let first = first.max(end);
            if past <= first {
                continue;
            }
            push_number(&mut self.gaps, first - end);
            push_number(&mut self.lengths, past - first);
            self.heats.push(in_255ths(part.heat));
            self.seens.push(in_255ths(part.seen));
            self.unknowns.push(in_255ths(part.unknown));
            (end, count) = (past, count + 1);
        }
        self.parts.push(count);
    }
}

/// Appends an unsigned LEB128 number: seven bits per byte, least significant first.
fn push_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A share in 1/255, as in tiles: rounded, but a share above 0 never becomes 0.
fn in_255ths(share: f64) -> u8 {
    if share <= 0.0 { 0 } else { (share * 255.0).round().clamp(1.0, 255.0) as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sevens() {
        let mut bytes = Vec::new();
        [0, 127, 128, 300, u32::MAX].iter().for_each(|n| push_number(&mut bytes, *n));
        assert_eq!(bytes, [0, 127, 0x80, 1, 0xac, 2, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    }

    #[test]
    fn an_hour_begins_at_64_windows_a_piece() {
        assert_eq!([1, 512, 519, 520, 18_000, 40_000].map(coarsest), [0, 0, 1, 1, 2, 3]);
    }
}
