//! TLB misses of programs: how often and for which memory they occur, and what would save them.
//!
//! - [`ptat`]: captures of a monitor on the memory bus, and their parser;
//! - [`capture`]: captures of simulated machines, and of the instrumented virtual machine;
//! - [`record`]: every access of an unmodified program, under QEMU's user emulation;
//! - [`attribution`]: misses by object, function and page, also of a trace of accesses, by a model
//!   of a machine's MMUs;
//! - [`advice`]: what larger pages, or another machine, would save;
//! - [`report`]: all of that together.
//!
//! Nothing here prints or reads arguments.

pub mod advice;
pub mod attribution;
pub mod capture;
pub mod ptat;
pub mod record;
pub mod report;
