//! Ages: for how long memory has kept its present heat, by bytes.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{Region, Result};
use tierscope_record::{Fact, Metric, Recording};

use crate::split::{NOT_RESIDENT, Split};
use crate::style::Style;
use crate::table::Align::{Left, Right};
use crate::table::Table;
use crate::text::{self, unless_closed};
use crate::view::{NOT_RECORDED, View, since_start};

/// Bytes by the number of windows for which their count has stayed about the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AgeBin {
    /// Lower bound of the age, in windows, inclusive.
    pub from_windows: u64,
    /// Upper bound of the age, exclusive: 1, 2, 4, 8, …
    pub to_windows: u64,
    /// Lower bound of the age as time, inclusive.
    pub from_ns: u64,
    /// Upper bound of the age as time, exclusive.
    pub to_ns: u64,
    /// Bytes whose frequency is at least [`HOT_FREQUENCY`].
    pub hot_bytes: u64,
    /// Bytes with at least one hit that are not hot, or not with enough confidence.
    pub warm_bytes: u64,
    /// Bytes without a hit.
    pub cold_bytes: u64,
}

impl AgeBin {
    /// All bytes of the bin.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.hot_bytes.saturating_add(self.warm_bytes).saturating_add(self.cold_bytes)
    }
}

/// Bytes by age at the end of the view's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ages {
    /// Name of the recording, usually its path.
    pub recording: String,
    /// Name of the target.
    pub target: String,
    /// End of the evaluated window, since the recording began.
    pub at_ns: u64,
    /// Length of a window.
    pub window_ns: u64,
    /// Frequency from which a region counts as hot.
    pub hot_frequency: f64,
    /// Hot bytes, of any age.
    pub hot_bytes: u64,
    /// Bytes accessed, but not hot.
    pub warm_bytes: u64,
    /// Bytes not accessed; resident ones only, if the recording has the bytes that are not.
    pub cold_bytes: u64,
    /// Bytes whose hot and cold parts cannot be separated, for any reason: in no bin.
    pub unknown_bytes: u64,
    /// The unknown bytes that the machine refuses to judge.
    pub unknown_refused_bytes: u64,
    /// The unknown bytes that are memory of a virtual machine.
    pub unknown_guest_bytes: u64,
    /// Bytes not probed in that window: in no bin.
    pub unseen_bytes: u64,
    /// Bytes of files, shared memory and the kernel's own mappings that are not in memory; this and
    /// the next two are in no bin, and `None` if not recorded, or if only some addresses are in the
    /// view.
    pub absent_bytes: Option<u64>,
    /// Bytes in swap, zswap included.
    pub swapped_bytes: Option<u64>,
    /// Bytes of anonymous memory that were never populated.
    pub reserved_bytes: Option<u64>,
    /// The bins up to the oldest age, each twice as wide as the previous one; `None` if the
    /// recording does not have ages.
    pub bins: Option<Vec<AgeBin>>,
}

/// Evaluates the last window in the view.
///
/// # Errors
/// Same as [`crate::summary`].
pub fn ages(recording: &Recording, view: &View) -> Result<Ages> {
    let windows = view.windows(recording)?;
    let snapshot = recording.snapshot(windows.end - 1)?;
    let mut ages = Ages {
        recording: recording.name(),
        target: recording.meta().target.clone(),
        at_ns: since_start(recording, snapshot.end).as_nanos() as u64,
        window_ns: recording.meta().window.as_nanos() as u64,
        hot_frequency: HOT_FREQUENCY,
        hot_bytes: 0,
        warm_bytes: 0,
        cold_bytes: 0,
        unknown_bytes: 0,
        unknown_refused_bytes: 0,
        unknown_guest_bytes: 0,
        unseen_bytes: 0,
        absent_bytes: None,
        swapped_bytes: None,
        reserved_bytes: None,
        bins: recording.meta().has(Fact::Ages).then(Vec::new),
    };
    let mut split = Split::default();
    for region in &snapshot.regions {
        let bytes = view.clip(&region.range).map(|range| region.bytes_of(&range)).sum();
        split.add_region(region, bytes);
        ages.add(region, bytes);
    }
    if !view.is_partial() {
        let metrics = recording.metrics(windows.end - 1)?;
        let here = |metric: &&Metric| metric.space.is_some_and(|space| view.shows(space));
        let outside = metrics.iter().filter(|metric| NOT_RESIDENT.contains(&&*metric.name));
        outside.filter(here).for_each(|metric| split.add_metric(metric));
    }
    ages.set_rest(&split);
    Ok(ages)
}

/// Index of the bin of an age: 0 for age 0, then 1 for 1, 2 for 2 and 3, 3 for 4 to 7, …
fn bin_of(age: u32) -> usize {
    (u32::BITS - age.leading_zeros()) as usize
}

