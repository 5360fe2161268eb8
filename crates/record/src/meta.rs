//! Description of a recording, stored in the schema metadata of its tables.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierscope_core::{LevelSet, Node, Radix, Setting, names};

use crate::table::FORMAT;

/// The observed machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Kernel release, as `uname -r`; empty for a simulated machine.
    pub kernel: String,
    /// Page-table levels, and the levels whose ACCESSED bits are proven to work; `None` if the
    /// instrument uses none.
    pub radix: Option<Radix>,
    /// Memory nodes of each tier, fastest tier first; empty if unknown.
    pub tiers: Vec<Vec<Node>>,
}

/// What recordings of tierscope have, and recordings of other tools may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// The ages of regions.
    Ages,
    /// Sampling and aggregation intervals: [`Meta::sampling`] and [`Meta::window`] are estimates.
    Intervals,
    /// The mappings of the target.
    Mappings,
    /// The wall-clock time of the start: [`Meta::started`] only identifies the recording.
    Start,
}

impl Fact {
    /// Every fact.
    pub const ALL: [Self; 4] = [Self::Ages, Self::Intervals, Self::Mappings, Self::Start];

    /// Name in the metadata and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ages => "ages",
            Self::Intervals => "intervals",
            Self::Mappings => "mappings",
            Self::Start => "start",
        }
    }
}

/// Description of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Name of the instrument, as on the command line.
    pub instrument: String,
    /// Settings of the instrument, by name.
    pub settings: BTreeMap<String, String>,
    /// Sampling interval.
    pub sampling: Duration,
    /// Aggregation interval.
    pub window: Duration,
    /// The target, for display: `redis-server[4711]`.
    pub target: String,
    /// The observed machine.
    pub machine: Machine,
    /// The command line that made the recording.
    pub command: String,
    /// Wall-clock time of the recording's start. Also identifies the recording: every table carries
    /// it.
    pub started: SystemTime,
    /// Version of tierscope that made the recording.
    pub version: String,
    /// Further annotations (`tlb-flush-period`), by name.
    pub annotations: BTreeMap<String, String>,
    /// Other readers that cleared ACCESSED bits on the machine at the start.
    pub other_readers: BTreeSet<String>,
    /// What the recording lacks, because the file that it was imported from did.
    pub absent: BTreeSet<Fact>,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            instrument: String::new(),
            settings: BTreeMap::new(),
            sampling: Duration::from_millis(5),
            window: Duration::from_millis(200),
            target: String::new(),
            machine: Machine::default(),
            command: String::new(),
            started: UNIX_EPOCH,
            version: env!("CARGO_PKG_VERSION").into(),
            annotations: BTreeMap::new(),
            other_readers: BTreeSet::new(),
            absent: BTreeSet::new(),
        }
    }
}

const SETTING: &str = "tierscope.setting.";
const TIER: &str = "tierscope.tier.";
const ANNOTATION: &str = "tierscope.annotation.";
const OTHER_READERS: &str = "tierscope.other_readers";
const ABSENT: &str = "tierscope.absent";
/// The annotation that holds a policy's line; those of its settings follow it with a dot.
const POLICY: &str = "policy";

impl Meta {
    /// Adds the settings that an instrument reports.
    #[must_use]
    pub fn with_settings(mut self, settings: &[Setting]) -> Self {
        self.settings.extend(settings.iter().map(|s| (s.name.to_string(), s.value.clone())));
        self
    }

    /// Whether the recording has a fact.
    #[must_use]
    pub fn has(&self, fact: Fact) -> bool {
        !self.absent.contains(&fact)
    }

