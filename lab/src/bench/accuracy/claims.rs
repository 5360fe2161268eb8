//! What a recording says of memory, window by window, and what holds for every recording: no more
//! memory is hot than is resident, and none more is resident than the machine has.

use std::sync::Arc;

use tierscope_core::{Addr, Heat, Mappings, Range, Snapshot, SpaceId, Time};
use tierscope_record::Recording;

use crate::bench::rows::{Bar, Row, Table, row};
use crate::error::{Error, Kind, Result};

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "recording", cause)
}

/// The space of a process: its name ends with the process id in brackets.
pub(super) fn space_of(layout: &Mappings, pid: u32) -> Option<SpaceId> {
    let end = format!("[{pid}]");
    layout.spaces.iter().find(|space| space.name.ends_with(&end)).map(|space| space.id)
}

/// Address at which a recording lists the memory at an address of a process.
pub(super) fn listed(layout: &Mappings, addr: Addr) -> Addr {
    let views = &layout.views;
    let next =
        views.partition_point(|view| (view.range.space, view.range.end) <= (addr.space, addr.at));
    match views.get(next) {
        Some(view) if view.range.space == addr.space && view.range.start <= addr.at => {
            Addr { space: view.memory.space, at: view.memory.at + (addr.at - view.range.start) }
        }
        _ => addr,
    }
}

/// Bytes of a window's regions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Split {
    pub(super) hot: u64,
    pub(super) cold: u64,
    /// Unknown, or not looked at.
    pub(super) unknown: u64,
    /// All.
    pub(super) resident: u64,
}

impl Split {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut split = Self::default();
        for region in &snapshot.regions {
            let bytes = region.bytes();
            split.resident += bytes;
            match region.heat() {
                Heat::Hot => split.hot += bytes,
                Heat::Unknown(_) | Heat::Unseen => split.unknown += bytes,
                Heat::Cold => split.cold += bytes,
                Heat::Warm => {}
            }
        }
        split
    }
}

/// What a recording says.
pub(super) struct Claims {
    /// Bytes of each judged window.
    pub(super) splits: Vec<Split>,
    /// The judged windows.
    pub(super) judged: std::ops::Range<usize>,
    pub(super) sanity: Sanity,
    /// The last judged window.
    pub(super) last: Snapshot,
    pub(super) layout: Arc<Mappings>,
}

/// What must hold in every window, judged or not.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sanity {
    windows: usize,
    /// Windows with more hot than resident memory.
    excessive: usize,
    /// Greatest sum of the regions' resident bytes, and of the spaces' resident bytes.
    most: u64,
}

impl Sanity {
    /// `measured` are the resident bytes of all spaces; 0 while none are known.
    fn window(&mut self, split: &Split, measured: u64) {
        self.windows += 1;
        self.excessive += usize::from(split.hot > measured && measured > 0);
        self.most = self.most.max(split.resident).max(measured);
    }

    /// The rows of a recording on a machine with that many bytes.
    pub(super) fn rows(&self, name: &str, machine: u64, command: &str) -> [Row; 2] {
        let sane = 1.0 - self.excessive as f64 / self.windows.max(1) as f64;
        let most = self.most as f64 / machine as f64;
        let add = |what: &str, value: f64, bar: Bar| {
            row(format!("{name}: {what}"), value, "share", bar, command)
        };
        [add(SANE, sane, Bar::Least(1.0)), add(MOST, most, Bar::Most(1.0))]
    }
}

const SANE: &str = "windows with no more hot than resident bytes";
const MOST: &str = "most resident bytes of the machine's memory";

/// Prefix of the rows over all recordings.
const ALL: &str = "all targets and programs";

/// Replaces the rows over all recordings in the table: the worst of each kind.
///
/// # Errors
/// The table cannot be written.
pub(super) fn sum_up(table: &mut Table, path: &std::path::Path) -> Result<()> {
    let command = "target/debug/lab bench accuracy --only ''";
    table.remove(ALL);
    let worst = |what: &str, worst: fn(f64, f64) -> f64, bar: Bar| {
        let values = table.values(&format!(": {what}"));
        let name = format!("{ALL}, {what}, worst of {}", values.len());
        let value = values.into_iter().reduce(worst)?;
        Some(row(name, value, "share", bar, command))
    };
    let rows = [worst(SANE, f64::min, Bar::Least(1.0)), worst(MOST, f64::max, Bar::Most(1.0))];
    table.add(rows.into_iter().flatten().collect(), path)
}

