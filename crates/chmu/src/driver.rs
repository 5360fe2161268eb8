//! The client of a register block: it programs the unit and reads its hot list. The same code runs
//! on the model and on a mapped region of a device.
//!
//! The order of register accesses is that of the posted driver: reset, configuration, range bitmap,
//! enable; then status, pointers and entries, and the head last. It differs in what it refuses: the
//! posted driver compares the threshold with 2^(64 - COUNTER_WIDTH), which is never reached; here a
//! threshold above the largest count is refused, because no unit could ever be hot.

use std::time::Duration;

use tierscope_core::{
    Error, ErrorKind, HotProgram, HotUnit, RegisterWork, Reporting, RequestKind, Result,
};

use crate::registers::{
    ALWAYS_ON_CAP, BITMAP_OFFSET, CAP0, CAP1, CFG0, CFG1, CFG2, COUNTER_WIDTH, DOWNSAMPLING,
    DOWNSAMPLING_CAP, ENABLE, EPOCH_CAP, EPOCH_MAX_MULT, EPOCH_MAX_SCALE, EPOCH_MIN_MULT,
    EPOCH_MIN_SCALE, EPOCH_MULT, EPOCH_SCALE, FILL_CAP, FILL_INTERRUPT, FILL_THRESHOLD, FILLED,
    Field, HEAD, HOTLIST_OFFSET, HOTLIST_SIZE, IN_PROGRESS, INSTANCE, INSTANCES, MODE, OVERFLOW,
    OVERFLOW_CAP, OVERFLOW_INTERRUPT, POINTERS, RANGE_SHIFT, RESET, SCALES, STATUS, TAIL,
    THRESHOLD, TRACK, TRACK_CAP, UNIT_SIZE, UNIT_SIZES, VERSION,
};

/// Access to the registers of a block, by 64-bit words at multiples of 8.
pub trait Registers {
    /// Reads the word at an offset.
    fn read(&mut self, offset: u64) -> u64;

    /// Writes the word at an offset.
    fn write(&mut self, offset: u64, value: u64);
}

/// Reads of the status after which an operation is taken to hang.
const PATIENCE: u32 = 1000;

/// A running program, as far as reading needs it.
#[derive(Clone, Copy, Debug)]
struct Running {
    unit_shift: u8,
    counter_width: u32,
    places: u64,
    hot_list: u64,
}

/// A driver of one instance.
#[derive(Clone, Debug)]
pub struct Driver<R> {
    registers: R,
    /// Physical address of the device's first byte, and the bytes of its memory.
    start: u64,
    memory: u64,
    running: Option<Running>,
    overflows: u64,
    work: RegisterWork,
}

fn refused(field: Field, cause: String) -> Error {
    let what = format!("hot list refused at `{}`", field.name);
    Error::new(ErrorKind::Usage, what).cause(cause)
}

/// Numbers of the bits that are set.
fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}

/// The bytes of 2^`shift`, with a unit.
fn size(shift: u32) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    format!("{} {}", 1u64 << (shift % 10), UNITS[(shift / 10) as usize])
}

/// Nanoseconds of an epoch by its two fields.
fn nanos(scale: u64, mult: u64) -> u64 {
    SCALES.get(scale as usize).map_or(0, |nanos| nanos * mult)
}

impl<R: Registers> Driver<R> {
    /// A driver of the block of a device that serves `memory` bytes from `start` on.
    ///
    /// # Errors
    /// [`ErrorKind::Version`] if the block has another version, [`ErrorKind::Missing`] if it has no
    /// instance.
    pub fn new(mut registers: R, start: u64, memory: u64) -> Result<Self> {
        let common = registers.read(0);
        if VERSION.of(common) != 1 {
            let what = format!("monitoring unit refused at `{}`", VERSION.name);
            let cause = format!("version {}, not 1", VERSION.of(common));
            return Err(Error::new(ErrorKind::Version, what).cause(cause));
        }
        if INSTANCES.of(common) == 0 {
            let what = format!("monitoring unit refused at `{}`", INSTANCES.name);
            return Err(Error::new(ErrorKind::Missing, what).cause("it has no instance"));
        }
        let work = RegisterWork { reads: 1, ..RegisterWork::default() };
        Ok(Self { registers, start, memory, running: None, overflows: 0, work })
    }

    /// The registers.
    pub fn registers_mut(&mut self) -> &mut R {
        &mut self.registers
    }

    /// The registers.
    pub fn registers(&self) -> &R {
        &self.registers
    }