    /// Encodes it as schema metadata: keys that begin with `tierscope.`.
    #[must_use]
    pub fn to_map(&self) -> HashMap<String, String> {
        let mut map = HashMap::from([
            ("tierscope.format".into(), FORMAT.to_string()),
            ("tierscope.version".into(), self.version.clone()),
            ("tierscope.instrument".into(), self.instrument.clone()),
            ("tierscope.sampling_ns".into(), self.sampling.as_nanos().to_string()),
            ("tierscope.window_ns".into(), self.window.as_nanos().to_string()),
            ("tierscope.target".into(), self.target.clone()),
            ("tierscope.kernel".into(), self.machine.kernel.clone()),
            ("tierscope.command".into(), self.command.clone()),
            ("tierscope.started_unix_ns".into(), self.started_nanos().to_string()),
        ]);
        if let Some(radix) = self.machine.radix {
            map.insert("tierscope.page_table_levels".into(), radix.levels.to_string());
            map.insert("tierscope.proven_levels".into(), list_levels(radix.proven));
        }
        if !self.other_readers.is_empty() {
            let readers: Vec<_> = self.other_readers.iter().map(String::as_str).collect();
            map.insert(OTHER_READERS.into(), readers.join(" "));
        }
        if !self.absent.is_empty() {
            let absent: Vec<_> = self.absent.iter().map(|fact| fact.name()).collect();
            map.insert(ABSENT.into(), absent.join(" "));
        }
        for (tier, nodes) in self.machine.tiers.iter().enumerate() {
            let nodes: Vec<_> = nodes.iter().map(|node| node.0).collect();
            map.insert(format!("{TIER}{tier}"), join(&nodes));
        }
        let named = |prefix: &'static str, values: &BTreeMap<String, String>| {
            let entry = move |(k, v): (&String, &String)| (format!("{prefix}{k}"), v.clone());
            values.iter().map(entry).collect::<Vec<_>>()
        };
        map.extend(named(SETTING, &self.settings));
        map.extend(named(ANNOTATION, &self.annotations));
        map
    }

    /// Decodes it from schema metadata. All texts are [plain](names::plain).
    ///
    /// # Errors
    /// The missing or malformed key.
    pub fn from_map(map: &HashMap<String, String>) -> Result<Self, &'static str> {
        let plain = |text: &str| names::plain(text).into_owned();
        let named = |prefix: &str| {
            let entry =
                |(k, v): (&String, &String)| Some((plain(k.strip_prefix(prefix)?), plain(v)));
            map.iter().filter_map(entry).collect::<BTreeMap<String, String>>()
        };
        let text = |key| map.get(key).map(|value| plain(value)).unwrap_or_default();
        let started = Duration::from_nanos(number(map, "tierscope.started_unix_ns")?);
        Ok(Self {
            instrument: names::kebab(&text("tierscope.instrument")),
            settings: named(SETTING).into_iter().map(|(k, v)| (names::kebab(&k), v)).collect(),
            sampling: Duration::from_nanos(number(map, "tierscope.sampling_ns")?),
            window: Duration::from_nanos(number(map, "tierscope.window_ns")?),
            target: text("tierscope.target"),
            machine: Machine {
                kernel: text("tierscope.kernel"),
                radix: radix_of(map)?,
                tiers: tiers_of(map)?,
            },
            command: text("tierscope.command"),
            started: UNIX_EPOCH + started,
            version: text("tierscope.version"),
            annotations: named(ANNOTATION).into_iter().map(renamed).collect(),
            other_readers: {
                let readers = text(OTHER_READERS);
                readers.split_ascii_whitespace().map(str::to_owned).collect()
            },
            absent: {
                let absent = text(ABSENT);
                let is_absent = |fact: &Fact| absent.split(' ').any(|name| name == fact.name());
                Fact::ALL.into_iter().filter(is_absent).collect()
            },
        })
    }

    /// Start of the recording in nanoseconds of Unix time.
    pub(crate) fn started_nanos(&self) -> u64 {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An annotation with the names of policies and of their settings in kebab-case.
fn renamed((name, value): (String, String)) -> (String, String) {
    match name.strip_prefix(POLICY) {
        Some("") => (name, names::kebab_line(&value)),
        Some(setting) if setting.starts_with('.') => (names::kebab(&name), value),
        _ => (name, value),
    }
}

fn number<T: FromStr>(map: &HashMap<String, String>, key: &'static str) -> Result<T, &'static str> {
    map.get(key).and_then(|text| text.parse().ok()).ok_or(key)
}

fn radix_of(map: &HashMap<String, String>) -> Result<Option<Radix>, &'static str> {
    if !map.contains_key("tierscope.page_table_levels") {
        return Ok(None);
    }
    let levels = number(map, "tierscope.page_table_levels")?;
    let key = "tierscope.proven_levels";
    let text = map.get(key).ok_or(key)?;
    let mut bits = 0u8;
    for level in text.split(' ').filter(|word| !word.is_empty()) {
        let level: u8 = level.parse().ok().filter(|n| (1..=5).contains(n)).ok_or(key)?;
        bits |= 1 << (level - 1);
    }
    Ok(Some(Radix { levels, proven: LevelSet::from_bits(bits) }))
}

/// Nodes of the tiers from 0 on, up to the first missing tier.
fn tiers_of(map: &HashMap<String, String>) -> Result<Vec<Vec<Node>>, &'static str> {
    let node = |word: &str| word.parse().map(Node).map_err(|_| "tierscope.tier");
    let nodes = |text: &String| text.split_ascii_whitespace().map(node).collect();
    (0..).map_while(|tier: usize| map.get(&format!("{TIER}{tier}"))).map(nodes).collect()
}

