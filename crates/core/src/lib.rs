//! The vocabulary that all crates of tierscope share.
//!
//! An [`Instrument`] turns a target's evidence into [`Snapshot`]s; a [`Policy`] turns [`Evidence`]
//! into [`Orders`]; a [`Mover`] carries them out; a [`drive::Sink`] records both. [`drive`] holds
//! the loops that connect them. None of them learns where it runs: time, ACCESSED bits, samples and
//! counters come through the [`ports`] of a machine, be it a live Linux, a simulated machine or a
//! replayed trace.
//!
//! Invariant: nothing here names an operating system, a file, the wall clock or a process id.

mod addr;
mod bus;
mod charges;
pub mod drive;
mod error;
mod evidence;
pub mod footprint;
mod heat;
mod hot_list;
mod instrument;
mod mapping;
pub mod metrics;
pub mod mover;
pub mod names;
mod need;
mod orders;
mod policy;
pub mod ports;
mod radix;
mod ranges;
mod region;
mod residence;
mod rng;
mod rule;
pub mod session;
mod tenants;
mod time;
pub mod units;

pub use addr::{Addr, Range, SpaceId};
pub use bus::BusRecord;
pub use charges::Charge;
pub use error::{Error, ErrorKind, Missing, Result};
pub use evidence::{
    Access, Evidence, HintFault, Lost, PageEvent, PageEventKind, Pressure, Sample, TierPressure,
    TierReads,
};
pub use heat::Heat;
pub use hot_list::{HotLists, HotProgram, HotUnit, Reporting};
pub use instrument::{Instrument, Reads, Setting, Step};
pub use mapping::{Backing, Mapping, Mappings, Object, SharedView, Space};
pub use need::Need;
pub use orders::{Action, ActionId, ActionKind, Failure, Orders, Outcome, RuleOrder, ScanOrder};
pub use policy::{Budget, Mover, PageId, PlacementView, Policy, Tier, TierUse};
pub use ports::{
    AccessBits, AccessedSet, BusObserver, Clock, Counters, CpuTime, Flushed, FrameRun, Frames,
    HintFaults, Judged, LeafKind, Notice, PageEvents, Ports, Probe, ProbeOp, RegionSource,
    RegisterWork, RuleId, Samples, ScanMode, ScanStats, State, Target, Wake,
};
pub use radix::{Level, LevelSet, PAGE_SHIFT, PAGE_SIZE, Radix};
pub use ranges::RangeSet;
pub use region::{CONFIRMED, Rate, Region, Snapshot, Unknown};
pub use residence::{Extent, Node, OnNode, Placed, Residence, SpaceResidence, distribute};
pub use rng::Rng;
pub use rule::{
    Builder as RuleBuilder, Cell, Compare, Filter, Key, Limits as RuleLimits, Loss, Operand,
    Operator, ReadEffect, RequestField, RequestKind, Rule, Trigger,
};
pub use tenants::{TenantPolicy, TenantUse, Tenants};
pub use time::Time;
