//! All reports of what a power cut or a kill -9 leaves, at any step of a recorder.

use tierscope_core::{ErrorKind, Result};
use tierscope_record::{Memory, Recording};
use tierscope_report::metrics::Collector;
use tierscope_report::{Grid, RegionsOptions, View, ages, heatmap, html, regions, summary, wss};

use power::{LOSSES, frames, left, steps};

#[path = "../../../record/tests/recording/power.rs"]
mod power;

/// The number of windows that a summary counts, if all reports can be made.
fn reported(recording: &Recording) -> Result<u64> {
    let view = View::default();
    let mut collector = Collector::default();
    collector.begin();
    collector.advance(recording);
    collector.render(recording)?;
    heatmap(recording, &view, Grid::for_terminal(80, 30))?;
    regions(recording, &view, &RegionsOptions::default())?;
    wss(recording, &view)?;
    ages(recording, &view)?;
    html::page(recording, &html::Options::default(), html::Data::Inline)?;
    Ok(summary(recording, &view)?.windows)
}

fn open(memory: Memory) -> Result<Recording> {
    Recording::from_source(Box::new(memory))
}

#[test]
fn all_reports_end_at_the_last_whole_window() {
    let frames = frames();
    let steps = steps(&frames);
    let mut counts = Vec::new();
    for end in 0..=steps.len() {
        for loss in LOSSES {
            let (left, promised) = left(&steps[..end], loss);
            let found = open(left).and_then(|recording| {
                let windows = recording.commits().len() as u64;
                reported(&recording).inspect(|counted| assert_eq!(*counted, windows))
            });
            match found {
                Ok(windows) => counts.push(windows),
                // Nothing was recorded yet, or nothing of it is left.
                Err(e) => {
                    assert!(promised == 0 && e.kind() == ErrorKind::Data, "{end} {loss:?}: {e}")
                }
            }
        }
    }
    counts.sort_unstable();
    counts.dedup();
    assert_eq!(counts, (1..=frames.len() as u64).collect::<Vec<_>>());
}
