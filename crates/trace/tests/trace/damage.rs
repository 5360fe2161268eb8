//! Damaged files in the compact format: each defect is reported with its position, and the intact
//! part is read.

use tierscope_core::{Rng, Time};
use tierscope_trace::compact::{Reader, Writer};
use tierscope_trace::{Access, Batch, Event, Kind, Source};

/// Two alternating threads, in many blocks: an event that maps memory ends a block.
fn written() -> (Vec<u8>, Vec<Access>) {
    let mut writer = Writer::new("memory", Vec::new()).unwrap();
    let mut rng = Rng::seeded(7);
    let mut all = Vec::new();
    for thread in 0..2 {
        let name = "".into();
        writer.event(&Event::Thread { number: thread, pid: 1, tid: thread.into(), name }).unwrap();
    }
    for round in 0..10u64 {
        for step in 0..200u64 {
            let address = 0x7000_0000 + rng.below(1 << 20);
            let time = Time(round * 1000 + step);
            let thread = (step % 2) as u32;
            let access = Access { address, time, thread, bytes: 8, kind: Kind::Store };
            writer.access(&access).unwrap();
            all.push(access);
        }
        let (time, start) = (Time(round * 1000 + 999), round << 30);
        writer.event(&Event::Unmap { time, pid: 1, start, bytes: 4096 }).unwrap();
    }
    let (bytes, ..) = writer.finish(true).unwrap();
    (bytes, all)
}

/// Reads a trace; returns its accesses and all errors.
fn read(bytes: &[u8]) -> (Vec<Access>, Vec<String>) {
    let mut batch = Batch::default();
    let mut errors = Vec::new();
    let Ok(mut reader) = Reader::new("t", bytes) else { return (Vec::new(), vec!["start".into()]) };
    loop {
        match reader.fill(&mut batch) {
            Ok(true) => {}
            Ok(false) => return (batch.accesses, errors),
            Err(error) => {
                errors.push(error.to_string());
                if !reader.go_on() {
                    return (batch.accesses, errors);
                }
            }
        }
    }
}

/// Offsets of the blocks: 10 of each thread, 11 of events, the end.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let mark = b"\xb1TSB";
    (0..bytes.len() - 4).filter(|at| bytes[*at..].starts_with(mark)).collect()
}

fn sorted(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.sort_by_key(|access| (access.thread, access.time));
    accesses
}

#[test]
fn complete_files_are_read_completely() {
    let (bytes, all) = written();
    let (read, errors) = read(&bytes);
    assert_eq!((sorted(read), errors), (sorted(all), Vec::new()));
    assert_eq!(blocks(&bytes).len(), 32);
}

#[test]
fn accesses_before_a_cut_are_kept() {
    let (bytes, _) = written();
    let starts = blocks(&bytes);
    for end in (16..bytes.len()).step_by(7) {
        let (found, errors) = read(&bytes[..end]);
        let whole = starts.iter().filter(|start| **start < end).count().saturating_sub(1);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("cut short") && errors[0].contains("byte "), "{errors:?}");
        // Blocks have 100 accesses each.
        assert!(found.len() >= 100 * whole.saturating_sub(11).min(20), "{end}");
        assert_eq!(found.len() % 100, 0);
    }
}

#[test]
fn a_flipped_bit_costs_a_block_at_most() {
    let (bytes, all) = written();
    let mut rng = Rng::seeded(1);
    for _ in 0..300 {
        let mut damaged = bytes.clone();
        let at = 16 + rng.below(bytes.len() as u64 - 16) as usize;
        damaged[at] ^= 1 << rng.below(8);
        let (found, errors) = read(&damaged);
        assert!(!errors.is_empty(), "byte {at}");
        assert!(errors[0].contains("byte "), "{errors:?}");
        assert!(found.len() >= all.len() - 100, "byte {at}: {} of {}", found.len(), all.len());
        let known: std::collections::HashSet<_> = all.iter().collect();
        assert!(found.iter().all(|access| known.contains(access)));
    }
}

#[test]
fn missing_and_foreign_bytes_are_errors() {
    let (bytes, all) = written();
    let starts = blocks(&bytes);
    let (from, to) = (starts[5], starts[6]);
    let missing = [&bytes[..from], &bytes[to..]].concat();
    let (found, errors) = read(&missing);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains(&format!("byte {from}: 1 blocks are missing before block 6")),
        "{errors:?}"
    );
    assert!(found.len() >= all.len() - 100);
    let foreign = [&bytes[..to], b"some text", &bytes[to..]].concat();
    let (found, errors) = read(&foreign);
    assert_eq!(found.len(), all.len());
    assert!(errors[0].contains(&format!("byte {to}: there is no block")), "{errors:?}");
    let more = [&bytes[..], b"more"].concat();
    let (found, errors) = read(&more);
    assert_eq!(found.len(), all.len());
    assert!(errors[0].contains("bytes behind the last block"), "{errors:?}");
}

#[test]
fn blocks_out_of_order_are_errors() {
    let (bytes, all) = written();
    let starts = blocks(&bytes);
    let [a, b, c] = [starts[5], starts[6], starts[7]];
    let swapped = [&bytes[..a], &bytes[b..c], &bytes[a..b], &bytes[c..]].concat();
    let (found, errors) = read(&swapped);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("1 blocks are missing before block 6"), "{errors:?}");
    assert!(errors[1].contains("block 5 comes after block 6"), "{errors:?}");
    assert!(found.len() >= all.len() - 100);
}

#[test]
fn a_file_of_another_format_is_refused() {
    let (bytes, _) = written();
    assert!(Reader::new("t", &b"I  04000000,3\n"[..]).is_err());
    assert!(Reader::new("t", &bytes[..9]).is_err());
    let mut newer = bytes[..16].to_vec();
    newer[8] = 3;
    let error = Reader::new("t", &newer[..]).err().unwrap().to_string();
    assert!(error.contains("byte 8: its first bytes do not match"), "{error}");
}