impl Claims {
    /// Reads a recording; the windows that overlap `judged` are judged.
    pub(super) fn of(recording: &Recording, judged: &std::ops::Range<Time>) -> Result<Self> {
        let judged = recording.during(judged);
        let last = judged.end.checked_sub(1).filter(|last| judged.start <= *last);
        let last = last.ok_or_else(|| broken("no window was recorded in time"))?;
        let (mut splits, mut sanity) = (Vec::new(), Sanity::default());
        for index in 0..recording.commits().len() {
            let split = Split::of(&recording.snapshot(index).map_err(broken)?);
            let spaces = recording.residence(index).map_err(broken)?;
            sanity.window(&split, spaces.iter().map(|space| space.bytes).sum());
            if judged.contains(&index) {
                splits.push(split);
            }
        }
        let layout = recording.layout(last).map_err(broken)?;
        let last = recording.snapshot(last).map_err(broken)?;
        Ok(Self { splits, judged, sanity, last, layout })
    }

    /// The median over the judged windows.
    pub(super) fn median(&self, of: impl Fn(&Split) -> u64) -> f64 {
        median(self.splits.iter().map(|split| of(split) as f64).collect())
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Greatest factor that is reported, also if one of the figures is 0.
const MOST_OFF: f64 = 1000.0;

/// Factor between two figures, at least 1.
pub(super) fn factor(a: f64, b: f64) -> f64 {
    if a.min(b) > 0.0 { (a / b).max(b / a).min(MOST_OFF) } else { MOST_OFF }
}

/// Bytes, from the number of KiB after a word.
pub(super) fn kib_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The common parts of a range of a process and the memory that a recording lists for it: parts of
/// shared memory at their addresses in the shared space.
pub(super) fn listed_parts(layout: &Mappings, range: Range) -> Vec<Range> {
    let (mut at, mut parts) = (range.start, Vec::new());
    let views = layout.views.iter().filter_map(|view| view.range.intersect(&range));
    for view in views {
        let memory = listed(layout, Addr { space: view.space, at: view.start });
        parts.push(Range::new(range.space, at, view.start));
        parts.push(Range::new(memory.space, memory.at, memory.at + view.bytes()));
        at = view.end;
    }
    parts.push(Range::new(range.space, at, range.end));
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{PAGE_SIZE as PAGE, Region, SharedView, Unknown};

    fn range(space: u32, start: u64, end: u64) -> Range {
        Range::new(SpaceId(space), start * PAGE, end * PAGE)
    }

    #[test]
    fn bytes_are_split_by_heat() {
        let region = |page: u64, hits, unknown| Region {
            unknown,
            ..Region::sampled(range(0, page, page + 1), hits, 40)
        };
        let regions = vec![
            region(0, 9.0, None),
            region(1, 9.0, Some(Unknown::Refused)),
            region(2, 0.0, None),
            region(3, 1.0, None),
        ];
        let split = Split::of(&Snapshot { regions, ..Snapshot::default() });
        assert_eq!(split, Split { hot: PAGE, cold: PAGE, unknown: PAGE, resident: 4 * PAGE });
    }

    // Pages 2 and 3 of process 0 are a view of pages 64 and 65 of the shared space.
    #[test]
    fn shared_parts_are_listed_at_their_own_addresses() {
        let memory = Addr { space: SpaceId(9), at: 64 * PAGE };
        let view = SharedView { range: range(0, 2, 4), memory, name: "".into() };
        let layout = Mappings { views: vec![view], ..Mappings::default() };
        let parts = listed_parts(&layout, range(0, 3, 6));
        assert_eq!(parts, [range(9, 65, 66), range(0, 4, 6)]);
        assert_eq!(listed_parts(&layout, range(1, 3, 6)), [range(1, 3, 6)]);
    }

    // Ten pages of a machine of 16: hot is more than resident in one of four windows; before the
    // first measurement it is not compared.
    #[test]
    fn every_window_is_checked() {
        let mut sanity = Sanity::default();
        for (hot, resident, measured) in [(3, 10, 0), (3, 10, 8), (3, 9, 2), (1, 8, 10)] {
            sanity.window(&Split { hot, resident, ..Split::default() }, measured);
        }
        let [sane, most] = sanity.rows("x", 16, "");
        assert_eq!((sane.value, sane.holds), (0.75, false));
        assert_eq!((most.value, most.holds), (0.625, true));
    }

    #[test]
    fn the_worst_of_all_recordings_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("accuracy.json");
        let mut table = Table::load(&path).unwrap();
        for (hot, measured) in [(1, 2), (3, 2)] {
            let mut sanity = Sanity::default();
            sanity.window(&Split { hot, ..Split::default() }, measured);
            table.add(sanity.rows("x", 4, "").into(), &path).unwrap();
        }
        sum_up(&mut table, &path).unwrap();
        sum_up(&mut table, &path).unwrap();
        assert_eq!(table.values(&format!("{ALL}, {SANE}, worst of 2")), [0.0]);
        assert_eq!(table.values(&format!("{ALL}, {MOST}, worst of 2")), [0.5]);
    }

    #[test]
    fn factors_and_figures_are_read() {
        assert_eq!((factor(3.0, 2.0), factor(2.0, 3.0), factor(0.0, 1.0)), (1.5, 1.5, MOST_OFF));
        assert_eq!(kib_after("x\nMemTotal:   2048 kB\n", "MemTotal:"), Some(2 << 20));
    }
}
