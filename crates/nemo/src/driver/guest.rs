//! A guest's view: telemetries over its own memory, by guest-physical addresses (NEMO, section
//! 6.2).
//!
//! The guest names pages by its own addresses; the driver translates them to host pages and refuses
//! entries for any others. All requests on the bus pass the pipeline, but only those to the guest's
//! pages match an entry. Operands that would reveal host addresses or cores are refused.

use tierscope_core::{
    Counters, Error, ErrorKind, Filter, Key, Notice, Operand, RequestField, Result, Rule, RuleId,
    RuleLimits,
};

use super::spec::{Spec, refused, takes_upper_bits};
use super::{Driver, Owner};
use crate::engine::Engine;
use crate::memory::Memory;

/// Number of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestId(u32);

/// A range of guest memory and its place in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backing {
    /// First guest-physical address.
    pub guest: u64,
    /// First host-physical address.
    pub host: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A guest, its memory and its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    memory: Vec<Backing>,
    /// Pipelines that it may use in each controller.
    pipelines: u64,
    /// Filters of its telemetries, in guest-physical addresses.
    filters: Vec<(RuleId, Filter, Key)>,
}

impl Backing {
    /// Host-physical address of a guest range, if the range lies entirely in this backing.
    fn host_of(&self, start: u64, bytes: u64) -> Option<u64> {
        let offset = start.checked_sub(self.guest)?;
        (offset.checked_add(bytes)? <= self.bytes).then_some(self.host + offset)
    }
}

impl<E: Engine> Driver<E> {
    /// Admits a guest with that memory, and a quota of pipelines in each controller.
    ///
    /// # Errors
    /// Its memory is not page-aligned, overlaps itself or another guest's, or is served by no
    /// controller.
    pub fn admit(&mut self, memory: Vec<Backing>, pipelines: u64) -> Result<GuestId> {
        for (number, backing) in memory.iter().enumerate() {
            check_backing(backing, self.engine.memory())?;
            let overlap = |other: &Backing, at: fn(&Backing) -> u64| {
                at(backing) < at(other) + other.bytes && at(other) < at(backing) + backing.bytes
            };
            let earlier = &memory[..number];
            if earlier.iter().any(|other| overlap(other, |backing| backing.guest)) {
                return Err(refused("memory.guest", "two ranges of the guest's overlap"));
            }
            let others = self.guests.iter().flatten().flat_map(|guest| &guest.memory);
            if others.chain(earlier).any(|other| overlap(other, |backing| backing.host)) {
                let cause = format!("pages from {:#x} on are mapped already", backing.host);
                return Err(refused("memory.host", cause));
            }
        }
        if memory.is_empty() {
            return Err(refused("memory", "a guest has some"));
        }
        let guest = Some(Guest { memory, pipelines, filters: Vec::new() });
        let free = self.guests.iter().position(Option::is_none).unwrap_or(self.guests.len());
        if free == self.guests.len() {
            self.guests.push(None);
        }
        self.guests[free] = guest;
        Ok(GuestId(free as u32))
    }

    /// Removes a guest with all of its telemetries.
    ///
    /// # Errors
    /// The guest does not exist.
    pub fn dismiss(&mut self, id: GuestId) -> Result<()> {
        let slot = self.guests.get_mut(id.0 as usize);
        let guest = slot.and_then(Option::take).ok_or_else(|| no_guest(id))?;
        guest.filters.iter().try_for_each(|(rule, ..)| self.remove(Owner::Guest(id), *rule))
    }

    /// The counters of a guest.
    ///
    /// # Errors
    /// The guest does not exist.
    pub fn guest(&mut self, id: GuestId) -> Result<View<'_, E>> {
        self.guest_of(id)?;
        Ok(View { driver: self, id })
    }

    fn guest_of(&self, id: GuestId) -> Result<&Guest> {
        self.guests.get(id.0 as usize).and_then(Option::as_ref).ok_or_else(|| no_guest(id))
    }
}

fn no_guest(id: GuestId) -> Error {
    Error::new(ErrorKind::Usage, format!("there is no guest {}", id.0)).remedy("admit it first")
}

fn check_backing(backing: &Backing, memory: &Memory) -> Result<()> {
    const PAGE: u64 = 4096;
    let Backing { guest, host, bytes } = *backing;
    if guest % PAGE != 0 || host % PAGE != 0 || bytes % PAGE != 0 || bytes == 0 {
        return Err(refused("memory", "ranges are unaligned: they are made of pages of 4 KiB"));
    }
    let end = host.checked_add(bytes).filter(|end| memory.covers(host, *end));
    if end.is_none() || guest.checked_add(bytes).is_none() {
        let cause = format!("{bytes:#x} bytes from {host:#x} on: no controller serves them all");
        return Err(refused("memory.host", cause));
    }
    Ok(())
}

/// The counters as a guest sees them: the same calls, restricted to its own memory and addresses.
#[derive(Debug)]
pub struct View<'a, E> {
    driver: &'a mut Driver<E>,
    id: GuestId,
}

