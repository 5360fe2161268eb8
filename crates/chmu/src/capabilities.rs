//! What an implementation of a monitoring unit supports, and the state that it takes.

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Result};

use crate::registers::{
    ALWAYS_ON_CAP, BITMAP, DOWNSAMPLING_CAP, EPOCH_CAP, EPOCH_MAX_MULT, EPOCH_MAX_SCALE,
    EPOCH_MIN_MULT, EPOCH_MIN_SCALE, FILL_CAP, HOTLIST_SIZE, INSTANCE_LENGTH, OVERFLOW_CAP,
    RANGE_SHIFT, SCALES, SMALLEST_UNIT, TRACK_CAP, UNIT_SIZES,
};
use crate::tracker::Allocation;

/// An implementation of a monitoring unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Capabilities {
    /// Unit sizes in log2 of bytes, 8 to 39.
    pub unit_shifts: Vec<u8>,
    /// Downsampling factors in log2, 0 to 15.
    pub downsampling: Vec<u8>,
    /// The shortest epoch, in units of 100 µs, and the longest one, in seconds: 1 to 4095 of each.
    pub epochs: [u16; 2],
    /// Whether it supports epochs.
    pub epoch: bool,
    /// Whether it supports reporting without epochs.
    pub always_on: bool,
    /// Whether it raises interrupts.
    pub interrupts: bool,
    /// Places of the hot list: 2 or more.
    pub hot_list: u16,
    /// Units that are counted at a time.
    pub counters: u32,
    /// Bits of a counter: 1 to 32.
    pub counter_width: u8,
    /// How units get their counters.
    pub allocation: Allocation,
}

/// 8,192 counters of 16 bits and 2,048 places: within 64 KiB for memory of up to 2 TiB. Units of 4
/// KiB and of 2 MiB, epochs from 1 ms to 100 s, with all else that is optional. Assumed: no device
/// is known to us.
impl Default for Capabilities {
    fn default() -> Self {
        Self {
            unit_shifts: vec![12, 21],
            downsampling: (0..16).collect(),
            epochs: [10, 100],
            epoch: true,
            always_on: true,
            interrupts: true,
            hot_list: 2048,
            counters: 8192,
            counter_width: 16,
            allocation: Allocation::FirstTouch,
        }
    }
}

impl Capabilities {
    /// Checks that the registers of a device of `memory` bytes can state them.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the register.
    pub fn check(&self, memory: u64) -> Result<()> {
        let refuse = |register: &str, cause: String| {
            let what = format!("monitoring unit refused at `{register}`");
            Err(Error::new(ErrorKind::Usage, what).cause(cause))
        };
        let odd = |shift: &&u8| !(SMALLEST_UNIT..SMALLEST_UNIT + 32).contains(&u32::from(**shift));
        if self.unit_shifts.is_empty() || self.unit_shifts.iter().any(|shift| odd(&shift)) {
            return refuse(UNIT_SIZES.name, "units have 2^8 to 2^39 bytes".into());
        }
        if self.downsampling.is_empty() || self.downsampling.iter().any(|log2| *log2 > 15) {
            return refuse(DOWNSAMPLING_CAP.name, "factors are 2^0 to 2^15".into());
        }
        if self.epochs.iter().any(|n| *n == 0 || u64::from(*n) > EPOCH_MIN_MULT.largest()) {
            return refuse(EPOCH_MIN_MULT.name, "an epoch is 1 to 4095 of its scale".into());
        }
        if self.hot_list < 2 {
            return refuse(HOTLIST_SIZE.name, "one place always stays free".into());
        }
        if self.counters == 0 || !(1..=32).contains(&self.counter_width) {
            return refuse("STATUS.COUNTER_WIDTH", "counters have 1 to 32 bits".into());
        }
        let length = self.instance_bytes(memory);
        if length > INSTANCE_LENGTH.largest() {
            let most = INSTANCE_LENGTH.largest();
            let cause =
                format!("{length} bytes of registers, range bitmap and hot list; {most} at most");
            return refuse(INSTANCE_LENGTH.name, cause);
        }
        Ok(())
    }

