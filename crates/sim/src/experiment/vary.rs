//! Experiments with changed settings: for options of the user, and for sensitivity runs over
//! uncertain numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tierscope_core::names::{kebab, same};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_hw::config::Ranges;
use toml::{Table, Value};

use super::{Experiment, File, ReadWorkload, read};

/// A key and its new value: `costs.access_bits.probe_ns` and `hardware.tiers.optane.read_ns` change
/// numbers of costs and hardware; every other key is a key of the file, like
/// `simulation.exact.tick`. List elements are selected by number or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Names from the outermost table in, separated by dots.
    pub key: String,
    /// New value in TOML; a value that is not valid TOML is taken as a string.
    pub value: String,
}

/// A number that is uncertain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncertain {
    /// The number's key.
    pub key: String,
    /// The number's nominal value.
    pub value: u64,
    /// The number's least and greatest possible value.
    pub range: [u64; 2],
}

impl Experiment {
    /// [`Experiment::parse`] with changes. Errors in a changed file refer to the lines of the file
    /// as it would be rewritten with the changes.
    ///
    /// # Errors
    /// See [`Experiment::parse`]; or an invalid change.
    pub fn changed(
        name: &str,
        text: &str,
        changes: &[Change],
        workload: ReadWorkload,
    ) -> Result<Self> {
        let inner = |change: &&Change| part_of(&change.key).is_some();
        let (parts, own): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(inner);
        let mut text = text.to_owned();
        if !own.is_empty() {
            let mut table: Table = read(name, &text)?;
            for change in own {
                set(&mut table, &change.key, change, true)?;
            }
            text = toml::to_string(&table).unwrap_or(text);
        }
        let mut file: File = read(name, &text)?;
        file.changes = parts.into_iter().cloned().collect();
        Self::part(name, &text, &file, workload)
    }

    /// All uncertain numbers of hardware and costs.
    #[must_use]
    pub fn uncertain(&self) -> Vec<Uncertain> {
        let (hardware, costs) = (&self.setup.hardware, &self.setup.costs);
        let mut found = Vec::new();
        let mut add = |table: &str, numbers: &dyn Fn() -> Table, ranges: &Ranges| {
            let numbers = numbers();
            for (key, range) in ranges {
                let value = numbers.get(key).and_then(Value::as_integer).unwrap_or(0) as u64;
                found.push(Uncertain { key: format!("{table}.{key}"), value, range: *range });
            }
        };
        add("hardware.timing", &|| table_of(&hardware.timing), &hardware.timing.ranges);
        for tier in &hardware.tiers {
            add(&format!("hardware.tiers.{}", tier.name), &|| table_of(tier), &tier.ranges);
        }
        add("costs.access_bits", &|| table_of(&costs.access_bits), &costs.access_bits.ranges);
        add("costs.samples", &|| table_of(&costs.samples), &costs.samples.ranges);
        add("costs.faults", &|| table_of(&costs.faults), &costs.faults.ranges);
        add("costs.calls", &|| table_of(&costs.calls), &costs.calls.ranges);
        add("costs.shootdown", &|| table_of(&costs.shootdown), &costs.shootdown.ranges);
        add("costs.moves", &|| table_of(&costs.moves), &costs.moves.ranges);
        add("costs.swap", &|| table_of(&costs.swap), &costs.swap.ranges);
        add("costs.zswap", &|| table_of(&costs.zswap), &costs.zswap.ranges);
        found
    }
}

fn table_of(numbers: &impl Serialize) -> Table {
    Table::try_from(numbers).unwrap_or_default()
}

/// Splits a key of hardware or costs into that part and the key within it.
fn part_of(key: &str) -> Option<(&'static str, &str)> {
    ["hardware", "costs"]
        .into_iter()
        .find_map(|part| Some((part, key.strip_prefix(part)?.strip_prefix('.')?)))
}

