//! What this machine is set up for, of the mutations that do not work everywhere.

use std::fs;
use std::path::Path;

/// Each is read once in the life of a program.
#[derive(Clone, Copy)]
pub(crate) struct Offers {
    /// Huge pages in the pool of anonymous mappings.
    pub(crate) pool: bool,
    pub(crate) swap: bool,
    /// ksmd runs.
    pub(crate) merging: bool,
    /// There is a second node.
    pub(crate) nodes: bool,
}

impl Offers {
    pub(crate) fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            pool: !matches!(text("/proc/sys/vm/nr_hugepages").trim(), "" | "0"),
            swap: text("/proc/swaps").lines().count() > 1,
            merging: text("/sys/kernel/mm/ksm/run").trim() == "1",
            nodes: Path::new("/sys/devices/system/node/node1").exists(),
        }
    }
}
