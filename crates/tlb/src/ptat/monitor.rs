//! A simulated monitor: observes a memory bus, and writes the streams of its boards and the
//! kernel's dump.

use std::io::Write;

use tierscope_core::{BusObserver, BusRecord, Error, Result};
use tierscope_wire::ptat::KernelEvent;

use super::bus::BusHeader;
use super::dump::DumpHeader;
use super::write::{BoardWriter, DumpWriter};

/// Configuration of a monitor's boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boards {
    /// Number of boards; cache lines are interleaved between them.
    pub count: u8,
    /// log2 of the bytes of a request: 6, or 5.
    pub grain: u8,
    /// Picoseconds per tick.
    pub tick_ps: u32,
    /// A board's buffer: its capacity in requests, and nanoseconds to transfer one of them; `None`
    /// for a board that loses none.
    pub buffer: Option<(u64, u64)>,
}

impl Default for Boards {
    /// Two boards, requests of 64 bytes, on DDR3-800 (400 MHz: 2.5 ns), without losses.
    fn default() -> Self {
        Self { count: 2, grain: 6, tick_ps: 2500, buffer: None }
    }
}

struct Board<W> {
    writer: BoardWriter<W>,
    /// When the transfer of its buffered requests ends, in ns.
    busy: u64,
}

/// The boards and the kernel's dump.
pub struct Monitor<W: Write> {
    kind: Boards,
    boards: Vec<Board<W>>,
    dump: DumpWriter<W>,
    failed: Option<Error>,
}

impl<W: Write> Monitor<W> {
    /// Opens the output files; `open` opens a board's, or the dump for `None`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(
        kind: Boards,
        dump: DumpHeader,
        mut open: impl FnMut(Option<u8>) -> Result<(String, W)>,
    ) -> Result<Self> {
        let mut boards = Vec::new();
        for board in 0..kind.count {
            let Boards { count, grain, tick_ps, .. } = kind;
            let header = BusHeader { board, boards: count, grain, tick_ps, start: 0 };
            let (name, out) = open(Some(board))?;
            boards.push(Board { writer: BoardWriter::new(&name, out, header)?, busy: 0 });
        }
        let (name, out) = open(None)?;
        let dump = DumpWriter::new(&name, out, dump)?;
        Ok(Self { kind, boards, dump, failed: None })
    }

    /// Appends records to the kernel's dump, after a record of the `lost` ones that its buffer had
    /// no room for.
    ///
    /// # Errors
    /// I/O errors, here or earlier in a board's stream.
    pub fn record(&mut self, events: &[KernelEvent], lost: u64) -> Result<()> {
        if lost > 0 {
            self.dump.lose(lost);
        }
        events.iter().try_for_each(|event| self.dump.record(event))?;
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Ends and closes the output files.
    ///
    /// # Errors
    /// I/O errors, here or earlier in a board's stream.
    pub fn finish(self) -> Result<(Vec<W>, W)> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let boards = self.boards.into_iter().map(|board| board.writer.finish());
        Ok((boards.collect::<Result<_>>()?, self.dump.finish()?))
    }

    #[inline]
    fn request(&mut self, record: &BusRecord) -> Result<()> {
        let line = record.address() >> 6;
        let nanos = record.time().0;
        let board = &mut self.boards[(line % u64::from(self.kind.count)) as usize];
        if let Some((room, each)) = self.kind.buffer {
            if board.busy > nanos.saturating_add(room.saturating_mul(each)) {
                board.writer.lose();
                return Ok(());
            }
            board.busy = board.busy.max(nanos) + each;
        }
        // 2^64 ns are 584 years; in ps they need more bits.
        let ticks = (u128::from(nanos) * 1000 / u128::from(self.kind.tick_ps)) as u64;
        let address = record.address() >> self.kind.grain << self.kind.grain;
        board.writer.request(ticks, address, record.is_write())
    }
}

impl<W: Write> BusObserver for Monitor<W> {
    fn observe(&mut self, batch: &[BusRecord]) {
        if self.failed.is_none() {
            self.failed = batch.iter().try_for_each(|record| self.request(record)).err();
        }
    }
}
