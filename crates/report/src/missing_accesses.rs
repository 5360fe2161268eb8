//! Accesses that the recording does not show: ACCESSED bits that other sessions, or other readers
//! on the machine, cleared, and entries that a hot list lost.

use std::collections::BTreeSet;

use tierscope_core::Result;
use tierscope_record::{CLEARED_BY_OTHERS, HOT_LIST_OVERFLOWS, Metric, OTHER_READER, Recording};

/// Number of bits that other sessions cleared until the window of these metrics.
pub(crate) fn cleared_by_others(metrics: &[Metric]) -> u64 {
    count(metrics, CLEARED_BY_OTHERS)
}

/// How often a hot list had lost entries until the window of these metrics.
pub(crate) fn hot_list_overflows(metrics: &[Metric]) -> u64 {
    count(metrics, HOT_LIST_OVERFLOWS)
}

fn count(metrics: &[Metric], name: &str) -> u64 {
    metrics.iter().find(|metric| metric.name == name).map_or(0, |metric| metric.value as u64)
}

/// Other readers of ACCESSED bits that had run until the window of these metrics.
pub(crate) fn other_readers(metrics: &[Metric]) -> impl Iterator<Item = String> {
    metrics.iter().filter_map(|metric| metric.name.strip_prefix(OTHER_READER).map(str::to_owned))
}

/// Sentences for every report on a recording in which others cleared bits, or hot lists lost
/// entries; none for others.
///
/// # Errors
/// If the last window cannot be read.
pub fn missing_accesses(recording: &Recording) -> Result<Vec<String>> {
    let Some(last) = recording.commits().len().checked_sub(1) else { return Ok(Vec::new()) };
    let metrics = recording.metrics(last)?;
    let mut readers = recording.meta().other_readers.clone();
    readers.extend(other_readers(&metrics));
    let shared = of_sessions(cleared_by_others(&metrics));
    let lists = of_hot_lists(hot_list_overflows(&metrics));
    Ok(shared.into_iter().chain(of_readers(&readers)).chain(lists).collect())
}

/// The sentence for these readers.
pub(crate) fn of_readers(readers: &BTreeSet<String>) -> Option<String> {
    let names = readers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (!readers.is_empty()).then(|| {
        format!(
            "accesses are missing: {names} cleared ACCESSED bits too (`tierscope doctor` has the \
             commands that switch them off), and hot memory may be reported as warm or cold"
        )
    })
}

/// The sentence for this number of bits that other sessions cleared.
pub(crate) fn of_sessions(bits: u64) -> Option<String> {
    let accesses = if bits == 1 { "1 access is" } else { &format!("up to {bits} accesses are") };
    (bits > 0).then(|| {
        format!(
            "{accesses} missing: other sessions cleared as many ACCESSED bits of the target \
             (--share-bits), and hot memory may be reported as warm or cold"
        )
    })
}

/// The sentence for this number of overflows of hot lists.
pub(crate) fn of_hot_lists(overflows: u64) -> Option<String> {
    let times = if overflows == 1 { "once" } else { &format!("{overflows} times") };
    (overflows > 0).then(|| {
        format!(
            "hot memory is missing: a hot list overflowed {times}, and what it lost may be \
             reported as cold"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Memory, Meta, Recorder};

    fn recording(meta: &Meta, cleared: &[u64], readers: &[&'static str]) -> Recording {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, meta).unwrap();
        for (window, cleared_by_others) in (1..).zip(cleared) {
            let snapshot = Snapshot { end: Time(window), ..Snapshot::default() };
            let (cleared_by_others, other_readers) = (*cleared_by_others, readers);
            let of = Window::of(&snapshot);
            recorder.window(&Window { cleared_by_others, other_readers, ..of }).unwrap();
        }
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    fn said(meta: &Meta, cleared: &[u64], readers: &[&'static str]) -> Vec<String> {
        missing_accesses(&recording(meta, cleared, readers)).unwrap()
    }

    #[test]
    fn bits_that_other_sessions_cleared_are_in_every_report() {
        let plain = Meta::default();
        assert!(said(&plain, &[], &[]).is_empty() && said(&plain, &[0, 0], &[]).is_empty());
        let text = &said(&plain, &[0, 3, 8], &[])[0];
        assert!(text.starts_with("up to 8 accesses are missing"), "{text}");
    }

    #[test]
    fn overflows_of_hot_lists_are_in_every_report() {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        for (window, hot_list_overflows) in (1..).zip([0, 1, 7]) {
            let snapshot = Snapshot { end: Time(window), ..Snapshot::default() };
            recorder.window(&Window { hot_list_overflows, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        let recording = Recording::from_source(Box::new(memory)).unwrap();
        let text = &missing_accesses(&recording).unwrap()[0];
        assert!(text.contains("a hot list overflowed 7 times"), "{text}");
        assert!(of_hot_lists(1).unwrap().contains("overflowed once"));
        let summary = crate::summary::summary(&recording, &crate::View::default()).unwrap();
        assert_eq!(summary.hot_list_overflows, 7);
    }

    #[test]
    fn other_readers_at_the_start_and_later_are_in_every_report() {
        let other_readers = BTreeSet::from(["damon-stat".to_owned()]);
        let meta = Meta { other_readers, ..Meta::default() };
        let text = &said(&meta, &[0], &["damon-stat", "kdamond"])[0];
        assert!(text.starts_with("accesses are missing: damon-stat, kdamond cleared"), "{text}");
        assert_eq!(said(&meta, &[1], &[]).len(), 2);
    }
}
