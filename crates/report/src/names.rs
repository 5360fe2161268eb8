//! Mappings by their names.

use std::ops::Range as Span;

use tierscope_core::{Error, ErrorKind, Mapping, RangeSet, Result};
use tierscope_record::{Recording, backing_name};

use crate::view::View;

/// Windows that are asked for a name, besides the last one.
const ASKED: usize = 256;

/// What people call a mapping: its name, or what stands behind it.
pub(crate) fn label(mapping: &Mapping) -> &str {
    match &*mapping.name {
        "" => backing_name(mapping.backing),
        name => name,
    }
}

/// Everything in view that was ever mapped under `name`: `heap`, `stack`, `anon`, `file`, the
/// kernel's own name (`[heap]`), a path, or the last part of a path (`libc.so.6`).
///
/// Where there are many windows, evenly spaced ones are asked and the last.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is no such mapping; else as [`crate::summary`].
pub fn ranges_named(recording: &Recording, view: &View, name: &str) -> Result<RangeSet> {
    let windows = view.windows(recording)?;
    let mut found = Vec::new();
    let mut known = Vec::new();
    each_layout(recording, windows, |mappings| {
        let named = mappings.iter().filter(|mapping| is_called(mapping, name));
        found.extend(named.map(|mapping| mapping.range));
        known.extend(mappings.iter().map(|mapping| label(mapping).to_owned()));
        known.sort_unstable();
        known.dedup();
    })?;
    match found.is_empty() {
        true => Err(unknown(name, &known)),
        false => Ok(found.into_iter().collect()),
    }
}

fn each_layout(
    recording: &Recording,
    windows: Span<usize>,
    mut take: impl FnMut(&[Mapping]),
) -> Result<()> {
    let step = windows.len().div_ceil(ASKED).max(1);
    let mut before = None;
    for window in windows.clone().step_by(step).chain([windows.end - 1]) {
        let number = recording.commits()[window].layout;
        if before != Some(number) {
            take(&recording.layout(window)?.mappings);
            before = Some(number);
        }
    }
    Ok(())
}

fn is_called(mapping: &Mapping, name: &str) -> bool {
    let own = &*mapping.name;
    let last = own.rsplit('/').next().unwrap_or(own);
    name == backing_name(mapping.backing) || (!own.is_empty() && (own == name || last == name))
}

fn unknown(name: &str, known: &[String]) -> Error {
    const SHOWN: usize = 8;
    let mut some: Vec<&str> = known.iter().map(String::as_str).take(SHOWN).collect();
    if known.len() > SHOWN {
        some.push("…");
    }
    Error::new(ErrorKind::Usage, format!("no mapping is called {name}"))
        .cause(format!(
            "there are {}",
            if some.is_empty() { "none".into() } else { some.join(", ") }
        ))
        .remedy("give one of these names, or addresses like 0x7f0000000000..0x7f8000000000")
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
