//! What the paper selects programs by: TLB misses over lines that the first-level data cache replaces, as counters would tell them.
//!
//! Accesses go through the machine's MMU and through a cache of 32 KiB of 8 ways, the first level of every Intel core from
//! Nehalem to Broadwell (Intel's optimization reference manual, 248966), without a machine around: neither number depends on time.

use std::sync::Arc;

use tierscope_core::{Access, Result};
use tierscope_hw::cache::Request;
use tierscope_hw::config::{CacheGeometry, Replacement};
use tierscope_hw::{Cache, Machine, PageSize};
use tierscope_workloads::{Program, Stream, Touch, Work};

use crate::tlb::model::Model;

/// Accesses of a program that are looked at.
const ACCESSES: u64 = 1 << 24;
const SETS: u32 = 64;
/// What a program of a few GiB from 4 GiB on reaches, and more.
const ADDRESS_BITS: u32 = 42;
const WAYS: u32 = 8;

/// The ratio; `None` for a program that cannot be described, or that replaces nothing.
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
    // What filled the empty cache replaced nothing.
    let replaced = replaced.saturating_sub(u64::from(SETS * WAYS));
    Ok((replaced > 0).then(|| model.counts.walks as f64 / replaced as f64))
}

/// Areas one after another, each from a whole page of 2 MiB on.
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
