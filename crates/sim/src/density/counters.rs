//! Counters in the memory controller, computed from the densities.
//!
//! The count of a rule in a region of physical memory is a Poisson count of the requests that pass
//! the caches: lines read, prefetched ones included, and lines written back (`hits.rs`). Matching
//! of rules, software's register accesses and their cost are left to the controllers themselves
//! ([`Machine::with_telemetry`]), whose bus carries no records.
//!
//! Physical addresses are synthetic: each tier has an address space of its own, with the layout of
//! the target's memory. Pages that move between tiers while they are counted are counted by their
//! tier at the time of the query.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tierscope_core::{
    BusObserver, Counters, Error, ErrorKind, FrameRun, Frames, Key, Level, Missing, Notice,
    Operand, Operator, PAGE_SHIFT, Range, Result, Rule, RuleId, Tier,
};

use super::hash::{Poisson, draw};
use super::hits::Hits;
use super::machine::Machine;
use super::space::SPACE;

/// log2 of the distance between the tiers' physical addresses.
const TIER_SHIFT: u32 = 44;

/// The controllers, and the rules registered with them.
pub(super) struct Telemetry {
    controllers: Box<dyn BusObserver>,
    /// Physical memory that the controllers serve.
    sees: Vec<(u64, u64)>,
    rules: BTreeMap<RuleId, Counting>,
    key: u64,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Telemetry {
    /// The controllers' counters; their presence was checked on attachment.
    fn counters(&mut self) -> &mut dyn Counters {
        self.controllers.counters().expect("rules were checked when they were attached")
    }
}

/// A rule and its counts.
#[derive(Clone, Debug)]
struct Counting {
    rule: Rule,
    /// By key: the first state, and the time up to which its requests are in the sums.
    entries: BTreeMap<u64, (u32, u64)>,
    sums: HashMap<u32, u64>,
}

impl Machine {
    /// Attaches controllers that observe the memory of [`Machine::physical`].
    ///
    /// # Errors
    /// They have no counters, or the memory spans too many addresses.
    pub fn with_telemetry(mut self, mut controllers: Box<dyn BusObserver>) -> Result<Self> {
        let Some(counters) = controllers.counters() else {
            return Err(Error::new(ErrorKind::Usage, "what listens there has no counters"));
        };
        let sees = counters.sees();
        if self.physical().iter().any(|(start, end)| end - start > 1 << TIER_SHIFT) {
            return Err(Error::new(ErrorKind::Missing, "this memory cannot be counted")
                .cause("its addresses span more than 16 TiB")
                .remedy("make the workload smaller"));
        }
        let key = draw(self.config.seed, u64::from(u32::MAX) + 1);
        self.telemetry = Some(Telemetry { controllers, sees, rules: BTreeMap::new(), key });
        Ok(self)
    }

    /// The physical addresses of each tier, the fastest first.
    #[must_use]
    pub fn physical(&self) -> Vec<(u64, u64)> {
        let last = self.world.mappings.mappings.iter().map(|mapping| mapping.range.end).max();
        let bytes = last.unwrap_or(0).next_multiple_of(Level::PMD.entry_bytes()) - self.origin();
        let tiers = self.config.hardware.tiers.len() as u64;
        (0..tiers).map(|tier| (tier << TIER_SHIFT, (tier << TIER_SHIFT) + bytes)).collect()
    }

    /// The linear address that maps to the beginning of each tier's physical addresses.
    fn origin(&self) -> u64 {
        self.config.first & !(Level::PMD.entry_bytes() - 1)
    }

    /// The physical address of an address in a tier.
    pub(super) fn frame(&self, at: u64, tier: Tier) -> u64 {
        (u64::from(tier.0) << TIER_SHIFT) + (at - self.origin())
    }

