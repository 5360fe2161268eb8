//! Bounds on placements of a recording (`contest/bounds.rs`). There are no times of memory in it,
//! so `interleave` fills the fast tier evenly, and what saves an access is worth a move.

use tierscope_core::{Policy, RangeSet, Result};
use tierscope_policies::make;
use tierscope_record::Recording;

use super::replayed::{Replayed, accessed};
use crate::contest::{Bound, Clairvoyant, Foresight, WINDOWS, Window};

/// A machine's beginning, and its policy.
pub(super) struct Begin {
    pub(super) capacity: u64,
    pub(super) begins_fast: RangeSet,
    pub(super) policy: Box<dyn Policy>,
}

/// The beginning of a policy or bound with `bytes` of fast memory.
///
/// # Errors
/// The recording cannot be read, or there is no such policy.
pub(super) fn begin(recording: &Recording, bytes: u64, line: &str) -> Result<Begin> {
    let nothing = RangeSet::default();
    let plain = |capacity, begins_fast, line: &str| {
        Ok(Begin { capacity, begins_fast, policy: make(line)? })
    };
    match Bound::named(line) {
        None => plain(bytes, nothing, line),
        Some(Bound::AllSlow | Bound::Interleave) => plain(bytes, nothing, "static"),
        Some(Bound::AllFast) => plain(u64::MAX, foresee(recording, u64::MAX)?.fast(), "static"),
        Some(Bound::Oracle) => plain(bytes, foresee(recording, bytes)?.fast(), "static"),
        Some(Bound::Clairvoyant) => {
            let seen = foresee(recording, bytes)?;
            let begins_fast = seen.fast();
            let policy = Box::new(Clairvoyant::untimed(seen));
            Ok(Begin { capacity: bytes, begins_fast, policy })
        }
    }
}

/// Share of the mapped memory that is in the fast tier if it is filled evenly.
pub(super) fn interleaved(machine: &Replayed<'_>, bytes: u64) -> f64 {
    (bytes as f64 / machine.mapped().max(1) as f64).min(1.0)
}

/// Bytes accessed in each part of a recording, by region.
fn foresee(recording: &Recording, bytes: u64) -> Result<Foresight> {
    let commits = recording.commits();
    let joined = commits.len().div_ceil(WINDOWS as usize).max(1);
    let first = commits.first().map(|row| row.start);
    let (mut times, mut windows): (Vec<_>, _) = (first.into_iter().collect(), Vec::new());
    for part in (0..commits.len()).step_by(joined) {
        let part = part..commits.len().min(part + joined);
        times.push(commits[part.end - 1].end);
        let mut window = Window::new();
        for index in part {
            let snapshot = recording.snapshot(index)?;
            let bytes =
                accessed(&snapshot).map(|r| (r.range, r.range.bytes() as f64 * r.frequency()));
            window.extend(bytes);
        }
        windows.push(window);
    }
    let rest = u64::MAX / 2;
    Ok(Foresight::of(times, windows, rest, vec![bytes, rest]))
}
