//! Test programs that access real memory, and the library that they share with the lab.
//!
//! `toucher` accesses memory as a workload of `tierscope-workloads` describes and writes the ground
//! truth of hot ranges over time. The format of that truth is in `tierscope_workloads::truth_dir`:
//! the `tierscope` command reads it, and no part of the command depends on this crate.
//!
//! `redis-load` obtains the ground truth of a key-value store from outside the server: it chooses
//! which keys are hot, marks every value ([`value`]), loads the server ([`client`]) with reads,
//! updates and a scan ([`operations`]), and finds the values in the server's memory
//! ([`server_truth`]).

pub mod checksum;
pub mod client;
pub mod filler;
pub mod memcached;
pub mod numa_nodes;
pub mod operations;
pub mod proc_mem;
pub mod resp;
pub mod server_truth;
pub mod value;
