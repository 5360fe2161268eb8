//! The published results (experiments/validation), each predicted from what it gives.

use tierscope_core::{Result, Tier};
use tierscope_hw::config::MemoryTier;
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::exact::Placement;

use super::rig::{Load, Measured, Rig, latency_at, load};
use super::table::{Pair, given, rows};

/// Machine files whose cores and media stand for those of a result.
const SKYLAKE: &str = "xeon-gold-6238m";
const SAPPHIRE_RAPIDS: &str = "xeon-gold-6430-cxl";
const OPTANE: &str = "xeon-24-core-optane";
pub(crate) const TEMPLATES: [&str; 3] = [SKYLAKE, SAPPHIRE_RAPIDS, OPTANE];
/// Bytes from line to line.
const LINE: u64 = 64;
/// Delays of MLC at which latencies are compared.
const DELAYS: [&str; 9] = ["0", "50", "100", "200", "300", "500", "1000", "2500", "9000"];

fn float(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

fn reads(threads: u32, tier: usize) -> Load {
    let (stride, pages) = (Some(LINE), PageSize::G1);
    Load { threads, stride, written: 0.0, rate: None, tier, fenced: false, pages }
}

fn gb_s(what: String, published: f64, measured: Measured) -> Pair {
    Pair { what, published, predicted: Some(measured.gb_s), unit: "GB/s" }
}

fn ns(what: String, published: f64, predicted: Option<f64>) -> Pair {
    Pair { what, published, predicted, unit: "ns" }
}

/// Two tiers: the machine of a result has one, or both.
fn two(rig: &Rig, core: &str, first: MemoryTier, second: MemoryTier) -> Result<Hardware> {
    rig.hardware(core, vec![first, second])
}

fn one(rig: &Rig, core: &str, tier: MemoryTier) -> Result<Hardware> {
    rig.hardware(core, vec![tier])
}

/// DDR5; each of the channels has two subchannels.
fn ddr5(rig: &Rig, ns: f64, gb_s: f64, channels: f64) -> Result<MemoryTier> {
    rig.tier(SAPPHIRE_RAPIDS, 0, (ns, gb_s, 2 * channels as u32))
}

fn ddr4(rig: &Rig, ns: f64, gb_s: f64, channels: f64) -> Result<MemoryTier> {
    rig.tier(SKYLAKE, 0, (ns, gb_s, channels as u32))
}

/// A device behind a link, which reads and writes together as fast as it reads: the machine file's
/// assumption.
fn device(rig: &Rig, ns: f64, gb_s: f64) -> Result<MemoryTier> {
    let mut tier = ddr5(rig, ns, gb_s, 2.0)?;
    tier.medium.duplex_mib_s = Some(tier.read_mib_s);
    Ok(tier)
}

pub(crate) fn mlc_cxl_asic(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "mlc-cxl-asic";
    let rows = rows(name)?;
    let mut pairs = Vec::new();
    for memory in ["cxl", "cxl-far", "ddr5"] {
        let (idle, peak) = (given(name, memory, "idle_ns")?, given(name, memory, "read_gb_s")?);
        let tier =
            if memory == "ddr5" { ddr5(rig, idle, peak, 2.0)? } else { device(rig, idle, peak)? };
        let hardware = one(rig, SAPPHIRE_RAPIDS, tier)?;
        let mut cases: Vec<[&str; 3]> = rows
            .iter()
            .filter(|row| row[0] == memory)
            .map(|row| [row[1].as_str(), row[2].as_str(), row[3].as_str()])
            .collect();
        cases.dedup();
        for [threads, pattern, written] in cases {
            if !["4", "8", "12", "16"].contains(&threads) {
                continue;
            }
            let what = Load {
                stride: (pattern == "sequential").then_some(LINE),
                written: float(written),
                ..reads(threads.parse().unwrap_or(1), 0)
            };
            let of = rows.iter().filter(|row| row[..4] == [memory, threads, pattern, written]);
            let of: Vec<_> = of.collect();
            let case = format!("{memory}, {threads} threads, {pattern}, {written} written");
            let peak = of.iter().find(|row| row[4] == "0");
            if let Some(row) = peak.filter(|_| !(threads == "16" && written == "0.0")) {
                let measured = rig.measure(&hardware, &what)?;
                pairs.push(gb_s(case.clone(), float(&row[6]) / 1e3, measured));
            }
            if of.len() < DELAYS.len() {
                continue;
            }
            let curve = rig.curve(&hardware, &what)?;
            for row in of.iter().filter(|row| DELAYS.contains(&row[4].as_str())) {
                let at = float(&row[6]) / 1e3;
                let what = format!("{case}, at {at:.1} GB/s");
                pairs.push(ns(what, float(&row[5]), latency_at(&curve, at)));
            }
        }
    }
    Ok(pairs)
}

pub(crate) fn mess_curves(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "mess-curves";
    let rows = rows(name)?;
    let mut pairs = Vec::new();
    for (machine, threads, five) in [
        ("gold-5218-ddr4", 16, false),
        ("epyc-7742-ddr4", 64, false),
        ("platinum-8480-ddr5", 56, true),
        ("platinum-8460y-ddr5", 40, true),
    ] {
        let [idle, peak, channels] =
            ["idle_ns", "read_gb_s", "channels"].map(|key| given(name, machine, key));
        let (idle, peak, channels) = (idle?, peak?, channels?);
        let (core, tier) = match five {
            true => (SAPPHIRE_RAPIDS, ddr5(rig, idle, peak, channels)?),
            false => (SKYLAKE, ddr4(rig, idle, peak, channels)?),
        };
        let hardware = one(rig, core, tier)?;
        let mut percents: Vec<&str> =
            rows.iter().filter(|row| row[0] == machine).map(|row| row[1].as_str()).collect();
        percents.dedup();
        for percent in percents {
            let written = 1.0 - float(percent) / 100.0;
            let curve = rig.curve(&hardware, &Load { written, ..reads(threads, 0) })?;
            for row in rows.iter().filter(|row| row[..2] == [machine, percent]) {
                let at = float(&row[2]);
                if at == 0.0 || (percent == "100" && at == peak) {
                    continue;
                }
                let what = format!("{machine}, {percent} % reads, at {at:.1} GB/s");
                pairs.push(ns(what, float(&row[3]), latency_at(&curve, at)));
            }
        }
    }
    Ok(pairs)
}

/// Latencies and mixes of a machine in a table of MLC's output.
fn mlc(
    rig: &Rig,
    rows: &[Vec<String>],
    machine: &str,
    (hardware, threads): (&Hardware, u32),
) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    let curve = rig.curve(hardware, &reads(threads, 0))?;
    for row in rows.iter().filter(|row| row[0] == machine) {
        let what = format!("{machine}, {}", row[1]);
        if let Some(delay) = row[1].strip_prefix("delay ") {
            if DELAYS.contains(&delay) {
                let at = float(&row[3]) / 1e3;
                let what = format!("{what}, at {at:.1} GB/s");
                pairs.push(ns(what, float(&row[2]), latency_at(&curve, at)));
            }
            continue;
        }
        let written = match row[1].as_str() {
            "peak 3:1" => 0.25,
            "peak 2:1" => 1.0 / 3.0,
            "peak 1:1" => 0.5,
            _ => continue,
        };
        let measured = rig.measure(hardware, &Load { written, ..reads(threads, 0) })?;
        pairs.push(gb_s(what, float(&row[3]) / 1e3, measured));
    }
    Ok(pairs)
}

