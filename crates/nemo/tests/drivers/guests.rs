//! A guest sees its own memory and nothing else.

use proptest::prelude::*;
use tierscope_core::{
    BusObserver, Counters, Key, Operand, Operator, ReadEffect, RequestField, RequestKind, Rule,
    RuleLimits,
};
use tierscope_nemo::driver::{Backing, GuestId};
use tierscope_nemo::{Driver, Functional};

use super::{BYTES, HUGE, finish, per_huge_page, prototype, reads};

/// Two guests of 8 huge pages each; the second one's memory is in two pieces, in reverse order.
fn two_guests() -> (Driver<Functional>, GuestId, GuestId) {
    let mut driver = prototype();
    let at = |guest: u64, host: u64, pages: u64| Backing {
        guest: guest * HUGE,
        host: host * HUGE,
        bytes: pages * HUGE,
    };
    let first = driver.admit(vec![at(0, 100, 8)], 2).unwrap();
    let second = driver.admit(vec![at(0, 204, 4), at(4, 108, 4)], 2).unwrap();
    (driver, first, second)
}

fn guests_rule() -> Rule {
    let rule = per_huge_page().matching(RequestKind::All);
    rule.finish(&RuleLimits::of_memory(8 * HUGE)).unwrap()
}

#[test]
fn a_guest_counts_its_own_pages_by_its_own_names() {
    let (mut driver, first, second) = two_guests();
    let mut ids = Vec::new();
    for guest in [first, second] {
        let mut view = driver.guest(guest).unwrap();
        let id = view.register(&guests_rule()).unwrap();
        (0..8).for_each(|key| view.translate(id, key, Some(key as u32)).unwrap());
        ids.push(id);
    }
    // n requests to host page 100 + n, and one to 206.
    let batch = (0..16u64).flat_map(|page| (0..page).map(move |n| (100 + page) * HUGE + n * 64));
    driver.observe(&reads(batch.chain([206 * HUGE])));
    let mut states = [0; 8];
    driver.guest(first).unwrap().read(ids[0], &mut states).unwrap();
    assert_eq!(states, [0, 1, 2, 3, 4, 5, 6, 7]);
    driver.guest(second).unwrap().read(ids[1], &mut states).unwrap();
    assert_eq!(states, [0, 0, 1, 0, 8, 9, 10, 11]);
    // The number is invalid for the other guest and for the host.
    let foreign = driver.guest(second).unwrap().read(ids[0], &mut states).unwrap_err();
    assert!(foreign.to_string().contains("there is no telemetry"));
    assert!(driver.guest(second).unwrap().translate(ids[0], 0, None).is_err());
    assert!(driver.guest(second).unwrap().uninstall(ids[0]).is_err());
    assert!(driver.read(ids[0], &mut states).is_err());
}

#[test]
fn foreign_memory_is_refused_by_name() {
    let (mut driver, first, _) = two_guests();
    let mut view = driver.guest(first).unwrap();
    let rule = guests_rule();
    let mut why = |rule: Rule| view.register(&rule).unwrap_err().to_string();
    let operand = |field| Rule { update: (Operator::Xor, Operand::Field(field)), ..rule };
    assert!(why(operand(RequestField::Address)).contains("`update.operand`"));
    assert!(why(operand(RequestField::Requester)).contains("`update.operand`"));
    assert!(why(Rule { key: Key { mask: 3 * HUGE, shift: 21 }, ..rule }).contains("`key.mask`"));
    assert!(why(Rule { key: Key::NONE, ..rule }).contains("`key.mask`"));
    let far = Rule { filter: tierscope_core::Filter { end: 9 * HUGE, ..rule.filter }, ..rule };
    assert!(why(far).contains("`filter.end`"));
    let wide = Rule { key: Key { mask: u64::MAX, shift: 23 }, ..rule };
    let id = view.register(&wide).unwrap();
    // Four consecutive huge pages begin at guest page 0 and at host page 100: both are multiples of
    // 4.
    view.translate(id, 1, Some(0)).unwrap();
    let mut why = |key| view.translate(id, key, Some(0)).unwrap_err().to_string();
    assert!(why(2).contains("refused at `key`") && why(2).contains("foreign"));
    assert!(why(u64::MAX).contains("out of range"));
    let mut all = prototype();
    let odd = Backing { guest: 0, host: 101 * HUGE, bytes: 8 * HUGE };
    let odd = all.admit(vec![odd], 2).unwrap();
    let mut view = all.guest(odd).unwrap();
    let id = view.register(&wide).unwrap();
    assert!(view.translate(id, 0, Some(0)).unwrap_err().to_string().contains("unaligned"));
}

