//! Heat read from tiles equals heat read from windows.

use crate::common::{open, record};
use tierscope_core::{Range, Region, Rng, Snapshot, SpaceId, Time};
use tierscope_record::{Frame, Heat};

const PAGE: u64 = 4096;

/// 100 windows of 32 regions of 8 pages.
fn hundred() -> Vec<Frame> {
    let mut rng = Rng::seeded(3);
    let mut frame = |window: u64| {
        let region = |index: u64| {
            Region::sampled(
                Range::new(SpaceId(0), index * 8 * PAGE, (index + 1) * 8 * PAGE),
                rng.below(41) as f32,
                40,
            )
        };
        let regions = (0..32).map(region).collect();
        let (start, end) = (Time(window * 200), Time(window * 200 + 200));
        let snapshot = Snapshot { start, end, samples: 40, regions };
        let (actions, outcomes) = (Vec::new(), Vec::new());
        Frame { snapshot, mappings: None, actions, outcomes, cpu: Default::default() }
    };
    (0..100).map(&mut frame).collect()
}

/// Frequency of the byte at `at`, summed over time.
fn total(pieces: &[Heat], at: u64) -> f64 {
    let part = |heat: &Heat| {
        let part = heat.parts.iter().find(|p| p.range.start <= at && at < p.range.end)?;
        Some(part.heat * part.seen * (heat.time.end.0 - heat.time.start.0) as f64)
    };
    pieces.iter().filter_map(part).sum()
}

#[test]
fn heat_of_any_range_at_any_zoom() {
    let recording = open(&record(&hundred(), false)).unwrap();
    let read = |windows, coarsest| {
        let mut pieces = Vec::new();
        recording
            .heat(windows, coarsest, |heat| {
                pieces.push(heat);
                Ok(())
            })
            .unwrap();
        pieces
    };
    for windows in [0..100, 3..97, 64..72, 99..100] {
        let exact = read(windows.clone(), 0);
        assert_eq!(exact.len(), windows.len());
        for coarsest in 1..4 {
            let pieces = read(windows.clone(), coarsest);
            assert_eq!(pieces[0].time.start, exact[0].time.start);
            assert_eq!(pieces[pieces.len() - 1].time.end, exact[exact.len() - 1].time.end);
            for page in 0..256 {
                let (a, b) = (total(&exact, page * PAGE), total(&pieces, page * PAGE));
                let time = windows.len() as f64 * 200.0;
                // Heat is quantised to 1/255, with a rounding at each zoom.
                assert!((a - b).abs() <= time * 3.0 / 510.0, "page {page}: {a} and {b}");
            }
        }
    }
    let whole = read(0..100, 20);
    assert_eq!(whole.len(), 1 + 4 + 4, "a tile of 64 windows, four of 8, four windows");
}
