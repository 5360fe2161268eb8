//! Reads memory samples printed by `perf script`.
//!
//! Samples are not a trace: accesses between two samples are missing. They are imported as they
//! are, with their times, to be inspected or replayed on a simulated machine.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use tierscope_core::{Result, Time};

use crate::access::{Access, BATCH, Batch, Event, Kind, MAX_THREADS, Source, TOO_MANY};
use crate::place::excerpt;
use crate::text::Lines;

/// Start of the kernel's addresses.
pub const KERNEL: u64 = 1 << 63;

/// A sampled access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Pid of the process.
    pub pid: i64,
    /// The thread; the pid if no tid is printed.
    pub tid: i64,
    /// `redis-server[4711]`: command and pid, for display.
    pub name: String,
    /// Time in ns of perf's clock.
    pub time: u64,
    /// Data address; 0 if the processor recorded none.
    pub address: u64,
    /// Whether it is a store, by the data source or the event's name.
    pub stores: bool,
}

/// Parses a line; `None` if it is no sample.
///
/// `[comm] pid[/tid] [cpu] time: [period] event: addr …`: with `-F pid,time,event,addr`, or as perf
/// prints samples that have an address by default, where address, data source, instruction pointer
/// and symbol follow.
///
/// # Errors
/// The invalid item of a damaged line.
pub fn parse(line: &str) -> Result<Option<Sample>, &'static str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let Some(at) = words.iter().position(|word| seconds(word).is_some()) else { return Ok(None) };
    let time = seconds(words[at]).ok_or("time")?;
    let mut rest = &words[at + 1..];
    // Skip the period, if it is printed.
    if rest.first().is_some_and(|word| word.parse::<u64>().is_ok()) {
        rest = &rest[1..];
    }
    let event = match rest.first() {
        // Mappings and the like, printed with `--show-mmap-events`, are no samples.
        Some(event) if event.starts_with("PERF_RECORD_") => return Ok(None),
        Some(event) if event.ends_with(':') => *event,
        _ => return Ok(None),
    };
    rest = &rest[1..];
    let (pid, tid, name) = process(&words[..at]).ok_or("pid before the time")?;
    let address = rest.first().and_then(|word| hex(word)).ok_or(ADDRESS)?;
    // Without data addresses the first hexadecimal number is the instruction pointer, and a symbol
    // follows. Other numbers after an address are physical addresses, weights, data sources.
    let is_number = |word: &str| word.len() >= 4 && hex(word).is_some();
    let is_value = |word: &&str| word.starts_with('|') || word.parse::<u64>().is_ok();
    if rest.len() > 1 && !is_value(&rest[1]) && !rest[1..].iter().any(|word| is_number(word)) {
        return Err(ADDRESS);
    }
    Ok(Some(Sample { pid, tid, name, time, address, stores: stores(event, rest) }))
}

/// The error for samples without data addresses.
const ADDRESS: &str = "data address (record with `perf mem record`, or `-d`; \
                       print with `perf script -F comm,pid,time,event,addr`)";

