//! The experiments of the folder `experiments`, built in, so that they are found by name from any
//! working directory.

use tierscope_core::{Error, ErrorKind, Result, names};

/// The use of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A scenario of `bench accuracy`.
    Accuracy,
    /// An experiment of `sim run` that is no paper's.
    Exact,
    /// Claims about instruments.
    Telemetry,
    /// Claims about pages, observed without a policy.
    Pages,
    /// Claims of MULTI-CLOCK about placement policies.
    Placement,
    /// Claims of Telescope about tiering guided by regions.
    Tiering,
    /// Claims about reclaim policies.
    Reclaim,
    /// Claims of NEMO about policies fed by counters.
    Nemo,
    /// Claims of NEMO about a bandwidth cap.
    Neighbour,
    /// A workload of NEMO's experiments, by its path.
    Workload,
    /// Claims about TLB misses.
    Ptat,
    /// The assumed parameters, and the ranges of their values.
    Sensitivity,
}

/// A built-in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The use of the text.
    pub kind: Kind,
    /// Name on the command line; unique among entries of its kind.
    pub name: &'static str,
    /// TOML text.
    pub text: &'static str,
}

macro_rules! entries {
    ($($kind:ident $path:literal as $name:literal),* $(,)?) => {
        &[$(Entry {
            kind: Kind::$kind,
            name: $name,
            text: include_str!(concat!("../../../experiments/", $path, ".toml")),
        }),*]
    };
}

/// All built-in texts; those of a kind are in the order of their page or table.
pub static ALL: &[Entry] = entries!(
    Accuracy "accuracy/contiguous-1tb" as "contiguous-1tb",
    Accuracy "accuracy/contiguous-5tb" as "contiguous-5tb",
    Accuracy "accuracy/stairs-5tb" as "stairs-5tb",
    Accuracy "accuracy/needle-5mb" as "needle-5mb",
    Accuracy "accuracy/needle-4kb" as "needle-4kb",
    Accuracy "accuracy/scattered-1tb" as "scattered-1tb",
    Accuracy "accuracy/contiguous-1pb" as "contiguous-1pb",
    Accuracy "accuracy/noise" as "noise",
    Accuracy "accuracy/noise-1pb" as "noise-1pb",
    Accuracy "accuracy/resident" as "resident",
    Exact "exact/two-tiers" as "two-tiers",
    Exact "exact/tick" as "tick",
    Telemetry "telescope/masim-1gb" as "masim-1gb",
    Telemetry "telescope/masim-10gb" as "masim-10gb",
    Telemetry "telescope/masim-100gb" as "masim-100gb",
    Telemetry "telescope/masim-5tb" as "masim-5tb",
    Telemetry "telescope/masim-1tb" as "masim-1tb",
    Telemetry "telescope/masim-5tb-slow" as "masim-5tb-slow",
    Telemetry "telescope/stairs-5tb" as "stairs-5tb",
    Telemetry "telescope/stairs-5tb-1gb" as "stairs-5tb-1gb",
    Telemetry "telescope/stairs-5tb-100gb" as "stairs-5tb-100gb",
    Telemetry "telescope/needle-5mb" as "needle-5mb",
    Telemetry "telescope/petabyte" as "petabyte",
    Telemetry "telescope/damon-1tb" as "damon-1tb",
    Telemetry "telescope/linear-scan-100gb" as "linear-scan-100gb",
    Telemetry "telescope/linear-scan-1tb" as "linear-scan-1tb",
    Pages "multi-clock/figure-1" as "figure-1",
    Pages "multi-clock/figure-2" as "figure-2",
    Placement "multi-clock/ycsb" as "ycsb",
    Placement "multi-clock/ycsb-64ms" as "ycsb-64ms",
    Placement "multi-clock/ycsb-a" as "ycsb-a",
    Placement "multi-clock/ycsb-a-interval" as "ycsb-a-interval",
    Placement "multi-clock/ycsb-a-dram-6" as "ycsb-a-dram-6",
    Placement "multi-clock/ycsb-a-dram-18" as "ycsb-a-dram-18",
    Placement "multi-clock/ycsb-a-options" as "ycsb-a-options",
    Placement "multi-clock/dram-fits" as "dram-fits",
    Placement "multi-clock/ycsb-memory-mode" as "ycsb-memory-mode",
    Placement "multi-clock/pr-memory-mode" as "pr-memory-mode",
    Placement "multi-clock/bfs" as "gapbs-bfs",
    Placement "multi-clock/sssp" as "gapbs-sssp",
    Placement "multi-clock/pr" as "gapbs-pr",
    Placement "multi-clock/cc" as "gapbs-cc",
    Placement "multi-clock/bc" as "gapbs-bc",
    Placement "multi-clock/tc" as "gapbs-tc",
    Tiering "telescope/tiering-memcached-memtier" as "tiering-memcached-memtier",
    Tiering "telescope/tiering-redis-memtier" as "tiering-redis-memtier",
    Tiering "telescope/tiering-memcached-ycsb" as "tiering-memcached-ycsb",
    Tiering "telescope/tiering-redis-ycsb" as "tiering-redis-ycsb",
    Tiering "telescope/tiering-redis-ycsb-one-thread" as "tiering-redis-ycsb-one-thread",
    Tiering "telescope/tiering-redis-ycsb-memory-bound" as "tiering-redis-ycsb-memory-bound",
    Tiering "telescope/tiering-memcached-ycsb-memory-bound" as "tiering-memcached-ycsb-memory-bound",
    Tiering "telescope/tiering-redis-memtier-memory-bound" as "tiering-redis-memtier-memory-bound",
    Reclaim "telescope/reclaim-976gb" as "reclaim-976gb",
    Nemo "nemo/flexkvs" as "nemo-flexkvs",
    Nemo "nemo/flexkvs-rates" as "nemo-flexkvs-rates",
    Nemo "nemo/faster-small" as "nemo-faster-small",
    Nemo "nemo/faster-medium" as "nemo-faster-medium",
    Nemo "nemo/faster-large" as "nemo-faster-large",
    Nemo "nemo/silo" as "nemo-silo",
    Neighbour "nemo/neighbour" as "nemo-neighbour",
    Workload "nemo/workloads/flexkvs" as "experiments/nemo/workloads/flexkvs.toml",
    Workload "nemo/workloads/faster-small" as "experiments/nemo/workloads/faster-small.toml",
    Workload "nemo/workloads/faster-medium" as "experiments/nemo/workloads/faster-medium.toml",
    Workload "nemo/workloads/faster-large" as "experiments/nemo/workloads/faster-large.toml",
    Workload "nemo/workloads/silo" as "experiments/nemo/workloads/silo.toml",
    Ptat "ptat/sequential" as "sequential",
    Ptat "ptat/single-thread" as "single-thread",
    Ptat "ptat/threads" as "threads",
    Ptat "ptat/platform-b" as "platform-b",
    Ptat "ptat/random-access" as "random-access",
    Ptat "ptat/random-access-threads" as "random-access-threads",
    Ptat "ptat/bfs" as "bfs",
    Ptat "ptat/selection" as "selection",
    Sensitivity "sensitivity" as "experiments/sensitivity.toml",
);

