//! The control plane (NEMO, section 3.2): installs telemetries, allocates pipelines and banks to
//! them, writes translation tables, folds states into one view, and forwards hints.
//!
//! A telemetry is cut into a grid: key windows of 8,192 keys that cover its filter, by state
//! windows of a pipeline's capacity. Each cell of the grid is a pipeline in every controller that
//! serves a part of the filter. A request's key lies in the key window of one row of pipelines, and
//! of these only the one whose state window holds the state has an entry for the key. A state is
//! folded over all key windows, controllers and channels.

mod extensions;
mod guest;
mod notices;
mod read;
mod slab;
mod spec;
mod sweep;
mod translate;

pub use guest::{Backing, Guest, GuestId, View};
pub use notices::Alert;
pub use read::Overflow;
pub use spec::Spec;
pub use sweep::Sweep;
pub use translate::StateMapping;

use std::collections::BTreeMap;

use tierscope_core::{
    BusObserver, BusRecord, Counters, Error, ErrorKind, Loss, Notice, RegisterWork, Result, Rule,
    RuleId, RuleLimits,
};

use crate::engine::{At, Control, Engine};
use crate::program::{Chain, Program, Select, Side};
use crate::registers;
use slab::{PipelineBanks, Slab};
use spec::{Layout, keys_of, no_room, refused};

/// Owner of a telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Host,
    Guest(GuestId),
}

/// A cell of the grid: a pipeline with its banks in each controller.
type Cell = Vec<(At, PipelineBanks)>;

/// A registered telemetry.
#[derive(Clone, Debug)]
struct Telemetry {
    owner: Owner,
    /// The rule as programmed: with host addresses if the owner is a guest.
    rule: Rule,
    layout: Layout,
    /// Runs of keys that may be translated, first and last.
    keys: Vec<(u64, u64)>,
    /// Cells by key window, then by state window.
    cells: Vec<Cell>,
    entries: BTreeMap<u64, u32>,
    select: Select,
    chain: Chain,
    /// The pipelines chained to this one, which are removed with it.
    links: Vec<RuleId>,
}

/// Driver of all controllers of an engine.
#[derive(Clone, Debug)]
pub struct Driver<E> {
    engine: E,
    slabs: Vec<Slab>,
    /// Slots by telemetry number, with a generation that changes when a slot is reused.
    slots: Vec<(u16, Option<Telemetry>)>,
    guests: Vec<Option<Guest>>,
    work: RegisterWork,
    /// Width of the counters of rules that name none.
    cell: tierscope_core::Cell,
}

impl<E: Engine> Driver<E> {
    /// A driver for an idle engine.
    pub fn new(engine: E) -> Self {
        let slabs = vec![Slab::new(engine.geometry()); engine.memory().controllers()];
        Self {
            engine,
            slabs,
            slots: Vec::new(),
            guests: Vec::new(),
            work: RegisterWork::default(),
            cell: tierscope_core::Cell::WORD,
        }
    }

