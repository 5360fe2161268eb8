//! Registry of policies by name: what each tracks and needs, and a constructor from a line of text.
//!
//! A line is `NAME` or `NAME:key=value,…`. The columns of policy listings (MULTI-CLOCK's table I)
//! are taken from here.

pub use tierscope_core::Need;
use tierscope_core::{Error, ErrorKind, Policy, Result, names};

use crate::settings::{Settings, described};
use crate::{
    amp, autotiering, cold_regions, hemem, hemem_nemo, hot_region, memtis, mglru, mglru_linear,
    mglru_telescope, multi_clock, nimble, nimble_selection, static_tiering, thermostat, tpp,
};

/// Sampling rate of accesses that a policy requires, by its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// One in this many loads, and one in this many stores, per core.
    Every(u64),
    /// As many samples as can be taken with this share of a CPU's time.
    Share(f64),
}

/// Description of a setting, for listings and help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name of the setting.
    pub name: &'static str,
    /// Meaning of the setting.
    pub about: &'static str,
    /// Default value of the setting, as text.
    pub default: String,
}

/// A policy's description, as in listings, with its constructor.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name of the policy.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Paper or source code that it follows.
    pub source: &'static str,
    /// How the policy detects accesses.
    pub tracks: &'static str,
    /// Unit of migration.
    pub granularity: &'static str,
    /// Criterion of promotion.
    pub promotes: &'static str,
    /// Criterion of demotion.
    pub demotes: &'static str,
    /// Cost of detecting accesses.
    pub cost: &'static str,
    /// Bytes of state per page of 4 KiB; `None` if the state does not grow with the number of
    /// pages.
    pub page_bytes: Option<usize>,
    /// Evidence without which the policy does nothing.
    pub needs: &'static [Need],
    /// Optional evidence, used if available.
    pub uses: &'static [Need],
    /// Required sampling rate; `None` for a policy that needs no samples.
    pub sampling: Option<Sampling>,
    /// It reclaims memory and migrates nothing: one tier suffices.
    pub reclaims: bool,
    /// Constructor, from a line of settings.
    pub(crate) make: fn(&str) -> Result<Box<dyn Policy>>,
    /// The settings with their defaults.
    pub(crate) keys: fn() -> Vec<Key>,
}

impl Entry {
    /// The policy, with settings given as `key=value,…` or empty.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an unknown key, an invalid value, or inconsistent settings.
    pub fn make(&self, settings: &str) -> Result<Box<dyn Policy>> {
        (self.make)(settings)
    }

    /// The policy's settings.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        (self.keys)()
    }

    /// Needed evidence that is not among `there`.
    pub fn lacks<'a>(&'a self, there: &'a [Need]) -> impl Iterator<Item = Need> + 'a {
        self.needs.iter().copied().filter(|need| !there.contains(need))
    }
}

/// The function `Entry::make` of a policy, from its default configuration and its constructor.
macro_rules! made {
    ($name:literal, $config:expr, $make:expr) => {
        (|line: &str| {
            let mut config = $config;
            $crate::settings::read($name, line, &mut config)?;
            Ok(Box::new($make(config)) as Box<dyn tierscope_core::Policy>)
        }) as fn(&str) -> tierscope_core::Result<Box<dyn tierscope_core::Policy>>
    };
}
pub(crate) use made;

/// The settings of a policy with this configuration.
pub(crate) fn keys_of(settings: &mut dyn Settings) -> Vec<Key> {
    let key = |(name, about, default)| Key { name, about, default };
    described(settings).into_iter().map(key).collect()
}

/// A policy without settings.
pub(crate) struct NoSettings;

impl Settings for NoSettings {
    fn visit(&mut self, _: &mut dyn crate::settings::Visit) {}
}

pub(crate) const BITS_OF_LISTS: &str = "1024 entries of each list a second";
pub(crate) const BY_ACCESSED: &str = "ACCESSED bits";
pub(crate) const BY_FAULTS: &str = "hint faults";
pub(crate) const BY_COUNTERS: &str = "counters in the memory controller";
pub(crate) const BY_COUNTERS_AND_SAMPLES: &str = "counters of slow memory, samples of fast memory";

