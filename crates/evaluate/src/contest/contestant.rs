//! A placement policy with its settings, and the instrument that feeds it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Instrument, Need, Policy, Result, names};
use tierscope_instruments::metronome::Metronome;
use tierscope_policies::registry::{Entry, Sampling as Wanted, all, by_name, make};
use tierscope_sim::config::{Period, Sampling};
use tierscope_sim::exact::{Machine, Setup};
use tierscope_sim::experiment::{Experiment, Mode};
use tierscope_sim::open::check_needs;

use super::bounds::Bound;
use super::clairvoyant::Clairvoyant;
use crate::watch::{Watch, affordable, watches};

/// Default instrument for a policy that works on regions.
const FEEDER: &str = "rates";
/// Pseudo-policy for hardware in memory mode: the first tier is a cache of the second, and pages
/// never move.
const MEMORY_MODE: &str = "memory-mode";

/// A policy and the instrument that feeds it.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// The text on the command line: `NAME:key=value,…@INSTRUMENT`.
    pub text: String,
    /// The policy with its settings: `NAME:key=value,…`.
    pub line: String,
    entry: &'static Entry,
    /// The instrument, for a policy that works on regions.
    watch: Option<Watch>,
    /// Whether the hardware runs in memory mode.
    cached: bool,
    /// The bound that this is; `None` for a policy.
    bound: Option<Bound>,
}

/// A contestant's experiment and policy.
pub(super) struct Prepared<'a> {
    pub(super) experiment: Cow<'a, Experiment>,
    pub(super) policy: Box<dyn Policy>,
}

impl Contestant {
    /// Parses `NAME:key=value,…@INSTRUMENT`, where settings and instrument are optional; or
    /// `memory-mode`, which is static tiering on a machine whose first tier is a cache of the
    /// second; or one of the bounds (`bounds.rs`).
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for unknown names or an invalid combination; [`ErrorKind::Missing`] if
    /// the machine cannot provide the policy's evidence.
    pub fn read(experiment: &Experiment, text: &str) -> Result<Self> {
        let text = &*names::kebab_line(text);
        let cached = text == MEMORY_MODE;
        let bound = Bound::named(text);
        let (line, fed) = match text.rsplit_once('@') {
            _ if cached || bound.is_some() => ("static", None),
            Some((line, fed)) => (line, Some(fed)),
            None => (text, None),
        };
        if cached {
            check_memory_mode(experiment)?;
        }
        if let Some(bound) = bound.filter(|_| !Bound::applies_to(experiment)) {
            let cause = "all placements are alike: one tier, or tiers without times of their own";
            return Err(Error::new(ErrorKind::Usage, format!("{} is not possible", bound.name()))
                .cause(cause)
                .remedy("choose a machine of two tiers, modelled whole"));
        }
        make(line)?;
        let name = line.split_once(':').map_or(line, |(name, _)| name);
        let entry = by_name(name).expect("it was just made");
        check_needs(&format!("{name} cannot place memory here"), experiment.mode, entry.needs)?;
        let watch = feeder(experiment, entry, fed)?;
        Ok(Self { text: text.into(), line: line.into(), entry, watch, cached, bound })
    }

    /// Whether it is a bound, and no policy.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Number of simulated runs that it takes.
    pub(crate) fn runs(&self) -> u64 {
        1 + self.bound.map_or(0, Bound::runs_before)
    }

