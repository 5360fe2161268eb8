//! Requests for foreign keys or states are refused, by the field's name, and change nothing.

use proptest::prelude::*;
use tierscope_core::{BusObserver, Cell, Counters, Key, RequestKind, Rule, RuleLimits};
use tierscope_nemo::driver::StateMapping;
use tierscope_nemo::program::Chain;
use tierscope_nemo::registers::Limits;
use tierscope_nemo::{
    At, Control, Driver, Engine, Functional, Geometry, Line, Memory, Spec, Status, Zone,
};

use super::{BYTES, HUGE, finish, per_base_page, per_huge_page, prototype, reads};

/// Memory with a hole: 0..1 GiB and 2..3 GiB.
fn with_hole() -> Driver<Functional> {
    let zone = |start: u64| Zone {
        start: start << 30,
        end: (start + 1) << 30,
        first: 0,
        controllers: 1,
        granule: 4096,
    };
    let memory = Memory::new(vec![zone(0), zone(2)], 2).expect("a memory");
    Driver::new(Functional::new(memory, 8, 64).expect("an engine"))
}

#[test]
fn translations_are_refused_by_name() {
    let mut driver = with_hole();
    let rule = per_base_page().filter(RequestKind::All, 0, 3 << 30);
    let rule = rule.finish(&RuleLimits::of_memory(3 << 30)).unwrap();
    let id = driver.register_states(&rule, 4 * 512).unwrap();
    let mut why = |key, index| driver.translate(id, key, Some(index)).unwrap_err().to_string();
    assert!(why(1536, 0).contains("refused at `key`: 0x600 is out of range"));
    assert!(why(u64::MAX, 0).contains("out of range"));
    assert!(why(512, 0).contains("refused at `key`") && why(512, 0).contains("foreign"));
    assert!(why(0, 2048).contains("refused at `index`: 2048 is out of range"));
    assert!(why(0, 100).contains("refused at `index`: 100 is unaligned"));
    assert!(why(0, 100).contains("overlap") && why(0, 700).contains("use 512"));
    driver.translate(id, 0, Some(512)).unwrap();
    driver.translate(id, 1535, Some(0)).unwrap();
}

#[test]
fn a_rule_on_a_hole_of_the_memory_is_refused() {
    let mut driver = with_hole();
    let rule = per_base_page().filter(RequestKind::All, 1 << 30, 2 << 30);
    let rule = rule.finish(&RuleLimits::of_memory(3 << 30)).unwrap();
    let why = driver.register_states(&rule, 512).unwrap_err().to_string();
    assert!(why.contains("refused at `filter`: no controller serves memory"), "{why}");
}

#[test]
fn ranges_are_refused_by_name_and_leave_nothing() {
    let mut driver = prototype();
    let id = driver.register_states(&finish(per_huge_page()), 64).unwrap();
    driver.translate(id, 9, Some(3)).unwrap();
    let mut why = |start, end, onto| {
        driver.translate_range(id, start * HUGE / 2, end * HUGE / 2, onto).unwrap_err().to_string()
    };
    assert!(why(1, 4, StateMapping::One(0)).contains("refused at `range`"));
    assert!(why(1, 4, StateMapping::One(0)).contains("unaligned"));
    assert!(why(4, 4, StateMapping::One(0)).contains("`range`"));
    assert!(why(0, 2 * 8194, StateMapping::One(0)).contains("refused at `range`"));
    assert!(why(0, 20, StateMapping::One(5)).contains("key 0x9 overlaps: it selects state 3"));
    assert!(why(0, 2 * 100, StateMapping::Each(0)).contains("overlaps"));
    assert!(why(20, 20 + 2 * 65, StateMapping::Each(0)).contains("`index`"));
    driver.observe(&reads((0..100).map(|page| page * HUGE)));
    let mut states = [0; 64];
    driver.read(id, &mut states).unwrap();
    assert_eq!(states.iter().sum::<u64>(), 1, "only the entry made at first");
    driver.translate_range(id, 9 * HUGE, 11 * HUGE, StateMapping::Each(3)).unwrap();
    assert!(driver.read(id, &mut [0; 65]).unwrap_err().to_string().contains("`states`"));
}

#[test]
fn rules_are_checked_against_the_memory() {
    let mut driver = prototype();
    let why = |driver: &mut Driver<Functional>, rule: Rule| {
        driver.register(&rule).unwrap_err().to_string()
    };
    let good = finish(per_huge_page());
    let beyond = Rule { key: Key { mask: 1 << 40, shift: 21 }, ..good };
    assert!(why(&mut driver, beyond).contains("`key.mask`"));
    let beyond = Rule { key: Key { mask: u64::MAX, shift: 40 }, ..good };
    assert!(why(&mut driver, beyond).contains("`key.shift`"));
    // A counter for each page of all 16 GiB: 512 pipelines, but a sweep takes 512 / 8 periods.
    let said = why(&mut driver, finish(per_base_page()));
    assert!(said.contains("504 pipelines and 64512 KiB are missing"), "{said}");
    assert!(said.contains("128 of 8192 regions at a time"), "{said}");
    assert!(said.contains("visits all in 64 periods"), "{said}");
    assert!(driver.register_states(&finish(per_base_page()), 128 * 512).is_ok());
    assert!(why(&mut driver, good).contains("unregister others first"));
}

/// Controllers with the prototype's registers.
struct Prototype(Functional);

impl Engine for Prototype {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn limits(&self) -> Limits {
        Limits::PROTOTYPE
    }

    fn memory(&self) -> &Memory {
        self.0.memory()
    }

