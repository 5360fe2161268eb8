//! Real kernels in QEMU: fetched, booted in seconds, given one job, judged by
//! its exit status and by the kernel's own console.
//!
//! The lab is the only crate that starts virtual machines. Running a scenario does not depend on
//! instruments or recordings: the scenario's job calls the programs that use them.

#[cfg(feature = "full")]
pub mod accuracy;
#[cfg(feature = "full")]
pub mod bench;
pub mod command;
pub mod console;
#[cfg(feature = "full")]
pub mod debug;
pub mod error;
#[cfg(feature = "full")]
pub mod faults;
pub mod fetch;
#[cfg(feature = "full")]
pub mod figures;
pub mod first_light;
#[cfg(feature = "full")]
pub mod guest;
pub mod initramfs;
pub mod instrumented;
pub mod kbuild;
pub mod kernels;
#[cfg(feature = "full")]
pub mod machine;
pub mod modules_dep;
pub mod paths;
pub mod progress;
#[cfg(feature = "full")]
pub mod results;
pub mod run;
pub mod scenario;
#[cfg(feature = "full")]
pub mod suite;
#[cfg(feature = "full")]
pub mod support;
pub mod topology;
#[cfg(feature = "full")]
pub mod user;
pub mod vm;
