//! Ordinary targets that instruments may misjudge (scenarios `shared` and `targets`): memory that
//! many processes share, naps, growth, threads, reservations, swap, huge pages, sparse heat. The
//! programs say which addresses are hot; the recording is compared with them. TLBs are flushed by
//! the instrument alone.
//!
//! | file | contents |
//! | --- | --- |
//! | `case.rs` | the cases and their bars |
//! | `truth.rs` | which addresses are hot in a window |
//! | `judged.rs` | figures of a recording, and the rows |

mod case;
mod judged;
mod truth;

use std::path::Path;

use self::case::Case;
pub(in crate::bench::accuracy) use self::case::chosen;
use self::judged::Judged;
use super::measure_missing;
use crate::bench::boot::boot;
use crate::bench::rows::{Row, Table};
use crate::bench::section::Inputs;
use crate::error::Result;

/// Measures the rows that are not yet in the table; returns the names of cases that failed.
///
/// # Errors
/// The table cannot be written.
pub(in crate::bench::accuracy) fn bench(
    cases: &[&Case],
    inputs: &Inputs<'_>,
    table: &mut Table,
    path: &Path,
) -> Result<Vec<String>> {
    let title = |case: &&Case| case.title();
    measure_missing(cases, title, table, path, |case| measure(case, inputs))
}

fn measure(case: &Case, inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let label = case.title().replace(' ', "-");
    let out = boot(inputs, case.scenario, &format!("-{label}"), |scenario| {
        case.parameters().into_iter().try_for_each(|set| scenario.assign(set))
    })?;
    let command = format!("target/debug/lab bench accuracy --only '{}'", case.title());
    Judged::open(&out)?.rows(case, &command)
}
