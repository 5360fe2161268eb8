//! Random telemetries are installed and removed: none leaves resources allocated, and none sees the
//! states of an earlier one. `TIERSCOPE_REGISTRATIONS=1000000 cargo test -p tierscope-nemo --test
//! drivers leaks`.

use tierscope_core::{BusObserver, Cell, Counters, Rng, RuleId};
use tierscope_nemo::{Driver, Functional, Memory, Spec, Zone};

use super::{HUGE, finish, per_base_page, per_huge_page, reads};

const SMALL: u64 = 1 << 30;

fn registrations() -> u64 {
    let text = std::env::var("TIERSCOPE_REGISTRATIONS").unwrap_or_default();
    text.parse().unwrap_or(10_000)
}

fn two_controllers() -> Driver<Functional> {
    let zone = Zone { start: 0, end: SMALL, first: 0, controllers: 2, granule: 256 };
    let memory = Memory::new(vec![zone], 2).expect("a memory");
    Driver::new(Functional::new(memory, 6, 24).expect("an engine"))
}

fn spec(rng: &mut Rng) -> Spec {
    let pages = rng.below(2) == 0;
    let rule = finish(if pages { per_base_page() } else { per_huge_page() });
    let regions = 1 + rng.below(if pages { 40 } else { 20_000 });
    let cell = Cell::new(1 << rng.below(4), rng.below(2) == 0).expect("a width");
    Spec { rule, cell, states: Some(regions * rule.states_per_key()) }
}

#[test]
fn nothing_leaks() {
    let mut rng = Rng::seeded(85);
    let mut driver = two_controllers();
    let all_free = driver.free();
    let mut held: Vec<(RuleId, u64)> = Vec::new();
    let (mut refused, mut peak) = (0, 0);
    for round in 0..registrations() {
        let spec = spec(&mut rng);
        match driver.install(&spec) {
            Ok(id) => {
                // The previous owner of these states left neither counts nor entries.
                driver.observe(&reads([rng.below(SMALL / HUGE) * HUGE]));
                let mut first = [1; 8];
                let count = spec.states.unwrap_or(0).min(8) as usize;
                driver.read(id, &mut first[..count]).expect("its own");
                assert!(first[..count].iter().all(|state| *state == 0));
                let key = rng.below(SMALL / HUGE);
                driver.translate(id, key, Some(0)).expect("its own");
                driver.observe(&reads([key * HUGE]));
                held.push((id, key));
            }
            Err(error) => {
                assert!(error.to_string().contains("missing"), "{error}");
                refused += 1;
            }
        }
        peak = peak.max(held.len());
        while held.len() > rng.below(6) as usize {
            let (id, key) = held.swap_remove(rng.below(held.len() as u64) as usize);
            driver.uninstall(id).expect("its own");
            assert!(driver.uninstall(id).is_err() && driver.translate(id, key, None).is_err());
        }
        if held.is_empty() {
            assert_eq!(driver.free(), all_free, "round {round}");
        }
    }
    held.into_iter().for_each(|(id, _)| driver.uninstall(id).expect("its own"));
    assert_eq!(driver.free(), all_free);
    assert!(refused > 100 && peak >= 3, "{refused} refused, {peak} at once");
}