    /// Expected number of requests within `from..to` to physical memory `start..end` in one tier.
    fn expected(
        &mut self,
        each: impl Fn(&Hits) -> f64,
        start: u64,
        end: u64,
        times: (u64, u64),
    ) -> f64 {
        let (tier, at) = ((start >> TIER_SHIFT) as usize, start & ((1 << TIER_SHIFT) - 1));
        let at = at + self.origin();
        let range = Range::new(SPACE, at, at + (end - start));
        let pages = self.world.places.pages(&range);
        let (here, all) = (pages.get(tier).copied().unwrap_or(0), pages.iter().sum::<u64>());
        if here == 0 {
            return 0.0;
        }
        let mut sum = 0.0;
        let _ = self.world.profiles(times, |profile, (from, to)| {
            for stream in profile.overlapping(range) {
                let part = stream.range.intersect(&range).map_or(0, |part| part.bytes());
                let lines = stream.rate * each(&stream.hits_of) * (to - from) as f64 / 1e9;
                sum += lines * part as f64 / stream.range.bytes() as f64;
            }
            std::ops::ControlFlow::Continue(())
        });
        sum * here as f64 / all as f64
    }

    /// Adds the requests up to now to a key of a rule.
    fn settle_entry(&mut self, telemetry: &mut Telemetry, id: RuleId, key: u64) {
        let now = self.now.0;
        let Some(counting) = telemetry.rules.get_mut(&id) else { return };
        let rule = counting.rule;
        let Some((base, since)) = counting.entries.get_mut(&key) else { return };
        let (base, from) = (*base, std::mem::replace(since, now));
        let Operand::Constant(step) = rule.update.1 else { return };
        let region = 1u64 << rule.key.shift;
        let spans = rule.states_per_key();
        for state in 0..spans {
            let size = region / spans;
            let start = (key * region + state * size).max(rule.filter.start);
            let end = (key * region + (state + 1) * size).min(rule.filter.end);
            if start >= end || from >= now {
                continue;
            }
            let of = |hits: &Hits| match rule.filter.kind {
                tierscope_core::RequestKind::Read => hits.reads,
                tierscope_core::RequestKind::Write => hits.writebacks,
                tierscope_core::RequestKind::All => hits.reads + hits.writebacks,
            };
            let mean = self.expected(of, start, end, (from, now));
            let count = Poisson::of_many(mean)(draw(draw(telemetry.key, start), from));
            if count > 0 {
                *counting.sums.entry(base + state as u32).or_default() += count * step;
            }
        }
    }

    fn settle_rule(&mut self, telemetry: &mut Telemetry, id: RuleId) {
        let keys: Vec<u64> = match telemetry.rules.get(&id) {
            Some(counting) => counting.entries.keys().copied().collect(),
            None => Vec::new(),
        };
        keys.into_iter().for_each(|key| self.settle_entry(telemetry, id, key));
    }

    /// Charges the accesses to telemetry registers that software made since the last call.
    pub(super) fn charge_registers(&mut self) {
        let done = match (&mut self.telemetry, &mut self.monitors) {
            (Some(telemetry), _) => telemetry.controllers.take_work(),
            (None, Some(monitors)) => monitors.take_work(),
            (None, None) => return,
        };
        self.ledger.registers.add(&done);
        let time = self.config.costs.registers.time(&done);
        if time > 0 {
            self.spend(time);
        }
    }

    /// Whether there are counters.
    ///
    /// # Errors
    /// None are attached.
    pub(super) fn check_telemetry(&self) -> Result<(), Missing> {
        match self.telemetry {
            Some(_) => Ok(()),
            None => Err(Missing {
                port: "counters",
                cause: "no telemetry was attached to this machine's memory".into(),
                remedy: "attach some, as `nemo` does".into(),
            }),
        }
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Self, &mut Telemetry) -> Result<R>) -> Result<R> {
        self.check_telemetry()?;
        let mut telemetry = self.telemetry.take().expect("just found");
        let result = act(self, &mut telemetry);
        self.telemetry = Some(telemetry);
        result
    }
}

/// Whether densities can determine the counts of a rule: requests of regions, distinguished by
/// address alone.
fn check(rule: &Rule) -> Result<()> {
    let refuse = |field: &str, cause: &str| {
        Err(Error::new(ErrorKind::Missing, format!("telemetry refused at `{field}`"))
            .cause(format!("a machine of densities {cause}"))
            .remedy("simulate it exactly"))
    };
    if rule.key.mask != Key::ALL_MEMORY {
        return refuse("key.mask", "counts whole regions only");
    }
    let region = 1u64 << rule.key.shift;
    if rule.offset.mask != 0 && rule.offset.mask != region - 1 {
        return refuse("offset.mask", "divides regions evenly or not at all");
    }
    if rule.update.0 != Operator::Add || !matches!(rule.update.1, Operand::Constant(_)) {
        return refuse("update", "adds a constant for each request, independent of its fields");
    }
    if rule.notify.is_some() {
        return refuse("notify", "reads counters on request only");
    }
    Ok(())
}

