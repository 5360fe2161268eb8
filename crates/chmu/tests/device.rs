//! A monitoring unit through its driver: what it reports, loses and refuses.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tierscope_chmu::{Allocation, Block, Capabilities, Driver, Registers, registers};
use tierscope_core::{ErrorKind, HotProgram, HotUnit, Reporting, RequestKind, Time};

const MIB: u64 = 1 << 20;
const MEMORY: u64 = 512 * MIB;
/// Physical address of the device.
const START: u64 = 4096 * MIB;

fn program() -> HotProgram {
    HotProgram {
        unit_shift: 21,
        reporting: Reporting::Epoch(Duration::from_millis(100)),
        threshold: 2,
        downsampling: 0,
        requests: RequestKind::All,
        interrupts: false,
    }
}

fn driver(capabilities: Capabilities) -> Driver<Block> {
    let block = Block::new(capabilities, MEMORY).expect("its registers can state it");
    Driver::new(block, START, MEMORY).expect("it is a block")
}

fn running(capabilities: Capabilities, program: HotProgram) -> Driver<Block> {
    let mut driver = driver(capabilities);
    driver.enable(&program).expect("it can hold that");
    driver
}

/// Requests: (milliseconds, unit of 2 MiB, whether it writes).
fn request(driver: &mut Driver<Block>, all: &[(u64, u64, bool)]) {
    for (millis, unit, write) in all {
        driver.registers_mut().request(Time(millis * 1_000_000), unit * 2 * MIB + 64, *write);
    }
}

/// Units and counts of the hot list at a time.
fn hot(driver: &mut Driver<Block>, millis: u64) -> Vec<(u64, u64)> {
    driver.registers_mut().advance(Time(millis * 1_000_000));
    let mut units = Vec::new();
    driver.drain(usize::MAX, &mut units).expect("it is well");
    units.iter().map(|unit| ((unit.address - START) / (2 * MIB), unit.count)).collect()
}

// Unit 5 has three requests in the first epoch, unit 6 one; in the second 6 has two.
#[test]
fn an_epoch_reports_units_at_the_threshold_and_forgets_all() {
    let mut driver = running(Capabilities::default(), program());
    request(&mut driver, &[(1, 5, false), (2, 6, true), (3, 5, true), (99, 5, false)]);
    assert_eq!(hot(&mut driver, 99), []);
    assert_eq!(hot(&mut driver, 100), [(5, 3)]);
    request(&mut driver, &[(101, 6, false), (150, 6, false), (199, 5, false)]);
    assert_eq!(hot(&mut driver, 750), [(6, 2)]);
    assert_eq!(hot(&mut driver, 1000), []);
}

// Threshold 2: the second and the fourth request to unit 5 report it.
#[test]
fn always_on_reports_at_the_threshold_and_counts_again() {
    let always = HotProgram { reporting: Reporting::AlwaysOn, ..program() };
    let mut driver = running(Capabilities::default(), always);
    request(&mut driver, &[(1, 5, false), (2, 6, false), (500, 5, false), (900, 5, false)]);
    assert_eq!(hot(&mut driver, 900), [(5, 2)]);
    request(&mut driver, &[(5000, 5, false), (9000, 6, false)]);
    assert_eq!(hot(&mut driver, 9000), [(5, 2), (6, 2)]);
}

#[test]
fn requests_are_filtered_and_sampled_down() {
    let mut requests: Vec<(u64, u64, bool)> = (0..8).map(|at| (at, 3, at % 2 == 0)).collect();
    let of = |changed: HotProgram, requests: &[(u64, u64, bool)]| {
        let mut driver = running(Capabilities::default(), changed);
        request(&mut driver, requests);
        hot(&mut driver, 100)
    };
    assert_eq!(of(HotProgram { requests: RequestKind::Read, ..program() }, &requests), [(3, 4)]);
    requests.push((9, 3, true));
    assert_eq!(of(HotProgram { requests: RequestKind::Write, ..program() }, &requests), [(3, 5)]);
    // Of nine requests the first, the fifth and the ninth.
    assert_eq!(of(HotProgram { downsampling: 2, ..program() }, &requests), [(3, 3)]);
}

