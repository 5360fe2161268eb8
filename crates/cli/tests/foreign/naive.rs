//! Naive readers of foreign files: no more than what one reads in them by the tools' documents.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value;

/// A target's id, and the indices of kdamond, context and scheme that the file has.
pub(crate) type Target = (u64, [Option<u64>; 3]);

/// A region: start, end, accesses, and age in windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) range: [u64; 2],
    pub(crate) accesses: f64,
    pub(crate) age: Option<f64>,
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Of each target, intervals in µs: sampling, aggregation, update.
    pub(crate) intervals: BTreeMap<Target, [f64; 3]>,
    /// By the end of a window in ns: its start, and its regions.
    pub(crate) windows: BTreeMap<(Target, u64), (Option<u64>, Vec<Seen>)>,
    /// Other fields that hold anything: how often. Regions that overlap the one before are `flaws`.
    pub(crate) others: BTreeMap<String, u64>,
}

/// A number of damo's: maybe text with commas, and with the unit that the field's name has.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => {
            let text = text.replace(',', "");
            let (digits, unit) = text.split_once(' ').unwrap_or((&text, ""));
            let scale = match unit {
                "" | "B" | "us" | "ns" => 1.0,
                "KiB" | "ms" => 1024.0,
                _ => return None,
            };
            digits.parse::<f64>().ok().map(|number| number * scale)
        }
        other => other.as_f64(),
    }
}

/// Whether a value says anything: no null, no zero, nothing empty.
fn says(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Array(items) => items.iter().any(says),
        Value::Object(items) => items.values().any(says),
        Value::String(text) => !text.is_empty() && number(value) != Some(0.0),
        Value::Number(_) => number(value) != Some(0.0),
    }
}

impl Said {
    fn others(&mut self, object: &Value, known: &[&str]) {
        for (key, value) in object.as_object().unwrap() {
            if !known.contains(&key.as_str()) && says(value) {
                *self.others.entry(key.clone()).or_default() += 1;
            }
        }
    }

    /// Of damo's JSON, or of our export, which has more under the key `tierscope`.
    pub(crate) fn json(bytes: &[u8]) -> Self {
        let mut text = Vec::new();
        if bytes[0] == 0x78 {
            flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut text).unwrap();
        } else {
            text.extend_from_slice(bytes);
        }
        let mut said = Self::default();
        let records: Value = serde_json::from_slice(&text).unwrap();
        for record in records.as_array().unwrap() {
            said.record(record);
        }
        said
    }

    fn record(&mut self, record: &Value) {
        let index = |key: &str| number(&record[key]).map(|index| index as u64);
        let context = ["kdamond_idx", "context_idx", "scheme_idx"].map(index);
        let target = (record["target_id"].as_u64().unwrap_or(0), context);
        let interval = |key: &str| number(&record["intervals"][key]);
        if record["intervals"].is_object() {
            let all = ["sample_us", "aggr_us", "ops_update_us"].map(|key| interval(key).unwrap());
            self.intervals.insert(target, all);
            self.others(&record["intervals"], &["sample_us", "aggr_us", "ops_update_us"]);
        }
        let known =
            ["kdamond_idx", "context_idx", "scheme_idx", "target_id", "intervals", "snapshots"];
        self.others(record, &[&known[..], &["tierscope", "data_source"]].concat());
        let source = record["data_source"].as_str().unwrap_or("unknown");
        if !["unknown", "tierscope"].contains(&source) {
            *self.others.entry("data_source".into()).or_default() += 1;
        }
        for snapshot in record["snapshots"].as_array().unwrap() {
            self.others(
                snapshot,
                &["start_time", "end_time", "regions", "total_bytes", "tierscope"],
            );
            let mut regions = Vec::new();
            for region in snapshot["regions"].as_array().unwrap() {
                self.others(region, &["start", "end", "nr_accesses", "age", "tierscope"]);
                let of = |key: &str| number(&region[key]).unwrap() as u64;
                let samples = || interval("aggr_us").unwrap() / interval("sample_us").unwrap();
                let accesses = number(&region["nr_accesses"]["samples"]);
                let percent = number(&region["nr_accesses"]["percent"]);
                let windows = number(&region["age"]["aggr_intervals"]);
                let micros = number(&region["age"]["usec"]);
                regions.push(Seen {
                    range: [of("start"), of("end")],
                    accesses: accesses.unwrap_or_else(|| percent.unwrap() / 100.0 * samples()),
                    age: windows.or_else(|| Some(micros? / interval("aggr_us")?)),
                });
            }
            regions.sort_by_key(|seen| seen.range);
            let mut kept: Vec<Seen> = Vec::new();
            for seen in regions {
                match kept.last() {
                    Some(last) if seen.range[0] < last.range[1] => {
                        *self.others.entry("flaws".into()).or_default() += 1;
                    }
                    _ => kept.push(seen),
                }
            }
            let end = number(&snapshot["end_time"]).unwrap() as u64;
            let start = number(&snapshot["start_time"]).map(|start| start as u64);
            self.windows.insert((target, end), (start, kept));
        }
    }
}

