//! The register block of a device: one instance that counts the device's requests.
//!
//! Time is that of the requests and of the accesses to registers. At the end of an epoch every unit
//! whose count is at the threshold or above goes to the hot list, in the order in which the units
//! got their counters (with space saving, the hottest first), and all counters are freed. Without
//! epochs a unit goes to the hot list when its count reaches the threshold, and its counter is
//! freed. A unit that finds the hot list full is lost: the device says that it happened, not how
//! often.
//!
//! The posted driver's documentation calls both modes so. All operations end at once.

use tierscope_core::{BusRecord, Result, Time};

use crate::capabilities::Capabilities;
use crate::driver::Registers;
use crate::hot_list::HotList;
use crate::registers::{
    BITMAP, BITMAP_OFFSET, CAP0, CAP1, CFG0, CFG1, CFG2, COUNTER_WIDTH, DOWNSAMPLING, ENABLE,
    ENABLED, EPOCH_MULT, EPOCH_SCALE, FILL_INTERRUPT, FILL_THRESHOLD, FILLED, HEAD, HOTLIST_OFFSET,
    INSTANCE, INSTANCE_LENGTH, INSTANCES, MODE, OVERFLOW, OVERFLOW_INTERRUPT, POINTERS,
    RANGE_SHIFT, RESET, SCALES, STATUS, TAIL, THRESHOLD, TRACK, UNIT_SIZE, VERSION,
};
use crate::tracker::Tracker;

/// The register block of a device of some bytes.
#[derive(Clone, Debug)]
pub struct Block {
    capabilities: Capabilities,
    memory: u64,
    config: [u64; 3],
    bitmap: Vec<u64>,
    tracker: Tracker,
    list: HotList,
    /// Whether the hot list was filled to the threshold since the flag was last cleared.
    filled: bool,
    now: Time,
    /// End of the current epoch.
    epoch_end: Time,
    /// Requests until the next one is counted.
    skip: u64,
    lost: u64,
    uncounted: u64,
}

impl Block {
    /// An idle block of a device with `memory` bytes.
    ///
    /// # Errors
    /// As [`Capabilities::check`].
    pub fn new(capabilities: Capabilities, memory: u64) -> Result<Self> {
        capabilities.check(memory)?;
        let Capabilities { allocation, counters, counter_width, hot_list, .. } = capabilities;
        Ok(Self {
            config: [0; 3],
            bitmap: vec![0; (Capabilities::bitmap_bytes(memory) / 8) as usize],
            tracker: Tracker::new(allocation, counters, counter_width),
            list: HotList::new(hot_list),
            filled: false,
            now: Time(0),
            epoch_end: Time::NEVER,
            skip: 0,
            lost: 0,
            uncounted: 0,
            memory,
            capabilities,
        })
    }

