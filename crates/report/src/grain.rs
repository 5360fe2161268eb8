//! Granularity: the size of the page-table entries by which hot memory was seen.

use std::collections::BTreeMap;

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::units;
use tierscope_core::{Region, Result};
use tierscope_record::Recording;

use crate::view::View;

/// Hot bytes by size of the entry, in bytes.
pub(crate) type Grains = BTreeMap<u64, u64>;

/// Hot bytes of a window, by the coarsest entries that gave evidence about them: within an entry
/// hot pages are not told apart from others. Empty for instruments without page-table levels.
///
/// # Errors
/// If the window cannot be read.
pub(crate) fn hot_by_entry(recording: &Recording, window: usize, view: &View) -> Result<Grains> {
    let mut grains = Grains::new();
    let regions = &recording.snapshot(window)?.regions;
    for region in regions.iter().filter(|region| region.is_hot(HOT_FREQUENCY)) {
        add(&mut grains, region, view.clip(&region.range).map(|part| region.bytes_of(&part)).sum());
    }
    Ok(grains)
}

fn add(grains: &mut Grains, region: &Region, bytes: u64) {
    if let (Some(level), true) = (region.level, bytes > 0) {
        *grains.entry(level.entry_bytes()).or_default() += bytes;
    }
}

/// One line; `None` if no memory is hot by a page-table entry.
pub(crate) fn line(grains: &Grains) -> Option<String> {
    let each = grains.iter().map(|(entry, bytes)| {
        format!("{} by entries of {}", units::about_size(*bytes), units::about_size(*entry))
    });
    let all: Vec<String> = each.collect();
    (!all.is_empty()).then(|| format!("granularity: hot in the last window {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Level, Range, SpaceId};

    #[test]
    fn hot_bytes_are_listed_by_entry() {
        let mut grains = Grains::new();
        let range = Range::new(SpaceId(0), 0, 1 << 21);
        let region = |level| Region { level, ..Region::sampled(range, 40.0, 40) };
        add(&mut grains, &region(Some(Level::PTE)), 16 << 10);
        add(&mut grains, &region(Some(Level::PMD)), 2 << 20);
        add(&mut grains, &region(Some(Level::PTE)), 16 << 10);
        add(&mut grains, &region(None), 4096);
        let text = "granularity: hot in the last window 32 KiB by entries of 4 KiB, 2 MiB by \
                    entries of 2 MiB";
        assert_eq!(line(&grains).as_deref(), Some(text));
        assert_eq!(line(&Grains::new()), None);
    }
}