impl Said {
    /// Of text with events of DAMON; also returns the number of windows that lack regions.
    pub(crate) fn events(text: &str) -> (Self, u64) {
        let (mut said, mut incomplete) = (Self::default(), 0);
        let mut open: BTreeMap<Target, (usize, u64, Vec<Seen>)> = BTreeMap::new();
        let aggregated = text.contains("damon_aggregated: ");
        for line in text.lines() {
            let name = if aggregated { "damon_aggregated: " } else { "damos_before_apply: " };
            let Some((head, fields)) = line.split_once(name) else { continue };
            let head = head.strip_suffix("damon:").unwrap_or(head).trim_end();
            let mut before = head.split_whitespace().rev().filter(|word| !word.starts_with("(+"));
            let time = nanos(before.next().unwrap().strip_suffix(':').unwrap());
            let words: Vec<&str> = fields.split_whitespace().collect();
            let named = |name: &str| {
                let word = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
                word.map(|word| word.parse::<u64>().unwrap())
            };
            let thread = line.split_once("kdamond.").map(|(_, rest)| rest);
            let digits =
                |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
            let kdamond = thread.and_then(|rest| digits(rest).parse().ok());
            let target = match aggregated {
                true => (named("target_id").unwrap(), [kdamond, None, None]),
                false => {
                    (named("target_idx").unwrap(), [kdamond, named("ctx_idx"), named("scheme_idx")])
                }
            };
            let float = |name: &str| named(name).map(|number| number as f64);
            let seen = match words.iter().position(|word| word.ends_with(':')) {
                Some(at) => {
                    let (start, end) = words[at].trim_end_matches(':').split_once('-').unwrap();
                    Seen {
                        range: [start.parse().unwrap(), end.parse().unwrap()],
                        accesses: words[at + 1].parse().unwrap(),
                        age: words.get(at + 2).map(|age| age.parse().unwrap()),
                    }
                }
                None => Seen {
                    range: ["start", "end"].map(|name| named(name).unwrap()),
                    accesses: float("nr_accesses").unwrap(),
                    age: float("age"),
                },
            };
            let count = named("nr_regions").unwrap() as usize;
            let pending = open.entry(target).or_insert((count, time, Vec::new()));
            let next = match aggregated {
                true => pending.0 != count || pending.2.len() == pending.0,
                false => pending.1 + 50_000_000 < time,
            };
            if next {
                incomplete += u64::from(!said.close(target, pending, aggregated));
                *pending = (count, time, Vec::new());
            }
            pending.2.push(seen);
        }
        for (target, pending) in &open {
            incomplete += u64::from(!said.close(*target, pending, aggregated));
        }
        (said, incomplete)
    }