impl Counters for Machine {
    fn register(&mut self, rule: &Rule) -> Result<RuleId> {
        self.add(rule, |counters| counters.register(rule))
    }

    fn register_states(&mut self, rule: &Rule, states: u64) -> Result<RuleId> {
        self.add(rule, |counters| counters.register_states(rule, states))
    }

    fn unregister(&mut self, rule: RuleId) -> Result<()> {
        self.with(|_, telemetry| {
            telemetry.counters().unregister(rule)?;
            telemetry.rules.remove(&rule);
            Ok(())
        })
    }

    fn sees(&self) -> Vec<(u64, u64)> {
        self.telemetry.as_ref().map_or(Vec::new(), |telemetry| telemetry.sees.clone())
    }

    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()> {
        self.with(|machine, telemetry| {
            telemetry.counters().translate(rule, key, index)?;
            machine.settle_entry(telemetry, rule, key);
            let now = machine.now.0;
            if let Some(counting) = telemetry.rules.get_mut(&rule) {
                match index {
                    Some(index) => counting.entries.insert(key, (index, now)),
                    None => counting.entries.remove(&key),
                };
            }
            Ok(())
        })
    }

    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()> {
        self.with(|machine, telemetry| {
            // The start values and the register work are the controllers'.
            telemetry.counters().read(rule, out)?;
            machine.settle_rule(telemetry, rule);
            let Some(counting) = telemetry.rules.get_mut(&rule) else { return Ok(()) };
            for (state, out) in (0..).zip(out) {
                let Some(sum) = counting.sums.get(&state) else { continue };
                let value = out.wrapping_add(*sum);
                let after = counting.rule.on_read.after(value, tierscope_core::Cell::WORD);
                counting.sums.insert(state, after.wrapping_sub(*out));
                *out = value;
            }
            counting.sums.retain(|_, sum| *sum > 0);
            Ok(())
        })
    }

    fn notifications(&mut self, _: &mut Vec<Notice>) {}
}

impl Machine {
    fn add(
        &mut self,
        rule: &Rule,
        register: impl FnOnce(&mut dyn Counters) -> Result<RuleId>,
    ) -> Result<RuleId> {
        check(rule)?;
        self.with(|_, telemetry| {
            let id = register(telemetry.counters())?;
            let (entries, sums) = (BTreeMap::new(), HashMap::new());
            telemetry.rules.insert(id, Counting { rule: *rule, entries, sums });
            Ok(id)
        })
    }
}

/// Costs as much as a scan of the same number of entries, one for each page.
impl Frames for Machine {
    fn locate(&mut self, range: &Range, out: &mut Vec<FrameRun>) -> Result<()> {
        if range.space != SPACE {
            return Ok(());
        }
        let mut pages = 0;
        let runs = self.world.places.runs((range.start >> PAGE_SHIFT, range.end >> PAGE_SHIFT));
        for (from, to, rule) in runs {
            pages += to - from;
            let framed = |from: u64, to: u64, tier: Tier| {
                let range = Range::new(SPACE, from << PAGE_SHIFT, to << PAGE_SHIFT);
                FrameRun { range, frame: self.frame(range.start, tier) }
            };
            match rule[..] {
                [tier] => framed(from, to, tier).append_to(out),
                _ => (from..to).for_each(|page| {
                    let tier = rule[(page % rule.len() as u64) as usize];
                    framed(page, page + 1, tier).append_to(out);
                }),
            }
        }
        let entries = if self.config.huge { pages.div_ceil(Level::FANOUT) } else { pages };
        let costs = &self.config.costs.access_bits;
        self.spend(costs.call_ns + entries * costs.entry_ns);
        Ok(())
    }
}
