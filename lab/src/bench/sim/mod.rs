//! `make bench-sim`: checks and speed of the simulated machine, written to target/bench/sim.json.
//!
//! | file | its sections |
//! |---|---|
//! | `speed` | accesses a second, layer by layer, and memory of the host |
//! | `accuracy` | instruments in density mode: time, accuracy, cost |
//! | `machine` | the machine compared with oracles, itself and its configuration |
//! | `same` | one workload on a real kernel and in exact mode |

mod accuracy;
mod machine;
mod same;
mod speed;

use crate::bench::section::Section;

pub use same::check;

/// The sections, in order of execution.
pub(super) const SECTIONS: &[Section] = &[
    Section { name: "speed: TLB-friendly", measure: speed::friendly },
    Section { name: "speed: 1 TiB hotspot", measure: speed::hotspot },
    Section { name: "speed: 1 TiB uniform", measure: speed::uniform },
    Section { name: "speed: 4 TiB uniform", measure: speed::four },
    Section { name: "speed: 5 TiB uniform", measure: speed::five },
    Section { name: "density: 5 TiB", measure: accuracy::terabytes },
    Section { name: "density: 1 PiB", measure: accuracy::petabyte },
    Section { name: "accuracy: stairs", measure: accuracy::stairs },
    Section { name: "accuracy: needle", measure: accuracy::needle },
    Section { name: "accuracy: DAMON at 1 GB", measure: accuracy::damon_where_it_works },
    Section { name: "claims", measure: accuracy::claims },
    Section { name: "exactness", measure: machine::exactness },
    Section { name: "agreement", measure: machine::agreement },
    Section { name: "same seed", measure: machine::same_seed },
    Section { name: "tiers", measure: machine::tiers },
    Section { name: "same: 64mb-of-1gb", measure: same::small },
    Section { name: "same: 1gb-of-8gb", measure: same::medium },
    Section { name: "same: 10gb-of-256gb", measure: same::large },
];