pub(crate) fn mlc_three_xeons(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "mlc-three-xeons";
    let rows = rows(name)?;
    let mut pairs = Vec::new();
    for (machine, threads) in [("platinum-8360y", 72), ("gold-6240", 36), ("gold-6140", 36)] {
        let [idle, peak, channels] =
            ["idle_ns", "read_gb_s", "channels"].map(|key| given(name, machine, key));
        let hardware = one(rig, SKYLAKE, ddr4(rig, idle?, peak?, channels?)?)?;
        pairs.extend(mlc(rig, &rows, machine, (&hardware, threads))?);
    }
    Ok(pairs)
}

pub(crate) fn mlc_two_states(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "mlc-two-states";
    let [idle, peak, channels] =
        ["idle_ns", "read_gb_s", "channels"].map(|key| given(name, "normal", key));
    let hardware = one(rig, SKYLAKE, ddr4(rig, idle?, peak?, channels?)?)?;
    mlc(rig, &rows(name)?, "normal", (&hardware, 56))
}

pub(crate) fn cxl_turin(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "cxl-turin";
    let rows = rows(name)?;
    let of = |memory: &str| -> Result<(f64, f64, f64)> {
        Ok((
            given(name, memory, "idle_ns")?,
            given(name, memory, "read_gb_s")?,
            given(name, memory, "channels")?,
        ))
    };
    let ((ns_of_dram, dram, channels), (ns_of_cxl, cxl, _)) = (of("dram")?, of("cxl")?);
    let mut pairs = Vec::new();
    for (memory, peak, tier) in [
        ("dram", dram, ddr5(rig, ns_of_dram, dram, channels)?),
        ("cxl", cxl, device(rig, ns_of_cxl, cxl)?),
    ] {
        let hardware = one(rig, SAPPHIRE_RAPIDS, tier)?;
        let curve = rig.curve(&hardware, &reads(96, 0))?;
        for row in rows.iter().filter(|row| row[0] == memory) {
            let what = format!("{memory}, {}", row[1]);
            let written = match row[1].as_str() {
                "3:1" => 0.25,
                "2:1" => 1.0 / 3.0,
                "1:1" => 0.5,
                "load 30 %" | "load 60 %" => {
                    let at = peak * if row[1] == "load 30 %" { 0.3 } else { 0.6 };
                    pairs.push(ns(what, float(&row[2]), latency_at(&curve, at)));
                    continue;
                }
                _ => continue,
            };
            let measured = rig.measure(&hardware, &Load { written, ..reads(96, 0) })?;
            pairs.push(gb_s(what, float(&row[3]) / 1e3, measured));
        }
    }
    Ok(pairs)
}

