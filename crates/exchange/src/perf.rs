//! Sampled accesses as `perf script` prints them, made regions.
//!
//! A sample says that an address was accessed at a moment. A block of memory that was sampled in k of a
//! window's sampling intervals is a region with k hits; neighbours alike are one region. What was not
//! sampled is no region: samples do not tell what is cold.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::Result;

use crate::damo::trace::seconds;
use crate::place::{Place, excerpt, malformed, unreadable};
use crate::spool::{Age, Hits, Origin, Refusal, Shot, Spool, StreamId, Told};

/// Addresses from here on are the kernel's.
const KERNEL: u64 = 1 << 63;

/// A sampled access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pid: i64,
    name: String,
    time: u64,
    /// 0 where the processor had none.
    addr: u64,
}

/// Understands a line; `None` if it is no sample, the item that is wrong if it is a damaged one.
///
/// `[comm] pid[/tid] [cpu] time: [period] event: addr …`: with `-F pid,time,event,addr`, or as perf prints samples that
/// have an address by default, where address, data source, instruction pointer and symbol follow.
pub(crate) fn parse(line: &str) -> Result<Option<Sample>, &'static str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(at) = words.iter().position(|word| seconds(word).is_some()) else { return Ok(None) };
    let time = seconds(words[at]).ok_or("time")?;
    let mut rest = &words[at + 1..];
    // The period, where it is printed.
    if rest.first().is_some_and(|word| word.parse::<u64>().is_ok()) {
        rest = &rest[1..];
    }
    match rest.first() {
        Some(event) if event.ends_with(':') => rest = &rest[1..],
        _ => return Ok(None),
    }
    let (pid, name) = process(&words[..at]).ok_or("pid before the time")?;
    let addr = rest.first().and_then(|word| hex(word)).ok_or(ADDRESS)?;
    let has_more = rest.len() > 1;
    // Without addresses in the samples the first number is the instruction's.
    if has_more && !rest[1..].iter().any(|word| word.len() >= 4 && hex(word).is_some()) {
        return Err(ADDRESS);
    }
    Ok(Some(Sample { pid, name, time, addr }))
}

/// What is missing where perf recorded no addresses.
const ADDRESS: &str = "data address (record with `perf mem record`, or `-d`; \
                       print with `perf script -F comm,pid,time,event,addr`)";

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// Pid and name from what stands before the time: `redis 4711/4712 [001]`.
fn process(words: &[&str]) -> Option<(i64, String)> {
    let words = match words.split_last() {
        Some((cpu, before)) if cpu.starts_with('[') => before,
        _ => words,
    };
    let (pid, name) = words.split_last()?;
    let pid = pid.split_once('/').map_or(*pid, |(pid, _)| pid);
    let pid = pid.parse().ok()?;
    let name = if name.is_empty() {
        format!("process {pid}")
    } else {
        format!("{}[{pid}]", name.join(" "))
    };
    Some((pid, name))
}

/// How samples become regions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Sampling interval.
    pub(crate) sampling: Duration,
    /// Length of a window.
    pub(crate) window: Duration,
    /// log2 of the bytes of a block.
    pub(crate) shift: u32,
}

/// Puts samples together to windows.
pub(crate) struct Reader {
    grain: Grain,
    processes: BTreeMap<i64, Process>,
    /// Start of the open window.
    open: Option<u64>,
    last: u64,
}

/// Blocks of a process that were sampled in the open window, and in the one before.
struct Process {
    stream: StreamId,
    blocks: BTreeMap<u64, Block>,
    before: BTreeMap<u64, Block>,
}

/// How often a block was sampled.
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

    /// Takes a line in; whether it was a sample.
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
        if sample.addr == 0 || sample.addr >= KERNEL {
            spool.unused_samples += 1;
            return Ok(true);
        }
        self.count(&sample, spool);
        Ok(true)
    }

    fn window_nanos(&self) -> u64 {
        self.grain.window.as_nanos() as u64
    }

    /// Ends the open window if `time` is beyond it. Windows without a sample are left out.
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
        let process = self.processes.entry(sample.pid).or_insert_with(|| {
            let name = Some(sample.name.clone());
            let stream = spool.stream(&Origin { name, ..Origin::target(sample.pid) });
            let of = &mut spool.streams[stream.0];
            of.sampling = Some(grain.sampling.as_nanos() as f64);
            of.window = Some(grain.window.as_nanos() as f64);
            Process { stream, blocks: BTreeMap::new(), before: BTreeMap::new() }
        });
        let since = sample.time - self.open.unwrap_or(sample.time);
        let interval = since / (grain.sampling.as_nanos() as u64).max(1);
        let block = process.blocks.entry(sample.addr >> grain.shift).or_insert(Block {
            hits: 0,
            interval: u64::MAX,
            age: 0,
        });
        if block.interval != interval {
            (block.hits, block.interval) = (block.hits + 1, interval);
        }
    }

    /// Ends the window that began at `start`.
    fn close(&mut self, start: u64, spool: &mut Spool) -> Result<()> {
        let end = start.saturating_add(self.window_nanos());
        for process in self.processes.values_mut() {
            for (number, block) in &mut process.blocks {
                let before = process.before.get(number).filter(|before| before.hits == block.hits);
                block.age = before.map_or(0, |before| before.age.saturating_add(1));
            }
            if !process.blocks.is_empty() {
                let mut regions = regions(&process.blocks, self.grain.shift);
                let shot = Shot { start: Some(start), end, sampling: None, ours: None };
                spool.push(process.stream, shot, &mut regions).map_err(
                    |refusal| match refusal {
                        Refusal::Sense(cause) => malformed("samples", Place::Whole, cause),
                        Refusal::Scratch(cause) => unreadable("the scratch file", &cause),
                    },
                )?;
            }
            process.before = std::mem::take(&mut process.blocks);
        }
        Ok(())
    }

    /// Ends the last window.
    pub(crate) fn finish(&mut self, spool: &mut Spool) -> Result<()> {
        match self.open.take() {
            Some(start) => self.close(start, spool),
            None => Ok(()),
        }
    }
}

