//! Figures of a recording next to its truth, and the rows of a case.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tierscope_core::{Heat, RangeSet, Snapshot, Time};
use tierscope_record::Recording;

use super::case::{Case, Check};
use super::truth::Truth;
use crate::bench::accuracy::claims::{Claims, factor, kib_after, median};
use crate::bench::rows::{Bar, Row, row};
use crate::error::{Context, Error, Kind, Result};

/// Share of the hot bytes that a window must have found to count as right in [`Check::Steady`].
const FOUND: f64 = 0.9;
/// Most hot bytes of such a window, in multiples of the truth.
const MOST: f64 = 1.5;

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "targets", cause)
}

/// A judged window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Window {
    /// Bytes reported hot.
    hot: f64,
    /// Bytes hot at its end, and those hot at any time in it.
    now: f64,
    ever: f64,
    /// Of `now`: reported as hot, and as unknown or not looked at.
    found: f64,
    undecided: f64,
}

impl Window {
    fn of(snapshot: &Snapshot, hot: f64, now: &RangeSet, ever: &RangeSet) -> Self {
        let common = |of: fn(&Heat) -> bool| {
            let regions = snapshot.regions.iter().filter(|region| of(&region.heat()));
            let ranges: RangeSet = regions.map(|region| region.range).collect();
            ranges.intersect(now).bytes() as f64
        };
        Self {
            hot,
            now: now.bytes() as f64,
            ever: ever.bytes() as f64,
            found: common(|heat| *heat == Heat::Hot),
            undecided: common(|heat| matches!(heat, Heat::Unknown(_) | Heat::Unseen)),
        }
    }

    /// Share of the hot bytes that are reported as hot or undecided.
    fn not_missed(&self) -> f64 {
        (self.found + self.undecided) / self.now.max(1.0)
    }

    fn is_right(&self) -> bool {
        self.not_missed() >= FOUND && self.hot <= MOST * self.ever
    }
}

/// A run of a scenario, as read from its files.
pub(super) struct Judged {
    out: PathBuf,
    claims: Claims,
    windows: Vec<Window>,
    /// Greatest number of hot ranges whose process had no name.
    unnamed: usize,
    /// CPU of the profiler, of one CPU.
    cpu: f64,
    /// Samples of a judged window, median.
    samples: f64,
    memory: String,
    recording: Recording,
}

impl Judged {
    /// Reads the files; the second half of the windows is judged.
    pub(super) fn open(out: &Path) -> Result<Self> {
        let text = |file: &str| fs::read_to_string(out.join(file)).at(out.join(file).display());
        let recording = Recording::open(out.join("recording")).map_err(broken)?;
        let time = recording.time().ok_or_else(|| broken("nothing was recorded"))?;
        let half = Time(time.start.0.midpoint(time.end.0));
        let claims = Claims::of(&recording, &(half..time.end))?;
        let truth = Truth::open(out)?;
        let (mut windows, mut unnamed) = (Vec::new(), 0);
        for (index, split) in claims.judged.clone().zip(&claims.splits) {
            let snapshot = recording.snapshot(index).map_err(broken)?;
            let layout = recording.layout(index).map_err(broken)?;
            let hot = truth.hot(&layout, snapshot.start, snapshot.end);
            unnamed = unnamed.max(hot.unnamed);
            windows.push(Window::of(&snapshot, split.hot as f64, &hot.now, &hot.ever));
        }
        let commits = recording.commits();
        let (first, last) = (&commits[0], &commits[commits.len() - 1]);
        let spent = last.cpu.profiler.saturating_sub(first.cpu.profiler).as_secs_f64();
        let cpu = spent / ((last.end.0 - first.end.0).max(1) as f64 / 1e9);
        let samples = commits[claims.judged.clone()].iter().map(|one| f64::from(one.samples));
        let samples = median(samples.collect());
        let memory = text("memory.txt")?;
        Ok(Self { out: out.to_owned(), claims, windows, unnamed, cpu, samples, memory, recording })
    }

    /// The rows of a case: those that it asks for, those that hold for all recordings, and figures
    /// that explain them.
    pub(super) fn rows(&self, case: &Case, command: &str) -> Result<Vec<Row>> {
        let name = case.title();
        let add = |what: &str, value: f64, unit: &str, bar: Bar| {
            row(format!("{name}: {what}"), value, unit, bar, command)
        };
        let mut rows = vec![
            add("hot, reported", mib(self.median(|it| it.hot)), "MiB", Bar::None),
            add("hot, true", mib(self.median(|it| it.ever)), "MiB", Bar::None),
        ];
        for check in case.checks {
            let (what, value, unit, bar) = self.figure(check)?;
            rows.push(add(&what, value, unit, bar));
        }
        let unknown = self.claims.median(|it| it.unknown) / self.resident().max(1.0);
        rows.extend([
            add("unknown of the resident bytes", unknown, "share", Bar::None),
            add("samples of a window", self.samples, "samples", Bar::None),
            add("profiler CPU", 100.0 * self.cpu, "% of a CPU", Bar::Most(case.cpu)),
        ]);
        let machine = kib_after(&self.memory, "MemTotal:").ok_or_else(|| broken("MemTotal"))?;
        rows.extend(self.claims.sanity.rows(&name, machine, command));
        Ok(rows)
    }

    fn median(&self, of: impl Fn(&Window) -> f64) -> f64 {
        median(self.windows.iter().map(of).collect())
    }