    /// Physical memory that the device serves: first byte, one past the last.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        (self.start, self.start + self.memory)
    }

    /// How often the overflow flag was found set.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Register accesses since the last call.
    pub fn take_work(&mut self) -> RegisterWork {
        std::mem::take(&mut self.work)
    }

    fn read(&mut self, offset: u64) -> u64 {
        self.work.reads += 1;
        self.registers.read(offset.wrapping_add(INSTANCE))
    }

    fn write(&mut self, offset: u64, value: u64) {
        self.work.writes += 1;
        self.registers.write(offset.wrapping_add(INSTANCE), value);
    }

    /// Stops the unit, discards its counts and entries, and starts a program.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the hardware cannot hold the program, with the register and its
    /// limit; [`ErrorKind::Busy`] if an operation does not end.
    pub fn enable(&mut self, program: &HotProgram) -> Result<()> {
        let (cap0, cap1) = (self.read(CAP0), self.read(CAP1));
        check_unit(program.unit_shift, cap1)?;
        check_downsampling(program.downsampling, cap1)?;
        let epoch = epoch(program.reporting, cap0, cap1)?;
        let track = track(program.requests, cap0)?;
        if program.interrupts && (FILL_CAP.of(cap0) == 0 || OVERFLOW_CAP.of(cap0) == 0) {
            return Err(refused(FILL_CAP, "it has no interrupts".into()).remedy("poll"));
        }
        let (bitmap, hot_list) = (self.read(BITMAP_OFFSET), self.read(HOTLIST_OFFSET));
        self.check_range(bitmap, hot_list)?;
        self.running = None;
        self.write(CFG0, RESET.with(1));
        self.settle()?;
        let mode = u64::from(program.reporting == Reporting::AlwaysOn);
        let shift = u64::from(program.unit_shift);
        let factor = DOWNSAMPLING.with(program.downsampling.into());
        self.write(CFG1, UNIT_SIZE.with(shift) | factor | MODE.with(mode) | epoch);
        let places = HOTLIST_SIZE.of(cap0);
        self.write(CFG2, FILL_THRESHOLD.with(places / 2));
        self.track_all(bitmap);
        let counter_width = COUNTER_WIDTH.of(self.settle()?) as u32;
        if !(1..64).contains(&counter_width) {
            let what = format!("monitoring unit is broken at `{}`", COUNTER_WIDTH.name);
            return Err(Error::new(ErrorKind::Data, what).cause(format!("{counter_width} bits")));
        }
        let most = (1u64 << counter_width) - 1;
        if u64::from(program.threshold) > most || program.threshold == 0 {
            let cause = format!("a threshold of {} of a count of 1 to {most}", program.threshold);
            return Err(refused(COUNTER_WIDTH, cause).remedy("choose one that a count can reach"));
        }
        let interrupts = u64::from(program.interrupts);
        let both = OVERFLOW_INTERRUPT.with(interrupts) | FILL_INTERRUPT.with(interrupts);
        let threshold = THRESHOLD.with(program.threshold.into());
        self.write(CFG0, TRACK.with(track) | both | ENABLE.with(1) | threshold);
        self.settle()?;
        self.running =
            Some(Running { unit_shift: program.unit_shift, counter_width, places, hot_list });
        Ok(())
    }

    /// Whether the range bitmap reaches over all memory of the device.
    fn check_range(&self, bitmap: u64, hot_list: u64) -> Result<()> {
        let covered = hot_list.saturating_sub(bitmap).saturating_mul(8 << RANGE_SHIFT);
        if covered < self.memory {
            let what = "hot list refused at `HOTLIST_OFFSET`".to_owned();
            let cause = format!("the range bitmap covers {covered} of {} bytes", self.memory);
            return Err(Error::new(ErrorKind::Missing, what).cause(cause));
        }
        Ok(())
    }

    /// Sets the range bitmap for all memory of the device.
    fn track_all(&mut self, bitmap: u64) {
        let ranges = self.memory.div_ceil(1 << RANGE_SHIFT);
        for word in 0..ranges.div_ceil(64) {
            let left = (ranges - word * 64).min(64) as u32;
            self.write(bitmap.wrapping_add(8 * word), u64::MAX >> (64 - left));
        }
    }

    /// Waits for the end of an operation; returns the status.
    fn settle(&mut self) -> Result<u64> {
        for _ in 0..PATIENCE {
            let status = self.read(STATUS);
            if IN_PROGRESS.of(status) == 0 {
                return Ok(status);
            }
        }
        let what = format!("monitoring unit hangs at `{}`", IN_PROGRESS.name);
        Err(Error::new(ErrorKind::Busy, what).cause("an operation does not end"))
    }

    /// Appends up to `most` entries of the hot list, the oldest first, and frees their places.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if no program runs; [`ErrorKind::Data`] if a pointer or an entry is out
    /// of bounds.
    pub fn drain(&mut self, most: usize, out: &mut Vec<HotUnit>) -> Result<()> {
        let Some(running) = self.running else {
            return Err(Error::new(ErrorKind::Usage, "no program runs on the monitoring unit"));
        };
        let status = self.read(STATUS);
        let pointers = self.read(POINTERS);
        let (head, tail) = (HEAD.of(pointers), TAIL.of(pointers));
        if head >= running.places || tail >= running.places {
            let what = format!("monitoring unit is broken at `{}`", HEAD.name);
            let cause = format!("{head} and {tail} of {} places", running.places);
            return Err(Error::new(ErrorKind::Data, what).cause(cause));
        }
        let there = (tail + running.places - head) % running.places;
        let taken = there.min(most as u64);
        for number in 0..taken {
            let place = (head + number) % running.places;
            let entry = self.read(running.hot_list.wrapping_add(8 * place));
            out.push(self.unit(entry, &running)?);
        }
        if taken > 0 {
            self.write(POINTERS, HEAD.with((head + taken) % running.places));
        }
        self.overflows += OVERFLOW.of(status);
        let flags = OVERFLOW.with(OVERFLOW.of(status)) | FILLED.with(FILLED.of(status));
        if flags != 0 {
            self.write(STATUS, flags);
        }
        Ok(())
    }

    fn unit(&self, entry: u64, running: &Running) -> Result<HotUnit> {
        let unit = entry >> running.counter_width;
        let within = unit << running.unit_shift;
        if within >> running.unit_shift != unit || within >= self.memory {
            let what = "monitoring unit is broken: an entry of the hot list is out of bounds";
            let cause = format!("unit {unit:#x} of {} bytes", self.memory);
            return Err(Error::new(ErrorKind::Data, what).cause(cause));
        }
        let count = entry & ((1 << running.counter_width) - 1);
        Ok(HotUnit { address: self.start + within, count })
    }
}

