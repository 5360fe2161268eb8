//! `make bench-vm`, written to target/bench/vm.json: slowness of slow nodes, exactness of
//! counts, and cost of each part of the plugin.

mod programs;
mod referee;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bench::boot::{FAST_PLUGIN, boot, done, fast_plugin};
use crate::bench::outputs::number;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::error::{Context, Result};
use crate::paths;

use crate::machine::{broken, json, misses};

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "slow node", measure: slow_node },
    Section { name: "exact", measure: exact },
    Section { name: "cost", measure: cost },
    Section { name: "guests", measure: guests },
    Section { name: "kernel tiering", measure: tiering },
    Section { name: "referee", measure: referee::referee },
    Section { name: "user mode: sort", measure: programs::sort },
    Section { name: "user mode: python3", measure: programs::python },
    Section { name: "user mode: xz of two threads", measure: programs::xz },
    Section { name: "user mode: redis-server", measure: programs::served },
];

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).at(path.display())?;
    let parse = |line: &str| {
        serde_json::from_str(line).map_err(|e| broken(format!("{}: {e}", path.display())))
    };
    text.lines().map(parse).collect()
}

/// Measures the latency of a slow node for several factors, and its bandwidth for several caps.
fn slow_node(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let out = boot(inputs, "machine-speed", "", |_| Ok(()))?;
    rows_of_speed(&lines(&out.join("speed.txt"))?)
}

const SPEED: &str = "lab run machine-speed";

fn rows_of_speed(lines: &[Value]) -> Result<Vec<Row>> {
    let (mut rows, mut factor, mut cap) = (Vec::new(), 0.0, 0.0);
    for line in lines {
        if line.get("factor").is_some() {
            factor = number(line, "/factor")?;
            let name = format!("slow node: factor {factor}: nanoseconds added to a miss");
            rows.push(row(name, number(line, "/spin_ns")?, "ns", Bar::None, SPEED));
            rows.extend(rows_of_factor(factor, line)?);
        } else if line.get("cap").is_some() {
            cap = number(line, "/cap")?;
        } else if line.get("mib_s").is_some() {
            let threads = number(line, "/threads")?;
            let name =
                format!("slow node: cap {cap} MiB/s: reached by {threads} vCPUs, over the cap");
            rows.push(row(
                name,
                number(line, "/mib_s")? / cap,
                "ratio",
                Bar::Around(1.0, 0.1),
                SPEED,
            ));
        } else {
            rows.extend(rows_of_factor(factor, line)?);
        }
    }
    Ok(rows)
}

/// Buffer sizes up to this many KiB fit in the machine's cache; the others that are compared exceed
/// it by far.
const CACHED_KIB: f64 = 512.0;

fn rows_of_factor(factor: f64, compared: &Value) -> Result<Vec<Row>> {
    let (near, far) = (number(compared, "/node_0_ns")?, number(compared, "/node_1_ns")?);
    let kib = number(compared, "/kib")?;
    let (place, expected) = if kib <= CACHED_KIB { ("inside", 1.0) } else { ("beyond", factor) };
    let name = |what: &str| format!("slow node: factor {factor}, {place} the cache: {what}");
    let around = Bar::Around(expected, expected * 0.1);
    Ok(vec![
        row(name("node 0"), near, "ns", Bar::None, SPEED),
        row(name("node 1"), far, "ns", Bar::None, SPEED),
        row(name("node 1 over node 0"), far / near, "ratio", around, SPEED),
    ])
}

