//! What the arithmetic of `rates` costs: a table by how many hot entries it has, with the nodes of its chain.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tierscope_instruments::rates::infer_for_bench;

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("infer");
    for hot in [0, 1, 10, 100] {
        let nodes = infer_for_bench(hot, 1) as u64;
        group.throughput(Throughput::Elements(nodes));
        group.bench_with_input(BenchmarkId::new("hot", hot), &hot, |bencher, hot| {
            bencher.iter(|| infer_for_bench(*hot, 1));
        });
    }
    group.finish();
}

criterion_group!(benches, tables);
criterion_main!(benches);
