//! What an instrument or a policy requires of a machine.

use std::fmt;

/// Kind of evidence that an instrument or a policy works on. Machines are opened by it: a port that
/// no part of a run needs is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// An instrument's snapshots.
    Regions,
    /// Regions made by another program: the kernel's DAMON, an imported recording.
    RegionSource,
    /// ACCESSED bits.
    AccessBits,
    /// Sampled accesses.
    Samples,
    /// Hint faults.
    HintFaults,
    /// Allocations, frees, locks, accesses by system calls.
    PageEvents,
    /// Watermarks of tiers.
    Pressure,
    /// Programmable counters in the memory controllers.
    Counters,
    /// Hot lists of monitoring units in memory devices.
    HotLists,
}

/// The name in errors and tables.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Regions => "regions",
            Need::RegionSource => "kernel regions",
            Need::AccessBits => "access bits",
            Need::Samples => "samples",
            Need::HintFaults => "hint faults",
            Need::PageEvents => "page events",
            Need::Pressure => "pressure figures",
            Need::Counters => "counters",
            Need::HotLists => "hot lists",
        })
    }
}
