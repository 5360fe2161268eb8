//! The instruments by name: descriptions, and how to build each from a command line.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Instrument, Need, Result, names};

use crate::{chmu, damon, hint_fault, nemo, pebs, rates, scan, telescope};

/// Cost of probing, in orders of magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostClass {
    /// Bounded by the number of regions, whatever the size of memory.
    Bounded,
    /// Proportional to the hot memory.
    HotMemory,
    /// Proportional to the mapped memory; where the rate is capped, a pass takes longer.
    AllMemory,
}

/// A variant of an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name of the variant, as on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Cost class of the variant.
    pub cost: CostClass,
}

/// A list entry for an instrument. The first variant is the default.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name of the instrument, as on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// The evidence that it works on: ports that a machine must have. The first one reports
    /// accesses.
    pub needs: &'static [Need],
    /// The unit that it resolves: pages, or regions, whose pages are taken to be alike.
    pub granularity: &'static str,
    /// Its variants; at least one.
    pub variants: &'static [Variant],
    /// Names of former variants: services and configurations may still name them.
    pub removed: &'static [&'static str],
    /// Its constructor.
    pub make: Make,
}

/// Constructor of an instrument, by the name of a variant.
pub type Make = fn(&str, &Common) -> Result<Box<dyn Instrument>>;

impl Entry {
    /// Whether it works on this kind of evidence.
    #[must_use]
    pub fn needs(&self, need: Need) -> bool {
        self.needs.contains(&need)
    }

    /// The variant with this name.
    #[must_use]
    pub fn variant(&self, name: &str) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| names::same(variant.name, name))
    }

    /// Makes it in `variant`, the first one if `None`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no such variant, or the settings are invalid.
    pub fn make(&self, variant: Option<&str>, common: &Common) -> Result<Box<dyn Instrument>> {
        let variant = variant.unwrap_or(self.variants[0].name);
        if let Some(known) = self.variant(variant) {
            return (self.make)(known.name, common);
        }
        let names = self.variants.iter().map(|known| known.name);
        let error = unknown(&format!("variant of {}", self.name), variant, names);
        Err(match self.removed.contains(&variant) {
            true => error.cause("it was removed").remedy(INSTEAD),
            false => error,
        })
    }
}

/// Settings that several instruments share. `None` keeps an instrument's default; an instrument
/// without a setting ignores it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// Sampling interval.
    pub sampling: Option<Duration>,
    /// Time between two snapshots.
    pub window: Option<Duration>,
    /// Time after which mappings are read again.
    pub update: Option<Duration>,
    /// Minimum number of regions.
    pub min_regions: Option<usize>,
    /// Maximum number of regions.
    pub max_regions: Option<usize>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
    /// Share of one CPU for probing and for the instrument's own arithmetic.
    pub cpu: Option<f64>,
    /// Whether the instrument may flush the target's translations.
    pub flush: Option<bool>,
}

/// A former variant of Telescope, replaced by `rates`: services and configurations may still name
/// it.
pub const GONE: &str = "guided";
/// The remedy for a configuration that names [`GONE`].
pub const INSTEAD: &str = "use instrument rates, without a variant";

static ENTRIES: &[Entry] = &[
    rates::ENTRY,
    telescope::ENTRY,
    damon::ENTRY,
    scan::ENTRY,
    pebs::ENTRY,
    hint_fault::ENTRY,
    nemo::ENTRY,
    chmu::ENTRY,
];

/// All instruments, in display order.
#[must_use]
pub fn list() -> &'static [Entry] {
    ENTRIES
}

/// Makes the instrument `name` in `variant` (the first one if `None`) with these settings.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is no such instrument or variant, or the settings are invalid.
pub fn make(name: &str, variant: Option<&str>, common: &Common) -> Result<Box<dyn Instrument>> {
    by_name(name)?.make(variant, common)
}

/// Finds an instrument by name.
///
/// # Errors
/// [`ErrorKind::Usage`], with the known names.
pub fn by_name(name: &str) -> Result<&'static Entry> {
    find(list().iter(), name)
}

/// Finds an instrument by name among `entries`.
///
/// # Errors
/// [`ErrorKind::Usage`], with the known names.
pub fn find(
    entries: impl Iterator<Item = &'static Entry> + Clone,
    name: &str,
) -> Result<&'static Entry> {
    let found = entries.clone().find(|entry| names::same(entry.name, name));
    found.ok_or_else(|| unknown("instrument", name, entries.map(|entry| entry.name)))
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    Error::new(ErrorKind::Usage, format!("no {kind} is called {name}"))
        .remedy(format!("choose one of {}", known.join(", ")))
}

/// Overrides a default if a value is given.
pub(crate) fn set<T: Clone>(field: &mut T, given: &Option<T>) {
    if let Some(value) = given {
        field.clone_from(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(instrument: &dyn Instrument, name: &str) -> Option<String> {
        instrument.settings().into_iter().find(|s| s.name == name).map(|s| s.value)
    }

    #[test]
    fn every_name_and_variant_in_the_list_can_be_made() {
        for entry in list() {
            for variant in entry.variants {
                let made = make(entry.name, Some(variant.name), &Common::default()).unwrap();
                assert_eq!(made.name(), entry.name);
            }
        }
    }

    #[test]
    fn old_names_are_still_read() {
        for entry in list() {
            for variant in entry.variants {
                let old = |name: &str| name.replace('-', "_");
                let made =
                    make(&old(entry.name), Some(&old(variant.name)), &Common::default()).unwrap();
                assert_eq!(made.name(), entry.name);
            }
        }
    }

    #[test]
    fn variants_differ_in_their_settings() {
        for entry in list() {
            let settings = |variant: &Variant| {
                make(entry.name, Some(variant.name), &Common::default()).unwrap().settings()
            };
            for (i, one) in entry.variants.iter().enumerate() {
                for other in &entry.variants[i + 1..] {
                    assert_ne!(settings(one), settings(other), "{} and {}", one.name, other.name);
                }
            }
        }
    }

    #[test]
    fn given_settings_override_defaults() {
        let window = Some(Duration::from_millis(400));
        for entry in list() {
            let common = Common { window, ..Default::default() };
            let made = make(entry.name, None, &common).unwrap();
            assert_eq!(value(&*made, "window"), Some("400ms".into()), "{}", entry.name);
            if entry.needs(Need::AccessBits) {
                assert_eq!(value(&*made, "sampling"), Some("5ms".into()), "{}", entry.name);
            }
        }
    }

    #[test]
    fn an_error_on_an_unknown_name_lists_the_known_ones() {
        let refused = |name, variant| match make(name, variant, &Common::default()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{name} was made"),
        };
        assert!(refused("demon", None).contains("; choose one of rates, telescope, damon, scan"));
        let error = refused("damon", Some("bounded"));
        assert_eq!(
            error,
            "no variant of damon is called bounded; choose one of fixed, tuned, narrow, levels"
        );
        for name in ["telescope", "rates"] {
            assert_eq!(
                refused(name, Some(GONE)),
                format!("no variant of {name} is called guided: it was removed; {INSTEAD}")
            );
        }
    }

    #[test]
    fn settings_are_checked() {
        let none = Some(Duration::ZERO);
        let common = Common { sampling: none, window: none, ..Default::default() };
        for entry in list() {
            assert!(make(entry.name, None, &common).is_err(), "{}", entry.name);
        }
    }
}
