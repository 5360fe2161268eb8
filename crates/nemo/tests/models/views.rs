//! Compares whole engines with each other, and the batched path with the single-request path.

use proptest::prelude::*;
use tierscope_core::{
    BusObserver, BusRecord, Cell, Compare, Counters, Key, Operand, Operator, ReadEffect,
    RequestKind, Rng, Rule, RuleLimits, Time,
};
use tierscope_nemo::functional::Pipeline;
use tierscope_nemo::{Cycle, Driver, Functional, Memory, Spec, Zone};

use super::{operations, stream};

/// Runs a batch through its specialised loop, and request by request.
#[test]
fn batches_equal_single_requests() {
    let mut rng = Rng::seeded(83);
    for round in 0..300.max(operations() / 5000) {
        let mut program = stream::program(&mut rng);
        if round % 2 == 0 {
            program.cell = Cell::WORD;
            program.home.trigger = None;
            program.away.trigger = None;
            program.states = program.states.min(u32::from(program.banks) * 1024);
        }
        if round % 16 == 0 {
            // Words of a guest: a filter that ends before it starts matches nothing.
            program.filter.end = program.filter.start / 2;
        }
        let (mut plain, mut fast) = (Pipeline::new(2), Pipeline::new(2));
        for pipeline in [&mut plain, &mut fast] {
            pipeline.reprogram(Some(program));
        }
        for key in 0..stream::KEYS as u16 {
            let base = stream::base(&mut rng);
            plain.translate(key, base);
            fast.translate(key, base);
        }
        let batch: Vec<_> = (0..5000).map(|time| stream::request(&mut rng, time)).collect();
        for record in &batch {
            plain.request((record.address() >> 6 & 1) as usize, *record, 0);
        }
        fast.observe(&batch, 6);
        for channel in 0..2 {
            assert_eq!(plain.status(channel), fast.status(channel), "{program:?}");
            for word in 0..8192 {
                assert_eq!(plain.word(channel, word), fast.word(channel, word), "{program:?}");
            }
        }
    }
}

/// Three controllers, two of them interleaved.
fn memory(granule: u64, channels: usize) -> Memory {
    let zones = vec![
        Zone { start: 0, end: 1 << 20, first: 0, controllers: 2, granule },
        Zone { start: 1 << 20, end: 3 << 19, first: 2, controllers: 1, granule: 4096 },
    ];
    Memory::new(zones, channels).expect("a memory")
}

/// A driver gives the same results on both models, and those of a single serial counter.
#[test]
fn views_of_both_models_are_one() {
    let limits = RuleLimits::of_memory(3 << 19);
    let rule = Rule::build()
        .matching(RequestKind::Write)
        .key(Key::ALL_MEMORY, 16)
        .offset(0xffff, 12)
        .notify(Compare::AtLeast, 40)
        .on_read(ReadEffect::Reset(0))
        .finish(&limits)
        .expect("a rule");
    let mut fast = Driver::new(Functional::new(memory(256, 2), 2, 16).expect("an engine"));
    let mut slow = Driver::new(Cycle::new(memory(256, 2), 2).expect("an engine"));
    let ids = [fast.register(&rule).expect("room"), slow.register(&rule).expect("room")];
    for key in 0..24 {
        fast.translate(ids[0], key, Some(16 * key as u32)).expect("its own");
        slow.translate(ids[1], key, Some(16 * key as u32)).expect("its own");
    }
    let mut rng = Rng::seeded(84);
    for _ in 0..20 {
        let request = |n| BusRecord::new(Time(n), rng.below(3 << 19) & !63, n % 2 == 0);
        let batch: Vec<_> = (0..4000).map(request).collect();
        fast.engine_mut().observe(&batch);
        slow.engine_mut().observe(&batch);
        let mut truth = [0; 384];
        batch
            .iter()
            .filter(|r| r.is_write())
            .for_each(|r| truth[(r.address() >> 12) as usize] += 1);
        let mut views = [[0; 384]; 2];
        let mut notices = [Vec::new(), Vec::new()];
        fast.notifications(&mut notices[0]);
        slow.notifications(&mut notices[1]);
        assert_eq!(notices[0], notices[1]);
        fast.read(ids[0], &mut views[0]).expect("there");
        slow.read(ids[1], &mut views[1]).expect("there");
        assert_eq!(views, [truth, truth]);
    }
}

/// A byte counter wraps around after 255, and reports it.
#[test]
fn overflow_is_visible() {
    let rule = Rule::build().finish(&RuleLimits::of_memory(3 << 19)).expect("a rule");
    let cell = Cell::new(1, false).expect("a width");
    let mut driver = Driver::new(Cycle::new(memory(256, 1), 1).expect("an engine"));
    let id = driver.install(&Spec { rule, cell, states: None }).expect("room");
    driver.translate(id, 0, Some(0)).expect("its own");
    let times = |count| vec![BusRecord::new(Time(0), 0, false); count];
    driver.engine_mut().observe(&times(255));
    assert!(!driver.overflow(id).expect("there").wrapped);
    driver.engine_mut().observe(&times(1));
    let overflow = driver.overflow(id).expect("there");
    assert!(overflow.wrapped && overflow.dropped == 0);
}

fn rule_of(operator: usize, operand: u64, effect: u64) -> Rule {
    use Operator::{Add, ShiftLeft, ShiftRight, Subtract, Xor};
    let operator = [Add, Subtract, ShiftLeft, ShiftRight, Xor][operator];
    let on_read = match effect {
        0 => ReadEffect::Keep,
        1 => ReadEffect::Apply(operator, operand),
        value => ReadEffect::Reset(value),
    };
    let rule = Rule::build().key(Key::ALL_MEMORY, 12).update(operator, Operand::Constant(operand));
    rule.on_read(on_read).finish(&RuleLimits::of_memory(3 << 19)).expect("a rule")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any interleaving, the folded view equals a single serial counter, including reads and
    /// their effects.
    #[test]
    fn any_split_folds_to_the_serial_result(
        operator in 0..5usize, operand in 1..8u64, effect in 0..5u64, granule in 6..13u32,
        channels in 0..4u32, bytes in 1..=8u8, saturating: bool,
        steps in prop::collection::vec((0..96u64, any::<bool>()), 1..200),
    ) {
        let rule = rule_of(operator, operand, effect);
        let ends = saturating && operator < 2;
        let cell = Cell::new(bytes, ends).unwrap();
        let spec = Spec { rule, cell, states: None };
        let memory = memory(1 << granule, 1 << channels);
        let mut driver = Driver::new(Functional::new(memory, 2, 16).unwrap());
        let id = driver.install(&spec).unwrap();
        prop_assert!(driver.losses(id).unwrap().is_empty());
        // Pages 0 to 31 share a state, all others share another.
        for key in 0..384 {
            driver.translate(id, key, Some(u32::from(key >= 32))).unwrap();
        }
        let mut serial = [rule.start(cell); 2];
        for (line, read) in steps {
            let address = line * 64 * 61;
            let state = &mut serial[usize::from(address >> 12 >= 32)];
            *state = rule.update.0.apply(*state, operand, cell);
            driver.observe(&[BusRecord::new(Time(0), address, false)]);
            if read {
                let mut view = [0; 2];
                driver.read(id, &mut view).unwrap();
                prop_assert_eq!(view, serial);
                serial = serial.map(|state| rule.on_read.after(state, cell));
            }
        }
    }
}
