//! Static tiering: a page stays in the tier of its allocation.
//!
//! Source: MULTI-CLOCK (HPCA'22), section II-D: "a memory page, once mapped to a tier, may not get
//! reassigned to a different tier during its lifetime". The initial tier, the fastest until it is
//! full, is up to the machine. Static tiering is the baseline of all other policies: it observes
//! nothing, moves nothing and costs nothing.

use tierscope_core::{Evidence, Orders, PlacementView, Policy, Setting, Time};

use crate::registry::{Entry, NoSettings, made};

/// The policy `static` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "static",
    about: "a page stays in the tier of its allocation",
    source: "MULTI-CLOCK (HPCA'22), section II-D",
    tracks: "nothing",
    granularity: "none",
    promotes: "never",
    demotes: "never",
    cost: "none",
    page_bytes: None,
    needs: &[],
    uses: &[],
    sampling: None,
    reclaims: false,
    make: made!("static", NoSettings, |_| Static),
    keys: Vec::new,
};

/// The static policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Static;

impl Policy for Static {
    fn name(&self) -> &'static str {
        "static"
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn observe(&mut self, _: Evidence<'_>, _: &mut Orders) {}

    fn tick(&mut self, _: Time, _: &dyn PlacementView, _: &mut Orders) -> Time {
        Time::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn nothing_ever_happens() {
        let mut trace = Trace::new(Static, [2, 6], 6);
        assert_eq!(trace.places(), "0:0 1:0 2:1 3:1 4:1 5:1");
        trace.seconds(10, |_| vec![4, 5]);
        assert_eq!(trace.places(), "0:0 1:0 2:1 3:1 4:1 5:1");
        assert_eq!((trace.orders(), trace.work()), (0, std::time::Duration::ZERO));
    }
}
