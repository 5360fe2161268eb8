//! Decodes records of perf's ring buffer (include/uapi/linux/perf_event.h: `enum perf_event_type`).

use perf_event_open_sys::bindings::{
    PERF_MEM_OP_LOAD, PERF_MEM_OP_STORE, PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES,
    PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE, PERF_SAMPLE_ADDR, PERF_SAMPLE_CPU,
    PERF_SAMPLE_DATA_SRC, PERF_SAMPLE_TID, PERF_SAMPLE_TIME, perf_event_header,
};
use tierscope_core::{Access, Time};

/// Fields of each sample, in this order.
pub(super) const SAMPLE: u64 = (PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_ADDR
    | PERF_SAMPLE_CPU
    | PERF_SAMPLE_DATA_SRC) as u64;

const HEADER: usize = size_of::<perf_event_header>();

/// Bits of `mem_op` in a sample's data source.
const OP_LOAD: u64 = PERF_MEM_OP_LOAD as u64;
const OP_STORE: u64 = PERF_MEM_OP_STORE as u64;

/// A decoded sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process (thread group).
    pub pid: u32,
    /// Time on the clock that was set when the event was opened.
    pub time: Time,
    /// Linear address; 0 if the hardware did not record it.
    pub address: u64,
    /// The CPU that took the sample.
    pub cpu: u32,
    /// Load or store, if the data source specifies it.
    pub access: Option<Access>,
}

/// Samples that the kernel did not deliver, and bytes that are no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that the kernel dropped because the ring was full.
    pub lost: u64,
    /// Number of times that the kernel throttled sampling.
    pub throttled: u64,
    /// Number of bytes at the end that do not form a record and were skipped.
    pub broken: usize,
}

/// Passes every sample to `sample`. Records of unknown types are skipped.
pub fn parse(bytes: &[u8], mut sample: impl FnMut(Record)) -> Losses {
    let (mut losses, mut at) = (Losses::default(), 0);
    while at < bytes.len() {
        let record = &bytes[at..];
        let size = u16_at(record, 6).map_or(0, usize::from);
        if size < HEADER || size > record.len() {
            losses.broken = record.len();
            break;
        }
        let body = &record[HEADER..size];
        match u32_at(record, 0) {
            Some(PERF_RECORD_SAMPLE) => {
                if let Some(read) = read_sample(body) {
                    sample(read);
                }
            }
            // The event's id, then the number of lost records.
            Some(PERF_RECORD_LOST) => add(&mut losses.lost, u64_at(body, 8)),
            Some(PERF_RECORD_LOST_SAMPLES) => add(&mut losses.lost, u64_at(body, 0)),
            Some(PERF_RECORD_THROTTLE) => losses.throttled += 1,
            _ => {}
        }
        at += size;
    }
    losses
}

fn add(sum: &mut u64, more: Option<u64>) {
    *sum = sum.saturating_add(more.unwrap_or(0));
}

