//! Figure 1 of the MULTI-CLOCK paper, with stand-in workloads: whether sampled pages fall into
//! three classes. A page is accessed often in a window if its accesses exceed the mean over all
//! sampled pages and windows.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::Result;
use tierscope_sim::experiment::read;
use tierscope_workloads::Workload;

use super::super::row::{Row, Section};
use super::super::verdict::{Bounds, Seeds, Verdict};
use super::frequencies::{Look, Sample};

/// Class limits, as shares of windows in which a page is accessed often: up to the first it is
/// rarely accessed often, from the second on always, in between at times. Assumed.
const AT_TIMES: (f64, f64) = (0.02, 0.9);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    look: Look,
    claim: Vec<Claim>,
}

/// A claim of the paper about the classes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    paper: String,
    says: String,
    figure: Figure,
    least: Option<f64>,
    most: Option<f64>,
}

/// Measured quantities; the worst value over the workloads counts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Figure {
    /// Number of pages in the smallest class.
    FewestOfAKind,
    /// Share of the accesses that go to pages rarely accessed often.
    RareShare,
    /// For pages accessed often at times: accesses in such windows relative to accesses in their
    /// other windows.
    RateAtTimes,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::FewestOfAKind => "fewest pages of a kind",
            Figure::RareShare => "largest share of accesses to rare ones",
            Figure::RateAtTimes => "least ratio of their rates",
        }
    }

    /// Worst value over all workloads; `None` if it is undefined for one of them.
    fn of(self, all: &[Kinds]) -> Option<f64> {
        let least = |figure: fn(&Kinds) -> Option<f64>| {
            all.iter().map(figure).try_fold(f64::INFINITY, |least, f| Some(least.min(f?)))
        };
        match self {
            Figure::FewestOfAKind => least(|kinds| kinds.pages.into_iter().min().map(f64::from)),
            Figure::RareShare => least(|kinds| Some(-kinds.rare_share()?)).map(|share| -share),
            Figure::RateAtTimes => least(|kinds| kinds.rate_at_times()),
        }
    }
}

/// Number of windows of single pages, and accesses within them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    accesses: u64,
    windows: u64,
}

impl Sum {
    fn note(&mut self, accesses: u64) {
        self.accesses += accesses;
        self.windows += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.windows > 0).then(|| self.accesses as f64 / self.windows as f64)
    }
}

/// Classification of a workload's pages.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kinds {
    /// Number of pages accessed often always, at times, and rarely.
    pages: [u32; 3],
    /// Accesses to each class.
    accesses: [u64; 3],
    /// For pages accessed often at times: the windows in which they are, and their other windows.
    often: Sum,
    otherwise: Sum,
}

impl Kinds {
    /// Classifies pages by their accesses, indexed by window and page.
    fn of(windows: &[Vec<u64>]) -> Self {
        let pages = windows.first().map_or(0, Vec::len);
        let all: u64 = windows.iter().flatten().sum();
        let mean = all as f64 / (windows.len() * pages).max(1) as f64;
        let is_often = |accesses: u64| accesses as f64 > mean;
        let mut kinds = Kinds::default();
        for page in 0..pages {
            let counts = || windows.iter().map(|window| window[page]);
            let often = counts().filter(|count| is_often(*count)).count();
            let share = often as f64 / windows.len() as f64;
            let kind = match share {
                _ if share >= AT_TIMES.1 => 0,
                _ if share > AT_TIMES.0 => 1,
                _ => 2,
            };
            kinds.pages[kind] += 1;
            kinds.accesses[kind] += counts().sum::<u64>();
            for count in counts().filter(|_| kind == 1) {
                let sum = if is_often(count) { &mut kinds.often } else { &mut kinds.otherwise };
                sum.note(count);
            }
        }
        kinds
    }

    fn rare_share(&self) -> Option<f64> {
        let all: u64 = self.accesses.iter().sum();
        (all > 0 && self.pages[2] > 0).then(|| self.accesses[2] as f64 / all as f64)
    }

    fn rate_at_times(&self) -> Option<f64> {
        Some(self.often.mean()? / self.otherwise.mean().filter(|mean| *mean > 0.0)?)
    }
}