/// The part after the changes that refer to it; `parse` checks it again.
pub(super) fn changed<T: Serialize + DeserializeOwned>(
    what: T,
    part: &str,
    changes: &[Change],
    parse: impl Fn(&str, &str) -> Result<T>,
) -> Result<T> {
    let mine: Vec<(&Change, &str)> = changes
        .iter()
        .filter_map(|change| part_of(&change.key).map(|(of, key)| (change, of, key)))
        .filter(|(_, of, _)| *of == part)
        .map(|(change, _, key)| (change, key))
        .collect();
    if mine.is_empty() {
        return Ok(what);
    }
    let mut table = table_of(&what);
    for (change, key) in mine {
        set(&mut table, key, change, false)?;
    }
    let text = toml::to_string(&table)
        .map_err(|error| Error::new(ErrorKind::Other, format!("changed {part}")).cause(error))?;
    parse(&format!("changed {part}"), &text)
}

/// The key of a table that has this name: files of hardware and costs write `_`, experiments `-`.
fn known_key(table: &Table, name: &str) -> Option<String> {
    let exact = table.contains_key(name).then_some(name);
    exact.or_else(|| table.keys().map(String::as_str).find(|key| same(key, name))).map(Into::into)
}

/// Sets a key of a table, or of tables nested in it. A number that is set is no longer uncertain.
fn set(table: &mut Table, key: &str, change: &Change, may_be_new: bool) -> Result<()> {
    let none = |cause: String| {
        Error::new(ErrorKind::Usage, format!("cannot set {}", change.key))
            .cause(cause)
            .remedy("name a key as in the file, tables and keys with dots between")
    };
    let (last, path) = key.rsplit_once('.').map_or((key, ""), |(path, last)| (last, path));
    let mut here = table;
    for word in path.split('.').filter(|word| !word.is_empty()) {
        let known = known_key(here, word);
        if may_be_new && known.is_none() {
            here.insert(kebab(word), Value::Table(Table::new()));
        }
        let next = here
            .get_mut(&known.unwrap_or_else(|| kebab(word)))
            .ok_or_else(|| none(format!("there is no table `{word}`")))?;
        here = match next {
            Value::Table(table) => table,
            Value::Array(_) => return set_in_list(next, key, word, change, may_be_new),
            _ => return Err(none(format!("`{word}` is no table"))),
        };
    }
    let known = known_key(here, last);
    if !may_be_new && known.is_none() {
        let known: Vec<&str> = here.keys().map(String::as_str).collect();
        return Err(none(format!("there is no key `{last}`, but {}", known.join(", "))));
    }
    // The keys of `area-pages` are names of areas, which a workload may spell with `_`.
    let is_area = path.rsplit('.').next().is_some_and(|table| same(table, "area-pages"));
    let last = known.unwrap_or_else(|| if is_area { last.into() } else { kebab(last) });
    here.insert(last.clone(), value_of(&change.value));
    if let Some(Value::Table(ranges)) = here.get_mut("ranges") {
        ranges.remove(&last);
    }
    Ok(())
}

/// [`set`] for the rest of a key after the name of a list.
fn set_in_list(
    list: &mut Value,
    key: &str,
    name: &str,
    change: &Change,
    may_be_new: bool,
) -> Result<()> {
    let none = |cause: &str| {
        Error::new(ErrorKind::Usage, format!("cannot set {}", change.key))
            .cause(cause)
            .remedy(format!("name one of `{name}` by its number from 0 on, or its name"))
    };
    let rest = key.split_once(&format!("{name}.")).map_or("", |(_, rest)| rest);
    let (item, rest) = rest.split_once('.').ok_or_else(|| none("it is a list"))?;
    let items = list.as_array_mut().ok_or_else(|| none("it is no list"))?;
    let is_it = |(index, value): (usize, &Value)| {
        let named = value.get("name").and_then(Value::as_str) == Some(item);
        named || item.parse() == Ok(index)
    };
    let found = items.iter().enumerate().position(is_it).ok_or_else(|| none("there is none"))?;
    match &mut items[found] {
        Value::Table(table) => set(table, rest, change, may_be_new),
        _ => Err(none("it is a list of plain values")),
    }
}

