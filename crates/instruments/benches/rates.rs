//! Cost of the arithmetic of `rates`: the chain by its nodes, a table of uncorrelated entries by
//! its looks, a fit of the distribution of rates, and the regions of a window. In simulations,
//! `crates/instruments/src/rates/mod.rs` charges these costs.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tierscope_instruments::rates::bench::{Drawing, fit, infer, infer_apart};

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("infer");
    for hot in [0, 1, 10, 100] {
        group.throughput(Throughput::Elements(infer(hot, 1) as u64));
        group.bench_with_input(BenchmarkId::new("hot", hot), &hot, |bencher, hot| {
            bencher.iter(|| infer(*hot, 1));
        });
    }
    for depth in [1, 3, 6, 8] {
        group.throughput(Throughput::Elements(infer_apart(depth, 1) as u64));
        group.bench_with_input(BenchmarkId::new("apart", depth), &depth, |bencher, depth| {
            bencher.iter(|| infer_apart(*depth, 1));
        });
    }
    group.throughput(Throughput::Elements(fit(256) as u64));
    group.bench_function("fit", |bencher| bencher.iter(|| fit(256)));
    group.finish();
}

fn regions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("regions");
    let mut drawing = Drawing::new(64);
    for (name, afresh) in [("drawn", true), ("copied", false)] {
        let [drawn, copied] = drawing.regions(afresh);
        group.throughput(Throughput::Elements(drawn.max(copied) as u64));
        group.bench_function(name, |bencher| bencher.iter(|| drawing.regions(afresh)));
    }
    group.finish();
}

criterion_group!(benches, tables, regions);
criterion_main!(benches);