fn empty_bin(index: usize, window_ns: u64) -> AgeBin {
    let (from, to) = (if index == 0 { 0 } else { 1 << (index - 1) }, 1 << index);
    let nanos = |windows: u64| windows.saturating_mul(window_ns);
    AgeBin {
        from_windows: from,
        to_windows: to,
        from_ns: nanos(from),
        to_ns: nanos(to),
        ..AgeBin::default()
    }
}

impl Ages {
    fn add(&mut self, region: &Region, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if region.is_unknown() {
            return;
        }
        let (of_bin, of_all): (fn(&mut AgeBin) -> &mut u64, _) = match () {
            () if region.is_hot(HOT_FREQUENCY) => (|bin| &mut bin.hot_bytes, &mut self.hot_bytes),
            () if region.is_accessed() => (|bin| &mut bin.warm_bytes, &mut self.warm_bytes),
            () => (|bin| &mut bin.cold_bytes, &mut self.cold_bytes),
        };
        *of_all = of_all.saturating_add(bytes);
        let Some(bins) = &mut self.bins else { return };
        let index = bin_of(region.age);
        bins.extend((bins.len()..=index).map(|index| empty_bin(index, self.window_ns)));
        let of_bin = of_bin(&mut bins[index]);
        *of_bin = of_bin.saturating_add(bytes);
    }

    /// Sets the bytes that are in no bin.
    fn set_rest(&mut self, split: &Split) {
        self.unknown_bytes = split.unknown;
        self.unknown_refused_bytes = split.refused;
        self.unknown_guest_bytes = split.guest;
        self.unseen_bytes = split.unseen;
        self.absent_bytes = split.outside.map(|outside| outside.absent);
        self.swapped_bytes = split.outside.map(|outside| outside.swapped);
        self.reserved_bytes = split.outside.map(|outside| outside.reserved);
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
        let most = self.bins().iter().map(AgeBin::bytes).max().unwrap_or(0);
        let room = style.width.saturating_sub(66).clamp(8, 64);
        let heads = ["age from", "windows", "hot", "accessed", "cold"].map(|head| (head, Right));
        let mut table = Table::new(heads.into_iter().chain([("", Left)]));
        let mut add = |names: [String; 2], bytes: [u64; 3], bar: String| {
            table.row(names.into_iter().chain(bytes.map(units::about_size)).chain([bar]));
        };
        for bin in self.bins() {
            let age = units::about_time(Duration::from_nanos(bin.from_ns));
            let bar = text::bar(bin.hot_bytes, bin.bytes(), most, room);
            let bytes = [bin.hot_bytes, bin.warm_bytes, bin.cold_bytes];
            add([age, bin.from_windows.to_string()], bytes, bar);
        }
        let bytes = [self.hot_bytes, self.warm_bytes, self.cold_bytes];
        add(["all".into(), String::new()], bytes, String::new());
        write!(out, "{table}")?;
        if let Some(rest) = self.rest() {
            writeln!(out, "{rest}")?;
        }
        writeln!(out, "bars: # hot, - the others")
    }

    /// The bins; none if the recording does not have ages.
    pub(crate) fn bins(&self) -> &[AgeBin] {
        self.bins.as_deref().unwrap_or_default()
    }

    pub(crate) fn title(&self) -> String {
        let at = units::about_time(Duration::from_nanos(self.at_ns));
        format!("{}: bytes by age at {at}", self.target)
    }

    /// Text about the bytes that are in no bin.
    pub(crate) fn rest(&self) -> Option<String> {
        let part = |bytes: u64, why: &str| {
            (bytes > 0).then(|| format!("{} {why}", units::about_size(bytes)))
        };
        let reasons = self.unknown_refused_bytes.saturating_add(self.unknown_guest_bytes);
        let parts = [
            part(self.unknown_bytes.saturating_sub(reasons), "unknown (too little evidence)"),
            part(self.unknown_refused_bytes, "unknown (refused)"),
            part(self.unknown_guest_bytes, "unknown (guest memory)"),
            part(self.unseen_bytes, "not looked at"),
            part(self.absent_bytes.unwrap_or(0), "not resident"),
            part(self.swapped_bytes.unwrap_or(0), "swapped"),
            part(self.reserved_bytes.unwrap_or(0), "reserved and never touched"),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("besides: {}", parts.join(", ")))
    }

    pub(crate) fn definition(&self) -> String {
        let share = units::percent(self.hot_frequency);
        let age = match self.bins {
            Some(_) => "time for which memory has been about as hot",
            None => NOT_RECORDED,
        };
        format!("age: {age}; hot: frequency of at least {share}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8, u32::MAX].map(bin_of), [0, 1, 2, 2, 3, 3, 4, 32]);
    }
}
