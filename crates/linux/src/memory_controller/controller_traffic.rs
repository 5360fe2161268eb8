//! Traffic of tenants, counted by memory controllers: the frames of a tenant all select its state
//! (NEMO, listing 3).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tierscope_core::{
    BusRecord, Compare, Counters, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Result,
    Rule, RuleId, Trigger,
};
use tierscope_nemo::{Driver, Engine};

use super::Traffic;
use super::controllers::{Controllers, controllers};
use super::tenant_frames::frames_of;
use crate::proc::Cgroup;

/// One rule for each zone of memory, all with the same states, one per tenant.
#[derive(Debug)]
pub struct ControllerTraffic<E: Engine = Controllers> {
    driver: Driver<E>,
    /// Rules, with the frames that each of them covers.
    rules: Vec<(RuleId, std::ops::Range<u64>)>,
    proc: PathBuf,
    tenants: Vec<Cgroup>,
    /// Tenant of each frame.
    owners: BTreeMap<u64, u32>,
    part: Vec<u64>,
}

impl ControllerTraffic {
    /// Counts the tenants' traffic in the controllers behind the device below `sys`, with a
    /// notification when a tenant has moved `allowance` bytes since the last reading.
    ///
    /// # Errors
    /// If there are no controllers, or if they have too few pipelines for this much memory.
    pub fn open(sys: &Path, proc: &Path, tenants: Vec<Cgroup>, allowance: u64) -> Result<Self> {
        let made = Self::with(controllers(sys, 1)?, tenants.len(), allowance)?;
        Ok(Self { proc: proc.to_owned(), tenants, ..made })
    }
}

impl<E: Engine> ControllerTraffic<E> {
    fn with(mut driver: Driver<E>, tenants: usize, allowance: u64) -> Result<Self> {
        let zones: Vec<_> =
            driver.engine().memory().zones().iter().map(|zone| zone.start..zone.end).collect();
        let mut rules = Vec::new();
        for zone in zones {
            let rule = driver.register_states(&rule(&zone, allowance), tenants as u64)?;
            rules.push((rule, zone.start >> 12..zone.end >> 12));
        }
        let (owners, part) = (BTreeMap::new(), vec![0; tenants]);
        Ok(Self { driver, rules, proc: PathBuf::new(), tenants: Vec::new(), owners, part })
    }

    /// The driver of the controllers.
    pub fn driver(&mut self) -> &mut Driver<E> {
        &mut self.driver
    }

    /// Lets each frame select its owner's state; frames without an owner select none.
    fn translate(&mut self, owners: BTreeMap<u64, u32>) -> Result<()> {
        let before = std::mem::take(&mut self.owners);
        let gone = before.keys().filter(|frame| !owners.contains_key(frame));
        let gone = gone.map(|frame| (*frame, None)).collect::<Vec<_>>();
        let new = owners.iter().filter(|(frame, owner)| before.get(frame) != Some(owner));
        let new = new.map(|(frame, owner)| (*frame, Some(*owner))).collect::<Vec<_>>();
        for (frame, owner) in gone.into_iter().chain(new) {
            let rule = self.rules.iter().find(|(_, frames)| frames.contains(&frame));
            if let Some((rule, _)) = rule {
                self.driver.translate(*rule, frame, owner)?;
            }
        }
        self.owners = owners;
        Ok(())
    }

    fn add(&mut self, out: &mut [u64], effect: bool) -> Result<()> {
        out.fill(0);
        for (rule, _) in &self.rules {
            match effect {
                true => self.driver.read(*rule, &mut self.part)?,
                false => self.driver.peek(*rule, 0, &mut self.part)?,
            }
            out.iter_mut()
                .zip(&self.part)
                .for_each(|(sum, lines)| *sum += lines * BusRecord::BYTES);
        }
        Ok(())
    }
}

/// The rule of a zone: counts all requests by frame, with a notification at the allowance.
fn rule(zone: &std::ops::Range<u64>, allowance: u64) -> Rule {
    let value = (allowance / BusRecord::BYTES).max(1);
    Rule {
        filter: Filter { kind: RequestKind::All, start: zone.start, end: zone.end },
        key: Key { mask: Key::ALL_MEMORY, shift: 12 },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: Some(Trigger { compare: Compare::AtLeast, value }),
        on_read: ReadEffect::Reset(0),
    }
}

