//! What was mapped when, with names, for the page to show under the pointer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tierscope_core::{Backing, Mappings};
use tierscope_record::Recording;

use super::ruler::Ruler;
use crate::names::label;
use crate::view::{View, since_start};

/// Moments at which the page knows the mappings, at most.
pub(super) const MOMENTS: usize = 64;
/// Mappings over all moments, at most; the last moment is always there.
const MAPPINGS: usize = 20_000;

/// Spaces and mappings through time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Layouts {
    /// Every name once.
    names: Vec<String>,
    /// In order of time; each holds until the next.
    moments: Vec<Moment>,
}

/// Mappings from a moment on.
#[derive(Debug, Serialize)]
struct Moment {
    from: u64,
    /// First unit, the one past the last, and the name.
    mappings: Vec<(u32, u32, usize)>,
}

/// The mappings in force from these windows on.
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
