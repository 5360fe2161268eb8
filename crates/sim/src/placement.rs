//! Choice of the tier for new pages, and watermarks of tiers.

use std::sync::Arc;

use tierscope_core::Tier;
use tierscope_hw::config::MemoryTier;

/// The kernel's default of `vm.watermark_scale_factor`.
pub(crate) const WATERMARK_SCALE: u32 = 10;

/// Policy that selects the tier of a page at its first touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The fastest tier that stays above its low watermark, otherwise the fastest above its min
    /// watermark (mm/page_alloc.c, `get_page_from_freelist`).
    FirstTouch,
    /// These tiers in turn, page by page (`MPOL_INTERLEAVE`); [`Placement::FirstTouch`] when the
    /// tier is full.
    Interleave(Vec<Tier>),
    /// Only this tier (`MPOL_BIND`).
    Bind(Tier),
    /// The tier that a map gives for the address, as no kernel can know it; when that is full, the
    /// next slower one, or else the next faster one.
    Known(Arc<TierMap>),
}

/// A tier for each address of a space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TierMap {
    /// First byte, end and tier of ranges, ascending and disjoint.
    ranges: Vec<(u64, u64, Tier)>,
    /// The tier of all other addresses.
    otherwise: Tier,
}

impl TierMap {
    /// A map of ranges (first byte, end, tier) that do not overlap, in any order.
    #[must_use]
    pub fn new(mut ranges: Vec<(u64, u64, Tier)>, otherwise: Tier) -> Self {
        ranges.retain(|(start, end, tier)| start < end && *tier != otherwise);
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let joins = last.1 == next.0 && last.2 == next.2;
            if joins {
                last.1 = next.1;
            }
            joins
        });
        Self { ranges, otherwise }
    }

    /// The tier of an address, and the end of the addresses from there on that have the same.
    #[must_use]
    pub fn at(&self, address: u64) -> (Tier, u64) {
        let next = self.ranges.partition_point(|(_, end, _)| *end <= address);
        match self.ranges.get(next) {
            Some((start, end, tier)) if *start <= address => (*tier, *end),
            Some((start, ..)) => (self.otherwise, *start),
            None => (self.otherwise, u64::MAX),
        }
    }

    /// Whether all tiers of the map exist in a machine of `tiers` tiers.
    #[must_use]
    pub fn fits(&self, tiers: usize) -> bool {
        let own = self.ranges.iter().map(|(_, _, tier)| *tier);
        own.chain([self.otherwise]).all(|tier| usize::from(tier.0) < tiers)
    }

    /// The tiers in which a page that belongs to `first` may be, the best first.
    pub(crate) fn instead(first: Tier, tiers: usize) -> impl Iterator<Item = Tier> {
        (first.0..tiers as u8).chain((0..first.0).rev()).map(Tier)
    }
}

/// Levels of free memory at which a tier counts as scarce, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this only the kernel may allocate.
    pub min: u64,
    /// Below this an allocation tries the next tier first, and background reclaim is woken.
    pub low: u64,
    /// Background reclaim stops at this level.
    pub high: u64,
}

impl Watermarks {
    /// Watermarks of every tier. The first `caches` tiers are caches that give out no pages, and do
    /// not count as memory of the machine.
    #[must_use]
    pub fn of_tiers(
        tiers: &[MemoryTier],
        caches: usize,
        scale: u32,
        min_free_kib: Option<u64>,
    ) -> Vec<Self> {
        let frames = |tier: &MemoryTier| tier.mib << 8;
        let all = tiers.iter().skip(caches).map(frames).sum();
        tiers.iter().map(|tier| Self::of(frames(tier), all, scale, min_free_kib)).collect()
    }

    /// Watermarks that the kernel sets for a node of `frames` frames in a machine of `all`
    /// (mm/page_alloc.c, `calculate_min_free_kbytes` and `__setup_per_zone_wmarks`): the kernel's
    /// reserve grows with the square root of the memory, each node has its share of it, and the
    /// marks are a quarter of that share or `scale` ten-thousandths of the node apart.
    #[must_use]
    pub fn of(frames: u64, all: u64, scale: u32, min_free_kib: Option<u64>) -> Self {
        let chosen = || (((all * 4 * 16) as f64).sqrt() as u64).clamp(128, 262_144);
        let kib = min_free_kib.unwrap_or_else(chosen);
        let share = u128::from(kib) * u128::from(frames) / u128::from(4 * all.max(1));
        // Even a toy machine keeps three quarters for its programs.
        let min = (share as u64).min(frames / 4);
        let gap = (min / 4).max(frames * u64::from(scale) / 10_000);
        Self { min, low: min + gap, high: min + 2 * gap }
    }
}

/// Tiers with these sizes in MiB, for tests.
#[cfg(test)]
pub(crate) fn toy_tiers(mib: &[u64]) -> Vec<MemoryTier> {
    use tierscope_hw::config::Medium;
    let tier = |mib: &u64| MemoryTier {
        name: "toy".into(),
        mib: *mib,
        read_ns: 1,
        write_ns: 1,
        read_mib_s: 1 << 20,
        write_mib_s: 1 << 20,
        medium: Medium::plain(),
        source: "toy".into(),
        assumed: vec![],
        ranges: Default::default(),
    };
    mib.iter().map(tier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_knows_the_tier_and_how_far_it_reaches() {
        let map =
            TierMap::new(vec![(30, 40, Tier(1)), (10, 20, Tier(0)), (20, 30, Tier(0))], Tier(2));
        let at = [0, 10, 29, 30, 39, 40].map(|address| map.at(address));
        let (fast, slow, far) = ((Tier(0), 30), (Tier(1), 40), Tier(2));
        assert_eq!(at, [(far, 10), fast, fast, slow, slow, (far, u64::MAX)]);
        assert!(map.fits(3) && !map.fits(2));
        let instead: Vec<u8> = TierMap::instead(Tier(1), 3).map(|tier| tier.0).collect();
        assert_eq!(instead, [1, 2, 0]);
    }

    // 256 GiB: sqrt(16 * 268435456 KiB) = 65536 KiB = 16384 frames; 0.1 % = 67108 frames. With a
    // second node of the same size: sqrt(16 * 536870912 KiB) = 92681 KiB = 23170 frames, half of
    // them here.
    #[test]
    fn watermarks_are_the_kernels() {
        let node = 256 << 18;
        let marks = |all, scale, min_free| Watermarks::of(node, all, scale, min_free);
        let alone = Watermarks { min: 16_384, low: 83_492, high: 150_600 };
        assert_eq!(marks(node, 10, None), alone);
        assert_eq!(marks(2 * node, 10, None).min, 11_585);
        let wide = Watermarks { min: 512, low: 512 + 671_088, high: 512 + 2 * 671_088 };
        assert_eq!(marks(2 * node, 100, Some(4096)), wide);
    }
}
