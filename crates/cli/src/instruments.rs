//! Instruments that can watch a live target: those of the registry, and the kernel's own DAMON.

use tierscope_core::{Instrument, Result};
use tierscope_instruments::registry::{self, Common, CostClass, Entry, Variant};

use crate::kernel_damon;

/// The choice of an instrument is left to the machine: [`crate::plan::Plan::settle`] makes it.
pub(crate) static AUTO: Entry = Entry {
    name: "auto",
    about: "the best that this machine offers: rates, else pebs, else kernel-damon",
    needs: &[],
    granularity: "",
    variants: &[Variant { name: "auto", about: "", cost: CostClass::Bounded }],
    removed: &[],
    make: first_choice,
};

/// The first choice of [`AUTO`]: what is invalid for it is refused before a choice is made.
fn first_choice(_: &str, common: &Common) -> Result<Box<dyn Instrument>> {
    registry::make(registry::list()[0].name, None, common)
}

/// All of them, in display order.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> + Clone {
    registry::list().iter().chain([&kernel_damon::ENTRY])
}

/// Finds an instrument, or [`AUTO`], by name.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Usage`], with the known names.
pub(crate) fn by_name(name: &str) -> Result<&'static Entry> {
    registry::find([&AUTO].into_iter().chain(all()), name)
}

/// The instrument for these arguments. A variant without an instrument is one of the first choice.
///
/// # Errors
/// As [`by_name`].
pub(crate) fn asked(name: Option<&str>, variant: Option<&str>) -> Result<&'static Entry> {
    match (name, variant) {
        (Some(name), _) => by_name(name),
        (None, Some(_)) => Ok(&registry::list()[0]),
        (None, None) => Ok(&AUTO),
    }
}
