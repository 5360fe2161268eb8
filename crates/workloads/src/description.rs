//! The one description of a workload. It feeds a stream of accesses ([`crate::stream`]), densities
//! over ranges ([`crate::density`]) and a real program (`toucher`), and it knows which memory is
//! hot.

use std::time::Duration;

use crate::units::about_bytes;

/// Accesses in a row to one pattern before the next is picked, where the description says nothing.
pub const DEFAULT_BURST: u32 = 64;
/// Share of the accesses that the hot ranges take, where the description says nothing.
pub const DEFAULT_HOT_SHARE: f64 = 0.9;
/// Largest workload: what a process of a 5-level machine can map.
pub const MAX_BYTES: u64 = 1 << 56;

/// Highest rate: an access a picosecond.
const MAX_RATE: u64 = 1_000_000_000_000;

/// Areas of memory, and phases of accesses to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// For people.
    pub name: String,
    /// Seed of everything drawn by the description itself (where scattered ranges lie); streams
    /// have a seed of their own.
    pub seed: u64,
    /// Accesses in a row to one pattern before the next is picked.
    pub burst: u32,
    /// The memory.
    pub areas: Vec<Area>,
    /// One after the other; then from the beginning, if the user wants so.
    pub phases: Vec<Phase>,
}

/// Contiguous memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Unique.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// A file to fill it from, as far as it reaches.
    pub content: Option<String>,
}

/// A time with the same patterns.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// For people.
    pub name: String,
    /// How long.
    pub duration: Duration,
    /// Accesses per second over all threads; `None` for as fast as can be.
    pub rate: Option<u64>,
    /// Share of the accesses that the hot ranges take (0..1]; see [`crate::density`].
    pub hot_share: f64,
    /// At least one; picked by weight, for a burst each.
    pub accesses: Vec<Access>,
}

/// A pattern on a part of an area.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Index into [`Workload::areas`].
    pub area: usize,
    /// Where in the area the part begins, in bytes.
    pub from: u64,
    /// Its size.
    pub bytes: u64,
    /// How it is accessed.
    pub pattern: Pattern,
    /// Weight among the accesses of the phase.
    pub weight: f64,
    /// Reads or writes.
    pub mix: Mix,
    /// Declares the part hot or not; `None` leaves it to the share.
    pub hot: Option<bool>,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Each access is a write with this probability, else a read.
    Writes(f64),
    /// Each access reads and then writes what it read.
    Update,
    /// Each access is a non-temporal store: it goes past the caches to memory.
    NonTemporal,
}

/// Which byte is next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// The stride is added first; past the end it goes on at the beginning. A stride of a cache
    /// line is a scan, one of a page or more a stride.
    Sequential {
        /// Bytes from one access to the next.
        stride: u64,
    },
    /// Every byte alike.
    Random,
    /// As masim draws: from 10^6 values of 31 bits prepared beforehand, modulo the size. So at
    /// most 10^6 pages are touched, and none above 2 GiB.
    Table,
    /// Item `r` (from 0) with a probability proportional to `1 / (r + 1)^theta`.
    Zipf {
        /// Bytes of an item.
        item: u64,
        /// Skew; YCSB's is 0.99. At least 0, and not 1.
        theta: f64,
        /// As YCSB's ScrambledZipfianGenerator: the rank is drawn from 10^10 and its FNV hash tells
        /// the item.
        scrambled: bool,
    },
    /// Items by a normal distribution, cut at the ends of the part.
    Gaussian {
        /// Bytes of an item.
        item: u64,
        /// In items.
        mean: f64,
        /// In items.
        sd: f64,
    },
    /// Every byte of some ranges alike. The ranges lie on multiples of their size, drawn without
    /// repetition.
    Scattered {
        /// How many.
        ranges: u64,
        /// Bytes of each.
        range: u64,
    },
    /// Every byte of the first `range` of each `apart` alike, from the part's beginning on; a rest
    /// that is shorter than `apart` is left out.
    Striped {
        /// Bytes of a stripe.
        range: u64,
        /// Bytes from the beginning of one to that of the next.
        apart: u64,
    },
    /// Every byte of a window alike; the window moves on, and begins again when it would pass the
    /// end.
    Drift {
        /// Bytes of the window.
        window: u64,
        /// How far it moves.
        step: u64,
        /// How often.
        every: Duration,
    },
}

