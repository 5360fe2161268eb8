//! Instruments that can watch a live target: those of the registry, and the kernel's own DAMON.

use tierscope_core::Result;
use tierscope_instruments::registry::{self, Entry};

use crate::kernel_damon;

/// All of them, in display order.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    registry::list().iter().chain([&kernel_damon::ENTRY])
}

/// Finds an instrument by name.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Usage`], with the known names.
pub(crate) fn by_name(name: &str) -> Result<&'static Entry> {
    registry::find(all(), name)
}
