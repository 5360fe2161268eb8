//! Memory requests counted in the memory controller, by blocks of 2 MiB, as a replacement of
//! samples.
//!
//! Source: Li et al., "Finding NEMO: Nimble and Expressive Memory Observability", listing 2 and
//! section 5.1: a counter for each block, reset by reads; counts are divided by the period of the
//! sampling that they replace, so that they are comparable with samples.
//!
//! A rule covers the keys of one pipeline's translation table: 8,192 adjacent blocks of physical
//! memory, each of which selects the state of its own number. A rule is registered when the first
//! of its blocks is watched.

use std::collections::{BTreeMap, VecDeque};

use tierscope_core::{
    Filter, Key, Operand, Operator, Orders, PlacementView, ReadEffect, RequestKind, Rule, RuleId,
    RuleOrder,
};

use crate::blocks::BLOCK;

/// Number of entries of a translation table, and of states (NEMO, section 4).
const STATES: u64 = 8192;

/// The 8,192 blocks of one rule: index of the physical memory range, and number of the table in it.
type Window = (usize, u64);

/// Counter of a watched block of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterAddress {
    window: Window,
    key: u64,
    state: u32,
}

/// A telemetry rule and its translation table.
#[derive(Clone, Debug, Default)]
struct Table {
    /// Id of the rule; `None` until it is registered.
    id: Option<RuleId>,
    states: u32,
    /// Watched blocks by state number.
    blocks: BTreeMap<u32, u32>,
}

/// The telemetry counters of a policy's blocks.
#[derive(Clone, Debug)]
pub(crate) struct BlockCounters {
    /// Sampling period: one in `every` requests is counted.
    every: u64,
    tables: BTreeMap<Window, Table>,
    /// Rules that await their id, in the order of registration.
    registering: VecDeque<Window>,
    places: BTreeMap<u32, CounterAddress>,
    /// Remainder of each block's requests since the last one counted.
    rests: BTreeMap<u32, u64>,
}

impl BlockCounters {
    /// Counts one in `every` requests.
    pub(crate) fn new(every: u64) -> Self {
        Self {
            every: every.max(1),
            tables: BTreeMap::new(),
            registering: VecDeque::new(),
            places: BTreeMap::new(),
            rests: BTreeMap::new(),
        }
    }

    /// Number of rules that await their id.
    pub(crate) fn registering(&self) -> usize {
        self.registering.len()
    }

    /// Blocks that are watched.
    pub(crate) fn watched(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.keys().copied()
    }

    /// Whether a block is watched.
    pub(crate) fn watches(&self, block: u32) -> bool {
        self.places.contains_key(&block)
    }

    /// Watches a block at physical address `frame`. Returns whether orders were needed; not if it
    /// is watched there already.
    pub(crate) fn watch(
        &mut self,
        block: u32,
        frame: u64,
        view: &dyn PlacementView,
        orders: &mut Orders,
    ) -> bool {
        let Some((place, filter)) = locate(frame, view) else { return false };
        if self.places.get(&block) == Some(&place) {
            return false;
        }
        self.forget(block, orders);
        self.places.insert(block, place);
        let CounterAddress { window, key, state } = place;
        let registering = &mut self.registering;
        let table = self.tables.entry(window).or_insert_with(|| {
            let states = (filter.end - filter.start).div_ceil(BLOCK);
            orders.rules.push(RuleOrder::Register(rule(filter), Some(states)));
            registering.push_back(window);
            Table { states: states as u32, ..Table::default() }
        });
        table.blocks.insert(state, block);
        if let Some(id) = table.id {
            orders.rules.push(RuleOrder::Translate(id, key, Some(state)));
        }
        true
    }

    /// Stops watching a block.
    pub(crate) fn forget(&mut self, block: u32, orders: &mut Orders) {
        self.rests.remove(&block);
        let Some(CounterAddress { window, key, state }) = self.places.remove(&block) else {
            return;
        };
        let Some(table) = self.tables.get_mut(&window) else { return };
        // By now, the counter may belong to another block at that address.
        if table.blocks.get(&state) == Some(&block) {
            table.blocks.remove(&state);
            if let Some(id) = table.id {
                orders.rules.push(RuleOrder::Translate(id, key, None));
            }
        }
    }

    /// Orders a read of all counters.
    pub(crate) fn ask(&self, orders: &mut Orders) {
        let known = self.tables.values().filter_map(|table| Some((table.id?, table.states)));
        orders.rules.extend(known.map(|(id, states)| RuleOrder::Read(id, states)));
    }

    /// Takes a reply: the id of a newly registered rule, whose blocks are then translated, or
    /// counts. Returns blocks, and the number of samples to which their requests amount.
    pub(crate) fn take(
        &mut self,
        id: RuleId,
        states: &[u64],
        orders: &mut Orders,
    ) -> Vec<(u32, u32)> {
        if states.is_empty() {
            self.named(id, orders);
            return Vec::new();
        }
        let found = self.tables.values().find(|table| table.id == Some(id));
        let Some(table) = found else { return Vec::new() };
        let (every, rests) = (self.every, &mut self.rests);
        let counts = table.blocks.iter().filter_map(|(state, block)| {
            let requests = states.get(*state as usize).copied().filter(|count| *count > 0)?;
            let rest = rests.entry(*block).or_default();
            let all = *rest + requests;
            *rest = all % every;
            let samples = u32::try_from(all / every).unwrap_or(u32::MAX);
            (samples > 0).then_some((*block, samples))
        });
        counts.collect()
    }

