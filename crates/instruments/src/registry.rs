//! The instruments by name: descriptions, and how to build each from a command line.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Instrument, Need, PAGE_SIZE, Result};

use crate::{damon, hint_fault, nemo, pebs, rates, scan, telescope};

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
    /// The finest unit that it can resolve.
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

    /// Makes it in `variant`, the first one if `None`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there is no such variant, or the settings are invalid.
    pub fn make(&self, variant: Option<&str>, common: &Common) -> Result<Box<dyn Instrument>> {
        let variant = variant.unwrap_or(self.variants[0].name);
        if self.variants.iter().any(|known| known.name == variant) {
            return (self.make)(variant, common);
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
    Entry {
        name: "rates",
        about: "access rates with credible intervals, from times between clear and look",
        needs: &[Need::AccessBits],
        granularity: "2 MiB",
        variants: &[Variant {
            name: "bayes",
            about: "rates by likelihood, within a share of one CPU",
            cost: CostClass::Bounded,
        }],
        removed: &[GONE],
        make: make_rates,
    },
    Entry {
        name: "telescope",
        about: "region sampling that zooms through the levels of the page table (ATC'24)",
        needs: &[Need::AccessBits],
        granularity: "4 KiB",
        variants: &[
            Variant {
                name: "bounded",
                about: "an entry never reaches beyond its region",
                cost: CostClass::Bounded,
            },
            Variant {
                name: "flexible",
                about: "an entry may reach beyond its region by a quarter",
                cost: CostClass::Bounded,
            },
        ],
        removed: &[GONE],
        make: make_telescope,
    },
    Entry {
        name: "damon",
        about: "region sampling at the leaves, as Linux v6.12 does it",
        needs: &[Need::AccessBits],
        granularity: "4 KiB",
        variants: &[
            Variant { name: "fixed", about: "the intervals given", cost: CostClass::Bounded },
            Variant {
                name: "tuned",
                about: "intervals tuned to 4 % of accesses seen, 5 ms to 10 s (v6.15)",
                cost: CostClass::Bounded,
            },
            Variant {
                name: "narrow",
                about: "fixed, with the 32-bit draws of v6.12: blind beyond 4 GiB of a region",
                cost: CostClass::Bounded,
            },
        ],
        removed: &[],
        make: make_damon,
    },
    Entry {
        name: "scan",
        about: "linear scan of all leaves, step by step (kstaled, MGLRU aging)",
        needs: &[Need::AccessBits],
        granularity: "2 MiB",
        variants: &[
            Variant {
                name: "plain",
                about: "every leaf in every pass",
                cost: CostClass::AllMemory,
            },
            Variant {
                name: "pruned",
                about: "skips what lies under upper entries found old",
                cost: CostClass::HotMemory,
            },
        ],
        removed: &[],
        make: make_scan,
    },
    Entry {
        name: "pebs",
        about: "sampled loads and stores in blocks of 2 MiB",
        needs: &[Need::Samples],
        granularity: "2 MiB",
        variants: &[
            Variant {
                name: "moderate",
                about: "5 kHz a core; five samples in a second are hot",
                cost: CostClass::Bounded,
            },
            Variant { name: "aggressive", about: "10 kHz a core", cost: CostClass::Bounded },
            Variant {
                name: "patient",
                about: "10 kHz a core; five samples in 120 s are hot, the article's rule for tiering",
                cost: CostClass::Bounded,
            },
        ],
        removed: &[],
        make: make_pebs,
    },
    Entry {
        name: "hint_fault",
        about: "pages are made to fault, 256 MiB a second (NUMA balancing, memory tiering)",
        needs: &[Need::HintFaults],
        granularity: "2 MiB",
        variants: &[Variant {
            name: "tiering",
            about: "a page that faults within a second of being armed is hot",
            cost: CostClass::AllMemory,
        }],
        removed: &[],
        make: make_hint_fault,
    },
    Entry {
        name: "nemo",
        about: "counters in the memory controller: every request, by block (NEMO)",
        needs: &[Need::Counters],
        granularity: "4 KiB",
        variants: &[
            Variant {
                name: "blocks",
                about: "2 MiB: eight pipelines watch 128 GiB at a time, and sweep over more",
                cost: CostClass::AllMemory,
            },
            Variant {
                name: "pages",
                about: "4 KiB: eight pipelines watch 256 MiB at a time, and sweep over more",
                cost: CostClass::AllMemory,
            },
        ],
        removed: &[],
        make: make_nemo,
    },
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
    let found = entries.clone().find(|entry| entry.name == name);
    found.ok_or_else(|| unknown("instrument", name, entries.map(|entry| entry.name)))
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    Error::new(ErrorKind::Usage, format!("no {kind} is called {name}"))
        .remedy(format!("choose one of {}", known.join(", ")))
}

/// Overrides a default if a value is given.
fn set<T: Clone>(field: &mut T, given: &Option<T>) {
    if let Some(value) = given {
        field.clone_from(value);
    }
}

fn make_telescope(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let variant = match variant {
        "flexible" => telescope::Variant::Flexible,
        _ => telescope::Variant::Bounded,
    };
    let mut config = telescope::Config { variant, ..Default::default() };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.min_regions, &common.min_regions);
    set(&mut config.max_regions, &common.max_regions);
    set(&mut config.seed, &common.seed);
    Ok(Box::new(telescope::Telescope::new(config)?))
}

fn make_rates(_: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = rates::Config::default();
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.seed, &common.seed);
    set(&mut config.cpu, &common.cpu);
    set(&mut config.flush, &common.flush);
    Ok(Box::new(rates::Rates::new(config)?))
}

fn make_damon(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = damon::Config {
        auto_tune: (variant == "tuned").then(damon::Goal::default),
        narrow_draws: variant == "narrow",
        ..Default::default()
    };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    set(&mut config.min_regions, &common.min_regions);
    set(&mut config.max_regions, &common.max_regions);
    set(&mut config.seed, &common.seed);
    Ok(Box::new(damon::Damon::new(config)?))
}

fn make_scan(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = scan::Config { prune: variant == "pruned", ..Default::default() };
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(scan::Scan::new(config)?))
}

fn make_pebs(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = pebs::Config::default();
    if variant != "moderate" {
        config.frequency = 10_000;
    }
    if variant == "patient" {
        config.history = Duration::from_secs(120);
    }
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(pebs::Pebs::new(config)?))
}

fn make_hint_fault(_: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = hint_fault::Config::default();
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(hint_fault::HintFaulting::new(config)?))
}

fn make_nemo(variant: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    let mut config = nemo::Config::default();
    if variant == "pages" {
        config.granularity = PAGE_SIZE;
    }
    set(&mut config.sampling, &common.sampling);
    set(&mut config.window, &common.window);
    set(&mut config.update, &common.update);
    Ok(Box::new(nemo::Nemo::new(config)?))
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
    fn what_is_given_takes_the_place_of_a_default() {
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
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let refused = |name, variant| match make(name, variant, &Common::default()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{name} was made"),
        };
        assert!(refused("demon", None).contains("; choose one of rates, telescope, damon, scan"));
        let error = refused("damon", Some("bounded"));
        assert_eq!(
            error,
            "no variant of damon is called bounded; choose one of fixed, tuned, narrow"
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
