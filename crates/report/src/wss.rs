//! The working set: bytes accessed, and bytes hot, window by window.
//!
//! Denning's working set W(t, τ) (The Working Set Model for Program Behavior, CACM 1968) with the
//! window as τ, estimated from samples: bytes of the regions with at least one hit.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tierscope_core::Result;
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_record::Recording;

use crate::figures::{Figures, figures};
use crate::footprint::{Point, points};
use crate::heatmap::UNKNOWN_MEANS;
use crate::style::Style;
use crate::table::Align::{Left, Right};
use crate::table::Table;
use crate::text::{self, unless_closed};
use crate::tiers::TierName;
use crate::view::View;

/// A percentile over the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentile {
    /// Share of the windows, in percent.
    pub percent: u8,
    /// Bytes accessed that this share of the windows does not exceed (nearest rank).
    pub accessed_bytes: u64,
    /// Hot bytes that this share of the windows does not exceed.
    pub hot_bytes: u64,
    /// Bytes with too little evidence that this share of the windows does not exceed.
    pub unknown_bytes: u64,
}

/// The working set over windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wss {
    /// Name of the recording, usually its path.
    pub recording: String,
    /// Name of the target.
    pub target: String,
    /// Start of the time, since the recording began.
    pub from_ns: u64,
    /// End of the time, since the recording began.
    pub to_ns: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Number of windows in the view.
    pub windows: u64,
    /// Number of windows that were read: fewer, evenly spaced ones if there are many and their
    /// regions have to be read.
    pub windows_read: u64,
    /// Frequency from which a region counts as hot.
    pub hot_frequency: f64,
    /// Mean of the accessed bytes.
    pub accessed_mean: u64,
    /// Mean of the hot bytes.
    pub hot_mean: u64,
    /// Mean of the unknown bytes, which count neither as accessed nor as hot.
    pub unknown_mean: u64,
    /// The distribution: percentiles 0 to 100.
    pub percentiles: Vec<Percentile>,
    /// The working set over time, in at most 400 points.
    pub over_time: Vec<Point>,
    /// The tiers that the points' `tier_bytes` refer to.
    pub tiers: Vec<TierName>,
}

/// The percentiles printed in text reports.
const SHOWN: [u8; 11] = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100];

/// Computes the working set over the windows in the view.
///
/// # Errors
/// Same as [`crate::summary`].
pub fn wss(recording: &Recording, view: &View) -> Result<Wss> {
    let windows = view.windows(recording)?;
    let (figures, tiers) = figures(recording, view)?;
    let mean = |of: fn(&Figures) -> u64| {
        let sum: u128 = figures.iter().map(|window| u128::from(of(window))).sum();
        (sum / figures.len().max(1) as u128) as u64
    };
    Ok(Wss {
        recording: recording.name(),
        target: recording.meta().target.clone(),
        from_ns: figures.first().map_or(0, |window| window.from_ns),
        to_ns: figures.last().map_or(0, |window| window.to_ns),
        window_ns: recording.meta().window.as_nanos() as u64,
        windows: windows.len() as u64,
        windows_read: figures.len() as u64,
        hot_frequency: HOT_FREQUENCY,
        accessed_mean: mean(|window| window.accessed),
        hot_mean: mean(|window| window.hot),
        unknown_mean: mean(|window| window.unknown),
        percentiles: percentiles(&figures),
        over_time: points(&figures),
        tiers: tiers.names,
    })
}

fn percentiles(figures: &[Figures]) -> Vec<Percentile> {
    let sorted = |of: fn(&Figures) -> u64| {
        let mut values: Vec<u64> = figures.iter().map(of).collect();
        values.sort_unstable();
        values
    };
    let (accessed, hot) = (sorted(|window| window.accessed), sorted(|window| window.hot));
    let unknown = sorted(|window| window.unknown);
    let row = |percent| Percentile {
        percent,
        accessed_bytes: nearest_rank(&accessed, percent),
        hot_bytes: nearest_rank(&hot, percent),
        unknown_bytes: nearest_rank(&unknown, percent),
    };
    (0..=100).map(row).collect()
}

/// The smallest value that at least `percent` of the values do not exceed; 0 if there are none.
fn nearest_rank(sorted: &[u64], percent: u8) -> u64 {
    let rank = (sorted.len() * usize::from(percent)).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

impl Wss {
    /// The percentiles printed in text reports.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Percentile> {
        self.percentiles.iter().filter(|row| SHOWN.contains(&row.percent))
    }

    /// Writes the report as text. A closed pipe is no error.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        unless_closed(self.write(out, style).and_then(|()| out.flush()))
    }

    fn write(&self, out: &mut dyn Write, style: &Style) -> io::Result<()> {
        writeln!(out, "{}", self.title())?;
        writeln!(out, "{}\n", self.definition())?;
        let most = self.percentiles.last().map_or(0, |row| row.accessed_bytes);
        let room = style.width.saturating_sub(49).clamp(8, 64);
        let heads = [("windows", Right), ("accessed", Right), ("hot", Right), ("unknown", Right)];
        let mut table = Table::new(heads.into_iter().chain([("", Left)]));
        let mut add = |name: String, bytes: [u64; 3], bar: String| {
            table.row([name].into_iter().chain(bytes.map(units::about_size)).chain([bar]));
        };
        for row in self.shown() {
            let bar = text::bar(row.hot_bytes, row.accessed_bytes, most, room);
            let bytes = [row.accessed_bytes, row.hot_bytes, row.unknown_bytes];
            add(format!("{} %", row.percent), bytes, bar);
        }
        add("mean".into(), [self.accessed_mean, self.hot_mean, self.unknown_mean], String::new());
        write!(out, "{table}")?;
        writeln!(out, "bars: # hot, - accessed")?;
        writeln!(out, "{UNKNOWN_MEANS}; in neither of the others")
    }

    pub(crate) fn title(&self) -> String {
        let [from, to] =
            [self.from_ns, self.to_ns].map(|ns| units::about_time(Duration::from_nanos(ns)));
        let read = match self.windows_read == self.windows {
            true => String::new(),
            false => format!(" ({} of them read)", self.windows_read),
        };
        format!(
            "{}: working set in {} windows{read} from {from} to {to}",
            self.target, self.windows
        )
    }

    pub(crate) fn definition(&self) -> String {
        let window = units::about_time(Duration::from_nanos(self.window_ns));
        let share = units::percent(self.hot_frequency);
        format!(
            "accessed: at least one hit within a window of {window}; hot: frequency of at least {share}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Of 10, 20, 30, 40: 25 % do not exceed 10, 50 % do not exceed 20, 51 % need 30.
    #[test]
    fn percentiles_by_hand() {
        let of = |percent| nearest_rank(&[10, 20, 30, 40], percent);
        assert_eq!(
            [0, 1, 25, 26, 50, 51, 75, 99, 100].map(of),
            [10, 10, 10, 20, 20, 30, 30, 40, 40]
        );
        assert_eq!(nearest_rank(&[], 50), 0);
    }

    proptest! {
        // Compares with the definition, by counting.
        #[test]
        fn least_value_that_enough_do_not_exceed(mut values in prop::collection::vec(0u64..50, 1..60), percent in 0u8..=100) {
            values.sort_unstable();
            let enough = |value: u64| {
                let count = values.iter().filter(|v| **v <= value).count();
                count * 100 >= values.len() * usize::from(percent)
            };
            let least = values.iter().copied().find(|value| enough(*value)).unwrap();
            prop_assert_eq!(nearest_rank(&values, percent), least);
        }
    }
}