// Four places hold three of five hot units; the driver finds the flag once, and clears it.
#[test]
fn an_overflow_is_found_once_and_cleared() {
    let mut driver = running(Capabilities { hot_list: 4, ..Capabilities::default() }, program());
    let twice: Vec<_> = (0..5).flat_map(|unit| [(1, unit, false), (2, unit, false)]).collect();
    request(&mut driver, &twice);
    assert_eq!(hot(&mut driver, 100), [(0, 2), (1, 2), (2, 2)]);
    assert_eq!((driver.overflows(), driver.registers().lost()), (1, 2));
    assert_eq!(hot(&mut driver, 200), []);
    assert_eq!(driver.overflows(), 1);
}

// Two counters: units 7 and 8 take them; unit 9 is not counted, however often.
#[test]
fn units_without_a_counter_are_not_reported() {
    let few = Capabilities { counters: 2, ..Capabilities::default() };
    let mut driver = running(few, program());
    let nine = [(3, 9, false); 5];
    request(
        &mut driver,
        &[[(1, 7, false), (1, 7, false), (2, 8, false)].as_slice(), &nine].concat(),
    );
    assert_eq!(hot(&mut driver, 100), [(7, 2)]);
    assert_eq!(driver.registers().uncounted(), 5);
}

#[test]
fn an_interrupt_comes_when_half_of_the_list_is_full() {
    let capabilities = Capabilities { hot_list: 8, ..Capabilities::default() };
    let polled = running(capabilities.clone(), program());
    assert_eq!(polled.registers().interrupt(), None);
    let mut driver = running(capabilities, HotProgram { interrupts: true, ..program() });
    let three: Vec<_> = (0..3).flat_map(|unit| [(1, unit, false), (2, unit, false)]).collect();
    request(&mut driver, &three);
    driver.registers_mut().advance(Time(100_000_000));
    assert_eq!(driver.registers().interrupt(), Some(false));
    request(&mut driver, &[(110, 3, false), (120, 3, false)]);
    driver.registers_mut().advance(Time(200_000_000));
    assert_eq!(driver.registers().interrupt(), Some(true));
    assert_eq!(hot(&mut driver, 200).len(), 4);
    assert_eq!(driver.registers().interrupt(), Some(false));
}

// Part of a list is read, the rest later: nothing twice, nothing lost.
#[test]
fn a_list_can_be_read_in_parts() {
    let mut driver = running(Capabilities::default(), program());
    let twice: Vec<_> = (0..5).flat_map(|unit| [(1, unit, false), (2, unit, false)]).collect();
    request(&mut driver, &twice);
    driver.registers_mut().advance(Time(100_000_000));
    let mut units = Vec::new();
    for most in [2, 0, 1, 9] {
        driver.drain(most, &mut units).expect("it is well");
    }
    let units: Vec<u64> = units.iter().map(|unit| (unit.address - START) / (2 * MIB)).collect();
    assert_eq!(units, [0, 1, 2, 3, 4]);
}

