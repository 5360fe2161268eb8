//! Computing programs on the exact machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierscope_core::{Access, Clock, PageEventKind, PageEvents, Target, Tier, Time, Wake};
use tierscope_sim::exact::{Detail, Latency, Machine, Process};
use tierscope_workloads::description::Area;
use tierscope_workloads::{App, Call, Lane, Next, Touch, programs};

use crate::stage::setup;

const PAGE: u64 = 4096;

/// A step of a toy program's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Writes consecutive pages, modulo 256: first page and number of writes.
    Pages(u64, u64),
    /// Writes the first page this many times: an operation.
    Request(u64),
    Call(Call),
    /// Waits until all lanes have reached this barrier.
    Barrier,
    /// Sleeps until this time after the program began.
    Sleep(Duration),
}

/// A program of given steps for each lane.
#[derive(Debug)]
struct Toy {
    areas: Vec<Area>,
    lanes: Vec<Vec<Step>>,
}

impl Toy {
    fn with(lanes: Vec<Vec<Step>>) -> Arc<dyn App> {
        let area = Area { name: "toy".into(), bytes: 1 << 20, content: None };
        Arc::new(Self { areas: vec![area], lanes })
    }
}

impl App for Toy {
    fn name(&self) -> &str {
        "toy"
    }
    fn areas(&self) -> &[Area] {
        &self.areas
    }
    fn unit(&self) -> &'static str {
        "writes"
    }
    fn start(&self, bases: &[u64], _: u64, lanes: u32) -> Vec<Box<dyn Lane>> {
        assert_eq!(self.lanes.len(), lanes as usize);
        let arrived = Arc::new(Mutex::new(vec![0; self.lanes.len()]));
        let lane = |(number, steps): (usize, &Vec<Step>)| {
            let lane = ToyLane {
                number,
                base: bases[0],
                steps: steps.clone().into(),
                arrived: Arc::clone(&arrived),
                arriving: false,
                now: Duration::ZERO,
                done: 0,
            };
            Box::new(lane) as Box<dyn Lane>
        };
        self.lanes.iter().enumerate().map(lane).collect()
    }
}

struct ToyLane {
    number: usize,
    base: u64,
    steps: std::collections::VecDeque<Step>,
    /// Number of barriers that each lane has reached.
    arrived: Arc<Mutex<Vec<u32>>>,
    arriving: bool,
    now: Duration,
    done: u64,
}

impl Lane for ToyLane {
    fn now(&mut self, since: Duration) {
        self.now = since;
    }

    fn next(&mut self, out: &mut [Touch]) -> Next {
        let base = self.base;
        loop {
            match self.steps.front_mut() {
                None => return Next::Ends,
                Some(Step::Pages(_, 0)) => {}
                Some(Step::Pages(from, count)) => {
                    let now = (*count).min(out.len() as u64);
                    (0..now).for_each(|at| {
                        out[at as usize] = Touch::write(base + (*from + at) % 256 * PAGE);
                    });
                    (*from, *count) = (*from + now, *count - now);
                    self.done += now;
                    return Next::Touches(now as usize);
                }
                Some(Step::Request(count)) => {
                    let now = (*count).min(out.len() as u64) as usize;
                    *count -= now as u64;
                    out[..now].fill(Touch::write(base));
                    self.done += now as u64;
                    if *count == 0 {
                        out[now - 1] = out[now - 1].last();
                        self.steps.pop_front();
                    }
                    return Next::Touches(now);
                }
                Some(Step::Call(call)) => {
                    let call = shifted(*call, base);
                    self.steps.pop_front();
                    return Next::Call(call);
                }
                Some(Step::Sleep(until)) if self.now < *until => return Next::Until(*until),
                Some(Step::Sleep(_)) => {}
                Some(Step::Barrier) => {
                    let mut arrived = self.arrived.lock().unwrap();
                    arrived[self.number] += u32::from(!std::mem::replace(&mut self.arriving, true));
                    if arrived.iter().any(|count| *count < arrived[self.number]) {
                        return Next::Waits;
                    }
                    self.arriving = false;
                }
            }
            self.steps.pop_front();
        }
    }

    fn operations(&self) -> u64 {
        self.done
    }
}

fn shifted(mut call: Call, base: u64) -> Call {
    let (Call::File { at, .. } | Call::Lock { at, .. } | Call::Free { at, .. }) = &mut call;
    *at += base;
    call
}

fn process(lanes: Vec<Vec<Step>>) -> Process {
    let threads = lanes.len() as u32;
    Process { threads, repeats: false, ..Process::new(Toy::with(lanes)) }
}

fn started(process: &Process, cpus: u32) -> Machine {
    let mut setup = setup([64, 64]);
    setup.cpus = cpus;
    let mut machine = Machine::new(&setup).expect("it is possible");
    machine.start(process).expect("it fits");
    machine
}