/// The gain of the best placement of the hot memory over all of it in the fast tier.
pub(crate) fn colloid_gups(rig: &Rig) -> Result<Vec<Pair>> {
    let rows = rows("colloid-gups")?;
    let (idle, peak) =
        (given("colloid-gups", "fast", "idle_ns")?, given("colloid-gups", "fast", "peak_gb_s")?);
    let slow_peak = given("colloid-gups", "slow", "peak_gb_s")?;
    let mut pairs = Vec::new();
    for slow in [135.0, 148.0, 168.0, 192.0] {
        let hardware = two(
            rig,
            SKYLAKE,
            ddr4(rig, idle, peak * 0.9, 8.0)?,
            ddr4(rig, slow, slow_peak * 0.9, 8.0)?,
        )?;
        for intensity in 0..4u32 {
            let mut best = 0.0f64;
            let mut packed = 0.0;
            for tenths in 0..=6u8 {
                let turns = (0..10).map(|turn| Tier(u8::from(turn < tenths))).collect();
                let gups = load(&Load {
                    stride: None,
                    written: 0.5,
                    pages: PageSize::G1,
                    ..reads(15, 0)
                })?;
                let gups = tierscope_sim::exact::Process {
                    placement: Placement::Interleave(turns),
                    ..gups
                };
                let mut processes = vec![gups];
                if intensity > 0 {
                    let stream = Load { threads: 5 * intensity, written: 0.5, ..reads(1, 0) };
                    processes
                        .push(tierscope_sim::exact::Process { first_cpu: 15, ..load(&stream)? });
                }
                let ran = rig.run(&hardware, &processes)?;
                let rate = ran.operations(0) as f64;
                packed = if tenths == 0 { rate } else { packed };
                best = best.max(rate);
            }
            for system in ["hemem", "tpp-thp", "tpp"] {
                let (slow, intensity) = (format!("{slow:.0}"), intensity.to_string());
                let row = rows.iter().find(|row| row[..3] == [system, &slow, &intensity]);
                let Some(row) = row else { continue };
                pairs.push(Pair {
                    what: format!("{system}, slow tier of {slow} ns, {intensity}x"),
                    published: float(&row[3]),
                    predicted: Some(best / packed),
                    unit: "times",
                });
            }
        }
    }
    Ok(pairs)
}

