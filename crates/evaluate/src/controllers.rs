//! Memory controllers for simulated machines.

use tierscope_core::Result;
use tierscope_nemo::{Driver, Functional, Geometry, Memory, Zone};

/// Memory controllers like the paper's largest deployment, one for each range of physical memory.
///
/// # Errors
/// The ranges are invalid.
pub(crate) fn controllers(memory: &[(u64, u64)]) -> Result<Driver<Functional>> {
    let Geometry { pipelines, channels, banks } = Geometry::PROTOTYPE;
    let zone = |(first, (start, end)): (usize, &(u64, u64))| Zone {
        start: *start,
        end: *end,
        first,
        controllers: 1,
        granule: 4096,
    };
    let memory = Memory::new(memory.iter().enumerate().map(zone).collect(), channels)?;
    Ok(Driver::new(Functional::new(memory, pipelines, banks)?))
}
