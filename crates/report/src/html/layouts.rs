//! Mappings over time, with their names, which the page shows under the pointer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tierscope_core::{Backing, Mappings};
use tierscope_record::Recording;

use super::ruler::Ruler;
use crate::names::label;
use crate::view::{View, since_start};

/// Maximum number of moments for which the page holds the mappings.
pub(super) const MOMENTS: usize = 64;
/// Maximum number of mappings over all moments; the last moment is always included.
const MAPPINGS: usize = 20_000;

/// Spaces and mappings through time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Layouts {
    /// Distinct names of the mappings.
    names: Vec<String>,
    /// Moments in order of time; each is valid until the next.
    moments: Vec<Moment>,
}

/// The mappings from a moment on.
#[derive(Debug, Serialize)]
struct Moment {
    from: u64,
    /// First unit, one past the last unit, and index of the name.
    mappings: Vec<(u32, u32, usize)>,
}

/// The layouts in `seen`, each valid from its window on.
pub(super) fn layouts(
    recording: &Recording,
    seen: &[(usize, Arc<Mappings>)],
    view: &View,
    ruler: &Ruler,
) -> Layouts {
    let mut every = 1;
    let count = |every: usize| {
        seen.iter().rev().step_by(every).map(|(_, layout)| layout.mappings.len()).sum::<usize>()
    };
    while count(every) > MAPPINGS && every < seen.len() {
        every *= 2;
    }
    let mut numbers = BTreeMap::new();
    let mut moments: Vec<Moment> = Vec::new();
    for (window, layout) in seen.iter().rev().step_by(every) {
        let from = since_start(recording, recording.commits()[*window].start).as_nanos() as u64;
        let mut mappings = Vec::new();
        for mapping in layout.mappings.iter().filter(|m| m.backing != Backing::Kernel) {
            let next = numbers.len();
            let name = *numbers.entry(label(mapping).to_owned()).or_insert(next);
            for range in view.clip(&mapping.range) {
                mappings.extend(ruler.place(range).map(|(first, past)| (first, past, name)));
            }
        }
        moments.push(Moment { from, mappings });
    }
    moments.reverse();
    let mut names = vec![String::new(); numbers.len()];
    numbers.into_iter().for_each(|(name, number)| names[number] = name);
    Layouts { names, moments }
}
