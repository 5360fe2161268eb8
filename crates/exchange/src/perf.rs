//! Sampled accesses as `perf script` prints them, converted to regions.
//!
//! A sample is one access: address and time. A block of memory that was sampled in k of a window's
//! sampling intervals is a region with k hits; adjacent blocks with equal hits and age are merged.
//! Memory that was not sampled is in no region: samples do not show what is cold.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::Result;
use tierscope_trace::perf_script::{KERNEL, Sample, parse};

use crate::place::{Place, excerpt, malformed};
use crate::spool::{Age, ForeignRegion, Hits, Origin, SnapshotHead, Spool, StreamId};

/// Resolution at which samples are binned into regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Sampling interval.
    pub(crate) sampling: Duration,
    /// Length of a window.
    pub(crate) window: Duration,
    /// log2 of the bytes of a block.
    pub(crate) shift: u32,
}

/// Bins samples into windows.
pub(crate) struct Reader {
    grain: Grain,
    processes: BTreeMap<u64, Process>,
    /// Start of the open window.
    open: Option<u64>,
    last: u64,
}

/// Blocks of a process that were sampled in the current window, and in the one before.
struct Process {
    stream: StreamId,
    blocks: BTreeMap<u64, Block>,
    before: BTreeMap<u64, Block>,
}

/// Hits of a block in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    hits: u32,
    /// Number of the sampling interval of the last hit.
    interval: u64,
    age: u32,
}

impl Reader {
    pub(crate) fn new(grain: Grain) -> Self {
        Self { grain, processes: BTreeMap::new(), open: None, last: 0 }
    }

    /// Parses a line; returns whether it was a sample.
    pub(crate) fn line(
        &mut self,
        file: &str,
        number: u64,
        text: &str,
        spool: &mut Spool,
    ) -> Result<bool> {
        let sample = parse(text).map_err(|item| {
            let cause = format!("no {item} in {}", excerpt(text.as_bytes()));
            malformed(file, Place::Line(number), cause)
        })?;
        let Some(sample) = sample else { return Ok(false) };
        if sample.time < self.last {
            let cause = "time goes backwards: the samples are not in order of time";
            return Err(malformed(file, Place::Line(number), cause));
        }
        self.last = sample.time;
        self.advance(sample.time, spool)?;
        if sample.address == 0 || sample.address >= KERNEL {
            spool.unused_samples += 1;
            return Ok(true);
        }
        self.count(&sample, spool);
        Ok(true)
    }

    fn window_nanos(&self) -> u64 {
        self.grain.window.as_nanos() as u64
    }

    /// Closes the current window if `time` is beyond it. Windows without a sample are omitted.
    fn advance(&mut self, time: u64, spool: &mut Spool) -> Result<()> {
        let length = self.window_nanos();
        let open = *self.open.get_or_insert(time);
        if time - open < length {
            return Ok(());
        }
        self.close(open, spool)?;
        self.open = Some(open + (time - open) / length * length);
        Ok(())
    }

    fn count(&mut self, sample: &Sample, spool: &mut Spool) {
        let grain = self.grain;
        let pid = sample.pid.cast_unsigned();
        let process = self.processes.entry(pid).or_insert_with(|| {
            let name = Some(sample.name.clone());
            let stream = spool.stream(&Origin { name, ..Origin::target(pid) });
            let of = &mut spool.streams[stream.0];
            of.sampling = Some(grain.sampling.as_nanos() as f64);
            of.window = Some(grain.window.as_nanos() as f64);
            Process { stream, blocks: BTreeMap::new(), before: BTreeMap::new() }
        });
        let since = sample.time - self.open.unwrap_or(sample.time);
        let interval = since / (grain.sampling.as_nanos() as u64).max(1);
        let block = process.blocks.entry(sample.address >> grain.shift).or_insert(Block {
            hits: 0,
            interval: u64::MAX,
            age: 0,
        });
        if block.interval != interval {
            (block.hits, block.interval) = (block.hits + 1, interval);
        }
    }

