//! The hotness monitoring unit of CXL memory devices (CHMU; CXL 3.2, section 8.2.8): registers, a
//! model of the device, and a driver.
//!
//! The specification defines the interface, registers and a ring of hot units, and leaves to the
//! implementer how requests are counted. Offsets and field names are those of the driver that
//! Jonathan Cameron posted to linux-cxl ("CXL Hotness Monitoring Unit perf driver", RFC of
//! 2024-11-21), and of the emulation in QEMU that he posted on 2025-01-24.
//!
//! | file | holds |
//! | --- | --- |
//! | `registers.rs` | offsets and fields |
//! | `capabilities.rs` | what an implementation supports, and the bytes of state that it takes |
//! | `tracker.rs` | counters: our choice of two ways to give few counters to many units |
//! | `hot_list.rs` | the ring |
//! | `block.rs` | the register block of a device: epochs, downsampling, interrupts |
//! | `driver.rs` | the client: programs a block, refuses what it cannot hold, reads its hot list |
//! | `monitors.rs` | the blocks of all devices of a machine, as an observer of its memory bus |
//!
//! Not modelled: several instances a block, randomized downsampling, interleaving over devices
//! (each device serves one range of physical memory), TEE requests (all requests count as not of
//! one).

mod block;
mod capabilities;
mod driver;
mod hot_list;
mod monitors;
pub mod registers;
mod tracker;

pub use block::Block;
pub use capabilities::Capabilities;
pub use driver::{Driver, Registers};
pub use monitors::Monitors;
pub use tracker::Allocation;
