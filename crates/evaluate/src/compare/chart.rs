//! A comparison over time, as an SVG chart.

use std::fmt::Write;

use super::{Comparison, Row};
use crate::plot::{Plot, WIDTH};

const HEIGHT: f64 = 320.0;
const RIGHT: f64 = 20.0;

type Series = (&'static str, &'static str, fn(&Row) -> Option<f64>);

/// The lines, with colours that readers with colour blindness can distinguish (Okabe and Ito).
const SERIES: [Series; 3] = [
    ("precision", "#0072b2", |row| row.figures.region.precision),
    ("recall", "#009e73", |row| row.figures.region.recall),
    ("false-hot share", "#d55e00", |row| row.figures.region.false_hot_share),
];

/// Draws precision, recall and false-hot share (cut off at 1) of each window, with the hot-set
/// changes marked.
pub fn draw(comparison: &Comparison) -> String {
    let end = comparison.windows.last().map_or(1.0, |row| row.end_seconds);
    let title = format!("{} on {}", comparison.instrument, comparison.target);
    let mut plot = Plot::new(&title, HEIGHT, RIGHT, end);
    for detection in &comparison.detections {
        plot.change(detection.from_seconds, Some(&detection.cause));
    }
    for (index, (name, colour, of)) in SERIES.iter().enumerate() {
        for run in comparison.windows.split(|row| of(row).is_none()).filter(|run| !run.is_empty()) {
            let points = run.iter().filter_map(|row| Some((row.end_seconds, of(row)?)));
            let points = plot.points(points);
            // Writing to a string cannot fail.
            let _ = writeln!(
                plot.svg,
                r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="square"/>"#
            );
        }
        let at = WIDTH - 360.0 + 120.0 * index as f64;
        let _ = writeln!(plot.svg, r#"<text x="{at}" y="16" fill="{colour}">{name}</text>"#);
    }
    plot.finish()
}
