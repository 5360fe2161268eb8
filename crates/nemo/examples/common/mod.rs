//! Shared by the examples: a driver of the prototype on the functional model, and requests.

use tierscope_core::{BusRecord, Result, Rng, Time};
use tierscope_nemo::{Driver, Functional, Memory};

/// Bytes of a huge page.
pub(crate) const HUGE: u64 = 1 << 21;

/// 16 GiB behind one controller of two channels with eight pipelines (NEMO, section 4).
pub(crate) fn prototype() -> Result<Driver<Functional>> {
    Ok(Driver::new(Functional::new(Memory::single(16 << 30, 2)?, 8, 64)?))
}

/// Reads of random lines of `bytes` from `start` on.
pub(crate) fn reads(start: u64, bytes: u64, count: u64) -> Vec<BusRecord> {
    let mut rng = Rng::seeded(start ^ count);
    (0..count).map(|n| BusRecord::new(Time(n), start + (rng.below(bytes) & !63), false)).collect()
}
