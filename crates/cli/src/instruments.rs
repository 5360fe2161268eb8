//! Instruments that can watch a live target: those of the registry, and the kernel's own DAMON.

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_instruments::registry::{self, Entry};

use crate::kernel_damon;

/// All of them, in display order.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    registry::list().iter().chain([&kernel_damon::ENTRY])
}

/// Finds an instrument by name.
///
/// # Errors
/// [`ErrorKind::Usage`], with the known names.
pub(crate) fn by_name(name: &str) -> Result<&'static Entry> {
    all().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|entry| entry.name).collect();
        Error::new(ErrorKind::Usage, format!("no instrument is called {name}"))
            .remedy(format!("choose one of {}", names.join(", ")))
    })
}
