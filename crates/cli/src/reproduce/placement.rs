//! The papers' experiments on placement: policies in comparison, and claims about them.
//!
//! Sensitivity is left to the reader (`tierscope sim tier NAME --set …`): a run takes a minute or
//! so.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::Result;

use super::verdict::{Judgement, Verdict};
use super::{claims, frequencies, kinds};
use crate::sim::tier::outcome::Outcome;
use crate::units::{duration, show_bytes};

macro_rules! experiments {
    ($($path:literal as $name:literal),* $(,)?) => {
        /// Names and TOML texts of the experiments.
        const ALL: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../experiments/", $path, ".toml")),
        )),*];
    };
}

experiments!(
    "multi-clock/ycsb-a" as "ycsb-a",
    "multi-clock/ycsb-b" as "ycsb-b",
    "multi-clock/ycsb-c" as "ycsb-c",
    "multi-clock/ycsb-f" as "ycsb-f",
    "multi-clock/ycsb-w" as "ycsb-w",
    "multi-clock/ycsb-d" as "ycsb-d",
    "multi-clock/ycsb-a-interval" as "ycsb-a-interval",
    "multi-clock/ycsb-a-dram-6" as "ycsb-a-dram-6",
    "multi-clock/ycsb-a-dram-18" as "ycsb-a-dram-18",
    "multi-clock/ycsb-a-options" as "ycsb-a-options",
    "multi-clock/ycsb-a-memory-mode" as "ycsb-a-memory-mode",
    "multi-clock/pr-memory-mode" as "pr-memory-mode",
    "multi-clock/bfs" as "gapbs-bfs",
    "multi-clock/sssp" as "gapbs-sssp",
    "multi-clock/pr" as "gapbs-pr",
    "multi-clock/cc" as "gapbs-cc",
    "multi-clock/bc" as "gapbs-bc",
    "multi-clock/tc" as "gapbs-tc",
    "telescope/tiering-memcached-memtier" as "tiering-memcached-memtier",
    "telescope/tiering-redis-memtier" as "tiering-redis-memtier",
    "telescope/tiering-memcached-ycsb" as "tiering-memcached-ycsb",
    "telescope/tiering-redis-ycsb" as "tiering-redis-ycsb",
    "telescope/tiering-redis-ycsb-one-thread" as "tiering-redis-ycsb-one-thread",
    "telescope/tiering-redis-ycsb-memory-bound" as "tiering-redis-ycsb-memory-bound",
    "telescope/tiering-memcached-ycsb-memory-bound" as "tiering-memcached-ycsb-memory-bound",
    "telescope/tiering-redis-memtier-memory-bound" as "tiering-redis-memtier-memory-bound",
);

/// Experiments without a placement policy: name, TOML text, section writer.
const LOOKS: &[(&str, &str, Looker)] = &[
    ("figure-1", include_str!("../../../../experiments/multi-clock/figure-1.toml"), kinds::section),
    (
        "figure-2",
        include_str!("../../../../experiments/multi-clock/figure-2.toml"),
        frequencies::section,
    ),
];

/// Observes the pages that a TOML text describes, and writes the section.
type Looker = fn(&str, &str) -> Result<String>;

/// Name of the whole group on the command line.
pub(super) const GROUP: &str = "placement";
/// Heading of the group's part of the page.
pub(super) const MARK: &str = "\n# Placement policies\n";

const HEAD: &str = "
Made by `tierscope reproduce placement -o REPRODUCTION.md`, or with the names of single experiments. Everything is *simulated*; no parameter was
fitted to a claim. Rates are of the first process after the warm-up. Sizes and times of the exact runs are small ones of our own, so that each
takes minutes: ratios of footprint to fast memory are kept, sizes are not. What became of the daemons' paces (1024 pages a second) each source says.

";

type Claim = claims::Claim<Figure>;

/// Quantities that claims are about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Operations per second relative to those of `to`.
    RateOver,
    /// 95th percentile of latency relative to that of `to`.
    P95Over,
    /// Share of the promoted bytes touched afterwards, relative to that of `to`.
    ReuseOver,
    /// Pages of 4 KiB promoted per `interval` of the policy, which is one scan of its daemon.
    PagesAScan,
    /// Gigabytes promoted.
    PromotedGb,
}

impl claims::Figure for Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::RateOver => "rate over",
            Figure::P95Over => "P95 latency over",
            Figure::ReuseOver => "share re-used over",
            Figure::PagesAScan => "pages promoted a scan",
            Figure::PromotedGb => "GB promoted",
        }
    }

    /// Whether it is a ratio to the same quantity of another policy.
    fn is_ratio(self) -> bool {
        matches!(self, Figure::RateOver | Figure::P95Over | Figure::ReuseOver)
    }
}

