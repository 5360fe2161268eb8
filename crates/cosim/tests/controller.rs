//! A controller of the circuit, behind its control registers, gives the driver the same results as
//! both models.

use std::collections::BTreeSet;

use tierscope_core::{BusObserver, BusRecord, Counters, Filter, Key, Result, Rng, Rule, Time};
use tierscope_cosim::controller::Controller;
use tierscope_cosim::stream::{Scene, counting};
use tierscope_nemo::driver::StateMapping;
use tierscope_nemo::program::{Chain, Program};
use tierscope_nemo::registers::{CONTROL_WORDS, Limits, check, decode, encode};
use tierscope_nemo::{At, Control, Cycle, Driver, Engine, Functional, Memory, Region};
use tierscope_wire::device::{Answer, Command};

/// Pipelines: listing 1 has seven of them; two are built sooner.
const PIPELINES: usize = 2;
const HUGE: u64 = 1 << 21;
/// Huge pages that two pipelines watch: 16 each.
const REGIONS: u64 = 32;
const BYTES: u64 = 16 << 30;

fn memory() -> Memory {
    Memory::single(BYTES, 2).unwrap()
}

fn requests(seed: u64, count: u64, within: u64) -> Vec<BusRecord> {
    let mut rng = Rng::seeded(seed);
    (0..count)
        .map(|n| BusRecord::new(Time(n), rng.below(within) & !63, rng.below(3) == 0))
        .collect()
}

/// Everything that an owner of a telemetry can see.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    states: Vec<Vec<u64>>,
    alerts: Vec<String>,
}

/// Listing 1: base pages of selected huge pages.
fn skewness<E: Engine + BusObserver>(driver: &mut Driver<E>) -> Result<Seen> {
    let rule: Rule = "key all >> 21; offset 0x1fffff >> 12; update + 1; on_read reset 0".parse()?;
    let skew = driver.register_states(&rule, REGIONS * 512)?;
    for slot in 0..REGIONS as u32 {
        driver.translate(skew, 3 * u64::from(slot), Some(slot * 512))?;
    }
    let mut seen = Seen::default();
    for seed in 0..2 {
        driver.observe(&requests(seed, 20_000, 100 * HUGE));
        let mut counts = vec![0; REGIONS as usize * 512];
        driver.read(skew, &mut counts)?;
        seen.states.push(counts);
    }
    driver.unregister(skew)?;
    Ok(seen)
}

/// Listing 2: a counter for each huge page.
fn hot_pages<E: Engine + BusObserver>(driver: &mut Driver<E>) -> Result<Seen> {
    let rule: Rule = "key all >> 21; update + 1; on_read reset 0".parse()?;
    let hot = driver.register(&rule)?;
    (0..8192).try_for_each(|page| driver.translate(hot, page, Some(page as u32)))?;
    let mut seen = Seen::default();
    for seed in 2..4 {
        driver.observe(&requests(seed, 20_000, BYTES));
        let mut counts = vec![0; 8192];
        driver.read(hot, &mut counts)?;
        seen.states.push(counts);
    }
    driver.unregister(hot)?;
    Ok(seen)
}

/// Listing 3: a state for each tenant, with a cap.
fn tenants<E: Engine + BusObserver>(driver: &mut Driver<E>) -> Result<Seen> {
    let rule: Rule = "key all >> 21; update + 1; notify >= 6000; on_read reset 0".parse()?;
    let tenants = driver.register_states(&rule, 4)?;
    for tenant in 0..4 {
        let start = u64::from(tenant) * 2048 * HUGE;
        driver.translate_range(tenants, start, start + 2048 * HUGE, StateMapping::One(tenant))?;
    }
    let mut seen = Seen::default();
    for within in [BYTES, 2048 * HUGE] {
        driver.observe(&requests(within, 20_000, within));
        driver.dispatch(|alert| seen.alerts.push(format!("{alert:?}")))?;
        let mut counts = vec![0; 4];
        driver.read(tenants, &mut counts)?;
        seen.states.push(counts);
    }
    driver.unregister(tenants)?;
    Ok(seen)
}

#[test]
fn the_papers_listings_give_the_same_on_the_circuit_and_on_both_models() {
    let mut circuit = Driver::new(Controller::new(memory(), PIPELINES).unwrap());
    let mut cycle = Driver::new(Cycle::new(memory(), PIPELINES).unwrap());
    let mut functional = Driver::new(Functional::new(memory(), PIPELINES, PIPELINES * 8).unwrap());
    macro_rules! compare {
        ($listing:ident) => {
            let expected = $listing(&mut functional).unwrap();
            assert_eq!($listing(&mut cycle).unwrap(), expected);
            let seen = $listing(&mut circuit).unwrap();
            assert_eq!(seen, expected, "{}", stringify!($listing));
            assert!(seen.states.iter().flatten().any(|count| *count > 0));
        };
    }
    compare!(skewness);
    compare!(hot_pages);
    compare!(tenants);
    assert!(!tenants(&mut circuit).unwrap().alerts.is_empty());
}

/// A valid program as words of the control registers, and one of its words changed.
fn changed(rng: &mut Rng, turn: u64) -> ([u64; CONTROL_WORDS], usize) {
    let program = Scene::new(rng, turn).program;
    let mut words = encode(&Control::Program(Some(program)));
    // The words that the circuit has: of the second rule only its trigger and effect.
    let used: Vec<usize> = (1..15).chain(26..30).chain(31..39).chain(40..CONTROL_WORDS).collect();
    let word = used[rng.below(used.len() as u64) as usize];
    words[word] = match rng.below(3) {
        0 => rng.next_u64(),
        1 => rng.below(80),
        _ => words[word].wrapping_add(1 << rng.below(64)),
    };
    (words, word)
}