/// The entries of a kind, in their order.
pub fn of(kind: Kind) -> impl Iterator<Item = &'static Entry> + Clone {
    ALL.iter().filter(move |entry| entry.kind == kind)
}

/// The entry of this kind and name.
#[must_use]
pub fn find(kind: Kind, name: &str) -> Option<&'static Entry> {
    of(kind).find(|entry| names::same(entry.name, name))
}

/// The text of this kind and name.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is none.
pub fn text(kind: Kind, name: &str) -> Result<&'static str> {
    let none = || Error::new(ErrorKind::Usage, format!("no experiment is called {name}"));
    find(kind, name).map(|entry| entry.text).ok_or_else(none)
}

/// The text of an experiment that can be run by itself: one of `sim run`, or one on policies
/// without the claims about it.
#[must_use]
pub fn experiment(name: &str) -> Option<String> {
    if let Some(entry) = find(Kind::Exact, name) {
        return Some(entry.text.to_owned());
    }
    let on_policies = [Kind::Placement, Kind::Tiering, Kind::Nemo, Kind::Neighbour, Kind::Reclaim];
    let entry = on_policies.into_iter().find_map(|kind| find(kind, name))?;
    without_claims(entry.text).ok()
}

/// The experiment within a text, without the claims about it, as TOML text of its own.
///
/// # Errors
/// The text is not TOML, or has no experiment.
pub(crate) fn without_claims(text: &str) -> Result<String> {
    let broken = |cause: String| Error::new(ErrorKind::Data, "an experiment").cause(cause);
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| broken(error.to_string()))?;
    let experiment =
        table.get("experiment").ok_or_else(|| broken("it has no experiment".into()))?;
    toml::to_string(experiment).map_err(|error| broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_among_their_kind() {
        for (at, entry) in ALL.iter().enumerate() {
            let others = &ALL[at + 1..];
            let same = |other: &&Entry| other.kind == entry.kind && other.name == entry.name;
            assert_eq!(others.iter().find(same), None);
        }
    }

    #[test]
    fn an_experiment_is_found_without_its_claims() {
        let text = experiment("ycsb-a").expect("it is one of ours");
        assert!(text.contains("memcached") && !text.contains("claim"), "{text}");
        assert!(experiment("reclaim-976gb").is_some_and(|text| !text.contains("claim]")));
        assert!(experiment("nemo-silo").is_some_and(|text| !text.contains("claim")));
        assert!(experiment("two-tiers").is_some());
        assert_eq!(experiment("alchemy"), None);
    }
}
