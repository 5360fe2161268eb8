//! Holds of the module's locks, as reports of programs show them.

use serde::{Deserialize, Serialize};
use tierscope_linux::abi;

/// Holds of one kind of lock: their number, percentiles of their lengths and the longest.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Holds {
    /// Number of holds.
    pub count: u64,
    /// Half of them were at most as long, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 were at most as long, in microseconds.
    pub p99_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

impl From<&abi::Holds> for Holds {
    fn from(holds: &abi::Holds) -> Self {
        let us = |share: f64| holds.percentile(share).as_secs_f64() * 1e6;
        let max_us = holds.ns_max as f64 / 1e3;
        Self { count: holds.count(), p50_us: us(0.5), p99_us: us(0.99), max_us }
    }
}