    /// Closes the window that began at `start`: spools a snapshot of each process.
    fn close(&mut self, start: u64, spool: &mut Spool) -> Result<()> {
        let end = start.saturating_add(self.window_nanos());
        for process in self.processes.values_mut() {
            for (number, block) in &mut process.blocks {
                let before = process.before.get(number).filter(|before| before.hits == block.hits);
                block.age = before.map_or(0, |before| before.age.saturating_add(1));
            }
            if !process.blocks.is_empty() {
                let mut regions = regions(&process.blocks, self.grain.shift);
                let snapshot = SnapshotHead { start: Some(start), end, sampling: None, ours: None };
                let place = ("samples", Place::Whole);
                spool.push(process.stream, snapshot, &mut regions, place)?;
            }
            process.before = std::mem::take(&mut process.blocks);
        }
        Ok(())
    }

    /// Closes the last window.
    pub(crate) fn finish(&mut self, spool: &mut Spool) -> Result<()> {
        match self.open.take() {
            Some(start) => self.close(start, spool),
            None => Ok(()),
        }
    }
}

/// Merges adjacent blocks with equal hits and age into regions.
fn regions(blocks: &BTreeMap<u64, Block>, shift: u32) -> Vec<ForeignRegion> {
    let mut regions: Vec<ForeignRegion> = Vec::new();
    for (number, block) in blocks {
        let (start, end) = (number << shift, (number + 1) << shift);
        match regions.last_mut() {
            Some(last)
                if last.end == start
                    && last.hits == Hits::Samples(block.hits as f32)
                    && last.age == Age::Windows(block.age) =>
            {
                last.end = end;
            }
            _ => regions.push(ForeignRegion::new(start, end, block.hits as f32, block.age)),
        }
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::in_memory;

    const GRAIN: Grain =
        Grain { sampling: Duration::from_millis(5), window: Duration::from_millis(200), shift: 12 };

    fn spooled(samples: &[(u64, u64)]) -> Result<Spool> {
        let (mut spool, mut reader) = (in_memory(), Reader::new(GRAIN));
        for (number, (millis, addr)) in samples.iter().enumerate() {
            let line = format!("7 {}.{:03}: mem: {addr:x}", millis / 1000, millis % 1000);
            reader.line("x", number as u64 + 1, &line, &mut spool)?;
        }
        reader.finish(&mut spool)?;
        Ok(spool)
    }

    // Windows start at 1000 ms: pages 1 and 2 have two hits each, page 9 has two samples in one
    // interval; in the next window pages 1 and 2 again; after a pause, page 9.
    #[test]
    fn blocks_alike_are_one_region_and_age() {
        let samples = [
            (1000, 0x1000),
            (1001, 0x2000),
            (1002, 0x9000),
            (1003, 0x9000),
            (1050, 0x1fff),
            (1051, 0x2fff),
            (1200, 0x1000),
            (1201, 0x2000),
            (1250, 0x1000),
            (1251, 0x2000),
            (2000, 0x9000),
        ];
        let mut spool = spooled(&samples).unwrap();
        let snapshots = spool.streams[0].snapshots.clone();
        let mut shown = Vec::new();
        for (snapshot, at, count) in snapshots {
            let mut decoded = Vec::new();
            spool.regions(at, count, &mut decoded).unwrap();
            shown.push((snapshot.start.unwrap() / 1_000_000, decoded));
        }
        let expected = vec![
            (
                1000,
                vec![
                    ForeignRegion::new(0x1000, 0x3000, 2.0, 0),
                    ForeignRegion::new(0x9000, 0xa000, 1.0, 0),
                ],
            ),
            (1200, vec![ForeignRegion::new(0x1000, 0x3000, 2.0, 1)]),
            (2000, vec![ForeignRegion::new(0x9000, 0xa000, 1.0, 0)]),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn unusable_samples_are_counted() {
        let spool = spooled(&[(1, 0), (2, 0xffff_8880_0000_0000), (3, 0x1000)]).unwrap();
        assert_eq!(spool.unused_samples, 2);
        let error = spooled(&[(5, 1), (4, 1)]).err().unwrap().to_string();
        assert!(error.contains("line 2: time goes backwards"), "{error}");
    }
}