/// Measures the exactness of counters, counter reads, interrupts and records of TLB misses.
fn exact(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let out = boot(inputs, "machine", "", |_| Ok(()))?;
    let command = "lab test --only 'instrumented machine'";
    let of = |file: &str, pointer: &str| number(&json(&out.join(file))?, pointer);
    let found = misses::read(&out)?;
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    let exactly = Bar::Around(1.0, 0.0);
    Ok(vec![
        row(
            "exact: counters by page, wrong of 16,384".into(),
            of("counters.json", "/wrong_pages")?,
            "pages",
            Bar::Most(0.0),
            command,
        ),
        row(
            "exact: readings with reset under traffic of two vCPUs, counted over loaded".into(),
            of("doorbell.json", "/counted")? / of("doorbell.json", "/loads")?,
            "ratio",
            exactly,
            command,
        ),
        row(
            "exact: readings in that second".into(),
            of("doorbell.json", "/readings")?,
            "readings",
            Bar::None,
            command,
        ),
        row(
            "exact: interrupts seen, of 200".into(),
            of("interrupt.json", "/seen")?,
            "interrupts",
            Bar::Least(200.0),
            command,
        ),
        row(
            "exact: doorbell to program, median".into(),
            of("interrupt.json", "/median_ns")? / 1e3,
            "µs",
            Bar::None,
            command,
        ),
        row(
            "exact: doorbell to program, p99".into(),
            of("interrupt.json", "/p99_ns")? / 1e3,
            "µs",
            Bar::None,
            command,
        ),
        row(
            "exact: TLB misses recorded".into(),
            found.misses as f64,
            "records",
            Bar::None,
            command,
        ),
        row(
            "exact: TLB misses that agree with the page map".into(),
            share(found.agreeing, found.records),
            "share",
            exactly,
            command,
        ),
        row(
            "exact: TLB misses over those of a naive model".into(),
            share(found.misses, found.expected),
            "ratio",
            exactly,
            command,
        ),
    ])
}

/// Names of rows, and the parts of the plugin that are enabled for them.
const STEPS: &[(&str, &[&str])] = &[
    ("plain emulation", &[]),
    ("cache", &["llc"]),
    ("cache and tiers", &["llc", "tiers"]),
    ("cache, tiers, counters", &["llc", "tiers", "device", "counters"]),
    ("cache and TLB misses", &["llc", "tlb"]),
    ("raw trace", &["raw"]),
];

/// Measures the slow-down by each part of the plugin.
fn cost(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let plugin = fast_plugin()?;
    let (mut rows, mut plain) = (Vec::new(), None);
    for (step, parts) in STEPS {
        let label = format!("-{}", parts.join("-"));
        let out = boot(inputs, "machine-cost", &label, |scenario| {
            scenario.set_parts(parts);
            scenario.set_plugin(&paths::root().join(&plugin));
            Ok(())
        })?;
        let figures = Cost::read(&out)?;
        let base = *plain.get_or_insert(figures);
        let command =
            format!("lab run machine-cost --parts '{}' --plugin {FAST_PLUGIN}", parts.join(","));
        rows.extend(figures.rows(step, base, &command));
        if step.starts_with("raw") {
            rows.extend(rows_of_trace(figures, &out, &command)?);
        }
    }
    Ok(rows)
}

#[derive(Clone, Copy)]
struct Cost {
    /// MiB/s of sequential reads with one load per cache line.
    stream: f64,
    /// MiB/s of sequential reads with eight loads per cache line.
    words: f64,
    chase: f64,
    redis: f64,
}

impl Cost {
    fn read(out: &Path) -> Result<Self> {
        let of = |file: &str, pointer: &str| number(&json(&out.join(file))?, pointer);
        Ok(Cost {
            stream: of("stream.json", "/mib_s")?,
            words: of("words.json", "/mib_s")?,
            chase: of("chase.json", "/ns")?,
            redis: of("load.json", "/operations_per_second")?,
        })
    }

    fn rows(self, step: &str, plain: Cost, command: &str) -> Vec<Row> {
        let bar = if step == "cache and tiers" { Bar::Most(10.0) } else { Bar::None };
        let name = |what: &str| format!("cost: {step}: {what}");
        vec![
            row(name("sequential loads, a line each"), self.loads(), "M/s", Bar::None, command),
            row(name("sequential loads, slow-down"), plain.stream / self.stream, "x", bar, command),
            row(name("sequential loads, a word each"), self.words(), "M/s", Bar::None, command),
            row(
                name("sequential loads, a word each, slow-down"),
                plain.words / self.words,
                "x",
                bar,
                command,
            ),
            row(name("dependent loads, slow-down"), self.chase / plain.chase, "x", bar, command),
            row(name("Redis GET, slow-down"), plain.redis / self.redis, "x", bar, command),
        ]
    }