#[test]
fn a_program_that_the_hardware_cannot_hold_is_refused_with_register_and_limit() {
    let why = |capabilities: Capabilities, program: HotProgram| {
        let error = driver(capabilities).enable(&program).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Usage);
        error.to_string()
    };
    let default = Capabilities::default;
    let says = |text: String, register: &str, limit: &str| {
        assert!(text.contains(&format!("`{register}`")) && text.contains(limit), "{text}");
    };
    let unit = HotProgram { unit_shift: 13, ..program() };
    says(why(default(), unit), "CAP1.UNIT_SIZE", "units of 8 KiB, it offers 4 KiB, 2 MiB");
    let fine = HotProgram { unit_shift: 7, ..program() };
    says(why(default(), fine), "CAP1.UNIT_SIZE", "128 B");
    let factor = HotProgram { downsampling: 3, ..program() };
    let none = Capabilities { downsampling: vec![0, 1], ..default() };
    says(why(none, factor), "CAP1.DOWNSAMP", "it offers 1, 2");
    let epoch = |length| HotProgram { reporting: Reporting::Epoch(length), ..program() };
    let short = epoch(Duration::from_micros(900));
    says(why(default(), short), "CAP0.EPOCH_MIN_MULT", "900µs, its limit is 1ms");
    let long = epoch(Duration::from_secs(101));
    says(why(default(), long), "CAP0.EPOCH_MAX_MULT", "101s, its limit is 100s");
    let odd = epoch(Duration::from_nanos(1_000_001));
    says(why(default(), odd), "CFG1.EPOCH_MULT", "not 1 to 4095 of a scale");
    let always = HotProgram { reporting: Reporting::AlwaysOn, ..program() };
    let epochs_only = Capabilities { always_on: false, ..default() };
    says(why(epochs_only, always), "CAP1.ALWAYS_ON_SUP", "epochs only");
    let always_only = Capabilities { epoch: false, ..default() };
    says(why(always_only, program()), "CAP1.EPOCH_SUP", "no epochs");
    let quiet = Capabilities { interrupts: false, ..default() };
    let woken = HotProgram { interrupts: true, ..program() };
    says(why(quiet, woken), "CAP0.FILLTHRESH_CAP", "no interrupts");
    let narrow = Capabilities { counter_width: 4, ..default() };
    let high = HotProgram { threshold: 16, ..program() };
    says(why(narrow.clone(), high), "STATUS.COUNTER_WIDTH", "16 of a count of 1 to 15");
    let zero = HotProgram { threshold: 0, ..program() };
    says(why(default(), zero), "STATUS.COUNTER_WIDTH", "0 of a count of 1 to 65535");
    let edge = HotProgram { threshold: 15, ..program() };
    assert_eq!(driver(narrow).enable(&edge), Ok(()));
}

/// Registers that answer whatever a test sets.
struct Hostile {
    block: Block,
    answers: BTreeMap<u64, u64>,
}

impl Registers for Hostile {
    fn read(&mut self, offset: u64) -> u64 {
        let honest = self.block.read(offset);
        self.answers.get(&offset).copied().unwrap_or(honest)
    }

    fn write(&mut self, offset: u64, value: u64) {
        self.block.write(offset, value);
    }
}

fn hostile(answers: &[(u64, u64)]) -> Hostile {
    let block = Block::new(Capabilities::default(), MEMORY).expect("it is possible");
    Hostile { block, answers: answers.iter().copied().collect() }
}

#[test]
fn a_broken_device_is_an_error_and_no_panic() {
    let made = |answers: &[(u64, u64)]| Driver::new(hostile(answers), START, MEMORY);
    let kind = |error: tierscope_core::Error| error.kind();
    assert_eq!(made(&[(0, 0)]).map(drop).map_err(kind), Err(ErrorKind::Version));
    assert_eq!(made(&[(0, 1)]).map(drop).map_err(kind), Err(ErrorKind::Missing));
    let enabled = |answers: &[(u64, u64)]| made(answers).expect("it is there").enable(&program());
    let at = |register: u64| registers::INSTANCE + register;
    let busy = registers::IN_PROGRESS.with(3);
    assert_eq!(enabled(&[(at(registers::STATUS), busy)]).map_err(kind), Err(ErrorKind::Busy));
    let short = [(at(registers::HOTLIST_OFFSET), registers::BITMAP)];
    assert_eq!(enabled(&short).map_err(kind), Err(ErrorKind::Missing));
    for status in [0, registers::COUNTER_WIDTH.with(255)] {
        let _ = enabled(&[(at(registers::STATUS), status)]);
    }
    let drained = |answers: &[(u64, u64)]| {
        let mut driver = made(&[]).expect("it is there");
        driver.enable(&program()).expect("it can");
        driver.registers_mut().answers = answers.iter().copied().collect();
        driver.drain(usize::MAX, &mut Vec::<HotUnit>::new()).map_err(kind)
    };
    assert_eq!(drained(&[(at(registers::POINTERS), 0xffff_0000)]), Err(ErrorKind::Data));
    let one = registers::TAIL.with(1);
    let entry = at(registers::BITMAP + 8);
    let out = [(at(registers::POINTERS), one), (entry, u64::MAX)];
    assert_eq!(drained(&out), Err(ErrorKind::Data));
    assert_eq!(drained(&[(at(registers::POINTERS), one), (entry, 255 << 16 | 7)]), Ok(()));
    let mut idle = made(&[]).expect("it is there");
    assert_eq!(idle.drain(1, &mut Vec::new()).map_err(kind), Err(ErrorKind::Usage));
}

