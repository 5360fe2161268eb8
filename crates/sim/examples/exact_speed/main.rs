//! Speed of the exact machine, layer by layer, compared with a naive loop over the same accesses;
//! the cost of telemetry and a policy; the throughput of two machines on two cores; the host memory
//! for a populated terabyte; and what this host allows: `cargo run --release -p tierscope-sim
//! --example exact_speed [-- [--json] [--part PART]… [SECONDS [PATTERN…]]]`.
//!
//! The naive loop draws the same accesses and marks each page in a flat array of a byte a page.
//! Page tables are populated before the clock starts; every layer begins with a fresh machine, and
//! runs alternately with the loop. A rate is the median over slices of the thread's CPU time, so
//! that a busy host disturbs less, and so is a ratio; only parallel runs are measured in wall-clock
//! time. With `--json` each figure is printed as one object a line, as soon as it is known.

mod bound;
mod measure;
mod policy;
mod two;

use std::process::ExitCode;
use std::time::Duration;

use measure::{Layer, footprint, layer, naive};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_workloads::{Workload, generate};

/// A workload, and its bars in M/s: translation, whole machine.
struct Pattern {
    name: &'static str,
    spec: &'static str,
    bytes: u64,
    bars: Option<[f64; 2]>,
    /// Parts that are left out.
    without: &'static [Part],
}

const PATTERNS: [Pattern; 5] = [
    Pattern {
        name: "TLB-friendly",
        spec: "contiguous:space=128KiB,hot=128KiB",
        bytes: 128 << 10,
        bars: Some([250.0, 120.0]),
        without: &[Part::Memory, Part::Policy, Part::Two],
    },
    Pattern {
        name: "1 TiB hotspot",
        spec: "contiguous:space=1TiB,hot=10GiB,share=0.99,burst=1",
        bytes: 1 << 40,
        bars: Some([70.0, 25.0]),
        without: &[],
    },
    Pattern {
        name: "1 TiB uniform",
        spec: "contiguous:space=1TiB,hot=1TiB",
        bytes: 1 << 40,
        bars: Some([30.0, 15.0]),
        without: &[],
    },
    Pattern {
        name: "4 TiB uniform",
        spec: "contiguous:space=4TiB,hot=4TiB",
        bytes: 4 << 40,
        bars: Some([25.0, 12.0]),
        without: &[Part::Policy, Part::Two],
    },
    Pattern {
        name: "5 TiB uniform",
        spec: "contiguous:space=5TiB,hot=5TiB",
        bytes: 5 << 40,
        bars: None,
        without: &[TRANSLATION, CACHES, SAMPLED, OBSERVED, Part::Policy, Part::Two],
    },
];

/// Share of the host's bound from which on a rate holds.
const NEAR: f64 = 0.5;

/// A part to measure.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Memory,
    /// Random reads of this host from as much memory as page tables take.
    Bound {
        huge: bool,
    },
    Loop,
    Layer(Layer),
    Policy,
    Two,
}

const SMALL: Part = Part::Bound { huge: false };
const BOUND: Part = Part::Bound { huge: true };
const TRANSLATION: Part = Part::Layer(Layer::Translation);
const CACHES: Part = Part::Layer(Layer::Caches);
const WHOLE: Part = Part::Layer(Layer::Whole);
const SAMPLED: Part = Part::Layer(Layer::Sampled);
const OBSERVED: Part = Part::Layer(Layer::Observed);

const ALL: [Part; 11] = [
    Part::Memory,
    SMALL,
    BOUND,
    Part::Loop,
    TRANSLATION,
    CACHES,
    WHOLE,
    SAMPLED,
    OBSERVED,
    Part::Policy,
    Part::Two,
];

impl Part {
    /// The part's name, and the unit of its figure.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Part::Memory => ("memory", "MiB per TiB"),
            Part::Bound { huge: false } => ("small pages", "M/s"),
            Part::Bound { huge: true } => ("bound", "M/s"),
            Part::Loop => ("loop", "M/s"),
            Part::Layer(Layer::Translation) => ("translation", "M/s"),
            Part::Layer(Layer::Caches) => ("caches", "M/s"),
            Part::Layer(Layer::Whole) => ("whole", "M/s"),
            Part::Layer(Layer::Sampled) => ("sampled", "M/s"),
            Part::Layer(Layer::Observed) => ("observed", "M/s"),
            Part::Policy => ("policy", "% more time"),
            Part::Two => ("two", "times one run"),
        }
    }

    /// The target value, and whether it is an upper limit.
    fn bar(self, pattern: &Pattern) -> Option<(f64, bool)> {
        match self {
            Part::Memory => Some((1.2 * 1024.0, true)),
            TRANSLATION => pattern.bars.map(|bars| (bars[0], false)),
            WHOLE => pattern.bars.map(|bars| (bars[1], false)),
            Part::Policy => Some((30.0, true)),
            Part::Two => Some((1.8, false)),
            Part::Bound { .. } | Part::Loop | Part::Layer(_) => None,
        }
    }

    /// The part's figure; for a layer also the ratio to the loop.
    fn measure(
        self,
        workload: &Workload,
        pattern: &Pattern,
        time: Duration,
    ) -> Result<(f64, Option<f64>)> {
        let bytes = pattern.bytes;
        let value = match self {
            Part::Memory => footprint(workload, bytes)?,
            Part::Bound { huge } => bound::random_reads(bound::table_lines(bytes), huge, time),
            Part::Loop => naive(workload, bytes, time),
            Part::Layer(which) => {
                let (rate, ratio) = layer(workload, bytes, which, time)?;
                return Ok((rate, Some(ratio)));
            }
            Part::Policy => policy::overhead(workload, bytes)?,
            Part::Two => two::gain(workload, bytes, time)?,
        };
        Ok((value, None))
    }
}

