//! A monitor: listens on a bus, and writes what its boards and a kernel have to say.

use std::io::Write;

use tierscope_core::{BusObserver, BusRecord, Error, Result};
use tierscope_wire::ptat::Told;

use super::bus::BusHeader;
use super::dump::DumpHeader;
use super::write::{BoardWriter, DumpWriter};

/// How the boards of a monitor are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boards {
    /// How many there are: lines go to them by turns.
    pub count: u8,
    /// log2 of the bytes of a request: 6, or 5.
    pub grain: u8,
    /// Picoseconds of a tick.
    pub tick_ps: u32,
    /// Requests that a board keeps until they are fetched, and nanoseconds until one is; `None` for a board that
    /// always has room.
    pub buffer: Option<(u64, u64)>,
}

impl Default for Boards {
    /// Two boards of lines of 64 bytes, on DDR3-800 (400 MHz: 2.5 ns), that lose nothing.
    fn default() -> Self {
        Self { count: 2, grain: 6, tick_ps: 2500, buffer: None }
    }
}

struct Board<W> {
    writer: BoardWriter<W>,
    /// Until when what it keeps is being fetched, in ns.
    busy: u64,
}

/// Boards and the kernel's dump.
pub struct Monitor<W: Write> {
    kind: Boards,
    boards: Vec<Board<W>>,
    dump: DumpWriter<W>,
    failed: Option<Error>,
}

impl<W: Write> Monitor<W> {
    /// Opens the traces; `open` gives the file of a board, or that of the dump for `None`.
    ///
    /// # Errors
    /// What the disk says.
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

    /// The kernel tells this, and has no room for so many other things.
    ///
    /// # Errors
    /// What the disk says, here or earlier at a board.
    pub fn told(&mut self, told: &[Told], lost: u64) -> Result<()> {
        if lost > 0 {
            self.dump.lose(lost);
        }
        told.iter().try_for_each(|told| self.dump.told(told))?;
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Closes the traces.
    ///
    /// # Errors
    /// What the disk says, here or earlier at a board.
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
        // 2^64 ns are 584 years; the product needs more bits.
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