impl Figure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Figure::RateOver => Some(outcome.operations_per_second),
            Figure::P95Over => match &outcome.latency {
                Some(latency) => Some(latency.p95_ns as f64),
                None => outcome.access_latency.map(|latency| latency.p95_ns),
            },
            Figure::ReuseOver => outcome.moves.reaccess_share,
            Figure::PagesAScan => {
                let scans = outcome.seconds / interval(outcome)?.as_secs_f64();
                Some(outcome.moves.promoted_bytes as f64 / 4096.0 / scans)
            }
            Figure::PromotedGb => Some(outcome.moves.promoted_bytes as f64 / 1e9),
        }
    }
}

/// Interval of a policy's daemon; `None` if the policy has no such setting.
fn interval(outcome: &Outcome) -> Option<Duration> {
    let (_, text) = outcome.settings.iter().find(|(name, _)| name == "interval")?;
    duration(text).ok().filter(|interval| !interval.is_zero())
}

/// An experiment that compares policies, with claims about them.
pub(super) type Race = claims::Planned<Figure>;

/// Whether a name is one of these experiments, or the group's.
pub(super) fn knows(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Names that the command accepts.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let looks = LOOKS.iter().map(|(name, ..)| *name);
    [GROUP].into_iter().chain(looks).chain(ALL.iter().map(|(name, _)| *name))
}

/// TOML text of the experiment of that name, without its claims.
pub(crate) fn experiment_text(name: &str) -> Option<String> {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name)?;
    claims::alone(text).ok()
}

/// An experiment to be run.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    /// A comparison of policies.
    Race(Box<Race>),
    /// An observation of pages: an index into [`LOOKS`].
    Look(usize),
}

impl Planned {
    fn name(&self) -> &'static str {
        match self {
            Planned::Race(race) => race.name,
            Planned::Look(which) => LOOKS[*which].0,
        }
    }

    /// Runs it; `None` if `stop` was set before the end.
    ///
    /// # Errors
    /// A machine cannot be built.
    pub(super) fn run(self, stop: &Arc<AtomicBool>) -> Result<Option<Section>> {
        let name = self.name();
        let text = match self {
            Planned::Look(which) => {
                let (name, text, look) = LOOKS[which];
                look(name, text)?
            }
            Planned::Race(race) => section(&race.run(stop)?),
        };
        Ok((!stop.load(Ordering::Relaxed)).then_some(Section { name, text }))
    }
}

/// The experiments of these names.
pub(super) fn choose(names: &[String]) -> Result<Vec<Planned>> {
    let wanted = |known: &str| names.iter().any(|name| name == known || name == GROUP);
    let looks = (0..LOOKS.len()).filter(|which| wanted(LOOKS[*which].0));
    let looks = looks.map(|which| Ok(Planned::Look(which)));
    let races = ALL.iter().filter(|(name, _)| wanted(name));
    let races = races.map(|(name, text)| Ok(Planned::Race(Box::new(Race::parse(name, text)?))));
    looks.chain(races).collect()
}

/// An experiment's section of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    name: &'static str,
    pub(super) text: String,
}

/// An experiment and the outcomes of its policies.
#[derive(Debug)]
struct Ran {
    race: Race,
    outcomes: Vec<Outcome>,
}

impl Race {
    fn run(self, stop: &Arc<AtomicBool>) -> Result<Ran> {
        let mut outcomes = claims::run(&[(&self.experiment, &self.contestants)], stop)?;
        Ok(Ran { outcomes: outcomes.remove(0), race: self })
    }
}

/// Judges a claim by the outcomes of its experiment.
fn judged(claim: &Claim, outcomes: &[Outcome]) -> Judgement {
    claim.told().judged(outcomes, Verdict::NotTestable, |outcome| claim.figure.of(outcome))
}

/// Writes the section of an experiment.
fn section(ran: &Ran) -> String {
    let Race { name, experiment, claims, .. } = &ran.race;
    let hardware = &experiment.setup.hardware;
    let tiers: Vec<String> = hardware
        .tiers
        .iter()
        .map(|tier| format!("{} of {}", show_bytes(tier.mib << 20), tier.name))
        .collect();
    let mut text = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "## {name}\n{about}. {how}, {mapped} mapped, {hardware} with {tiers}, {time:?} of which {warm:?} are not measured, \
         seed {seed}.\nSource: {source}.\nCommand: `tierscope reproduce {name}`\n\n\
         | policy | {unit} a second | over the first | fast-tier share | promoted | demoted | wasted | re-used | telemetry, policy, mover CPU |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        about = experiment.about,
        how = experiment.mode.how(),
        mapped = show_bytes(experiment.bytes()),
        hardware = hardware.name,
        tiers = tiers.join(" and "),
        time = experiment.time,
        warm = experiment.warm_up,
        seed = experiment.seed,
        source = experiment.source,
        unit = ran.outcomes.first().map_or("operations", |outcome| outcome.unit.as_str()),
    );
    let first = ran.outcomes.first().map_or(0.0, |outcome| outcome.operations_per_second);
    for outcome in &ran.outcomes {
        let (moves, cpu) = (&outcome.moves, &outcome.cpu);
        let percent =
            |share: Option<f64>| share.map_or("–".into(), |s| format!("{:.1} %", s * 100.0));
        let telemetry = cpu.telemetry + cpu.interrupts;
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.3} | {} | {} | {} | {} | {} | {:.2}, {:.2}, {:.2} % |",
            outcome.policy,
            outcome.operations_per_second,
            outcome.operations_per_second / first.max(1e-9),
            percent(outcome.fast_tier_share),
            show_bytes(moves.promoted_bytes),
            show_bytes(moves.demoted_bytes),
            show_bytes(moves.wasted_bytes),
            percent(moves.reaccess_share),
            telemetry * 100.0,
            cpu.policy * 100.0,
            cpu.mover * 100.0
        );
    }
    if claims.is_empty() {
        text.push_str("\nThe paper asks, and claims nothing.\n");
        return text;
    }
    text.push('\n');
    text.push_str(claims::TABLE);
    for claim in claims {
        claim.told().row(judged(claim, &ran.outcomes), &mut text);
    }
    text
}

