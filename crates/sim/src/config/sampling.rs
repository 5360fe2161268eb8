//! Sampling of accesses.

use std::time::Duration;

use serde::Deserialize;

/// A counted event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Retired loads (`MEM_INST_RETIRED.ALL_LOADS`).
    Loads,
    /// Retired stores (`MEM_INST_RETIRED.ALL_STORES`).
    Stores,
    /// Retired loads that missed the last-level cache (`MEM_LOAD_L3_MISS_RETIRED`).
    LoadMisses,
}

/// Sampling period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Every n-th event of a core.
    Every(u64),
    /// A number of samples a second on a busy core: the period is adjusted at each timer tick
    /// (kernel/events/core.c, `perf_adjust_period`).
    PerSecond(u64),
}

/// Configuration of the sampling hardware and of the kernel that reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Counted events, each with a counter of its own.
    pub events: Vec<Event>,
    /// Sampling period of each event.
    pub period: Period,
    /// Records in the hardware's buffer at which it interrupts.
    pub hardware_buffer: u32,
    /// Samples in the reader's ring of each core; further ones are lost.
    pub ring: u32,
    /// Samples a second and core above which the kernel throttles until the next tick
    /// (`perf_event_max_sample_rate`).
    pub max_rate: u64,
    /// Period of the kernel's timer tick.
    pub tick: Duration,
}

impl Sampling {
    /// Loads and stores, with the kernel's defaults: throttled at 100,000 samples a second, 250
    /// ticks a second, a ring of 512 KiB of 40-byte records (`perf_event_mlock_kb` of 516), and a
    /// hardware buffer that interrupts at each record, which is necessary if every record is to
    /// have a time of its own (`PERF_SAMPLE_TIME` without large PEBS).
    #[must_use]
    pub fn loads_and_stores(period: Period) -> Self {
        Self {
            events: vec![Event::Loads, Event::Stores],
            period,
            hardware_buffer: 1,
            ring: 13_107,
            max_rate: 100_000,
            tick: Duration::from_millis(4),
        }
    }
}
