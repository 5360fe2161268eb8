//! Exports are imported again, and must equal the original exactly.

mod common;
mod corpus;
mod damo;
#[cfg(feature = "parquet")]
mod parquet;
