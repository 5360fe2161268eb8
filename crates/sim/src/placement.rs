//! Which tier memory comes from, and where a tier calls itself full.

use tierscope_core::Tier;

/// Which tier a page comes from when it is touched first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The fastest tier that stays above its low watermark, else the fastest above its min
    /// watermark (mm/page_alloc.c, `get_page_from_freelist`).
    FirstTouch,
    /// These tiers in turn, page by page (`MPOL_INTERLEAVE`); then as [`Placement::FirstTouch`].
    Interleave(Vec<Tier>),
    /// This tier or none (`MPOL_BIND`).
    Bind(Tier),
}

/// Where free memory of a tier gets scarce, in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this nobody but the kernel gets a page.
    pub min: u64,
    /// Below this an allocation looks at the next tier first, and daemons wake.
    pub low: u64,
    /// Up to this daemons free.
    pub high: u64,
}

impl Watermarks {
    /// As the kernel sets them for a node of so many frames (mm/page_alloc.c,
    /// `calculate_min_free_kbytes` and `__setup_per_zone_wmarks`, `watermark_scale_factor` 10).
    #[must_use]
    pub fn of(frames: u64) -> Self {
        let kib = frames * 4;
        let min_kib = ((kib * 16) as f64).sqrt() as u64;
        let min = min_kib.clamp(128, 262_144).min(kib / 4) / 4;
        let gap = (min / 4).max(frames / 1000);
        Self { min, low: min + gap, high: min + 2 * gap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 256 GiB: sqrt(16 * 268435456 KiB) = 65536 KiB = 16384 frames; 0.1 % = 67108 frames.
    #[test]
    fn watermarks_are_the_kernels() {
        let marks = Watermarks::of(256 << 18);
        assert_eq!(marks, Watermarks { min: 16_384, low: 83_492, high: 150_600 });
    }
}