/// The command line's options.
struct Wanted {
    json: bool,
    parts: Vec<Part>,
    time: Duration,
    patterns: Vec<String>,
}

impl Wanted {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut wanted =
            Self { json: false, parts: vec![], time: Duration::from_secs(2), patterns: vec![] };
        let mut timed = false;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => wanted.json = true,
                "--part" => wanted.parts.push(part(&args.next().unwrap_or_default())?),
                text => match text.parse() {
                    Ok(seconds) if !timed && seconds > 0.0 => {
                        (wanted.time, timed) = (Duration::from_secs_f64(seconds), true);
                    }
                    _ => wanted.patterns.push(arg),
                },
            }
        }
        for name in &wanted.patterns {
            if !PATTERNS.iter().any(|pattern| pattern.name.contains(name.as_str())) {
                let names = PATTERNS.map(|pattern| pattern.name).join(", ");
                return Err(usage(format!("no pattern is called {name}"), names));
            }
        }
        Ok(wanted)
    }

    fn takes(&self, pattern: &Pattern) -> bool {
        let named = |name: &String| pattern.name.contains(name.as_str());
        self.patterns.is_empty() || self.patterns.iter().any(named)
    }
}

fn part(name: &str) -> Result<Part> {
    let names = || ALL.map(|part| part.name().0).join(", ");
    let found = ALL.into_iter().find(|part| part.name().0 == name);
    found.ok_or_else(|| usage(format!("no part is called '{name}'"), names()))
}

fn usage(what: String, names: String) -> Error {
    Error::new(ErrorKind::Usage, what)
        .cause("only what is measured can be asked for")
        .remedy(format!("choose among: {names}"))
}

/// Measures the parts of a pattern, one after another.
fn run(pattern: &Pattern, wanted: &Wanted) -> Result<()> {
    let workload = generate::from_spec(pattern.spec)?;
    let asked = |part: &Part| {
        let asked = wanted.parts.is_empty() || wanted.parts.contains(part);
        asked && !pattern.without.contains(part)
    };
    let mut bound = None;
    for part in ALL.into_iter().filter(asked) {
        let (value, ratio) = part.measure(&workload, pattern, wanted.time)?;
        bound = if part == BOUND { Some(value) } else { bound };
        let of_bound = matches!(part, Part::Layer(_)).then_some(bound).flatten();
        print(pattern, part, (value, ratio, of_bound.map(|bound| value / bound)), wanted.json);
    }
    Ok(())
}

/// Prints a figure, its ratio to the naive loop's, and its ratio to the host's bound.
fn print(
    pattern: &Pattern,
    part: Part,
    (value, ratio, of_bound): (f64, Option<f64>, Option<f64>),
    json: bool,
) {
    let ((name, unit), bar) = (part.name(), part.bar(pattern));
    let near = of_bound.is_some_and(|ratio| ratio >= NEAR);
    let holds = bar.map(|(bar, above)| if above { value <= bar } else { value >= bar || near });
    if json {
        let row = serde_json::json!({
            "pattern": pattern.name,
            "part": name,
            "value": value,
            "unit": unit,
            "ratio": ratio,
            "of_bound": of_bound,
            "bar": bar.map(|bar| bar.0),
            "at_most": bar.is_some_and(|bar| bar.1),
            "holds": holds,
        });
        return println!("{row}");
    }
    let [ratio, of_bound] =
        [ratio, of_bound].map(|ratio| ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
    let bar = bar.map_or(String::new(), |bar| format!("{:.1}", bar.0));
    let name = format!("{:<16}{name:<14}", pattern.name);
    println!("{name}{value:>8.1} {unit:<14}{ratio:>6}{of_bound:>8}{bar:>8}");
}

fn main() -> ExitCode {
    let run_all = |wanted: Wanted| {
        if !wanted.json {
            println!(
                "{:<16}{:<14}{:>8} {:<14}{:>6}{:>8}{:>8}",
                "pattern", "part", "", "", "loop", "bound", "bar"
            );
        }
        let mut taken = PATTERNS.iter().filter(|pattern| wanted.takes(pattern));
        taken.try_for_each(|pattern| run(pattern, &wanted))
    };
    match Wanted::parse(std::env::args().skip(1)).and_then(run_all) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