fn run_out(machine: &mut Machine) {
    while machine.wait(Time(1_000_000_000)) != Wake::Gone {
        assert!(machine.now() < Time(1_000_000_000), "it never ends");
    }
}

#[test]
fn a_program_does_its_steps_and_exits() {
    let process = process(vec![vec![Step::Pages(0, 1000)]]);
    let mut machine = started(&process, 1);
    run_out(&mut machine);
    let account = machine.account();
    assert_eq!(account.counts.accesses, 1000);
    assert_eq!(account.counts.first_touches[0], 256);
    let done = &account.done[0];
    assert_eq!((done.name.as_str(), done.unit, done.operations), ("toy", "writes", 1000));
}

// 800,000 accesses against 100: a waiting lane uses no CPU time, and neither lane touches pages
// behind the barrier before the other has reached it. On one core the threads alternate.
#[test]
fn lanes_wait_for_each_other() {
    for cpus in [1, 2] {
        let after = vec![Step::Barrier, Step::Pages(200, 10)];
        let lane = |count| [vec![Step::Pages(0, count)], after.clone()].concat();
        let mut machine = started(&process(vec![lane(800_000), lane(100)]), cpus);
        run_out(&mut machine);
        let account = machine.account();
        assert_eq!(account.counts.accesses, 800_120, "{cpus} cores");
        let busy = account.spent.target.as_nanos() as f64;
        let wall = machine.now().0 as f64;
        assert!(busy < 1.15 * wall, "{cpus} cores: {busy} ns busy in {wall}");
    }
}

// Each pass sleeps until 1 ms and until 3 ms after it began, on as many cores as there are lanes,
// and on one.
#[test]
fn lanes_sleep_until_their_time() {
    let sleep = |millis| Step::Sleep(Duration::from_millis(millis));
    let lane = |millis| vec![Step::Pages(0, 10), sleep(millis), Step::Pages(0, 10)];
    for cpus in [1, 2] {
        let process = Process { repeats: true, ..process(vec![lane(1), lane(3)]) };
        let mut machine = started(&process, cpus);
        let mut at = |nanos| {
            while machine.now() < Time(nanos) {
                machine.wait(Time(nanos));
            }
            machine.account().counts.accesses
        };
        assert_eq!([900_000, 1_900_000, 2_900_000].map(&mut at), [20, 30, 30], "{cpus} cores");
        assert_eq!([3_900_000, 4_900_000, 6_900_000].map(&mut at), [60, 70, 100], "{cpus} cores");
        assert!(machine.account().spent.target < Duration::from_micros(500));
    }
}

#[test]
fn a_program_begins_again_with_all_its_lanes() {
    let lane = vec![Step::Pages(0, 500), Step::Barrier, Step::Pages(0, 500)];
    let process = Process { repeats: true, ..process(vec![lane.clone(), lane]) };
    let mut machine = started(&process, 2);
    while machine.account().done[0].operations < 20_000 {
        let now = machine.now();
        machine.wait(now + Duration::from_micros(100));
        assert!(machine.now() < Time(1_000_000_000), "no progress");
    }
}

#[test]
fn calls_fault_pages_in_and_discard_them() {
    let all = |at, pages| (at * PAGE, pages * PAGE);
    let ((file, file_bytes), (lock, lock_bytes), (free, free_bytes)) =
        (all(0, 3), all(8, 2), all(0, 2));
    let calls = vec![
        Step::Call(Call::File { at: file, bytes: file_bytes, writes: false }),
        Step::Call(Call::Lock { at: lock, bytes: lock_bytes, on: true }),
        Step::Call(Call::Lock { at: lock, bytes: lock_bytes, on: false }),
        Step::Pages(0, 1),
        Step::Call(Call::Free { at: free, bytes: free_bytes }),
        Step::Pages(0, 3),
        // Keeps the program alive, so that its pages can be examined.
        Step::Pages(0, 1 << 40),
    ];
    let mut machine = started(&process(vec![calls]), 1);
    while machine.account().counts.accesses < 4 {
        let now = machine.now();
        machine.wait(now + Duration::from_nanos(200));
    }
    let layout = machine.mappings(Duration::ZERO).expect("they are known");
    let base = layout.mappings[0].range.start;
    let mut events = Vec::new();
    PageEvents::drain(&mut machine, &mut events);
    let mut seen: Vec<_> = events
        .iter()
        .map(|e| (e.kind, (e.range.start - base) / PAGE, e.range.bytes() / PAGE))
        .collect();
    seen.truncate(11);
    let tier = Tier(0);
    assert_eq!(
        seen,
        [
            // System calls bring in absent pages.
            (PageEventKind::Allocated(tier), 0, 1),
            (PageEventKind::Allocated(tier), 1, 1),
            (PageEventKind::Allocated(tier), 2, 1),
            (PageEventKind::FileAccess(Access::Load), 0, 3),
            (PageEventKind::Allocated(tier), 8, 1),
            (PageEventKind::Allocated(tier), 9, 1),
            (PageEventKind::Locked, 8, 2),
            (PageEventKind::Unlocked, 8, 2),
            (PageEventKind::Freed, 0, 2),
            // Pages 0 and 1 are allocated again; page 2 stayed.
            (PageEventKind::Allocated(tier), 0, 1),
            (PageEventKind::Allocated(tier), 1, 1),
        ]
    );
}

