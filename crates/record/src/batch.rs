//! Writes record batches of fixed-width columns directly into an IPC stream.
//!
//! Regions make up nearly all of a recording, thousands per window: building Arrow arrays only to
//! compress and drop them costs more than the regions themselves. The message equals that of
//! Arrow's writer (`format/Message.fbs` of Apache Arrow), except that buffers are compressed by
//! [`lz4`], or stored uncompressed and marked so.

use arrow_ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode,
    MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use flatbuffers::FlatBufferBuilder;

use crate::lz4;
use crate::message::PREFIX;

/// Alignment of buffers and metadata.
const ALIGNMENT: usize = 8;

/// In place of a buffer's uncompressed length: the buffer is not compressed.
const PLAIN: i64 = -1;

/// Encoder of batches; reuses its memory for consecutive batches.
#[derive(Default)]
pub(crate) struct Batch {
    rows: usize,
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    body: Vec<u8>,
    /// Scratch buffer for a column before compression.
    column: Vec<u8>,
    metadata: FlatBufferBuilder<'static>,
}

impl Batch {
    /// Begins a batch of `rows` rows.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.rows = rows;
        self.nodes.clear();
        self.buffers.clear();
        self.body.clear();
    }

    /// Appends a compressible column; values are little-endian bytes.
    pub(crate) fn column<const WIDTH: usize>(
        &mut self,
        values: impl ExactSizeIterator<Item = [u8; WIDTH]>,
    ) {
        self.node(0);
        self.buffer(|_| {});
        self.compressed(values);
    }

    /// Appends a column that is not worth compressing; values are little-endian bytes.
    pub(crate) fn plain<const WIDTH: usize>(&mut self, values: impl Iterator<Item = [u8; WIDTH]>) {
        self.node(0);
        self.buffer(|_| {});
        let size = self.rows * WIDTH;
        self.buffer(|body| {
            body.extend_from_slice(&PLAIN.to_le_bytes());
            let start = body.len();
            body.resize(start + size, 0);
            fill(&mut body[start..], values);
        });
    }

    /// Appends a nullable column of values of `N` bytes.
    pub(crate) fn nullable<const N: usize>(
        &mut self,
        values: impl ExactSizeIterator<Item = Option<[u8; N]>> + Clone,
    ) {
        let nulls = values.clone().filter(Option::is_none).count();
        self.node(nulls);
        if nulls == 0 {
            self.buffer(|_| {});
        } else {
            self.bits(values.clone().map(|value| value.is_some()));
        }
        self.compressed(values.map(|value| value.unwrap_or([0; N])));
    }

    /// Appends a boolean column.
    pub(crate) fn flags(&mut self, values: impl Iterator<Item = bool>) {
        self.node(0);
        self.buffer(|_| {});
        self.bits(values);
    }

    /// Appends a bitmap buffer, one bit per row.
    fn bits(&mut self, values: impl Iterator<Item = bool>) {
        let mut bits = vec![[0u8]; self.rows.div_ceil(8)];
        for (row, value) in values.enumerate() {
            bits[row / 8][0] |= u8::from(value) << (row % 8);
        }
        self.compressed(bits.into_iter());
    }

    /// Ends the batch and appends it to `stream`, as an encapsulated message.
    pub(crate) fn end(&mut self, stream: &mut Vec<u8>) {
        self.describe();
        let metadata = self.metadata.finished_data();
        let padded = metadata.len().next_multiple_of(ALIGNMENT);
        stream.reserve(PREFIX + padded + self.body.len());
        stream.extend_from_slice(&[0xff; 4]);
        stream.extend_from_slice(&(padded as u32).to_le_bytes());
        stream.extend_from_slice(metadata);
        stream.resize(stream.len() + padded - metadata.len(), 0);
        stream.extend_from_slice(&self.body);
    }

    fn node(&mut self, nulls: usize) {
        self.nodes.push(FieldNode::new(self.rows as i64, nulls as i64));
    }

    fn buffer(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.body.len();
        write(&mut self.body);
        self.buffers.push(Buffer::new(start as i64, (self.body.len() - start) as i64));
        self.body.resize(self.body.len().next_multiple_of(ALIGNMENT), 0);
    }

    fn compressed<const WIDTH: usize>(
        &mut self,
        values: impl ExactSizeIterator<Item = [u8; WIDTH]>,
    ) {
        let mut column = std::mem::take(&mut self.column);
        column.resize(values.len() * WIDTH, 0);
        fill(&mut column, values);
        self.buffer(|body| {
            let start = body.len();
            body.extend_from_slice(&(column.len() as i64).to_le_bytes());
            lz4::frame(&column, WIDTH, body);
            if body.len() - start - size_of::<i64>() >= column.len() {
                body.truncate(start);
                body.extend_from_slice(&PLAIN.to_le_bytes());
                body.extend_from_slice(&column);
            }
        });
        self.column = column;
    }

    fn describe(&mut self) {
        let fbb = &mut self.metadata;
        fbb.reset();
        let buffers = fbb.create_vector(&self.buffers);
        let nodes = fbb.create_vector(&self.nodes);
        let mut compression = BodyCompressionBuilder::new(fbb);
        compression.add_method(BodyCompressionMethod::BUFFER);
        compression.add_codec(CompressionType::LZ4_FRAME);
        let compression = compression.finish();
        let mut batch = RecordBatchBuilder::new(fbb);
        batch.add_length(self.rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        batch.add_compression(compression);
        let batch = batch.finish();
        let mut message = MessageBuilder::new(fbb);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(self.body.len() as i64);
        message.add_header(batch.as_union_value());
        let message = message.finish();
        fbb.finish(message, None);
    }
}

/// Writes consecutive values into `room`, which fits all of them.
fn fill<const WIDTH: usize>(room: &mut [u8], values: impl Iterator<Item = [u8; WIDTH]>) {
    let (rooms, _) = room.as_chunks_mut::<WIDTH>();
    rooms.iter_mut().zip(values).for_each(|(room, value)| *room = value);
}
