//! Charts as SVG: vector axes with units, in print and on the page alike.
//!
//! Charts refer to colours by CSS custom properties. Within the page they follow its theme; a
//! separate file carries the values for white paper (`Svg::file`).

mod ages;
mod frame;
mod heat;
mod lines;
mod tiers;
mod wss;

use std::fmt::{Display, Write};
use std::time::Duration;

use tierscope_core::units;

use crate::ramp;

pub use ages::ages;
pub use heat::heatmap;
pub use lines::{LineChart, Mark, WIDTH};
pub use wss::wss;

pub(crate) use ages::histogram;
pub(crate) use heat::{legend, within_page};
pub(crate) use tiers::by_tier;
pub(crate) use wss::{course, distribution, mapped};

/// Escapes text for XML and HTML, including attribute values.
#[must_use]
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // Control characters are not allowed in XML, not even escaped.
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    text.replace('"', "&quot;")
}

/// A chart being drawn. Lengths are pixels of 1/96 inch. Colours and strokes come from the CSS
/// classes of `chart.css` and of [`Svg::with_css`].
pub struct Svg {
    body: String,
    width: f64,
    height: f64,
    title: String,
    css: &'static str,
}

/// Alignment of a text relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// The text is centred there.
    Middle,
    /// The text ends there.
    End,
}

/// A length with at most two decimals, without trailing zeros.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn listed(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<_> = points.map(|(x, y)| format!("{},{}", short(x), short(y))).collect();
    points.join(" ")
}

impl Svg {
    /// An empty chart of this size; screen readers read the title.
    #[must_use]
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        Self { body: String::new(), width, height, title: title.into(), css: "" }
    }

    /// Adds a style sheet to the separate file, after that of all charts.
    #[must_use]
    pub fn with_css(self, css: &'static str) -> Self {
        Self { css, ..self }
    }

    /// Appends raw SVG; external text in it must be [`escaped`].
    pub fn raw(&mut self, text: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{text}");
    }

    /// Writes a text at a point of its base line.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (short(x), short(y), escaped(text));
        self.raw(format_args!(
            r#"<text x="{x}" y="{y}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// Draws a straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(short);
        self.raw(format_args!(
            r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#
        ));
    }

    /// Draws a rectangle that shows `hint` under the pointer.
    pub fn bar(&mut self, at: (f64, f64), size: (f64, f64), class: &str, hint: &str) {
        let [x, y, w, h] = [at.0, at.1, size.0, size.1].map(short);
        let hint = escaped(hint);
        self.raw(format_args!(
            r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" class="{class}"><title>{hint}</title></rect>"#
        ));
    }

    /// Draws a line through the points.
    pub fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points = listed(points);
        self.raw(format_args!(r#"<polyline points="{points}" class="{class}"/>"#));
    }

    /// Draws the polygon with these corners.
    pub fn area(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str) {
        let points = listed(points);
        self.raw(format_args!(r#"<polygon points="{points}" class="{class}"/>"#));
    }

    /// The chart as an element of a page that contains the style sheet.
    #[must_use]
    pub fn element(&self) -> String {
        let Svg { body, width, height, title, .. } = self;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" class="chart"><title>{}</title>
{body}</svg>
"#,
            escaped(title)
        )
    }

    /// The chart as a separate file for white paper, with literal colours: typesetting programs do
    /// not support custom properties.
    #[must_use]
    pub fn file(&self) -> String {
        let element = self.element();
        let (head, rest) = element.split_once("</title>").unwrap_or(("", &element));
        let (css, more) = (paper_css(), self.css);
        format!(
            "{head}</title>\n<style>\n{css}{more}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{rest}"
        )
    }
}

/// Style sheet of the charts, which uses the custom properties of the page or of [`paper`].
pub(crate) fn css() -> String {
    let mut css = String::from(include_str!("chart.css"));
    for step in 0..ramp::STEPS {
        let _ = writeln!(css, ".chart .h{step} {{ fill: var(--h{step}); }}");
    }
    css
}

/// Style sheet of the charts on white paper, with literal colours.
#[must_use]
pub fn paper_css() -> String {
    paper()
        .into_iter()
        .fold(css(), |css, (name, value)| css.replace(&format!("var(--{name})"), &value))
}

/// The custom properties and their values on white paper.
fn paper() -> Vec<(String, String)> {
    const COLOURS: [(&str, &str); 11] = [
        ("ink", "#1b1f27"),
        ("faint", "#4a5260"),
        ("line", "#d5dae3"),
        ("hot", "#c8323c"),
        ("warm", "#e69f00"),
        ("cold", "#7f93b8"),
        ("mapped", "#56657f"),
        ("tier-0", "#1f77b4"),
        ("tier-1", "#8c6bb1"),
        ("tier-2", "#6b8e5a"),
        ("tier-3", "#9a8f80"),
    ];
    let mut values: Vec<(String, String)> =
        COLOURS.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    values.extend((0..ramp::STEPS).map(|step| (format!("h{step}"), ramp::on_paper(step))));
    values.push(("unseen".into(), ramp::unseen_on_paper()));
    values.push(("unknown".into(), ramp::unknown_on_paper()));
    values
}

/// Round sizes from 0 to `most` bytes, about `count` of them: 1, 2, 4, … of a binary unit.
pub(crate) fn byte_ticks(most: u64, count: u64) -> Vec<u64> {
    let step = (most / count.max(1)).max(1).next_power_of_two();
    (0..=most / step).map(|n| n * step).collect()
}

/// Round times from `from` to `to` nanoseconds, about `count` of them.
pub(crate) fn time_ticks(from: u64, to: u64, count: u64) -> Vec<u64> {
    const MS: u64 = 1_000_000;
    const STEPS: [u64; 21] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
        300_000, 600_000, 1_800_000, 3_600_000, 14_400_000,
    ];
    let least = (to - from) / count.max(1);
    let step = STEPS.map(|ms| ms * MS).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or_else(|| least.next_multiple_of(86_400_000 * MS));
    (from.div_ceil(step)..=to / step).map(|n| n * step).collect()
}

/// A round time without its zero part: `10 min`.
pub(crate) fn tick_time(nanos: u64) -> String {
    let text = units::about_time(Duration::from_nanos(nanos));
    let short = text.strip_suffix(" 0 s").or_else(|| text.strip_suffix(" 0 min"));
    match nanos {
        0 => "0".into(),
        _ => short.unwrap_or(&text).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(byte_ticks(10 << 20, 5), [0, 2, 4, 6, 8, 10].map(|n| n << 20));
        assert_eq!(byte_ticks(0, 5), [0]);
        assert_eq!(
            [0, 90, 600, 3600].map(|s| tick_time(s * 1_000_000_000)),
            ["0", "1 min 30 s", "10 min", "1 h"]
        );
        assert_eq!(time_ticks(0, 4_000_000_000, 4), [0, 1, 2, 3, 4].map(|s| s * 1_000_000_000));
        assert_eq!(time_ticks(1_500_000_000, 3_100_000_000, 2), [2_000_000_000, 3_000_000_000]);
    }

    #[test]
    fn files_have_colours_of_their_own() {
        let file = Svg::new(10.0, 10.0, "").file();
        assert!(file.contains("fill: #e8edf6") && !file.contains("var("), "{file}");
    }

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(escaped("a<b>&\"\u{7}"), "a&lt;b&gt;&amp;&quot;");
    }
}
