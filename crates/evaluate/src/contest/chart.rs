//! Results of policies over time, as SVG charts, and as an HTML page.

use std::fmt::Write;

use tierscope_core::units::about_size;
use tierscope_report::svg::{LineChart, escaped, paper_css};

use super::{Outcome, Report, Row, percent};

const HEIGHT: f64 = 320.0;
/// Right margin for the policies' names.
const RIGHT: f64 = 220.0;

/// Extracts the plotted value from a row, as a share of 1; `None` leaves a gap.
type Share<'a> = Box<dyn Fn(&Row) -> Option<f64> + 'a>;

/// A chart: its title, and the value that it plots.
struct Drawing<'a> {
    title: String,
    share: Share<'a>,
}

/// Maximum of a value over all rows.
fn most(report: &Report, of: impl Fn(&Row) -> f64) -> f64 {
    let rows = report.outcomes.iter().flat_map(|outcome| &outcome.rows);
    rows.map(of).fold(f64::MIN_POSITIVE, f64::max)
}

fn drawings(report: &Report) -> [Drawing<'_>; 3] {
    let fastest = most(report, |row| row.operations_per_second);
    let promoted = most(report, |row| row.promoted_bytes as f64);
    let unit = report.outcomes.first().map_or("operations", |outcome| outcome.unit.as_str());
    [
        Drawing {
            title: format!("{unit} a second over simulated time, 1 = {fastest:.0}"),
            share: Box::new(move |row| Some(row.operations_per_second / fastest)),
        },
        Drawing {
            title: "fast-tier share over simulated time".into(),
            share: Box::new(|row| row.fast_tier_share),
        },
        Drawing {
            title: format!(
                "promoted so far over simulated time, 1 = {}",
                about_size(promoted as u64)
            ),
            share: Box::new(move |row| Some(row.promoted_bytes as f64 / promoted)),
        },
    ]
}

fn charts(report: &Report) -> Vec<LineChart> {
    drawings(report).iter().map(|drawing| chart(report, drawing)).collect()
}

fn chart(report: &Report, drawing: &Drawing<'_>) -> LineChart {
    let mut chart = LineChart::over_time(&drawing.title, HEIGHT, RIGHT, report.seconds);
    if report.warm_up_seconds > 0.0 {
        chart.change(report.warm_up_seconds, None);
    }
    for (index, outcome) in report.outcomes.iter().enumerate() {
        let points =
            outcome.rows.iter().filter_map(|row| Some((row.end_seconds, (drawing.share)(row)?)));
        chart.line(index, points);
        chart.name(index, &outcome.policy);
    }
    chart
}

/// Draws throughput, fast-tier share and promoted bytes, one chart below the other.
pub fn draw(report: &Report) -> String {
    LineChart::stack(&format!("{} over simulated time", report.experiment), &charts(report))
}

/// A page of all reports, without external assets.
pub fn page(reports: &[Report]) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tierscope sim tier</title>\n\
         <style>body{{font-family:sans-serif;max-width:70rem;margin:2rem auto}}table{{border-collapse:collapse}}\
         td,th{{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #ddd}}td:first-child,th:first-child\
         {{text-align:left}}svg{{width:100%;height:auto}}\n{}{}</style></head><body>\n<h1>Placement policies, simulated</h1>\n",
        paper_css(),
        LineChart::css()
    );
    for report in reports {
        section(&mut html, report);
    }
    html.push_str("</body></html>\n");
    html
}

const HEAD: [&str; 17] = [
    "",
    "a second",
    "x",
    "fast %",
    "P50 ns",
    "P95 ns",
    "P99 ns",
    "promoted",
    "demoted",
    "failed",
    "wasted",
    "to and fro",
    "re-used %",
    "looking %",
    "stolen %",
    "policy %",
    "moving %",
];

fn cells(report: &Report, outcome: &Outcome) -> Vec<String> {
    let (moves, cpu) = (&outcome.moves, &outcome.cpu);
    let over = report.over(outcome).map_or("–".into(), |over| format!("{over:.3}"));
    let mut cells = vec![
        outcome.policy.clone(),
        format!("{:.0}", outcome.operations_per_second),
        over,
        percent(outcome.fast_tier_share),
    ];
    cells.extend(outcome.latencies());
    let bytes = [
        moves.promoted_bytes,
        moves.demoted_bytes,
        moves.failed_bytes,
        moves.wasted_bytes,
        moves.ping_pong_bytes,
    ];
    cells.extend(bytes.map(about_size));
    cells.push(percent(moves.reaccess_share));
    let shares = [cpu.telemetry, cpu.interrupts, cpu.policy, cpu.mover];
    cells.extend(shares.map(|share| format!("{:.3}", share * 100.0)));
    cells
}

fn section(html: &mut String, report: &Report) {
    let row = |tag: &str, cells: &[String]| {
        let cells: Vec<String> =
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        html,
        "<h2>{}</h2>\n<p>{}. {} s, the first {} s not measured, {}, {}, seed {}. {}</p>\n<table>{}{}</table>",
        escaped(&report.experiment),
        escaped(&report.about),
        report.seconds,
        report.warm_up_seconds,
        report.mode,
        escaped(&report.hardware),
        report.seed,
        escaped(&report.source),
        row("th", &HEAD.map(str::to_owned)),
        report.outcomes.iter().map(|o| row("td", &cells(report, o))).collect::<String>()
    );
    let _ = writeln!(
        html,
        "<p>Rates are of the first process after the warm-up; x is over that of {}. Wasted: promoted and not touched \
         before it moved back or the run ended; to and fro: moved twice within 60 s. CPU is of one CPU at cited \
         costs. All simulated.</p>",
        escaped(report.reference().map_or("–", |outcome| outcome.policy.as_str()))
    );
    for chart in charts(report) {
        html.push_str(&chart.element());
    }
}
