//! The working set as SVG: its distribution over windows, and its size over time.

use tierscope_core::units;

use super::frame::{Frame, HEIGHT, WIDTH};
use super::{Anchor, Svg};
use crate::footprint::Point;
use crate::wss::Wss;

const LEGEND: [(&str, &str); 2] = [("warm", "accessed"), ("hot", "hot")];

/// Distribution of the working set, and its size over time, as an SVG file for white paper.
#[must_use]
pub fn wss(wss: &Wss) -> String {
    const TITLE: f64 = 44.0;
    let mut svg = Svg::new(WIDTH, TITLE + 2.0 * HEIGHT, &wss.title());
    svg.text(12.0, 16.0, Anchor::Start, "head", &wss.title());
    svg.text(12.0, 32.0, Anchor::Start, "faint", &wss.definition());
    draw_distribution(&mut svg, wss, TITLE);
    draw_course(&mut svg, &wss.over_time, TITLE + HEIGHT);
    svg.file()
}

/// Distribution as an element of the page: the bytes that each share of the windows does not
/// exceed.
pub(crate) fn distribution(wss: &Wss) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Working set: distribution over windows");
    draw_distribution(&mut svg, wss, 0.0);
    svg.element()
}

/// Bytes accessed and hot over time, as an element of the page.
pub(crate) fn course(points: &[Point]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Bytes accessed and hot over time");
    draw_course(&mut svg, points, 0.0);
    svg.element()
}

/// Bytes mapped and resident over time, as an element of the page.
pub(crate) fn mapped(points: &[Point]) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Bytes mapped over time");
    let most = points.iter().map(|p| p.mapped_bytes.max(p.resident_bytes.unwrap_or(0)));
    let frame = Frame::new(0.0, span(points), most.max().unwrap_or(0));
    frame.draw_bytes(&mut svg);
    frame.draw_times(&mut svg);
    draw_line(&mut svg, &frame, points, "mapped-line", |p| Some(p.mapped_bytes));
    draw_line(&mut svg, &frame, points, "cold-line", |p| p.resident_bytes);
    let known = points.iter().any(|point| point.resident_bytes.is_some());
    let legend = [("mapped", "mapped"), ("cold", "resident")];
    frame.draw_legend(&mut svg, &legend[..if known { 2 } else { 1 }]);
    svg.element()
}

fn draw_distribution(svg: &mut Svg, wss: &Wss, top: f64) {
    let most = wss.percentiles.last().map_or(0, |row| row.accessed_bytes.max(row.hot_bytes));
    let frame = Frame::new(top, (0.0, 100.0), most);
    frame.draw_bytes(svg);
    frame.draw_percents(svg, "windows that do not exceed it");
    let rows = || wss.percentiles.iter();
    let x = |percent: u8| frame.x(percent.into());
    svg.path(rows().map(|row| (x(row.percent), frame.y(row.accessed_bytes))), "warm-line");
    svg.path(rows().map(|row| (x(row.percent), frame.y(row.hot_bytes))), "hot-line");
    for row in wss.shown() {
        let [accessed, hot] = [row.accessed_bytes, row.hot_bytes].map(units::about_size);
        let hint = format!("{} % of the windows: accessed {accessed}, hot {hot}", row.percent);
        for (bytes, class) in [(row.accessed_bytes, "warm"), (row.hot_bytes, "hot")] {
            svg.bar((x(row.percent) - 2.5, frame.y(bytes) - 2.5), (5.0, 5.0), class, &hint);
        }
    }
    frame.draw_legend(svg, &LEGEND);
}

fn draw_course(svg: &mut Svg, points: &[Point], top: f64) {
    let most = |point: &Point| point.accessed_bytes.max(point.hot_max).max(point.unknown_bytes);
    let most = points.iter().map(most);
    let frame = Frame::new(top, span(points), most.max().unwrap_or(0));
    frame.draw_bytes(svg);
    frame.draw_times(svg);
    draw_band(svg, &frame, points);
    draw_line(svg, &frame, points, "warm-line", |p| Some(p.accessed_bytes));
    draw_line(svg, &frame, points, "hot-line", |p| Some(p.hot_bytes));
    draw_line(svg, &frame, points, "unknown-line", |p| Some(p.unknown_bytes));
    let legend = [
        ("warm", "accessed"),
        ("hot", "hot"),
        ("band", "hot, least to most"),
        ("unknown", "unknown"),
    ];
    frame.draw_legend(svg, &legend);
}

pub(super) fn span(points: &[Point]) -> (f64, f64) {
    let ends = points.first().zip(points.last());
    ends.map_or((0.0, 1.0), |(first, last)| (first.from_ns as f64, last.to_ns as f64))
}

pub(super) fn middle(point: &Point) -> f64 {
    (point.from_ns as f64 + point.to_ns as f64) / 2.0
}

fn draw_line(
    svg: &mut Svg,
    frame: &Frame,
    points: &[Point],
    class: &str,
    of: impl Fn(&Point) -> Option<u64>,
) {
    let place = |point: &Point| Some((frame.x(middle(point)), frame.y(of(point)?)));
    svg.path(points.iter().filter_map(place), class);
}

fn draw_band(svg: &mut Svg, frame: &Frame, points: &[Point]) {
    let above = points.iter().map(|p| (frame.x(middle(p)), frame.y(p.hot_max)));
    let below = points.iter().rev().map(|p| (frame.x(middle(p)), frame.y(p.hot_min)));
    svg.area(above.chain(below), "band");
}
