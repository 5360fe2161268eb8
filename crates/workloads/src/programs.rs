//! Programs by a line: `gups:table=1GiB,threads=4`.
//!
//! | name | meaning | keys of its own |
//! |---|---|---|
//! | `bfs`, `sssp`, `pr`, `cc`, `bc`, `tc` | GAPBS's kernels ([`crate::graph`]) | `trials` |
//! | `graph500` | Graph500's search | `keys`, `validate` |
//! | `gups` | HPCC RandomAccess ([`crate::random_access`]) | `table`, `updates` |
//! | `flexkvs`, `faster`, `silo`, `memcached`, `redis` | key-value stores | [`crate::store`] |
//!
//! `sssp` also has the key `delta`, and `bc` the key `iterations`.
//!
//! All programs have the key `threads`: the number of threads. Graph programs also have `graph`
//! (`kron` or `uniform`), `scale`, `degree`, `seed` (of the graph) and `load` (`false`: the graph
//! is in memory at the start, without accesses that write it).

use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, Result};

use crate::spec::{Keys, Parsed};
use crate::{App, Workload, generate, graph, random_access, store, work};

/// A family of programs with one constructor.
pub(crate) struct Family {
    /// Names of the programs.
    pub(crate) names: &'static [&'static str],
    /// Builds the program of that name, taking the keys that it knows from the line.
    pub(crate) build: fn(&str, &mut Keys<'_>) -> Parsed<Arc<dyn App>>,
}

const FAMILIES: [Family; 3] = [graph::FAMILY, random_access::FAMILY, store::FAMILY];

/// The names of all programs, as [`from_spec`] accepts them.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.names).copied()
}

/// Whether a line names a program.
#[must_use]
pub fn knows(spec: &str) -> bool {
    let name = name_of(spec);
    names().any(|known| known == name)
}

/// Builds a program from `NAME:key=value,…`.
///
/// # Errors
/// [`ErrorKind::Usage`] with the column, for an unknown name or key, or an invalid value.
pub fn from_spec(spec: &str) -> Result<Arc<dyn App>> {
    build(spec).map_err(|(column, cause)| {
        Error::new(ErrorKind::Usage, format!("program `{spec}`, column {column}"))
            .cause(cause)
            .remedy(format!("give NAME:key=value,… with one of {}", work::listed(names())))
    })
}

/// A description with the same accesses as a program.
///
/// # Errors
/// The line is invalid, or the program's accesses depend on what it computes.
pub fn described(spec: &str) -> Result<Workload> {
    from_spec(spec)?.described().ok_or_else(|| {
        Error::new(ErrorKind::Usage, format!("`{spec}` cannot be described by densities"))
            .cause("it computes its accesses: they are not known beforehand")
            .remedy(format!(
                "run it on the exact machine, or take one of {}",
                generate::NAMES.join(", ")
            ))
    })
}

fn name_of(spec: &str) -> &str {
    spec.split_once(':').map_or(spec, |(name, _)| name)
}

fn build(spec: &str) -> Parsed<Arc<dyn App>> {
    let name = name_of(spec);
    let family = FAMILIES.iter().find(|family| family.names.contains(&name));
    let family = family.ok_or_else(|| (1, format!("there is no program `{name}`")))?;
    let rest = spec.get(name.len() + 1..).unwrap_or("");
    let mut keys = Keys::read(rest, name.chars().count() + 2)?;
    let app = (family.build)(name, &mut keys)?;
    keys.all_used(name)?;
    Ok(app)
}

/// Takes the key `threads`, which every program has; `None` if it is absent or 0.
pub(crate) fn threads(keys: &mut Keys<'_>) -> Parsed<Option<u32>> {
    let threads = keys.within("threads", 0, 0..=1024)?;
    Ok((threads > 0).then_some(threads))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop, proptest};

    #[test]
    fn errors_name_the_column() {
        let error = |spec: &str| from_spec(spec).unwrap_err().to_string();
        assert!(
            error("gups:table=3GiB").contains("column 6: table: "),
            "{}",
            error("gups:table=3GiB")
        );
        assert!(
            error("gups:table=1GiB,color=red").contains("column 17: `gups` has no key `color`")
        );
        assert!(error("gups:threads=0x").contains("`0x` is no number from 0 to 1024"));
        assert!(error("gaps:table=1GiB").contains("there is no program `gaps`"));
    }

    proptest! {
        #[test]
        fn any_text_is_made_or_refused(text: String, name in prop::sample::select(names().collect::<Vec<_>>())) {
            let _ = from_spec(&text);
            let _ = from_spec(&format!("{name}:{text}"));
        }
    }
}