fn look_at(workload: &Workload, look: &Look, window: Duration) -> Kinds {
    let mut sample = Sample::draw(workload, look);
    let windows: Vec<Vec<u64>> = (0..look.windows).map(|n| sample.counts(n, window)).collect();
    Kinds::of(&windows)
}

/// Runs the observation, and writes its section of the page.
///
/// # Errors
/// The text is invalid: line and column.
pub(super) fn section(name: &str, text: &str) -> Result<Section> {
    let Text { look, claim } = read(name, text)?;
    let (window, workloads) = look.read(name, text)?;
    let all: Vec<Kinds> = workloads.iter().map(|w| look_at(w, &look, window)).collect();
    let mut text = format!(
        "{}. Drawn from densities, {} pages, {} accesses a second, {} segments of {window:?}, seed {}.\nSource: {}.\n\
         Command: `tierscope reproduce {name}`\n\n\
         | stand-in | pages accessed often all the time, at times, hardly ever | share of the accesses | a segment, when often | and else |\n\
         |---|---|---|---|---|\n",
        look.about, look.pages, look.rate, look.windows, look.seed, look.source,
    );
    for (workload, kinds) in workloads.iter().zip(&all) {
        let [hot, at_times, rare] = kinds.pages;
        let sum: u64 = kinds.accesses.iter().sum();
        let shares = kinds.accesses.map(|a| format!("{:.1}", a as f64 * 100.0 / sum.max(1) as f64));
        let mean = |sum: Sum| sum.mean().map_or("–".into(), |mean| format!("{mean:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {hot}, {at_times}, {rare} | {} % | {} | {} |",
            workload.name,
            shares.join(", "),
            mean(kinds.often),
            mean(kinds.otherwise),
        );
    }
    text.push('\n');
    let rows = claim.iter().map(|claim| row(claim, claim.figure.of(&all))).collect();
    Ok(Section { name: name.to_owned(), before: text, rows, ..Section::default() })
}

fn row(claim: &Claim, ours: Option<f64>) -> Row {
    let range = Bounds { least: claim.least, most: claim.most };
    of_stand_ins([&claim.paper, &claim.says, claim.figure.name()], range, ours)
}

/// The row of a claim: its place, its words and its figure. A stand-in was made of the kinds of
/// pages that these claims are about, so that what holds does so by construction.
pub(super) fn of_stand_ins(
    [paper, says, figure]: [&str; 3],
    range: Bounds,
    ours: Option<f64>,
) -> Row {
    let holds = ours.is_some_and(|ours| range.hold(ours));
    Row {
        paper: paper.into(),
        says: says.into(),
        of: "stand-ins".into(),
        figure: figure.into(),
        range,
        ours: Seeds::of([ours]),
        once_detected: None,
        verdict: if holds { Verdict::ByConstruction } else { Verdict::NotReproduced },
        reason: None,
        decided_by: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ten windows, three pages: 9 accesses in each window; 9 in two windows and 1 in eight; none.
    // The overall mean is 3.87.
    #[test]
    fn pages_are_classified_by_their_hot_windows() {
        let window = |n: u64| vec![9, if n < 2 { 9 } else { 1 }, 0];
        let kinds = Kinds::of(&(0..10).map(window).collect::<Vec<_>>());
        assert_eq!((kinds.pages, kinds.accesses), ([1, 1, 1], [90, 26, 0]));
        assert_eq!((kinds.rate_at_times(), kinds.rare_share()), (Some(9.0), Some(0.0)));
        let all = [kinds, Kinds::of(&[vec![1, 1]])];
        assert_eq!(Figure::FewestOfAKind.of(&all), Some(0.0));
        assert_eq!(Figure::RateAtTimes.of(&all), None, "one has no such pages");
    }

    #[test]
    fn the_worst_workload_decides() {
        let kinds = |rare: u64| Kinds {
            pages: [1, 2, 3],
            accesses: [100 - rare, 0, rare],
            ..Kinds::default()
        };
        assert_eq!(Figure::RareShare.of(&[kinds(5), kinds(20), kinds(1)]), Some(0.2));
        assert_eq!(Kinds::default().rare_share(), None);
    }
}
