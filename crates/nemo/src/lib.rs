//! Programmable telemetry in the memory controller (NEMO: Nimble and Expressive Memory
//! Observability), after the paper's sections 3, 4 and 6.
//!
//! Every request that a memory controller serves passes its [`program`]med *pipelines*: match (a
//! filter, a key through a translation table, an offset), update (an operator on the matched
//! state), notify (a predicate on the updated state). [`cycle`] models them cycle by cycle,
//! [`functional`] computes the same results fast; both are an [`Engine`], and any engine has a
//! [`driver::Driver`], which installs rules, restricts what they may see, and folds the states of
//! all channels and controllers into one view.
//!
//! Deviations from the paper, and their reasons:
//! - No load of the telemetry region has an effect, since caches prefetch: reading with effect
//!   captures first ([`region`]).
//! - Only the home bank begins with a rule's initial value; all others begin with the operator's
//!   identity, so that shifts and resets fold exactly ([`tierscope_core::Operator::combine`]).
//! - A bank's trigger is its share of the rule's threshold, so that no crossing of a sum is missed;
//!   the driver confirms a hint by reading the folded value ([`driver::Driver::dispatch`]).
//! - A table entry is indexed by the key minus the pipeline's first key: memory with more keys
//!   takes several pipelines, as more states do ([`driver`]).
//!
//! Speed of the functional model: `cargo bench -p tierscope-nemo`.
//!
//! Invariant: requests are observed, never delayed. No interface here returns anything to the
//! memory's data path: an observer gets a shared slice, so that no configuration can change an
//! access's latency.

pub mod cycle;
pub mod driver;
pub mod engine;
pub mod functional;
pub mod geometry;
pub mod memory;
pub mod moments;
pub mod plan;
pub mod program;
pub mod region;
pub mod registers;
pub mod sketch;
pub mod top;

pub use cycle::Cycle;
pub use driver::{Driver, Spec};
pub use engine::{At, Control, Engine, Line, Status};
pub use functional::Functional;
pub use geometry::Geometry;
pub use memory::{Destination, Memory, Zone};
pub use moments::Moments;
pub use plan::Plan;
pub use program::{Hint, Program};
pub use region::Region;
pub use sketch::CountMin;
pub use top::TopK;
