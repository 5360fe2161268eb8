//! All exported metrics: names, units, meaning.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierscope_core::{Charge, Node, Unknown};
use tierscope_record::{Meta, Metric, Recording, is_residence, residence_of};

use super::collector::Counters;
use super::figures::{AGES, Figures, HeatLabel, Spaces, add};
use super::text::{Kind, Label, Text, number};
use crate::own_rows::Owner;
use crate::split::{NOT_RESIDENT, ZSWAPPED};
use crate::tiers::Tiers;

/// Series of a recording that are exported as families of their own.
const KNOWN: [&str; 10] = [
    "profiler_cpu_seconds",
    "target_cpu_seconds",
    "regions",
    "region_bytes",
    "accessed_bytes",
    "hot_bytes",
    "unknown_bytes",
    "unknown_refused_bytes",
    "unknown_guest_bytes",
    "unseen_bytes",
];

/// Target, instrument, and the time of the last window.
pub(super) fn about(text: &mut Text, recording: &Recording) {
    let meta = recording.meta();
    let help = "What is watched, and with what.";
    let variant = meta.settings.get("variant").map_or("", String::as_str);
    text.family("tierscope_recording", Kind::Info, None, help).sample(
        &[
            ("target", &meta.target),
            ("instrument", &meta.instrument),
            ("variant", variant),
            ("kernel", &meta.machine.kernel),
            ("version", &meta.version),
        ],
        1,
    );
    let help = "Length of a window (aggregation interval) asked for.";
    text.family("tierscope_window_seconds", Kind::Gauge, Some("seconds"), help)
        .sample(&[], number(meta.window.as_secs_f64()));
    if let Some(end) = end_of(recording) {
        let name = "tierscope_last_window_timestamp_seconds";
        let help = "When the window that these figures are of ended, in Unix time.";
        text.family(name, Kind::Gauge, Some("seconds"), help).sample(&[], number(unix(end)));
    }
}

/// Wall-clock time of the last window's end.
fn end_of(recording: &Recording) -> Option<SystemTime> {
    let span: Duration = recording.time().map(|time| time.end - time.start)?;
    Some(recording.meta().started + span)
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The cumulative counters.
pub(super) fn counters(text: &mut Text, counters: &Counters) {
    let mut count = |name, help, value: u64| {
        text.family(name, Kind::Counter, None, help).sample(&[], value);
    };
    count("tierscope_windows", "Windows recorded.", counters.windows);
    let late = "Windows that took more than 1.5 times as long as asked for.";
    count("tierscope_windows_late", late, counters.late);
    let lost = "Windows that would have fitted between two that follow each other.";
    count("tierscope_windows_lost", lost, counters.lost);
    let mut cpu = |name, help, time: Duration| {
        let mut family = text.family(name, Kind::Counter, Some("seconds"), help);
        family.sample(&[], number(time.as_secs_f64()));
    };
    let profiler = "CPU time of the profiler: its threads, and the kernel's work for it.";
    cpu("tierscope_profiler_cpu_seconds", profiler, counters.cpu.profiler);
    cpu("tierscope_target_cpu_seconds", "CPU time of what is watched.", counters.cpu.target);
}

/// Figures of a space with its label values.
pub(super) struct Labelled<'a> {
    space: String,
    process: String,
    figures: &'a Figures,
}

impl Labelled<'_> {
    fn labels(&self) -> [Label<'_>; 2] {
        [("space", &self.space), ("process", &self.process)]
    }

    fn with<'a>(&'a self, more: &[Label<'a>]) -> Vec<Label<'a>> {
        [&self.labels(), more].concat()
    }
}

/// Adds the label values of its space to each set of figures.
pub(super) fn labelled<'a>(
    figures: &'a BTreeMap<Owner, Figures>,
    spaces: &Spaces<'_>,
) -> Vec<Labelled<'a>> {
    let labelled = |(owner, figures): (&Owner, &'a Figures)| {
        let [space, process] = spaces.labels(*owner);
        Labelled { space, process, figures }
    };
    figures.iter().map(labelled).collect()
}

