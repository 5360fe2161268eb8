//! A live machine with the kernel's DAMON as its source of regions.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessBits, Clock, CpuTime, Mappings, Missing, Ports, RegionSource, Residence, Result,
    Snapshot, Target, Time, Wake,
};

use super::KernelDamon;
use super::shared::translated;
use crate::LiveMachine;

/// A machine, and the kdamond that monitors its target. The kdamond's CPU time counts as the
/// profiler's. The machine must have no access bits: two monitors that clear the same bits blind
/// each other.
pub struct WithKernelDamon {
    machine: LiveMachine,
    damon: KernelDamon,
}

impl WithKernelDamon {
    /// Combines a machine with a kdamond.
    #[must_use]
    pub fn new(machine: LiveMachine, damon: KernelDamon) -> Self {
        Self { machine, damon }
    }

    /// The region source, with its counts of lost windows.
    #[must_use]
    pub fn damon(&self) -> &KernelDamon {
        &self.damon
    }
}

impl Clock for WithKernelDamon {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.machine.wait(until)
    }
}

impl Target for WithKernelDamon {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.machine.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        let mut time = self.machine.cpu_time();
        time.profiler += self.damon.cpu_time();
        time
    }
}

impl RegionSource for WithKernelDamon {
    /// Regions of memory that processes share are those of the shared space.
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let mut snapshot = self.damon.next()?;
        let memory = self.machine.translation();
        if let Some(snapshot) = &mut snapshot
            && !memory.is_empty()
        {
            snapshot.regions = translated(std::mem::take(&mut snapshot.regions), memory);
        }
        Ok(snapshot)
    }
}

impl Ports for WithKernelDamon {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.machine.access_bits()
    }

    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        Ok(self)
    }

    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        self.machine.residence()
    }
}