proptest! {
    // With a counter for each unit and room in the list, an epoch's report is a naive count.
    #[test]
    fn an_epoch_s_report_is_a_naive_count(
        mut requests in prop::collection::vec((0u64..400, 0u64..256, any::<bool>()), 0..600),
        threshold in 1u32..5,
        saving in any::<bool>(),
    ) {
        requests.sort_unstable();
        let allocation = if saving { Allocation::SpaceSaving } else { Allocation::FirstTouch };
        let capabilities = Capabilities { allocation, ..Capabilities::default() };
        let mut driver = running(capabilities, HotProgram { threshold, ..program() });
        request(&mut driver, &requests);
        let mut reported = hot(&mut driver, 400);
        let mut naive: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for (millis, unit, _) in &requests {
            *naive.entry((millis / 100, *unit)).or_default() += 1;
        }
        let mut expected: Vec<(u64, u64)> = naive
            .iter()
            .filter(|(_, count)| **count >= u64::from(threshold))
            .map(|((_, unit), count)| (*unit, *count))
            .collect();
        reported.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(reported, expected);
        prop_assert_eq!((driver.overflows(), driver.registers().uncounted()), (0, 0));
    }

    // Without epochs every request is reported or still counted: threshold times the reports, and
    // less than the threshold of each unit.
    #[test]
    fn always_on_reports_a_unit_once_in_a_threshold(
        requests in prop::collection::vec((0u64..400, 0u64..16, any::<bool>()), 0..600),
        threshold in 1u32..9,
    ) {
        let always = HotProgram { reporting: Reporting::AlwaysOn, threshold, ..program() };
        let mut driver = running(Capabilities::default(), always);
        request(&mut driver, &requests);
        let mut reports: BTreeMap<u64, u64> = BTreeMap::new();
        for (unit, count) in hot(&mut driver, 400) {
            prop_assert_eq!(count, u64::from(threshold));
            *reports.entry(unit).or_default() += 1;
        }
        for unit in 0..16 {
            let all = requests.iter().filter(|(_, other, _)| *other == unit).count() as u64;
            let found = reports.get(&unit).copied().unwrap_or(0);
            prop_assert_eq!(found, all / u64::from(threshold));
        }
    }

    // Any registers, programmed anyhow: no panic, and entries stay within the device.
    #[test]
    fn no_registers_make_it_panic(
        writes in prop::collection::vec((0u64..3000, any::<u64>()), 0..60),
        requests in prop::collection::vec((any::<u64>(), 0..MEMORY, any::<bool>()), 0..100),
    ) {
        let mut block = Block::new(Capabilities::default(), MEMORY).unwrap();
        for (index, (offset, value)) in writes.iter().enumerate() {
            block.write(offset * 8, *value);
            if let Some((time, address, write)) = requests.get(index) {
                block.request(Time(time >> 1), *address, *write);
            }
            block.read(offset * 8);
        }
    }
}
