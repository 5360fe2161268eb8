//! What both modes are made of, beside the hardware ([`tierscope_hw::Machine`]): what software
//! costs, and how accesses are sampled.
//!
//! Every table names the `source` of its numbers, and under `assumed` those of its keys that no
//! source gives. Nothing here is fitted to a result.

mod costs;
mod sampling;

pub use costs::{
    AccessBitCosts, Address, CallCosts, Costs, FaultCosts, KernelRegion, MoveCosts, RegisterCosts,
    SampleCosts, ShootdownCosts, SwapCosts, Tick, ZswapCosts,
};
pub use sampling::{Event, Period, Sampling};
