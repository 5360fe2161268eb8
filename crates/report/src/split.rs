//! Bytes of a window by state. Each mapped byte is in exactly one.

use tierscope_core::{Heat, Region, Unknown, units};
use tierscope_record::Metric;

/// Series of mapped bytes that are not resident; the regions of a recording that has them hold
/// resident memory only.
pub(crate) const NOT_RESIDENT: [&str; 3] = ["absent_bytes", "swapped_bytes", "reserved_bytes"];

/// Series of the swapped bytes of the whole target that zswap holds.
pub(crate) const ZSWAPPED: &str = "zswapped_bytes";

/// Mapped bytes that are not resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Bytes of files, shared memory and the kernel's own mappings that are not in memory.
    pub(crate) absent: u64,
    /// Bytes in swap, zswap included.
    pub(crate) swapped: u64,
    /// Bytes of anonymous memory that were never populated.
    pub(crate) reserved: u64,
}

impl Outside {
    /// Sum over all spaces; `None` if not recorded.
    pub(crate) fn of(metrics: &[Metric]) -> Option<Self> {
        let mut sum = Split::default();
        let outside = metrics.iter().filter(|metric| NOT_RESIDENT.contains(&&*metric.name));
        outside.for_each(|metric| sum.add_metric(metric));
        sum.outside
    }

    /// The bytes that are not 0, each with its name, as text: ` · swapped 2 MiB`.
    pub(crate) fn text(&self) -> String {
        let parts = [
            ("swapped", self.swapped),
            ("never touched", self.reserved),
            ("not resident", self.absent),
        ];
        let some = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        some.map(|(name, bytes)| format!(" · {name} {}", units::about_size(bytes))).collect()
    }
}

/// Number of regions, and bytes by state, of a space or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) regions: u64,
    /// All bytes of regions.
    bytes: u64,
    pub(crate) hot: u64,
    /// Bytes of regions with at least one hit.
    accessed: u64,
    /// Bytes whose hot and cold parts cannot be separated, for any reason.
    pub(crate) unknown: u64,
    /// Those of them that the machine refuses to judge.
    pub(crate) refused: u64,
    /// Those of them that are memory of a virtual machine.
    pub(crate) guest: u64,
    pub(crate) unseen: u64,
    /// Bytes in no region; `None` if the recording does not have them.
    pub(crate) outside: Option<Outside>,
}

impl Split {
    /// Adds a value of a series of the space, if it is one of these.
    pub(crate) fn add_metric(&mut self, metric: &Metric) {
        let bytes = metric.value as u64;
        let sum = match metric.name.as_str() {
            "regions" => &mut self.regions,
            "region_bytes" => &mut self.bytes,
            "hot_bytes" => &mut self.hot,
            "accessed_bytes" => &mut self.accessed,
            "unknown_bytes" => &mut self.unknown,
            "unknown_refused_bytes" => &mut self.refused,
            "unknown_guest_bytes" => &mut self.guest,
            "unseen_bytes" => &mut self.unseen,
            "absent_bytes" => &mut self.outside.get_or_insert_default().absent,
            "swapped_bytes" => &mut self.outside.get_or_insert_default().swapped,
            "reserved_bytes" => &mut self.outside.get_or_insert_default().reserved,
            _ => return,
        };
        add(sum, bytes);
    }

    /// Adds `bytes` of a region.
    pub(crate) fn add_region(&mut self, region: &Region, bytes: u64) {
        self.regions += 1;
        add(&mut self.bytes, bytes);
        match region.heat() {
            Heat::Hot => {
                add(&mut self.hot, bytes);
                add(&mut self.accessed, bytes);
            }
            Heat::Warm => add(&mut self.accessed, bytes),
            Heat::Cold => {}
            Heat::Unseen => add(&mut self.unseen, bytes),
            Heat::Unknown(why) => {
                add(&mut self.unknown, bytes);
                match why {
                    Unknown::Evidence => {}
                    Unknown::Refused => add(&mut self.refused, bytes),
                    Unknown::Guest => add(&mut self.guest, bytes),
                }
            }
        }
    }

