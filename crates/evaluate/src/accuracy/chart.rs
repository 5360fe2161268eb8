//! Results of contenders over time, as SVG charts, and as an HTML page.

use std::fmt::Write;

use tierscope_report::svg::{LineChart, escaped, paper_css};

use super::Report;

const HEIGHT: f64 = 360.0;
/// Right margin for the contenders' names.
const RIGHT: f64 = 170.0;

/// Draws F1 of each contender over simulated time, with changes of the hot set marked.
pub fn draw(report: &Report) -> String {
    chart(report).file()
}

fn chart(report: &Report) -> LineChart {
    let title = format!("F1 over simulated time: {}", report.about);
    let mut chart = LineChart::over_time(&title, HEIGHT, RIGHT, report.seconds);
    for detection in report.outcomes.first().map_or(&[][..], |outcome| &outcome.detections[1..]) {
        chart.change(detection.from_seconds, None);
    }
    for (index, outcome) in report.outcomes.iter().enumerate() {
        let points = outcome.windows.iter().map(|row| (row.end_seconds, row.f1().unwrap_or(0.0)));
        chart.line(index, points);
        chart.name(index, &outcome.contender);
    }
    chart
}

/// A page of all scenarios, without external assets.
pub fn page(reports: &[Report]) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tierscope bench accuracy</title>\n\
         <style>body{{font-family:sans-serif;max-width:60rem;margin:2rem auto}}table{{border-collapse:collapse}}\
         td,th{{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}}td:first-child,th:first-child\
         {{text-align:left}}svg{{width:100%;height:auto}}\n{}{}</style></head><body>\n<h1>Accuracy of instruments, simulated</h1>\n",
        paper_css(),
        LineChart::css()
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
        "<h2>{}</h2>\n<p>{}. {} s, {}, seed {}. {}</p>\n<table><tr><th></th><th>precision</th>\
         <th>recall</th><th>F1</th><th>false-hot</th><th>detected</th><th>profiler CPU</th><th>slowdown</th>\
         <th colspan=\"2\">pages of the last window</th><th colspan=\"2\">of the last ten</th></tr>",
        escaped(&report.scenario),
        escaped(&report.about),
        report.seconds,
        report.mode.how(),
        report.seed,
        escaped(&report.source)
    );
    for outcome in &report.outcomes {
        let quoted = outcome.quoted();
        let shares = [quoted.precision, quoted.recall, quoted.f1, quoted.false_hot_share];
        let cells = shares.map(|s| s.map_or("–".into(), |s| format!("{s:.3}"))).join("</td><td>");
        let detected = outcome.slowest_detection().map_or("never".into(), |s| format!("{s:.2} s"));
        let pages = outcome.pages.iter().flat_map(|shares| [shares.precision, shares.recall]);
        let pages: Vec<String> =
            pages.map(|s| s.map_or("–".into(), |s| format!("{s:.3}"))).collect();
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{cells}</td><td>{detected}</td><td>{:.3} %</td><td>{:.3} %</td><td>{}</td></tr>",
            escaped(&outcome.contender),
            outcome.profiler_cpu * 100.0,
            outcome.slowdown * 100.0,
            pages.join("</td><td>")
        );
    }
    let _ = writeln!(
        html,
        "</table>\n<p>Of pages: precision and recall against the pages touched, as many as the densities let \
         expect. CPU is of one CPU at cited costs; slowdown is of a target that nothing paces. All simulated.</p>\n{}",
        chart(report).element()
    );
}
