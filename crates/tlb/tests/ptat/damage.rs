//! Damaged captures: each defect is reported with its position, and the intact part is used.

use tierscope_core::Rng;
use tierscope_tlb::ptat::{Misses, What};

use crate::stage::{Bytes, Monitor, REGION, change, open, parse, random};

const HEADER: usize = 32;

fn capture(boards: u8) -> (Bytes, Misses) {
    let mut monitor = Monitor::new(boards, 6, 13);
    random(&mut monitor, 11, 30_000, 8);
    let bytes = monitor.finish();
    let (misses, damage) = parse(&bytes);
    assert!(damage.count == 0 && misses.is_exact());
    (bytes, misses)
}

/// Parses a damaged capture; returns the misses and the first error.
fn damaged(bytes: &Bytes) -> (Misses, String) {
    let (misses, damage) = parse(bytes);
    (misses, damage.first.map(|error| error.to_string()).unwrap_or_default())
}

#[test]
fn a_dropped_record_is_reported() {
    let (bytes, whole) = capture(2);
    let records = (bytes.boards[1].len() - HEADER) / 8;
    let mut rng = Rng::seeded(1);
    for _ in 0..40 {
        let mut less = bytes.clone();
        let at = HEADER + 8 * rng.below(records as u64) as usize;
        less.boards[1].drain(at..at + 8);
        let (misses, error) = damaged(&less);
        assert!(error.contains("byte "), "{at}: {error}");
        assert!(!misses.is_exact() || error.contains("cut short"), "{at}: {error}");
        // At most one block of 4096 requests is left out.
        assert!(misses.total() + 4096 >= whole.total(), "{at}");
    }
}

#[test]
fn swapped_records_are_reported() {
    let (bytes, _) = capture(1);
    let mut swapped = bytes.clone();
    let at = HEADER + 8 * 100;
    let board = &mut swapped.boards[0];
    let (front, back) = board.split_at_mut(at + 8);
    front[at..].swap_with_slice(&mut back[..8]);
    let (misses, error) = damaged(&swapped);
    assert!(error.contains("checksum of the records from byte 32 on"), "{error}");
    assert!(misses.boards[0].damaged > 0 && !misses.is_exact());
}

#[test]
fn a_flipped_bit_is_found() {
    let (bytes, whole) = capture(2);
    let mut rng = Rng::seeded(2);
    for round in 0..200 {
        let mut flipped = bytes.clone();
        let streams = [&mut flipped.boards[0], &mut flipped.dump];
        let [board, dump] = streams;
        let (stream, header) = if round % 2 == 0 { (board, HEADER) } else { (dump, 64) };
        let at = header + rng.below((stream.len() - header) as u64) as usize;
        stream[at] ^= 1 << rng.below(8);
        let (misses, error) = damaged(&flipped);
        assert!(error.contains("byte "), "round {round}, byte {at}: {error}");
        if round % 2 == 0 {
            assert!(misses.total() + 4096 >= whole.total(), "round {round}, byte {at}");
        }
    }
}

#[test]
fn wherever_a_stream_is_cut_its_front_is_of_use() {
    let (bytes, whole) = capture(1);
    let length = bytes.boards[0].len();
    for end in (HEADER..length).step_by(length / 60) {
        let mut cut = bytes.clone();
        cut.boards[0].truncate(end);
        let (misses, error) = damaged(&cut);
        assert!(error.contains("cut short") && error.contains("byte "), "{error}");
        let share = (end - HEADER) as f64 / (length - HEADER) as f64;
        let front = misses.total() as f64 / whole.total() as f64;
        assert!((front - share).abs() < 0.1, "{front} of misses in {share} of the stream");
    }
    let mut cut = bytes.clone();
    cut.dump.truncate(bytes.dump.len() - 1);
    assert!(damaged(&cut).1.contains("cut short"));
}

// The pages of a missing group remain unknown; tag numbers continue.
#[test]
fn a_missing_group_is_reported_and_the_next_is_used() {
    let mut monitor = Monitor::new(1, 6, 13);
    for entry in 0..10 {
        monitor.tell(&[change(What::Map, 1, entry * 8, entry, 0)]);
        monitor.request(REGION.start + entry * 64, false);
    }
    let mut bytes = monitor.finish();
    // Groups of three records, from byte 64 on: removes the fourth group.
    bytes.dump.drain(64 + 3 * 39..64 + 4 * 39);
    let (misses, damage) = parse(&bytes);
    let error = damage.first.unwrap().to_string();
    assert!(
        error.contains("the end record counts 31 records, but 28 are there")
            || error.contains("byte")
    );
    assert_eq!((misses.total(), misses.idle), (9, 1));
}

#[test]
fn lost_requests_are_counted_and_reported() {
    let mut monitor = Monitor::new(1, 6, 13);
    monitor.tell(&[change(What::Map, 1, 0, 5, 0)]);
    (0..3).for_each(|_| monitor.lose(0));
    monitor.ticks += 1_000_000;
    monitor.request(REGION.start, false);
    let (misses, damage) = parse(&monitor.finish());
    assert_eq!((damage.count, misses.boards[0].overruns, misses.total()), (0, 3, 1));
    assert!(!misses.is_exact());
}

#[test]
fn boards_of_different_machines_are_refused() {
    let (two, _) = capture(2);
    let (one, _) = capture(1);
    let error = |boards: Vec<Vec<u8>>| {
        let bytes = Bytes { boards, dump: two.dump.clone() };
        open(&bytes).err().unwrap().to_string()
    };
    assert!(error(vec![two.boards[0].clone()]).contains("the machine has 2, not 1"));
    assert!(
        error(vec![two.boards[1].clone(), two.boards[0].clone()])
            .contains("board 1 is in the place of 0")
    );
    let mixed = vec![two.boards[0].clone(), one.boards[0].clone()];
    assert!(error(mixed).contains("board 0 is in the place of 1"));
    assert!(error(vec![b"text".to_vec()]).contains("no stream of a bus monitor"));
}
