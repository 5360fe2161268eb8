//! Test harness of small traces that can be followed by hand: some pages of 4 KiB, touched at half
//! past every second.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tierscope_conformance::policy::run;
use tierscope_conformance::tiers::{Size, Tiered, Trouble};
use tierscope_core::{
    ActionKind, Addr, PAGE_SIZE, PageEventKind, PageId, PlacementView, Policy, Range, SpaceId,
    Tier, Time,
};

/// Pages touched in each second.
type Script = Rc<RefCell<Vec<Vec<u32>>>>;

/// Address of the first page.
const START: u64 = 1 << 30;

/// A policy under test, on a small machine of tiers.
pub(crate) struct Trace<P> {
    pub(crate) policy: P,
    pub(crate) machine: Tiered,
    script: Script,
    seconds: u64,
    pages: u32,
}

/// Address range of some pages.
pub(crate) fn range(first: u32, pages: u32) -> Range {
    let start = START + u64::from(first) * PAGE_SIZE;
    Range::new(SpaceId(0), start, start + u64::from(pages) * PAGE_SIZE)
}

impl<P: Policy> Trace<P> {
    /// A machine with tiers of the given sizes in pages, without watermarks; `pages` pages are
    /// allocated, the fastest tier first.
    pub(crate) fn new<const N: usize>(policy: P, tiers: [u64; N], pages: u32) -> Self {
        let sizes = tiers.map(Size::without_marks);
        Self::with(policy, &sizes, pages, false)
    }

    /// The same machine as by `new`, but with watermarks and optionally with huge pages.
    pub(crate) fn with(policy: P, sizes: &[Size], pages: u32, huge: bool) -> Self {
        let script = Script::default();
        let read = Rc::clone(&script);
        let workload = Box::new(move |from: Time, to: Time, touch: &mut dyn FnMut(Addr)| {
            for (second, pages) in (0u64..).zip(&*read.borrow()) {
                let at = Time(second * 1_000_000_000 + 500_000_000);
                if from <= at && at < to {
                    pages.iter().for_each(|page| touch(range(*page, 1).at(7)));
                }
            }
        });
        let mut machine = Tiered::new(sizes, &[range(0, pages)], huge, workload);
        machine.fill(&range(0, pages));
        Self { policy, machine, script, seconds: 0, pages }
    }

    /// Runs the machine for some seconds; `touched` returns the pages touched in each.
    pub(crate) fn seconds(&mut self, seconds: u64, touched: impl Fn(u64) -> Vec<u32>) {
        for second in self.seconds..self.seconds + seconds {
            self.script.borrow_mut().push(touched(second));
        }
        self.seconds += seconds;
        let until = self.seconds as f64 + 0.1;
        run(&mut self.machine, &mut self.policy, Trouble::default(), until);
        let faults = self.machine.faults();
        assert!(faults.is_empty(), "{faults:?}");
    }

    /// Tiers of all resident pages, in the form `page:tier`.
    pub(crate) fn places(&self) -> String {
        let place = |page: u32| {
            let tier = self.machine.tier_of(PageId(page))?;
            Some(format!("{page}:{}", tier.0))
        };
        (0..self.pages).filter_map(place).collect::<Vec<_>>().join(" ")
    }

    /// The tier of a page.
    pub(crate) fn tier(&self, page: u32) -> Option<Tier> {
        self.machine.tier_of(PageId(page))
    }

    pub(crate) fn orders(&self) -> usize {
        self.machine.actions().len()
    }

    /// Ordered actions in text form: `first page→tier` for moves, `first page Kind` for others.
    pub(crate) fn ordered(&self) -> Vec<String> {
        let of = |action: &tierscope_core::Action| {
            let page = (action.range.start - START) / PAGE_SIZE;
            match action.kind {
                ActionKind::Move(tier) => format!("{page}→{}", tier.0),
                kind => format!("{page} {kind:?}"),
            }
        };
        self.machine.actions().iter().map(of).collect()
    }

    pub(crate) fn work(&self) -> Duration {
        self.machine.work()
    }

    pub(crate) fn page_event(&mut self, first: u32, pages: u32, kind: PageEventKind) {
        self.machine.page_event(range(first, pages), kind);
    }
}
