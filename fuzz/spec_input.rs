//! Body of the fuzz target `spec`; crates/workloads replays the corpus with it.

use std::time::Duration;

use tierscope_workloads::{Workload, generate, programs};

/// Parses the text as a description of a workload and as one of a program. The result is
/// consistent: areas are not empty, and the hot parts lie within them.
pub(crate) fn read(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let line = text.trim_end_matches('\n');
    let described = generate::from_spec(line).is_ok_and(|workload| makes_sense(&workload));
    let program = programs::from_spec(line).is_ok_and(|app| {
        assert!(app.areas().iter().all(|area| area.bytes > 0));
        // Thousands of phases, or millions of items, would take too long for a fuzzer.
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
