//! The description of a workload. It drives a stream of accesses ([`crate::stream`]), access
//! densities over ranges ([`crate::density`]) and a real program (`toucher`), and it defines which
//! memory is hot.

use std::time::Duration;
use tierscope_core::units;

/// Default of [`Workload::burst`].
pub const DEFAULT_BURST: u32 = 64;
/// Default of [`Phase::hot_share`].
pub const DEFAULT_HOT_SHARE: f64 = 0.9;
/// Largest workload: the user address space under 5-level paging.
pub const MAX_BYTES: u64 = 1 << 56;

/// Highest rate in accesses a second: one per picosecond.
const MAX_RATE: u64 = 1_000_000_000_000;

/// Areas of memory, and phases of accesses to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name for messages.
    pub name: String,
    /// Seed of everything that the description itself draws (the positions of scattered ranges);
    /// streams have a seed of their own.
    pub seed: u64,
    /// Accesses in a row to one pattern before the next is picked.
    pub burst: u32,
    /// The memory areas.
    pub areas: Vec<Area>,
    /// The phases, in order; the run may repeat them.
    pub phases: Vec<Phase>,
}

/// A contiguous area of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Unique name of the area.
    pub name: String,
    /// Size of the area in bytes.
    pub bytes: u64,
    /// Path of a file to fill the area from, up to the file's length.
    pub content: Option<String>,
}

/// A period of time with constant access patterns.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name for messages.
    pub name: String,
    /// Length of the phase.
    pub duration: Duration,
    /// Accesses a second over all threads; `None` is unlimited.
    pub rate: Option<u64>,
    /// Share of the accesses that the hot ranges take (0..1]; see [`crate::density`].
    pub hot_share: f64,
    /// At least one; each burst picks one of them by weight.
    pub accesses: Vec<Access>,
}

/// An access pattern on a part of an area.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Index into [`Workload::areas`].
    pub area: usize,
    /// Offset of the part in the area, in bytes.
    pub from: u64,
    /// Size of the part in bytes.
    pub bytes: u64,
    /// Order in which the part is accessed.
    pub pattern: Pattern,
    /// Weight of the access among those of the phase.
    pub weight: f64,
    /// Whether the accesses read, write, or do both.
    pub mix: Mix,
    /// Each access depends on the data of the one before, as in a list: they do not overlap.
    pub chase: bool,
    /// Declares the part hot or cold; `None`: the phase's hot share decides.
    pub hot: Option<bool>,
}

/// Whether accesses read, write, or do both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Each access is a write with this probability, else a read.
    Writes(f64),
    /// Each access is a read of a byte followed by a write.
    Update,
    /// Each access is a non-temporal store: it bypasses the caches.
    NonTemporal,
}

/// Which byte is accessed next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Fixed stride: it is added before the first access, and wraps to the beginning at the end. A
    /// stride of a cache line scans; one of a page or more touches a line per page.
    Sequential {
        /// Bytes from one access to the next.
        stride: u64,
    },
    /// Uniform over all bytes.
    Random,
    /// masim's random accesses: offsets from 10^6 precomputed 31-bit values, modulo the size. So at
    /// most 10^6 pages are touched, and none above 2 GiB.
    Table,
    /// Zipf's law: item `r` (from 0) has a probability proportional to `1 / (r + 1)^theta`.
    Zipf {
        /// Bytes of an item.
        item: u64,
        /// Skew; YCSB's is 0.99. At least 0, and not 1.
        theta: f64,
        /// As YCSB's ScrambledZipfianGenerator: the rank is drawn from 10^10 ranks, and its FNV
        /// hash selects the item.
        scrambled: bool,
    },
    /// Items by a normal distribution, truncated at the ends of the part.
    Gaussian {
        /// Bytes of an item.
        item: u64,
        /// Mean, in items.
        mean: f64,
        /// Standard deviation, in items.
        sd: f64,
    },
    /// Uniform over some ranges. The ranges lie at random distinct multiples of their size.
    Scattered {
        /// Number of ranges.
        ranges: u64,
        /// Bytes of each range.
        range: u64,
    },
    /// Uniform over stripes: the first `range` bytes of each `apart` bytes, from the beginning of
    /// the part; a remainder shorter than `apart` is left out.
    Striped {
        /// Bytes of a stripe.
        range: u64,
        /// Distance between the beginnings of two stripes, in bytes.
        apart: u64,
    },
    /// Uniform over a window that moves on, and restarts at the beginning instead of passing the
    /// end.
    Drift {
        /// Bytes of the window.
        window: u64,
        /// Bytes that the window moves by.
        step: u64,
        /// Time between two moves.
        every: Duration,
    },
}

