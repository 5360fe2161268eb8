//! Chart axes: bytes vertically, time or percent horizontally.

use tierscope_core::units;

use super::{Anchor, Svg, byte_ticks, tick_time, time_ticks};

/// A plot within a chart: its place, and the values at its edges.
pub(crate) struct Frame {
    /// Left, top, width and height of the plot.
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// Values at the left and right edges.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Value at the upper edge.
    pub(crate) most: u64,
}

/// Width of a chart with one plot.
pub(crate) const WIDTH: f64 = 640.0;
/// Height of a chart with one plot.
pub(crate) const HEIGHT: f64 = 250.0;

impl Frame {
    /// A plot whose chart begins at `top`, with room for axes and legend.
    pub(crate) fn new(top: f64, (from, to): (f64, f64), most: u64) -> Self {
        let (left, above) = (76.0, 26.0);
        Self {
            left,
            top: top + above,
            width: WIDTH - left - 28.0,
            height: HEIGHT - above - 44.0,
            from,
            to: to.max(from + f64::MIN_POSITIVE),
            most: most.max(1),
        }
    }

    pub(crate) fn x(&self, value: f64) -> f64 {
        self.left + (value - self.from) / (self.to - self.from).max(1e-9) * self.width
    }

    pub(crate) fn y(&self, bytes: u64) -> f64 {
        self.bottom() - bytes as f64 / self.most as f64 * self.height
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Draws the byte axis at the left, with grid lines.
    pub(crate) fn draw_bytes(&self, svg: &mut Svg) {
        for bytes in byte_ticks(self.most, 5) {
            let y = self.y(bytes);
            let class = if bytes == 0 { "axis" } else { "grid" };
            svg.line((self.left, y), (self.left + self.width, y), class);
            svg.text(self.left - 8.0, y + 4.0, Anchor::End, "faint", &units::about_size(bytes));
        }
    }

    /// Draws the time axis below the plot.
    pub(crate) fn draw_times(&self, svg: &mut Svg) {
        for at in time_ticks(self.from as u64, self.to as u64, 6) {
            self.draw_tick(svg, at as f64, &tick_time(at));
        }
    }

    /// Draws the percent axis below the plot, with its title `of`.
    pub(crate) fn draw_percents(&self, svg: &mut Svg, of: &str) {
        for percent in [0, 25, 50, 75, 100] {
            self.draw_tick(svg, f64::from(percent), &format!("{percent} %"));
        }
        let middle = self.left + self.width / 2.0;
        svg.text(middle, self.bottom() + 36.0, Anchor::Middle, "faint", of);
    }

    fn draw_tick(&self, svg: &mut Svg, at: f64, text: &str) {
        let (x, y) = (self.x(at), self.bottom());
        svg.line((x, y), (x, y + 5.0), "axis");
        svg.text(x, y + 18.0, Anchor::Middle, "faint", text);
    }

    /// Draws the legend above the plot: names of lines or bars, with their CSS classes.
    pub(crate) fn draw_legend(&self, svg: &mut Svg, entries: &[(&str, &str)]) {
        for (index, (class, name)) in entries.iter().enumerate() {
            let at = (self.left + 120.0 * index as f64, self.top - 19.0);
            svg.bar(at, (12.0, 10.0), class, name);
            svg.text(at.0 + 18.0, at.1 + 9.0, Anchor::Start, "faint", name);
        }
    }
}
