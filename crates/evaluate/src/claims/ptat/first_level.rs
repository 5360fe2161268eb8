//! The paper's criterion for selecting programs: TLB misses relative to lines replaced in the
//! first-level data cache, as hardware counters report them.
//!
//! Accesses go through the machine's MMU and through a cache of 32 KiB with 8 ways, the first level
//! of every Intel core from Nehalem to Broadwell (Intel's optimization reference manual, 248966).
//! No machine is simulated: neither number depends on time.

use std::sync::Arc;

use tierscope_core::{Access, Result};
use tierscope_hw::cache::Request;
use tierscope_hw::config::{CacheGeometry, Replacement};
use tierscope_hw::{Cache, Machine, PageSize};
use tierscope_workloads::{Program, Stream, Touch, Work};

use tierscope_tlb::attribution::Model;

/// Number of a program's accesses.
const ACCESSES: u64 = 1 << 24;
const SETS: u32 = 64;
/// Enough for a program of a few GiB, whose areas begin at 4 GiB.
const ADDRESS_BITS: u32 = 42;
const WAYS: u32 = 8;

/// The ratio; `None` for a program without a description, or one that replaces no line.
pub(super) fn misses_over_replacements(work: &Work, hardware: &Machine) -> Result<Option<f64>> {
    let Some(workload) = work.described() else { return Ok(None) };
    let mut model = Model::new(hardware, None)?;
    let mut lines = Cache::new(&first_level(hardware), ADDRESS_BITS)?;
    let bases = bases(work);
    let mut stream = Stream::new(&Arc::new(Program::new(&workload)), &bases, 1, 0, 1);
    let mut touches = vec![Touch::default(); 4096];
    let mut replaced = 0u64;
    for _ in 0..ACCESSES / touches.len() as u64 {
        stream.fill(&mut touches);
        for touch in &touches {
            let access = if touch.writes() { Access::Store } else { Access::Load };
            model.access((0, 1), touch.address(), access, PageSize::K4);
            replaced += u64::from(!lines.access(touch.address(), Request::Read).hit);
        }
    }
    // Misses that filled the empty cache replaced no line.
    let replaced = replaced.saturating_sub(u64::from(SETS * WAYS));
    Ok((replaced > 0).then(|| model.counts.walks as f64 / replaced as f64))
}

/// Base addresses of the areas: one after another, each aligned to 2 MiB.
fn bases(work: &Work) -> Vec<u64> {
    let mut next = 1 << 32;
    let place = |bytes: u64| {
        let base = next;
        next += bytes.next_multiple_of(PageSize::M2.bytes());
        base
    };
    work.areas().iter().map(|area| area.bytes).map(place).collect()
}

fn first_level(hardware: &Machine) -> CacheGeometry {
    CacheGeometry {
        slices: 1,
        sets: SETS,
        ways: WAYS,
        line: hardware.llc.as_ref().map_or(64, |llc| llc.line),
        replacement: Replacement::Lru,
        source: "Intel optimization reference manual (248966)".into(),
        assumed: vec!["replacement".into()],
    }
}
