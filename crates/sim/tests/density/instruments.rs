//! Every instrument runs on the machine, unchanged.

use tierscope_conformance::instrument::Kept;
use tierscope_core::Instrument;
use tierscope_core::drive::{Course, Ended, profile};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_instruments::registry::{self, Common};

use super::counters::counted;
use super::*;

fn run(machine: &mut Machine, instrument: &mut dyn Instrument, seconds: f64) -> Kept {
    let mut kept = Kept::default();
    let course = Course::until(Time(0) + Duration::from_secs_f64(seconds));
    let ended = profile(machine, instrument, &course, &mut kept).expect("the instrument runs");
    assert_eq!(ended, Ended::Deadline);
    kept
}

fn common() -> Common {
    Common { window: Some(Duration::from_millis(200)), ..Default::default() }
}

/// Precision and recall of the last window.
fn accuracy(machine: &Machine, kept: &Kept) -> (f64, f64) {
    let last = kept.snapshots.last().expect("there are windows");
    let a = Accuracy::of(&hot(last, HOT_FREQUENCY), &machine.hot_at(Time(last.end.0 - 1)));
    (a.precision().unwrap_or(0.0), a.recall().unwrap_or(0.0))
}

// 32 MiB of 256 MiB: a size at which all of them see something, as on the toy machine.
#[test]
fn all_of_them_find_what_is_large_enough() {
    for entry in registry::list() {
        for variant in entry.variants {
            let sampling = tierscope_sim::config::Sampling::loads_and_stores(
                tierscope_sim::config::Period::PerSecond(5000),
            );
            let mut config = Config { sampling: Some(sampling), ..config() };
            if entry.name == "nemo" {
                // What a cache answers reaches no controller, and it holds most of so little.
                config.hardware.llc = None;
            }
            let spec = "contiguous:space=256MiB,hot=32MiB,at=64MiB,rate=1000000";
            let mut machine = counted(config, spec);
            let mut instrument = registry::make(entry.name, Some(variant.name), &common()).unwrap();
            let kept = run(&mut machine, &mut *instrument, 4.0);
            let (precision, recall) = accuracy(&machine, &kept);
            println!("{} {}: {precision:.3} {recall:.3}", entry.name, variant.name);
            assert!(precision >= 0.5 && recall >= 0.5, "{} {}", entry.name, variant.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_snapshots() {
    let once = |seed| {
        let spec = "stairs:space=1TiB,hot=10GiB,steps=2,every=500ms,rate=3000000";
        let mut machine = machine(Config { seed, ..config() }, spec);
        let mut rates = registry::make("rates", None, &common()).unwrap();
        run(&mut machine, &mut *rates, 1.0).snapshots
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

#[test]
fn rates_find_ten_gigabytes_in_five_terabytes() {
    let spec = "contiguous:space=5TiB,hot=10GiB,at=1234GiB,rate=3000000";
    let mut machine = machine(config(), spec);
    let mut rates = registry::make("rates", None, &common()).unwrap();
    let kept = run(&mut machine, &mut *rates, 2.0);
    let (precision, recall) = accuracy(&machine, &kept);
    assert!(precision >= 0.95 && recall >= 0.95, "{precision} {recall}");
}
