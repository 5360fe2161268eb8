//! Counters in the memory controller of the density machine: they count the requests on the bus;
//! the driver checks which rules are allowed.

use tierscope_core::{
    ActionKind, Filter, Frames, Key, Mover, Operand, Operator, ReadEffect, RequestKind, Rule,
    RuleId, Tier,
};
use tierscope_nemo::{Driver, Functional, Memory, Zone};

use super::*;

/// A machine with eight pipelines in front of each tier.
pub(crate) fn counted(config: Config, spec: &str) -> Machine {
    let machine = machine(config, spec);
    let zone =
        |(tier, (start, end))| Zone { start, end, first: tier, controllers: 1, granule: 4096 };
    let zones = machine.physical().into_iter().enumerate().map(zone).collect();
    let engine = Functional::new(Memory::new(zones, 2).unwrap(), 8, 64).unwrap();
    machine.with_telemetry(Box::new(Driver::new(engine))).unwrap()
}

/// A counter for each of 8,192 blocks of a tier, from its first block on.
fn by_block(machine: &mut Machine, tier: usize, kind: RequestKind, bytes: u64) -> RuleId {
    let (start, end) = machine.physical()[tier];
    let filter = Filter { kind, start, end: end.min(start + 8192 * bytes) };
    let shift = bytes.trailing_zeros() as u8;
    let rule = Rule {
        filter,
        key: Key { mask: Key::ALL_MEMORY, shift },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    };
    let counters = machine.counters().unwrap();
    let id = counters.register_states(&rule, 8192.min((end - start) / bytes)).unwrap();
    let first = start / bytes;
    for key in 0..((filter.end - start) / bytes) {
        counters.translate(id, first + key, Some(key as u32)).unwrap();
    }
    id
}

fn read(machine: &mut Machine, id: RuleId, states: usize) -> Vec<u64> {
    let mut out = vec![0; states];
    machine.counters().unwrap().read(id, &mut out).unwrap();
    out
}

// 64 MiB hot of 256, half of the accesses stores, all in the first tier: the sums over all blocks'
// counters match the account's lines read and written, within six sigma of the draws.
#[test]
fn counters_count_requests_on_the_bus() {
    let mut machine = counted(config(), "contiguous:space=256MiB,hot=64MiB,at=64MiB,writes=0.5");
    let reads = by_block(&mut machine, 0, RequestKind::Read, 2 * MIB);
    let writes = by_block(&mut machine, 0, RequestKind::Write, 2 * MIB);
    let slow = by_block(&mut machine, 1, RequestKind::All, 2 * MIB);
    let before = machine.account();
    pass(&mut machine, SECOND);
    let sums = [reads, writes].map(|id| read(&mut machine, id, 128).iter().sum::<u64>() as f64);
    let after = machine.account();
    let crossed = [
        after.lines_read[0] - before.lines_read[0],
        after.lines_written[0] - before.lines_written[0],
    ];
    for (sum, crossed) in sums.into_iter().zip(crossed) {
        let crossed = crossed as f64;
        println!("counted {sum}, crossed {crossed}");
        // Registering took a little time as well.
        assert!(crossed > 1e5 && (sum / crossed - 1.0).abs() < 0.01, "{sum} {crossed}");
    }
    assert!(read(&mut machine, slow, 128).iter().all(|count| *count == 0));
    let again = read(&mut machine, reads, 128).iter().sum::<u64>();
    assert!((again as f64) < 0.01 * sums[0], "a read resets: {again}");
}

#[test]
fn hot_blocks_are_found_and_moved_pages_count_in_their_new_tier() {
    let mut machine = counted(config(), "contiguous:space=256MiB,hot=32MiB,at=64MiB");
    let all = area(&mut machine);
    let hot = Range::new(all.space, all.start + 64 * MIB, all.start + 96 * MIB);
    let mut pieces = Vec::new();
    machine.locate(&all, &mut pieces).unwrap();
    assert_eq!(pieces.len(), 1, "all of it lies in the first tier");
    assert_eq!((pieces[0].range, pieces[0].frame), (all, machine.physical()[0].0));
    let fast = by_block(&mut machine, 0, RequestKind::All, 2 * MIB);
    let slow = by_block(&mut machine, 1, RequestKind::All, 2 * MIB);
    pass(&mut machine, SECOND / 5);
    let counts = read(&mut machine, fast, 128);
    assert!(counts[32..48].iter().all(|count| *count > 100), "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), counts[32..48].iter().sum::<u64>());
    let action = tierscope_core::Action {
        id: tierscope_core::ActionId(0),
        after: None,
        range: hot,
        kind: ActionKind::Move(Tier(1)),
    };
    machine.mover().submit(&[action], tierscope_core::Budget { bytes: u64::MAX }).unwrap();
    pass(&mut machine, SECOND);
    read(&mut machine, slow, 128);
    read(&mut machine, fast, 128);
    pass(&mut machine, SECOND / 5);
    let counts = read(&mut machine, slow, 128);
    assert!(counts[32..48].iter().all(|count| *count > 100), "{counts:?}");
    assert_eq!(read(&mut machine, fast, 128).iter().sum::<u64>(), 0);
}

// Listing 1: a 4 KiB page in the middle of a huge one.
#[test]
fn pages_of_a_huge_page_have_states_of_their_own() {
    let spec = "contiguous:space=64MiB,hot=64KiB,at=16MiB,rate=1000000";
    let mut config = config();
    config.hardware.llc = None;
    let mut machine = counted(config, spec);
    let (start, end) = machine.physical()[0];
    let rule = Rule {
        filter: Filter { kind: RequestKind::All, start, end },
        key: Key { mask: Key::ALL_MEMORY, shift: 21 },
        offset: Key { mask: (2 << 20) - 1, shift: 12 },
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    };
    let counters = machine.counters().unwrap();
    let id = counters.register_states(&rule, 2 * 512).unwrap();
    counters.translate(id, (start >> 21) + 8, Some(512)).unwrap();
    pass(&mut machine, SECOND);
    let states = read(&mut machine, id, 1024);
    let used: Vec<usize> = (0..1024).filter(|state| states[*state] > 0).collect();
    assert_eq!(used, (512..528).collect::<Vec<_>>(), "16 pages from the first one on");
}

#[test]
fn rules_beyond_densities_are_refused_by_field() {
    let mut plain = machine(config(), "contiguous:space=64MiB,hot=1MiB");
    let missing = plain.counters().map(|_| ()).unwrap_err();
    assert!(missing.cause.contains("no telemetry"), "{missing:?}");
    let mut machine = counted(config(), "contiguous:space=64MiB,hot=1MiB");
    let mut why = |text: &str| {
        let rule: Rule = text.parse().unwrap();
        machine.counters().unwrap().register_states(&rule, 512).unwrap_err().to_string()
    };
    assert!(why("key all >> 21; update ^ 1").contains("`update`"));
    assert!(why("key all >> 21; update + address").contains("`update`"));
    assert!(why("key all >> 21; update + 1; notify >= 5").contains("`notify`"));
    assert!(why("key 0xff000 >> 12; update + 1").contains("`key.mask`"));
    assert!(why("key all >> 21; offset 0xf000 >> 12; update + 1").contains("`offset.mask`"));
}
