//! Pages that userfaultfd protects and moves.

use std::ops::Range;

use tierscope_lab::guest::mutations::{Kind, Mutations};
use tierscope_lab::guest::userfault::{Mode, Userfaults};

use crate::area::{Area, PAGE};

const PAGES: usize = 256;
/// Times that pages are protected and freed again.
const ROUNDS: usize = 4;

fn area() -> Option<Area> {
    let area = Area::map(PAGES * PAGE, libc::MAP_PRIVATE)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    Some(area)
}

fn range(area: Area) -> Range<u64> {
    area.start as u64..(area.start + area.bytes) as u64
}

/// Protects pages from writes, and lifts it again before one is written.
pub(crate) fn protect(mutations: &Mutations) {
    let (Some(area), Ok(faults)) = (area(), Userfaults::open()) else { return };
    area.touch(1);
    mutations.during(Kind::UserfaultProtect, || {
        let protect = |on| faults.protect_from_writes(&range(area), on).is_ok();
        faults.register(&range(area), Mode::Writes).is_ok()
            && (0..ROUNDS).all(|_| protect(true) && protect(false))
    });
    drop(faults);
    area.touch(2);
    mutations.during(Kind::Unmap, || area.unmap());
}

/// Moves pages to a place that has none.
pub(crate) fn shift(mutations: &Mutations) {
    let (Some(from), Some(to), Ok(faults)) = (area(), area(), Userfaults::open()) else { return };
    from.touch(1);
    mutations.during(Kind::UserfaultMove, || {
        faults.register(&range(to), Mode::Missing).is_ok()
            && faults.shift(to.start as u64, &range(from)).is_ok()
    });
    drop(faults);
    mutations.during(Kind::Unmap, || to.unmap() & from.unmap());
}
