//! Histogram of bytes by age, as SVG.

use std::time::Duration;

use tierscope_core::units;

use super::frame::{Frame, HEIGHT, WIDTH};
use super::{Anchor, Svg, tick_time};
use crate::ages::{AgeBin, Ages};

/// The age histogram as an SVG file for white paper.
#[must_use]
pub fn ages(ages: &Ages) -> String {
    const TITLE: f64 = 60.0;
    let mut svg = Svg::new(WIDTH, TITLE + HEIGHT, &ages.title());
    svg.text(12.0, 16.0, Anchor::Start, "head", &ages.title());
    svg.text(12.0, 32.0, Anchor::Start, "faint", &ages.definition());
    svg.text(12.0, 48.0, Anchor::Start, "faint", &ages.rest().unwrap_or_default());
    draw(&mut svg, ages, TITLE);
    svg.file()
}

/// The age histogram as an element of the page.
pub(crate) fn histogram(ages: &Ages) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, "Bytes by age");
    draw(&mut svg, ages, 0.0);
    svg.element()
}

type Class = (&'static str, &'static str, fn(&AgeBin) -> u64);

const CLASSES: [Class; 3] = [
    ("hot", "hot", |bin| bin.hot_bytes),
    ("warm", "accessed", |bin| bin.warm_bytes),
    ("cold", "cold", |bin| bin.cold_bytes),
];

/// Draws a bar for each bin, with hot bytes at the bottom.
fn draw(svg: &mut Svg, ages: &Ages, top: f64) {
    let most = ages.bins().iter().map(AgeBin::bytes).max().unwrap_or(0);
    let frame = Frame::new(top, (0.0, ages.bins().len().max(1) as f64), most);
    frame.draw_bytes(svg);
    // As many age labels as fit next to each other.
    let every = ages.bins().len().div_ceil(8).max(1);
    for (index, bin) in ages.bins().iter().enumerate() {
        draw_bin(svg, &frame, index, bin);
        if index.is_multiple_of(every) {
            let age = tick_time(bin.from_ns);
            let x = frame.x(index as f64);
            svg.line((x, frame.bottom()), (x, frame.bottom() + 5.0), "axis");
            svg.text(x, frame.bottom() + 18.0, Anchor::Middle, "faint", &age);
        }
    }
    let middle = frame.left + frame.width / 2.0;
    svg.text(middle, frame.bottom() + 36.0, Anchor::Middle, "faint", "age at least");
    frame.draw_legend(svg, &CLASSES.map(|(class, name, _)| (class, name)));
}

fn draw_bin(svg: &mut Svg, frame: &Frame, index: usize, bin: &AgeBin) {
    let (left, right) = (frame.x(index as f64) + 1.5, frame.x(index as f64 + 1.0) - 1.5);
    let [from, to] = [bin.from_ns, bin.to_ns].map(|ns| units::about_time(Duration::from_nanos(ns)));
    let mut below = 0;
    for (class, name, of) in CLASSES {
        let bytes = of(bin);
        if bytes == 0 {
            continue;
        }
        let (foot, head) = (frame.y(below), frame.y(below + bytes));
        let hint = format!("{} {name}, age {from} to {to}", units::about_size(bytes));
        svg.bar((left, head), (right - left, foot - head), class, &hint);
        below += bytes;
    }
}
