//! State of memory management: all spaces, and the frames and tables behind them.

use std::sync::Arc;

use tierscope_core::{
    Error, ErrorKind, Mapping, Mappings, PageEvent, Radix, Range, Result, SpaceId, Tier, Time,
};
use tierscope_hw::entry::FRAME_MASK;
use tierscope_hw::{Asid, PageSize, Root};
use tierscope_wire::ptat::Window;

use super::cpu_set::CpuSet;
use super::frames::Frames;
use super::pages::Pages;
use super::promotion_reuse::PromotionReuse;
use super::slots::Slots;
use super::space::{Space, Vma};
use super::swap::Swapped;
use super::tables::Tables;
use crate::exact::Setup;
use crate::exact::log::Log;

/// State of memory management.
pub(in crate::exact) struct Os {
    pub(in crate::exact) frames: Frames,
    pub(in crate::exact) tables: Tables,
    pub(in crate::exact) spaces: Vec<Space>,
    pub(in crate::exact) pages: Pages,
    pub(in crate::exact) events: Log<PageEvent>,
    /// Promotions that were not followed by an access.
    pub(in crate::exact) promotion_reuse: PromotionReuse,
    pub(super) swapped: Swapped,
    /// 2 MiB blocks allocated for page tables.
    table_blocks: u64,
    pub(super) asids: Slots,
    pub(super) mappings: Arc<Mappings>,
    changed: bool,
    /// Spaces or mappings changed since the clock last reported it.
    target_changed: bool,
    /// The fastest tier that pages may come from.
    pub(super) fastest: u8,
}

