//! Real kernels in QEMU: fetched, booted in seconds, given one job, judged by
//! its exit status and by the kernel's own console.
//!
//! The lab is the only crate that starts virtual machines. Running a scenario does not depend on
//! instruments or recordings: the scenario's job calls the programs that use them.

pub mod accuracy;
pub mod bench;
pub mod command;
pub mod console;
pub mod cpio;
pub mod error;
pub mod fetch;
pub mod figures;
pub mod first_light;
pub mod guest;
pub mod initramfs;
pub mod instrumented;
pub mod kbuild;
pub mod kernels;
pub mod machine;
pub mod modules_dep;
pub mod paths;
pub mod progress;
pub mod run;
pub mod scenario;
pub mod suite;
pub mod support;
pub mod topology;
pub mod user;
pub mod vm;