    /// The driver, with counters of this width for rules that come through [`Counters`].
    #[must_use]
    pub fn with_cell(mut self, cell: tierscope_core::Cell) -> Self {
        self.cell = cell;
        self
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, for passing requests to it.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Free pipelines and banks of each controller.
    #[must_use]
    pub fn free(&self) -> Vec<(usize, usize)> {
        self.slabs.iter().map(|slab| (slab.free_pipelines(), slab.free_banks())).collect()
    }

    /// Installs a telemetry of the host.
    ///
    /// # Errors
    /// The invalid field; or a lack of pipelines or banks.
    pub fn install(&mut self, spec: &Spec) -> Result<RuleId> {
        let end = self.engine.memory().end();
        let limits = RuleLimits { end, cell: spec.cell };
        spec.rule.check(&limits)?;
        let last = spec.rule.filter.end.min(end);
        let keys = vec![keys_of(spec.rule.key, spec.rule.filter.start, last, &limits)];
        let controllers = self.serving(&spec.rule)?;
        self.install_for(Owner::Host, spec, keys, &controllers)
    }

    /// Removes a telemetry of the host.
    ///
    /// # Errors
    /// The host has no telemetry of that number.
    pub fn uninstall(&mut self, id: RuleId) -> Result<()> {
        let telemetry = self.of(Owner::Host, id)?;
        if telemetry.chain != Chain::None {
            let what = format!("cannot remove telemetry {:#x} alone", id.0);
            return Err(Error::new(ErrorKind::Usage, what)
                .cause("it is chained to another, whose requests it would miss")
                .remedy("remove the first of the chain"));
        }
        self.remove(Owner::Host, id)
    }

    /// Deviations that folding over this telemetry's banks causes, compared with a single bank.
    ///
    /// # Errors
    /// The host has no telemetry of that number.
    pub fn losses(&self, id: RuleId) -> Result<Vec<Loss>> {
        let telemetry = self.of(Owner::Host, id)?;
        if self.banks_of(telemetry) == 1 {
            return Ok(Vec::new());
        }
        let chained = (telemetry.chain != Chain::None).then_some(Loss::Chain);
        Ok(telemetry.rule.losses(telemetry.layout.cell).into_iter().chain(chained).collect())
    }

    /// Number of banks that a state of this telemetry is folded from.
    ///
    /// # Errors
    /// The host has no telemetry of that number.
    pub fn banks(&self, id: RuleId) -> Result<u64> {
        self.of(Owner::Host, id).map(|telemetry| self.banks_of(telemetry))
    }

    /// Number of banks that a state is folded from.
    fn banks_of(&self, telemetry: &Telemetry) -> u64 {
        let controllers = telemetry.cells[0].len() * telemetry.layout.key_windows.len();
        (controllers * self.engine.geometry().channels) as u64
    }

    fn of(&self, owner: Owner, id: RuleId) -> Result<&Telemetry> {
        let (number, generation) = ((id.0 & 0xffff) as usize, (id.0 >> 16) as u16);
        let slot = self.slots.get(number).filter(|slot| slot.0 == generation);
        let found = slot.and_then(|slot| slot.1.as_ref()).filter(|found| found.owner == owner);
        found.ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("there is no telemetry {:#x}", id.0))
                .cause("it was removed, or never registered by this owner")
                .remedy("register it first")
        })
    }

    /// Runs `act` on a telemetry, which is taken out of its slot meanwhile.
    fn with<R>(
        &mut self,
        owner: Owner,
        id: RuleId,
        act: impl FnOnce(&mut Self, &Telemetry) -> R,
    ) -> Result<R> {
        self.of(owner, id)?;
        let number = (id.0 & 0xffff) as usize;
        let telemetry = self.slots[number].1.take().expect("just found");
        let result = act(self, &telemetry);
        self.slots[number].1 = Some(telemetry);
        Ok(result)
    }

    fn of_mut(&mut self, owner: Owner, id: RuleId) -> Result<&mut Telemetry> {
        self.of(owner, id)?;
        Ok(self.slots[(id.0 & 0xffff) as usize].1.as_mut().expect("just found"))
    }

    fn install_for(
        &mut self,
        owner: Owner,
        spec: &Spec,
        keys: Vec<(u64, u64)>,
        controllers: &[usize],
    ) -> Result<RuleId> {
        let layout = Layout::new(spec, &keys)?;
        let number = self.free_number()?;
        let cells = self.take_cells(&layout, controllers)?;
        self.settle(number, Telemetry::new(owner, spec.rule, layout, keys, cells))
    }

    /// Controllers that serve memory of a rule's filter, one at least.
    fn serving(&self, rule: &Rule) -> Result<Vec<usize>> {
        let (start, memory) = (rule.filter.start, self.engine.memory());
        let controllers = memory.serving(start, rule.filter.end.min(memory.end()));
        if controllers.is_empty() {
            let cause = format!("no controller serves memory from {start:#x} to its end");
            return Err(refused("filter", cause).remedy("choose a range with memory"));
        }
        Ok(controllers)
    }

    /// A free telemetry number.
    fn free_number(&mut self) -> Result<usize> {
        if let Some(free) = self.slots.iter().position(|slot| slot.1.is_none()) {
            return Ok(free);
        }
        if self.slots.len() > usize::from(u16::MAX) {
            return Err(Error::new(ErrorKind::Missing, "no telemetry number is left"));
        }
        self.slots.push((0, None));
        Ok(self.slots.len() - 1)
    }

    /// Programs a telemetry's pipelines and registers it under a number.
    fn settle(&mut self, number: usize, telemetry: Telemetry) -> Result<RuleId> {
        let owner = telemetry.owner;
        let programmed = self.program(&telemetry);
        self.slots[number].1 = Some(telemetry);
        let id = RuleId(u32::from(self.slots[number].0) << 16 | number as u32);
        let done = programmed.and_then(|()| self.engine.check());
        done.map(|()| id).inspect_err(|_| drop(self.remove(owner, id)))
    }

    /// Allocates the cells of a layout, in all controllers or in none.
    fn take_cells(&mut self, layout: &Layout, controllers: &[usize]) -> Result<Vec<Cell>> {
        let geometry = self.engine.geometry();
        let short =
            |slab: &Slab| no_room(layout, slab.free_pipelines(), slab.free_banks(), geometry);
        let windows = layout.state_windows();
        let count = layout.pipelines();
        let before = self.slabs.clone();
        let mut cells = Vec::new();
        for controller in controllers {
            let slab = &mut self.slabs[*controller];
            let banks = |cell: u64| layout.banks_in(cell % windows) as usize;
            // Avoids lists longer than the available pipelines.
            let taken = (count <= slab.free_pipelines() as u64)
                .then(|| (0..count).map(banks).collect::<Vec<_>>())
                .and_then(|banks| slab.take(&banks, false));
            let Some(pieces) = taken else {
                let error = short(slab);
                self.slabs = before;
                return Err(error);
            };
            cells.resize(pieces.len(), Cell::new());
            for (cell, piece) in cells.iter_mut().zip(pieces) {
                cell.push((At { controller: *controller, pipeline: piece.pipeline }, piece));
            }
        }
        Ok(cells)
    }

    /// Programs all pipelines of a telemetry, up to the first that does not hold its program.
    fn program(&mut self, telemetry: &Telemetry) -> Result<()> {
        let windows = telemetry.layout.state_windows();
        for (number, cell) in telemetry.cells.iter().enumerate() {
            let (keys, states) = (number as u64 / windows, number as u64 % windows);
            for (which, (at, piece)) in cell.iter().enumerate() {
                let home = keys == 0 && which == 0;
                let program = self.program_of(telemetry, *piece, keys, states, home);
                self.check_registers(&Control::Program(Some(program)))?;
                self.write(*at, Control::Program(Some(program)));
            }
        }
        Ok(())
    }

    fn check_registers(&self, control: &Control) -> Result<()> {
        registers::check(control, &self.engine.geometry(), &self.engine.limits())
    }

    fn program_of(
        &self,
        telemetry: &Telemetry,
        piece: PipelineBanks,
        keys: u64,
        states: u64,
        home: bool,
    ) -> Program {
        let Telemetry { rule, layout, .. } = telemetry;
        let (cell, banks) = (layout.cell, self.banks_of(telemetry));
        let side = |start, effect| Side {
            start,
            effect,
            trigger: rule.share_of_trigger(start, banks, cell),
        };
        let away = side(rule.update.0.identity(cell), rule.effect_elsewhere(cell));
        let first = if home { side(rule.start(cell), rule.on_read) } else { away };
        Program {
            filter: rule.filter,
            key: rule.key,
            first_key: layout.key_windows[keys as usize],
            offset: rule.offset,
            select: telemetry.select,
            operator: rule.update.0,
            operand: rule.update.1,
            chain: telemetry.chain,
            cell,
            states: layout.states_in(states) as u32,
            first_bank: piece.first_bank as u16,
            banks: piece.banks as u16,
            home: first,
            away,
        }
    }

    fn remove(&mut self, owner: Owner, id: RuleId) -> Result<()> {
        self.of(owner, id)?;
        let slot = &mut self.slots[(id.0 & 0xffff) as usize];
        let telemetry = slot.1.take().expect("just found");
        slot.0 = slot.0.wrapping_add(1);
        for (at, piece) in telemetry.cells.into_iter().flatten() {
            // Clears states and entries, so that the next owner cannot read them.
            self.write(at, Control::Program(None));
            self.slabs[at.controller].give_back(piece);
        }
        telemetry.links.into_iter().try_for_each(|link| self.remove(owner, link))?;
        self.engine.check()
    }

    fn write(&mut self, at: At, control: Control) {
        self.work.writes += 1;
        self.engine.control(at, control);
    }
}