impl Workload {
    /// Bytes of all areas.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.areas.iter().map(|area| area.bytes).fold(0, u64::saturating_add)
    }

    /// Time of one pass through all phases.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|phase| phase.duration).sum()
    }

    /// Whether any stores of the workload are non-temporal.
    #[must_use]
    pub fn is_non_temporal(&self) -> bool {
        let mut accesses = self.phases.iter().flat_map(|phase| &phase.accesses);
        accesses.any(|access| access.mix == Mix::NonTemporal)
    }

    /// Checks that the description is consistent.
    ///
    /// # Errors
    /// The first fault and its location.
    pub fn check(&self) -> Result<(), Fault> {
        let whole = |what: &str| Err(Fault { place: Location::Whole, what: what.into() });
        if self.areas.is_empty() {
            return whole("there is no area");
        }
        if self.phases.is_empty() {
            return whole("there is no phase");
        }
        if self.burst == 0 {
            return whole("a burst has at least one access");
        }
        if i64::try_from(self.seed).is_err() {
            return whole("the seed does not fit into 63 bits");
        }
        if self.bytes() > MAX_BYTES {
            return whole(&format!("the areas are larger than {}", units::about_size(MAX_BYTES)));
        }
        if self.duration().as_nanos() > u128::from(u64::MAX) / 2 {
            return whole("the phases take longer than a clock of nanoseconds counts");
        }
        for (index, area) in self.areas.iter().enumerate() {
            let fault = |what: String| Fault { place: Location::Area(index), what };
            if area.bytes == 0 {
                return Err(fault(format!("area `{}` is empty", area.name)));
            }
            if self.areas[..index].iter().any(|other| other.name == area.name) {
                return Err(fault(format!("there are two areas `{}`", area.name)));
            }
        }
        for (index, phase) in self.phases.iter().enumerate() {
            phase.check().map_err(|what| Fault { place: Location::Phase(index), what })?;
            for (at, access) in phase.accesses.iter().enumerate() {
                let place = Location::Access(index, at);
                access.check(&self.areas).map_err(|what| Fault { place, what })?;
            }
        }
        Ok(())
    }
}

/// A fault in a description, and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Location of the fault.
    pub place: Location,
    /// Description of the fault.
    pub what: String,
}

/// Location of a fault in a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The description as a whole.
    Whole,
    /// An area, given by its index.
    Area(usize),
    /// A phase, given by its index.
    Phase(usize),
    /// An access, given by the indices of phase and access.
    Access(usize, usize),
}

impl Phase {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if self.accesses.is_empty() {
            return Err(format!("phase `{name}` accesses nothing"));
        }
        if self.duration.is_zero() {
            return Err(format!("phase `{name}` takes no time"));
        }
        if self.rate.is_some_and(|rate| rate == 0 || rate > MAX_RATE) {
            return Err(format!("the rate of phase `{name}` is not within 1..={MAX_RATE}"));
        }
        if !(self.hot_share > 0.0 && self.hot_share <= 1.0) {
            return Err(format!("hot_share of phase `{name}` is not within 0..1"));
        }
        let weights: f64 = self.accesses.iter().map(|access| access.weight).sum();
        if !(weights > 0.0 && weights.is_finite()) {
            return Err(format!("the weights of phase `{name}` add up to nothing"));
        }
        Ok(())
    }
}

impl Access {
    /// Number of items of `item` bytes that fit into the part.
    #[must_use]
    pub fn items(&self, item: u64) -> u64 {
        self.bytes / item
    }

    fn check(&self, areas: &[Area]) -> Result<(), String> {
        let Some(area) = areas.get(self.area) else { return Err("there is no such area".into()) };
        let name = &area.name;
        if self.bytes == 0 {
            return Err(format!("a part of `{name}` is empty"));
        }
        if self.from.checked_add(self.bytes).is_none_or(|end| end > area.bytes) {
            return Err(format!(
                "{} from {} on do not fit into area `{name}` of {}",
                units::about_size(self.bytes),
                units::about_size(self.from),
                units::about_size(area.bytes)
            ));
        }
        if !(self.weight >= 0.0 && self.weight.is_finite()) {
            return Err("a weight is a number of at least 0".into());
        }
        if let Mix::Writes(share) = self.mix
            && !(0.0..=1.0).contains(&share)
        {
            return Err("writes is a share within 0..1".into());
        }
        self.check_pattern()
    }