fn read_sample(body: &[u8]) -> Option<Record> {
    let source = u64_at(body, 32)?;
    Some(Record {
        pid: u32_at(body, 0)?,
        time: Time(u64_at(body, 8)?),
        address: u64_at(body, 16)?,
        cpu: u32_at(body, 24)?,
        access: match source & 31 {
            op if op & OP_STORE != 0 => Some(Access::Store),
            op if op & OP_LOAD != 0 => Some(Access::Load),
            _ => None,
        },
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Copies the bytes from `tail` to `head`, both counted since the ring was created, into a
/// contiguous buffer. If they are more than the ring holds, the rest was overwritten and is
/// omitted.
pub(super) fn copy_unread(data: &[u8], tail: u64, head: u64, out: &mut Vec<u8>) {
    out.clear();
    let size = data.len() as u64;
    let bytes = head.wrapping_sub(tail).min(size);
    let from = (tail % size) as usize;
    let first = (bytes as usize).min(data.len() - from);
    out.extend_from_slice(&data[from..from + first]);
    out.extend_from_slice(&data[..bytes as usize - first]);
}

/// Records as the kernel writes them.
#[cfg(test)]
pub(super) mod compose {
    use super::*;

    pub(in crate::perf) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_ne_bytes().to_vec();
        out.extend([0, 0]);
        out.extend(((HEADER + body.len()) as u16).to_ne_bytes());
        out.extend(body);
        out
    }

    /// A sample with the fields of [`SAMPLE`], of the second thread of process `pid`.
    pub(in crate::perf) fn sample(
        pid: u32,
        time: u64,
        address: u64,
        cpu: u32,
        source: u64,
    ) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(pid.to_ne_bytes());
        body.extend((pid + 1).to_ne_bytes());
        body.extend(time.to_ne_bytes());
        body.extend(address.to_ne_bytes());
        body.extend(cpu.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        body.extend(source.to_ne_bytes());
        record(PERF_RECORD_SAMPLE, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::compose::{record, sample};
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> (Vec<Record>, Losses) {
        let mut records = Vec::new();
        let losses = parse(bytes, |record| records.push(record));
        (records, losses)
    }

    #[test]
    fn samples_are_read_and_losses_counted() {
        let lost = [7u64.to_ne_bytes(), 3u64.to_ne_bytes()].concat();
        let bytes = [
            sample(5, 100, 0x7000, 1, OP_STORE),
            record(PERF_RECORD_LOST, &lost),
            record(77, &[1; 8]),
            record(PERF_RECORD_LOST_SAMPLES, &2u64.to_ne_bytes()),
            record(PERF_RECORD_THROTTLE, &[0; 24]),
            sample(6, 200, 0, 0, 1),
        ]
        .concat();
        let (records, losses) = all(&bytes);
        let first = Record {
            pid: 5,
            time: Time(100),
            address: 0x7000,
            cpu: 1,
            access: Some(Access::Store),
        };
        assert_eq!((records[0], records[1].access, records.len()), (first, None, 2));
        assert_eq!(losses, Losses { lost: 5, throttled: 1, broken: 0 });
    }

    #[test]
    fn an_invalid_record_ends_the_part() {
        let mut bytes = sample(5, 100, 0x7000, 1, OP_LOAD);
        bytes.extend([9, 0, 0, 0, 0, 0, 4, 0]);
        bytes.extend(sample(5, 100, 0x7000, 1, OP_LOAD));
        let (records, losses) = all(&bytes);
        assert_eq!((records.len(), losses.broken), (1, 56));
        assert_eq!(all(&bytes[..20]).1.broken, 20);
        assert_eq!(all(&record(PERF_RECORD_SAMPLE, &[0; 8])), (vec![], Losses::default()));
    }

    /// Parses the corpus of `fuzz/fuzz_targets/perf_ring.rs`.
    #[test]
    fn the_fuzz_corpus_is_parsed_without_panic() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/perf_ring");
        let mut files = 0;
        for file in std::fs::read_dir(corpus).unwrap() {
            all(&std::fs::read(file.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files > 0);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let (_, losses) = all(&bytes);
            prop_assert!(losses.broken <= bytes.len());
        }

        // Samples written to a ring of 256 bytes are read in order, wherever they wrap.
        #[test]
        fn a_ring_is_read_as_one_buffer(start in 0u64..1_000_000, counts in prop::collection::vec(0usize..6, 1..20)) {
            let mut ring = vec![0; 256];
            let (mut tail, mut number, mut row) = (start, 0u64, Vec::new());
            for count in counts {
                let (mut head, first) = (tail, number);
                for _ in 0..count.min(5) {
                    for byte in sample(1, number, 0x1000, 0, OP_LOAD) {
                        ring[(head % 256) as usize] = byte;
                        head += 1;
                    }
                    number += 1;
                }
                copy_unread(&ring, tail, head, &mut row);
                let (records, losses) = all(&row);
                prop_assert_eq!(losses, Losses::default());
                let times: Vec<u64> = records.iter().map(|record| record.time.0).collect();
                prop_assert_eq!(times, (first..number).collect::<Vec<_>>());
                tail = head;
            }
        }
    }
}
