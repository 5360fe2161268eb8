//! SVG line charts: frame, scales, marks of hot-set changes, lines with a legend. The caller draws
//! the contents.

use std::fmt::Write;

/// Width of the drawing, in SVG units.
pub(crate) const WIDTH: f64 = 900.0;
/// Margin above the frame.
pub(crate) const TOP: f64 = 40.0;
const LEFT: f64 = 50.0;
const BOTTOM: f64 = 40.0;

/// Colours that readers with colour blindness can distinguish (Okabe and Ito); further lines repeat
/// them with dashes.
const COLOURS: [&str; 7] =
    ["#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Dash patterns for the first, second and further repetitions of the colours.
const DASHES: [&str; 3] = ["", r#" stroke-dasharray="5 3""#, r#" stroke-dasharray="1 3""#];

/// A tick mark: its position on the scale, and its label.
pub(crate) type Mark = (f64, String);

/// An SVG chart under construction.
pub(crate) struct Plot {
    height: f64,
    right: f64,
    /// Largest value on the horizontal scale.
    end: f64,
    pub(crate) svg: String,
}

impl Plot {
    /// An empty frame with a time scale from 0 s to `end`; `right` is the margin for the legend.
    pub(crate) fn new(title: &str, height: f64, right: f64, end: f64) -> Self {
        let up = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, share.to_string()));
        let end = end.max(1e-9);
        let across = (0..=10).map(|tenth| end * f64::from(tenth) / 10.0);
        let across: Vec<Mark> =
            across.map(|seconds| (seconds, format!("{seconds:.1} s"))).collect();
        Self::scaled(title, height, right, (end, &across), &up)
    }

    /// An empty frame with other scales: largest value and tick marks of the horizontal one, and
    /// tick marks from 0 to 1 of the vertical one.
    pub(crate) fn scaled(
        title: &str,
        height: f64,
        right: f64,
        (end, across): (f64, &[Mark]),
        up: &[Mark],
    ) -> Self {
        let mut plot = Plot { height, right, end, svg: String::new() };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            plot.svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="16">{}</text>"#,
            escaped(title)
        );
        plot.scales(across, up);
        plot
    }

    fn scales(&mut self, across: &[Mark], up: &[Mark]) {
        for (share, name) in up {
            let at = self.y(*share);
            let _ = writeln!(
                self.svg,
                r##"<line x1="{LEFT}" x2="{}" y1="{at:.1}" y2="{at:.1}" stroke="#ddd"/><text x="{}" y="{:.1}" text-anchor="end">{}</text>"##,
                WIDTH - self.right,
                LEFT - 6.0,
                at + 4.0,
                escaped(name)
            );
        }
        for (place, name) in across {
            let _ = writeln!(
                self.svg,
                r#"<text x="{:.1}" y="{}" text-anchor="middle">{}</text>"#,
                self.x(*place),
                self.height - 20.0,
                escaped(name)
            );
        }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.end).min(1.0) * (WIDTH - LEFT - self.right)
    }

    fn y(&self, share: f64) -> f64 {
        self.height - BOTTOM - share.clamp(0.0, 1.0) * (self.height - TOP - BOTTOM)
    }

    /// Marks a change of the hot set, with its cause as a label if given.
    pub(crate) fn change(&mut self, seconds: f64, cause: Option<&str>) {
        let at = self.x(seconds);
        let _ = write!(
            self.svg,
            r##"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{}" stroke="#888" stroke-dasharray="4 3"/>"##,
            self.height - BOTTOM
        );
        if let Some(cause) = cause {
            let (x, y) = (at + 3.0, TOP - 6.0);
            let _ = write!(
                self.svg,
                r##"<text x="{x:.1}" y="{y}" fill="#666">{}</text>"##,
                escaped(cause)
            );
        }
        self.svg.push('\n');
    }

    /// Points (seconds, share) in the syntax of a polyline.
    pub(crate) fn points(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let point = |(seconds, share)| format!("{:.1},{:.1}", self.x(seconds), self.y(share));
        points.map(point).collect::<Vec<_>>().join(" ")
    }

    /// Draws the line of the `index`-th contender, and its name in the legend in the right margin.
    pub(crate) fn named(
        &mut self,
        index: usize,
        name: &str,
        right: f64,
        points: impl Iterator<Item = (f64, f64)>,
    ) {
        let colour = COLOURS[index % COLOURS.len()];
        let dash = DASHES[(index / COLOURS.len()).min(DASHES.len() - 1)];
        let points = self.points(points);
        let at = TOP + 16.0 * index as f64;
        let from = WIDTH - right + 14.0;
        let _ = writeln!(
            self.svg,
            r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>
<line x1="{from}" x2="{}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="2"{dash}/><text x="{}" y="{}">{}</text>"#,
            from + 24.0,
            from + 30.0,
            at + 4.0,
            escaped(name)
        );
    }

    /// Closes the drawing and returns its text.
    pub(crate) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

/// Escapes text for an element of SVG or HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Width 900 minus margins of 50 on both sides, height 180 minus margins of 40.
    #[test]
    fn points_lie_within_the_frame() {
        let plot = Plot::new("a < b", 180.0, 50.0, 8.0);
        assert_eq!(
            plot.points([(0.0, 0.0), (4.0, 0.5), (9.0, 2.0)].into_iter()),
            "50.0,140.0 450.0,90.0 850.0,40.0"
        );
        assert!(plot.finish().contains("a &lt; b"));
    }
}