    fn check_pattern(&self) -> Result<(), String> {
        let fits = |what: &str, bytes: u64| match bytes {
            0 => Err(format!("{what} of no bytes")),
            _ if bytes > self.bytes => Err(format!("{what} larger than the part that is accessed")),
            _ => Ok(()),
        };
        match self.pattern {
            Pattern::Sequential { stride } => fits("a stride", stride),
            Pattern::Random | Pattern::Table => Ok(()),
            Pattern::Zipf { item, theta, .. } => {
                fits("an item", item)?;
                if !(0.0..=10.0).contains(&theta) || theta == 1.0 {
                    return Err("theta is a number within 0..10, and not 1".into());
                }
                Ok(())
            }
            Pattern::Gaussian { item, mean, sd } => {
                fits("an item", item)?;
                let items = self.items(item) as f64;
                if !(sd > 0.0 && sd <= 1e12) {
                    return Err("sd is a number above 0, in items".into());
                }
                if !(0.0..=items).contains(&mean) {
                    return Err(format!("the mean lies outside the {items} items"));
                }
                Ok(())
            }
            Pattern::Scattered { ranges, range } => {
                fits("a range", range)?;
                let places = self.bytes / range;
                if ranges == 0 || ranges > places {
                    return Err(format!("{ranges} ranges do not fit into {places} places"));
                }
                Ok(())
            }
            Pattern::Striped { range, apart } => {
                fits("a stripe", range)?;
                fits("a distance", apart)?;
                if range > apart {
                    return Err("stripes are longer than they are apart".into());
                }
                match self.bytes / apart {
                    stripes if stripes > MAX_STRIPES => {
                        Err(format!("{stripes} stripes are more than {MAX_STRIPES}"))
                    }
                    _ => Ok(()),
                }
            }
            Pattern::Drift { window, step, every } => {
                fits("a window", window)?;
                if step == 0 || every < Duration::from_millis(1) {
                    return Err("a window drifts by at least a byte, at most every ms".into());
                }
                Ok(())
            }
        }
    }
}

/// Upper bound on stripes: each becomes a range of its own.
const MAX_STRIPES: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn toy() -> Workload {
        Workload {
            name: "toy".into(),
            seed: 1,
            burst: 1,
            areas: vec![Area { name: "a".into(), bytes: 100, content: None }],
            phases: vec![Phase {
                name: "p".into(),
                duration: Duration::from_secs(1),
                rate: None,
                hot_share: 0.9,
                accesses: vec![Access {
                    area: 0,
                    from: 0,
                    bytes: 100,
                    pattern: Pattern::Random,
                    weight: 1.0,
                    mix: Mix::Writes(0.0),
                    chase: false,
                    hot: None,
                }],
            }],
        }
    }

    fn fault(change: impl Fn(&mut Workload)) -> (Location, String) {
        let mut workload = toy();
        change(&mut workload);
        let fault = workload.check().unwrap_err();
        (fault.place, fault.what)
    }

    #[test]
    fn faults_name_their_location() {
        assert_eq!(toy().check(), Ok(()));
        let (place, what) = fault(|w| w.phases[0].accesses[0].from = 1);
        assert_eq!(place, Location::Access(0, 0));
        assert_eq!(what, "100 B from 1 B on do not fit into area `a` of 100 B");
        assert_eq!(fault(|w| w.areas[0].bytes = 0).0, Location::Area(0));
        assert_eq!(fault(|w| w.areas.push(w.areas[0].clone())).0, Location::Area(1));
        assert_eq!(fault(|w| w.areas[0].bytes = u64::MAX).0, Location::Whole);
        assert_eq!(fault(|w| w.phases[0].accesses[0].weight = 0.0).0, Location::Phase(0));
        assert_eq!(
            fault(|w| w.phases[0].accesses[0].mix = Mix::Writes(f64::NAN)).0,
            Location::Access(0, 0)
        );
    }

    #[test]
    fn patterns_must_fit_into_their_part() {
        let with = |pattern| fault(move |w| w.phases[0].accesses[0].pattern = pattern).1;
        assert_eq!(
            with(Pattern::Scattered { ranges: 11, range: 10 }),
            "11 ranges do not fit into 10 places"
        );
        assert!(with(Pattern::Sequential { stride: 0 }).contains("no bytes"));
        let striped = |range, apart| with(Pattern::Striped { range, apart });
        assert_eq!(striped(20, 10), "stripes are longer than they are apart");
        assert!(striped(0, 10).contains("no bytes") && striped(1, 101).contains("larger"));
        assert!(with(Pattern::Zipf { item: 10, theta: 1.0, scrambled: false }).contains("not 1"));
        assert!(with(Pattern::Gaussian { item: 10, mean: 11.0, sd: 1.0 }).contains("10 items"));
        assert!(
            with(Pattern::Drift { window: 101, step: 1, every: Duration::from_secs(1) })
                .contains("larger")
        );
    }
}
