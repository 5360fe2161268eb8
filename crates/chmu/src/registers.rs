//! Offsets and fields of the registers, named as in the posted Linux driver (`drivers/cxl/hmu.c`).

/// A field of a register: its name in errors, its first bit, and its width in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Register and field, as in `CAP1.UNIT_SIZE`.
    pub name: &'static str,
    /// Offset of the register in bytes: within the block for `COMMON_CAP`, else within an instance.
    pub register: u64,
    /// Lowest bit of the field.
    pub shift: u32,
    /// Number of bits.
    pub bits: u32,
}

const fn field(name: &'static str, register: u64, shift: u32, bits: u32) -> Field {
    Field { name, register, shift, bits }
}

impl Field {
    /// The largest value of the field.
    #[must_use]
    pub const fn largest(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The field's value in a register's value.
    #[must_use]
    pub const fn of(&self, register: u64) -> u64 {
        register >> self.shift & self.largest()
    }

    /// A register's value with this field alone; bits of `value` beyond the field are cut off.
    #[must_use]
    pub const fn with(&self, value: u64) -> u64 {
        (value & self.largest()) << self.shift
    }
}

/// Version of the register block.
pub const VERSION: Field = field("COMMON_CAP0.VER", 0x00, 0, 4);
/// Number of instances.
pub const INSTANCES: Field = field("COMMON_CAP0.NUMINST", 0x00, 8, 8);
/// Bytes of an instance.
pub const INSTANCE_LENGTH: Field = field("COMMON_CAP1.INSTLEN", 0x08, 0, 16);
/// Offset of the first instance.
pub const INSTANCE: u64 = 0x10;

/// Offset of the instance's first capability register.
pub const CAP0: u64 = 0x00;
/// An interrupt when the hot list overflows is supported.
pub const OVERFLOW_CAP: Field = field("CAP0.OVRFLW_CAP", CAP0, 4, 1);
/// An interrupt when the hot list is filled to a threshold is supported.
pub const FILL_CAP: Field = field("CAP0.FILLTHRESH_CAP", CAP0, 5, 1);
/// Requests that can be tracked, a bit each, in the order of [`TRACK`]'s values from 1 on.
pub const TRACK_CAP: Field = field("CAP0.TRACK", CAP0, 8, 6);
/// Scale of the longest epoch.
pub const EPOCH_MAX_SCALE: Field = field("CAP0.EPOCH_MAX_SCALE", CAP0, 16, 4);
/// The longest epoch, in its scale.
pub const EPOCH_MAX_MULT: Field = field("CAP0.EPOCH_MAX_MULT", CAP0, 20, 12);
/// Scale of the shortest epoch.
pub const EPOCH_MIN_SCALE: Field = field("CAP0.EPOCH_MIN_SCALE", CAP0, 32, 4);
/// The shortest epoch, in its scale.
pub const EPOCH_MIN_MULT: Field = field("CAP0.EPOCH_MIN_MULT", CAP0, 36, 12);
/// Places of the hot list; one of them stays free.
pub const HOTLIST_SIZE: Field = field("CAP0.HOTLIST_SIZE", CAP0, 48, 16);

/// Offset of the instance's second capability register.
pub const CAP1: u64 = 0x08;
/// Unit sizes, a bit each: bit n is 2^n times 256 bytes.
pub const UNIT_SIZES: Field = field("CAP1.UNIT_SIZE", CAP1, 0, 32);
/// Downsampling factors, a bit each: bit n is 2^n.
pub const DOWNSAMPLING_CAP: Field = field("CAP1.DOWNSAMP", CAP1, 32, 16);
/// Epochs are supported.
pub const EPOCH_CAP: Field = field("CAP1.EPOCH_SUP", CAP1, 48, 1);
/// Reporting without epochs is supported.
pub const ALWAYS_ON_CAP: Field = field("CAP1.ALWAYS_ON_SUP", CAP1, 49, 1);

/// Offset of the register that holds the offset of the range bitmap within the instance.
pub const BITMAP_OFFSET: u64 = 0x10;
/// Offset of the register that holds the offset of the hot list within the instance.
pub const HOTLIST_OFFSET: u64 = 0x18;

/// Offset of the first configuration register.
pub const CFG0: u64 = 0x40;
/// Requests to track: 1 to 3 are reads, writes, both, of no TEE; 4 to 6 the same of all requests.
pub const TRACK: Field = field("CFG0.WHAT", CFG0, 0, 8);
/// Interrupt when the hot list overflows.
pub const OVERFLOW_INTERRUPT: Field = field("CFG0.OVRFLW_INT_EN", CFG0, 9, 1);
/// Interrupt when the hot list is filled to [`FILL_THRESHOLD`].
pub const FILL_INTERRUPT: Field = field("CFG0.FILLTHRESH_INT_EN", CFG0, 10, 1);
/// The instance counts.
pub const ENABLE: Field = field("CFG0.ENABLE", CFG0, 16, 1);
/// Discards counts and entries.
pub const RESET: Field = field("CFG0.RESET_COUNTERS", CFG0, 17, 1);
/// Count from which a unit is hot.
pub const THRESHOLD: Field = field("CFG0.HOTNESS_THRESH", CFG0, 32, 32);

/// Offset of the second configuration register.
pub const CFG1: u64 = 0x48;
/// log2 of the unit size in bytes.
pub const UNIT_SIZE: Field = field("CFG1.UNIT_SIZE", CFG1, 0, 32);
/// log2 of the downsampling factor.
pub const DOWNSAMPLING: Field = field("CFG1.DS_FACTOR", CFG1, 32, 4);
/// 0 for epochs, 1 for always on.
pub const MODE: Field = field("CFG1.MODE", CFG1, 40, 8);
/// Scale of the epoch.
pub const EPOCH_SCALE: Field = field("CFG1.EPOCH_SCALE", CFG1, 48, 4);
/// The epoch, in its scale.
pub const EPOCH_MULT: Field = field("CFG1.EPOCH_MULT", CFG1, 52, 12);

/// Offset of the third configuration register.
pub const CFG2: u64 = 0x50;
/// Entries of the hot list from which the interrupt is raised.
pub const FILL_THRESHOLD: Field = field("CFG2.FILLTHRESH_THRESHOLD", CFG2, 0, 16);

/// Offset of the status register.
pub const STATUS: u64 = 0x60;
/// The instance counts.
pub const ENABLED: Field = field("STATUS.ENABLED", STATUS, 0, 1);
/// The operation that is under way: 0 for none.
pub const IN_PROGRESS: Field = field("STATUS.OP_INPROG", STATUS, 16, 16);
/// Bits of the count in an entry of the hot list.
pub const COUNTER_WIDTH: Field = field("STATUS.COUNTER_WIDTH", STATUS, 32, 8);
/// Entries were lost; cleared by writing 1.
pub const OVERFLOW: Field = field("STATUS.OVRFLW", STATUS, 40, 1);
/// The hot list was filled to the threshold; cleared by writing 1.
pub const FILLED: Field = field("STATUS.FILLTHRESH", STATUS, 41, 1);

/// Offset of the two pointers into the hot list.
pub const POINTERS: u64 = 0x68;
/// Index of the oldest entry; the driver advances it.
pub const HEAD: Field = field("HEAD", POINTERS, 0, 16);
/// Index behind the newest entry.
pub const TAIL: Field = field("TAIL", POINTERS, 16, 16);

/// Offset of the range bitmap in this model.
pub const BITMAP: u64 = 0x70;
/// log2 of the bytes of device memory that a bit of the range bitmap covers: 256 MiB.
pub const RANGE_SHIFT: u32 = 28;
/// log2 of the smallest unit: 256 bytes.
pub const SMALLEST_UNIT: u32 = 8;

/// Nanoseconds of each scale of an epoch.
pub const SCALES: [u64; 6] = [0, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

#[cfg(test)]
mod tests {
    use super::*;

    // 0x0000_0000_0001_0364, as in the posted driver's example: a width of 16, unit 1, 0x364.
    #[test]
    fn fields_are_cut_out_and_put_in() {
        assert_eq!((FILL_CAP.of(0x20), FILL_CAP.with(3)), (1, 0x20));
        assert_eq!((HOTLIST_SIZE.with(2048), HOTLIST_SIZE.largest()), (2048 << 48, 0xffff));
        assert_eq!(UNIT_SIZES.of(UNIT_SIZES.with(1 << 13) | EPOCH_CAP.with(1)), 1 << 13);
        assert_eq!((HEAD.of(0x0005_0002), TAIL.of(0x0005_0002)), (2, 5));
    }

    #[test]
    fn fields_of_a_register_do_not_overlap() {
        let all = [
            &[OVERFLOW_CAP, FILL_CAP, TRACK_CAP, EPOCH_MAX_SCALE, EPOCH_MAX_MULT][..],
            &[EPOCH_MIN_SCALE, EPOCH_MIN_MULT, HOTLIST_SIZE, UNIT_SIZES, DOWNSAMPLING_CAP],
            &[EPOCH_CAP, ALWAYS_ON_CAP, TRACK, OVERFLOW_INTERRUPT, FILL_INTERRUPT, ENABLE, RESET],
            &[THRESHOLD, UNIT_SIZE, DOWNSAMPLING, MODE, EPOCH_SCALE, EPOCH_MULT, FILL_THRESHOLD],
            &[ENABLED, IN_PROGRESS, COUNTER_WIDTH, OVERFLOW, FILLED, HEAD, TAIL],
        ]
        .concat();
        for (index, one) in all.iter().enumerate() {
            for other in all[..index].iter().filter(|other| other.register == one.register) {
                let common = one.with(u64::MAX) & other.with(u64::MAX);
                assert_eq!(common, 0, "{} and {}", one.name, other.name);
            }
        }
    }
}