fn value_of(text: &str) -> Value {
    let parsed: Option<Table> = toml::from_str(&format!("v = {text}")).ok();
    parsed.and_then(|mut table| table.remove("v")).unwrap_or_else(|| Value::String(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::default_workload;

    const TEXT: &str = "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\ntime = \"1s\"\n\
                        [[process]]\nworkload = \"contiguous:space=1GiB,hot=64MiB\"\n";

    fn with(changes: &[(&str, &str)]) -> Result<Experiment> {
        let change =
            |(key, value): &(&str, &str)| Change { key: (*key).into(), value: (*value).into() };
        let changes: Vec<Change> = changes.iter().map(change).collect();
        Experiment::changed("e", TEXT, &changes, default_workload)
    }

    #[test]
    fn keys_reach_into_every_part() {
        let changed = with(&[
            ("simulation.exact.tick", "1ms"),
            ("process.0.threads", "2"),
            ("hardware.tiers.optane.read_ns", "170"),
            ("hardware.timing.llc_cycles", "999"),
            ("costs.access_bits.probe_ns", "100"),
        ]);
        let experiment = changed.unwrap_or_else(|error| panic!("{error}"));
        let setup = &experiment.setup;
        assert_eq!(setup.tick, Some(std::time::Duration::from_millis(1)));
        assert_eq!((setup.cpus, experiment.processes[0].threads), (2, 2));
        assert_eq!(setup.hardware.tiers[1].read_ns, 170);
        assert_eq!(setup.hardware.timing.llc_cycles, 999, "beyond its range, as was asked for");
        assert_eq!(setup.costs.access_bits.probe_ns, 100);
        let of = |key: &str| experiment.uncertain().into_iter().find(|one| one.key == key);
        assert_eq!(of("costs.access_bits.probe_ns"), None, "what is set is certain");
        assert_eq!(of("hardware.tiers.dram.read_ns").map(|one| one.range), Some([81, 101]));
        assert_eq!(of("costs.samples.record_ns").map(|one| one.value), Some(250));
    }

    // Files of hardware and costs spell their keys with `_`, experiments with `-`.
    #[test]
    fn keys_are_read_in_both_spellings() {
        let both = ["warm-up=100ms", "process.0.non-temporal=true", "machine.min-free=1MiB"]
            .into_iter()
            .chain(["simulation.exact.profiler-cpu=1", "costs.access-bits.probe-ns=100"])
            .chain(["hardware.tiers.optane.read-ns=170", "machine.cpus=4"]);
        let changed = |spell: fn(&str) -> String| {
            let keys: Vec<(String, &str)> = both
                .clone()
                .filter_map(|change| change.split_once('='))
                .map(|(key, value)| (spell(key), value))
                .collect();
            let changes: Vec<(&str, &str)> =
                keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
            with(&changes).unwrap_or_else(|error| panic!("{error}"))
        };
        let (new, old) = (changed(kebab), changed(|key| key.replace('-', "_")));
        assert_eq!(format!("{new:?}"), format!("{old:?}"));
        assert_eq!(new.setup.costs.access_bits.probe_ns, 100);
        assert_eq!(new.setup.hardware.tiers[1].read_ns, 170);
        assert_eq!(new.setup.profiler_cpu, Some(1));
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_refused() {
        let refused = |key, value| with(&[(key, value)]).expect_err(key).to_string();
        assert!(refused("costs.access_bits.fee", "1").contains("there is no key `fee`, but"));
        assert!(refused("hardware.tiers.tape.read_ns", "1").contains("there is none"));
        assert!(refused("simulation.exact.tock", "1ms").contains("unknown field `tock`"));
        assert!(refused("hardware.timing.walkers", "0").contains("timing.walkers: it is 0"));
        assert!(refused("machine.cpus", "1000").contains("cannot simulate 1000 cores"));
    }
}
