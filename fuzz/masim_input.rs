//! Body of the fuzz target `masim`; crates/workloads replays the corpus with it.

use std::time::Duration;

use tierscope_workloads::masim::{self, Mode};
use tierscope_workloads::{Workload, file};

/// Parses the text in both modes. A parsed workload survives printing as TOML and parsing, and the
/// hot parts of its first segment lie within its areas.
pub(crate) fn read(data: &[u8]) -> Option<Workload> {
    let text = std::str::from_utf8(data).ok()?;
    for mode in [Mode::Faithful, Mode::Correct] {
        let workload = masim::parse("input", text, mode).ok()?;
        assert_eq!(file::parse("again", &file::to_toml(&workload)).as_ref(), Ok(&workload));
        for part in workload.hot(&workload.segment_at(Duration::ZERO)) {
            assert!(part.bytes > 0 && part.from + part.bytes <= workload.areas[part.area].bytes);
        }
    }
    masim::parse("input", text, Mode::Correct).ok()
}
