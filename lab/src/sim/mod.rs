//! `make bench-sim`: checks and speed of the simulated machine, written to target/bench/sim.json.
//!
//! | file | its chapters |
//! |---|---|
//! | `speed` | accesses a second, layer by layer, and memory of the host |
//! | `accuracy` | instruments in density mode: time, accuracy, cost |
//! | `machine` | the machine compared with oracles, itself and its configuration |
//! | `same` | one workload on a real kernel and in exact mode |

mod accuracy;
mod machine;
mod same;
mod speed;

use crate::chapters::{self, Chapter};
use crate::error::Result;
use crate::kernels::Matrix;

pub use same::check;

/// The chapters of `bench-sim`, in order of execution.
const CHAPTERS: &[Chapter] = &[
    Chapter { name: "speed: TLB-friendly", measure: speed::friendly },
    Chapter { name: "speed: 1 TiB hotspot", measure: speed::hotspot },
    Chapter { name: "speed: 1 TiB uniform", measure: speed::uniform },
    Chapter { name: "speed: 4 TiB uniform", measure: speed::four },
    Chapter { name: "speed: 5 TiB uniform", measure: speed::five },
    Chapter { name: "density: 5 TiB", measure: accuracy::terabytes },
    Chapter { name: "density: 1 PiB", measure: accuracy::petabyte },
    Chapter { name: "accuracy: stairs", measure: accuracy::stairs },
    Chapter { name: "accuracy: needle", measure: accuracy::needle },
    Chapter { name: "accuracy: DAMON at 1 GB", measure: accuracy::damon_where_it_works },
    Chapter { name: "claims", measure: accuracy::claims },
    Chapter { name: "exactness", measure: machine::exactness },
    Chapter { name: "agreement", measure: machine::agreement },
    Chapter { name: "same seed", measure: machine::same_seed },
    Chapter { name: "tiers", measure: machine::tiers },
    Chapter { name: "same: 64mb-of-1gb", measure: same::small },
    Chapter { name: "same: 1gb-of-8gb", measure: same::medium },
    Chapter { name: "same: 10gb-of-256gb", measure: same::large },
];

/// Runs the chapters that are not yet in the file and whose name contains `only`.
///
/// # Errors
/// At least one chapter could not be measured; the others were.
pub fn bench(matrix: &Matrix, only: &str) -> Result<()> {
    chapters::run("sim", CHAPTERS, matrix, only)
}
