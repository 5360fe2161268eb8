//! Latency of the live screen: records windows of a target with changing heat into a directory and
//! displays each at once, as `tierscope live` does.
//!
//! `cargo run --release -p tierscope-report --example live_latency -- [REGIONS] [WINDOWS]`
//! prints one line of JSON. Latency counts from the call of the recorder with a window until the
//! escape sequences of the drawn screen are written. `refill_ms` is the time until the whole
//! heatmap is complete again after a change of zoom; keys stay responsive meanwhile.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Error, ErrorKind, Level, Mapping, Mappings, Range, Region, Result, Rng, Snapshot,
    Space, SpaceId, Time,
};
use tierscope_record::{Meta, Recorder, Recording};
use tierscope_report::Color;
use tierscope_report::live::{Key, Live, Start};

const BASE: u64 = 0x7f00_0000_0000;
const PAGE: u64 = 4096;
/// Mean size of a region in pages.
const PAGES: u64 = 2560;
const SIZE: (u16, u16) = (200, 60);

/// Regions whose borders and heat differ from window to window: no cached data can be reused.
fn snapshot(rng: &mut Rng, window: u64, count: u64) -> Snapshot {
    let mut at = BASE;
    let mut region = |_| {
        let range = Range::new(SpaceId(0), at, at + (1 + rng.below(2 * PAGES - 1)) * PAGE);
        at = range.end;
        let hot = rng.below(5) == 0;
        Region {
            age: rng.below(100) as u32,
            level: Level::new(2),
            ..Region::sampled(range, if hot { rng.below(41) as f32 } else { 0.0 }, 40)
        }
    };
    let regions = (0..count).map(&mut region).collect();
    let start = Time(window * 200_000_000);
    Snapshot { start, end: start + Duration::from_millis(200), samples: 40, regions }
}

fn mappings(count: u64) -> Mappings {
    let range = Range::new(SpaceId(0), BASE, BASE + 2 * count * PAGES * PAGE);
    let backing = Backing::Anonymous;
    Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SpaceId(0), name: "wander".into() }],
        mappings: vec![Mapping { range, backing, name: "".into(), writable: true, object: None }],
        ..Mappings::default()
    }
}

/// A writer that only counts bytes, in place of a terminal.
#[derive(Default)]
struct Sunk(u64);

impl Write for Sunk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Results of the measurement.
struct Measured {
    latencies: Vec<Duration>,
    refill: Duration,
}

fn measure(dir: &std::path::Path, regions: u64, windows: u64) -> Result<Measured> {
    let meta = Meta { target: "wander".into(), ..Meta::default() };
    let mut recorder = Recorder::create(dir, &meta)?;
    let mut live = Live::new(Recording::open(dir)?, Start::Newest, Color::True);
    let viewport = Viewport::Fixed(Rect::new(0, 0, SIZE.0, SIZE.1));
    let backend = CrosstermBackend::new(Sunk::default());
    let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport })
        .map_err(|e| Error::new(ErrorKind::Io, "cannot draw").cause(e))?;
    let (mut rng, mappings) = (Rng::seeded(1), mappings(regions));
    let mut latencies = Vec::new();
    for number in 0..windows {
        let snapshot = snapshot(&mut rng, number, regions);
        let mappings = (number == 0).then_some(&mappings);
        let ended = Instant::now();
        recorder.window(&Window { mappings, ..Window::of(&snapshot) })?;
        live.refresh()?;
        live.prepare(SIZE.0, SIZE.1);
        let drawn = terminal.draw(|frame| live.draw(frame));
        drawn.map_err(|e| Error::new(ErrorKind::Io, "cannot draw").cause(e))?;
        latencies.push(ended.elapsed());
        assert_eq!(live.shown(), Some(number as usize), "the window is not on the screen");
    }
    live.update(Key::Char('+'));
    let pressed = Instant::now();
    while !live.prepare(SIZE.0, SIZE.1) {}
    let refill = pressed.elapsed();
    recorder.finish()?;
    Ok(Measured { latencies, refill })
}

/// Milliseconds that `percent` % of the windows do not exceed; nearest rank.
fn rank(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted[index].as_secs_f64() * 1e3
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| {
        arguments.get(index).and_then(|n| n.parse::<u64>().ok()).unwrap_or(default).max(1)
    };
    let (regions, windows) = (number(0, 1000), number(1, 100));
    let dir =
        tempfile::tempdir().map_err(|e| Error::new(ErrorKind::Io, "no directory").cause(e))?;
    let Measured { mut latencies, refill } = measure(dir.path(), regions, windows)?;
    latencies.sort_unstable();
    let row = serde_json::json!({
        "regions": regions,
        "windows": windows,
        "columns": SIZE.0,
        "lines": SIZE.1,
        "median_ms": rank(&latencies, 50),
        "p95_ms": rank(&latencies, 95),
        "max_ms": rank(&latencies, 100),
        "refill_ms": refill.as_secs_f64() * 1e3,
    });
    println!("{row}");
    Ok(())
}
