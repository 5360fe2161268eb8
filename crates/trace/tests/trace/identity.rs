//! A trace of any format, converted to the compact format and to CSV, is read back the same: one
//! property per format. CSV has no names of threads, and no other events.

use std::fmt::Write as _;
use std::io::Cursor;

use proptest::prelude::*;
use tierscope_trace::compact::Writer;
use tierscope_trace::csv::CsvWriter;
use tierscope_trace::{Access, Batch, Event, Format, Input, Kind, Options, of_input, read_all};

/// What a program did: thread, kind, address, size, and µs since the access before, at least one:
/// accesses of one time have the order of their threads.
type Step = (u64, Kind, u64, u16, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    let size = prop::sample::select(vec![1u16, 2, 4, 8, 64]);
    let step = (0u64..3, kind, 1u64..1 << 47, size, 1u64..2000);
    prop::collection::vec(step, 1..40)
}

fn read(bytes: Vec<u8>, format: Format) -> Batch {
    let input = Input::new("x", Box::new(Cursor::new(bytes))).unwrap();
    let options = Options { format: Some(format), ..Options::default() };
    let mut trace = of_input(input, options).unwrap();
    let mut batch = Batch::default();
    read_all(&mut *trace.source, &mut batch).unwrap();
    batch
}

fn compact(batch: &Batch) -> Vec<u8> {
    let mut writer = Writer::new("x", Vec::new()).unwrap();
    writer.batch(batch).unwrap();
    writer.finish(true).unwrap().0
}

fn csv(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CsvWriter::new("x", &mut bytes).unwrap();
    writer.batch(batch).unwrap();
    writer.finish(true).unwrap();
    bytes
}

/// Each access with the pid and the tid of its thread.
fn with_ids(batch: &Batch) -> Vec<(Access, u64, u64)> {
    let of = |access: &Access| {
        let ids = batch.events.iter().find_map(|(_, event)| match event {
            Event::Thread { number, pid, tid, .. } if *number == access.thread => {
                Some((*pid, *tid))
            }
            _ => None,
        });
        let (pid, tid) = ids.expect("a thread is announced");
        (Access { thread: 0, ..*access }, pid, tid)
    };
    batch.accesses.iter().map(of).collect()
}

/// Reads a trace, and what it is converted to; returns its accesses.
fn check(bytes: Vec<u8>, format: Format) -> Result<Vec<Access>, TestCaseError> {
    let source = read(bytes, format);
    let again = read(compact(&source), Format::Compact);
    prop_assert_eq!(&again.accesses, &source.accesses);
    let events =
        |batch: &Batch| batch.events.iter().map(|(_, event)| event.clone()).collect::<Vec<_>>();
    prop_assert_eq!(events(&again), events(&source));
    let text = csv(&source);
    let table = read(text.clone(), Format::Csv);
    prop_assert_eq!(with_ids(&table), with_ids(&source));
    prop_assert_eq!(csv(&read(compact(&table), Format::Compact)), text);
    Ok(source.accesses)
}

