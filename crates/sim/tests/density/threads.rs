//! The budget of `rates` covers the profiler's other threads.

use tierscope_conformance::instrument::run;
use tierscope_core::Clock;
use tierscope_instruments::registry::{self, Common};

use super::*;

/// A machine on which the profiler's other threads take a share of a CPU.
struct Threads {
    machine: Machine,
    share: f64,
}

impl Clock for Threads {
    fn now(&self) -> Time {
        self.machine.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.machine.wait(until)
    }
}

impl Target for Threads {
    fn mappings(&mut self, max_age: Duration) -> Result<std::sync::Arc<Mappings>> {
        self.machine.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        let of = self.machine.cpu_time();
        let others = self.now().since(Time(0)).mul_f64(self.share);
        CpuTime { profiler: of.profiler + others, ..of }
    }

    fn own_time(&self) -> Duration {
        self.machine.own_time()
    }
}

impl Ports for Threads {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.machine.access_bits()
    }
}

/// CPU time of all threads in ten seconds, of one CPU, while the other threads take `others`.
fn taken(budget: f64, others: f64) -> f64 {
    let machine = machine(config(), "contiguous:space=256GiB,hot=10GiB,at=0B,rate=2500000");
    let mut machine = Threads { machine, share: others };
    let common = Common { cpu: Some(budget), ..Common::default() };
    let mut rates = registry::make("rates", None, &common).unwrap();
    run(&mut machine, &mut *rates, 10.0);
    machine.cpu_time().profiler.as_secs_f64() / 10.0
}

// 1 % of a CPU, of which other threads take 0.3.
#[test]
fn other_threads_are_within_the_budget() {
    let (alone, beside) = (taken(0.01, 0.0), taken(0.01, 0.003));
    println!("{alone:.5} {beside:.5}");
    assert!((0.0085..0.01).contains(&alone), "{alone}");
    assert!((0.0085..0.01).contains(&beside), "{beside}");
}
