//! Traffic of tenants, counted by a rule of the programmable memory controllers that maps all pages
//! of a tenant to one state.

use std::path::Path;

use serde_json::{Value, json};
use tierscope_core::{
    Counters, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Result, Rule,
};
use tierscope_linux::memory_controller::controllers;

use crate::buffer::{Buffer, LINE, PAGE, pin};
use crate::checks::touch;

/// Bytes of a tenant, which exceed any cache here by far.
const BYTES: usize = 32 << 20;

/// Number of sweeps of each tenant over its memory.
const SWEEPS: [u64; 2] = [7, 4];

/// Rule that counts reads of the pages between the lowest and the highest frame.
fn reads(frames: &[Vec<u64>]) -> Rule {
    let all = || frames.iter().flatten().copied();
    let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
    Rule {
        filter: Filter { kind: RequestKind::Read, start: first << 12, end: (last + 1) << 12 },
        key: Key { mask: Key::ALL_MEMORY, shift: 12 },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    }
}

/// Runs two tenants concurrently, each on a CPU of its own, and compares the counts for each with
/// the lines that it loaded, all of which missed its cache.
pub(crate) fn tenants() -> Result<(Value, bool)> {
    let buffers = SWEEPS.map(|_| Buffer::on(0, BYTES)).into_iter().collect::<Result<Vec<_>>>()?;
    let frames = buffers.iter().map(Buffer::frames).collect::<Result<Vec<_>>>()?;
    let mut driver = controllers(Path::new("/sys"), 0)?;
    let rule = driver.register_states(&reads(&frames), SWEEPS.len() as u64)?;
    for (tenant, frames) in (0..).zip(&frames) {
        frames.iter().try_for_each(|frame| driver.translate(rule, *frame, Some(tenant)))?;
    }
    // The first sweep evicts the buffers' initial lines from the cache.
    sweep(&buffers, [1, 1]);
    let mut counted = [0; SWEEPS.len()];
    driver.read(rule, &mut counted)?;
    sweep(&buffers, SWEEPS);
    driver.read(rule, &mut counted)?;
    let made = SWEEPS.map(|sweeps| sweeps * (BYTES / LINE) as u64);
    let off = |(counted, made): (&u64, &u64)| (*counted as f64 / *made as f64 - 1.0).abs();
    let most = counted.iter().zip(&made).map(off).fold(0.0, f64::max);
    let report = json!({ "made": made, "counted": counted, "off": most });
    Ok((report, most <= 0.001))
}

fn sweep(buffers: &[Buffer], times: [u64; SWEEPS.len()]) {
    std::thread::scope(|scope| {
        for ((cpu, buffer), times) in buffers.iter().enumerate().zip(times) {
            scope.spawn(move || {
                pin(cpu);
                (0..times).for_each(|_| (0..BYTES / PAGE).for_each(|page| touch(buffer, page)));
            });
        }
    });
}
