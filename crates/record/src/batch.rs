//! Record batches of fixed-width columns, written straight into an IPC stream.
//!
//! Regions are nearly all of what a recording holds, thousands a window: for them arrays that are
//! built only to be compressed and dropped cost more than the regions. The message is the one that
//! Arrow's writer would write (`format/Message.fbs` of Apache Arrow); only buffers are compressed
//! by [`lz4`], or left alone where they say so.

use arrow_ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode,
    MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use flatbuffers::FlatBufferBuilder;

use crate::lz4;
use crate::message::PREFIX;

/// Buffers and metadata begin at multiples of this.
const ALIGNMENT: usize = 8;

/// In place of a buffer's uncompressed length: it is not compressed.
const PLAIN: i64 = -1;

/// Writes batches, one after the other, in the same memory.
#[derive(Default)]
pub(crate) struct Batch {
    rows: usize,
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    body: Vec<u8>,
    /// A column before it is compressed.
    column: Vec<u8>,
    metadata: FlatBufferBuilder<'static>,
}

impl Batch {
    /// Begins a batch of so many rows.
    pub(crate) fn begin(&mut self, rows: usize) {
        self.rows = rows;
        self.nodes.clear();
        self.buffers.clear();
        self.body.clear();
    }

    /// A column that repeats itself, value by value in little-endian bytes.
    pub(crate) fn column<const WIDTH: usize>(
        &mut self,
        values: impl ExactSizeIterator<Item = [u8; WIDTH]>,
    ) {
        self.node(0);
        self.buffer(|_| {});
        self.compressed(values);
    }

    /// A column in which compression would find little.
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

    /// A column of values of `N` bytes that may lack some.
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

    /// A column of yes or no.
    pub(crate) fn flags(&mut self, values: impl Iterator<Item = bool>) {
        self.node(0);
        self.buffer(|_| {});
        self.bits(values);
    }

    /// A buffer with a bit for each row.
    fn bits(&mut self, values: impl Iterator<Item = bool>) {
        let mut bits = vec![[0u8]; self.rows.div_ceil(8)];
        for (row, value) in values.enumerate() {
            bits[row / 8][0] |= u8::from(value) << (row % 8);
        }
        self.compressed(bits.into_iter());
    }

    /// Ends the batch and appends it, as an encapsulated message.
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

/// Writes values side by side; there is room for all.
fn fill<const WIDTH: usize>(room: &mut [u8], values: impl Iterator<Item = [u8; WIDTH]>) {
    let (rooms, _) = room.as_chunks_mut::<WIDTH>();
    rooms.iter_mut().zip(values).for_each(|(room, value)| *room = value);
}