    /// Resident bytes of the regions.
    fn resident(&self) -> f64 {
        self.claims.median(|it| it.resident)
    }

    /// Name, value, unit and bar of a check's row.
    fn figure(&self, check: &Check) -> Result<(String, f64, &'static str, Bar)> {
        let share = |what: &str, value, bar| Ok((what.to_owned(), value, "share", bar));
        let hot = self.median(|it| it.hot);
        match *check {
            Check::Within(most) => {
                let off = factor(hot, self.median(|it| it.ever));
                Ok(("hot bytes, off by".to_owned(), off, "times", Bar::Most(most)))
            }
            Check::AtMost(most) => {
                let over = hot / self.median(|it| it.ever).max(1.0);
                Ok(("hot bytes, of the true ones".to_owned(), over, "times", Bar::Most(most)))
            }
            Check::Little(most) => {
                let what = "hot bytes of buffers and code".to_owned();
                Ok((what, mib(hot), "MiB", Bar::Most(most)))
            }
            Check::NotMissed(least) => {
                let value = self.median(Window::not_missed);
                share("hot bytes found or unknown", value, Bar::Least(least))
            }
            Check::Steady(least) => {
                let right = self.windows.iter().filter(|window| window.is_right()).count();
                let value = right as f64 / self.windows.len().max(1) as f64;
                share("windows with hot bytes right or unknown", value, Bar::Least(least))
            }
            Check::Idle(off) => {
                let idle = self.truly_resident()? - self.median(|it| it.ever);
                let value = self.claims.median(|it| it.cold) / idle;
                share("cold, of the resident idle bytes", value, Bar::Around(1.0, off))
            }
            Check::Resident(off) => {
                let value = self.resident() / self.truly_resident()?;
                share("resident, of the kernel's count", value, Bar::Around(1.0, off))
            }
            Check::Covered(least) => {
                let value = self.covered()?;
                share("bytes in regions, of the resident ones", value, Bar::Least(least))
            }
            Check::Series(name, what, bytes, off) => {
                let value = mib(self.series(name)?);
                Ok((what.to_owned(), value, "MiB", Bar::Around(mib(bytes as f64), off)))
            }
            Check::Named => share(
                "processes with hot memory without a name",
                self.unnamed as f64,
                Bar::Most(0.0),
            )
            .map(|(what, value, _, bar)| (what, value, "processes", bar)),
            Check::Rows(most) => {
                let spaces = self.json("summary.json")?;
                let rows = spaces["spaces"].as_array().map_or(0, Vec::len);
                let what = "processes in the summary".to_owned();
                Ok((what, rows as f64, "rows", Bar::Most(most)))
            }
            Check::Heatmap(mapping, least) => {
                let areas = self.json("heatmap.json")?;
                let areas = areas["areas"].as_array().cloned().unwrap_or_default();
                let here = areas.iter().filter(|area| area["mapping"] == mapping);
                let rows: usize =
                    here.filter_map(|area| Some(area["rows"].as_array()?.len())).sum();
                let what = "rows of the object in the heatmap".to_owned();
                Ok((what, rows as f64, "rows", Bar::Least(least)))
            }
            Check::Said(name, what) => {
                Ok((what.to_owned(), self.said(name)?, "lines", Bar::Least(1.0)))
            }
        }
    }

    fn json(&self, file: &str) -> Result<Value> {
        let path = self.out.join(file);
        let text = fs::read_to_string(&path).at(path.display())?;
        serde_json::from_str(&text).map_err(broken)
    }

    /// A figure that the scenario measured.
    fn said(&self, name: &str) -> Result<f64> {
        let path = self.out.join("figures.txt");
        let text = fs::read_to_string(&path).at(path.display())?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let value =
            lines.find(|(first, _)| *first == name).and_then(|(_, value)| value.parse().ok());
        value.ok_or_else(|| broken(format!("{}: no {name}", path.display())))
    }

    /// Resident bytes of all processes, as the kernel counts them: for targets that share none.
    fn truly_resident(&self) -> Result<f64> {
        let sum = |word: &str| -> u64 {
            self.memory.lines().filter_map(|line| kib_after(line, word)).sum()
        };
        match sum("Rss:") + sum("Private_Hugetlb:") + sum("Shared_Hugetlb:") {
            0 => Err(broken("memory.txt: no process")),
            bytes => Ok(bytes as f64),
        }
    }

    /// Share of the resident bytes, as measured in a window, that its regions hold; median.
    fn covered(&self) -> Result<f64> {
        let mut shares = Vec::new();
        for (index, split) in self.claims.judged.clone().zip(&self.claims.splits) {
            let spaces = self.recording.residence(index).map_err(broken)?;
            let measured: u64 = spaces.iter().map(|space| space.bytes).sum();
            shares.push(split.resident as f64 / measured.max(1) as f64);
        }
        Ok(median(shares))
    }

    /// The median of a series over the judged windows, summed over the spaces of each.
    fn series(&self, name: &str) -> Result<f64> {
        let mut values = Vec::new();
        for index in self.claims.judged.clone() {
            let metrics = self.recording.metrics(index).map_err(broken)?;
            let here = metrics.iter().filter(|metric| metric.name == name);
            let here: Vec<f64> = here.map(|metric| metric.value).collect();
            if !here.is_empty() {
                values.push(here.iter().sum());
            }
        }
        Ok(median(values))
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
