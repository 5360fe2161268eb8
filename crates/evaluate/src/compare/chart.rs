//! A comparison over time, as an SVG chart.

use tierscope_report::svg::LineChart;

use super::{Comparison, Row};

const HEIGHT: f64 = 320.0;
/// Right margin for the names of the lines.
const RIGHT: f64 = 150.0;

type Series = (&'static str, fn(&Row) -> Option<f64>);

const SERIES: [Series; 3] = [
    ("precision", |row| row.figures.region.precision),
    ("recall", |row| row.figures.region.recall),
    ("false-hot share", |row| row.figures.region.false_hot_share),
];

/// Draws precision, recall and false-hot share (cut off at 1) of each window, with the hot-set
/// changes marked.
pub fn draw(comparison: &Comparison) -> String {
    let end = comparison.windows.last().map_or(1.0, |row| row.end_seconds);
    let title = format!("{} on {}", comparison.instrument, comparison.target);
    let mut chart = LineChart::over_time(&title, HEIGHT, RIGHT, end);
    for detection in &comparison.detections {
        chart.change(detection.from_seconds, Some(&detection.cause));
    }
    for (index, (name, of)) in SERIES.iter().enumerate() {
        for run in comparison.windows.split(|row| of(row).is_none()).filter(|run| !run.is_empty()) {
            let points = run.iter().filter_map(|row| Some((row.end_seconds, of(row)?)));
            chart.line(index, points);
        }
        chart.name(index, name);
    }
    chart.file()
}
