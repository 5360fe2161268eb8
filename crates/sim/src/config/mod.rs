//! Configuration of both modes apart from the hardware ([`tierscope_hw::Machine`]): costs of
//! software, and sampling of accesses.
//!
//! Every table names the `source` of its numbers, and under `assumed` its keys without a source. No
//! number is fitted to a result.

mod costs;
mod sampling;

pub use costs::{
    AccessBitCosts, Address, CallCosts, Costs, FaultCosts, KernelRegion, MoveCosts, RegisterCosts,
    SampleCosts, ShootdownCosts, SwapCosts, Tick, ZswapCosts,
};
pub use sampling::{Event, Period, Sampling};
