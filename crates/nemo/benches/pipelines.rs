//! Speed of the functional model, in requests per second of one core's CPU time: other load on the
//! machine affects it through the caches only.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{BusObserver, BusRecord, Compare, Key, Rng, Time, Trigger};
use tierscope_nemo::program::{Chain, Select, Side};
use tierscope_nemo::{At, Control, Engine, Functional, Memory, Program};

/// Requests of a batch; a measurement takes 2^16 requests.
const BATCH: usize = 256;
const REQUESTS: usize = 1 << 16;
/// Memory of the prototype; its huge pages fill a translation table exactly.
const BYTES: u64 = 16 << 30;

/// Random requests to the whole memory, a third of them writes.
fn requests() -> Vec<BusRecord> {
    let mut rng = Rng::seeded(8);
    let mut one = |n| BusRecord::new(Time(n), rng.below(BYTES) & !63, rng.below(3) == 0);
    (0..REQUESTS as u64).map(&mut one).collect()
}

/// A counter for each huge page (NEMO, listing 2).
fn per_huge_page(number: usize) -> Program {
    use tierscope_core::{Cell, Filter, Operand, Operator, ReadEffect, RequestKind};
    let side = Side { start: 0, effect: ReadEffect::Reset(0), trigger: None };
    Program {
        filter: Filter { kind: RequestKind::All, start: 0, end: u64::MAX },
        key: Key { mask: u64::MAX, shift: 21 },
        first_key: 0,
        offset: Key::NONE,
        select: Select::Table,
        operator: Operator::Add,
        operand: Operand::Constant(1),
        chain: Chain::None,
        cell: Cell::WORD,
        states: 8192,
        first_bank: 8 * number as u16,
        banks: 8,
        home: side,
        away: side,
    }
}

/// A counter for each 4 KiB page of 16 huge pages (NEMO, listing 1, as section 5.2 uses it).
fn per_base_page(number: usize) -> Program {
    Program { offset: Key { mask: (1 << 21) - 1, shift: 12 }, ..per_huge_page(number) }
}

fn engine(programs: &[Program], entry: impl Fn(usize, u16) -> Option<u32>) -> Functional {
    let memory = Memory::single(BYTES, 2).expect("a memory");
    let mut engine = Functional::new(memory, programs.len(), programs.len() * 8).expect("engine");
    for (pipeline, program) in programs.iter().enumerate() {
        let at = At { controller: 0, pipeline };
        engine.control(at, Control::Program(Some(*program)));
        for key in 0..8192 {
            engine.control(at, Control::Translate(key, entry(pipeline, key)));
        }
    }
    engine
}

/// Pipeline 0 translates every huge page, each other pipeline sixteen huge pages by base page.
fn memtis(pipeline: usize, key: u16) -> Option<u32> {
    if pipeline == 0 {
        return Some(key.into());
    }
    let slot = u32::from(key).checked_sub(16 * pipeline as u32).filter(|slot| *slot < 16);
    slot.map(|slot| slot * 512)
}

/// Measures the CPU time of this thread.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn throughput(c: &mut Criterion<CpuTime>) {
    let every = |_, key: u16| Some(u32::from(key));
    let mut notifying = per_huge_page(0);
    notifying.home.trigger = Some(Trigger { compare: Compare::AtLeast, value: 1 << 40 });
    notifying.away.trigger = notifying.home.trigger;
    let eight: Vec<Program> = (0..8).map(per_huge_page).collect();
    let skew: Vec<Program> =
        (0..8).map(|n| if n == 0 { per_huge_page(0) } else { per_base_page(n) }).collect();
    let cases = [
        ("one pipeline", engine(&[per_huge_page(0)], every)),
        ("one pipeline, notifying", engine(&[notifying], every)),
        ("eight pipelines, every request counts in each", engine(&eight, every)),
        ("eight pipelines as for skewness", engine(&skew, memtis)),
    ];
    let requests = requests();
    let mut group = c.benchmark_group("functional");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    for (name, mut engine) in cases {
        group.bench_function(name, |b| {
            b.iter(|| requests.chunks(BATCH).for_each(|batch| engine.observe(batch)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = throughput
}
criterion_main!(benches);
