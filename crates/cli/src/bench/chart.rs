//! Outcomes over time, as SVG, and as a page.

use std::fmt::Write;

use super::{Outcome, Report};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 170.0;
const BOTTOM: f64 = 40.0;

/// Colours of contenders (Okabe and Ito's, told apart by everybody), then the same dashed.
const COLOURS: [&str; 7] =
    ["#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// F1 of each contender over simulated time, with the changes of the hot set.
pub(super) fn draw(report: &Report) -> String {
    let end = report.seconds.max(1e-9);
    let x = |seconds: f64| LEFT + (seconds / end).min(1.0) * (WIDTH - LEFT - RIGHT);
    let y = |share: f64| HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="16">F1 over simulated time: {}</text>"#,
        escaped(&report.about)
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
    for detection in report.outcomes.first().map_or(&[][..], |outcome| &outcome.detections[1..]) {
        let at = x(detection.from_seconds);
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{}" stroke="#888" stroke-dasharray="4 3"/>"##,
            HEIGHT - BOTTOM
        );
    }
    for (index, outcome) in report.outcomes.iter().enumerate() {
        line(&mut svg, index, outcome, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn line(
    svg: &mut String,
    index: usize,
    outcome: &Outcome,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let colour = COLOURS[index % COLOURS.len()];
    let dash = if index < COLOURS.len() { "" } else { r#" stroke-dasharray="5 3""# };
    let points = outcome.windows.iter().map(|row| (x(row.end_seconds), y(row.f1().unwrap_or(0.0))));
    let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let at = TOP + 16.0 * index as f64;
    let from = WIDTH - RIGHT + 14.0;
    let _ = writeln!(
        svg,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>
<line x1="{from}" x2="{}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="2"{dash}/><text x="{}" y="{}">{}</text>"#,
        points.join(" "),
        from + 24.0,
        from + 30.0,
        at + 4.0,
        escaped(&outcome.contender)
    );
}

/// A page of all scenarios, without outside assets.
pub(super) fn page(reports: &[Report]) -> String {
    let mut html = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tierscope bench accuracy</title>\n\
         <style>body{font-family:sans-serif;max-width:60rem;margin:2rem auto}table{border-collapse:collapse}\
         td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child\
         {text-align:left}svg{width:100%}</style></head><body>\n<h1>Accuracy of instruments, simulated</h1>\n",
    );
    for report in reports {
        section(&mut html, report);
    }
    html.push_str("</body></html>\n");
    html
}

fn section(html: &mut String, report: &Report) {
    let _ = writeln!(
        html,
        "<h2>{}</h2>\n<p>{}. {} s by densities, seed {}. {}</p>\n<table><tr><th></th><th>precision</th>\
         <th>recall</th><th>F1</th><th>false-hot</th><th>detected</th><th>profiler CPU (simulated)</th></tr>",
        escaped(&report.scenario),
        escaped(&report.about),
        report.seconds,
        report.seed,
        escaped(&report.source)
    );
    for outcome in &report.outcomes {
        let quoted = outcome.quoted();
        let shares = [quoted.precision, quoted.recall, quoted.f1, quoted.false_hot_share];
        let cells = shares.map(|s| s.map_or("–".into(), |s| format!("{s:.3}"))).join("</td><td>");
        let detected = outcome.slowest_detection().map_or("never".into(), |s| format!("{s:.2} s"));
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{cells}</td><td>{detected}</td><td>{:.3} %</td></tr>",
            escaped(&outcome.contender),
            outcome.profiler_cpu * 100.0
        );
    }
    let _ = writeln!(html, "</table>\n{}", draw(report));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