#[test]
fn guests_share_no_memory_and_no_more_than_their_quota() {
    let (mut driver, first, second) = two_guests();
    let mut why = |guest, host, bytes| {
        driver.admit(vec![Backing { guest, host, bytes }], 1).unwrap_err().to_string()
    };
    assert!(why(0, 103 * HUGE, HUGE).contains("`memory.host`"));
    assert!(why(0, BYTES - HUGE, 2 * HUGE).contains("`memory.host`"));
    assert!(why(5, 0, HUGE).contains("unaligned") && why(0, 0, 0).contains("`memory`"));
    let twice = [0, 8].map(|page| Backing { guest: 0, host: page * HUGE, bytes: HUGE });
    assert!(driver.admit(twice.to_vec(), 1).unwrap_err().to_string().contains("`memory.guest`"));
    let free = driver.free();
    let mut view = driver.guest(first).unwrap();
    let ids: Vec<_> = (0..2).map(|_| view.register(&guests_rule()).unwrap()).collect();
    let full = view.register(&guests_rule()).unwrap_err().to_string();
    assert!(full.contains("2 of the guest's 2 are in use"), "{full}");
    view.uninstall(ids[0]).unwrap();
    view.register(&guests_rule()).unwrap();
    driver.dismiss(first).unwrap();
    assert!(driver.guest(first).is_err() && driver.dismiss(first).is_err());
    driver.dismiss(second).unwrap();
    assert_eq!(driver.free(), free, "nothing of theirs is left");
    driver.register(&finish(per_huge_page())).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Requests to foreign memory never reach a guest's states, whatever it installs.
    #[test]
    fn no_foreign_request_is_ever_counted(
        shift in 12..24u8, sub in 0..1u64 << 22, low in 6..20u8,
        entries in prop::collection::vec((0..5000u64, 0..4096u32), 1..60),
        shift_host in 0..4u64, foreign in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        let mut driver = prototype();
        let backing = Backing { guest: 4096, host: 50 * HUGE + shift_host * 4096, bytes: 6 * HUGE };
        let id = driver.admit(vec![backing], 8).unwrap();
        let rule = Rule::build().key(Key::ALL_MEMORY, shift).offset(sub, low);
        let rule = rule.on_read(ReadEffect::Reset(0)).finish(&RuleLimits::of_memory(4096 + 6 * HUGE));
        let Ok(rule) = rule else { return Ok(()) };
        let mut view = driver.guest(id).unwrap();
        let states = rule.states_per_key() * 4;
        let Ok(rule) = view.register_states(&rule, states) else { return Ok(()) };
        for (key, index) in entries {
            let _ = view.translate(rule, key, Some(index % states as u32));
        }
        let own = |address: &u64| (backing.host..backing.host + backing.bytes).contains(address);
        let near = foreign.iter().flat_map(|n| [n % BYTES, 49 * HUGE + n % (9 * HUGE)]);
        let batch: Vec<u64> = near.filter(|address| !own(address)).collect();
        driver.observe(&reads(batch));
        let mut seen = vec![0; states as usize];
        driver.guest(id).unwrap().read(rule, &mut seen).unwrap();
        prop_assert!(seen.iter().all(|state| *state == 0));
    }
}