    fn close(
        &mut self,
        target: Target,
        (count, time, regions): &(usize, u64, Vec<Seen>),
        whole: bool,
    ) -> bool {
        let is_whole = !whole || regions.len() == *count;
        if is_whole {
            self.windows.insert((target, *time), (None, regions.clone()));
        }
        is_whole
    }

    /// Of a record file of version 2.
    pub(crate) fn record_file(bytes: &[u8]) -> Self {
        let mut said = Self::default();
        let mut rest = &bytes[20..];
        let mut take = |bytes: usize| {
            let (taken, left) = rest.split_at(bytes);
            rest = left;
            let word = taken.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            (word, left.is_empty())
        };
        loop {
            let end = take(8).0 * 1_000_000_000 + take(8).0;
            let mut done = false;
            for _ in 0..take(4).0 {
                let target = (take(8).0, [None; 3]);
                let mut regions = Vec::new();
                for _ in 0..take(4).0 {
                    let range = [take(8).0, take(8).0];
                    let (accesses, last) = take(4);
                    done = last;
                    regions.push(Seen { range, accesses: accesses as f64, age: None });
                }
                said.windows.insert((target, end), (None, regions));
            }
            if done {
                return said;
            }
        }
    }
}

/// Text in seconds, with six or nine digits after the point, in ns.
fn nanos(text: &str) -> u64 {
    let (seconds, part) = text.split_once('.').unwrap();
    let part = format!("{part:0<9}");
    seconds.parse::<u64>().unwrap() * 1_000_000_000 + part.parse::<u64>().unwrap()
}

/// Page faults in text, printed with `comm pid/tid [cpu] time: event: address`, or less: pid, time
/// in ns, and address.
pub(crate) fn faults(text: &str) -> Vec<(u64, u64, u64)> {
    let fault = |line: &str| {
        let (head, rest) = line.split_once("page-faults")?;
        let address = rest.split_once(": ")?.1.split_whitespace().next()?;
        let words: Vec<&str> = head.split_whitespace().collect();
        let at = words.iter().position(|word| word.contains('.') && word.ends_with(':'))?;
        let pid = words[..at].iter().rev().find(|word| !word.starts_with('['))?;
        let pid = pid.split('/').next()?.parse().ok()?;
        let time = nanos(words[at].trim_end_matches(':'));
        Some((pid, time, u64::from_str_radix(address, 16).ok()?))
    };
    text.lines().filter_map(fault).collect()
}

/// Whether an address is one of a process.
pub(crate) fn is_of_process(address: u64) -> bool {
    (1..0x8000_0000_0000).contains(&address)
}

/// Memory samples: of each pid and each block of 2 MiB, the number of intervals of 5 ms with a
/// sample, by the number of a window of 200 ms; and the number of samples without a user's address.
pub(crate) type Samples = (BTreeMap<(u64, u64, u64), u64>, u64);

/// Of text with page faults.
pub(crate) fn samples(text: &str) -> Samples {
    let (mut intervals, mut unused) = (std::collections::BTreeSet::new(), 0);
    let faults = faults(text);
    for (pid, time, address) in &faults {
        let since = time - faults[0].1;
        match is_of_process(*address) {
            false => unused += 1,
            true => {
                let window = since / 200_000_000;
                intervals.insert((*pid, window, address >> 21, since / 5_000_000));
            }
        }
    }
    let mut counts = BTreeMap::new();
    for (pid, window, block, _) in intervals {
        *counts.entry((pid, window, block)).or_default() += 1;
    }
    (counts, unused)
}

/// Of lackey's text: kind, address and size of each record.
pub(crate) fn lackey(text: &str) -> Vec<(char, u64, u64)> {
    let record = |line: &str| {
        let kind = match line.get(..3)? {
            "I  " => 'I',
            " L " => 'L',
            " S " => 'S',
            " M " => 'M',
            _ => return None,
        };
        let (address, size) = line[3..].split_once(',')?;
        Some((kind, u64::from_str_radix(address, 16).ok()?, size.parse().ok()?))
    };
    text.lines().filter_map(record).collect()
}