    /// Its experiment and policy: memory mode, a bound's placement, or the experiment as it is.
    ///
    /// # Errors
    /// A machine for the runs of a bound cannot be built.
    pub(super) fn prepare<'a>(
        &self,
        experiment: &'a Experiment,
        stop: &Arc<AtomicBool>,
        reached: &AtomicU64,
    ) -> Result<Prepared<'a>> {
        let mut policy = make(&self.line)?;
        let experiment = match self.bound {
            Some(bound) => {
                let (placed, seen) = bound.prepare(experiment, stop, reached)?;
                if let Some(seen) = seen {
                    policy = Box::new(Clairvoyant::new(seen, experiment));
                }
                Cow::Owned(placed)
            }
            None if self.cached => {
                let mut cached = experiment.clone();
                cached.setup.memory_mode = true;
                Cow::Owned(cached)
            }
            None => Cow::Borrowed(experiment),
        };
        Ok(Prepared { experiment, policy })
    }

    /// The evidence that the policy and its instrument work on.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let watched = self.watch.as_ref().map_or(&[][..], Watch::needs);
        [self.entry.needs, watched].concat()
    }

    /// Sampling configuration that the policy or its instrument needs.
    pub(crate) fn sampling(&self, experiment: &Experiment) -> Option<Sampling> {
        let watched = self.watch.as_ref().and_then(|watch| watch.sampling(experiment));
        watched.or_else(|| {
            let sampling = &experiment.sampling;
            let period = match (experiment.every, self.entry.sampling?) {
                (Some(every), _) | (None, Wanted::Every(every)) => Period::Every(every),
                (None, Wanted::Share(share)) => {
                    Period::PerSecond(affordable(share, sampling, &experiment.setup.costs))
                }
            };
            Some(Sampling { period, ..sampling.clone() })
        })
    }

    /// Sampling interval of the instrument; zero without one.
    pub(crate) fn sampling_interval(&self) -> Duration {
        self.watch.as_ref().map_or(Duration::ZERO, Watch::sampling_interval)
    }

    /// The instrument that feeds the policy, or a stub that only marks windows.
    pub(crate) fn instrument(&self, experiment: &Experiment) -> Result<Box<dyn Instrument>> {
        match &self.watch {
            Some(watch) => watch.make(experiment),
            None => Ok(Box::new(Metronome::new(experiment.window))),
        }
    }
}

fn check_memory_mode(experiment: &Experiment) -> Result<()> {
    let refuse = |cause: String, remedy: &str| {
        Err(Error::new(ErrorKind::Usage, "memory mode is not possible").cause(cause).remedy(remedy))
    };
    if experiment.mode != Mode::Exact {
        return refuse("densities do not model memory as a cache".into(), "simulate it exactly");
    }
    let setup = Setup { memory_mode: true, ..experiment.setup.clone() };
    Machine::new(&setup)?;
    match setup.admits(&experiment.processes) {
        Ok(()) => Ok(()),
        Err((_, error)) => refuse(error.to_string(), "make the workload smaller"),
    }
}

fn feeder(experiment: &Experiment, entry: &Entry, fed: Option<&str>) -> Result<Option<Watch>> {
    let wants = entry.needs.contains(&Need::Regions);
    if let Some(fed) = fed.filter(|_| !wants) {
        let needs: Vec<String> = entry.needs.iter().map(ToString::to_string).collect();
        let own = if needs.is_empty() { "nothing".into() } else { needs.join(" and ") };
        return Err(Error::new(ErrorKind::Usage, format!("{} is not fed by {fed}", entry.name))
            .cause(format!(
                "it reads {own} itself, and {fed} would clear ACCESSED bits that it needs"
            ))
            .remedy(format!("leave @{fed} out")));
    }
    if !wants {
        return Ok(None);
    }
    let name = fed.unwrap_or(FEEDER).to_owned();
    Ok(watches(experiment, &[name])?.into_iter().next())
}

/// The contestants that the texts describe, with `all` for every placement policy; without texts,
/// those of the experiment. The bounds follow them, unless a policy reclaims, or all placements are
/// alike on this machine.
///
/// # Errors
/// As [`Contestant::read`]; or no policy is named.
pub fn contestants(experiment: &Experiment, texts: &[String]) -> Result<Vec<Contestant>> {
    if texts.is_empty() {
        let own = experiment.policies.iter().map(|(text, offset)| {
            Contestant::read(experiment, text).map_err(|error| experiment.at(*offset, error))
        });
        let own = own.collect::<Result<Vec<_>>>()?;
        if own.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "no placement policy to run")
                .cause("no policy is named")
                .remedy("name one with --policy, or all; see `tierscope list policies`"));
        }
        return with_bounds(experiment, own);
    }
    let names = |text: &String| match text.as_str() {
        "all" => {
            let placing = all().iter().filter(|entry| !entry.reclaims);
            placing.map(|entry| entry.name.to_owned()).collect()
        }
        _ => vec![text.clone()],
    };
    let mut read: Vec<Contestant> = Vec::new();
    for text in texts.iter().flat_map(names) {
        let contestant = Contestant::read(experiment, &text)?;
        if read.iter().all(|known| known.text != contestant.text) {
            read.push(contestant);
        }
    }
    with_bounds(experiment, read)
}