static ENTRIES: &[Entry] = &[
    static_tiering::ENTRY,
    multi_clock::ENTRY,
    nimble::ENTRY,
    nimble_selection::ENTRY,
    autotiering::ENTRY_CPM,
    autotiering::ENTRY_OPM,
    tpp::ENTRY_AUTONUMA,
    tpp::ENTRY_TPP,
    thermostat::ENTRY,
    hemem::ENTRY,
    hemem::ENTRY_FIRST,
    hemem_nemo::ENTRY,
    hemem_nemo::ENTRY_ALL,
    memtis::ENTRY,
    memtis::nemo::ENTRY,
    memtis::nemo::ENTRY_ALL,
    amp::ENTRY_LRU,
    amp::ENTRY_LFU,
    amp::ENTRY_RANDOM,
    hot_region::ENTRY,
    mglru::ENTRY,
    mglru_linear::ENTRY,
    mglru_telescope::ENTRY,
    cold_regions::ENTRY,
];

/// All policies, in the order of listings.
#[must_use]
pub fn all() -> &'static [Entry] {
    ENTRIES
}

/// The policy with this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| names::same(entry.name, name))
}

/// Makes a policy from a line, `NAME` or `NAME:key=value,…`.
///
/// # Errors
/// [`ErrorKind::Usage`] if no policy has the name, or as for [`Entry::make`].
pub fn make(line: &str) -> Result<Box<dyn Policy>> {
    let (name, settings) = line.split_once(':').unwrap_or((line, ""));
    let Some(entry) = by_name(name) else {
        let known: Vec<&str> = all().iter().map(|entry| entry.name).collect();
        return Err(Error::new(ErrorKind::Usage, format!("no policy is called `{name}`"))
            .remedy(format!("choose one of {}", known.join(", "))));
    };
    entry.make(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_made_and_has_its_name() {
        for entry in all() {
            let made = entry.make("").expect(entry.name);
            assert_eq!(made.name(), entry.name);
            assert_eq!(by_name(entry.name).map(|found| found.name), Some(entry.name));
            assert!(entry.page_bytes.is_none_or(|bytes| bytes <= 16), "{}", entry.name);
        }
    }

    // The settings that a recording stores make the same policy again.
    #[test]
    fn recorded_settings_are_a_line() {
        for entry in all() {
            let settings = entry.make("").expect(entry.name).settings();
            let words: Vec<String> = settings
                .iter()
                .map(|setting| format!("{}={}", setting.name, setting.value))
                .collect();
            let again = make(&format!("{}:{}", entry.name, words.join(","))).expect(entry.name);
            assert_eq!(again.settings(), settings);
            let keys = entry.keys();
            assert_eq!(keys.len(), settings.len(), "{}", entry.name);
            for (key, setting) in keys.iter().zip(settings) {
                assert_eq!((key.name, &key.default), (setting.name, &setting.value));
                assert!(!key.about.is_empty(), "{}", key.name);
            }
        }
    }

    #[test]
    fn old_names_are_still_read() {
        for entry in all() {
            let keys = entry.keys();
            let words: Vec<String> =
                keys.iter().map(|key| format!("{}={}", key.name, key.default)).collect();
            let line = format!("{}:{}", entry.name, words.join(",")).replace('-', "_");
            let made = make(&line).expect(&line);
            assert_eq!(made.name(), entry.name);
        }
        let settings = |line: &str| make(line).expect(line).settings();
        assert_eq!(settings("multi_clock:dirty_weight=3"), settings("multi-clock:dirty-weight=3"));
        assert!(refused("multi-clock:dirty_weight=3,dirty-weight=3").contains("given twice"));
    }

    fn refused(line: &str) -> String {
        match make(line) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{line} was made"),
        }
    }

    #[test]
    fn errors_list_the_known_names() {
        assert!(refused("multiclock").contains("; choose one of static, multi-clock, nimble"));
        let error = refused("multi-clock:scan=1024,speed=3");
        assert!(
            error.contains("column 23") && error.contains("choose from interval, scan"),
            "{error}"
        );
        assert!(refused("static:x=1").contains("it has no settings"));
        assert!(refused("hot-region:share=2").contains("`share` is a share"));
        assert!(refused("multi-clock:interval=0s").contains("must be above zero"));
    }

    #[test]
    fn policies_on_samples_have_a_rate() {
        for entry in all() {
            let needs = entry.needs.contains(&Need::Samples);
            assert_eq!(entry.sampling.is_some(), needs, "{}", entry.name);
        }
    }

    #[test]
    fn missing_evidence_is_listed() {
        let entry = by_name("tpp").expect("it is there");
        let lacks: Vec<String> =
            entry.lacks(&[Need::AccessBits]).map(|need| need.to_string()).collect();
        assert_eq!(lacks, ["hint faults"]);
    }
}
