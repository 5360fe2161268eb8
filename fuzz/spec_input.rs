//! What the fuzz target `spec` does with its input; crates/workloads replays the corpus with it.

use std::time::Duration;

use tierscope_workloads::{Workload, generate, programs};

/// Reads the text as a line of a description and as one of a program. What is read makes sense: areas
/// hold bytes, and what is hot lies in them.
pub(crate) fn read(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let line = text.trim_end_matches('\n');
    let described = generate::from_spec(line).is_ok_and(|workload| makes_sense(&workload));
    let program = programs::from_spec(line).is_ok_and(|app| {
        assert!(app.areas().iter().all(|area| area.bytes > 0));
        // Thousands of phases, or millions of items, take longer than a fuzzer waits.
        let small = app.areas().iter().all(|area| area.bytes < 1 << 24);
        !small || app.described().is_none_or(|workload| makes_sense(&workload))
    });
    described || program
}

fn makes_sense(workload: &Workload) -> bool {
    assert_eq!(workload.check(), Ok(()));
    if workload.bytes() < 1 << 24 {
        for part in workload.hot(&workload.segment_at(Duration::ZERO)) {
            assert!(part.bytes > 0 && part.from + part.bytes <= workload.areas[part.area].bytes);
        }
    }
    true
}