fn check_unit(shift: u8, cap1: u64) -> Result<()> {
    let offered: Vec<u32> = bits(UNIT_SIZES.of(cap1)).map(|bit| bit + 8).collect();
    if offered.contains(&u32::from(shift)) {
        return Ok(());
    }
    let sizes: Vec<String> = offered.into_iter().map(size).collect();
    let cause = format!("units of {}, it offers {}", size(shift.min(63).into()), sizes.join(", "));
    Err(refused(UNIT_SIZES, cause).remedy("choose one of these"))
}

fn check_downsampling(log2: u8, cap1: u64) -> Result<()> {
    let offered: Vec<u32> = bits(DOWNSAMPLING_CAP.of(cap1)).collect();
    if offered.contains(&u32::from(log2)) {
        return Ok(());
    }
    let factors: Vec<String> = offered.into_iter().map(|bit| (1u64 << bit).to_string()).collect();
    let cause = format!("a factor of 2^{log2}, it offers {}", factors.join(", "));
    Err(refused(DOWNSAMPLING_CAP, cause).remedy("choose one of these"))
}

/// The epoch's two fields; 0 without epochs.
fn epoch(reporting: Reporting, cap0: u64, cap1: u64) -> Result<u64> {
    let Reporting::Epoch(length) = reporting else {
        return match ALWAYS_ON_CAP.of(cap1) {
            1 => Ok(0),
            _ => Err(refused(ALWAYS_ON_CAP, "it has epochs only".into()).remedy("use epochs")),
        };
    };
    if EPOCH_CAP.of(cap1) == 0 {
        return Err(refused(EPOCH_CAP, "it has no epochs".into()).remedy("use always-on"));
    }
    let shortest = nanos(EPOCH_MIN_SCALE.of(cap0), EPOCH_MIN_MULT.of(cap0));
    let longest = nanos(EPOCH_MAX_SCALE.of(cap0), EPOCH_MAX_MULT.of(cap0));
    let wanted = length.as_nanos() as u64;
    for (limit, field) in [(shortest, EPOCH_MIN_MULT), (longest, EPOCH_MAX_MULT)] {
        if (field == EPOCH_MIN_MULT && wanted < limit)
            || (field == EPOCH_MAX_MULT && wanted > limit)
        {
            let limit = Duration::from_nanos(limit);
            return Err(refused(field, format!("an epoch of {length:?}, its limit is {limit:?}")));
        }
    }
    let fits = |scale: &usize| {
        let mult = wanted / SCALES[*scale];
        wanted.is_multiple_of(SCALES[*scale]) && (1..=EPOCH_MULT.largest()).contains(&mult)
    };
    let scale = (1..SCALES.len()).find(fits).ok_or_else(|| {
        refused(EPOCH_MULT, format!("an epoch of {length:?} is not 1 to 4095 of a scale"))
            .remedy("scales are 100us, 1ms, 10ms, 100ms, 1s")
    })?;
    Ok(EPOCH_SCALE.with(scale as u64) | EPOCH_MULT.with(wanted / SCALES[scale]))
}

/// The value of `CFG0.WHAT`: of all requests where that is offered, else of those of no TEE.
fn track(requests: RequestKind, cap0: u64) -> Result<u64> {
    let value = match requests {
        RequestKind::Read => 1,
        RequestKind::Write => 2,
        RequestKind::All => 3,
    };
    let offered = TRACK_CAP.of(cap0);
    [value + 3, value].into_iter().find(|value| offered >> (value - 1) & 1 == 1).ok_or_else(|| {
        refused(TRACK_CAP, format!("{requests:?} requests, it offers {offered:#08b}"))
    })
}
