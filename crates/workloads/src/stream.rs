//! The accesses of a workload as a stream: deterministic by seed, and so cheap that a simulated
//! machine spends its time elsewhere.

use std::sync::Arc;

use tierscope_core::Rng;

use crate::alias::Alias;
use crate::bins::{self, Bin};
use crate::density::TABLE_REACH;
use crate::description::{Access, Mix, Pattern, Workload};
use crate::scatter;
use crate::schedule::Segment;

/// Values that masim precomputes, in runs of [`TABLE_RUN`].
const TABLE_VALUES: usize = 1_000_000;
/// Length of a run: consecutive values used before another run is picked.
const TABLE_RUN: usize = 1000;

/// One access: an address, and whether it is a read, a write, or a read followed by a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Touch(u64);

impl Touch {
    const READ: u64 = 1;
    const WRITE: u64 = 2;
    const LAST: u64 = 4;
    const NON_TEMPORAL: u64 = 8;
    const DEPENDS: u64 = 16;

    #[inline]
    fn new(address: u64, kind: u64) -> Self {
        Self(address << 5 | kind)
    }

    /// A read of the byte at `address`, which lies below 2^59.
    #[inline]
    #[must_use]
    pub fn read(address: u64) -> Self {
        Self::new(address, Self::READ)
    }

    /// A write of the byte at `address`, which lies below 2^59.
    #[inline]
    #[must_use]
    pub fn write(address: u64) -> Self {
        Self::new(address, Self::WRITE)
    }

    /// A read and then a write of the byte at `address`, which lies below 2^59: an atomic
    /// operation.
    #[inline]
    #[must_use]
    pub fn update(address: u64) -> Self {
        Self::new(address, Self::READ | Self::WRITE)
    }

    /// A non-temporal store to the byte at `address`, which lies below 2^59.
    #[inline]
    #[must_use]
    pub fn non_temporal(address: u64) -> Self {
        Self::new(address, Self::WRITE | Self::NON_TEMPORAL)
    }

    /// Whether it is a non-temporal store, which bypasses the caches.
    #[inline]
    #[must_use]
    pub fn is_non_temporal(self) -> bool {
        self.0 & Self::NON_TEMPORAL != 0
    }

    /// The same access, marked as the last of an operation, such as a request to a store. The
    /// machine that executes the accesses measures the latency of operations with it.
    #[inline]
    #[must_use]
    pub fn last(self) -> Self {
        Self(self.0 | Self::LAST)
    }

    /// Whether the access completes an operation.
    #[inline]
    #[must_use]
    pub fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// The same access, at an address that depends on the data of the access before: the next
    /// element of a list, the value behind an index entry. The machine cannot overlap the two.
    #[inline]
    #[must_use]
    pub fn depending(self) -> Self {
        Self(self.0 | Self::DEPENDS)
    }

    /// Whether the address depends on the data of the access before.
    #[inline]
    #[must_use]
    pub fn depends(self) -> bool {
        self.0 & Self::DEPENDS != 0
    }

    /// The byte's address: the beginning of the area plus the offset in it.
    #[inline]
    #[must_use]
    pub fn address(self) -> u64 {
        self.0 >> 5
    }

    /// Whether it is a read alone or a write alone, and completes no operation.
    #[inline]
    #[must_use]
    pub fn is_single(self) -> bool {
        let kind = self.0 & (Self::READ | Self::WRITE | Self::LAST);
        kind == Self::READ || kind == Self::WRITE
    }

    /// The read of an update, and the write, which does not depend on other accesses.
    #[inline]
    #[must_use]
    pub fn halves(self) -> [Self; 2] {
        [Self(self.0 & !Self::WRITE), Self(self.0 & !(Self::READ | Self::DEPENDS))]
    }

    /// Address, kind and last-of-operation mark in one word.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Whether the byte is read.
    #[inline]
    #[must_use]
    pub fn reads(self) -> bool {
        self.0 & Self::READ != 0
    }

