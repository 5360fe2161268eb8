//! Hints, confirmed over all controllers.

use tierscope_core::{BusObserver, BusRecord, Compare, Counters, Notice, Time};
use tierscope_nemo::driver::{Alert, StateMapping};
use tierscope_nemo::{Driver, Functional, Memory, Zone};

use super::{HUGE, finish, per_huge_page};

/// Listing 3 on four controllers interleaved by 256 bytes: two tenants with a cap of 800.
fn tenants() -> (Driver<Functional>, tierscope_core::RuleId) {
    let zone = Zone { start: 0, end: 1 << 30, first: 0, controllers: 4, granule: 256 };
    let memory = Memory::new(vec![zone], 2).unwrap();
    let mut driver = Driver::new(Functional::new(memory, 2, 16).unwrap());
    let id = driver.register_states(&finish(per_huge_page().notify(Compare::AtLeast, 800)), 2);
    let id = id.unwrap();
    driver.translate_range(id, 0, 10 * HUGE, StateMapping::One(0)).unwrap();
    driver.translate_range(id, 10 * HUGE, 20 * HUGE, StateMapping::One(1)).unwrap();
    (driver, id)
}

fn lines(from: u64, count: u64) -> Vec<BusRecord> {
    (from..from + count).map(|line| BusRecord::new(Time(line), line * 64, true)).collect()
}

fn alerts(driver: &mut Driver<Functional>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    driver.dispatch(|alert| alerts.push(alert)).unwrap();
    alerts
}

// 800 lines interleaved over 4 controllers and 2 channels: 100 in each bank, which is its share of
// the threshold.
#[test]
fn the_cap_raises_an_alert_exactly_when_it_is_reached() {
    let (mut driver, id) = tenants();
    driver.observe(&lines(0, 799));
    assert_eq!(alerts(&mut driver), []);
    driver.observe(&lines(799, 1));
    let raised = alerts(&mut driver);
    assert_eq!(raised.len(), 1);
    assert_eq!((raised[0].rule, raised[0].state, raised[0].value), (id, 0, 800));
    assert_eq!(alerts(&mut driver), [], "one alert each");
    driver.read(id, &mut [0; 2]).unwrap();
    driver.observe(&lines(0, 799));
    assert_eq!(alerts(&mut driver), [], "reset");
}

// All requests in one channel: its bank raises a hint at its share of 100, which confirmation
// rejects.
#[test]
fn a_hint_is_no_alert_until_it_is_confirmed() {
    let (mut driver, id) = tenants();
    let one_bank = |count: u64| -> Vec<BusRecord> {
        (0..count).map(|n| BusRecord::new(Time(n), 12 * HUGE + n * 1024, false)).collect()
    };
    driver.observe(&one_bank(150));
    let mut hints: Vec<Notice> = Vec::new();
    driver.notifications(&mut hints);
    assert_eq!(hints, [Notice { rule: id, time: Time(99) }], "the hundredth of that bank");
    driver.observe(&one_bank(150));
    assert_eq!(alerts(&mut driver), []);
    driver.observe(&one_bank(500));
    let raised = alerts(&mut driver);
    assert_eq!((raised[0].state, raised[0].value), (1, 800));
}

// Six of nine huge pages exceed the cap between two reads: each bank names one, and counts the
// others.
#[test]
fn no_hint_is_lost() {
    let memory = Memory::single(1 << 30, 2).unwrap();
    let mut driver = Driver::new(Functional::new(memory, 2, 16).unwrap());
    let rule = finish(per_huge_page().notify(Compare::Above, 7));
    let id = driver.register_states(&rule, 100).unwrap();
    driver.translate_range(id, 0, 100 * HUGE, StateMapping::Each(0)).unwrap();
    let batch: Vec<_> = (0..9).flat_map(|page| lines(page * HUGE / 64, 2 + 2 * page)).collect();
    driver.observe(&batch);
    let raised: Vec<_> =
        alerts(&mut driver).iter().map(|alert| (alert.state, alert.value)).collect();
    assert_eq!(raised, [(3, 8), (4, 10), (5, 12), (6, 14), (7, 16), (8, 18)]);
}
