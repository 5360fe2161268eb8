//! A comparison over time, as SVG.

use std::fmt::Write;

use super::{Comparison, Row};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 20.0;
const BOTTOM: f64 = 40.0;

type Series = (&'static str, &'static str, fn(&Row) -> Option<f64>);

/// What is drawn, with its colour (Okabe and Ito's, told apart by everybody).
const SERIES: [Series; 3] = [
    ("precision", "#0072b2", |row| row.figures.region.precision),
    ("recall", "#009e73", |row| row.figures.region.recall),
    ("false-hot share", "#d55e00", |row| row.figures.region.false_hot_share),
];

/// Precision, recall and false-hot share (cut at 1) of each window, with the changes as lines.
pub(super) fn draw(comparison: &Comparison) -> String {
    let end = comparison.windows.last().map_or(1.0, |row| row.end_seconds).max(1e-9);
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    let y = |share: f64| HEIGHT - BOTTOM - share.min(1.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="16">{} on {}</text>"#,
        escaped(&comparison.instrument),
        escaped(&comparison.target)
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" x2="{}" y1="{at:.1}" y2="{at:.1}" stroke="#ddd"/><text x="{}" y="{:.1}" text-anchor="end">{share}</text>"##,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for tenth in 0..=10 {
        let seconds = end * f64::from(tenth) / 10.0;
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{}" text-anchor="middle">{seconds:.1} s</text>"#,
            x(seconds),
            HEIGHT - 20.0
        );
    }
    for detection in &comparison.detections {
        let at = x(detection.from_seconds);
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{}" stroke="#888" stroke-dasharray="4 3"/><text x="{:.1}" y="{}" fill="#666">{}</text>"##,
            HEIGHT - BOTTOM,
            at + 3.0,
            TOP - 6.0,
            escaped(&detection.cause)
        );
    }
    for (index, (name, colour, of)) in SERIES.iter().enumerate() {
        for run in comparison.windows.split(|row| of(row).is_none()).filter(|run| !run.is_empty()) {
            let points = run.iter().filter_map(|row| Some((x(row.end_seconds), y(of(row)?))));
            let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-linecap="square"/>"#,
                points.join(" ")
            );
        }
        let at = WIDTH - 360.0 + 120.0 * index as f64;
        let _ = writeln!(svg, r#"<text x="{at}" y="16" fill="{colour}">{name}</text>"#);
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