impl<E: Engine> View<'_, E> {
    /// Installs a telemetry over the guest's memory.
    ///
    /// # Errors
    /// The invalid field; or a lack of pipelines or banks.
    pub fn install(&mut self, spec: &Spec) -> Result<RuleId> {
        let guest = self.driver.guest_of(self.id)?.clone();
        let last = guest.memory.iter().map(|backing| backing.guest + backing.bytes).max();
        let limits = RuleLimits { end: last.unwrap_or(0), cell: spec.cell };
        spec.rule.check(&limits)?;
        check_foreign(&spec.rule, &limits)?;
        let shift = spec.rule.key.shift;
        let mut keys: Vec<(u64, u64)> =
            guest.memory.iter().filter_map(|b| whole(b, shift)).collect();
        if keys.is_empty() {
            let cause = format!("no region of 2^{shift} bytes lies whole in the guest's memory");
            return Err(refused("key.shift", cause));
        }
        keys.sort_unstable();
        let all = Filter { kind: spec.rule.filter.kind, start: 0, end: u64::MAX };
        let key = Key { mask: Key::ALL_MEMORY, shift };
        let host = Spec { rule: Rule { filter: all, key, ..spec.rule }, ..*spec };
        self.check_quota(&guest, &host, &keys)?;
        let memory = self.driver.engine.memory();
        let mut controllers: Vec<usize> = (guest.memory.iter())
            .flat_map(|backing| memory.serving(backing.host, backing.host + backing.bytes))
            .collect();
        controllers.sort_unstable();
        controllers.dedup();
        let owner = Owner::Guest(self.id);
        let id = self.driver.install_for(owner, &host, keys, &controllers)?;
        let guest = self.driver.guests[self.id.0 as usize].as_mut().expect("just found");
        guest.filters.push((id, spec.rule.filter, spec.rule.key));
        Ok(id)
    }

    /// Removes one of the guest's telemetries.
    ///
    /// # Errors
    /// The guest has no telemetry of that number.
    pub fn uninstall(&mut self, id: RuleId) -> Result<()> {
        self.driver.remove(Owner::Guest(self.id), id)?;
        let guest = self.driver.guests[self.id.0 as usize].as_mut().expect("it has telemetries");
        guest.filters.retain(|(rule, ..)| *rule != id);
        Ok(())
    }

    fn check_quota(&self, guest: &Guest, spec: &Spec, keys: &[(u64, u64)]) -> Result<()> {
        let wanted = super::Layout::new(spec, keys)?.pipelines();
        let owner = Owner::Guest(self.id);
        let used: u64 = (guest.filters.iter())
            .filter_map(|(id, ..)| self.driver.of(owner, *id).ok())
            .map(|telemetry| telemetry.layout.pipelines())
            .sum();
        if used.saturating_add(wanted) <= guest.pipelines {
            return Ok(());
        }
        let cause = format!(
            "{wanted} pipelines of each controller are needed, {used} of the guest's {} are in use",
            guest.pipelines
        );
        Err(Error::new(ErrorKind::Missing, "no room for the telemetry").cause(cause))
    }

    /// The host's key of one of the guest's regions.
    fn host_key(&self, id: RuleId, key: u64) -> Result<u64> {
        let guest = self.driver.guest_of(self.id)?;
        let found = guest.filters.iter().find(|(rule, ..)| *rule == id);
        let (_, filter, own) = found.ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("there is no telemetry {:#x}", id.0))
                .remedy("register it first")
        })?;
        let region = 1u64 << own.shift;
        let start = key.checked_mul(region).ok_or_else(|| refused("key", "out of range"))?;
        let inside = filter.start <= start && start.saturating_add(region) <= filter.end;
        if !inside {
            return Err(refused("key", format!("{key:#x} is out of range of the filter")));
        }
        let host = guest.memory.iter().find_map(|backing| backing.host_of(start, region));
        match host {
            None => Err(refused("key", format!("{key:#x} is foreign: not the guest's memory"))),
            Some(host) if host % region != 0 => {
                let cause = "the host has that region at addresses that are unaligned to it";
                Err(refused("key", cause).remedy("choose a smaller key.shift"))
            }
            Some(host) => Ok(host >> own.shift),
        }
    }
}

/// Refuses operands that would reveal foreign data to a guest.
fn check_foreign(rule: &Rule, limits: &RuleLimits) -> Result<()> {
    match rule.update.1 {
        Operand::Field(RequestField::Address) => {
            return Err(refused("update.operand", "`address` would show the host's addresses"));
        }
        Operand::Field(RequestField::Requester) => {
            return Err(refused("update.operand", "`requester` would show the host's cores"));
        }
        _ => {}
    }
    if rule.key.mask == 0 || !takes_upper_bits(rule.key, limits) {
        let cause = "it leaves out upper bits of the address: a key would select foreign pages too";
        return Err(refused("key.mask", cause));
    }
    Ok(())
}

/// The host's keys of the regions that lie entirely in a range, first and last.
fn whole(backing: &Backing, shift: u8) -> Option<(u64, u64)> {
    let region = 1u64 << shift;
    let first = backing.host.div_ceil(region);
    let end = (backing.host + backing.bytes) / region;
    (first < end).then(|| (first, end - 1))
}

impl<E: Engine> Counters for View<'_, E> {
    fn register(&mut self, rule: &Rule) -> Result<RuleId> {
        self.install(&Spec::from(*rule))
    }

    fn register_states(&mut self, rule: &Rule, states: u64) -> Result<RuleId> {
        self.install(&Spec { states: Some(states), ..Spec::from(*rule) })
    }

    fn unregister(&mut self, rule: RuleId) -> Result<()> {
        self.uninstall(rule)
    }

    /// The guest's memory, in guest-physical addresses.
    fn sees(&self) -> Vec<(u64, u64)> {
        let Ok(guest) = self.driver.guest_of(self.id) else { return Vec::new() };
        let mut ranges: Vec<(u64, u64)> =
            guest.memory.iter().map(|part| (part.guest, part.guest + part.bytes)).collect();
        ranges.sort_unstable();
        ranges
    }

    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()> {
        let host = self.host_key(rule, key)?;
        self.driver.translate_for(Owner::Guest(self.id), rule, host, index)
    }

    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()> {
        self.driver.read_for(Owner::Guest(self.id), rule, out)
    }

    fn notifications(&mut self, out: &mut Vec<Notice>) {
        self.driver.notices_for(Owner::Guest(self.id), out);
    }
}
