//! Records of rings and traces: words of 64 bits, little-endian on disk.

use tierscope_core::{Level, Time};

/// A record of a fixed number of words.
pub trait Record: Sized {
    /// Words of a record.
    const WORDS: usize;

    /// Encodes the record into [`Record::WORDS`] words.
    fn write(&self, words: &mut [u64]);

    /// Decodes a record from [`Record::WORDS`] words; `None` if they encode none.
    fn read(words: &[u64]) -> Option<Self>;
}

/// Bits of a linear address under five-level paging.
const LINEAR_BITS: u32 = 57;
const LINEAR_MASK: u64 = (1 << LINEAR_BITS) - 1;
/// Bits of an access's time: 2^48 ns are 78 hours.
const NANOS_BITS: u32 = 48;
/// Bits of the number of a virtual CPU or thread.
const CPU_BITS: u32 = 12;
const CPU_MASK: u64 = (1 << CPU_BITS) - 1;

/// A memory access by a program. Two words:
///
/// ```text
///   0  0..57 linear address, sign-extended from bit 56   57..60 log2 of its bytes
///      60 store   61 non-temporal   62..64 bits 4..6 of the address space's number
///   1  0..48 nanoseconds since the trace began   48..60 CPU or thread   60..64 its bits 0..4
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawAccess {
    /// Linear address of the access.
    pub address: u64,
    /// log2 of the bytes accessed, 0..8.
    pub size_log2: u8,
    /// Whether it is a store.
    pub store: bool,
    /// Whether it is non-temporal, i.e. bypasses the caches.
    pub non_temporal: bool,
    /// Time since the trace began, below 2^48 ns. The plugin reads its clock at every eighth access
    /// of a CPU, and after system calls of a program: accesses in between carry the time of the
    /// previous one.
    pub time: Time,
    /// Number of the virtual CPU or thread, below 4096.
    pub cpu: u16,
    /// Number of the address space, modulo 64; 0 where address spaces are not distinguished.
    pub space: u8,
}

/// An event of a program other than an access, interleaved with the accesses of its thread: heap
/// allocations, and changes of the executing function. Encoded as a non-temporal load, which
/// programs never execute, with the kind of note in place of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The accesses that follow are executed by the function that begins at this address or, where
    /// no function is known, by code near it.
    Function(u64),
    /// A heap allocation begins at this address. Notes of its size and its call site follow.
    Given(u64),
    /// Size of the allocation in bytes.
    Bytes(u64),
    /// Call site of the allocation: the return address of the call.
    Site(u64),
}

impl Note {
    fn parts(self) -> (u8, u64) {
        match self {
            Note::Function(address) => (0, address),
            Note::Given(address) => (1, address),
            Note::Bytes(bytes) => (2, bytes),
            Note::Site(address) => (3, address),
        }
    }
}

impl RawAccess {
    /// Encodes a thread's note.
    #[inline]
    #[must_use]
    pub fn of_note(note: Note, time: Time, cpu: u16, space: u8) -> Self {
        let (size_log2, address) = note.parts();
        Self { address, size_log2, store: false, non_temporal: true, time, cpu, space }
    }

    /// The note; `None` if the record is an access.
    #[inline]
    #[must_use]
    pub fn note(&self) -> Option<Note> {
        if self.store || !self.non_temporal {
            return None;
        }
        match self.size_log2 {
            0 => Some(Note::Function(self.address)),
            1 => Some(Note::Given(self.address)),
            2 => Some(Note::Bytes(self.address)),
            3 => Some(Note::Site(self.address)),
            _ => None,
        }
    }
}

impl Record for RawAccess {
    const WORDS: usize = 2;

    #[inline]
    fn write(&self, words: &mut [u64]) {
        debug_assert!(self.size_log2 < 8 && u64::from(self.cpu) <= CPU_MASK);
        debug_assert!(self.time.0 < 1 << NANOS_BITS);
        words[0] = (self.address & LINEAR_MASK)
            | u64::from(self.size_log2 & 7) << LINEAR_BITS
            | u64::from(self.store) << 60
            | u64::from(self.non_temporal) << 61
            | u64::from(self.space >> 4) << 62;
        let nanos = self.time.0 & ((1 << NANOS_BITS) - 1);
        let space = u64::from(self.space) << 60;
        words[1] = nanos | (u64::from(self.cpu) & CPU_MASK) << NANOS_BITS | space;
    }

    #[inline]
    fn read(words: &[u64]) -> Option<Self> {
        let (place, moment) = (words[0], words[1]);
        let unused = 64 - LINEAR_BITS;
        Some(Self {
            address: ((place << unused) as i64 >> unused) as u64,
            size_log2: (place >> LINEAR_BITS & 7) as u8,
            store: place >> 60 & 1 == 1,
            non_temporal: place >> 61 & 1 == 1,
            time: Time(moment & ((1 << NANOS_BITS) - 1)),
            cpu: (moment >> NANOS_BITS & CPU_MASK) as u16,
            space: (moment >> 60 | place >> 62 << 4) as u8,
        })
    }
}