/// The page with this section in place of the old one of the same name.
pub(super) fn merged(page: &str, fresh: &Section) -> String {
    let (before, ours) = match page.find(MARK) {
        Some(at) => (&page[..at], &page[at + MARK.len()..]),
        None => (page, ""),
    };
    let fresh = |name: &str| (name == fresh.name).then(|| fresh.text.clone());
    format!("{before}{MARK}{HEAD}{}", claims::sections(ours, names(), fresh))
}

/// The part of a page that belongs to this group.
pub(super) fn part(page: &str) -> &str {
    page.find(MARK).map_or("", |at| &page[at..])
}

/// Checks that the page contains a section exactly as it would be written now.
pub(super) fn check(path: &Path, fresh: &Section) -> Result<()> {
    let Section { name, text } = fresh;
    super::check(path, name, text, &format!("reproduce {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_whole() {
        let all = choose(&[GROUP.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(all.len(), ALL.len() + LOOKS.len());
        for plan in all {
            let Planned::Race(race) = plan else { continue };
            let first = &race.contestants[0].text;
            assert_eq!(first, "static", "{}: rates are held against it", race.name);
            assert_eq!(race.experiment.name, race.name);
        }
    }

    #[test]
    fn an_experiment_stands_without_its_claims() {
        let text = experiment_text("ycsb-a").expect("it is one of ours");
        assert!(text.contains("memcached") && !text.contains("claim"), "{text}");
        assert_eq!(experiment_text("alchemy"), None);
    }

    fn outcome(policy: &str, rate: f64) -> Outcome {
        Outcome { policy: policy.into(), operations_per_second: rate, ..Outcome::default() }
    }

    fn claim(policy: &str, to: &str, least: f64, most: Option<f64>) -> Claim {
        Claim {
            paper: String::new(),
            says: String::new(),
            policy: policy.into(),
            figure: Figure::RateOver,
            to: Some(to.into()),
            least: Some(least),
            most,
            reason: None,
        }
    }

    #[test]
    fn inside_then_direction_then_neither() {
        let outcomes = [outcome("static", 100.0), outcome("multi_clock", 125.0)];
        let of = |claim: Claim| judged(&claim, &outcomes).verdict;
        let over = |least, most| claim("multi_clock", "static", least, most);
        assert_eq!(of(over(1.2, Some(2.32))), Verdict::Reproduced);
        assert_eq!(of(over(1.3, None)), Verdict::DirectionOnly);
        assert_eq!(of(claim("static", "multi_clock", 1.2, None)), Verdict::NotReproduced);
        assert_eq!(of(claim("nimble", "static", 1.2, None)), Verdict::NotTestable);
    }

    // 100 pages in 10 s are 10 per interval of a second, and 1 per 100 ms.
    #[test]
    fn a_scan_is_as_long_as_the_policy_waits() {
        let mut outcome = Outcome { seconds: 10.0, ..outcome("multi_clock", 1.0) };
        outcome.moves.promoted_bytes = 100 * 4096;
        assert_eq!(Figure::PagesAScan.of(&outcome), None, "it has no interval");
        for (interval, pages) in [("1s", 10.0), ("100ms", 1.0)] {
            outcome.settings = vec![("interval".into(), interval.into())];
            let ours = Figure::PagesAScan.of(&outcome).unwrap();
            assert!((ours - pages).abs() < 1e-9, "{ours}");
        }
    }

    #[test]
    fn sections_take_the_place_of_their_own_and_of_no_others() {
        let page = format!("before\n{MARK}head\n\n## ycsb-a\nold a\n\n## ycsb-b\nold b\n");
        let race = Race::parse("ycsb-a", ALL[0].1).unwrap_or_else(|error| panic!("{error}"));
        let text = section(&Ran { outcomes: vec![outcome("static", 1.0)], race });
        let merged = merged(&page, &Section { name: "ycsb-a", text });
        assert!(merged.starts_with("before\n") && merged.contains("## ycsb-b\nold b\n"));
        assert!(!merged.contains("old a") && merged.contains("| static | 1 |"), "{merged}");
        assert!(part(&merged).starts_with(MARK) && part("nothing").is_empty());
    }
}