impl Os {
    pub(in crate::exact) fn new(setup: &Setup) -> Result<Self> {
        let hardware = &setup.hardware;
        let bits = hardware.processor.physical_bits;
        let mut frames = Frames::new(&hardware.tiers, &setup.watermarks());
        if frames.end() << 12 > 1 << (bits - 1) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("machine {} cannot be simulated exactly", hardware.name),
            )
            .cause(format!(
                "its tiers reach beyond the lower half of {bits} physical address bits; the upper \
                 half is for page tables"
            ))
            .remedy("raise processor.physical_bits by one, or make the tiers smaller"));
        }
        if frames.end() > 1 << 32 {
            return Err(Error::new(ErrorKind::Usage, "the tiers are too large")
                .cause("exact mode reaches 16 TiB of physical memory")
                .remedy("use density mode"));
        }
        let mut asids = Slots::new(Asid::COUNT.into());
        let _ = asids.take();
        let levels = hardware.translation.levels;
        let tables = Tables::new(levels, bits, setup.uncached_tables, setup.watch_tables);
        frames.reserve(tables.layout.first_reserved());
        Ok(Self {
            frames,
            tables,
            spaces: Vec::new(),
            pages: Pages::default(),
            events: Log::default(),
            promotion_reuse: PromotionReuse::default(),
            swapped: Swapped::new(setup.costs.swap.ratio_percent),
            table_blocks: 0,
            asids,
            mappings: Arc::default(),
            changed: true,
            target_changed: false,
            fastest: u8::from(setup.memory_mode),
        })
    }

    pub(in crate::exact) fn radix(&self) -> Radix {
        if self.tables.levels() == 5 { Radix::X86_64_LA57 } else { Radix::X86_64 }
    }

    /// Mapped bytes of all spaces.
    pub(in crate::exact) fn mapped(&self) -> u64 {
        let alive = self.spaces.iter().filter(|space| space.alive);
        alive.flat_map(|space| &space.vmas).map(|(start, vma)| vma.end - start).sum()
    }

    pub(in crate::exact) fn alive_spaces(&self) -> usize {
        self.spaces.iter().filter(|space| space.alive).count()
    }

    /// Whether spaces or mappings changed since [`Os::take_target_changed`].
    pub(in crate::exact) fn has_target_changed(&self) -> bool {
        self.target_changed
    }

    pub(in crate::exact) fn take_target_changed(&mut self) -> bool {
        std::mem::take(&mut self.target_changed)
    }

    pub(super) fn change(&mut self) {
        self.changed = true;
        self.target_changed = true;
    }

    pub(in crate::exact) fn create(&mut self, name: &str, uncached: u8) -> Result<SpaceId> {
        let none = |what: &str| {
            Error::new(ErrorKind::Other, "cannot make another address space")
                .cause(format!("there are no more {what}"))
                .remedy("end other processes first")
        };
        let table = self.tables.new_root()?.ok_or_else(|| none("addresses for page tables"))?;
        let asid = self.asids.take().ok_or_else(|| none("address-space tags"))?;
        let asid = Asid::new(asid as u16).expect("below the number of tags");
        let id = SpaceId(self.spaces.len() as u32);
        self.spaces.push(Space {
            id,
            name: name.into(),
            root: Root { table, asid },
            vmas: Default::default(),
            uncached,
            watched: false,
            trapped: false,
            cpus: CpuSet::default(),
            alive: true,
            resident: vec![0; self.frames.tiers()],
        });
        if uncached > 0 {
            self.tables.announce(table, id);
        }
        self.change();
        self.charge_tables();
        Ok(id)
    }

    /// The space of that id, if it is alive.
    pub(in crate::exact) fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id.0 as usize).filter(|space| space.alive)
    }

    pub(super) fn space_mut(&mut self, id: SpaceId) -> &mut Space {
        &mut self.spaces[id.0 as usize]
    }

    pub(super) fn alive(&self, id: SpaceId) -> Result<&Space> {
        self.space(id).ok_or_else(|| {
            Error::new(ErrorKind::Gone, format!("{id} cannot be changed"))
                .cause("no living space has that number")
                .remedy("take its number from the machine's mappings")
        })
    }

    /// Frees the page of an entry.
    pub(super) fn release(&mut self, id: SpaceId, entry: u64, size: PageSize) {
        let frame = (entry & FRAME_MASK) >> 12;
        let tier = self.frames.tier_of(frame);
        self.space_mut(id).resident[usize::from(tier.0)] -= size.bytes() >> 12;
        if self.tables.layout.is_data(frame) {
            return self.tables.free_data(frame);
        }
        self.promotion_reuse.free(frame, size);
        self.frames.give(frame, size);
    }

    /// Places the pages of a mapping in the uncached region for good, so that accesses to them are
    /// seen on the bus (PTAT, section 7).
    pub(in crate::exact) fn watch(&mut self, range: Range) {
        let space = self.space_mut(range.space);
        space.watched = true;
        if let Some(vma) = space.vmas.get_mut(&range.start) {
            (vma.watched, vma.locked) = (true, true);
        }
    }

    /// Whether the space's walks are trapped, and the physical window that bypasses the caches.
    #[inline]
    pub(in crate::exact) fn traps_and_data_window(&self, space: SpaceId) -> (bool, (Window, u64)) {
        let space = &self.spaces[space.0 as usize];
        let region = if space.watched { self.tables.layout.data() } else { Default::default() };
        (space.trapped, region)
    }

    /// Takes memory for page tables in 2 MiB blocks, from the fastest tier that has one. A full
    /// machine gives none; the kernel would run its OOM killer.
    pub(super) fn charge_tables(&mut self) {
        let tiers = self.frames.tiers() as u8;
        while self.table_blocks << 21 < self.tables.bytes() {
            let _ = (0..tiers).find_map(|tier| self.frames.take(Tier(tier), PageSize::M2));
            self.table_blocks += 1;
        }
    }

    /// The mappings of all spaces; rebuilt only after a change.
    pub(in crate::exact) fn layout(&mut self, now: Time) -> Arc<Mappings> {
        if std::mem::take(&mut self.changed) {
            let alive = || self.spaces.iter().filter(|space| space.alive);
            let spaces =
                alive().map(|s| tierscope_core::Space { id: s.id, name: Arc::clone(&s.name) });
            let of = |space: &Space, (start, vma): (&u64, &Vma)| Mapping {
                range: space.range(*start, vma.end),
                backing: vma.backing,
                name: Arc::clone(&vma.name),
                writable: vma.writable,
                object: None,
            };
            let mappings =
                alive().flat_map(|space| space.vmas.iter().map(move |vma| of(space, vma)));
            let new = Mappings {
                taken: now,
                spaces: spaces.collect(),
                mappings: mappings.collect(),
                ..Mappings::default()
            };
            self.mappings = Arc::new(new);
        }
        Arc::clone(&self.mappings)
    }
}
