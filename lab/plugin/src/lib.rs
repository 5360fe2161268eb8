//! The instrumented virtual machine: a plugin of QEMU's code generator.
//!
//! It sees every access of the guest and derives events of real machines: hits and misses of a
//! last-level cache, latency and bandwidth of the nodes, TLB misses with the page-table entry used,
//! counters of a telemetry device, touches of pages per address space, and a raw trace. Each part
//! is enabled by name in one file ([`options::Options`]); disabled parts cost nothing, because the
//! code for an access is specialised for the enabled ones ([`vcpu`]).
//!
//! The lab starts the plugin with `-plugin libtierscope_plugin.so,options=FILE`; all shared memory
//! is in files of one directory, which the lab creates and removes. The plugin runs in system
//! emulation and, for unmodified programs, in user emulation, where only parts that need no guest
//! kernel are available.
//!
//! Invariants: no record is lost silently; dependencies on QEMU's internals are proven at runtime
//! before they are used ([`qemu_state`]), and parts that depend on unproven ones stay off with a
//! message ([`log`]); a callback never panics across QEMU.

pub mod allocations;
pub mod calls;
pub mod clock;
pub mod controllers;
pub mod counters;
pub mod device;
pub mod functions;
pub mod interrupts;
pub mod log;
pub mod mappings;
pub mod memory;
pub mod opcode;
pub mod options;
pub mod qemu_state;
pub mod run;
pub mod shared;
pub mod tiers;
pub mod tlb;
pub mod vcpu;
