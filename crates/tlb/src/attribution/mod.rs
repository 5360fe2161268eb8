//! Which objects, functions and pages of programs miss the TLB: a model of a machine's MMUs counts
//! the misses of a trace of accesses, and misses of any origin are summed by object.

mod accesses;
mod baseline;
mod model;
mod nested;
mod objects;
mod spread;
mod table;

pub use accesses::{All, CodeAddress, Listener, Seen, Threads};
pub use baseline::Baseline;
pub(crate) use model::Tables;
pub use model::{Counts, Model, Placement};
pub use nested::Second;
pub(crate) use nested::{Side, Step};
pub use objects::{Object, Objects};
pub use spread::Spread;
pub(crate) use table::{LARGER, table};
pub use table::{Owned, Place, Row, Table, UNIT};
