//! `shape`: a process whose memory has a shape that instruments may misjudge, and whose hot part is
//! known. It reads a byte of every hot page, pass after pass, until it is ended.
//!
//! Usage: shape TRUTH [NAME=VALUE]... The settings and their units are in `settings.rs`. The file
//! TRUTH appears when all memory is in place. Its lines `NS PID START END` have hot addresses in
//! hexadecimal; those at time 0 are hot always, of the others the last one before a time
//! (CLOCK_MONOTONIC).

mod area;
mod grow;
mod settings;
mod side;

use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use area::Area;
use settings::Settings;

pub(crate) const PAGE: usize = 4096;
pub(crate) const MIB: usize = 1 << 20;

/// Bytes of the local array that is memory of kind `stack`; its last 4 MiB are hot.
const STACK: usize = 6 * MIB;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(truth) = arguments.next() else {
        eprintln!("usage: shape TRUTH [NAME=VALUE]...");
        return ExitCode::from(2);
    };
    let done = Settings::of(arguments).and_then(|settings| run(&truth, &settings));
    match done {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("shape: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A value that does not exist: reading ends with the process.
pub(crate) enum Never {}

fn run(truth: &str, settings: &Settings) -> Result<Never, String> {
    let mut areas = vec![Area::anonymous(settings.used, settings.hot, area::Pages::Small)?];
    if settings.reserved > 0 {
        area::reserve(settings.reserved)?;
    }
    if settings.swapped > 0 {
        areas[0].page_out(settings.swapped)?;
    }
    side::threads(settings.threads)?;
    if settings.churn > 0 {
        side::churn(settings.churn);
    }
    if settings.reads > 0 {
        side::reads(settings.file, settings.reads)?;
    }
    match settings.kinds {
        0 => read(truth, &areas, settings),
        _ => {
            areas.extend(area::kinds()?);
            on_stack(truth, areas, settings)
        }
    }
}

/// Reads memory of the stack too.
fn on_stack(truth: &str, mut areas: Vec<Area>, settings: &Settings) -> Result<Never, String> {
    let mut local = [0u8; STACK];
    black_box(&mut local).fill(1);
    let start = local.as_ptr().addr();
    areas.push(Area { start, bytes: STACK, hot: start + 2 * MIB..start + STACK });
    read(truth, &areas, settings)
}

fn read(truth: &str, areas: &[Area], settings: &Settings) -> Result<Never, String> {
    let pid = pid()?;
    let line = |area: &Area| format!("0 {pid} {:x} {:x}\n", area.hot.start, area.hot.end);
    let hot = areas.iter().filter(|area| !area.hot.is_empty());
    let text: String = hot.map(line).collect();
    let aside = format!("{truth}.new");
    fs::write(&aside, text).map_err(|e| format!("{aside}: {e}"))?;
    fs::rename(&aside, truth).map_err(|e| format!("{truth}: {e}"))?;
    if settings.grow > 0 {
        return grow::grow(truth, &pid, settings.grow, settings.limit);
    }
    let busy = Duration::from_millis(settings.busy);
    loop {
        let began = Instant::now();
        areas.iter().for_each(Area::read_hot);
        while began.elapsed() < busy {
            areas.iter().for_each(Area::read_hot);
        }
        thread::sleep(Duration::from_millis(settings.pause));
    }
}

/// The process id in the namespace of /proc, as a recorder outside of this one's sees it.
fn pid() -> Result<String, String> {
    let link = fs::read_link("/proc/self").map_err(|e| format!("/proc/self: {e}"))?;
    Ok(link.display().to_string())
}
