//! Exports are imported again, and must equal the original exactly.

mod common;
mod corpus;
mod damo;
mod identity;
#[cfg(feature = "parquet")]
mod parquet;
