//! A power cut or a kill -9 at any write: a reader ends at the last whole window, and a complete
//! sync keeps all windows before it.

use tierscope_core::ErrorKind;
use tierscope_record::{Memory, Recording, Table};

use crate::common::{open, read_all};
use crate::power::{LOSSES, Loss, Step, frames, left, steps};

/// Whether window `index` of `whole` is in `left` to the byte, with its commit row, which ends at
/// `row_end`.
fn is_whole(
    left: &Memory,
    whole: &Memory,
    recording: &Recording,
    index: usize,
    row_end: usize,
) -> bool {
    let same = |table: Table, begin: usize, end: usize| {
        let part = |memory: &Memory| Some(memory.streams.get(&table)?.get(begin..end)?.to_vec());
        part(left).is_some_and(|found| Some(found) == part(whole))
    };
    let end = |table: Table, index: usize| recording.commits()[index].ends[table as usize] as usize;
    let begin = |table| index.checked_sub(1).map_or(0, |before| end(table, before));
    Table::PAYLOAD.into_iter().all(|table| same(table, begin(table), end(table, index)))
        && same(Table::Windows, 0, row_end)
}

/// Ends of all rows in the file of commit rows.
fn row_ends(steps: &[Step]) -> Vec<usize> {
    let rows = steps.iter().filter_map(|step| match step {
        Step::Append(Table::Windows, bytes) => Some(bytes.len()),
        _ => None,
    });
    let mut at = 0;
    let ends = rows.map(|bytes| {
        at += bytes;
        at
    });
    // The first is the schema message.
    ends.skip(1).collect()
}

#[test]
fn a_reader_ends_at_the_last_whole_window() {
    let frames = frames();
    let steps = steps(&frames);
    let (whole, promised) = left(&steps, Loss::None);
    let recording = open(&whole).unwrap();
    assert_eq!(recording.commits().len(), frames.len());
    assert_eq!(promised, frames.len() as u64);
    let rows = row_ends(&steps);
    let (mut promises, mut shorter) = (Vec::new(), 0);
    for end in 0..=steps.len() {
        for loss in LOSSES {
            let (left, promised) = left(&steps[..end], loss);
            let whole = (0..frames.len())
                .take_while(|index| is_whole(&left, &whole, &recording, *index, rows[*index]))
                .count();
            assert!(promised <= whole as u64, "{end} {loss:?}: {promised} of {whole}");
            match open(&left) {
                Ok(found) => {
                    assert_eq!(read_all(&found).unwrap(), frames[..whole], "{end} {loss:?}");
                    found.heat(0..whole, 20, |_| Ok(())).unwrap();
                    (0..whole).for_each(|index| drop(found.metrics(index).unwrap()));
                }
                Err(e) => assert!(whole == 0 && e.kind() == ErrorKind::Data, "{end} {loss:?}: {e}"),
            }
            promises.push(promised);
            shorter += u64::from(promised < whole as u64);
        }
    }
    promises.sort_unstable();
    promises.dedup();
    assert!(promises.len() >= 3, "syncs in the middle: {promises:?}");
    assert!(shorter > 100, "windows beyond the last sync that survive: {shorter}");
}

// Zeros at the end of one stream: what ext4 leaves of a file that was written but not synced. Also
// of a recording that was ended before the mark at its end vouched for anything.
#[test]
fn zeros_at_the_end_of_a_stream_cost_the_windows_they_cover() {
    let frames = frames();
    for (ended, table) in [true, false].into_iter().flat_map(|e| Table::PAYLOAD.map(|t| (e, t))) {
        let mut memory = crate::common::record(&frames, ended);
        let ends: Vec<u64> =
            open(&memory).unwrap().commits().iter().map(|row| row.ends[table as usize]).collect();
        let stream = memory.streams.get_mut(&table).unwrap();
        let zeroed = stream.len().saturating_sub(3000).max(ends[0] as usize);
        stream[zeroed..].fill(0);
        let expected = ends.iter().filter(|end| **end <= zeroed as u64).count();
        let mut found = open(&memory).unwrap();
        assert_eq!(read_all(&found).unwrap(), frames[..expected], "{}", table.name());
        if expected < frames.len() {
            let damage = found.damage().unwrap().to_string();
            assert!(
                damage.contains(&format!("the {expected} windows before can be read")),
                "{damage}"
            );
            assert!(!found.is_ended());
        }
        assert_eq!((found.refresh(), found.commits().len()), (Ok(0), expected));
    }
}

// The third of ten bytes ranges is damaged though it was synced: a hint saves the look at it.
#[test]
fn of_a_recording_in_progress_only_windows_since_the_last_sync_are_checked() {
    let frames = frames();
    let steps = steps(&frames);
    let last =
        steps.iter().rposition(|step| matches!(step, Step::Append(Table::Windows, _))).unwrap();
    // Without the mark at the end.
    let (memory, _) = left(&steps[..last], Loss::None);
    let recording = open(&memory).unwrap();
    let hint = recording.commits().last().unwrap().synced as usize;
    assert!(!recording.is_ended() && (4..12).contains(&hint), "{hint}");
    let regions = |index: usize| recording.commits()[index].ends[Table::Regions as usize] as usize;
    for (index, expected) in [(hint - 1, 12), (hint, hint)] {
        let mut damaged = memory.clone();
        damaged.streams.get_mut(&Table::Regions).unwrap()[regions(index) - 1] ^= 1;
        let found = open(&damaged).unwrap();
        assert_eq!(found.commits().len(), expected);
        assert_eq!(found.window(index - 1).unwrap(), frames[index - 1]);
    }
}