impl Telemetry {
    fn new(
        owner: Owner,
        rule: Rule,
        layout: Layout,
        keys: Vec<(u64, u64)>,
        cells: Vec<Cell>,
    ) -> Self {
        Self {
            owner,
            rule,
            layout,
            keys,
            cells,
            entries: BTreeMap::new(),
            select: Select::Table,
            chain: Chain::None,
            links: Vec::new(),
        }
    }
}

impl<E: Engine + BusObserver> BusObserver for Driver<E> {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.engine.observe(batch);
    }

    fn counters(&mut self) -> Option<&mut dyn Counters> {
        Some(self)
    }

    fn take_work(&mut self) -> RegisterWork {
        std::mem::take(&mut self.work)
    }
}

impl<E: Engine> Counters for Driver<E> {
    fn register(&mut self, rule: &Rule) -> Result<RuleId> {
        self.install(&Spec { cell: self.cell, ..Spec::from(*rule) })
    }

    fn register_states(&mut self, rule: &Rule, states: u64) -> Result<RuleId> {
        self.install(&Spec { cell: self.cell, states: Some(states), ..Spec::from(*rule) })
    }

    fn unregister(&mut self, rule: RuleId) -> Result<()> {
        self.uninstall(rule)
    }

    fn sees(&self) -> Vec<(u64, u64)> {
        self.engine.memory().zones().iter().map(|zone| (zone.start, zone.end)).collect()
    }

    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()> {
        self.translate_for(Owner::Host, rule, key, index)
    }

    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()> {
        self.read_for(Owner::Host, rule, out)
    }

    fn notifications(&mut self, out: &mut Vec<Notice>) {
        self.notices_for(Owner::Host, out);
    }
}