/// A TLB miss, with the result of its page walk. Four words:
///
/// ```text
///   0  nanoseconds of the machine's clock
///   1  linear address
///   2  physical address of the entry that ended the walk, level in bits 0..3
///   3  physical address of the top table (CR3), CPU in bits 0..12
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TlbMiss {
    /// Time of the miss.
    pub time: Time,
    /// Linear address of the access that missed.
    pub address: u64,
    /// Physical address of the entry that ended the walk, a multiple of 8.
    pub entry: u64,
    /// Level of the entry that ended the walk.
    pub level: Level,
    /// Physical address of the top table, a multiple of 4096: identifies the address space.
    pub root: u64,
    /// Number of the virtual CPU, below 4096.
    pub cpu: u16,
}

impl Record for TlbMiss {
    const WORDS: usize = 4;

    #[inline]
    fn write(&self, words: &mut [u64]) {
        debug_assert!(self.entry.is_multiple_of(8) && self.root.is_multiple_of(4096));
        debug_assert!(u64::from(self.cpu) <= CPU_MASK);
        words[0] = self.time.0;
        words[1] = self.address;
        words[2] = (self.entry & !7) | u64::from(self.level.number());
        words[3] = (self.root & !CPU_MASK) | (u64::from(self.cpu) & CPU_MASK);
    }

    #[inline]
    fn read(words: &[u64]) -> Option<Self> {
        Some(Self {
            time: Time(words[0]),
            address: words[1],
            entry: words[2] & !7,
            level: Level::new((words[2] & 7) as u8)?,
            root: words[3] & !CPU_MASK,
            cpu: (words[3] & CPU_MASK) as u16,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accesses_have_the_documented_layout() {
        let access = RawAccess {
            address: 0x7fff_1234_5678,
            size_log2: 3,
            store: true,
            non_temporal: false,
            time: Time(5),
            cpu: 9,
            space: 0x21,
        };
        let mut words = [0; RawAccess::WORDS];
        access.write(&mut words);
        assert_eq!(words, [0x7fff_1234_5678 | 3 << 57 | 1 << 60 | 2 << 62, 5 | 9 << 48 | 1 << 60]);
        assert_eq!(size_of_val(&words), 16);
    }

    #[test]
    fn notes_are_not_taken_for_accesses() {
        for note in [Note::Function(7), Note::Given(1 << 40), Note::Bytes(0), Note::Site(9)] {
            let record = RawAccess::of_note(note, Time(5), 3, 0);
            let mut words = [0; RawAccess::WORDS];
            record.write(&mut words);
            assert_eq!(RawAccess::read(&words).and_then(|record| record.note()), Some(note));
        }
        let store = RawAccess { store: true, ..RawAccess::of_note(Note::Bytes(1), Time(0), 0, 0) };
        assert_eq!(store.note(), None);
    }

    #[test]
    fn misses_have_the_documented_layout() {
        let miss = TlbMiss {
            time: Time(7),
            address: !0 << 12,
            entry: 0x1000_0028,
            level: Level::PMD,
            root: 0x5000,
            cpu: 4095,
        };
        let mut words = [0; TlbMiss::WORDS];
        miss.write(&mut words);
        assert_eq!(words, [7, !0 << 12, 0x1000_002a, 0x5fff]);
        assert_eq!(size_of_val(&words), 32);
    }

    #[test]
    fn invalid_records_are_refused() {
        assert_eq!(TlbMiss::read(&[0, 0, 0x1000, 0]), None, "level 0");
        assert_eq!(TlbMiss::read(&[0, 0, 0x1006, 0]), None, "level 6");
    }

    proptest! {
        #[test]
        fn accesses_are_decoded(
            address in any::<u64>(), size_log2 in 0u8..8, store: bool, non_temporal: bool,
            nanos in 0u64..1 << 48, cpu in 0u16..4096, space in 0u8..64,
        ) {
            let address = ((address << 7) as i64 >> 7) as u64;
            let access =
                RawAccess { address, size_log2, store, non_temporal, time: Time(nanos), cpu, space };
            let mut words = [0; 2];
            access.write(&mut words);
            prop_assert_eq!(RawAccess::read(&words), Some(access));
        }

        #[test]
        fn misses_are_decoded(
            time: u64, address: u64, entry: u64, level in 1u8..=5, root: u64, cpu in 0u16..4096,
        ) {
            let level = Level::new(level).expect("1..=5");
            let miss = TlbMiss {
                time: Time(time), address, entry: entry & !7, level, root: root & !0xfff, cpu,
            };
            let mut words = [0; 4];
            miss.write(&mut words);
            prop_assert_eq!(TlbMiss::read(&words), Some(miss));
        }
    }
}
