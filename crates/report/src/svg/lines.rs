//! Charts of shares (0 to 1) as lines over time or another scale, with a legend in the right
//! margin. The colours can be distinguished by readers with colour blindness (Okabe and Ito);
//! further lines repeat them with dashes.

use super::{Anchor, Svg};

/// Width of a chart in pixels.
pub const WIDTH: f64 = 900.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
/// Pixels between two entries of the legend.
const ENTRY: f64 = 16.0;
/// Number of colours, and of dash patterns for repetitions of them.
const COLOURS: usize = 7;
const DASHES: usize = 3;

/// A tick mark: its value on the scale, and its label.
pub type Mark = (f64, String);

/// A line chart under construction.
pub struct LineChart {
    svg: Svg,
    height: f64,
    /// Width of the margin for the legend.
    right: f64,
    /// Greatest value on the horizontal scale.
    end: f64,
}

impl LineChart {
    /// An empty frame with a time scale from 0 s to `end`; `right` is the margin for the legend.
    #[must_use]
    pub fn over_time(title: &str, height: f64, right: f64, end: f64) -> Self {
        let up = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, share.to_string()));
        let end = end.max(1e-9);
        let across = (0..=10).map(|tenth| end * f64::from(tenth) / 10.0);
        let across: Vec<Mark> =
            across.map(|seconds| (seconds, format!("{seconds:.1} s"))).collect();
        Self::scaled(title, height, right, (end, &across), &up)
    }

    /// An empty frame with other scales: greatest value and tick marks of the horizontal one, and
    /// tick marks from 0 to 1 of the vertical one.
    #[must_use]
    pub fn scaled(
        title: &str,
        height: f64,
        right: f64,
        (end, across): (f64, &[Mark]),
        up: &[Mark],
    ) -> Self {
        let svg = Svg::new(WIDTH, height, title).with_css(Self::css());
        let mut chart = LineChart { svg, height, right, end };
        chart.svg.text(LEFT, 16.0, Anchor::Start, "head", title);
        for (share, name) in up {
            let y = chart.y(*share);
            chart.svg.line((LEFT, y), (WIDTH - right, y), "grid");
            chart.svg.text(LEFT - 6.0, y + 4.0, Anchor::End, "faint", name);
        }
        for (value, name) in across {
            let x = chart.x(*value);
            chart.svg.text(x, height - 20.0, Anchor::Middle, "faint", name);
        }
        chart
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value / self.end).min(1.0) * (WIDTH - LEFT - self.right)
    }

    fn y(&self, share: f64) -> f64 {
        self.height - BOTTOM - share.clamp(0.0, 1.0) * (self.height - TOP - BOTTOM)
    }

    /// Marks a change at `value`, with its cause as a label if given.
    pub fn change(&mut self, value: f64, cause: Option<&str>) {
        let x = self.x(value);
        self.svg.line((x, TOP), (x, self.height - BOTTOM), "change");
        if let Some(cause) = cause {
            self.svg.text(x + 3.0, TOP - 6.0, Anchor::Start, "faint", cause);
        }
    }

    /// Draws a line of the `index`-th colour through points (value, share).
    pub fn line(&mut self, index: usize, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<_> = points.map(|(value, share)| (self.x(value), self.y(share))).collect();
        self.svg.path(points.into_iter(), &class(index));
    }

    /// Names the `index`-th line in the legend, with a sample of it.
    pub fn name(&mut self, index: usize, name: &str) {
        let (x, y) = (WIDTH - self.right + 14.0, TOP + ENTRY * index as f64);
        self.svg.line((x, y), (x + 24.0, y), &class(index));
        self.svg.text(x + 30.0, y + 4.0, Anchor::Start, "faint", name);
    }

    /// The chart as an element of a page that contains [`super::paper_css`] and
    /// [`LineChart::css`].
    #[must_use]
    pub fn element(&self) -> String {
        self.svg.element()
    }

    /// The style sheet of the lines.
    #[must_use]
    pub fn css() -> &'static str {
        include_str!("lines.css")
    }

    /// The chart as a separate file for white paper.
    #[must_use]
    pub fn file(&self) -> String {
        self.svg.file()
    }

    /// The charts, one below the other, as one separate file for white paper.
    #[must_use]
    pub fn stack(title: &str, charts: &[LineChart]) -> String {
        let height = charts.iter().map(|chart| chart.height).sum();
        let mut svg = Svg::new(WIDTH, height, title).with_css(Self::css());
        let mut y = 0.0;
        for chart in charts {
            svg.raw(format_args!(r#"<g transform="translate(0 {y})">{}</g>"#, chart.element()));
            y += chart.height;
        }
        svg.file()
    }
}

/// CSS classes of the `index`-th line.
fn class(index: usize) -> String {
    let dash = (index / COLOURS).min(DASHES - 1);
    format!("line line-{} dash-{dash}", index % COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Width 900 minus margins of 50 on both sides, height 180 minus margins of 40.
    #[test]
    fn points_lie_within_the_frame() {
        let mut chart = LineChart::over_time("a < b", 180.0, 50.0, 8.0);
        chart.line(0, [(0.0, 0.0), (4.0, 0.5), (9.0, 2.0)].into_iter());
        let file = chart.file();
        assert!(file.contains(r#"points="50,140 450,90 850,40""#), "{file}");
        assert!(file.contains("a &lt; b") && file.contains("stroke: #0072b2"), "{file}");
    }

    #[test]
    fn charts_of_a_stack_follow_one_another() {
        let charts = [100.0, 60.0].map(|height| LineChart::over_time("a", height, 50.0, 1.0));
        let file = LineChart::stack("both", &charts);
        assert!(file.contains(r#"viewBox="0 0 900 160""#), "{file}");
        assert!(file.contains("translate(0 0)") && file.contains("translate(0 100)"), "{file}");
        assert_eq!(file.matches("<style>").count(), 1, "{file}");
    }

    #[test]
    fn lines_after_the_last_colour_are_dashed() {
        assert_eq!(
            [0, 8, 15, 99].map(class).map(|class| class[5..].to_owned()),
            ["line-0 dash-0", "line-1 dash-1", "line-1 dash-2", "line-1 dash-2"]
        );
    }
}
