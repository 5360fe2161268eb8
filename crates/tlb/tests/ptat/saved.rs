//! Parsing that is interrupted and continued.

use std::fs;

use tierscope_tlb::ptat::{Capture, Files, What};

use crate::stage::{Monitor, change, parse, random, touch_data};

#[test]
fn an_interrupted_parse_has_the_same_result() {
    let mut monitor = Monitor::new(3, 6, 13);
    let placed = change(What::Place, 3, 9, 0x777, 0);
    monitor.tell(&[tierscope_tlb::ptat::Change { frame: 200, ..placed }]);
    (0..500).for_each(|at| touch_data(&mut monitor, 200, at));
    random(&mut monitor, 5, 60_000, 8);
    (0..500).for_each(|at| touch_data(&mut monitor, 200, at));
    let bytes = monitor.finish();
    let (expected, _) = parse(&bytes);
    assert_eq!(expected.watched.values().map(|page| page.reads + page.writes).sum::<u64>(), 1000);
    let dir = tempfile::tempdir().unwrap();
    let files = Files::of(dir.path(), 3);
    files
        .boards
        .iter()
        .zip(&bytes.boards)
        .for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    fs::write(&files.dump, &bytes.dump).unwrap();
    assert_eq!(Files::find(dir.path()).unwrap(), files);
    let mut steps = 0;
    let mut state = Capture::open(dir.path()).unwrap().save();
    loop {
        let mut capture = Capture::resume(dir.path(), &state).unwrap();
        if !capture.step(&mut ()) {
            let (misses, damage) = capture.finish();
            assert_eq!((misses, damage.count), (expected, 0));
            break;
        }
        state = capture.save();
        steps += 1;
    }
    assert!(steps > 3, "{steps}");
}

#[test]
fn a_state_that_is_damaged_or_of_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut monitor = Monitor::new(1, 6, 13);
    random(&mut monitor, 5, 500, 8);
    let bytes = monitor.finish();
    let files = Files::of(dir.path(), 1);
    fs::write(&files.boards[0], &bytes.boards[0]).unwrap();
    assert!(Files::find(dir.path()).is_err(), "there is no dump");
    fs::write(&files.dump, &bytes.dump).unwrap();
    let mut capture = Capture::open(dir.path()).unwrap();
    capture.step(&mut ());
    let state = capture.save();
    for at in [0, 8, 9, state.len() / 2, state.len() - 1] {
        let mut damaged = state.clone();
        damaged[at] ^= 1;
        let error = Capture::resume(dir.path(), &damaged).err().unwrap().to_string();
        assert!(error.contains("checksum"), "{error}");
    }
    assert!(Capture::resume(dir.path(), &state[..3]).is_err());
}
