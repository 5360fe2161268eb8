//! What goes in comes out, in any order, finished or not.

mod common;

use common::{frames, meta, open, read_all, record};
use proptest::prelude::*;
use tierscope_core::drive::Sink;
use tierscope_record::{Memory, Recorder};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_window_comes_back(frames in frames(20), finish in any::<bool>()) {
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
    fn the_layout_in_force_is_the_last_one_given(frames in frames(12)) {
        let recording = open(&record(&frames, true))?;
        let mut last = std::sync::Arc::default();
        for (index, frame) in frames.iter().enumerate() {
            if let Some(changed) = &frame.mappings {
                last = std::sync::Arc::clone(changed);
            }
            prop_assert_eq!(recording.layout(index)?, std::sync::Arc::clone(&last));
        }
    }

    // A reader that follows sees each window as soon as it is committed, and none twice.
    #[test]
    fn a_reader_follows_the_writer(frames in frames(6)) {
        let mut memory = Memory::default();
        let shared = common::Shared::default();
        let mut recorder = Recorder::create_in(shared.clone(), &meta())?;
        let mut recording = tierscope_record::Recording::from_source(Box::new(shared.clone()))?;
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
