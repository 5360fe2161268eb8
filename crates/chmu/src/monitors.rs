//! The monitoring units of all memory devices of a machine, as an observer of its memory bus.

use tierscope_core::{
    BusObserver, BusRecord, HotLists, HotProgram, HotUnit, RegisterWork, Result, Time,
};

use crate::block::Block;
use crate::capabilities::Capabilities;
use crate::driver::Driver;

/// The units, each with a driver.
#[derive(Clone, Debug)]
pub struct Monitors {
    drivers: Vec<Driver<Block>>,
    /// The device whose hot list is read first next time.
    turn: usize,
    interrupts: u64,
    /// Whether the reader was woken since it last read: an interrupt is masked until then.
    woken: bool,
}

impl Monitors {
    /// A unit like `capabilities` for each range of physical memory.
    ///
    /// # Errors
    /// As [`Capabilities::check`].
    pub fn new(capabilities: &Capabilities, memory: &[(u64, u64)]) -> Result<Self> {
        let driver = |(start, end): &(u64, u64)| {
            Driver::new(Block::new(capabilities.clone(), end - start)?, *start, end - start)
        };
        let drivers = memory.iter().map(driver).collect::<Result<Vec<_>>>()?;
        Ok(Self { drivers, turn: 0, interrupts: 0, woken: false })
    }

    /// The register blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.drivers.iter().map(Driver::registers)
    }

    fn advance(&mut self, now: Time) {
        self.drivers.iter_mut().for_each(|driver| driver.registers_mut().advance(now));
    }
}

impl BusObserver for Monitors {
    fn observe(&mut self, batch: &[BusRecord]) {
        for driver in &mut self.drivers {
            let start = driver.range().0;
            driver.registers_mut().observe(start, batch);
        }
    }

    fn hot_lists(&mut self, now: Time) -> Option<&mut dyn HotLists> {
        self.advance(now);
        Some(self)
    }

    fn interrupt(&mut self, now: Time) -> Option<bool> {
        self.advance(now);
        let raised = self.blocks().filter_map(Block::interrupt).reduce(|one, other| one || other);
        let wakes = raised? && !self.woken;
        self.woken |= wakes;
        self.interrupts += u64::from(wakes);
        Some(wakes)
    }

    fn take_work(&mut self) -> RegisterWork {
        let mut all = RegisterWork {
            interrupts: std::mem::take(&mut self.interrupts),
            ..RegisterWork::default()
        };
        for work in self.drivers.iter_mut().map(Driver::take_work) {
            all.writes += work.writes;
            all.reads += work.reads;
        }
        all
    }
}

impl HotLists for Monitors {
    fn sees(&self) -> Vec<(u64, u64)> {
        self.drivers.iter().map(Driver::range).collect()
    }

    fn enable(&mut self, program: &HotProgram) -> Result<()> {
        self.drivers.iter_mut().try_for_each(|driver| driver.enable(program))
    }

    fn drain(&mut self, most: usize, out: &mut Vec<HotUnit>) -> Result<()> {
        self.woken = false;
        let (first, devices) = (out.len(), self.drivers.len());
        for number in 0..devices {
            let left = most.saturating_sub(out.len() - first);
            self.drivers[(self.turn + number) % devices].drain(left, out)?;
        }
        self.turn = (self.turn + 1) % devices.max(1);
        Ok(())
    }

    fn overflows(&self) -> u64 {
        self.drivers.iter().map(Driver::overflows).sum()
    }
}
