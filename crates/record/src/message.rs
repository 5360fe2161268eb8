//! Parses encapsulated messages of an Arrow IPC stream without trusting them.
//!
//! The Arrow crates check the constraints of a schema's types, but trust the lengths and offsets of
//! a message. Here each is first checked against the bytes that exist.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Message, MessageHeader, MetadataVersion, root_as_message};
use arrow_schema::SchemaRef;

/// Bytes before the metadata of a message: the continuation marker and the metadata's length.
pub(crate) const PREFIX: usize = 8;

/// Limit on a message's metadata; annotations are the largest part.
const MAX_METADATA: u64 = 16 << 20;

/// Limit on the uncompressed buffers of `bytes` of messages together: 64 MiB, and 16 bytes for each
/// byte, but 256 MiB at most. Real windows are compressed to a third; LZ4 itself allows 255:1.
pub(crate) fn most_unpacked(bytes: usize) -> u64 {
    let (always, ratio, most) = (64 << 20, 16, 256 << 20);
    (always + ratio * bytes as u64).min(most)
}

/// Limit on the rows of a batch: a window has at most as many regions.
pub(crate) const MAX_ROWS: i64 = 1 << 21;

/// Result of parsing at an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framed {
    /// The message is incomplete, or the data end here.
    Incomplete,
    /// The end-of-stream marker.
    End,
    /// A complete message.
    Whole(Framing),
}

/// The parts of a message within a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    metadata: std::ops::Range<usize>,
    body: std::ops::Range<usize>,
}

impl Framing {
    /// Length of the message's body.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// One past the message's last byte.
    pub(crate) fn end(&self) -> usize {
        self.body.end
    }
}

/// Finds the message at `at`.
pub(crate) fn frame(bytes: &[u8], at: usize) -> Result<Framed, String> {
    let Some(prefix) = bytes.get(at..at + PREFIX) else {
        return Ok(Framed::Incomplete);
    };
    let (marker, length) = prefix.split_at(4);
    if marker != [0xff; 4] {
        return Err("no Arrow message where one should begin".into());
    }
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    if length == 0 {
        return Ok(Framed::End);
    }
    if u64::from(length) > MAX_METADATA {
        return Err(format!("a message claims {length} bytes of metadata"));
    }
    let body_start = at + PREFIX + length as usize;
    let Some(metadata) = bytes.get(at + PREFIX..body_start) else {
        return Ok(Framed::Incomplete);
    };
    let body = u64::try_from(parse(metadata)?.bodyLength()).map_err(|_| "negative body length")?;
    if body > (bytes.len() - body_start) as u64 {
        return Ok(Framed::Incomplete);
    }
    let body = body_start..body_start + body as usize;
    Ok(Framed::Whole(Framing { metadata: at + PREFIX..body_start, body }))
}

fn parse(metadata: &[u8]) -> Result<Message<'_>, String> {
    root_as_message(metadata).map_err(|e| format!("malformed Arrow metadata ({e})"))
}

/// Decodes the schema message at `framing`.
pub(crate) fn schema(bytes: &[u8], framing: &Framing) -> Result<SchemaRef, String> {
    let message = parse(&bytes[framing.metadata.clone()])?;
    let schema = message.header_as_schema().ok_or("the stream does not begin with a schema")?;
    Ok(try_fb_to_schema(schema).map_err(|e| e.to_string())?.into())
}

/// Decodes `columns` of the record batch at `framing`, whose uncompressed buffers are taken from
/// `room` ([`most_unpacked`]).
pub(crate) fn batch(
    bytes: &Buffer,
    framing: &Framing,
    schema: &SchemaRef,
    columns: &[usize],
    room: &mut u64,
) -> Result<RecordBatch, String> {
    let message = parse(&bytes[framing.metadata.clone()])?;
    if message.header_type() != MessageHeader::RecordBatch {
        return Err(format!("a {:?} message among record batches", message.header_type()));
    }
    let batch = message.header_as_record_batch().ok_or("a record batch without a header")?;
    let body = bytes.slice_with_length(framing.body.start, framing.body.len());
    check(&batch, &body, room)?;
    let version = MetadataVersion::V5;
    let none = HashMap::new();
    let schema = schema.clone();
    arrow_ipc::reader::read_record_batch(&body, batch, schema, &none, Some(columns), &version)
        .map_err(|e| e.to_string())
}

/// Checks that every length and offset lies within the body.
fn check(batch: &arrow_ipc::RecordBatch<'_>, body: &[u8], room: &mut u64) -> Result<(), String> {
    let rows = batch.length();
    if !(0..=MAX_ROWS).contains(&rows) {
        return Err(format!("a batch claims {rows} rows"));
    }
    for node in batch.nodes().into_iter().flatten() {
        if node.length() != rows || !(0..=rows).contains(&node.null_count()) {
            return Err("a column does not have as many rows as its batch".into());
        }
    }
    let compressed = batch.compression().is_some();
    for buffer in batch.buffers().into_iter().flatten() {
        let part = slice(body, buffer.offset(), buffer.length());
        let part = part.ok_or("a buffer lies outside of its message")?;
        if compressed && !part.is_empty() {
            let length = unpacked_length(part)?;
            let left = room.checked_sub(length);
            *room = left.ok_or_else(|| format!("a buffer claims {length} bytes uncompressed"))?;
        }
    }
    Ok(())
}

fn slice(body: &[u8], offset: i64, length: i64) -> Option<&[u8]> {
    let offset = usize::try_from(offset).ok()?;
    let length = usize::try_from(length).ok()?;
    body.get(offset..offset.checked_add(length)?)
}

/// The uncompressed length in the header of a compressed buffer; 0 for one that is not compressed
/// (-1).
fn unpacked_length(part: &[u8]) -> Result<u64, String> {
    let prefix = part.first_chunk().ok_or("a compressed buffer without a length")?;
    match i64::from_le_bytes(*prefix) {
        -1 => Ok(0),
        length => u64::try_from(length).map_err(|_| format!("a buffer claims {length} bytes")),
    }
}
