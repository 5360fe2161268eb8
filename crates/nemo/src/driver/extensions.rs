//! Extensions of the prototype (NEMO, section 6.3): pipelines selected by a hash, and chained
//! pipelines.

use tierscope_core::{Key, Result, RuleId, RuleLimits};

use super::spec::{Layout, Spec, keys_of, no_room, refused};
use super::{Cell, Driver, Owner, Telemetry};
use crate::engine::{At, Engine};
use crate::geometry::states_per_pipeline;
use crate::program::{Chain, Select};

/// A validated link of a chain.
struct Link {
    spec: Spec,
    chain: Chain,
    layout: Layout,
    keys: Vec<(u64, u64)>,
}

impl<E: Engine> Driver<E> {
    /// Installs a telemetry whose keys select one of `2^bits` states by multiply-shift hashing.
    ///
    /// # Errors
    /// The invalid field; or a lack of pipelines or banks.
    pub fn install_hashed(&mut self, spec: &Spec, multiplier: u64, bits: u32) -> Result<RuleId> {
        let limits = RuleLimits { end: self.engine.memory().end(), cell: spec.cell };
        spec.rule.check(&limits)?;
        if spec.rule.offset != Key::NONE {
            return Err(refused("offset", "a hash selects the state itself"));
        }
        if multiplier & 1 == 0 {
            let cause = format!("{multiplier:#x} is even: half of the states would stay empty");
            return Err(refused("multiplier", cause));
        }
        let most = states_per_pipeline(spec.cell);
        if bits == 0 || bits > 16 || 1 << bits > most {
            let cause = format!("2^{bits} states are none, or more than a pipeline's {most}");
            return Err(refused("bits", cause));
        }
        let sized = Spec { states: Some(1 << bits), ..*spec };
        let layout = Layout::new(&sized, &[(0, 0)])?;
        let number = self.free_number()?;
        let controllers = self.serving(&spec.rule)?;
        let cells = self.take_cells(&layout, &controllers)?;
        let select = Select::Hash { multiplier, bits };
        let plain = Telemetry::new(Owner::Host, spec.rule, layout, vec![(0, 0)], cells);
        self.settle(number, Telemetry { select, ..plain })
    }

    /// Installs telemetries of one pipeline each; every one but the first takes its operand from
    /// its predecessor, and sees only the requests that the predecessor counted. Removing the first
    /// one removes all.
    ///
    /// # Errors
    /// The invalid field; or a lack of pipelines or banks.
    pub fn install_chain(&mut self, first: &Spec, links: &[(Spec, Chain)]) -> Result<Vec<RuleId>> {
        let mut plans = vec![self.link(first, Chain::None)?];
        for (spec, chain) in links {
            if *chain == Chain::None {
                return Err(refused("chain", "a link takes something from the one before"));
            }
            plans.push(self.link(spec, *chain)?);
        }
        let cells = self.take_chain(&plans)?;
        let mut ids: Vec<RuleId> = Vec::new();
        // Last to first: no link may see requests that its predecessor does not pass on.
        let mut rest = plans.into_iter().zip(cells).rev();
        while let Some((Link { spec, chain, layout, keys }, cell)) = rest.next() {
            let number = self.free_number()?;
            let plain = Telemetry::new(Owner::Host, spec.rule, layout, keys, vec![cell]);
            let links = if chain == Chain::None { ids.clone() } else { Vec::new() };
            match self.settle(number, Telemetry { chain, links, ..plain }) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    for (at, piece) in rest.flat_map(|(_, cell)| cell) {
                        self.slabs[at.controller].give_back(piece);
                    }
                    ids.into_iter().for_each(|id| drop(self.remove(Owner::Host, id)));
                    return Err(error);
                }
            }
        }
        ids.reverse();
        Ok(ids)
    }

    fn link(&self, spec: &Spec, chain: Chain) -> Result<Link> {
        let limits = RuleLimits { end: self.engine.memory().end(), cell: spec.cell };
        spec.rule.check(&limits)?;
        let end = spec.rule.filter.end.min(limits.end);
        let keys = vec![keys_of(spec.rule.key, spec.rule.filter.start, end, &limits)];
        let layout = Layout::new(spec, &keys)?;
        if layout.pipelines() != 1 {
            let cause = format!("it takes {} pipelines: a link is one", layout.pipelines());
            return Err(
                refused("chain", cause).remedy("choose fewer states or keys, or a smaller filter")
            );
        }
        Ok(Link { spec: *spec, chain, layout, keys })
    }

    /// Allocates adjacent pipelines in every controller: one cell for each link.
    fn take_chain(&mut self, plans: &[Link]) -> Result<Vec<Cell>> {
        let geometry = self.engine.geometry();
        let banks: Vec<usize> = plans.iter().map(|plan| plan.layout.banks_in(0) as usize).collect();
        let before = self.slabs.clone();
        let mut cells = vec![Cell::new(); plans.len()];
        for controller in self.serving(&plans[0].spec.rule)? {
            let slab = &mut self.slabs[controller];
            let Some(pieces) = slab.take(&banks, true) else {
                let (pipelines, free) = (slab.free_pipelines(), slab.free_banks());
                self.slabs = before;
                return Err(no_room(&plans[0].layout, pipelines, free, geometry).cause(format!(
                    "a chain takes {} pipelines in a row with {} banks; {pipelines} pipelines, not \
                     all in a row, and {free} banks are free",
                    plans.len(),
                    banks.iter().sum::<usize>(),
                )));
            };
            for (cell, piece) in cells.iter_mut().zip(pieces) {
                cell.push((At { controller, pipeline: piece.pipeline }, piece));
            }
        }
        Ok(cells)
    }
}