/// Figures of the last window, by space.
pub(super) fn spaces(text: &mut Text, spaces: &[Labelled<'_>]) {
    regions(text, spaces);
    mapped(text, spaces);
    memory(text, spaces);
    unknown(text, spaces);
    accesses(text, spaces);
    working_set(text, spaces);
}

fn regions(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Regions in the last window.";
    let mut family = text.family("tierscope_regions", Kind::Gauge, None, help);
    spaces.iter().for_each(|of| family.sample(&of.labels(), of.figures.regions));
}

fn mapped(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Bytes mapped, by backing.";
    let mut family = text.family("tierscope_mapped_bytes", Kind::Gauge, Some("bytes"), help);
    for of in spaces {
        for (backing, bytes) in &of.figures.mapped {
            family.sample(&of.with(&[("backing", backing)]), bytes);
        }
    }
}

fn memory(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Resident bytes in regions, by backing and by heat in the last window: hot \
                (frequency of at least 5/40), warm (accessed, but not hot), cold (not accessed), \
                unknown (hot and cold cannot be separated), unseen (not looked at).";
    let mut family = text.family("tierscope_memory_bytes", Kind::Gauge, Some("bytes"), help);
    for of in spaces {
        for (backing, bytes) in &of.figures.bytes {
            for heat in HeatLabel::ALL {
                let labels = of.with(&[("backing", backing), ("heat", heat.name())]);
                family.sample(&labels, bytes.0[heat as usize]);
            }
        }
    }
}

fn unknown(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Bytes of regions whose hot and cold parts cannot be separated, by reason: too little \
                evidence, refused by the machine, memory of a guest.";
    let mut family = text.family("tierscope_unknown_bytes", Kind::Gauge, Some("bytes"), help);
    for of in spaces {
        for (why, bytes) in Unknown::ALL.iter().zip(of.figures.unknown) {
            family.sample(&of.with(&[("reason", why.name())]), bytes);
        }
    }
}

/// Mapped bytes that are not resident; nothing if the recording does not have them.
pub(super) fn not_resident(text: &mut Text, metrics: &[Metric], spaces: &Spaces<'_>) {
    let families = [
        (
            "absent_bytes",
            "tierscope_absent_bytes",
            "Bytes of files and shared memory not in memory.",
        ),
        ("swapped_bytes", "tierscope_swapped_bytes", "Bytes in swap, zswap included."),
        (
            "reserved_bytes",
            "tierscope_reservation_bytes",
            "Bytes of anonymous memory mapped and never touched.",
        ),
    ];
    for (series, name, help) in families {
        let mut family = text.family(name, Kind::Gauge, Some("bytes"), help);
        let mut sums = BTreeMap::<Owner, u64>::new();
        for metric in metrics.iter().filter(|metric| metric.name == series) {
            let Some(space) = metric.space else { continue };
            add(sums.entry(spaces.own.owner(space)).or_default(), metric.value as u64);
        }
        for (owner, bytes) in sums {
            let [space, process] = spaces.labels(owner);
            family.sample(&[("space", &space), ("process", &process)], bytes);
        }
    }
    let help = "Swapped bytes that zswap holds compressed in memory.";
    let mut family = text.family("tierscope_zswapped_bytes", Kind::Gauge, Some("bytes"), help);
    for metric in metrics.iter().filter(|metric| metric.name == ZSWAPPED) {
        family.sample(&[], metric.value as u64);
    }
}

/// Memory of the target in none of its page tables; nothing if the recording does not have it.
pub(super) fn charges(text: &mut Text, metrics: &[Metric]) {
    let charges = || metrics.iter().filter_map(|m| Some((Charge::of_series(&m.name)?, m.value)));
    let help = "Bytes of the cgroup in no page table of its processes, not visible to ACCESSED bits: \
                page cache that is not mapped, and memory of the kernel.";
    let mut family = text.family("tierscope_charged_bytes", Kind::Gauge, Some("bytes"), help);
    for (charge, value) in charges().filter(|(charge, _)| !charge.is_count()) {
        let kind = charge.series().trim_end_matches("_bytes");
        family.sample(&[("kind", kind)], value as u64);
    }
    let help = "Refaults and major faults of the cgroup since it was made.";
    let mut family = text.family("tierscope_cgroup_faults", Kind::Counter, None, help);
    for (charge, value) in charges().filter(|(charge, _)| charge.is_count()) {
        family.sample(&[("kind", charge.series())], value as u64);
    }
}

/// By space, not by region: there are too many regions. Unknown rates are not included.
fn accesses(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Accesses a second, summed up over pages from the rates that the instrument estimates, \
                by heat; absent where it estimates none.";
    let name = "tierscope_accesses_per_second";
    let mut family = text.family(name, Kind::Gauge, None, help);
    for of in spaces {
        for (heat, rate) in HeatLabel::ALL[..3].iter().zip(of.figures.accesses.iter().flatten()) {
            family.sample(&of.with(&[("heat", heat.name())]), number(*rate));
        }
    }
}

fn working_set(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Bytes of regions in which an access was seen in the last window.";
    let mut family = text.family("tierscope_working_set_bytes", Kind::Gauge, Some("bytes"), help);
    spaces.iter().for_each(|of| family.sample(&of.labels(), of.figures.working_set));
}

/// Cold bytes by age, of recordings that have ages.
pub(super) fn idle_ages(text: &mut Text, spaces: &[Labelled<'_>]) {
    let help = "Cold bytes, by the seconds for which they have not been accessed.";
    let name = "tierscope_idle_age_seconds";
    let mut family = text.family(name, Kind::GaugeHistogram, Some("seconds"), help);
    for of in spaces {
        let counts: Vec<_> = AGES.into_iter().zip(of.figures.ages).collect();
        family.histogram(&of.labels(), &counts, of.figures.age_sum);
    }
}

/// Resident bytes by tier and node, as last measured; nothing if the recording has no such data.
pub(super) fn residence(text: &mut Text, metrics: &[Metric], spaces: &Spaces<'_>, meta: &Meta) {
    let mut resident = BTreeMap::<Owner, u64>::new();
    let mut placed = BTreeMap::<(Owner, Node), u64>::new();
    for of in residence_of(metrics) {
        let owner = spaces.own.owner(of.space);
        add(resident.entry(owner).or_default(), of.bytes);
        for on in of.placed.iter().flat_map(|placed| &placed.nodes) {
            add(placed.entry((owner, on.node)).or_default(), on.bytes);
        }
    }
    let help = "Bytes in memory, those of huge-page pools included. What processes share counts in \
                each of them.";
    let mut family = text.family("tierscope_resident_bytes", Kind::Gauge, Some("bytes"), help);
    for (owner, bytes) in resident {
        let [space, process] = spaces.labels(owner);
        family.sample(&[("space", &space), ("process", &process)], bytes);
    }
    let help = "Of the bytes in memory those on each node, and the tier that the node is in, 0 being \
                the fastest. Looked at every ten seconds or less often.";
    let mut family = text.family("tierscope_node_bytes", Kind::Gauge, Some("bytes"), help);
    let tiers = Tiers::of(meta);
    for ((owner, node), bytes) in placed {
        let [space, process] = spaces.labels(owner);
        let (number, tier) = (node.0.to_string(), tiers.label_of(node));
        let labels =
            [("space", &*space), ("process", &process), ("node", &number), ("tier", &tier)];
        family.sample(&labels, bytes);
    }
}

/// The recording's other series, under their own names; those of short-lived spaces are summed.
pub(super) fn series(text: &mut Text, metrics: &[Metric], spaces: &Spaces<'_>) {
    let mut sums = BTreeMap::<(&str, Option<Owner>), f64>::new();
    let others = metrics
        .iter()
        .filter(|metric| !KNOWN.contains(&&*metric.name) && !is_residence(&metric.name))
        .filter(|metric| !NOT_RESIDENT.contains(&&*metric.name) && metric.name != ZSWAPPED)
        .filter(|metric| Charge::of_series(&metric.name).is_none());
    for metric in others {
        let owner = metric.space.map(|space| spaces.own.owner(space));
        *sums.entry((&metric.name, owner)).or_default() += metric.value;
    }
    let help = "Other series of the recording, by their own names, unit last.";
    let mut family = text.family("tierscope_series", Kind::Gauge, None, help);
    for ((name, owner), value) in sums {
        let [space, process] = owner.map_or_else(Default::default, |owner| spaces.labels(owner));
        let labels = [("name", name), ("space", &*space), ("process", &process)];
        family.sample(&labels, number(value));
    }
}