    /// Whether the byte is written, after the read if there is one.
    #[inline]
    #[must_use]
    pub fn writes(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// A compiled workload: its tables are built once, for any number of streams.
pub struct Program {
    burst: u32,
    phases: Vec<CompiledPhase>,
    table: Vec<u32>,
}

struct CompiledPhase {
    accesses: Vec<CompiledAccess>,
    /// An access is picked if the draw is below its bound and not below the previous one.
    bounds: Vec<u64>,
}

/// A compiled access. Offsets are relative to the area's beginning.
struct CompiledAccess {
    access: Access,
    kind: Kind,
    source: Source,
}

enum Source {
    Sequential {
        stride: u64,
    },
    Uniform {
        bytes: u64,
    },
    /// Draws precomputed values modulo the part's size, within the first [`TABLE_REACH`] bytes.
    Table,
    Slots {
        starts: Vec<u64>,
        bytes: u64,
    },
    Bins {
        alias: Alias,
        bins: Vec<Bytes>,
    },
    Scrambled {
        alias: Alias,
        ranks: Vec<Bin>,
        items: u64,
        item: u64,
    },
}

#[derive(Clone, Copy)]
struct Bytes {
    from: u64,
    bytes: u64,
}

/// Decides between read and write by the low 16 bits of a draw whose high bits give the address.
#[derive(Clone, Copy)]
struct Kind {
    below: u32,
    then: u64,
    /// Marks of all accesses.
    marks: u64,
}

impl Kind {
    fn of(mix: Mix, chases: bool) -> Self {
        let (below, then) = match mix {
            Mix::Writes(share) => ((share * 65_536.0).round() as u32, Touch::READ),
            Mix::Update => (0, Touch::READ | Touch::WRITE),
            Mix::NonTemporal => (0, Touch::WRITE | Touch::NON_TEMPORAL),
        };
        Self { below, then, marks: if chases { Touch::DEPENDS } else { 0 } }
    }

    #[inline]
    fn decide(self, draw: u64) -> u64 {
        self.marks | if (draw as u16 as u32) < self.below { Touch::WRITE } else { self.then }
    }

    fn is_fixed(self) -> bool {
        self.below == 0 || self.below == 65_536
    }
}

impl Program {
    /// Compiles a workload, which must have passed its check.
    #[must_use]
    pub fn new(workload: &Workload) -> Self {
        let code = |phase: usize, index: usize, access: &Access| CompiledAccess {
            access: access.clone(),
            kind: Kind::of(access.mix, access.chase),
            source: Source::of(access, scatter::seed(workload.seed, phase, index)),
        };
        let phases = workload.phases.iter().enumerate().map(|(at, phase)| CompiledPhase {
            accesses: phase.accesses.iter().enumerate().map(|(i, a)| code(at, i, a)).collect(),
            bounds: bounds(&phase.accesses),
        });
        let phases: Vec<CompiledPhase> = phases.collect();
        let mut codes = phases.iter().flat_map(|phase| &phase.accesses);
        let tabled = codes.any(|code| matches!(code.source, Source::Table));
        let table = if tabled { draw_table(workload.seed) } else { Vec::new() };
        Self { burst: workload.burst, phases, table }
    }
}

/// Upper bounds of 64-bit draws, one per access; the last bound is the maximum.
fn bounds(accesses: &[Access]) -> Vec<u64> {
    let total: f64 = accesses.iter().map(|access| access.weight).sum();
    let last = accesses.iter().rposition(|access| access.weight > 0.0).unwrap_or(0);
    let mut sum = 0.0;
    let mut bound = |(index, access): (usize, &Access)| {
        sum += access.weight / total;
        if index >= last { u64::MAX } else { (sum * 2f64.powi(64)) as u64 }
    };
    accesses.iter().enumerate().map(&mut bound).collect()
}

fn draw_table(seed: u64) -> Vec<u32> {
    let mut rng = Rng::seeded(seed);
    (0..TABLE_VALUES).map(|_| rng.below(TABLE_REACH) as u32).collect()
}

impl Source {
    fn of(access: &Access, seed: u64) -> Self {
        match access.pattern {
            Pattern::Sequential { stride } => Self::Sequential { stride },
            Pattern::Random => Self::Uniform { bytes: access.bytes },
            Pattern::Drift { window, .. } => Self::Uniform { bytes: window },
            Pattern::Table => Self::Table,
            Pattern::Scattered { ranges, range } => {
                let places = scatter::places(access.bytes / range, ranges, seed);
                Self::Slots { starts: places.iter().map(|at| at * range).collect(), bytes: range }
            }
            Pattern::Striped { range, apart } => {
                let starts = (0..access.bytes / apart).map(|index| index * apart);
                Self::Slots { starts: starts.collect(), bytes: range }
            }
            Pattern::Gaussian { item, mean, sd } => {
                Self::bins(&bins::gaussian(access.items(item), mean, sd), item)
            }
            Pattern::Zipf { item, theta, scrambled: false } => {
                Self::bins(&bins::zipf(access.items(item), theta), item)
            }
            Pattern::Zipf { item, theta, scrambled: true } => {
                let ranks = bins::zipf(bins::SCRAMBLED_RANKS, theta);
                let alias = Alias::new(&masses(&ranks));
                Self::Scrambled { alias, ranks, items: access.items(item), item }
            }
        }
    }

    fn bins(bins: &[Bin], item: u64) -> Self {
        let bytes = bins.iter().map(|b| Bytes { from: b.from * item, bytes: b.items * item });
        Self::Bins { alias: Alias::new(&masses(bins)), bins: bytes.collect() }
    }
}

fn masses(bins: &[Bin]) -> Vec<f64> {
    bins.iter().map(|bin| bin.mass).collect()
}

/// The accesses of one thread.
pub struct Stream {
    program: Arc<Program>,
    bases: Box<[u64]>,
    rng: Rng,
    lane: u64,
    lanes: u64,
    phase: usize,
    /// State of each access of the phase: the base address of its part now, and for sequential
    /// patterns the last offset.
    places: Vec<Position>,
    table_at: usize,
    picked: usize,
    left: u32,
}

#[derive(Clone, Copy)]
struct Position {
    base: u64,
    offset: u64,
}

impl Stream {
    /// The stream of thread `lane` of `lanes`, at the beginning of the workload, when area `i`
    /// begins at `bases[i]`.
    ///
    /// The same program, bases, seed and lane give the same accesses, independent of the sizes of
    /// the requested batches.
    ///
    /// # Panics
    /// If an area has no base, or `lane` is not below `lanes`.
    #[must_use]
    pub fn new(program: &Arc<Program>, bases: &[u64], seed: u64, lane: u32, lanes: u32) -> Self {
        assert!(lane < lanes, "thread {lane} of {lanes}");
        let mut stream = Self {
            program: Arc::clone(program),
            bases: bases.into(),
            rng: Rng::seeded(seed ^ u64::from(lane).rotate_left(40)),
            lane: lane.into(),
            lanes: lanes.into(),
            phase: 0,
            places: Vec::new(),
            table_at: 0,
            picked: 0,
            left: 0,
        };
        stream.stand(0, std::time::Duration::ZERO);
        stream
    }

    /// Switches to another segment. Sequential patterns restart with each phase, each thread at the
    /// beginning of its own share of the part.
    pub fn enter(&mut self, segment: &Segment) {
        self.stand(segment.phase, segment.into);
    }

    fn stand(&mut self, phase: usize, into: std::time::Duration) {
        let codes = &self.program.phases[phase].accesses;
        let goes_on = phase == self.phase && !into.is_zero() && self.places.len() == codes.len();
        let place = |(index, code): (usize, &CompiledAccess)| Position {
            base: self.bases[code.access.area] + code.access.from + code.access.drifted(into),
            offset: if goes_on {
                self.places[index].offset
            } else {
                code.begin(self.lane, self.lanes)
            },
        };
        self.places = codes.iter().enumerate().map(place).collect();
        self.phase = phase;
        self.left = 0;
    }

    /// Fills `out` with the next accesses.
    pub fn fill(&mut self, out: &mut [Touch]) {
        let program = Arc::clone(&self.program);
        let mut rest = out;
        while !rest.is_empty() {
            if self.left == 0 {
                self.pick(&program);
            }
            let (now, later) = rest.split_at_mut(rest.len().min(self.left as usize));
            self.left -= now.len() as u32;
            self.draw(&program, now);
            rest = later;
        }
    }

    fn pick(&mut self, program: &Program) {
        let phase = &program.phases[self.phase];
        self.left = program.burst;
        self.picked = 0;
        if phase.bounds.len() > 1 {
            let draw = self.rng.next_u64();
            self.picked =
                phase.bounds.partition_point(|bound| *bound <= draw).min(phase.bounds.len() - 1);
        }
    }

    fn draw(&mut self, program: &Program, out: &mut [Touch]) {
        let code = &program.phases[self.phase].accesses[self.picked];
        let Position { base, offset } = self.places[self.picked];
        let (rng, kind) = (&mut self.rng, code.kind);
        match &code.source {
            Source::Uniform { bytes } => {
                for touch in out {
                    let draw = rng.next_u64();
                    *touch = Touch::new(base + high(draw, *bytes), kind.decide(draw));
                }
            }
            Source::Slots { starts, bytes } => {
                for touch in out {
                    let slot = starts[high(rng.next_u64(), starts.len() as u64) as usize];
                    let draw = rng.next_u64();
                    *touch = Touch::new(base + slot + high(draw, *bytes), kind.decide(draw));
                }
            }
            Source::Bins { alias, bins } => {
                for touch in out {
                    let bin = bins[alias.draw(rng)];
                    let draw = rng.next_u64();
                    *touch = Touch::new(base + bin.from + high(draw, bin.bytes), kind.decide(draw));
                }
            }
            Source::Scrambled { alias, ranks, items, item } => {
                for touch in out {
                    let bin = ranks[alias.draw(rng)];
                    let rank = bin.from + rng.below(bin.items);
                    let draw = rng.next_u64();
                    let at = bins::scramble(rank, *items) * item + high(draw, *item);
                    *touch = Touch::new(base + at, kind.decide(draw));
                }
            }
            Source::Sequential { stride } => {
                self.places[self.picked].offset =
                    sequential(out, base, offset, *stride, code.access.bytes, kind, rng);
            }
            Source::Table => {
                for touch in out {
                    if self.table_at.is_multiple_of(TABLE_RUN) {
                        let runs = (TABLE_VALUES / TABLE_RUN) as u64;
                        self.table_at = rng.below(runs) as usize * TABLE_RUN;
                    }
                    let at = u64::from(program.table[self.table_at]) % code.access.bytes;
                    self.table_at += 1;
                    let decided =
                        if kind.is_fixed() { kind.decide(0) } else { kind.decide(rng.next_u64()) };
                    *touch = Touch::new(base + at, decided);
                }
            }
        }
    }
}

impl CompiledAccess {
    /// The initial offset of a sequential pattern, before its first access.
    fn begin(&self, lane: u64, lanes: u64) -> u64 {
        match self.source {
            Source::Sequential { stride } => {
                let steps =
                    u128::from(self.access.bytes / stride) * u128::from(lane) / u128::from(lanes);
                steps as u64 * stride
            }
            _ => 0,
        }
    }
}

/// Makes sequential accesses from `offset` on, wrapping to the beginning at the end; returns the
/// final offset.
fn sequential(
    out: &mut [Touch],
    base: u64,
    mut offset: u64,
    stride: u64,
    bytes: u64,
    kind: Kind,
    rng: &mut Rng,
) -> u64 {
    let mut next = || {
        offset += stride;
        if offset >= bytes {
            offset = 0;
        }
        offset
    };
    if kind.is_fixed() {
        let kind = kind.decide(0);
        out.iter_mut().for_each(|touch| *touch = Touch::new(base + next(), kind));
    } else {
        out.iter_mut()
            .for_each(|touch| *touch = Touch::new(base + next(), kind.decide(rng.next_u64())));
    }
    offset
}

/// Scales `draw`, uniform over `u64`, to below `bound`; its low bits remain practically independent
/// if `bound` is far below 2^48.
#[inline]
fn high(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::from_spec;
    use proptest::prelude::{
        ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, proptest,
    };
    use std::collections::HashSet;
    use std::time::Duration;

    fn stream(workload: &Workload, seed: u64) -> Stream {
        let mut bases = Vec::new();
        let mut next = 1 << 30;
        for area in &workload.areas {
            bases.push(next);
            next += area.bytes.next_multiple_of(4096);
        }
        Stream::new(&Arc::new(Program::new(workload)), &bases, seed, 0, 1)
    }

    fn draw(stream: &mut Stream, count: usize) -> Vec<Touch> {
        let mut touches = vec![Touch::default(); count];
        stream.fill(&mut touches);
        touches
    }

    fn offsets(spec: &str, count: usize) -> Vec<u64> {
        let workload = from_spec(spec).unwrap();
        draw(&mut stream(&workload, 1), count).iter().map(|t| t.address() - (1 << 30)).collect()
    }

    #[test]
    fn the_last_access_is_the_same_access() {
        let touch = Touch::write((1 << 59) - 1);
        assert!(!touch.is_last() && touch.last().is_last());
        assert_eq!((touch.last().address(), touch.last().writes()), ((1 << 59) - 1, true));
        assert!(!touch.last().reads());
    }

    #[test]
    fn a_stride_is_added_first_and_wraps_to_the_beginning() {
        assert_eq!(offsets("contiguous:space=30B,hot=30B,stride=10B", 5), [10, 20, 0, 10, 20]);
        assert_eq!(offsets("contiguous:space=25B,hot=25B,stride=10B", 4), [10, 20, 0, 10]);
    }

    #[test]
    fn threads_share_a_sweep() {
        let workload = from_spec("contiguous:space=40B,hot=40B,stride=10B").unwrap();
        let program = Arc::new(Program::new(&workload));
        let first = |lane| {
            let mut stream = Stream::new(&program, &[0], 1, lane, 2);
            draw(&mut stream, 2).iter().map(|t| t.address()).collect::<Vec<_>>()
        };
        assert_eq!((first(0), first(1)), (vec![10, 20], vec![30, 0]));
    }

    // 1 % of 4096 pages outside the hot ones, 100,000 accesses: the second access makes 1000 ± 31
    // of them, a quarter of which hits the hot part again: 750 ± 27 lie outside. Bursts of 64 widen
    // that eightfold; 5 sigma allowed.
    #[test]
    fn the_hot_part_takes_its_share() {
        let hot = 4 << 20;
        let cold = offsets("contiguous:space=16MiB,hot=4MiB,share=0.99", 100_000)
            .iter()
            .filter(|at| **at >= hot)
            .count();
        assert!(cold.abs_diff(750) < 5 * 8 * 27, "{cold}");
        let cold = offsets("contiguous:space=16MiB,hot=4MiB,share=0.99,burst=1", 100_000)
            .iter()
            .filter(|at| **at >= hot)
            .count();
        assert!(cold.abs_diff(750) < 5 * 27, "{cold}");
    }

    // 30 % writes of 100,000: 30,000 ± 145; six sigma allowed. The share is rounded to 65,536ths.
    #[test]
    fn writes_have_their_share() {
        let workload = from_spec("contiguous:space=1MiB,hot=1MiB,writes=0.3").unwrap();
        let touches = draw(&mut stream(&workload, 3), 100_000);
        let writes = touches.iter().filter(|touch| touch.writes()).count();
        assert!(writes.abs_diff(30_000) < 870, "{writes}");
        assert!(touches.iter().all(|touch| touch.reads() != touch.writes()));
    }

    #[test]
    fn an_update_reads_and_writes() {
        let mut workload = from_spec("contiguous:space=1MiB,hot=1MiB").unwrap();
        workload.phases[0].accesses[0].mix = Mix::Update;
        assert!(draw(&mut stream(&workload, 3), 100).iter().all(|t| t.reads() && t.writes()));
    }

    #[test]
    fn every_page_can_be_reached() {
        let pages: HashSet<u64> =
            offsets("contiguous:space=4MiB,hot=4MiB", 20_000).iter().map(|at| at / 4096).collect();
        assert_eq!(pages.len(), 1024);
    }

    // masim's table: never more than 10^6 different offsets, and none from 2 GiB on.
    #[test]
    fn the_table_reaches_no_further_than_31_bits() {
        let mut workload = from_spec("contiguous:space=8GiB,hot=8GiB").unwrap();
        workload.phases[0].accesses[0].pattern = Pattern::Table;
        let seen: HashSet<u64> = draw(&mut stream(&workload, 1), 3_000_000)
            .iter()
            .map(|t| t.address() - (1 << 30))
            .collect();
        assert!(seen.iter().all(|at| *at < 1 << 31));
        assert!(seen.len() <= TABLE_VALUES && seen.len() > 900_000, "{}", seen.len());
    }

    #[test]
    fn a_drifting_window_is_followed() {
        let workload = from_spec("drift:space=40B,window=10B,step=15B,every=2s,time=7s").unwrap();
        let mut stream = stream(&workload, 1);
        for segment in workload.segments() {
            stream.enter(&segment);
            let from = (1 << 30) + workload.phases[0].accesses[0].drifted(segment.into);
            assert!(
                draw(&mut stream, 100).iter().all(|t| (from..from + 10).contains(&t.address()))
            );
        }
    }

    // Compares the stream's accesses in each tenth of the densities' probability mass: 200,000
    // accesses, 20,000 ± 134 each; six sigma allowed.
    #[test]
    fn streams_and_densities_agree() {
        for spec in [
            "zipf:space=400MiB,item=4KiB,burst=1",
            "zipf:space=4MiB,item=4KiB,scrambled=true,burst=1",
            "gaussian:space=4GiB,item=4KiB,sd=1000,burst=1",
            "scattered:space=1GiB,ranges=37,burst=1",
            "striped:space=1GiB,range=16KiB,apart=3MiB,burst=1",
            "graded:space=1GiB,ranges=4,range=16MiB,share=0.9,burst=1",
            "contiguous:space=1GiB,hot=64MiB,share=0.7,burst=1",
        ] {
            let workload = from_spec(spec).unwrap();
            let mut densities = workload.densities(&workload.segment_at(Duration::ZERO));
            densities.sort_by_key(|d| (d.part.from, std::cmp::Reverse(d.part.bytes)));
            let expected = |below: u64| -> f64 {
                let share = |d: &crate::density::Density| {
                    below.saturating_sub(d.part.from).min(d.part.bytes) as f64 / d.part.bytes as f64
                };
                densities.iter().map(|d| d.weight * share(d)).sum()
            };
            let mut seen = offsets(spec, 200_000);
            seen.sort_unstable();
            for tenth in 1..10 {
                let at = seen[tenth * 20_000];
                let (below, mass) = (seen.partition_point(|o| *o < at) as f64, expected(at) * 2e5);
                assert!(
                    (below - mass).abs() < 6.0 * 224.0,
                    "{spec}: {below} below {at}, expected {mass}"
                );
            }
        }
    }

    fn any_spec() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "contiguous:space=1GiB,hot=1MiB,share=0.9,writes=0.5",
            "stairs:space=1GiB,hot=1MiB,steps=4,every=1s",
            "scattered:space=1GiB,ranges=100",
            "zipf:space=1GiB,item=4KiB",
            "zipf:space=64MiB,item=4KiB,scrambled=true,writes=0.2",
            "gaussian:space=1GiB,item=4KiB,sd=10",
            "drift:space=1GiB,window=1MiB,step=64KiB,every=10ms,time=1s",
            "needle:space=1GiB,hot=4KiB",
        ])
        .prop_map(str::to_owned)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_same_seed_gives_the_same_accesses_in_batches_of_any_size(spec in any_spec(), seed: u64, cuts in prop::collection::vec(1usize..300, 1..20)) {
            let workload = from_spec(&spec).unwrap();
            let whole = draw(&mut stream(&workload, seed), cuts.iter().sum());
            let mut again = stream(&workload, seed);
            let parts: Vec<Touch> = cuts.iter().flat_map(|count| draw(&mut again, *count)).collect();
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn accesses_stay_within_the_densities(spec in any_spec(), seed: u64, time in 0u64..5000) {
            let workload = from_spec(&spec).unwrap();
            let segment = workload.segment_at(Duration::from_millis(time));
            let mut stream = stream(&workload, seed);
            stream.enter(&segment);
            let within: tierscope_core::RangeSet = workload.densities(&segment).iter()
                .map(|d| d.part.at(&[1 << 30], tierscope_core::SpaceId(0))).collect();
            for touch in draw(&mut stream, 500) {
                let slot = within.as_slice().partition_point(|r| r.end <= touch.address());
                prop_assert!(within.as_slice().get(slot).is_some_and(|r| r.start <= touch.address()));
            }
        }
    }
}
