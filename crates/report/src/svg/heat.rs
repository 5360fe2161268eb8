//! The heatmap as SVG.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use tierscope_core::metrics::HOT_FREQUENCY;

use super::{Anchor, Svg, short, tick_time, time_ticks};
use crate::heatmap::{Area, Cell, Heatmap, Row, UNKNOWN_MEANS, left_out_text};
use crate::ramp;
use tierscope_core::units;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 122.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 94.0;
const ROW: f64 = 5.0;
/// Pixels between two areas.
const GAP: f64 = 3.0;
/// Labels closer than this, in pixels, would overlap.
const LINE: f64 = 13.0;

/// Height of an area: at least a line, so that each has its name.
fn height(area: &Area) -> f64 {
    (area.rows.len() as f64 * ROW).max(LINE)
}

/// The heatmap as an SVG file for white paper: addresses downwards, time to the right, a legend.
#[must_use]
pub fn heatmap(map: &Heatmap) -> String {
    let mut svg = drawn(map, TOP, BOTTOM);
    let [from, to] = [map.from_ns, map.to_ns].map(|ns| units::about_time(Duration::from_nanos(ns)));
    let title = format!(
        "{}: heat from {from} to {to}, the hottest memory of each row of {}",
        map.target,
        units::about_size(map.row_bytes)
    );
    svg.text(LEFT, 16.0, Anchor::Start, "head", &title);
    let y = svg.height - 54.0;
    draw_legend(&mut svg, LEFT, y);
    if map.left_out_bytes > 0 {
        let text = left_out_text(map.left_out_bytes);
        svg.text(LEFT, y + 44.0, Anchor::Start, "faint", &text);
    }
    svg.file()
}

/// The heatmap as an element of the page, without title and legend.
pub(crate) fn within_page(map: &Heatmap) -> String {
    drawn(map, 4.0, 30.0).element()
}

/// The colour legend as an element of the page.
pub(crate) fn legend() -> String {
    let mut svg = Svg::new(WIDTH, 44.0, "What the colours mean");
    draw_legend(&mut svg, LEFT, 4.0);
    svg.element()
}

fn drawn(map: &Heatmap, top: f64, bottom: f64) -> Svg {
    let areas: f64 = map.areas.iter().map(|area| height(area) + GAP).sum();
    let mut svg = Svg::new(
        WIDTH,
        top + areas + bottom,
        &format!("Heat of {} by address and time", map.target),
    );
    let mut y = top;
    for area in &map.areas {
        draw_cells(&mut svg, &area.rows, y, height(area));
        draw_labels(&mut svg, area, &map.title(area, 22), y);
        y += height(area) + GAP;
    }
    draw_time(&mut svg, map, y);
    svg
}

/// Draws one path for each colour; a run of like cells is one rectangle of it.
fn draw_cells(svg: &mut Svg, rows: &[Row], top: f64, height: f64) {
    let mut paths = BTreeMap::<usize, String>::new();
    let columns = rows.first().map_or(1, |row| row.peaks.len()).max(1);
    let step = height / rows.len().max(1) as f64;
    let tall = short(step);
    let x = |column: usize| LEFT + column as f64 / columns as f64 * (WIDTH - LEFT - RIGHT);
    for (index, row) in rows.iter().enumerate() {
        let y = top + index as f64 * step;
        let mut column = 0;
        for run in row.peaks.chunk_by(|a, b| class(a) == class(b)) {
            let (from, to) = (x(column), x(column + run.len()));
            column += run.len();
            let Some(class) = class(&run[0]) else { continue };
            let path = paths.entry(class).or_default();
            // Writing to a string does not fail.
            let _ =
                write!(path, "M{} {}H{}v{tall}H{}z", short(from), short(y), short(to), short(from));
        }
    }
    for (class, path) in paths {
        let name = match class {
            UNSEEN => "unseen".into(),
            UNKNOWN => "unknown".into(),
            step => format!("h{step}"),
        };
        svg.raw(format_args!(r#"<path class="{name}" shape-rendering="crispEdges" d="{path}"/>"#));
    }
}

/// Colour class after the last step of the ramp: memory that was not probed.
const UNSEEN: usize = ramp::STEPS;
/// Colour class of unknown memory.
const UNKNOWN: usize = ramp::STEPS + 1;

/// The colour class of a cell: a step of the ramp, or one of the classes after it.
fn class(cell: &Cell) -> Option<usize> {
    match cell {
        Cell::Unmapped => None,
        Cell::NotLookedAt => Some(UNSEEN),
        Cell::Unknown => Some(UNKNOWN),
        Cell::Heat(heat) => Some(ramp::step(*heat)),
    }
}

/// Draws addresses at the left, as far as there is room, and the name at the right.
fn draw_labels(svg: &mut Svg, area: &Area, name: &str, top: f64) {
    let step = height(area) / area.rows.len().max(1) as f64;
    let mut address = f64::NEG_INFINITY;
    for (index, row) in area.rows.iter().enumerate() {
        let y = top + index as f64 * step;
        if y - address >= 3.0 * LINE {
            svg.line((LEFT - 5.0, y), (LEFT, y), "axis");
            svg.text(LEFT - 8.0, y + 9.0, Anchor::End, "faint", &format!("{:#x}", row.start));
            address = y;
        }
    }
    svg.text(WIDTH - RIGHT + 8.0, top + 9.0, Anchor::Start, "faint", name);
}

fn draw_time(svg: &mut Svg, map: &Heatmap, y: f64) {
    svg.line((LEFT, y), (WIDTH - RIGHT, y), "axis");
    let span = (map.to_ns - map.from_ns).max(1) as f64;
    for at in time_ticks(map.from_ns, map.to_ns, 8) {
        let x = LEFT + (at - map.from_ns) as f64 / span * (WIDTH - LEFT - RIGHT);
        svg.line((x, y), (x, y + 5.0), "axis");
        let text = tick_time(at);
        svg.text(x, y + 18.0, Anchor::Middle, "faint", &text);
    }
}

fn draw_legend(svg: &mut Svg, x: f64, y: f64) {
    const STEP: f64 = 12.0;
    svg.text(x, y + 10.0, Anchor::Start, "faint", "frequency 0");
    let start = x + 78.0;
    for step in 0..ramp::STEPS {
        let at = (start + step as f64 * STEP, y);
        let from = units::percent(ramp::least(step));
        let hint = if step == 0 { "exactly 0".into() } else { format!("from {from}") };
        svg.bar(at, (STEP, 12.0), &format!("h{step}"), &hint);
    }
    let hot = start + STEP * ramp::step(HOT_FREQUENCY) as f64;
    svg.line((hot, y - 3.0), (hot, y + 15.0), "axis");
    let end = start + ramp::STEPS as f64 * STEP;
    svg.text(end + 6.0, y + 10.0, Anchor::Start, "faint", "1");
    let share = units::percent(HOT_FREQUENCY);
    svg.text(end + 24.0, y + 10.0, Anchor::Start, "faint", &format!("line: hot from {share}"));
    svg.bar((end + 160.0, y), (STEP, 12.0), "unknown", UNKNOWN_MEANS);
    svg.text(end + 178.0, y + 10.0, Anchor::Start, "faint", "unknown: too little evidence");
    svg.bar((x, y + 18.0), (STEP, 12.0), "unseen", "not looked at, or not resident");
    svg.text(
        x + 18.0,
        y + 28.0,
        Anchor::Start,
        "faint",
        "not looked at, or not resident; blank: not mapped",
    );
}
