//! Translation of accesses by a core.

use tierscope_core::Access;
use tierscope_hw::{Cache, Reads, Root, Source, Translation};
use tierscope_wire::ptat::Window as Region;
use tierscope_workloads::Touch;

use super::core::Cpu;
use super::in_flight::{InFlight, MOST_IN_FLIGHT, Pending, WalkReads};
use super::private_caches::PrivateCaches;
use crate::exact::layout::TableLayout;
use crate::exact::memory::LinePlace;
use crate::exact::mm::{PromotionReuse, Tables};

/// Accesses of a process that bypass all caches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheBypass {
    /// Whether there are any: false for most processes, which skips the other checks.
    any: bool,
    /// Whether the process's stores bypass the caches.
    stores: bool,
    /// Physical addresses that every access reaches without the caches.
    region: Region,
    /// Offset from an uncached page's address in entries to its bus address.
    shift: u64,
}

impl CacheBypass {
    /// All stores or none, and data in the uncached region, if there are any.
    pub(super) fn new(stores: bool, (region, shift): (Region, u64)) -> Self {
        Self { any: stores || region.bytes > 0, stores, region, shift }
    }

    /// The bus address of an access that bypasses the caches.
    #[inline(always)]
    pub(super) fn bus_address(&self, physical: u64) -> u64 {
        let shift = if self.region.holds(physical) { self.shift } else { 0 };
        physical.wrapping_add(shift)
    }

    #[inline(always)]
    pub(super) fn applies_to(&self, physical: u64, stores: bool) -> bool {
        self.any && ((self.stores && stores) || self.region.holds(physical))
    }
}

/// Context of a thread's translations.
#[derive(Clone, Copy)]
pub(super) struct TranslateContext<'a> {
    pub(super) root: Root,
    pub(super) bypass: CacheBypass,
    pub(super) llc: Option<&'a Cache>,
    pub(super) layout: TableLayout,
    /// Promoted pages without an access since.
    pub(super) promotion_reuse: &'a PromotionReuse,
}

/// An access that was translated.
pub(super) struct Translated {
    pub(super) page: Translation,
    pub(super) linear: u64,
    pub(super) source: Source,
    pub(super) stores: bool,
    /// The address depends on the data of the access before.
    pub(super) depends: bool,
}

/// Translates accesses; returns how many there were before the first fault.
#[inline(always)]
pub(super) fn translate<const CACHE: bool, const SAMPLES: bool>(
    cpu: &mut Cpu,
    tables: &mut Tables,
    context: &TranslateContext<'_>,
    ops: &[Touch],
) -> usize {
    for (index, op) in ops.iter().enumerate() {
        let (linear, stores) = (op.address(), op.writes());
        let access = if stores { Access::Store } else { Access::Load };
        let Ok((page, source)) = cpu.mmu.translate(tables, context.root, linear, access) else {
            return index;
        };
        let done = Translated { page, linear, source, stores, depends: op.depends() };
        enqueue::<CACHE, SAMPLES>(cpu, context, done);
    }
    ops.len()
}

/// Counts a translated access, and queues it if its execution has to wait for something. Prefetches
/// on the host the lines of the last-level cache's model.
#[inline(always)]
pub(super) fn enqueue<const CACHE: bool, const SAMPLES: bool>(
    cpu: &mut Cpu,
    context: &TranslateContext<'_>,
    done: Translated,
) {
    let Translated { page, linear, source, stores, depends } = done;
    let physical = page.physical(linear);
    let queue = &mut cpu.in_flight;
    let mut walk = WalkReads::default();
    match source {
        Source::L1 => {}
        Source::L2 => cpu.counts.second_tlb_hits += 1,
        Source::Walk => {
            let read = cpu.mmu.last_reads();
            if context.promotion_reuse.holds(physical) {
                cpu.reached.push(physical);
            }
            cpu.counts.walks += 1;
            if let Some(walks) = &mut cpu.walks {
                walks.count(linear, page.size());
            }
            cpu.counts.walk_reads += u64::from(read.count());
            if CACHE {
                walk = read_entries(read, &mut cpu.private, queue, context);
            }
        }
    }
    if !(CACHE || SAMPLES) {
        return;
    }
    let private = CACHE && use_private(cpu, context, physical, stores);
    let queue = &mut cpu.in_flight;
    if !SAMPLES && private && source == Source::L1 {
        queue.plain += 1;
        return;
    }
    let line = LinePlace::new(physical, if CACHE { context.llc } else { None });
    if CACHE
        && !private
        && let Some(llc) = context.llc
    {
        llc.prefetch_host(line.place);
    }
    let plain = std::mem::take(&mut queue.plain);
    queue.pending[queue.count % MOST_IN_FLIGHT] =
        Pending { line, linear, plain, source, stores, depends, private, walk };
    queue.count += 1;
}

/// The entries of a walk pass through the core's private caches, unless their table is uncached;
/// entries that the caches lack are queued.
#[inline(always)]
fn read_entries(
    reads: &Reads,
    private: &mut PrivateCaches,
    queue: &mut InFlight,
    context: &TranslateContext<'_>,
) -> WalkReads {
    let mut walk = WalkReads::default();
    for (index, address) in reads.as_slice().iter().enumerate() {
        let mark = reads.marks() >> index & 1;
        if !context.layout.is_uncached(*address) && private.use_line(*address, mark == 1) {
            walk.private += 1;
        } else {
            queue.enqueue_read(*address, context.llc);
            walk.marks |= mark << walk.queued;
            walk.queued += 1;
        }
    }
    walk
}

/// Whether the core's private caches have the line. A store that bypasses the caches drops it from
/// them.
#[inline(always)]
fn use_private(cpu: &mut Cpu, context: &TranslateContext<'_>, physical: u64, stores: bool) -> bool {
    if context.bypass.applies_to(physical, stores) {
        cpu.private.forget(physical);
        return false;
    }
    cpu.private.use_line(physical, stores)
}