    fn control(&mut self, at: At, control: Control) {
        self.0.control(at, control);
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        self.0.load(controller, line)
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        self.0.status(at, channel)
    }

    fn pending(&mut self, controller: usize) -> u64 {
        self.0.pending(controller)
    }
}

// Byte counters are eight to a word, but an entry of 14 bits finds the first 8,192 of them only.
#[test]
fn what_the_registers_of_a_controller_cannot_hold_is_refused_by_name_and_limit() {
    let memory = Memory::single(BYTES, 2).unwrap();
    let mut driver = Driver::new(Prototype(Functional::new(memory, 8, 64).unwrap()));
    let before = driver.free();
    let spec = Spec {
        rule: finish(per_base_page()),
        cell: Cell::new(1, false).unwrap(),
        states: Some(20 * 512),
    };
    let id = driver.install(&spec).unwrap();
    driver.translate(id, 7, Some(15 * 512)).unwrap();
    let why = driver.translate(id, 7, Some(16 * 512)).unwrap_err().to_string();
    assert!(why.contains("refused at `base`") && why.contains("at most 8191"), "{why}");
    let pages = Spec { states: None, ..Spec::from(finish(per_huge_page())) };
    let why = driver.install_hashed(&pages, 3, 4).unwrap_err().to_string();
    assert!(why.contains("refused at `select`"), "{why}");
    let link = (Spec { states: Some(8192), ..pages }, Chain::Value);
    let why = driver.install_chain(&link.0, &[link]).unwrap_err().to_string();
    assert!(why.contains("refused at `chain`"), "{why}");
    driver.uninstall(id).unwrap();
    assert_eq!(driver.free(), before, "what was refused left nothing");
}

#[test]
fn one_of_many_and_many_to_one() {
    let mut driver = prototype();
    let tenants = driver.register_states(&finish(per_huge_page()), 2).unwrap();
    driver.translate_range(tenants, 0, 100 * HUGE, StateMapping::One(0)).unwrap();
    driver.translate_range(tenants, 100 * HUGE, BYTES, StateMapping::One(1)).unwrap();
    let pages = driver.register_states(&finish(per_base_page()), 112 * 512).unwrap();
    driver.translate(pages, 99, Some(111 * 512)).unwrap();
    driver.translate(pages, 100, Some(512)).unwrap();
    driver.observe(&reads((0..8192 * 512).map(|page| page << 12)));
    let mut states = [0; 2];
    driver.read(tenants, &mut states).unwrap();
    assert_eq!(states, [100 * 512, 8092 * 512]);
    let mut counts = vec![0; 112 * 512];
    driver.read(pages, &mut counts).unwrap();
    let counted: Vec<usize> = (0..112).filter(|n| counts[n * 512..][..512] == [1; 512]).collect();
    assert_eq!((counted, counts.iter().sum::<u64>()), (vec![1, 111], 1024));
    // Another slot, in another pipeline: the old pipeline drops its entry.
    driver.translate(pages, 99, Some(0)).unwrap();
    driver.observe(&reads([99 * HUGE]));
    driver.read(pages, &mut counts).unwrap();
    assert_eq!((counts[0], counts.iter().sum::<u64>()), (1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Entries are accepted if they are in range, aligned and served, and only then.
    #[test]
    fn entries_are_accepted_exactly_where_they_are_ones_own(
        key in prop_oneof![0..2000u64, any::<u64>()],
        index in prop_oneof![0..3000u32, any::<u32>()],
        first in 0..1000u64, regions in 1..900u64, pages: bool,
    ) {
        let mut driver = with_hole();
        let end = ((first + regions) * HUGE).min(3 << 30);
        let builder = if pages { per_base_page() } else { per_huge_page() };
        let rule = builder.filter(RequestKind::All, first * HUGE, end);
        let rule = rule.finish(&RuleLimits::of_memory(3 << 30)).unwrap();
        let installed = driver.install(&Spec { states: Some(1024), ..Spec::from(rule) });
        prop_assert_eq!(installed.is_ok(), first * HUGE < 1 << 30 || end > 2 << 30);
        let Ok(id) = installed else { return Ok(()) };
        let region = key.checked_mul(HUGE).filter(|start| *start >= first * HUGE && *start < end);
        let served = region.is_some_and(|start| start >> 30 != 1);
        let span = rule.states_per_key() as u32;
        let own = served && index < 1024 && index % span == 0;
        prop_assert_eq!(driver.translate(id, key, Some(index)).is_ok(), own);
    }

    /// No rule crashes the driver or the engine.
    #[test]
    fn any_rule_is_installed_or_refused(
        mask: u64, shift in 0..64u8, sub: u64, low in 0..64u8,
        states in prop_oneof![0..200_000u64, any::<u64>()],
        key: u64, index: u32,
    ) {
        let mut driver = with_hole();
        let rule = Rule::build().key(mask, shift).offset(sub & 0xfff_ffff, low);
        let Ok(rule) = rule.finish(&RuleLimits::of_memory(3 << 30)) else { return Ok(()) };
        let before = driver.free();
        match driver.install(&Spec { states: Some(states), ..Spec::from(rule) }) {
            Err(_) => prop_assert_eq!(driver.free(), before),
            Ok(id) => {
                let _ = driver.translate(id, key >> shift & 0xffff, Some(index & 0xffff));
                driver.observe(&reads([key & ((3 << 30) - 1), 0, (3 << 30) - 64]));
                let mut out = vec![0; states.min(600) as usize];
                driver.read(id, &mut out).unwrap();
                driver.uninstall(id).unwrap();
                prop_assert_eq!(driver.free(), before);
            }
        }
    }
}