    /// Millions of sequential loads per second, one per cache line.
    fn loads(self) -> f64 {
        self.stream * f64::from(1 << 20) / 64.0 / 1e6
    }

    /// Millions of sequential loads per second, one per word.
    fn words(self) -> f64 {
        self.words * f64::from(1 << 20) / 8.0 / 1e6
    }
}

/// Rows for the raw trace. A loop of sequential loads makes one record for each load and no others.
fn rows_of_trace(figures: Cost, out: &Path, command: &str) -> Result<Vec<Row>> {
    let plugin = json(&out.join("plugin.json"))?;
    let records = number(&plugin, "/counts/records")? / 1e6;
    let lost = number(&plugin, "/counts/records_lost")?;
    let name = |what: &str| format!("cost: raw trace: {what}");
    Ok(vec![
        row(name("records of the whole run"), records, "M", Bar::None, command),
        row(
            name("records in the loop of loads, a word each"),
            figures.words(),
            "M/s",
            Bar::Least(40.0),
            command,
        ),
        row(name("lost in the whole run"), lost, "records", Bar::Most(0.0), command),
    ])
}

/// Measures boot times, from QEMU's start to the job's start, on machines without the plugin.
fn guests(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let seconds = |(name, what): (&str, &str)| {
        let done = done(inputs, name, "-plain", |scenario| {
            scenario.set_parts(&[""]);
            Ok(())
        })?;
        let seconds = done.ending.boot_seconds.ok_or_else(|| broken("the guest never booted"))?;
        let (name, command) =
            (format!("guests: boot to {what}"), format!("lab run {name} --parts ''"));
        Ok(row(name, seconds, "s", Bar::Most(10.0), &command))
    };
    [("machine-cost", "Redis"), ("memcached", "memcached"), ("accuracy", "a toucher")]
        .into_iter()
        .map(seconds)
        .collect()
}

/// Measures the kernel's own tiering with a hot set that starts on the slow node.
fn tiering(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let out = boot(inputs, "machine-tiering", "", |_| Ok(()))?;
    let command = "lab run machine-tiering";
    let mut rows = Vec::new();
    let mut ends = Vec::new();
    for mode in [0, 2] {
        let figures = json(&out.join(format!("mode-{mode}.json")))?;
        let seconds: Vec<f64> =
            figures["ns"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
            return Err(broken("no seconds were measured"));
        };
        let name = |what: &str| format!("kernel tiering: numa_balancing={mode}: {what}");
        let share = number(&figures, "/share_on_node_0")?;
        rows.push(row(name("a load in the first second"), *first, "ns", Bar::None, command));
        rows.push(row(name("a load in the last second"), *last, "ns", Bar::None, command));
        rows.push(row(
            name("of the hot set on node 0 in the end"),
            share,
            "share",
            Bar::None,
            command,
        ));
        ends.push(*last);
    }
    let gain = ends[0] / ends[1];
    let name = "kernel tiering: loads a second in the end, mode 2 over mode 0".to_owned();
    rows.push(row(name, gain, "ratio", Bar::Least(1.0), command));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn factors_and_caps_become_ratios() {
        let pair = |kib: u64, near: f64, far: f64| json!({ "kib": kib, "node_0_ns": near, "node_1_ns": far });
        let lines = [
            json!({ "factor": 2.0, "spin_ns": 50, "kib": 65536, "node_0_ns": 50.0, "node_1_ns": 115.0 }),
            pair(512, 10.0, 10.5),
            json!({ "cap": 100 }),
            json!({ "node": 1, "kib": 65536, "threads": 2, "mib_s": 95.0 }),
        ];
        let rows = rows_of_speed(&lines).unwrap();
        let judged: Vec<(f64, bool)> = rows.iter().map(|row| (row.value, row.holds)).collect();
        assert_eq!(
            judged,
            [
                (50.0, true),
                (50.0, true),
                (115.0, true),
                (2.3, false),
                (10.0, true),
                (10.5, true),
                (1.05, true),
                (0.95, true)
            ]
        );
    }
}
