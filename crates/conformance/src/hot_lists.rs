//! Naive hot lists: a map of counts, a list without an end, and no limits.

use std::collections::BTreeMap;

use tierscope_core::{Error, ErrorKind, HotLists, HotProgram, HotUnit, Reporting, Result, Time};

/// The hot lists of a device that holds all memory.
#[derive(Clone, Debug, Default)]
pub struct NaiveHotLists {
    program: Option<HotProgram>,
    now: Time,
    epoch_end: Time,
    counts: BTreeMap<u64, u64>,
    list: Vec<HotUnit>,
}

impl NaiveHotLists {
    /// Whether no program runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.program.is_none()
    }

    /// Counts a request to a physical address.
    pub fn see(&mut self, address: u64) {
        let Some(program) = self.program else { return };
        let unit = address >> program.unit_shift;
        let count = self.counts.entry(unit).or_default();
        *count += 1;
        if program.reporting == Reporting::AlwaysOn && *count >= u64::from(program.threshold) {
            let count = self.counts.remove(&unit).unwrap_or(0);
            self.list.push(HotUnit { address: unit << program.unit_shift, count });
        }
    }

    /// Lets time pass up to `now`; an epoch that is over is reported.
    pub fn advance(&mut self, now: Time) {
        self.now = now;
        let Some(HotProgram { reporting: Reporting::Epoch(length), .. }) = self.program else {
            return;
        };
        while self.epoch_end <= now {
            self.report();
            self.epoch_end += length;
        }
    }

    fn report(&mut self) {
        let Some(program) = self.program else { return };
        for (unit, count) in std::mem::take(&mut self.counts) {
            if count >= u64::from(program.threshold) {
                self.list.push(HotUnit { address: unit << program.unit_shift, count });
            }
        }
    }
}

impl HotLists for NaiveHotLists {
    fn sees(&self) -> Vec<(u64, u64)> {
        vec![(0, u64::MAX)]
    }

    fn enable(&mut self, program: &HotProgram) -> Result<()> {
        self.counts.clear();
        self.list.clear();
        self.program = Some(*program);
        if let Reporting::Epoch(length) = program.reporting {
            self.epoch_end = self.now + length;
        }
        Ok(())
    }

    fn drain(&mut self, most: usize, out: &mut Vec<HotUnit>) -> Result<()> {
        if self.program.is_none() {
            return Err(Error::new(ErrorKind::Usage, "no program runs"));
        }
        out.extend(self.list.drain(..most.min(self.list.len())));
        Ok(())
    }

    fn overflows(&self) -> u64 {
        0
    }
}
