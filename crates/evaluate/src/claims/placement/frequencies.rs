//! Figure 2 of the MULTI-CLOCK paper, with stand-in workloads: whether pages accessed more than
//! once in a window are accessed more in the next window than pages accessed once. Time is divided
//! into windows; pages are classified by their accesses in one window, and followed through the
//! next. Accesses to sampled pages are drawn from the densities of a workload description.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::{PAGE_SIZE, Result, Rng, units};
use tierscope_sim::experiment::{place as at_place, read};
use tierscope_workloads::generate::from_spec;
use tierscope_workloads::{Density, Workload};
use toml::Spanned;

use super::super::row::Section;
use super::super::verdict::Bounds;
use super::kinds::of_stand_ins;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    look: Look,
    claim: Claim,
}

/// Parameters of the observation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Look {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) source: String,
    workloads: Vec<Spanned<String>>,
    /// Accesses per second.
    pub(super) rate: u32,
    /// Number of sampled pages.
    pub(super) pages: u32,
    /// Length of a window.
    window: Spanned<String>,
    /// Number of windows, or of pairs of consecutive windows.
    pub(super) windows: u32,
    pub(super) seed: u64,
}

impl Look {
    /// Parses the length of a window and the workloads; `name` and `text` are the file's.
    ///
    /// # Errors
    /// A value is invalid: line and column.
    pub(super) fn read(&self, name: &str, text: &str) -> Result<(Duration, Vec<Workload>)> {
        let bad = |offset: usize, what: String| at_place(name, text, offset, what);
        let window = units::time(self.window.get_ref());
        let window = window.map_err(|what| bad(self.window.span().start, what))?;
        let of = |spec: &Spanned<String>| {
            from_spec(spec.get_ref()).map_err(|e| bad(spec.span().start, e.to_string()))
        };
        Ok((window, self.workloads.iter().map(of).collect::<Result<_>>()?))
    }
}

/// The paper's claim about the ratio.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    paper: String,
    says: String,
    /// Lower bound, for each workload: accesses in the next window of pages accessed more than
    /// once, relative to those of pages accessed once.
    least: f64,
}

/// Number of pages in a class, and their accesses in the next window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Later {
    pages: u64,
    accesses: u64,
}

impl Later {
    fn mean(self) -> Option<f64> {
        (self.pages > 0).then(|| self.accesses as f64 / self.pages as f64)
    }
}

/// Accesses in the next window, of pages accessed once and of pages accessed more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Followed {
    once: Later,
    more: Later,
}

impl Followed {
    fn note(&mut self, before: u64, after: u64) {
        let kind = match before {
            0 => return,
            1 => &mut self.once,
            _ => &mut self.more,
        };
        kind.pages += 1;
        kind.accesses += after;
    }

    fn ratio(self) -> Option<f64> {
        Some(self.more.mean()? / self.once.mean().filter(|mean| *mean > 0.0)?)
    }
}

/// Expected number of accesses to each page between two times, at a workload's rate of one access
/// per second.
fn expected(workload: &Workload, pages: &[(usize, u64)], from: Duration, to: Duration) -> Vec<f64> {
    let mut sums = vec![0.0; pages.len()];
    let mut at = from;
    while at < to {
        let segment = workload.segment_at(at);
        let end = segment.end.min(to);
        let mut by_place: BTreeMap<(usize, u64), Vec<Density>> = BTreeMap::new();
        for density in workload.densities(&segment).into_iter().filter(|d| d.weight > 0.0) {
            by_place.entry((density.part.area, density.part.from)).or_default().push(density);
        }
        for (sum, page) in sums.iter_mut().zip(pages) {
            let over = by_place.range(..=*page).rev().take_while(|((area, _), _)| *area == page.0);
            let holds = |d: &&Density| (d.part.from..d.part.from + d.part.bytes).contains(&page.1);
            for density in over.flat_map(|(_, list)| list).filter(holds) {
                let count = density.part.bytes.div_ceil(density.every).max(1);
                *sum += (end - at).as_secs_f64() * density.weight / count as f64;
            }
        }
        at = end.max(at + Duration::from_nanos(1));
    }
    sums
}

/// Draws from a Poisson distribution: counts exponential intervals that fit into the mean, in parts
/// of at most thirty.
fn poisson(rng: &mut Rng, mut mean: f64) -> u64 {
    const PART: f64 = 30.0;
    let mut count = 0;
    while mean > 0.0 {
        let floor = (-mean.min(PART)).exp();
        let mut product = unit(rng);
        while product > floor {
            count += 1;
            product *= unit(rng);
        }
        mean -= PART;
    }
    count
}

fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Sampled pages of a workload, drawn uniformly, and a generator of their accesses.
pub(super) struct Sample<'a> {
    workload: &'a Workload,
    rng: Rng,
    /// Each page as area and byte offset.
    pages: Vec<(usize, u64)>,
    rate: f64,
}