pub(crate) fn interleave_stream(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "interleave-stream";
    let (dram, cxl) = (given(name, "dram", "copy_gb_s")?, given(name, "cxl", "copy_gb_s")?);
    let hardware =
        two(rig, SAPPHIRE_RAPIDS, ddr5(rig, 114.0, dram, 8.0)?, device(rig, 250.0, cxl)?)?;
    let mut pairs = Vec::new();
    for (what, slow, of) in [("interleave 1:1", 1, 2u8), ("interleave 9:1, arrays", 1, 10)] {
        let turns = (0..of).map(|turn| Tier(u8::from(turn < slow))).collect();
        let copy = load(&Load { written: 0.5, pages: PageSize::K4, ..reads(64, 0) })?;
        let copy =
            tierscope_sim::exact::Process { placement: Placement::Interleave(turns), ..copy };
        let ran = rig.run(&hardware, &[copy])?;
        let measured = ran.gb_s(0) + ran.gb_s(1);
        for row in rows(name)?.iter().filter(|row| row[0] == what && row[1] == "copy") {
            pairs.push(Pair {
                what: format!("{what}, copy"),
                published: float(&row[2]) / 1e3,
                predicted: Some(measured),
                unit: "GB/s",
            });
        }
    }
    Ok(pairs)
}

pub(crate) fn chase_and_stream(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "chase-and-stream";
    let of = |tier: &str| -> Result<MemoryTier> {
        ddr4(rig, given(name, tier, "idle_ns")?, given(name, tier, "read_gb_s")?, 6.0)
    };
    let hardware = two(rig, SKYLAKE, of("fast")?, of("slow")?)?;
    let time = |chase: usize, stream: usize| -> Result<f64> {
        let chasing = Load { threads: 1, stride: None, ..reads(1, chase) };
        let mut chasing = load(&chasing)?;
        chasing.overlap = Some(1);
        let streaming = tierscope_sim::exact::Process { first_cpu: 1, ..load(&reads(1, stream))? };
        let ran = rig.run(&hardware, &[chasing, streaming])?;
        let [chased, streamed] = [0, 1].map(|process| ran.operations(process).max(1) as f64);
        Ok((4e9 / chased).max(26e9 / streamed))
    };
    let fast = time(0, 0)?;
    let mut pairs = Vec::new();
    for (what, chase, stream) in
        [("stream fast, chase slow", 1, 0), ("chase fast, stream slow", 0, 1), ("all slow", 1, 1)]
    {
        let predicted = fast / time(chase, stream)?;
        for row in rows(name)?.iter().filter(|row| row[0] == what) {
            let (published, what) = (float(&row[1]), what.to_owned());
            pairs.push(Pair { what, published, predicted: Some(predicted), unit: "of all fast" });
        }
    }
    Ok(pairs)
}

pub(crate) fn optane_perma(rig: &Rig) -> Result<Vec<Pair>> {
    let name = "optane-perma";
    let gib = 1.073_741_824;
    let read = given(name, "pmem-apache-256", "sequential_read_gib_s")? * gib;
    let mut optane = rig.tier(OPTANE, 1, (given(name, "pmem-apache-256", "read_ns")?, read, 6))?;
    optane.write_mib_s = (given(name, "pmem-apache-256", "write_gib_s")? * 1024.0) as u64;
    optane.medium.unit =
        optane.medium.unit.map(|unit| tierscope_hw::config::Unit { buffered: 64 * 6, ..unit });
    let dram = given(name, "dram-apache-256", "sequential_read_gib_s")? * gib;
    let hardware = two(rig, SKYLAKE, ddr4(rig, 101.0, dram, 6.0)?, optane)?;
    let mut pairs = Vec::new();
    for row in rows(name)? {
        let [memory, workload, bytes, stores, threads, published] = &row[..] else { continue };
        let tier = match memory.as_str() {
            "dram-apache-256" => 0,
            "pmem-apache-256" => 1,
            _ => continue,
        };
        let stride = match (workload.as_str(), bytes.as_str()) {
            ("random reads" | "random writes", "64") => None,
            ("sequential reads", _) | ("sequential writes", "64") => Some(LINE),
            // Fenced stores of several lines: the model has no fence.
            _ => continue,
        };
        let threads: u32 = threads.parse().unwrap_or(1);
        let written = f64::from(u8::from(stores == "nocache"));
        let what = Load {
            stride,
            written,
            fenced: written > 0.0,
            pages: PageSize::G1,
            ..reads(threads, tier)
        };
        let measured = rig.measure(&hardware, &what)?;
        pairs.push(Pair {
            what: format!("{memory}, {workload} of {bytes} bytes, {threads} threads"),
            published: float(published),
            predicted: Some(measured.gb_s / gib),
            unit: "GiB/s",
        });
    }
    Ok(pairs)
}
