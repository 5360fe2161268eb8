//! Verdicts over the ranges of assumed parameters (METRICS.md, claim verdicts).

use serde::Deserialize;
use tierscope_core::{Need, Result, units};
use tierscope_hw::Machine as Hardware;
use tierscope_sim::density::Config;
use tierscope_sim::experiment::{Experiment, place, read};
use tierscope_workloads::Work;
use toml::Spanned;

use crate::accuracy::{Outcome, Scenario};
use crate::catalogue::{self, Entry, Kind};
use crate::watch::Watch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    parameter: Vec<Parameter>,
}

/// An assumed parameter, and the values to try.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameter {
    varies: Varies,
    values: Vec<Spanned<String>>,
    /// Reason for this range.
    source: String,
}

/// Parameters that can be varied.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Varies {
    /// Accesses per second.
    Rate,
    /// Interval of TLB flushes, or `never`.
    Flush,
    /// The ready-made machine whose TLBs and caches are simulated.
    Machine,
    /// Cost of a probe in nanoseconds.
    ProbeNs,
    /// Cost of an entry in a scan, in nanoseconds.
    EntryNs,
    /// Cost of a PEBS record in nanoseconds.
    RecordNs,
    /// Cost of a PEBS interrupt in nanoseconds.
    InterruptNs,
}

impl Varies {
    fn name(self) -> &'static str {
        match self {
            Varies::Rate => "rate",
            Varies::Flush => "flush",
            Varies::Machine => "machine",
            Varies::ProbeNs => "probe ns",
            Varies::EntryNs => "entry ns",
            Varies::RecordNs => "record ns",
            Varies::InterruptNs => "interrupt ns",
        }
    }

    /// Whether the parameter affects a contender: others are not run again.
    fn concerns(self, watch: &Watch) -> bool {
        let (sampled, scans) = (watch.needs().contains(&Need::Samples), watch.scans());
        match self {
            Varies::RecordNs | Varies::InterruptNs => sampled,
            Varies::EntryNs => scans,
            Varies::ProbeNs => !sampled && !scans,
            Varies::Rate | Varies::Flush | Varies::Machine => true,
        }
    }

    fn apply(self, value: &str, experiment: &mut Experiment) -> std::result::Result<(), String> {
        let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is no number"));
        let Experiment { setup, config, processes, .. } = experiment;
        match self {
            Varies::Rate => {
                let rate = number()?;
                for process in processes {
                    if let Work::Described(workload) = &mut process.work {
                        workload.phases.iter_mut().for_each(|phase| phase.rate = Some(rate));
                    }
                }
            }
            Varies::Flush => {
                setup.flush = (value != "never").then(|| units::time(value)).transpose()?;
                config.flush = setup.flush;
            }
            Varies::Machine => {
                setup.hardware = Hardware::ready_made(value).map_err(|e| e.to_string())?;
                let other = Config::of(&setup.hardware, config.costs.clone());
                (config.tlb_pages, config.tlb_huge) = (other.tlb_pages, other.tlb_huge);
                (config.upper_entries, config.upper_ways) = (other.upper_entries, other.upper_ways);
            }
            Varies::ProbeNs => setup.costs.access_bits.probe_ns = number()?,
            Varies::EntryNs => setup.costs.access_bits.entry_ns = number()?,
            Varies::RecordNs => setup.costs.samples.record_ns = number()?,
            Varies::InterruptNs => setup.costs.samples.interrupt_ns = number()?,
        }
        config.costs = setup.costs.clone();
        Ok(())
    }
}

/// A scenario with one parameter changed, and the contenders that it affects.
#[derive(Debug)]
pub(super) struct Variant {
    /// Parameter and value, as `flush 1ms`.
    pub(super) label: String,
    pub(super) scenario: Scenario,
}

/// Outcomes with one parameter changed.
#[derive(Debug)]
pub(super) struct Varied {
    /// Parameter and value, as `flush 1ms`.
    pub(super) label: String,
    /// Outcomes, unordered; contenders that are not affected have their original outcomes.
    pub(super) outcomes: Vec<Outcome>,
}

/// The built-in file of parameters.
fn file() -> &'static Entry {
    catalogue::of(Kind::Sensitivity).next().expect("it is built in")
}

fn parameters() -> Result<Vec<Parameter>> {
    let Entry { name, text, .. } = file();
    read::<File>(name, text).map(|file| file.parameter)
}

/// All variants of a scenario, with one parameter changed each.
///
/// # Errors
/// The file of parameters is invalid: line and column.
pub(super) fn variants(scenario: &Scenario) -> Result<Vec<Variant>> {
    let mut all = Vec::new();
    for parameter in parameters()? {
        for value in &parameter.values {
            let mut scenario = scenario.clone();
            let text = value.get_ref();
            let changed = parameter.varies.apply(text, scenario.experiment_mut());
            let Entry { name, text: file, .. } = file();
            changed.map_err(|what| place(name, file, value.span().start, what))?;
            scenario.contenders.retain(|watch| parameter.varies.concerns(watch));
            if scenario.contenders.is_empty() {
                continue;
            }
            all.push(Variant { label: format!("{} {text}", parameter.varies.name()), scenario });
        }
    }
    Ok(all)
}

/// Parameters, their values and sources, as a Markdown list.
pub(super) fn legend() -> Result<String> {
    let line = |parameter: &Parameter| {
        let values: Vec<&str> = parameter.values.iter().map(|v| v.get_ref().as_str()).collect();
        format!("- {}: {} ({})\n", parameter.varies.name(), values.join(", "), parameter.source)
    };
    Ok(parameters()?.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        Scenario::load("needle-5mb").unwrap()
    }

    #[test]
    fn each_variant_changes_one_thing() {
        let plain = scenario();
        let all = variants(&plain).unwrap();
        let described = |scenario: &Scenario| scenario.described().unwrap();
        let rate = |scenario: &Scenario| described(scenario).phases[0].rate;
        let of = |label: &str| &all.iter().find(|v| v.label == label).unwrap().scenario;
        assert_eq!(rate(of("rate 300000")), Some(300_000));
        assert_eq!(of("rate 300000").config, plain.config);
        assert_eq!(of("flush never").config.flush, None);
        assert_eq!(of("probe ns 52").config.costs.access_bits.probe_ns, 52);
        assert_ne!(of("machine xeon-e5-2620v2").config.upper_entries, [0; 6]);
        assert_eq!(of("machine xeon-e5-2620v2").config.costs, plain.config.costs);
        // Only contenders that incur the cost are run again.
        assert!(of("entry ns 5").contenders.iter().all(Watch::scans));
        assert!(of("record ns 200").contenders.iter().all(|c| c.samples > 0));
        for variant in &all {
            let same = variant.scenario.config == plain.config
                && described(&variant.scenario) == described(&plain);
            assert!(!same, "{} changes nothing", variant.label);
        }
    }

    #[test]
    fn values_that_are_none_are_refused() {
        let apply = |varies: Varies, value: &str| varies.apply(value, scenario().experiment_mut());
        assert!(apply(Varies::Machine, "abacus").is_err());
        assert!(apply(Varies::Flush, "5").is_err());
    }
}
