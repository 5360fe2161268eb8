//! The instrumented virtual machine: a plugin of QEMU's code generator.
//!
//! It sees every access of the guest and makes of it what real machines make: hits and misses of a last-level
//! cache, the latency and the bandwidth of the node that a miss falls on, TLB misses with the entry that answered
//! them, counters of a telemetry device, counts of how often each address space touched its pages, a raw trace. Each
//! part is switched by name in one file ([`options::Options`]); what is off costs nothing, since the code of an
//! access is made for the parts that are on ([`vcpu`]).
//!
//! The plugin is started by the lab with `-plugin libtierscope_plugin.so,options=FILE`; all memory that it shares
//! with others lies in files of one directory, which the lab makes and removes. It runs in system emulation and,
//! for unmodified programs, in user emulation; there only what needs no guest kernel is there.
//!
//! Invariants: no record is lost silently; what depends on QEMU's insides is proven at the start before it counts
//! ([`inside`]), and what is not proven is off and said to be ([`said`]); a callback never panics across QEMU.

pub mod calls;
pub mod clock;
pub mod controllers;
pub mod counters;
pub mod device;
pub mod functions;
pub mod given;
pub mod inside;
pub mod interrupts;
pub mod mappings;
pub mod memory;
pub mod opcode;
pub mod options;
pub mod run;
pub mod said;
pub mod shared;
pub mod tiers;
pub mod tlb;
pub mod vcpu;
