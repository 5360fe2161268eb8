//! SRAM with one read port and one write port.

/// Reads and writes take a cycle: the result of a read is available in the next cycle, and a write
/// is visible to reads from the next cycle on. A read and a write of one cell in the same cycle
/// return the old content.
#[derive(Clone, Debug)]
pub(super) struct Sram<T> {
    cells: Vec<T>,
    read: T,
    write: Option<(usize, T)>,
    next_read: Option<usize>,
}

impl<T: Copy> Sram<T> {
    pub(super) fn new(cells: usize, content: T) -> Self {
        Self { cells: vec![content; cells], read: content, write: None, next_read: None }
    }

    /// Result of the last cycle's read.
    pub(super) fn out(&self) -> T {
        self.read
    }

    /// Issues a read, at most one per cycle.
    pub(super) fn read(&mut self, at: usize) {
        debug_assert!(self.next_read.is_none(), "one read port");
        self.next_read = Some(at);
    }

    /// Issues a write, at most one per cycle.
    pub(super) fn write(&mut self, at: usize, value: T) {
        debug_assert!(self.write.is_none(), "one write port");
        self.write = Some((at, value));
    }

    /// Ends the cycle: performs the issued read and write.
    pub(super) fn edge(&mut self) {
        if let Some(at) = self.next_read.take() {
            self.read = self.cells[at];
        }
        if let Some((at, value)) = self.write.take() {
            self.cells[at] = value;
        }
    }

    /// Content of a cell, bypassing the ports: for tests, and for loads of states without updates
    /// in flight.
    pub(super) fn peek(&self, at: usize) -> T {
        self.cells[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_in_the_cycle_of_a_write_is_old() {
        let mut sram = Sram::new(4, 0);
        sram.write(1, 7);
        sram.read(1);
        sram.edge();
        assert_eq!(sram.out(), 0);
        sram.read(1);
        sram.edge();
        assert_eq!(sram.out(), 7);
    }
}