/// Parses a timestamp like `82877.315633:` to ns.
#[must_use]
pub fn seconds(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// Whether a sample is a store: `|OP STORE|` in the data source; else an event name like
/// `cpu/mem-stores/P:` or `mem_uops_retired.all_stores:pp:`.
fn stores(event: &str, rest: &[&str]) -> bool {
    let mut source = rest.iter().skip_while(|word| !word.ends_with("|OP")).skip(1);
    match source.next() {
        Some(operation) => operation.starts_with("STORE"),
        None => event.contains("store"),
    }
}

/// Pid, tid and name from the words before the timestamp: `redis 4711/4712 [001]`.
fn process(words: &[&str]) -> Option<(i64, i64, String)> {
    let words = match words.split_last() {
        Some((cpu, before)) if cpu.starts_with('[') => before,
        _ => words,
    };
    let (both, name) = words.split_last()?;
    let (pid, tid) = both.split_once('/').unwrap_or((both, both));
    let (pid, tid) = (pid.parse().ok()?, tid.parse().ok()?);
    let name = if name.is_empty() {
        format!("process {pid}")
    } else {
        format!("{}[{pid}]", name.join(" "))
    };
    Some((pid, tid, name))
}

/// Reads the output of `perf script`.
pub struct PerfScript<R> {
    lines: Lines<R>,
    zero: Option<u64>,
    last: u64,
    threads: BTreeMap<(i64, i64), u32>,
    unused: u64,
    samples: u64,
    /// No further line can be read.
    stuck: bool,
}

impl<R: Read> PerfScript<R> {
    /// Reads `input`.
    pub fn new(name: &str, input: R) -> Self {
        Self {
            lines: Lines::new(name, input),
            zero: None,
            last: 0,
            threads: BTreeMap::new(),
            unused: 0,
            samples: 0,
            stuck: false,
        }
    }

    fn take(&mut self, sample: Sample, batch: &mut Batch) -> Result<(), &'static str> {
        if sample.time < self.last {
            return Err("time goes backwards");
        }
        self.last = sample.time;
        self.samples += 1;
        if sample.address == 0 || sample.address >= KERNEL {
            self.unused += 1;
            return Ok(());
        }
        let count = self.threads.len() as u32;
        if count == MAX_THREADS {
            return Err(TOO_MANY);
        }
        let thread = *self.threads.entry((sample.pid, sample.tid)).or_insert_with(|| {
            let (pid, tid) = (sample.pid as u64, sample.tid as u64);
            batch.event(Event::Thread { number: count, pid, tid, name: Arc::from(&*sample.name) });
            count
        });
        let time = Time(sample.time - *self.zero.get_or_insert(sample.time));
        let kind = if sample.stores { Kind::Store } else { Kind::Load };
        batch.push(Access { address: sample.address, time, thread, bytes: 0, kind });
        Ok(())
    }
}

const REMEDY: &str = "print the samples with \
                      `perf script -F comm,pid,tid,time,event,addr,data_src`, in order of time";

impl<R: Read> Source for PerfScript<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        while batch.accesses.len() < before + BATCH {
            let next = self.lines.advance();
            self.stuck = next.is_err() && !self.lines.is_too_long();
            let next = next?;
            let Some((line, _)) = next else { break };
            let text = String::from_utf8_lossy(self.lines.bytes(line)).into_owned();
            let taken = match parse(&text) {
                Ok(None) => Ok(()),
                Ok(Some(sample)) => self.take(sample, batch),
                Err(item) => {
                    let cause = format!("no {item} in {}", excerpt(text.as_bytes()));
                    return Err(self.lines.wrong(0, &cause, REMEDY));
                }
            };
            taken.map_err(|cause| self.lines.wrong(0, cause, REMEDY))?;
        }
        let more = batch.accesses.len() > before;
        if !more && self.samples == 0 {
            self.stuck = true;
            return Err(self.lines.wrong(0, "no line of it is a sample of perf's", REMEDY));
        }
        Ok(more)
    }

    /// A damaged line does not affect the others.
    fn go_on(&self) -> bool {
        !self.stuck
    }

    fn notes(&self) -> Vec<String> {
        let none = format!("{} samples have no address of the process", self.unused);
        (self.unused > 0).then_some(none + ", and are left out").into_iter().collect()
    }
}