impl<'a> Sample<'a> {
    pub(super) fn draw(workload: &'a Workload, look: &Look) -> Self {
        let mut rng = Rng::seeded(look.seed);
        let all: u64 = workload.areas.iter().map(|area| area.bytes / PAGE_SIZE).sum();
        let page = |rng: &mut Rng| {
            let mut left = rng.below(all.max(1));
            let mut areas = workload.areas.iter().enumerate();
            let found = areas.find_map(|(number, area)| {
                let pages = area.bytes / PAGE_SIZE;
                if left < pages {
                    return Some((number, left * PAGE_SIZE));
                }
                left -= pages;
                None
            });
            found.unwrap_or_default()
        };
        let pages = (0..look.pages).map(|_| page(&mut rng)).collect();
        Self { workload, rng, pages, rate: f64::from(look.rate) }
    }

    /// Draws the accesses to each page in the window with this number.
    pub(super) fn counts(&mut self, number: u32, window: Duration) -> Vec<u64> {
        let (from, to) = (window * number, window * (number + 1));
        let means = expected(self.workload, &self.pages, from, to);
        means.iter().map(|mean| poisson(&mut self.rng, mean * self.rate)).collect()
    }
}

/// Follows the sampled pages of a workload through all windows.
fn follow(workload: &Workload, look: &Look, window: Duration) -> Followed {
    let mut sample = Sample::draw(workload, look);
    let mut followed = Followed::default();
    let mut before: Option<Vec<u64>> = None;
    for number in 0..=look.windows {
        let counts = sample.counts(number, window);
        for (before, after) in before.iter().flatten().zip(&counts) {
            followed.note(*before, *after);
        }
        before = Some(counts);
    }
    followed
}

/// Runs the observation, and writes its section of the page.
///
/// # Errors
/// The text is invalid: line and column.
pub(super) fn section(name: &str, text: &str) -> Result<Section> {
    let Text { look, claim } = read(name, text)?;
    let (window, workloads) = look.read(name, text)?;
    let mut rows = String::new();
    let mut least: Option<f64> = Some(f64::INFINITY);
    for workload in &workloads {
        let followed = follow(workload, &look, window);
        let mean = |later: Later| later.mean().map_or("–".into(), |mean| format!("{mean:.2}"));
        let ratio = followed.ratio();
        least = least.zip(ratio).map(|(least, ratio)| least.min(ratio));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            rows,
            "| {} | {} | {} | {} | {} | {} |",
            workload.name,
            followed.once.pages,
            mean(followed.once),
            followed.more.pages,
            mean(followed.more),
            ratio.map_or("–".into(), |ratio| format!("{ratio:.1}")),
        );
    }
    let range = Bounds { least: Some(claim.least), most: None };
    let row = of_stand_ins([&claim.paper, &claim.says, "the least ratio"], range, least);
    let before = format!(
        "{}. Drawn from densities, {} pages, {} accesses a second, {} pairs of windows of {window:?}, seed {}.\nSource: {}.\n\
         Command: `tierscope reproduce {name}`\n\n\
         | stand-in | accessed once | in the next window, mean | more than once | in the next window, mean | ratio |\n\
         |---|---|---|---|---|---|\n{rows}\n",
        look.about, look.pages, look.rate, look.windows, look.seed, look.source,
    );
    Ok(Section { name: look.name, before, rows: vec![row], ..Section::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    // 10 of 100 pages get nine tenths of the accesses: 0.09 each, plus 0.1 / 100.
    #[test]
    fn the_expected_frequency_of_a_page() {
        let spec = "contiguous:space=409600B,hot=40960B,share=0.9,rate=1000";
        let workload = from_spec(spec).expect("it is one");
        let hot = workload.hot(&workload.segment_at(Duration::ZERO))[0].from;
        let cold = if hot > 0 { 0 } else { 409_600 - PAGE_SIZE };
        let of = |seconds: u64| {
            let to = Duration::from_secs(seconds);
            expected(&workload, &[(0, hot), (0, cold)], Duration::ZERO, to)
        };
        let [one, two] = [of(1), of(2)];
        assert!((one[0] / 0.091 - 1.0).abs() < 0.02 && one[1] < 0.0012, "{one:?}");
        assert!((two[0] / one[0] - 2.0).abs() < 1e-9);
    }

    // The mean of 10,000 draws with mean 50 is 50 ± 0.07; draws with mean 0 are 0.
    #[test]
    fn counts_have_their_mean() {
        let mut rng = Rng::seeded(1);
        let sum: u64 = (0..10_000).map(|_| poisson(&mut rng, 50.0)).sum();
        assert!(sum.abs_diff(500_000) < 4000, "{sum}");
        assert_eq!(poisson(&mut rng, 0.0), 0);
    }

    #[test]
    fn pages_are_classified_by_the_window_before() {
        let mut followed = Followed::default();
        for (before, after) in [(0, 9), (1, 2), (1, 0), (2, 3), (7, 5)] {
            followed.note(before, after);
        }
        assert_eq!(followed.once, Later { pages: 2, accesses: 2 });
        assert_eq!(followed.ratio(), Some(4.0));
        assert_eq!(Followed::default().ratio(), None);
    }
}
