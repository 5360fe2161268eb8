//! Base pages of huge pages, counted in turns: so many huge pages at a time.
//!
//! Source: Li et al., "Finding NEMO", section 5.2 and listing 1: seven pipelines have states for the base
//! pages of 112 huge pages; every 500 ms the next 112 of one of the two lists are watched, the active one
//! and the inactive one by turns. A sweep takes (active + inactive) / 112 turns.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tierscope_core::{
    Filter, Key, Operand, Operator, Orders, PlacementView, Range, ReadEffect, RequestKind, Rule,
    RuleId, RuleOrder,
};

/// Base pages of a huge page: as many states.
const SPAN: u32 = 512;
/// log2 of a huge page.
const HUGE: u8 = 21;
/// Entries of a translation table (NEMO, section 4).
const KEYS: u64 = 8192;

/// A rule over keys that one table holds.
#[derive(Clone, Debug, Default)]
struct Table {
    id: Option<RuleId>,
    /// Keys watched now, and the page of each; its states follow its number.
    watched: Vec<(u64, u32)>,
    /// The pages whose states were asked for.
    read: Vec<u32>,
}

/// Who is watched, and who was.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    /// Huge pages at a time.
    at_once: u32,
    /// By range of physical memory, and which table's worth of it.
    tables: BTreeMap<(usize, u64), Table>,
    /// Those that were registered and have no id yet, in order.
    asked: VecDeque<(usize, u64)>,
    /// The sweep over each list, and in which one a page was watched last.
    sweeps: [u32; 2],
    seen: HashMap<u32, u32>,
    /// Whose turn it is: the active list's, or the inactive one's.
    active: bool,
}

impl Turns {
    pub(super) fn new(at_once: u32) -> Self {
        Self {
            at_once,
            tables: BTreeMap::new(),
            asked: VecDeque::new(),
            sweeps: [1; 2],
            seen: HashMap::new(),
            active: true,
        }
    }

    /// Ends a turn: asks for what was counted, and lets go of whom it was counted for.
    pub(super) fn end(&mut self, orders: &mut Orders) {
        for table in self.tables.values_mut() {
            let Some(id) = table.id.filter(|_| !table.watched.is_empty()) else { continue };
            orders.rules.push(RuleOrder::Read(id, table.watched.len() as u32 * SPAN));
            table.read = table.watched.iter().map(|(_, page)| *page).collect();
            let gone = table.watched.drain(..);
            orders.rules.extend(gone.map(|(key, _)| RuleOrder::Translate(id, key, None)));
        }
    }

    /// Begins the next turn, on `lists`: the active huge pages and the inactive ones, each in order.
    /// Returns how many rules were registered for it; those are watched from their next turn on.
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
            let (at_once, asked) = (self.at_once, &mut self.asked);
            let table = self.tables.entry(key).or_insert_with(|| {
                let states = u64::from(at_once * SPAN);
                orders.rules.push(RuleOrder::Register(rule(filter), Some(states)));
                asked.push_back(key);
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

    /// The rule that was registered first of those without an id has this one.
    pub(super) fn named(&mut self, id: RuleId) {
        let Some(key) = self.asked.pop_front() else { return };
        if let Some(table) = self.tables.get_mut(&key) {
            table.id = Some(id);
        }
    }

    /// Whether a rule is one of these.
    pub(super) fn has(&self, id: RuleId) -> bool {
        self.tables.values().any(|table| table.id == Some(id))
    }

    /// Huge pages and the requests of their base pages, from what was read.
    pub(super) fn take<'a>(&mut self, id: RuleId, states: &'a [u64]) -> Vec<(u32, &'a [u64])> {
        let Some(table) = self.tables.values_mut().find(|table| table.id == Some(id)) else {
            return Vec::new();
        };
        let read = std::mem::take(&mut table.read);
        read.into_iter().zip(states.chunks_exact(SPAN as usize)).collect()
    }
}

/// The range of physical memory that holds a frame, its first key, and the filter of its rule.
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

/// Listing 1.
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