impl<E: Engine> Traffic for ControllerTraffic<E> {
    fn refresh(&mut self) -> Result<()> {
        let mut owners = BTreeMap::new();
        let mut frames = Vec::new();
        for (number, tenant) in (0..).zip(&self.tenants) {
            frames.clear();
            frames_of(&self.proc, tenant, &mut frames)?;
            owners.extend(frames.iter().map(|frame| (*frame, number)));
        }
        self.translate(owners)
    }

    /// Acknowledges notifications, too.
    fn take(&mut self, out: &mut [u64]) -> Result<()> {
        self.add(out, true)?;
        self.listen()
    }

    fn peek(&mut self, out: &mut [u64]) -> Result<bool> {
        self.add(out, false).map(|()| true)
    }

    fn listen(&mut self) -> Result<()> {
        self.driver.notifications(&mut Vec::new());
        self.driver.engine().check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{BusObserver, Error, ErrorKind, Time};
    use tierscope_nemo::{At, Control, Functional, Geometry, Line, Memory, Status};

    /// Two tenants, whose cgroups the tests do not use.
    fn traffic() -> ControllerTraffic<Functional> {
        let memory = Memory::single(64 << 20, 2).unwrap();
        let driver = Driver::new(Functional::new(memory, 4, 32).unwrap());
        ControllerTraffic::with(driver, 2, 64 * 100).unwrap()
    }

    fn request(traffic: &mut ControllerTraffic<Functional>, frame: u64, times: u64) {
        let records: Vec<BusRecord> = (0..times)
            .map(|line| BusRecord::new(Time(0), (frame << 12) + line % 64 * 64, line % 2 == 0))
            .collect();
        traffic.driver().observe(&records);
    }

    #[test]
    fn requests_count_for_the_owner_of_the_frame() {
        let mut traffic = traffic();
        traffic.translate(BTreeMap::from([(1, 0), (2, 1), (9000, 1)])).unwrap();
        for (frame, times) in [(1, 10), (2, 20), (9000, 5), (3, 1000)] {
            request(&mut traffic, frame, times);
        }
        let mut out = [0; 2];
        assert!(traffic.peek(&mut out).unwrap());
        assert_eq!(out, [640, 1600]);
        traffic.take(&mut out).unwrap();
        assert_eq!(out, [640, 1600], "peek resets nothing");
        // Frame 2 changes its owner, frame 9000 has none any more.
        traffic.translate(BTreeMap::from([(1, 0), (2, 0)])).unwrap();
        for frame in [1, 2, 9000] {
            request(&mut traffic, frame, 1);
        }
        traffic.take(&mut out).unwrap();
        assert_eq!(out, [128, 0]);
    }

    #[test]
    fn exceeding_the_allowance_notifies() {
        let mut traffic = traffic();
        traffic.translate(BTreeMap::from([(1, 0)])).unwrap();
        let mut notices = Vec::new();
        request(&mut traffic, 1, 40);
        traffic.driver().notifications(&mut notices);
        assert!(notices.is_empty(), "40 of 100 lines");
        request(&mut traffic, 1, 200);
        traffic.driver().notifications(&mut notices);
        assert_eq!(notices.len(), 1);
    }

    /// Controllers that fail: registers read as zero, and writes have no effect.
    struct Broken {
        engine: Functional,
        failed: bool,
    }

    impl Engine for Broken {
        fn geometry(&self) -> Geometry {
            self.engine.geometry()
        }

        fn memory(&self) -> &Memory {
            self.engine.memory()
        }

        fn control(&mut self, at: At, control: Control) {
            self.engine.control(at, control);
        }

        fn load(&mut self, _: usize, _: u64) -> Line {
            self.failed = true;
            Line::default()
        }

        fn status(&mut self, _: At, _: usize) -> Status {
            self.failed = true;
            Status::default()
        }

        fn pending(&mut self, _: usize) -> u64 {
            self.failed = true;
            0
        }

        fn check(&self) -> Result<()> {
            match self.failed {
                true => Err(Error::new(ErrorKind::Io, "the controllers do not answer")),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn failing_controllers_are_an_error_and_not_zero_traffic() {
        let broken = || {
            let engine = Functional::new(Memory::single(64 << 20, 2).unwrap(), 4, 32).unwrap();
            let driver = Driver::new(Broken { engine, failed: false });
            ControllerTraffic::with(driver, 2, 64 * 100).unwrap()
        };
        let kind = |result: Result<()>| result.unwrap_err().kind();
        let mut out = [0; 2];
        assert_eq!(kind(broken().take(&mut out)), ErrorKind::Io);
        assert_eq!(kind(broken().peek(&mut out).map(|_| ())), ErrorKind::Io);
        assert_eq!(kind(broken().listen()), ErrorKind::Io);
    }
}
