//! Recorded data are read back unchanged, in any order, from finished and unfinished recordings.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::common::{frames, meta, open, read_all, record};
use proptest::prelude::*;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Node, OnNode, Placed, Residence, Snapshot, SpaceId, SpaceResidence, Time};
use tierscope_record::{Memory, Recorder, Recording, Source, Store, Table};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_window_is_read_back(frames in frames(20), finish in any::<bool>()) {
        let recording = open(&record(&frames, finish))?;
        prop_assert_eq!(recording.meta(), &meta());
        prop_assert_eq!(recording.is_ended(), finish);
        prop_assert_eq!(recording.damage(), None);
        prop_assert_eq!(read_all(&recording)?, frames);
    }

    #[test]
    fn windows_are_read_in_any_order(frames in frames(12)) {
        let recording = open(&record(&frames, true))?;
        for (index, frame) in frames.iter().enumerate().rev() {
            prop_assert_eq!(&recording.window(index)?, frame);
        }
    }

    // A layout holds until the next one.
    #[test]
    fn the_layout_is_the_one_written_last(frames in frames(12)) {
        let recording = open(&record(&frames, true))?;
        let mut last = Arc::default();
        for (index, frame) in frames.iter().enumerate() {
            if let Some(changed) = &frame.mappings {
                last = Arc::clone(changed);
            }
            prop_assert_eq!(recording.layout(index)?, Arc::clone(&last));
        }
    }

    // A concurrent reader sees each window as soon as it is committed, and none twice.
    #[test]
    fn a_reader_follows_the_writer(frames in frames(6)) {
        let mut memory = Memory::default();
        let shared = Shared::default();
        let mut recorder = Recorder::create_in(shared.clone(), &meta())?;
        let mut recording = Recording::from_source(Box::new(shared.clone()))?;
        for (index, frame) in frames.iter().enumerate() {
            prop_assert_eq!(recording.refresh()?, 0);
            recorder.window(&frame.as_window())?;
            prop_assert_eq!(recording.refresh()?, 1);
            prop_assert_eq!(&recording.window(index)?, frame);
        }
        prop_assert!(!recording.is_ended());
        recorder.finish()?;
        prop_assert_eq!(recording.refresh()?, 0);
        prop_assert!(recording.is_ended());
        memory.streams = shared.take();
        prop_assert_eq!(read_all(&open(&memory)?)?, frames);
    }
}

/// A recording in memory, shared by a writer and a reader.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Memory>>);

impl Shared {
    fn take(&self) -> BTreeMap<Table, Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap().streams)
    }
}

impl Store for Shared {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().append(table, bytes)
    }

    fn name(&self) -> String {
        "shared".into()
    }
}

impl Source for Shared {
    fn len(&self, table: Table) -> io::Result<Option<u64>> {
        self.0.lock().unwrap().len(table)
    }

    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.0.lock().unwrap().read(table, offset, bytes)
    }

    fn name(&self) -> String {
        "shared".into()
    }
}

// Residence is known from the second window on; for the second space without nodes.
#[test]
fn residence_is_read_back_with_its_window() {
    let on = |node, bytes| OnNode { node: Node(node), bytes };
    let placed = Placed { taken: Time(3), nodes: vec![on(0, 5 << 40), on(3, 1)], drawn: 4096 };
    let of = |space, placed| SpaceResidence {
        extents: None,
        space: SpaceId(space),
        taken: Time(4),
        bytes: (5 << 40) + 7,
        placed,
    };
    let residence =
        Residence { spaces: vec![of(0, Some(placed)), of(9, None)], ..Residence::default() };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).unwrap();
    let snapshot = Snapshot::default();
    recorder.window(&Window::of(&snapshot)).unwrap();
    recorder.window(&Window { residence: Some(&residence), ..Window::of(&snapshot) }).unwrap();
    recorder.finish().unwrap();
    let recording = open(&memory).unwrap();
    assert_eq!(recording.residence(0).unwrap(), []);
    assert_eq!(recording.residence(1).unwrap(), residence.spaces);
}