/// Formats levels as `1 2 3`.
fn list_levels(levels: LevelSet) -> String {
    let mut numbers: Vec<_> = levels.highest_first().map(|level| level.number()).collect();
    numbers.reverse();
    join(&numbers)
}

fn join(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read_back_from_the_schema() {
        let meta = Meta {
            instrument: "telescope".into(),
            settings: BTreeMap::from([("variant".into(), "bounded".into())]),
            machine: Machine {
                kernel: "6.12.0".into(),
                radix: Some(Radix::X86_64),
                tiers: vec![vec![Node(0), Node(2)], vec![], vec![Node(1)]],
            },
            started: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789),
            annotations: BTreeMap::from([("tlb-flush-period".into(), "20ms".into())]),
            other_readers: BTreeSet::from(["damon-stat".into(), "kdamond".into()]),
            absent: BTreeSet::from([Fact::Ages, Fact::Start]),
            ..Meta::default()
        };
        assert_eq!(Meta::from_map(&meta.to_map()), Ok(meta));
    }

    #[test]
    fn old_names_of_instruments_and_policies_are_still_read() {
        let meta = |instrument: &str, setting: &str, policy: &str, of_policy: &str| Meta {
            instrument: instrument.into(),
            settings: BTreeMap::from([(setting.into(), "a_b".into())]),
            annotations: BTreeMap::from([
                ("policy".into(), policy.into()),
                (of_policy.into(), "c_d".into()),
                ("my_note".into(), "e_f".into()),
            ]),
            ..Meta::default()
        };
        let old =
            meta("hint_fault", "min_regions", "multi_clock:dirty_weight=2", "policy.dirty_weight");
        let new =
            meta("hint-fault", "min-regions", "multi-clock:dirty-weight=2", "policy.dirty-weight");
        assert_eq!(Meta::from_map(&old.to_map()), Ok(new));
    }

    #[test]
    fn the_invalid_key_is_named() {
        let mut map = Meta::default().to_map();
        map.insert("tierscope.window_ns".into(), "soon".into());
        assert_eq!(Meta::from_map(&map), Err("tierscope.window_ns"));
        let mut map = Meta::default().to_map();
        map.insert("tierscope.tier.0".into(), "0 fast".into());
        assert_eq!(Meta::from_map(&map), Err("tierscope.tier"));
    }
}
