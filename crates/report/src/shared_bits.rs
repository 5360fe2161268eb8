//! ACCESSED bits that other sessions cleared: accesses that the recording does not show.

use tierscope_core::Result;
use tierscope_record::{CLEARED_BY_OTHERS, Metric, Recording};

/// Number of bits that other sessions cleared until the window of these metrics.
pub(crate) fn cleared_by_others(metrics: &[Metric]) -> u64 {
    let series = metrics.iter().find(|metric| metric.name == CLEARED_BY_OTHERS);
    series.map_or(0, |metric| metric.value as u64)
}

/// A sentence for every report on a recording in which other sessions cleared bits; `None` for
/// others.
///
/// # Errors
/// If the last window cannot be read.
pub fn shared_bits(recording: &Recording) -> Result<Option<String>> {
    let Some(last) = recording.commits().len().checked_sub(1) else { return Ok(None) };
    Ok(sentence(cleared_by_others(&recording.metrics(last)?)))
}

/// The sentence for this number of bits.
pub(crate) fn sentence(bits: u64) -> Option<String> {
    let accesses = if bits == 1 { "1 access is" } else { &format!("up to {bits} accesses are") };
    (bits > 0).then(|| {
        format!(
            "{accesses} missing: other sessions cleared as many ACCESSED bits of the target \
             (--share-bits), and hot memory may be reported as warm or cold"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Memory, Meta, Recorder};

    fn recording(cleared: &[u64]) -> Recording {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        for (window, cleared_by_others) in (1..).zip(cleared) {
            let snapshot = Snapshot { end: Time(window), ..Snapshot::default() };
            let cleared_by_others = *cleared_by_others;
            recorder.window(&Window { cleared_by_others, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    #[test]
    fn bits_that_others_cleared_are_in_every_report() {
        assert_eq!(shared_bits(&recording(&[])).unwrap(), None);
        assert_eq!(shared_bits(&recording(&[0, 0])).unwrap(), None);
        let text = shared_bits(&recording(&[0, 3, 8])).unwrap().unwrap();
        assert!(text.starts_with("up to 8 accesses are missing"), "{text}");
    }
}
