//! The record file of the debugfs interface of old kernels (Linux 5.x with DAMON's patches,
//! Amazon's 5.10; `dbgfs_after_aggregation()` in mm/damon/dbgfs.c), which damo read until v2.0.
//!
//! Little-endian. A header of 16 bytes `damon_recfmt_ver` and a 32-bit version; then, for each
//! aggregation, the time (64-bit seconds and nanoseconds), a 32-bit number of targets, and for each
//! target its id (version 1: 32-bit pid; 2: 64 bits), a 32-bit number of regions, and for each
//! region start and end (64 bits) and a 32-bit count of accesses. Version 0 has no header, and ids
//! as in version 2.

use std::collections::HashMap;
use std::io::{self, BufRead};

use tierscope_core::Result;

use crate::place::{Place, malformed, unreadable};
use crate::spool::{Age, ForeignRegion, Origin, SnapshotHead, Spool, nanos_of};

/// Magic number at the beginning of files of versions 1 and 2.
pub(crate) const MARK: &[u8; 16] = b"damon_recfmt_ver";

/// Upper bound on the number of targets; more mean that the file is damaged.
const MAX_TARGETS: u32 = 1 << 20;

/// Reads a record file into `spool`.
pub(crate) fn read(file: &str, input: &mut dyn BufRead, spool: &mut Spool) -> Result<()> {
    let mut bytes = Bytes { file, input, at: 0 };
    let version = version(&mut bytes)?;
    let mut ends: HashMap<u64, u64> = HashMap::new();
    while let Some(end) = time(&mut bytes)? {
        let place = bytes.at;
        let targets = bytes.half("the number of targets")?;
        if targets > MAX_TARGETS {
            return Err(malformed(file, Place::Byte(place), format!("{targets} targets")));
        }
        for _ in 0..targets {
            let target = match version {
                1 => u64::from(bytes.half("a pid")?),
                _ => bytes.word("a target id")?,
            };
            let start = ends.insert(target, end);
            snapshot(&mut bytes, spool, target, start, end)?;
        }
    }
    Ok(())
}

fn version(bytes: &mut Bytes<'_>) -> Result<u32> {
    let buffered = bytes.input.fill_buf().map_err(|e| unreadable(bytes.file, &e))?;
    if !buffered.starts_with(MARK) {
        return Ok(0);
    }
    bytes.take::<16>("the mark")?;
    match bytes.half("the version")? {
        version @ 1..=2 => Ok(version),
        other => {
            let cause = format!("version {other} of the format, where 1 and 2 are known");
            Err(malformed(bytes.file, Place::Byte(16), cause))
        }
    }
}

/// End of the next aggregation; `None` at the end of the file.
fn time(bytes: &mut Bytes<'_>) -> Result<Option<u64>> {
    if bytes.input.fill_buf().map_err(|e| unreadable(bytes.file, &e))?.is_empty() {
        return Ok(None);
    }
    let place = Place::Byte(bytes.at);
    let (seconds, nanos) = (bytes.word("a time")?, bytes.word("a time")?);
    match nanos_of(seconds, nanos).filter(|_| nanos < 1_000_000_000) {
        Some(time) => Ok(Some(time)),
        None => Err(malformed(bytes.file, place, format!("no time: {seconds} s and {nanos} ns"))),
    }
}

fn snapshot(
    bytes: &mut Bytes<'_>,
    spool: &mut Spool,
    target: u64,
    start: Option<u64>,
    end: u64,
) -> Result<()> {
    let place = Place::Byte(bytes.at);
    let count = bytes.half("the number of regions")?;
    let mut regions = Vec::new();
    for _ in 0..count {
        let (from, to) = (bytes.word("a region")?, bytes.word("a region")?);
        let accesses = bytes.half("a count of accesses")?;
        let region = ForeignRegion::new(from, to, accesses as f32, 0);
        regions.push(ForeignRegion { age: Age::Absent, ..region });
    }
    // Drops the dummy region (0, 0) that damo appends to a recording of one snapshot, to mark the
    // end of its window.
    regions.retain(|region| (region.start, region.end) != (0, 0));
    if regions.is_empty() && count == 1 {
        return Ok(());
    }
    let stream = spool.stream(&Origin::target(target));
    let snapshot = SnapshotHead { start, end, sampling: None, ours: None };
    spool.push(stream, snapshot, &mut regions, (bytes.file, place))
}