    /// Entries that found the hot list full so far. No register has it: the model alone knows.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Requests so far to units without a counter. No register has it either.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Counts a request to device address `address`.
    pub fn request(&mut self, time: Time, address: u64, write: bool) {
        if !self.is_enabled() {
            return;
        }
        self.advance(time);
        if !self.is_tracked(address, write) {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.skip = (1 << DOWNSAMPLING.of(self.config[1])) - 1;
        let shift = u32::try_from(UNIT_SIZE.of(self.config[1])).unwrap_or(u32::MAX);
        let unit = address.checked_shr(shift).unwrap_or(0);
        let Some(count) = self.tracker.count(unit) else {
            self.uncounted += 1;
            return;
        };
        if MODE.of(self.config[1]) == 1 && u64::from(count) >= self.threshold() {
            self.tracker.release(unit);
            self.report(unit, count);
        }
    }

    /// Lets time pass, which ends epochs.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        if self.epoch_end > self.now {
            return;
        }
        self.end_epoch();
        // All further epochs up to now are without requests.
        let length = self.epoch_nanos().max(1);
        let passed = (self.now.0 - self.epoch_end.0) / length + 1;
        self.epoch_end = Time(self.epoch_end.0 + passed * length);
    }

    /// Whether an enabled interrupt is raised; `None` if none is enabled.
    #[must_use]
    pub fn interrupt(&self) -> Option<bool> {
        let [overflow, fill] = [OVERFLOW_INTERRUPT, FILL_INTERRUPT]
            .map(|enable| self.is_enabled() && enable.of(self.config[0]) == 1);
        (overflow || fill).then_some(overflow && self.list.overflowed || fill && self.filled)
    }

    fn is_enabled(&self) -> bool {
        ENABLE.of(self.config[0]) == 1
    }

    fn threshold(&self) -> u64 {
        THRESHOLD.of(self.config[0])
    }

    fn epoch_nanos(&self) -> u64 {
        let scale = SCALES.get(EPOCH_SCALE.of(self.config[1]) as usize).copied().unwrap_or(0);
        scale * EPOCH_MULT.of(self.config[1])
    }

    fn is_tracked(&self, address: u64, write: bool) -> bool {
        let kind = match TRACK.of(self.config[0]) {
            1 | 4 => !write,
            2 | 5 => write,
            3 | 6 => true,
            _ => false,
        };
        let range = address >> RANGE_SHIFT;
        let word = self.bitmap.get((range / 64) as usize).copied().unwrap_or(0);
        kind && word >> (range % 64) & 1 == 1
    }

    fn end_epoch(&mut self) {
        let threshold = self.threshold();
        let hot: Vec<(u64, u32)> =
            self.tracker.counts().filter(|(_, count)| u64::from(*count) >= threshold).collect();
        hot.into_iter().for_each(|(unit, count)| self.report(unit, count));
        self.tracker.clear();
    }

    fn report(&mut self, unit: u64, count: u32) {
        if !self.list.push(unit << self.capabilities.counter_width | u64::from(count)) {
            self.lost += 1;
        }
        self.filled |= self.list.len() as u64 >= FILL_THRESHOLD.of(self.config[2]).max(1);
    }

    fn configure(&mut self, which: usize, value: u64) {
        let was = self.is_enabled();
        self.config[which] = match which {
            0 => value & !RESET.with(1),
            _ => value,
        };
        if which == 0 && RESET.of(value) == 1 {
            self.tracker.clear();
            self.list.reset();
            (self.filled, self.skip) = (false, 0);
        }
        if self.is_enabled() && !was {
            let epochs = MODE.of(self.config[1]) == 0 && self.epoch_nanos() > 0;
            let end = Time(self.now.0.saturating_add(self.epoch_nanos()));
            self.epoch_end = if epochs { end } else { Time::NEVER };
        } else if !self.is_enabled() {
            self.epoch_end = Time::NEVER;
        }
    }

    fn hot_list_offset(&self) -> u64 {
        BITMAP + 8 * self.bitmap.len() as u64
    }

    fn read_instance(&self, offset: u64) -> u64 {
        match offset {
            CAP0 => self.capabilities.cap0(),
            CAP1 => self.capabilities.cap1(),
            BITMAP_OFFSET => BITMAP,
            HOTLIST_OFFSET => self.hot_list_offset(),
            CFG0 => self.config[0],
            CFG1 => self.config[1],
            CFG2 => self.config[2],
            STATUS => {
                ENABLED.with(self.is_enabled().into())
                    | COUNTER_WIDTH.with(self.capabilities.counter_width.into())
                    | OVERFLOW.with(self.list.overflowed.into())
                    | FILLED.with(self.filled.into())
            }
            POINTERS => HEAD.with(self.list.head().into()) | TAIL.with(self.list.tail().into()),
            _ if offset < BITMAP => 0,
            _ if offset < self.hot_list_offset() => self.bitmap[((offset - BITMAP) / 8) as usize],
            _ => {
                let place = (offset - self.hot_list_offset()) / 8;
                u16::try_from(place).map_or(0, |place| self.list.at(place))
            }
        }
    }

    fn write_instance(&mut self, offset: u64, value: u64) {
        match offset {
            CFG0 => self.configure(0, value),
            CFG1 => self.configure(1, value),
            CFG2 => self.configure(2, value),
            STATUS => {
                self.list.overflowed &= OVERFLOW.of(value) == 0;
                self.filled &= FILLED.of(value) == 0;
            }
            POINTERS => self.list.advance(HEAD.of(value) as u16 % self.capabilities.hot_list),
            _ if (BITMAP..self.hot_list_offset()).contains(&offset) => {
                self.bitmap[((offset - BITMAP) / 8) as usize] = value;
            }
            _ => {}
        }
    }
}

/// Aligned words of 64 bits; all others read as 0 and ignore writes.
impl Registers for Block {
    fn read(&mut self, offset: u64) -> u64 {
        match offset {
            0x00 => VERSION.with(1) | INSTANCES.with(1),
            0x08 => INSTANCE_LENGTH.with(self.capabilities.instance_bytes(self.memory)),
            _ if !offset.is_multiple_of(8) => 0,
            _ => self.read_instance(offset - INSTANCE),
        }
    }

    fn write(&mut self, offset: u64, value: u64) {
        if offset >= INSTANCE && offset.is_multiple_of(8) {
            self.write_instance(offset - INSTANCE, value);
        }
    }
}

impl Block {
    /// Counts the requests of a batch to device memory that begins at physical address `start`.
    pub(crate) fn observe(&mut self, start: u64, batch: &[BusRecord]) {
        for record in batch {
            if let Some(address) = record.address().checked_sub(start)
                && address < self.memory
            {
                self.request(record.time(), address, record.is_write());
            }
        }
    }
}
