//! Base-page counters, rotated over the huge pages: `at-once` huge pages are counted per interval.
//!
//! Source: Li et al., "Finding NEMO", section 5.2 and listing 1: seven pipelines have states for
//! the base pages of 112 huge pages; every 500 ms the next 112 of one of the two lists are watched,
//! alternating between the active and the inactive list. A sweep takes (active + inactive) / 112
//! intervals.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tierscope_core::{
    Filter, Key, Operand, Operator, Orders, PlacementView, Range, ReadEffect, RequestKind, Rule,
    RuleId, RuleOrder,
};

/// Base pages of a huge page, with one state each.
const SPAN: u32 = 512;
/// log2 of the bytes of a huge page.
const HUGE: u8 = 21;
/// Entries of a translation table (NEMO, section 4).
const KEYS: u64 = 8192;

/// A telemetry rule over the keys of one translation table.
#[derive(Clone, Debug, Default)]
struct Table {
    id: Option<RuleId>,
    /// Keys watched now, with the huge page of each; its index gives its states.
    watched: Vec<(u64, u32)>,
    /// Huge pages whose counters are being read.
    read: Vec<u32>,
}

/// Counters of the current interval, and the progress of the sweeps.
#[derive(Clone, Debug)]
pub(super) struct BaseCounters {
    /// Number of huge pages counted per interval.
    at_once: u32,
    /// Counter tables of huge pages, by index of the physical memory range and number of the
    /// table in it.
    tables: BTreeMap<(usize, u64), Table>,
    /// Tables whose rules await their id, in the order of registration.
    registering: VecDeque<(usize, u64)>,
    /// Number of the current sweep over each list; and in `seen`, the sweep in which a page was
    /// watched last.
    sweeps: [u32; 2],
    seen: HashMap<u32, u32>,
    /// Whether the next counting interval is for the active list.
    active: bool,
}

impl BaseCounters {
    pub(super) fn new(at_once: u32) -> Self {
        Self {
            at_once,
            tables: BTreeMap::new(),
            registering: VecDeque::new(),
            sweeps: [1; 2],
            seen: HashMap::new(),
            active: true,
        }
    }

    /// Ends an interval: orders reads of its counters, and releases their keys.
    pub(super) fn end(&mut self, orders: &mut Orders) {
        for table in self.tables.values_mut() {
            let Some(id) = table.id.filter(|_| !table.watched.is_empty()) else { continue };
            orders.rules.push(RuleOrder::Read(id, table.watched.len() as u32 * SPAN));
            table.read = table.watched.iter().map(|(_, page)| *page).collect();
            let gone = table.watched.drain(..);
            orders.rules.extend(gone.map(|(key, _)| RuleOrder::Translate(id, key, None)));
        }
    }

    /// Begins the next interval. `lists` has the active huge pages and the inactive ones, each in
    /// order. Returns the number of rules registered; their pages are watched only in a later
    /// interval.
    pub(super) fn begin(
        &mut self,
        lists: [Vec<(u32, Range)>; 2],
        view: &dyn PlacementView,
        orders: &mut Orders,
    ) -> usize {
        let list = &lists[usize::from(!self.active)];
        let sweep = &mut self.sweeps[usize::from(!self.active)];
        self.active = !self.active;
        let seen = &self.seen;
        let fresh = |sweep: u32| {
            list.iter().filter(move |(page, _)| seen.get(page).is_none_or(|last| *last < sweep))
        };
        if fresh(*sweep).next().is_none() {
            *sweep += 1;
        }
        let sweep = *sweep;
        let next: Vec<(u32, Range)> = fresh(sweep).take(self.at_once as usize).copied().collect();
        let mut registered = 0;
        for (page, range) in next {
            let Some((number, first, filter)) =
                view.frame_of(&range).and_then(|frame| window(frame, view))
            else {
                continue;
            };
            let frame = view.frame_of(&range).unwrap_or(0);
            let key = (number, (frame >> HUGE).saturating_sub(first) / KEYS);
            let (at_once, registering) = (self.at_once, &mut self.registering);
            let table = self.tables.entry(key).or_insert_with(|| {
                let states = u64::from(at_once * SPAN);
                orders.rules.push(RuleOrder::Register(rule(filter), Some(states)));
                registering.push_back(key);
                registered += 1;
                Table::default()
            });
            let Some(id) = table.id else { continue };
            let slot = table.watched.len() as u32;
            table.watched.push((frame >> HUGE, page));
            self.seen.insert(page, sweep);
            orders.rules.push(RuleOrder::Translate(id, frame >> HUGE, Some(slot * SPAN)));
        }
        registered
    }

    /// Assigns an id to the oldest rule that awaits one.
    pub(super) fn named(&mut self, id: RuleId) {
        let Some(key) = self.registering.pop_front() else { return };
        if let Some(table) = self.tables.get_mut(&key) {
            table.id = Some(id);
        }
    }

    /// Whether a rule belongs to these counters.
    pub(super) fn has(&self, id: RuleId) -> bool {
        self.tables.values().any(|table| table.id == Some(id))
    }

    /// The huge pages of a counter read, with the requests to each of their base pages.
    pub(super) fn take<'a>(&mut self, id: RuleId, states: &'a [u64]) -> Vec<(u32, &'a [u64])> {
        let Some(table) = self.tables.values_mut().find(|table| table.id == Some(id)) else {
            return Vec::new();
        };
        let read = std::mem::take(&mut table.read);
        read.into_iter().zip(states.chunks_exact(SPAN as usize)).collect()
    }
}

/// Index of the physical memory range that contains a frame, the first key of the range, and the
/// filter of the frame's rule.
fn window(frame: u64, view: &dyn PlacementView) -> Option<(usize, u64, Filter)> {
    let mut ranges = view.physical().into_iter().enumerate();
    let (number, (start, end)) =
        ranges.find(|(_, (start, end))| (*start..*end).contains(&frame))?;
    let first = start >> HUGE;
    let table = ((frame >> HUGE) - first) / KEYS;
    let from = (first + table * KEYS) << HUGE;
    let filter = Filter {
        kind: RequestKind::All,
        start: from.max(start),
        end: end.min(from + (KEYS << HUGE)),
    };
    Some((number, first, filter))
}

/// Makes the counting rule of the NEMO paper's listing 1.
fn rule(filter: Filter) -> Rule {
    Rule {
        filter,
        key: Key { mask: Key::ALL_MEMORY, shift: HUGE },
        offset: Key { mask: (1 << HUGE) - 1, shift: 12 },
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    }
}
