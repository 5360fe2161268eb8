//! The file that names the mappings of a capture's processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use tierscope_core::{Mappings, Result, SpaceId};
use tierscope_trace::Event;
use tierscope_trace::compact::Writer;

use super::create;

/// Writes mappings, and their changes, as events of a compact trace: reports name objects by them.
pub(super) struct Names {
    writer: Writer<BufWriter<File>>,
    known: BTreeMap<(u64, u64), u64>,
}

impl Names {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let (name, out) = create(path)?;
        Ok(Self { writer: Writer::new(&name, out)?, known: BTreeMap::new() })
    }

    /// Writes the differences from the mappings of the last call.
    pub(super) fn look(&mut self, mappings: &Mappings) -> Result<()> {
        let pid = |space: SpaceId| u64::from(space.0) + 1;
        let mut now = BTreeMap::new();
        for mapping in &mappings.mappings {
            let (start, bytes) = (mapping.range.start, mapping.range.bytes());
            let key = (pid(mapping.range.space), start);
            now.insert(key, bytes);
            if self.known.get(&key) != Some(&bytes) {
                let (time, backing, writable) = (mappings.taken, mapping.backing, mapping.writable);
                let (pid, name) = (key.0, Arc::clone(&mapping.name));
                self.writer.event(&Event::Map {
                    time,
                    pid,
                    start,
                    bytes,
                    backing,
                    writable,
                    name,
                })?;
            }
        }
        for ((pid, start), bytes) in &self.known {
            if !now.contains_key(&(*pid, *start)) {
                let (time, pid, start, bytes) = (mappings.taken, *pid, *start, *bytes);
                self.writer.event(&Event::Unmap { time, pid, start, bytes })?;
            }
        }
        self.known = now;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<()> {
        self.writer.finish(true).map(drop)
    }
}
