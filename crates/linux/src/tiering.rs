//! Tiers of the live machine: page placement, memory pressure of nodes, and the mover.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tierscope_core::{Mappings, Node, PlacementView, Pressure, Result, Tier, TierPressure, Time};

use crate::mover::Layout;
pub use crate::mover::brakes;
use crate::mover::kernel::{Kernel, RunningKernel, watermarks};
pub use crate::mover::{Account, Cause, Limits, LiveMover, MoverHandle};
use crate::page_tiers::PageTiers;
use crate::space_owners::SpaceOwners;
pub use crate::tiers::TierConfig;
use crate::tiers::{find, tiers};

/// Minimum time between two readings of pressure and free memory.
const PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two readings of PSI, which the kernel updates every two seconds
/// (kernel/sched/psi.c: `PSI_FREQ`).
const STALLS: Duration = Duration::from_millis(500);
/// Minimum time between two readings of watermarks: on machines with many CPUs, zoneinfo is long.
const MARKS: Duration = Duration::from_secs(10);

/// The machine's state for tiering.
pub(crate) struct Tiering {
    page_tiers: PageTiers<RunningKernel>,
    mover: MoverHandle,
    kernel: RunningKernel,
    zones: PathBuf,
    layout: Layout,
    known: Pressure,
    /// Whether the kernel had PSI at the start.
    has_psi: bool,
    stalled: Option<Time>,
    /// Low and high watermark of each tier, and the time of their reading.
    marks: (Vec<(u64, u64)>, Option<Time>),
    refreshed: Option<Time>,
    read: Option<Time>,
}

/// The tiers that pages would be moved between, without moving any, to check a configuration.
///
/// # Errors
/// Those of [`crate::LiveMachine::with_tiers`].
pub fn check(config: &TierConfig) -> Result<Vec<Vec<Node>>> {
    find(Path::new("/sys"), config)
}

impl Tiering {
    pub(crate) fn open(
        config: &TierConfig,
        limits: Limits,
        owners: SpaceOwners,
    ) -> Result<(Self, LiveMover)> {
        let tiers = find(Path::new("/sys"), config)?;
        Self::over(tiers, config.capacity.clone(), limits, owners)
    }

    /// All nodes with memory as one tier, for reclaim without migration.
    pub(crate) fn of_one_tier(limits: Limits, owners: SpaceOwners) -> Result<(Self, LiveMover)> {
        let nodes: Vec<Node> = tiers(Path::new("/sys")).into_iter().flatten().collect();
        // A kernel without NUMA has only node 0.
        let nodes = if nodes.is_empty() { vec![Node(0)] } else { nodes };
        let (mut tiering, mover) = Self::over(vec![nodes], Vec::new(), limits, owners)?;
        tiering.page_tiers.disable_sweep();
        Ok((tiering, mover))
    }

    /// Nodes of each tier, fastest first.
    pub(crate) fn nodes(&self) -> Vec<Vec<Node>> {
        let nodes = |tier: &Vec<(Node, u64)>| tier.iter().map(|(node, _)| *node).collect();
        self.layout.tiers.iter().map(nodes).collect()
    }

    fn over(
        tiers: Vec<Vec<Node>>,
        capacity: Vec<Option<u64>>,
        limits: Limits,
        owners: SpaceOwners,
    ) -> Result<(Self, LiveMover)> {
        brakes::check(&limits)?;
        let zones = PathBuf::from("/proc/zoneinfo");
        let text = fs::read_to_string(&zones).unwrap_or_default();
        let mark = |node: Node| (node, watermarks(&text, node).0);
        let tiers = tiers.into_iter().map(|tier| tier.into_iter().map(mark).collect()).collect();
        let layout = Layout { tiers };
        let kernel = || RunningKernel::new(owners.clone());
        let has_psi = kernel().stalled().is_some();
        let mut page_tiers = PageTiers::new(kernel(), layout.clone(), capacity);
        page_tiers.set_keep_free(limits.keep_free);
        let mover = LiveMover::start(owners.clone(), layout.clone(), limits)?;
        let tiering = Self {
            page_tiers,
            mover: mover.handle(),
            kernel: kernel(),
            zones,
            layout,
            known: Pressure::default(),
            has_psi,
            stalled: None,
            marks: (Vec::new(), None),
            refreshed: None,
            read: None,
        };
        Ok((tiering, mover))
    }

    pub(crate) fn map(&mut self, mappings: &Mappings) {
        self.page_tiers.map(mappings);
    }

    pub(crate) fn placement(&mut self) -> &dyn PlacementView {
        self.refresh();
        &self.page_tiers
    }

    fn refresh(&mut self) {
        let (moved, keep_free) = self.mover.take_moved();
        self.page_tiers.set_keep_free(keep_free);
        let now = self.kernel.now();
        if !moved.is_empty() || self.refreshed.is_none_or(|last| now.since(last) >= PAUSE) {
            self.refreshed = Some(now);
            self.page_tiers.refresh(&moved);
        }
    }

    /// Watermarks are the kernel's, summed over a tier's nodes. With a capacity set, a policy may
    /// use less of a tier than its nodes have free.
    pub(crate) fn pressure(&mut self) -> Pressure {
        let now = self.kernel.now();
        if self.read.is_none_or(|read| now.since(read) >= PAUSE) {
            self.read = Some(now);
            self.refresh();
            self.known = self.read_pressure();
        }
        self.known.clone()
    }

    fn read_pressure(&mut self) -> Pressure {
        let now = self.kernel.now();
        if self.marks.1.is_none_or(|read| now.since(read) >= MARKS) {
            self.marks = (self.read_marks(), Some(now));
        }
        let of = |(number, (low, high)): (u8, &(u64, u64))| {
            let tier = Tier(number);
            TierPressure {
                tier,
                free: self.page_tiers.free(tier),
                low: *low,
                high: *high,
                reads: None,
            }
        };
        let tiers = (0..).zip(&self.marks.0).map(of).collect();
        let mut stalled = self.known.stalled;
        if self.stalled.is_none_or(|read| now.since(read) >= STALLS) {
            self.stalled = Some(now);
            // PSI was there at the start, unless no limit depends on it.
            stalled = self.kernel.stalled().unwrap_or(if self.has_psi { 1.0 } else { 0.0 });
        }
        Pressure { tiers, stalled, cores_stalled: None }
    }

    fn read_marks(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(&self.zones).unwrap_or_default();
        let of = |nodes: &Vec<(Node, u64)>| {
            let marks = nodes.iter().map(|(node, _)| watermarks(&text, *node));
            marks.fold((0, 0), |sum, mark| (sum.0 + mark.0, sum.1 + mark.1))
        };
        self.layout.tiers.iter().map(of).collect()
    }
}
