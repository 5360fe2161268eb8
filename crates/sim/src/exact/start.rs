//! Start of processes, and the checks before it.

use tierscope_core::{BusObserver, Error, ErrorKind, Result, SpaceId, Tier};
use tierscope_hw::PageSize;

use super::Machine;
use super::control::unpopulated;
use super::mm::Map;
use super::setup::Process;
use crate::placement::Placement;

impl<B: BusObserver> Machine<B> {
    /// Starts a process: maps its areas and starts its threads now.
    ///
    /// # Errors
    /// The workload is invalid, or larger than the memory.
    pub fn start(&mut self, process: &Process) -> Result<SpaceId> {
        self.check(process)?;
        let space = self.os.create(&process.name, process.uncached_levels())?;
        self.os.spaces[space.0 as usize].trapped = process.trapped;
        let mut bases = Vec::new();
        for area in process.work.areas() {
            let pages = process.pages_of(&area.name);
            let apart = if process.area_pages.is_empty() { pages } else { PageSize::G1 };
            let bytes = area.bytes.next_multiple_of(pages.bytes());
            let map = Map {
                at: self.os.spaces[space.0 as usize].room(bytes, apart.bytes()),
                pages,
                placement: process.placement.clone(),
                name: area.name.as_str().into(),
                ..Map::anonymous(bytes)
            };
            let range = self.map(space, &map)?;
            bases.push(range.start);
            if process.watched.contains(&area.name) {
                self.os.watch(range);
            }
            if process.written {
                self.os.write_all(range)?.map_err(|denied| unpopulated(&range, denied))?;
            } else if process.populate {
                self.populate(range)?;
            }
        }
        self.os.tables.executes(self.os.spaces[space.0 as usize].root.table);
        self.start_threads(process, space, bases);
        Ok(space)
    }

    /// Whether a process could be started: a cheap check before anything runs.
    ///
    /// # Errors
    /// The reason why it could not.
    pub fn check(&self, process: &Process) -> Result<()> {
        process.work.check().map_err(|cause| {
            Error::new(ErrorKind::Usage, format!("cannot start {}", process.name)).cause(cause)
        })?;
        check_areas(process)?;
        self.check_cores(process)?;
        self.check_placement(process)?;
        self.check_room(process)
    }

    fn check_cores(&self, process: &Process) -> Result<()> {
        if process.threads == 0 || process.first_cpu as usize >= self.cpus.len() {
            return refuse(
                process,
                format!("{} threads from core {} on", process.threads, process.first_cpu),
                "use at least one thread, and a core that the machine has",
            );
        }
        let most = self.cycles.fill_buffers;
        match process.overlap.filter(|n| !(1..=most).contains(&u64::from(*n))) {
            Some(overlap) => refuse(
                process,
                format!("a core waits for at most {most} lines, not {overlap}"),
                "choose an overlap that the machine's fill_buffers allow",
            ),
            None => Ok(()),
        }
    }

    fn check_placement(&self, process: &Process) -> Result<()> {
        let tiers = 0..self.os.frames.tiers() as u8;
        let exists = |tier: &Tier| tiers.contains(&tier.0);
        let possible = match &process.placement {
            Placement::FirstTouch => true,
            Placement::Bind(tier) => exists(tier),
            Placement::Interleave(list) => !list.is_empty() && list.iter().all(exists),
            Placement::Known(map) => map.fits(tiers.len()),
        };
        if possible {
            return Ok(());
        }
        refuse(
            process,
            "its placement names a tier that the machine does not have".into(),
            "choose from the machine's tiers",
        )
    }

    fn check_room(&self, process: &Process) -> Result<()> {
        let tiers = (0..self.os.frames.tiers() as u8).map(Tier);
        let usable = tiers.filter(|tier| !(self.memory_mode && tier.0 == 0));
        let room: u64 = usable.map(|tier| self.os.frames.capacity(tier) << 12).sum();
        let mapped = self.os.mapped() + process.work.bytes();
        if mapped <= room {
            return Ok(());
        }
        refuse(
            process,
            format!("{} MiB are mapped in {} MiB of memory", mapped >> 20, room >> 20),
            "make the workload smaller or the tiers larger",
        )
    }

    /// Creates a space without mappings or threads, for single accesses ([`Machine::access`]).
    ///
    /// # Errors
    /// There are too many spaces.
    pub fn spawn(&mut self, name: &str, uncached_tables: bool) -> Result<SpaceId> {
        self.os.create(name, uncached_tables.into())
    }

    /// [`Machine::spawn`] with uncached tables: those whose entries map pages of up to that size.
    ///
    /// # Errors
    /// There are too many spaces.
    pub fn spawn_uncached(&mut self, name: &str, pages: PageSize) -> Result<SpaceId> {
        self.os.create(name, if pages == PageSize::K4 { 1 } else { 2 })
    }
}

fn refuse(process: &Process, cause: String, remedy: &str) -> Result<()> {
    let what = format!("cannot start {}", process.name);
    Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
}

fn check_areas(process: &Process) -> Result<()> {
    let areas = process.work.areas();
    let named = process.area_pages.iter().map(|(name, _)| name).chain(&process.watched);
    let unknown = |name: &&String| areas.iter().all(|area| area.name != **name);
    if let Some(name) = named.into_iter().find(unknown) {
        let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
        return refuse(
            process,
            format!("it has no area `{name}`"),
            &format!("choose from {}", names.join(", ")),
        );
    }
    if process.watched.is_empty() || process.uncached_tables {
        return Ok(());
    }
    refuse(
        process,
        "areas of it are to be watched, and its page tables are not in the uncached region".into(),
        "keep its tables there too: without them the addresses of its areas are unknown",
    )
}