#[test]
fn the_circuit_refuses_exactly_what_the_driver_refuses() {
    let mut circuit = Controller::new(memory(), PIPELINES).unwrap();
    let (geometry, limits) = (circuit.geometry(), Limits::EXTENDED);
    let mut rng = Rng::seeded(7);
    let (mut held, mut refused) = (0, BTreeSet::new());
    for turn in 0..300 {
        let (words, word) = changed(&mut rng, turn);
        let why = decode(&words).map(|control| check(&control, &geometry, &limits));
        let driver = matches!(why, Some(Ok(())));
        let arguments: Vec<u64> = [0, turn % 2].into_iter().chain(words).collect();
        let answer = circuit.ring(Command::Control, &arguments);
        let expected = if driver { Answer::Done } else { Answer::BadArgument };
        assert_eq!(answer, expected as u64, "word {word} is {:#x}: {why:?}", words[word]);
        held += u64::from(driver);
        if !driver {
            refused.insert(word);
        }
    }
    println!("{held} programs are held; words that were refused: {refused:?}");
    assert!(held > 50 && refused.len() > 10, "{held}, {refused:?}");
    for (code, words) in [(2, [8192, 1, 0]), (2, [0, 1, 1 << 16]), (3, [0, 4097, 0]), (5, [0; 3])] {
        let arguments: Vec<u64> = [0, 0, code].into_iter().chain(words).collect();
        assert_eq!(circuit.ring(Command::Control, &arguments), Answer::BadArgument as u64);
    }
    assert_eq!(circuit.ring(Command::Control, &[0, 2, 4]), Answer::BadArgument as u64);
    assert_eq!(circuit.ring(Command::Ping, &[]), Answer::Unknown as u64);
}

#[test]
fn a_channel_delivers_a_line_each_cycle() {
    let mut circuit = Controller::new(memory(), PIPELINES).unwrap();
    circuit.control(At { controller: 0, pipeline: 1 }, Control::Program(Some(counting())));
    for key in 0..16 {
        let translate = Control::Translate(key, Some(64 * u32::from(key)));
        circuit.control(At { controller: 0, pipeline: 1 }, translate);
    }
    circuit.observe(&requests(5, 3000, 16 << 12));
    for channel in 0..2 {
        let (lines, cycles) = circuit.stream(channel, 1024, 1024);
        assert_eq!(cycles, 1024 + 2, "two stages before the first line");
        let one_by_one: Vec<_> =
            (0..1024).map(|n| circuit.stream(channel, 1024 + n, 1).0[0]).collect();
        assert_eq!(lines, one_by_one);
        assert!(lines[8][0] > 0 && lines[9] == [0; 8]);
    }
    assert_eq!(circuit.stream(0, 2 * 1024 + 64, 1).0[0], [0; 8], "beyond the capture page");
}

/// Random operations of a driver on chained, hashed and narrow telemetries: the circuit and the
/// functional model stay the same, and so do their interrupts.
#[test]
fn random_control_operations_leave_circuit_and_functional_model_the_same() {
    let mut circuit = Controller::new(memory(), PIPELINES).unwrap();
    let mut model = Functional::new(memory(), PIPELINES, 8 * PIPELINES).unwrap();
    let mut rng = Rng::seeded(11);
    for turn in 0..8 {
        for pipeline in 0..PIPELINES {
            let program = Scene::new(&mut rng, turn * 7 + pipeline as u64).program;
            let chain = if pipeline == 0 { Chain::None } else { program.chain };
            let first_bank = 8 * pipeline as u16;
            let program = counting_pages(Program { chain, first_bank, ..program });
            both(&mut circuit, &mut model, pipeline, Control::Program(Some(program)));
        }
        for _ in 0..30 {
            let pipeline = rng.below(PIPELINES as u64) as usize;
            let (first, count) = (rng.below(700) as u32, rng.below(1200) as u32);
            let control = match rng.below(4) {
                0 => Control::Acknowledge,
                1 => Control::Capture { first, count },
                _ => Control::Translate(rng.below(16) as u16, Some(rng.below(600) as u32)),
            };
            both(&mut circuit, &mut model, pipeline, control);
            let batch = requests(rng.next_u64(), 200, 16 << 12);
            circuit.observe(&batch);
            model.observe(&batch);
            assert_eq!(circuit.pending(0), model.pending(0));
            assert_eq!(circuit.interrupt(), model.pending(0) != 0);
        }
        compare(&mut circuit, &mut model);
    }
    assert!(circuit.check().is_ok());
}

/// The program with keys of the 16 pages of `requests`.
fn counting_pages(program: Program) -> Program {
    let Program { filter, key, first_key, .. } = counting();
    let filter = Filter { kind: program.filter.kind, ..filter };
    Program { filter, key, first_key, offset: Key { mask: 0xfc0, shift: 6 }, ..program }
}

fn both(circuit: &mut Controller, model: &mut Functional, pipeline: usize, control: Control) {
    let at = At { controller: 0, pipeline };
    circuit.control(at, control);
    model.control(at, control);
}

/// All lines of the region, and the status of all lanes.
fn compare(circuit: &mut Controller, model: &mut Functional) {
    let region = Region::of(circuit.geometry());
    for line in 0..region.lines() {
        assert_eq!(circuit.load(0, line), model.load(0, line), "line {line}");
    }
    for (pipeline, channel) in (0..PIPELINES).flat_map(|p| [(p, 0), (p, 1)]) {
        let at = At { controller: 0, pipeline };
        assert_eq!(circuit.status(at, channel), model.status(at, channel));
    }
}
