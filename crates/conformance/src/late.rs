//! A machine whose instrument comes late: as on a server whose CPUs are busy, the thread that looks is
//! woken up, and runs only when its turn has come.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessBits, Clock, CpuTime, Mappings, Missing, Ports, Result, Target, Time, Wake,
};

/// A machine with ACCESSED bits on which waits end only at whole multiples of a period.
pub struct Late<'a> {
    machine: &'a mut dyn Ports,
    period: Duration,
}

impl<'a> Late<'a> {
    /// Waits on `machine` end at multiples of `period`.
    pub fn new(machine: &'a mut dyn Ports, period: Duration) -> Self {
        Self { machine, period }
    }
}

impl Clock for Late<'_> {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        let period = self.period.as_nanos() as u64;
        self.machine.wait(Time(until.0.div_ceil(period).saturating_mul(period)))
    }
}

impl Target for Late<'_> {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.machine.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.machine.cpu_time()
    }

    fn own_time(&self) -> Duration {
        self.machine.own_time()
    }
}

impl Ports for Late<'_> {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.machine.access_bits()
    }

    fn charge(&mut self, time: Duration) {
        self.machine.charge(time);
    }
}