/// Neighbours alike become one region.
fn regions(blocks: &BTreeMap<u64, Block>, shift: u32) -> Vec<Told> {
    let mut regions: Vec<Told> = Vec::new();
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
            _ => regions.push(Told::new(start, end, block.hits as f32, block.age)),
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

    fn sample(pid: i64, name: &str, micros: u64, addr: u64) -> Sample {
        Sample { pid, name: name.into(), time: micros * 1000, addr }
    }

    #[test]
    fn lines_of_perf_script_are_understood() {
        let expected = Some(sample(4711, "redis-server[4711]", 5_123_456, 0x7f12_3456_7890));
        for line in [
            "redis-server 4711 5.123456: cpu/mem-loads,ldlat=30/P: 7f1234567890",
            "redis-server 4711/4715 [001]  5.123456:  1  cpu/mem-loads/P:  7f1234567890 |OP LOAD|LVL L1 hit|SNP None|  \
             55d0c0de1234 dictFind+0x10 (/usr/bin/redis-server)",
        ] {
            assert_eq!(parse(line), Ok(expected.clone()), "{line}");
        }
        let bare = parse("4711 5.123456000: dTLB-loads: 0x7f1234567890").unwrap().unwrap();
        assert_eq!(bare.name, "process 4711");
        for line in ["", "# ========", "   55d0c0de1234 dictFind+0x10 (/usr/bin/redis-server)"] {
            assert_eq!(parse(line), Ok(None), "{line}");
        }
    }

    // Cycles without data addresses: the number is where the code is.
    #[test]
    fn samples_without_addresses_are_refused() {
        let line = "redis 4711 [0] 5.1: 250000 cycles: 55d0c0de1234 dictFind+0x10 (/usr/bin/redis)";
        assert_eq!(parse(line), Err(ADDRESS));
        assert_eq!(parse("redis 4711 [0] 5.1: cycles:"), Err(ADDRESS));
        assert_eq!(parse("redis x 5.1: cycles: 55d0"), Err("pid before the time"));
    }

    fn spooled(samples: &[(u64, u64)]) -> Result<Spool> {
        let (mut spool, mut reader) = (in_memory(), Reader::new(GRAIN));
        for (number, (millis, addr)) in samples.iter().enumerate() {
            let line = format!("7 {}.{:03}: mem: {addr:x}", millis / 1000, millis % 1000);
            reader.line("x", number as u64 + 1, &line, &mut spool)?;
        }
        reader.finish(&mut spool)?;
        Ok(spool)
    }

    // Windows from 1000 ms on: pages 1 and 2 twice each, page 9 in two looks of one interval; the
    // same pages 1 and 2 in the next window; a pause; page 9.
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
        let shots = spool.streams[0].shots.clone();
        let mut shown = Vec::new();
        for (shot, at, count) in shots {
            let mut told = Vec::new();
            spool.regions(at, count, &mut told).unwrap();
            shown.push((shot.start.unwrap() / 1_000_000, told));
        }
        let expected = vec![
            (1000, vec![Told::new(0x1000, 0x3000, 2.0, 0), Told::new(0x9000, 0xa000, 1.0, 0)]),
            (1200, vec![Told::new(0x1000, 0x3000, 2.0, 1)]),
            (2000, vec![Told::new(0x9000, 0xa000, 1.0, 0)]),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_cannot_be_used_is_counted() {
        let spool = spooled(&[(1, 0), (2, 0xffff_8880_0000_0000), (3, 0x1000)]).unwrap();
        assert_eq!(spool.unused_samples, 2);
        let error = spooled(&[(5, 1), (4, 1)]).err().unwrap().to_string();
        assert!(error.contains("line 2: time goes backwards"), "{error}");
    }
}
