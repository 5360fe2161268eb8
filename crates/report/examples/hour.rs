//! Records an hour with 10,000 regions per window, in a few minutes, and prints the size; then, or
//! if the recording exists already, prints how fast it opens:
//! `cargo run --release -p tierscope-report --example hour -- DIR [WINDOWS] [REGIONS]`.

use std::time::{Duration, Instant};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Node, OnNode, Placed, Range, Region, Residence,
    Result, Rng, Snapshot, Space, SpaceId, SpaceResidence, Time,
};
use tierscope_record::{Machine, Meta, Recorder, Recording, Table};
use tierscope_report::{
    Grid, RegionsOptions, Style, View, ages, heatmap, html, regions, summary, wss,
};

const BASE: u64 = 0x7f00_0000_0000;
const TIB: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// Regions of 1 TiB with slowly changing borders and heat: in each window one border in twenty and
/// one count in four change.
struct Wander {
    rng: Rng,
    borders: Vec<u64>,
    heat: Vec<(f32, u32)>,
}

impl Wander {
    fn new(regions: usize) -> Self {
        let mut rng = Rng::seeded(1);
        let mut borders: Vec<u64> = (1..regions).map(|_| rng.below(TIB / PAGE) * PAGE).collect();
        borders.extend([0, TIB]);
        Self { rng, borders, heat: vec![(0.0, 0); regions] }
    }

    fn step(&mut self, window: u64) -> Snapshot {
        for index in 0..self.borders.len() {
            if !matches!(self.borders[index], 0 | TIB) && self.rng.below(20) == 0 {
                self.borders[index] = self.rng.below(TIB / PAGE) * PAGE;
            }
        }
        self.borders.sort_unstable();
        for (hits, age) in &mut self.heat {
            *age += 1;
            if self.rng.below(4) == 0 {
                let hot = self.rng.below(5) == 0;
                *hits = if hot { self.rng.below(41) as f32 } else { 0.0 };
                *age = 0;
            }
        }
        let region = |(pair, (hits, age)): (&[u64], &(f32, u32))| Region {
            age: *age,
            level: Level::new(if pair[1] - pair[0] > 1 << 30 { 3 } else { 2 }),
            ..Region::sampled(Range::new(SpaceId(0), BASE + pair[0], BASE + pair[1]), *hits, 40)
        };
        let regions = self.borders.windows(2).zip(&self.heat).map(region);
        let regions = regions.filter(|r| !r.range.is_empty()).collect();
        let start = Time(window * 200_000_000);
        Snapshot { start, end: start + Duration::from_millis(200), samples: 40, regions }
    }
}

/// All memory is resident; over an hour a quarter moves from the first node to the second.
fn residence(window: u64) -> Residence {
    let taken = Time(window * 200_000_000);
    let moved = TIB / 4 * window.min(18_000) / 18_000;
    let on = |node, bytes| OnNode { node: Node(node), bytes };
    let nodes = vec![on(0, TIB - moved), on(1, moved)];
    let placed = Some(Placed { taken, nodes, drawn: 4096 });
    let spaces =
        vec![SpaceResidence { space: SpaceId(0), taken, bytes: TIB, placed, extents: None }];
    Residence { spaces, ..Residence::default() }
}

fn record(dir: &str, windows: u64, count: usize) -> Result<()> {
    let range = Range::new(SpaceId(0), BASE, BASE + TIB);
    let backing = Backing::Anonymous;
    let mappings = Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SpaceId(0), name: "wander".into() }],
        mappings: vec![Mapping { range, backing, name: "".into(), writable: true, object: None }],
        ..Mappings::default()
    };
    let mut wander = Wander::new(count);
    let tiers = vec![vec![Node(0)], vec![Node(1)]];
    let machine = Machine { tiers, ..Machine::default() };
    let meta = Meta { target: "wander".into(), machine, ..Meta::default() };
    let mut recorder = Recorder::create(dir, &meta)?;
    let (mut spent, mut rows) = (Duration::ZERO, 0u64);
    for number in 0..windows {
        let (snapshot, residence) = (wander.step(number), residence(number));
        rows += snapshot.regions.len() as u64;
        let mappings = (number == 0).then_some(&mappings);
        let cpu = CpuTime { profiler: spent, target: Duration::ZERO };
        let begun = Instant::now();
        let residence = Some(&residence);
        recorder.window(&Window { mappings, cpu, residence, ..Window::of(&snapshot) })?;
        spent += begun.elapsed();
    }
    recorder.finish()?;
    println!("{rows} regions in {windows} windows, {:?} a window", spent / windows as u32);
    for table in Table::ALL {
        let bytes =
            std::fs::metadata(format!("{dir}/{}", table.file_name())).map_or(0, |m| m.len());
        let each = bytes as f64 / rows as f64;
        println!("{:>16} {bytes:>12} bytes, {each:.2} a region", table.file_name());
    }
    Ok(())
}

fn open(dir: &str) -> Result<()> {
    let begun = Instant::now();
    let recording = Recording::open(dir)?;
    println!("open      {:?}", begun.elapsed());
    let (view, style, mut out) = (View::default(), Style::default(), std::io::sink());
    let begun = Instant::now();
    summary(&recording, &view)?.write_text(&mut out, &style).ok();
    println!("summary   {:?}", begun.elapsed());
    for (columns, rows) in [(120, 40), (1000, 500)] {
        let begun = Instant::now();
        heatmap(&recording, &view, Grid { columns, rows })?.write_text(&mut out, &style).ok();
        println!("heatmap   {:?} ({columns} x {rows})", begun.elapsed());
    }
    let begun = Instant::now();
    regions(&recording, &view, &RegionsOptions::default())?.write_text(&mut out, &style).ok();
    println!("regions   {:?} (last 5 s)", begun.elapsed());
    let begun = Instant::now();
    wss(&recording, &view)?.write_text(&mut out, &style).ok();
    println!("wss       {:?}", begun.elapsed());
    let begun = Instant::now();
    ages(&recording, &view)?.write_text(&mut out, &style).ok();
    println!("ages      {:?}", begun.elapsed());
    let begun = Instant::now();
    let page = html::page(&recording, &html::Options::default(), html::Data::Inline)?;
    println!("page      {:?}, {} bytes", begun.elapsed(), page.len());
    let begun = Instant::now();
    let data = html::data(&recording, &html::Options::live())?;
    println!("live data {:?}, {} bytes", begun.elapsed(), data.len());
    let begun = Instant::now();
    let all = View { time: Some(Duration::ZERO..Duration::from_secs(1 << 30)), ..view };
    regions(&recording, &all, &RegionsOptions::default())?.write_text(&mut out, &style).ok();
    println!("regions   {:?} (all)", begun.elapsed());
    let begun = Instant::now();
    let mut rows = 0;
    for frame in recording.windows(0..recording.commits().len()) {
        rows += frame?.snapshot.regions.len();
    }
    println!("all       {:?} ({rows} regions)", begun.elapsed());
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| {
        arguments.get(index).and_then(|n: &String| n.parse().ok()).unwrap_or(default)
    };
    let dir = arguments.first().map_or("hour", String::as_str);
    if !std::path::Path::new(dir).exists() {
        record(dir, number(1, 18_000), number(2, 10_000) as usize)?;
    }
    open(dir)
}
