//! Spread: whether a block is accessed all over or at few of its pages.
//!
//! A pass counts a block as accessed if any of its pages was young, so that one hot page would make
//! 2 MiB look hot. Up to 64 pages of a block, at a pseudo-random place of each stretch, are
//! therefore followed through several passes. If accesses fell evenly on the pages, the followed
//! ones would be found young in proportion to their number, and `count` findings of `n` followed
//! pages would be `n (1 - exp(-count / n))` different ones. A block of which either is far lower is
//! *sparse*: it has hot pages and others, which the block's frequency does not tell apart. Few hot
//! pages among many accesses to the others are not recognised (`rates` finds them).

/// Pages followed per block.
const FOLLOWED: u64 = 64;
/// Findings per page after which a trial ends: then two thirds of the pages, accessed evenly,
/// differ from all of them by more than three standard deviations.
const ENOUGH: u32 = 2;
/// Bounds below which a block is sparse: the share of the followed pages expected to be found, and
/// the standard deviations by which they are found less often than others. At the end of a trial;
/// and for a first, provisional answer after half a finding per page.
const LAST: (f32, f32) = (0.85, 3.5);
const PROVISIONAL: (f32, f32) = (0.8, 2.5);

/// What is known of a block's accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Spread {
    /// Too few findings.
    #[default]
    Unknown,
    /// All over the block.
    Even,
    /// At few pages.
    Sparse,
}

/// Pages of a block that a scan found: bits of the followed ones, and the number of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) followed: u64,
    pub(super) pages: u32,
}

impl Found {
    /// All pages of a block.
    pub(super) fn all(pages: u64) -> Self {
        Self { followed: u64::MAX >> (64 - number(pages)), pages: pages as u32 }
    }
}

/// A trial of one block: 32 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    /// Bit i: followed page i was present, or young.
    present: u64,
    young: u64,
    /// Times that a followed page was found young; and that any page was.
    count: u32,
    findings: u32,
    /// Number of present pages.
    pages: u32,
    /// Passes that found the block young.
    passes: u8,
    spread: Spread,
}

const _: () = assert!(size_of::<Trial>() == 32);

impl Trial {
    /// The last answer.
    pub(super) fn spread(&self) -> Spread {
        self.spread
    }

    /// Adds the present and the young pages that a pass found in a young block.
    pub(super) fn add(&mut self, present: Found, young: Found) {
        self.present |= present.followed | young.followed;
        self.young |= young.followed;
        self.count += young.followed.count_ones();
        self.findings += young.pages;
        self.pages = self.pages.max(present.pages);
        self.passes += 1;
        if self.findings >= ENOUGH * self.pages || self.passes == u8::MAX {
            *self = Self { spread: self.judge(LAST), ..Self::default() };
        } else if self.spread == Spread::Unknown && 2 * self.findings >= self.pages {
            self.spread = self.judge(PROVISIONAL);
        }
    }

    fn judge(&self, (share, deviations): (f32, f32)) -> Spread {
        let (followed, count) = (self.present.count_ones() as f32, self.count as f32);
        if followed == 0.0 {
            return Spread::Even;
        }
        let usual = self.findings as f32 * followed / (self.pages as f32).max(followed);
        let missed = count < usual - deviations * usual.sqrt();
        let reached = self.young.count_ones() as f32;
        match missed || reached < share * followed * (1.0 - (-count / followed).exp()) {
            true => Spread::Sparse,
            false => Spread::Even,
        }
    }
}

/// Number of the followed page `index` of a block of `pages` pages: at a place of its stretch that
/// depends on both the block and the stretch, so that no layout hides between the followed pages.
pub(super) fn followed(block: u64, index: u64, pages: u64) -> u64 {
    let stretch = (pages / FOLLOWED).max(1);
    let mixed = (block * FOLLOWED + index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    index * stretch + (mixed >> 32) % stretch
}

/// Number of pages followed in a block of `pages` pages.
pub(super) fn number(pages: u64) -> u64 {
    pages.min(FOLLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Rng;

    const ALL: Found = Found { followed: u64::MAX, pages: 512 };

    /// The answer after `passes`, each of which finds `young` random pages among the first `hot` of
    /// 512 pages and `others` among all, with the pages followed of block 7.
    fn after(passes: u32, young: u64, hot: u64, others: u64) -> Spread {
        let (mut rng, mut trial) = (Rng::seeded(1), Trial::default());
        for _ in 0..passes {
            let mut found: Vec<u64> = (0..young).map(|_| rng.below(hot)).collect();
            found.extend((0..others).map(|_| rng.below(512)));
            found.sort_unstable();
            found.dedup();
            let bit = |index: u64| u64::from(found.contains(&followed(7, index, 512))) << index;
            let followed = (0..64).map(bit).fold(0, |all, bit| all | bit);
            trial.add(ALL, Found { followed, pages: found.len() as u32 });
        }
        trial.spread()
    }

    // Ten young pages a pass: two findings per page take 103 passes.
    #[test]
    fn even_accesses_differ_from_accesses_to_few_pages() {
        assert_eq!(after(10, 10, 512, 0), Spread::Unknown);
        assert_eq!(after(60, 10, 512, 0), Spread::Even);
        assert_eq!(after(210, 10, 512, 0), Spread::Even);
        assert_eq!(after(210, 10, 300, 0), Spread::Sparse);
        assert_eq!(after(200, 4, 8, 0), Spread::Sparse);
        assert_eq!(after(200, 4, 8, 2), Spread::Sparse);
        assert_eq!(after(1, 5000, 512, 0), Spread::Even);
    }

    // Of 64 followed pages 32 are present, and all of these are hot; or not one is present.
    #[test]
    fn absent_pages_do_not_count() {
        let half = Found { followed: u64::from(u32::MAX), pages: 256 };
        let mut trial = Trial::default();
        trial.add(half, half);
        assert_eq!(trial.spread(), Spread::Even);
        let few = Found { followed: 0, pages: 3 };
        let mut trial = Trial::default();
        (0..2).for_each(|_| trial.add(few, few));
        assert_eq!(trial.spread(), Spread::Even);
    }

    // The pages that are hot lie between those followed: four of them are 256 findings in 64
    // passes, of which the followed ones should have 32.
    #[test]
    fn pages_that_are_never_found_mean_few_hot_ones() {
        let mut trial = Trial::default();
        let four = Found { followed: 0, pages: 4 };
        (0..63).for_each(|_| trial.add(ALL, four));
        assert_eq!(trial.spread(), Spread::Unknown);
        trial.add(ALL, four);
        assert_eq!(trial.spread(), Spread::Sparse);
    }

    #[test]
    fn each_stretch_has_one_followed_page() {
        for block in 0..4 {
            for index in 0..64 {
                assert_eq!(followed(block, index, 512) / 8, index);
                assert_eq!(followed(block, index, 64), index);
            }
        }
        assert_eq!([number(512), number(64), number(1)], [64, 64, 1]);
        assert_eq!([Found::all(512).followed, Found::all(1).followed], [u64::MAX, 1]);
    }
}