/// The input with the current byte offset; reads little-endian numbers.
struct Bytes<'a> {
    file: &'a str,
    input: &'a mut dyn BufRead,
    at: u64,
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                self.at += N as u64;
                Ok(bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                let cause = format!("the file ends where {what} should be");
                Err(malformed(self.file, Place::Byte(self.at), cause))
            }
            Err(e) => Err(unreadable(self.file, &e)),
        }
    }

    fn half(&mut self, what: &str) -> Result<u32> {
        self.take(what).map(u32::from_le_bytes)
    }

    fn word(&mut self, what: &str) -> Result<u64> {
        self.take(what).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::spool::tests::in_memory;

    /// An aggregation for a test: `(seconds, [(target, [(start, end, accesses)])])`.
    type Aggregation<'a> = (u64, &'a [(u64, &'a [(u64, u64, u32)])]);

    pub(crate) fn file(version: u32, aggregations: &[Aggregation<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if version > 0 {
            bytes.extend(MARK);
            bytes.extend(version.to_le_bytes());
        }
        for (seconds, targets) in aggregations {
            bytes.extend(seconds.to_le_bytes());
            bytes.extend(500_000_000u64.to_le_bytes());
            bytes.extend((targets.len() as u32).to_le_bytes());
            for (target, regions) in *targets {
                match version {
                    1 => bytes.extend((*target as u32).to_le_bytes()),
                    _ => bytes.extend(target.to_le_bytes()),
                }
                bytes.extend((regions.len() as u32).to_le_bytes());
                for (start, end, accesses) in *regions {
                    bytes.extend(start.to_le_bytes());
                    bytes.extend(end.to_le_bytes());
                    bytes.extend(accesses.to_le_bytes());
                }
            }
        }
        bytes
    }

    fn spooled(bytes: &[u8]) -> Result<Spool> {
        let mut spool = in_memory().strictly();
        read("x", &mut &*bytes, &mut spool).map(|()| spool)
    }

    const TWO: [Aggregation<'_>; 2] =
        [(1, &[(5, &[(0, 4096, 3)])]), (2, &[(5, &[(0, 4096, 0), (4096, 8192, 9)])])];

    #[test]
    fn every_version_is_read() {
        for version in 0..=2 {
            let mut spool = spooled(&file(version, &TWO)).unwrap();
            let stream = &spool.streams[0];
            assert_eq!(stream.origin.as_ref().unwrap().target, 5);
            let snapshots: Vec<_> =
                stream.snapshots.iter().map(|(s, _, n)| (s.start, s.end / 1_000_000, *n)).collect();
            assert_eq!(snapshots, [(None, 1500, 1), (Some(1_500_000_000), 2500, 2)], "{version}");
            let (_, at, count) = stream.snapshots[1].clone();
            let mut regions = Vec::new();
            spool.regions(at, count, &mut regions).unwrap();
            let expected = ForeignRegion::new(4096, 8192, 9.0, 0);
            assert_eq!(regions[1], ForeignRegion { age: Age::Absent, ..expected });
        }
    }

    #[test]
    fn errors_say_where() {
        let said = |bytes: &[u8]| spooled(bytes).err().unwrap().to_string();
        let whole = file(2, &TWO);
        assert!(said(&whole[..whole.len() - 1]).contains("the file ends where a count"));
        assert!(said(&file(7, &[])).contains("byte 16: version 7"), "{}", said(&file(7, &[])));
        let overlap = file(2, &[(1, &[(1, &[(0, 20, 1), (10, 30, 1)])])]);
        assert!(said(&overlap).contains("byte 48: region 0xa-0x1e overlaps the one before"));
        assert!(said(&[0xff; 40]).contains("byte 0: no time"));
    }
}
