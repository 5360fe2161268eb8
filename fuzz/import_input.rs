//! Body of the fuzz target `import`; crates/exchange replays the corpus with it.

use std::io::Cursor;

use tierscope_core::Result;
use tierscope_core::drive::{Sink, Window};
use tierscope_exchange::{Options, read};

/// Sink that checks each window: it does not end before its start, and its regions are non-empty,
/// disjoint and in order of address.
#[derive(Default)]
struct Orderly {
    windows: u64,
    end: u64,
}

impl Sink for Orderly {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let snapshot = window.snapshot;
        assert!(snapshot.start <= snapshot.end);
        let apart = |pair: &[tierscope_core::Region]| {
            let (a, b) = (pair[0].range, pair[1].range);
            a.space != b.space || a.end <= b.start
        };
        assert!(snapshot.regions.windows(2).all(apart));
        assert!(snapshot.regions.iter().all(|region| !region.range.is_empty()));
        self.windows += 1;
        self.end = self.end.max(snapshot.end.0);
        Ok(())
    }
}

/// Imports `data` in the format that it looks like; returns the number of windows unless it is
/// refused.
pub(crate) fn import(data: &[u8]) -> Option<u64> {
    // Importing a perf.data file would start the program perf.
    if data.starts_with(b"PERFILE2") {
        return None;
    }
    let scratch = Box::new(Cursor::new(Vec::new()));
    let mut imported = read("input", &mut &*data, Options::default(), scratch).ok()?;
    let _ = imported.meta("import");
    let mut sink = Orderly::default();
    imported.write(&mut sink, &mut |_, _| Ok(())).expect("a scratch in memory does not fail");
    Some(sink.windows)
}
