//! Names of mappings, and their ranges by name.

use std::collections::BTreeMap;
use std::ops::Range as Span;
use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, Mapping, Mappings, RangeSet, Result, SpaceId};
use tierscope_record::{Recording, backing_name};

use crate::view::View;

/// Maximum number of windows searched for a name, in addition to the last one.
pub(crate) const ASKED: usize = 256;

/// Display name of a mapping: its name, or its backing if it has none.
pub(crate) fn label(mapping: &Mapping) -> &str {
    match &*mapping.name {
        "" => backing_name(mapping.backing),
        name => name,
    }
}

/// Everything in the view that was ever mapped under `name`: `heap`, `stack`, `anon`, `file`, the
/// kernel's own name (`[heap]`), a path, or the last component of a path (`libc.so.6`).
///
/// If there are many windows, only evenly spaced ones and the last are searched.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is no such mapping; else same as [`crate::summary`].
pub fn ranges_named(recording: &Recording, view: &View, name: &str) -> Result<RangeSet> {
    let windows = view.windows(recording)?;
    let mut found = Vec::new();
    let mut known = BTreeMap::<String, u64>::new();
    for (_, layout) in distinct(recording, &windows, ASKED)? {
        for mapping in &layout.mappings {
            let bytes = known.entry(label(mapping).to_owned()).or_default();
            *bytes = (*bytes).max(mapping.range.bytes());
            found.extend(is_called(mapping, name).then_some(mapping.range));
        }
    }
    match found.is_empty() {
        true => Err(unknown(name, known)),
        false => Ok(found.into_iter().collect()),
    }
}

/// The distinct layouts at up to `most` evenly spaced windows and at the last one, each with the
/// first of these windows that has it.
pub(crate) fn distinct(
    recording: &Recording,
    windows: &Span<usize>,
    most: usize,
) -> Result<Vec<(usize, Arc<Mappings>)>> {
    let step = windows.len().div_ceil(most).max(1);
    let mut seen = Vec::new();
    let mut before = None;
    for window in windows.clone().step_by(step).chain([windows.end - 1]) {
        let number = recording.commits()[window].layout;
        if before != Some(number) {
            seen.push((window, recording.layout(window)?));
            before = Some(number);
        }
    }
    Ok(seen)
}

/// The name of a space in the last layout that has it: a process that has ended keeps its name.
pub(crate) fn space_name<'a>(
    layouts: impl DoubleEndedIterator<Item = &'a Arc<Mappings>>,
    space: SpaceId,
) -> String {
    let known = layouts.rev().find(|layout| layout.has_space(space));
    known.map_or_else(|| space.to_string(), |layout| layout.space_name(space).to_string())
}

fn is_called(mapping: &Mapping, name: &str) -> bool {
    let own = &*mapping.name;
    let last = own.rsplit('/').next().unwrap_or(own);
    name == backing_name(mapping.backing) || (!own.is_empty() && (own == name || last == name))
}

/// The error for an unknown name: lists the largest known ones.
fn unknown(name: &str, known: BTreeMap<String, u64>) -> Error {
    const SHOWN: usize = 6;
    let mut known: Vec<(String, u64)> = known.into_iter().collect();
    known.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut some: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).take(SHOWN).collect();
    if known.len() > SHOWN {
        some.push("…");
    }
    let there = if some.is_empty() { "none".into() } else { some.join(", ") };
    Error::new(ErrorKind::Usage, format!("no mapping is called {name}"))
        .cause(format!("there are {there}"))
        .remedy("give a name that is there, or addresses like 0x7f0000000000..0x7f8000000000")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Backing, Range, SpaceId};

    #[test]
    fn names_people_use() {
        let mapping = |backing, name: &str| Mapping {
            range: Range::new(SpaceId(0), 0, 4096),
            backing,
            name: name.into(),
            writable: true,
            object: None,
        };
        let heap = mapping(Backing::Heap, "[heap]");
        let libc = mapping(Backing::File, "/usr/lib/libc.so.6");
        let anon = mapping(Backing::Anonymous, "");
        assert!(["heap", "[heap]"].iter().all(|name| is_called(&heap, name)));
        assert!(
            ["libc.so.6", "/usr/lib/libc.so.6", "file"].iter().all(|name| is_called(&libc, name))
        );
        assert!(is_called(&anon, "anon") && !is_called(&anon, ""));
        assert!(!is_called(&libc, "libc") && !is_called(&libc, "anon"));
        assert_eq!([&heap, &libc, &anon].map(label), ["[heap]", "/usr/lib/libc.so.6", "anon"]);
    }
}