/// Whether a text begins with samples, valid or damaged.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    let whole = memchr::memrchr(b'\n', start).map_or(start, |end| &start[..end]);
    let mut lines = whole.split(|byte| *byte == b'\n').map(String::from_utf8_lossy);
    lines.any(|line| !matches!(parse(&line), Ok(None)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_all;

    fn read(text: &str) -> (Batch, Result<()>) {
        let mut batch = Batch::default();
        let ended = read_all(&mut PerfScript::new("t", text.as_bytes()), &mut batch);
        (batch, ended)
    }

    const LOAD: &str = "redis-server 4711/4715 [001]  5.000001:  1  cpu/mem-loads/P:  7f1234567890 \
                        |OP LOAD|LVL L1 hit|SNP None| 55d0c0de1234 dictFind+0x10 (/usr/bin/redis)\n";

    #[test]
    fn samples_are_accesses() {
        let text = format!(
            "# ====\n{LOAD}\
             redis-server 4711/4711 [0] 5.000003: mem: 7f12 |OP STORE|LVL L1| 55d0c0de1234 f\n\
             other 9 5.000004: cpu/mem-stores/P: 0x7000\n\
             other 9 5.000005: cpu/mem-stores/P: 0\n"
        );
        let (batch, ended) = read(&text);
        assert_eq!(ended, Ok(()));
        let seen: Vec<_> =
            batch.accesses.iter().map(|a| (a.address, a.time.0, a.thread, a.kind)).collect();
        let expected = [
            (0x7f12_3456_7890, 0, 0, Kind::Load),
            (0x7f12, 2000, 1, Kind::Store),
            (0x7000, 3000, 2, Kind::Store),
        ];
        assert_eq!(seen, expected);
        let name = "redis-server[4711]".into();
        let first = Event::Thread { number: 0, pid: 4711, tid: 4715, name };
        assert_eq!(batch.events[0], (0, first));
    }

    #[test]
    fn errors_have_a_position() {
        let backwards = format!("{LOAD}x 1 4.0: mem: 7f12\n");
        let second = LOAD.len();
        let cases = [
            (&*backwards, format!("line 2, column 1 (byte {second}): time goes backwards")),
            ("hello\n", "no line of it is a sample".to_owned()),
            ("x 1 4.0: cycles:\n", "line 1, column 1 (byte 0): no data address".to_owned()),
            ("x y 4.0: mem: 7f12\n", "no pid before the time".to_owned()),
        ];
        for (text, part) in cases {
            let error = read(text).1.unwrap_err().to_string();
            assert!(error.contains(&part), "{error}");
        }
    }

    #[test]
    fn lines_of_perf_script_are_parsed() {
        let address = 0x7f12_3456_7890;
        let expected = Sample {
            pid: 4711,
            tid: 4711,
            name: "redis-server[4711]".into(),
            time: 5_123_456_000,
            address,
            stores: false,
        };
        let line = "redis-server 4711 5.123456: cpu/mem-loads,ldlat=30/P: 7f1234567890";
        assert_eq!(parse(line), Ok(Some(expected.clone())));
        let line = "redis-server 4711/4715 [001]  5.123456:  1  cpu/mem-loads/P:  7f1234567890 \
                    |OP LOAD|LVL L1 hit|SNP None|  55d0c0de1234 dictFind+0x10 (/usr/bin/redis-server)";
        assert_eq!(parse(line), Ok(Some(Sample { tid: 4715, ..expected })));
        let bare = parse("4711 5.123456000: dTLB-loads: 0x7f1234567890").unwrap().unwrap();
        assert_eq!(bare.name, "process 4711");
        for line in ["", "# ========", "   55d0c0de1234 dictFind+0x10 (/usr/bin/redis-server)"] {
            assert_eq!(parse(line), Ok(None), "{line}");
        }
    }

    // A physical address, or a weight and the size of the page, follows the address; or only its
    // source. Mappings, which perf prints as well, are no samples.
    #[test]
    fn other_fields_may_follow_the_address() {
        for rest in ["0", "0 N/A", "|OP LOAD|LVL L1 hit|"] {
            let sample = parse(&format!("python3 374/374 310.5: page-faults: 7f54180cbb70 {rest}"));
            assert_eq!(sample.unwrap().unwrap().address, 0x7f54_180c_bb70, "{rest}");
        }
        let mapping = "swapper 0/0 0.000000: PERF_RECORD_MMAP -1/0: [0x96800000(0x1000000) @ 0]: x";
        assert_eq!(parse(mapping), Ok(None));
    }

    // Cycles without data addresses: the number is the instruction pointer.
    #[test]
    fn samples_without_addresses_are_refused() {
        let line = "redis 4711 [0] 5.1: 250000 cycles: 55d0c0de1234 dictFind+0x10 (/usr/bin/redis)";
        assert_eq!(parse(line), Err(ADDRESS));
        assert_eq!(parse("redis 4711 [0] 5.1: cycles:"), Err(ADDRESS));
        assert_eq!(parse("redis x 5.1: cycles: 55d0"), Err("pid before the time"));
    }

    #[test]
    fn perf_script_text_is_recognised() {
        assert!(looks_like(LOAD.as_bytes()));
        assert!(!looks_like(b"I  04000000,3\n") && !looks_like(b"time,addr\n5.0,1\n"));
    }
}