/// The kind and the address of each.
fn places(accesses: &[Access]) -> Vec<(Kind, u64)> {
    accesses.iter().map(|access| (access.kind, access.address)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn of_lackey(steps in steps()) {
        let mut text = String::from("==7== Lackey, an example Valgrind tool\n");
        for (_, kind, address, size, _) in &steps {
            let mark = [" L", " S", " M", "I "][*kind as usize];
            let _ = writeln!(text, "{mark} {address:08x},{size}");
        }
        let read = check(text.into_bytes(), Format::Lackey)?;
        let sizes = read.iter().map(|access| (access.kind, access.address, access.bytes));
        prop_assert!(sizes.eq(steps.iter().map(|step| (step.1, step.2, step.3))));
    }

    // Of columns, all, or as few as addresses alone.
    #[test]
    fn of_csv(steps in steps(), columns in prop::collection::btree_set(1usize..6, 0..=5)) {
        let names = ["address", "kind", "size", "thread", "pid", "time_ns"];
        let columns: Vec<usize> = columns.into_iter().chain([0]).collect();
        let row = |cells: [String; 6]| {
            let cells: Vec<_> = columns.iter().map(|column| cells[*column].clone()).collect();
            cells.join(",") + "\n"
        };
        let mut text = row(names.map(str::to_owned));
        let mut now = 0;
        for (thread, kind, address, size, micros) in &steps {
            now += micros * 1000;
            let kind = kind.name().to_owned();
            text += &row([format!("{address:#x}"), kind, size.to_string(), (7 + thread).to_string(), "7".into(), now.to_string()]);
        }
        let read = check(text.into_bytes(), Format::Csv)?;
        let addresses = |all: Vec<u64>| all.into_iter().collect::<std::collections::BTreeSet<_>>();
        let seen = addresses(read.iter().map(|access| access.address).collect());
        prop_assert_eq!(seen, addresses(steps.iter().map(|step| step.2).collect()));
    }

    #[test]
    fn of_perf_script(steps in steps()) {
        let (mut text, mut now) = (String::new(), 0);
        for (thread, kind, address, _, micros) in &steps {
            now += micros;
            let event = if *kind == Kind::Store { "mem-stores" } else { "mem-loads" };
            let (seconds, part, tid) = (now / 1_000_000, now % 1_000_000, 7 + thread);
            let _ = writeln!(text, "redis 7/{tid} [000] {seconds}.{part:06}: cpu/{event}/P: {address:x}");
        }
        let read = check(text.into_bytes(), Format::PerfScript)?;
        let kind = |kind| if kind == Kind::Store { Kind::Store } else { Kind::Load };
        let expected: Vec<_> = steps.iter().map(|step| (kind(step.1), step.2)).collect();
        prop_assert_eq!(places(&read), expected);
    }

    #[test]
    fn of_champsim(steps in steps(), cloudsuite: bool) {
        let (bytes, written, from, format) = match cloudsuite {
            true => (96, 24, 56, Format::ChampsimCloudsuite),
            false => (64, 16, 32, Format::Champsim),
        };
        let mut records = Vec::new();
        for (thread, kind, address, ..) in &steps {
            let mut record = vec![0u8; bytes];
            record[..8].copy_from_slice(&0x40_1000u64.to_le_bytes());
            let at = if *kind == Kind::Store { written } else { from };
            record[at..at + 8].copy_from_slice(&address.to_le_bytes());
            if cloudsuite {
                record[88] = *thread as u8;
            }
            records.extend(record);
        }
        let read = check(records, format)?;
        let data: Vec<_> = places(&read).into_iter().filter(|(kind, _)| *kind != Kind::Fetch).collect();
        let kind = |kind| if kind == Kind::Store { Kind::Store } else { Kind::Load };
        let expected: Vec<_> = steps.iter().map(|step| (kind(step.1), step.2)).collect();
        prop_assert_eq!(data, expected);
    }

    #[test]
    fn of_drmemtrace(steps in steps()) {
        let mut bytes = Vec::new();
        let mut put = |kind: u16, size: u16, value: u64| {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        };
        let (header, marker, thread, pid, footer) = (25, 28, 22, 24, 26);
        put(header, 0, 7);
        put(marker, 12, 7);
        put(marker, 9, 0x40);
        let mut now = 13_000_000_000_000_000;
        for (number, kind, address, size, micros) in &steps {
            now += micros;
            put(thread, 0, 7 + number);
            put(pid, 0, 7);
            put(marker, 2, now);
            let kind = match kind {
                Kind::Load | Kind::Modify => 0,
                Kind::Store => 1,
                Kind::Fetch => 10,
            };
            put(kind, *size, *address);
        }
        put(footer, 0, 0);
        let read = check(bytes, Format::Drmemtrace)?;
        let kind = |kind| if kind == Kind::Modify { Kind::Load } else { kind };
        let expected: Vec<_> = steps.iter().map(|step| (kind(step.1), step.2)).collect();
        prop_assert_eq!(places(&read), expected);
    }
}
