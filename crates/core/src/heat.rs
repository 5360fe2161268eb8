//! The states that reports split memory into.

use crate::metrics::HOT_FREQUENCY;
use crate::{Region, Unknown};

/// State of a region in a window: the bytes of each region count in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heat {
    /// Frequency of at least [`HOT_FREQUENCY`], confirmed.
    Hot,
    /// Accessed and not hot.
    Warm,
    /// Probed, and not accessed.
    Cold,
    /// Hot and cold cannot be separated, for that reason.
    Unknown(Unknown),
    /// Not probed: beyond the instrument's budget in this window.
    Unseen,
}

impl Region {
    /// The state in which reports count the region.
    #[must_use]
    pub fn heat(&self) -> Heat {
        match self.unknown {
            _ if self.is_unseen() => Heat::Unseen,
            Some(why) => Heat::Unknown(why),
            None if self.is_hot(HOT_FREQUENCY) => Heat::Hot,
            None if self.is_accessed() => Heat::Warm,
            None => Heat::Cold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Range, SpaceId};

    // Of 40 samples 5 make a region hot. Refused memory is refused, whether or not it was probed.
    #[test]
    fn a_region_is_in_one_state() {
        let region = |hits, samples, unknown| Region {
            unknown,
            ..Region::sampled(Range::new(SpaceId(0), 0, 4096), hits, samples)
        };
        let known = [5.0, 4.0, 1.0, 0.0].map(|hits| region(hits, 40, None).heat());
        assert_eq!(known, [Heat::Hot, Heat::Warm, Heat::Warm, Heat::Cold]);
        let why = Unknown::ALL.map(|why| region(40.0, 40, Some(why)).heat());
        assert_eq!(why, Unknown::ALL.map(Heat::Unknown));
        let unseen = Unknown::ALL.map(|why| region(0.0, 0, Some(why)).heat());
        let [refused, guest] = [Unknown::Refused, Unknown::Guest].map(Heat::Unknown);
        assert_eq!(unseen, [Heat::Unseen, refused, guest]);
        assert_eq!(region(0.0, 0, None).heat(), Heat::Unseen);
    }
}