    /// Adds the bytes of another space.
    pub(crate) fn merge(&mut self, other: &Split) {
        self.regions += other.regions;
        let sums = [
            (&mut self.bytes, other.bytes),
            (&mut self.hot, other.hot),
            (&mut self.accessed, other.accessed),
            (&mut self.unknown, other.unknown),
            (&mut self.refused, other.refused),
            (&mut self.guest, other.guest),
            (&mut self.unseen, other.unseen),
        ];
        sums.into_iter().for_each(|(sum, bytes)| add(sum, bytes));
        if let Some(theirs) = other.outside {
            let mine = self.outside.get_or_insert_default();
            add(&mut mine.absent, theirs.absent);
            add(&mut mine.swapped, theirs.swapped);
            add(&mut mine.reserved, theirs.reserved);
        }
    }

    /// Bytes that are accessed and not hot.
    pub(crate) fn warm(&self) -> u64 {
        self.accessed.saturating_sub(self.hot)
    }

    /// Resident bytes that are not accessed.
    pub(crate) fn cold(&self) -> u64 {
        self.not_hot().saturating_sub(self.warm())
    }

    /// Bytes that are warm or cold.
    pub(crate) fn not_hot(&self) -> u64 {
        self.bytes.saturating_sub(self.hot).saturating_sub(self.unknown).saturating_sub(self.unseen)
    }
}

/// Adds without overflow, for spaces of up to 2^64 bytes.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Range, SpaceId, Time};

    // 1 MiB of a space is swapped, 2 MiB of another one never touched.
    #[test]
    fn memory_outside_of_regions_is_summed() {
        let metric = |name: &str, space, mib: u64| Metric {
            time: Time(0),
            name: name.into(),
            space: Some(SpaceId(space)),
            value: (mib << 20) as f64,
        };
        let metrics = [
            metric("swapped_bytes", 0, 1),
            metric("hot_bytes", 0, 9),
            metric("reserved_bytes", 1, 2),
        ];
        let outside = Outside::of(&metrics).unwrap();
        assert_eq!(outside, Outside { absent: 0, swapped: 1 << 20, reserved: 2 << 20 });
        assert_eq!(outside.text(), " · swapped 1 MiB · never touched 2 MiB");
        assert_eq!(Outside::of(&metrics[1..2]), None);
    }

    // 1 byte hot, 2 warm, 4 cold, 8 of too little evidence, 16 refused, 32 of a guest, 64 not
    // probed.
    #[test]
    fn regions_and_their_metrics_give_the_same() {
        let region = |hits, samples, unknown| Region {
            unknown,
            ..Region::sampled(Range::new(SpaceId(0), 0, 4096), hits, samples)
        };
        let mut of_regions = Split::default();
        let why = Unknown::ALL.map(|why| region(0.0, 40, Some(why)));
        let known = [40.0, 1.0, 0.0].map(|hits| region(hits, 40, None));
        let unseen = region(0.0, 0, None);
        for (power, region) in known.iter().chain(&why).chain([&unseen]).enumerate() {
            of_regions.add_region(region, 1 << power);
        }
        let mut of_metrics = Split::default();
        let values = [
            ("regions", 7),
            ("region_bytes", 127),
            ("hot_bytes", 1),
            ("accessed_bytes", 3),
            ("unknown_bytes", 56),
            ("unknown_refused_bytes", 16),
            ("unknown_guest_bytes", 32),
            ("unseen_bytes", 64),
        ];
        for (name, value) in values {
            let (time, space) = (Time(0), Some(SpaceId(0)));
            let metric = Metric { time, name: name.into(), space, value: f64::from(value) };
            of_metrics.add_metric(&metric);
        }
        assert_eq!(of_regions, of_metrics);
        let split = of_regions;
        assert_eq!([split.hot, split.warm(), split.cold(), split.not_hot()], [1, 2, 4, 6]);
        assert_eq!([split.unknown, split.refused, split.guest, split.unseen], [56, 16, 32, 64]);
    }
}
