//! What goes out comes back equal, to the last count.

mod common;
mod corpus;
mod damo;
#[cfg(feature = "parquet")]
mod parquet;