    pub(crate) fn cap0(&self) -> u64 {
        let interrupts = u64::from(self.interrupts);
        OVERFLOW_CAP.with(interrupts)
            | FILL_CAP.with(interrupts)
            | TRACK_CAP.with(TRACK_CAP.largest())
            | EPOCH_MIN_SCALE.with(1)
            | EPOCH_MIN_MULT.with(self.epochs[0].into())
            | EPOCH_MAX_SCALE.with(SCALES.len() as u64 - 1)
            | EPOCH_MAX_MULT.with(self.epochs[1].into())
            | HOTLIST_SIZE.with(self.hot_list.into())
    }

    pub(crate) fn cap1(&self) -> u64 {
        let bits = |values: &[u8], first: u32| {
            values.iter().fold(0u64, |bits, value| bits | 1 << (u32::from(*value) - first))
        };
        UNIT_SIZES.with(bits(&self.unit_shifts, SMALLEST_UNIT))
            | DOWNSAMPLING_CAP.with(bits(&self.downsampling, 0))
            | EPOCH_CAP.with(self.epoch.into())
            | ALWAYS_ON_CAP.with(self.always_on.into())
    }

    /// Bytes of the range bitmap of a device of `memory` bytes: whole words.
    pub(crate) fn bitmap_bytes(memory: u64) -> u64 {
        memory.div_ceil(1 << RANGE_SHIFT).div_ceil(64) * 8
    }

    /// Bytes of the instance's registers, range bitmap and hot list.
    pub(crate) fn instance_bytes(&self, memory: u64) -> u64 {
        BITMAP + Self::bitmap_bytes(memory) + 8 * u64::from(self.hot_list)
    }

    /// Bytes of state in a device of `memory` bytes: hot list, range bitmap, and for each counter
    /// its bits, the number of its smallest unit, and whether it is in use.
    #[must_use]
    pub fn state_bytes(&self, memory: u64) -> u64 {
        let smallest = self.unit_shifts.iter().min().copied().unwrap_or(12);
        let units = (memory >> smallest).max(2);
        let number = u64::from(64 - (units - 1).leading_zeros());
        let counter = 1 + number + u64::from(self.counter_width);
        let counters = (u64::from(self.counters) * counter).div_ceil(8);
        counters + Self::bitmap_bytes(memory) + 8 * u64::from(self.hot_list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 1 TiB in units of 4 KiB: numbers of 28 bits. 8,192 x (1 + 28 + 16) bits are 46,080 bytes,
    // 4,096 ranges 512 bytes, 2,048 entries 16,384 bytes.
    #[test]
    fn the_default_fits_into_64_kib() {
        let default = Capabilities::default();
        assert_eq!(default.state_bytes(1 << 40), 46_080 + 512 + 16_384);
        assert!(default.state_bytes(2 << 40) < 64 << 10);
        assert_eq!(default.check(1 << 40), Ok(()));
    }

    #[test]
    fn capabilities_that_no_register_can_state_are_refused() {
        let why = |capabilities: Capabilities| {
            capabilities.check(1 << 40).expect_err("it is refused").to_string()
        };
        let default = Capabilities::default;
        assert!(why(Capabilities { unit_shifts: vec![7], ..default() }).contains("CAP1.UNIT_SIZE"));
        assert!(why(Capabilities { unit_shifts: vec![], ..default() }).contains("CAP1.UNIT_SIZE"));
        assert!(
            why(Capabilities { downsampling: vec![16], ..default() }).contains("CAP1.DOWNSAMP")
        );
        assert!(why(Capabilities { epochs: [0, 1], ..default() }).contains("EPOCH_MIN_MULT"));
        assert!(why(Capabilities { epochs: [1, 4096], ..default() }).contains("EPOCH_MIN_MULT"));
        assert!(why(Capabilities { counter_width: 33, ..default() }).contains("COUNTER_WIDTH"));
        assert!(why(Capabilities { hot_list: 1, ..default() }).contains("CAP0.HOTLIST_SIZE"));
        let long = why(Capabilities { hot_list: 8192, ..default() });
        assert!(long.contains("COMMON_CAP1.INSTLEN") && long.contains("65535 at most"), "{long}");
    }
}