    /// Assigns an id to the oldest rule that awaits one, and translates its blocks.
    fn named(&mut self, id: RuleId, orders: &mut Orders) {
        let Some(window) = self.registering.pop_front() else { return };
        let Some(table) = self.tables.get_mut(&window) else { return };
        table.id = Some(id);
        for state in table.blocks.keys() {
            let key = self.places.get(&table.blocks[state]).map(|place| place.key);
            if let Some(key) = key {
                orders.rules.push(RuleOrder::Translate(id, key, Some(*state)));
            }
        }
    }
}

/// Counter of a physical address, and the filter of its rule; `None` outside of known memory.
fn locate(frame: u64, view: &dyn PlacementView) -> Option<(CounterAddress, Filter)> {
    let (number, (start, end)) = view
        .physical()
        .into_iter()
        .enumerate()
        .find(|(_, (start, end))| (*start..*end).contains(&frame))?;
    let first = start / BLOCK;
    let key = frame / BLOCK;
    let table = (key - first) / STATES;
    let from = (first + table * STATES) * BLOCK;
    let filter = Filter {
        kind: RequestKind::All,
        start: from.max(start),
        end: end.min(from + STATES * BLOCK),
    };
    let state = (key - first - table * STATES) as u32;
    Some((CounterAddress { window: (number, table), key, state }, filter))
}

/// Makes the counting rule of the NEMO paper's listing 2.
fn rule(filter: Filter) -> Rule {
    Rule {
        filter,
        key: Key { mask: Key::ALL_MEMORY, shift: BLOCK.trailing_zeros() as u8 },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{PageId, Range, Tier, TierUse};

    /// Physical memory: 20 GiB at 0, and 16 GiB at 1 TiB.
    struct View;

    impl PlacementView for View {
        fn tiers(&self) -> &[TierUse] {
            &[]
        }

        fn tier_of(&self, _: PageId) -> Option<Tier> {
            None
        }

        fn page_at(&self, _: &Range) -> Option<PageId> {
            None
        }

        fn range_of(&self, _: PageId) -> Option<Range> {
            None
        }

        fn physical(&self) -> Vec<(u64, u64)> {
            vec![(0, 20 << 30), (1 << 40, (1 << 40) + (16 << 30))]
        }

        fn resident(&self, _: &Range, _: Tier) -> u64 {
            0
        }
    }

    // Block 7 is at 2 MiB, block 8 at 18 GiB and so in another table; one in ten requests is
    // counted.
    #[test]
    fn counts_are_scaled_and_nothing_is_forgotten_between() {
        let (mut counted, mut orders) = (BlockCounters::new(10), Orders::default());
        assert!(counted.watch(7, BLOCK, &View, &mut orders));
        assert!(!counted.watch(7, BLOCK, &View, &mut orders), "it is watched already");
        assert!(counted.watch(8, 18 << 30, &View, &mut orders));
        let [RuleOrder::Register(first, Some(8192)), RuleOrder::Register(second, Some(2048))] =
            orders.rules[..]
        else {
            panic!("{:?}", orders.rules)
        };
        assert_eq!((first.filter.end, second.filter.end), (16 << 30, 20 << 30));
        orders.clear();
        assert_eq!(counted.take(RuleId(3), &[], &mut orders), []);
        assert_eq!(orders.rules, [RuleOrder::Translate(RuleId(3), 1, Some(1))]);
        counted.take(RuleId(4), &[], &mut orders);
        assert_eq!(orders.rules[1], RuleOrder::Translate(RuleId(4), 9216, Some(1024)));
        orders.clear();
        counted.ask(&mut orders);
        let reads = [RuleOrder::Read(RuleId(3), 8192), RuleOrder::Read(RuleId(4), 2048)];
        assert_eq!(orders.rules, reads);
        assert_eq!(counted.take(RuleId(3), &[99, 25, 99], &mut orders), [(7, 2)]);
        assert_eq!(counted.take(RuleId(3), &[0, 5], &mut orders), [(7, 1)], "5 were left");
    }

    #[test]
    fn moving_bytes_count_in_the_target_tier() {
        let (mut counted, mut orders) = (BlockCounters::new(1), Orders::default());
        counted.watch(7, BLOCK, &View, &mut orders);
        counted.take(RuleId(0), &[], &mut orders);
        orders.clear();
        counted.watch(7, 1 << 40, &View, &mut orders);
        assert_eq!(orders.rules[0], RuleOrder::Translate(RuleId(0), 1, None));
        assert!(matches!(orders.rules[1], RuleOrder::Register(..)));
        counted.take(RuleId(1), &[], &mut orders);
        assert_eq!(orders.rules[2], RuleOrder::Translate(RuleId(1), 1 << 19, Some(0)));
        counted.forget(7, &mut orders);
        assert_eq!(orders.rules[3], RuleOrder::Translate(RuleId(1), 1 << 19, None));
        assert!(!counted.watches(7) && !counted.watch(9, 1 << 30 << 9, &View, &mut orders));
    }
}
