//! Units of a medium that are larger than a line, and the buffer that holds the last ones: Optane's
//! lines of 256 bytes and its buffer of 16 KiB a DIMM (Yang et al., FAST 2020, section 5).
//!
//! A unit is buffered in the place that a hash of its address gives, and evicted by the next one
//! there. An evicted unit is written if lines of it were, and read before unless all of them were.

use tierscope_hw::config::Unit;

use super::tier::Direction;

/// Bytes of a line.
const LINE: u64 = 64;

/// The buffered units.
pub(super) struct Units {
    shift: u32,
    /// Bitmap of all lines of a unit.
    all: u64,
    /// The unit in each place, plus one, and a bitmap of its written lines.
    places: Vec<(u64, u64)>,
}

/// What the medium moves for an access to one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) struct Moved {
    /// Lines read and written.
    pub(super) lines: [u64; 2],
    /// Whether the line was buffered.
    pub(super) is_hit: bool,
}

impl Moved {
    /// One line, of a medium without units.
    #[inline(always)]
    pub(super) fn line(direction: Direction) -> Self {
        let lines = if direction == Direction::Read { [1, 0] } else { [0, 1] };
        Self { lines, is_hit: false }
    }
}

impl Units {
    pub(super) fn new(unit: Unit) -> Self {
        let lines = u64::from(unit.bytes) / LINE;
        Self {
            shift: unit.bytes.trailing_zeros(),
            all: u64::MAX >> (64 - lines),
            places: vec![(0, 0); unit.buffered as usize],
        }
    }

    /// Accesses a line.
    pub(super) fn touch(&mut self, address: u64, direction: Direction) -> Moved {
        let unit = (address >> self.shift) + 1;
        let lines = u64::from(self.all.count_ones());
        let hash = unit.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (hash * self.places.len() as u64) >> 32;
        let all = self.all;
        let (held, written) = &mut self.places[place as usize];
        let is_hit = *held == unit;
        let mut moved = [0, 0];
        if !is_hit {
            moved = match *written {
                0 => [0, 0],
                whole if whole == all => [0, lines],
                _ => [lines, lines],
            };
            (*held, *written) = (unit, 0);
            moved[0] += if direction == Direction::Read { lines } else { 0 };
        }
        if direction == Direction::Write {
            *written |= 1 << ((address & ((1 << self.shift) - 1)) / LINE);
        }
        Moved { lines: moved, is_hit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(buffered: u32) -> Units {
        Units::new(Unit { bytes: 256, buffered, hit_ns: 100 })
    }

    fn sum(units: &mut Units, accesses: impl Iterator<Item = (u64, Direction)>) -> [u64; 2] {
        let mut sum = [0; 2];
        for (address, direction) in accesses {
            let moved = units.touch(address, direction).lines;
            sum = [sum[0] + moved[0], sum[1] + moved[1]];
        }
        sum
    }

    #[test]
    fn a_unit_is_read_once_for_all_of_its_lines() {
        let stream = (0..64).map(|line| (line * 64, Direction::Read));
        assert_eq!(sum(&mut units(8), stream), [64, 0]);
        let far = (0..64).map(|line| (line * 4096, Direction::Read));
        assert_eq!(sum(&mut units(8), far), [256, 0]);
    }

    // Single lines are read and written as whole units: four times the bytes (an effective write
    // ratio of 0.25: FAST 2020, section 5.1); whole units are written only.
    #[test]
    fn a_partly_written_unit_is_read_first() {
        let far = (0..65).map(|line| (line * 4096, Direction::Write));
        assert_eq!(sum(&mut units(1), far), [256, 256]);
        let stream = (0..260).map(|line| (line * 64, Direction::Write));
        assert_eq!(sum(&mut units(1), stream), [0, 256]);
    }
}