#[test]
fn a_call_outside_of_its_memory_kills_a_program() {
    let call = Call::File { at: 1 << 30, bytes: PAGE, writes: true };
    let mut machine = started(&process(vec![vec![Step::Call(call), Step::Pages(0, 10)]]), 1);
    run_out(&mut machine);
    assert_eq!((machine.account().killed, machine.account().counts.accesses), (1, 0));
}

fn graph(spec: &str) -> Process {
    Process { repeats: false, ..Process::new(programs::from_spec(spec).expect("it makes sense")) }
}

/// Loads and stores that a program of one lane issues.
fn accesses_of(app: &dyn App) -> u64 {
    let bases: Vec<u64> = (1..=app.areas().len() as u64).map(|at| at << 40).collect();
    let mut lane = app.start(&bases, 1, 1).remove(0);
    let mut buffer = [Touch::default(); 100];
    let mut count = 0;
    while let Next::Touches(drawn) = lane.next(&mut buffer) {
        let accesses = |touch: &Touch| u64::from(touch.reads()) + u64::from(touch.writes());
        count += buffer[..drawn].iter().map(accesses).sum::<u64>();
    }
    count
}

#[test]
fn a_search_is_carried_out_access_by_access() {
    let spec = "bfs:scale=10,trials=2";
    let mut machine = started(&graph(spec), 1);
    run_out(&mut machine);
    let app = programs::from_spec(spec).expect("it makes sense");
    assert_eq!(machine.account().counts.accesses, accesses_of(&*app));
}

#[test]
fn three_lanes_on_two_cores_compute_the_same_every_time() {
    for spec in ["sssp:scale=8,trials=1,threads=3", "graph500:scale=9,keys=2,threads=3"] {
        let run = || {
            let mut machine = started(&graph(spec), 2);
            run_out(&mut machine);
            machine.account()
        };
        let account = run();
        assert_eq!(account, run(), "{spec}");
        assert!(account.done[0].operations > 1000 && account.killed == 0, "{account:?}");
    }
}

// At 1 GHz an access takes a nanosecond where only translation is modelled: the request of k
// accesses takes k ns, for k from 1 to 100 in any order. The sleep before the last request is not
// part of it.
#[test]
fn requests_take_as_long_as_their_accesses() {
    let requests = (0..99).map(|at| Step::Request(at * 37 % 99 + 1));
    let rest = [Step::Sleep(Duration::from_micros(50)), Step::Request(100)];
    let lane: Vec<Step> = requests.chain(rest).collect();
    let mut setup = setup([64, 64]);
    setup.hardware.processor.mhz = 1000;
    (setup.detail, setup.tick) = (Detail::Translation, None);
    let mut machine: Machine = Machine::new(&setup).expect("it is possible");
    machine.start(&Process { populate: true, ..process(vec![lane]) }).expect("it fits");
    run_out(&mut machine);
    let account = machine.account();
    let latency = account.done[0].latency.expect("they are marked");
    let by_hand = Latency { operations: 100, p50: 50, p95: 95, p99: 99, p999: 100, most: 100 };
    assert_eq!((latency, account.counts.accesses), (by_hand, 5050));
}

// Without sleeps and waits, the times of all requests add up to the thread's time.
#[test]
fn a_store_reports_latencies_of_its_requests() {
    let app = programs::from_spec("silo:keys=2000,ycsb=a,requests=3000").expect("it is a store");
    let mut machine = started(&Process { repeats: false, ..Process::new(app) }, 1);
    run_out(&mut machine);
    let account = machine.account();
    let latency = account.done[0].latency.expect("they are marked");
    assert_eq!(latency.operations, 3000);
    let mean = machine.now().0 / 3000;
    println!("{latency:?}, {mean} ns on average");
    assert!(
        latency.p50 <= latency.p95 && latency.p95 <= latency.p99 && latency.p99 <= latency.p999
    );
    assert!(latency.p50 < 2 * mean && latency.p999 > mean && latency.p999 <= latency.most);
    // Programs that do not mark the ends of operations report no latency.
    let mut machine = started(&process(vec![vec![Step::Pages(0, 1000)]]), 1);
    run_out(&mut machine);
    assert_eq!(machine.account().done[0].latency, None);
}