impl Workload {
    /// Bytes of all areas.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.areas.iter().map(|area| area.bytes).fold(0, u64::saturating_add)
    }

    /// Time of all phases, once.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.iter().map(|phase| phase.duration).sum()
    }

    /// Whether its stores go past the caches, all or some.
    #[must_use]
    pub fn is_non_temporal(&self) -> bool {
        let mut accesses = self.phases.iter().flat_map(|phase| &phase.accesses);
        accesses.any(|access| access.mix == Mix::NonTemporal)
    }

    /// Whether the description makes sense.
    ///
    /// # Errors
    /// What does not, and where.
    pub fn check(&self) -> Result<(), Fault> {
        let whole = |what: &str| Err(Fault { place: Place::Whole, what: what.into() });
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
            return whole(&format!("the areas are larger than {}", about_bytes(MAX_BYTES)));
        }
        if self.duration().as_nanos() > u128::from(u64::MAX) / 2 {
            return whole("the phases take longer than a clock of nanoseconds can tell");
        }
        for (index, area) in self.areas.iter().enumerate() {
            let fault = |what: String| Fault { place: Place::Area(index), what };
            if area.bytes == 0 {
                return Err(fault(format!("area `{}` is empty", area.name)));
            }
            if self.areas[..index].iter().any(|other| other.name == area.name) {
                return Err(fault(format!("there are two areas `{}`", area.name)));
            }
        }
        for (index, phase) in self.phases.iter().enumerate() {
            phase.check().map_err(|what| Fault { place: Place::Phase(index), what })?;
            for (at, access) in phase.accesses.iter().enumerate() {
                let place = Place::Access(index, at);
                access.check(&self.areas).map_err(|what| Fault { place, what })?;
            }
        }
        Ok(())
    }
}

/// What is wrong with a description, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What.
    pub what: String,
}

/// A part of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing smaller.
    Whole,
    /// An area, by index.
    Area(usize),
    /// A phase, by index.
    Phase(usize),
    /// An access of a phase, by both indices.
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
    /// Items of `item` bytes in the part.
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
                about_bytes(self.bytes),
                about_bytes(self.from),
                about_bytes(area.bytes)
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

/// Stripes: each is a range by itself.
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
                    hot: None,
                }],
            }],
        }
    }

    fn fault(change: impl Fn(&mut Workload)) -> (Place, String) {
        let mut workload = toy();
        change(&mut workload);
        let fault = workload.check().unwrap_err();
        (fault.place, fault.what)
    }

    #[test]
    fn faults_are_told_with_their_place() {
        assert_eq!(toy().check(), Ok(()));
        let (place, what) = fault(|w| w.phases[0].accesses[0].from = 1);
        assert_eq!(place, Place::Access(0, 0));
        assert_eq!(what, "100 B from 1 B on do not fit into area `a` of 100 B");
        assert_eq!(fault(|w| w.areas[0].bytes = 0).0, Place::Area(0));
        assert_eq!(fault(|w| w.areas.push(w.areas[0].clone())).0, Place::Area(1));
        assert_eq!(fault(|w| w.areas[0].bytes = u64::MAX).0, Place::Whole);
        assert_eq!(fault(|w| w.phases[0].accesses[0].weight = 0.0).0, Place::Phase(0));
        assert_eq!(
            fault(|w| w.phases[0].accesses[0].mix = Mix::Writes(f64::NAN)).0,
            Place::Access(0, 0)
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