/// The policies, and after them the bounds.
fn with_bounds(experiment: &Experiment, mut named: Vec<Contestant>) -> Result<Vec<Contestant>> {
    let reclaims = named.iter().any(|contestant| contestant.entry.reclaims);
    if reclaims || !Bound::applies_to(experiment) {
        return Ok(named);
    }
    for bound in Bound::ALL {
        if named.iter().all(|known| known.bound != Some(bound)) {
            named.push(Contestant::read(experiment, bound.name())?);
        }
    }
    named.sort_by_key(Contestant::is_bound);
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(mode: &str) -> Experiment {
        let text = format!(
            "name = \"e\"\nabout = \"a\"\nsource = \"s\"\ntime = \"1s\"\npolicies = [\"static\", \"nobody\"]\n\
             [[process]]\nworkload = \"contiguous:space=16MiB,hot=1MiB\"\n[simulation]\nmode = \"{mode}\""
        );
        Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn regions_come_from_rates_by_default_and_other_policies_scan() {
        let experiment = experiment("exact");
        let read = |text: &str| Contestant::read(&experiment, text);
        let fed = |text: &str| read(text).map(|c| c.watch.map(|watch| watch.name));
        assert_eq!(fed("hot-region"), Ok(Some("rates".into())));
        assert_eq!(fed("hot-region:hits=4@damon-moderate"), Ok(Some("damon-moderate".into())));
        assert_eq!(fed("multi-clock"), Ok(None));
        let error = fed("multi-clock@rates").expect_err("it clears bits").to_string();
        assert!(error.contains("reads access bits itself") && error.contains("leave @rates"));
        assert_eq!(fed("hot_region@hint_fault"), Ok(Some("hint-fault".into())));
        let old = read("hot_region:verify_pages=4").map(|c| (c.text, c.line));
        let new = "hot-region:verify-pages=4".to_owned();
        assert_eq!(old, Ok((new.clone(), new)));
        assert!(fed("hot-region@demon").is_err() && fed("multiclock").is_err());
    }

    #[test]
    fn sample_rates_follow_the_source_of_the_policy() {
        let experiment = experiment("exact");
        let period = |text: &str| {
            let contestant = Contestant::read(&experiment, text).expect("it is one");
            contestant.sampling(&experiment).map(|sampling| sampling.period)
        };
        assert_eq!(period("hemem"), Some(Period::Every(19_997)));
        assert_eq!(period("tpp"), None);
        assert_eq!(period("hot-region@pebs-moderate"), Some(Period::PerSecond(5_000)));
        let Some(Period::PerSecond(rate)) = period("memtis") else { panic!("it has a share") };
        let costs = &experiment.setup.costs.samples;
        let each = costs.record_ns + costs.interrupt_ns + costs.handle_ns + costs.read_ns;
        assert!((rate * each).abs_diff(30_000_000) <= each, "{rate} of {each} ns");
    }

    #[test]
    fn memory_mode_is_a_machine_of_its_own() {
        let exact = experiment("exact");
        let cached = Contestant::read(&exact, "memory-mode").expect("it has two tiers");
        let has_it = |contestant: &Contestant| {
            let prepared = contestant.prepare(&exact, &Arc::default(), &AtomicU64::new(0));
            prepared.expect("no run is needed").experiment.setup.memory_mode
        };
        assert!(has_it(&cached) && cached.line == "static");
        let plain = Contestant::read(&exact, "static").expect("it is one");
        assert!(!has_it(&plain));
        let error = Contestant::read(&experiment("density"), "memory-mode").expect_err("densities");
        assert!(error.to_string().contains("memory mode is not possible"), "{error}");
    }

    #[test]
    fn all_is_every_policy_once_and_mistakes_in_a_file_have_their_place() {
        let experiment = experiment("density");
        let both = contestants(&experiment, &["all".into(), "static".into()]).expect("they are");
        let (bounds, policies): (Vec<_>, Vec<_>) = both.iter().partition(|one| one.is_bound());
        assert_eq!(policies.len(), all().iter().filter(|entry| !entry.reclaims).count());
        assert_eq!(bounds.len(), Bound::ALL.len());
        let error = contestants(&experiment, &[]).expect_err("nobody is no policy").to_string();
        assert!(error.starts_with("e:5:23: no policy is called `nobody`"), "{error}");
    }
}
