//! Contenders: configurations of instruments in a benchmark, each with a short name.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Need, Result, names};
use tierscope_instruments::registry::{self, Common};

/// An instrument with its variant and settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Name on the command line and in tables.
    pub name: &'static str,
    instrument: &'static str,
    variant: &'static str,
    /// Sampling interval in milliseconds.
    sampling: u64,
    /// Hardware samples per second and core that the machine takes; 0 for none.
    pub samples: u64,
}

const fn looking(
    name: &'static str,
    instrument: &'static str,
    variant: &'static str,
    sampling: u64,
) -> Contender {
    Contender { name, instrument, variant, sampling, samples: 0 }
}

const fn sampled(name: &'static str, variant: &'static str, samples: u64) -> Contender {
    Contender { name, instrument: "pebs", variant, sampling: 5, samples }
}

/// The contenders, in the order of tables.
pub(crate) const ALL: [Contender; 17] = [
    looking("rates", "rates", "bayes", 5),
    looking("bounded", "telescope", "bounded", 5),
    looking("flexible", "telescope", "flexible", 5),
    looking("damon-moderate", "damon", "fixed", 5),
    looking("damon-aggressive", "damon", "fixed", 1),
    looking("damon-levels", "damon", "levels", 5),
    sampled("pebs-moderate", "moderate", 5_000),
    sampled("pebs-aggressive", "aggressive", 10_000),
    sampled("pebs-patient", "patient", 10_000),
    looking("scan", "scan", "plain", 5),
    looking("scan-pruned", "scan", "pruned", 5),
    looking("hint-fault", "hint-fault", "tiering", 5),
    looking("nemo", "nemo", "blocks", 5),
    looking("nemo-pages", "nemo", "pages", 5),
    looking("chmu", "chmu", "epochs", 5),
    looking("chmu-always-on", "chmu", "always-on", 5),
    looking("chmu-pages", "chmu", "pages", 5),
];

/// Default contenders: those for commonly available hardware. Devices in the memory controller run
/// only on request.
pub(crate) fn usual() -> impl Iterator<Item = Contender> {
    let devices = [Need::Counters, Need::HotLists];
    ALL.into_iter().filter(move |contender| !devices.iter().any(|need| contender.needs(*need)))
}

/// Error for a name that is neither a contender's nor among `more`.
pub(crate) fn unknown(kind: &str, name: &str, more: &[&str]) -> Error {
    let error = Error::new(ErrorKind::Usage, format!("no {kind} is called {name}"));
    if name == registry::GONE {
        return error.cause("it was removed").remedy("use rates");
    }
    let names = more.iter().copied().chain(ALL.iter().map(|known| known.name));
    error.remedy(format!("choose from {}", names.collect::<Vec<_>>().join(", ")))
}

impl Contender {
    /// All contenders, in the order of tables. "Moderate" and "aggressive" are the article's: DAMON
    /// probes every 5 or 1 ms, PEBS samples at 5 or 10 kHz. "Levels" is Telescope as its authors
    /// posted it.
    pub const ALL: [Contender; 17] = ALL;

    /// Finds a contender by name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], with the known names.
    pub fn named(name: &str) -> Result<Contender> {
        let known = ALL.into_iter().find(|known| names::same(known.name, name));
        known.ok_or_else(|| unknown("contender", name, &[]))
    }

    /// Whether its instrument works on this kind of evidence.
    pub(crate) fn needs(&self, need: Need) -> bool {
        registry::by_name(self.instrument).is_ok_and(|entry| entry.needs(need))
    }

    /// Instrument, variant and settings.
    pub(crate) fn settings(&self) -> (&'static str, &'static str, Common) {
        let sampling = Some(Duration::from_millis(self.sampling));
        (self.instrument, self.variant, Common { sampling, ..Common::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_can_be_made_and_every_variant_has_one() {
        for contender in ALL {
            let (instrument, variant, common) = contender.settings();
            let made = registry::make(instrument, Some(variant), &common);
            assert!(made.is_ok(), "{}", contender.name);
            assert_eq!(Contender::named(contender.name), Ok(contender));
        }
        let error = Contender::named("demon").unwrap_err().to_string();
        assert!(error.contains("choose from rates, bounded"), "{error}");
        let error = Contender::named(registry::GONE).unwrap_err().to_string();
        assert_eq!(error, "no contender is called guided: it was removed; use rates");
    }
}
