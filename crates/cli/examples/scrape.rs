//! Measures the latency of a scrape while a window of many regions is recorded every 200 ms:
//! `scrape TIERSCOPE [REGIONS [SECONDS]]` runs that binary's `serve` on a recording that this
//! program makes, scrapes ten times per second, and prints a line of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Backing, Mapping, Mappings, Range, Region, Snapshot, SpaceId, Time};
use tierscope_record::{Meta, Recorder};

const WINDOW: Duration = Duration::from_millis(200);
const REGION: u64 = 2 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments.next().expect("give the path of tierscope");
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().expect("a number"));
    let (regions, seconds) = (number(100_000), number(10));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let done = AtomicBool::new(false);
    // The server needs an existing recording.
    let (begun, has_begun) = channel();
    thread::scope(|scope| {
        let recorder = scope.spawn(|| record(dir.path(), regions, &done, &begun));
        has_begun.recv().expect("the recorder begins");
        let mut server = Server::start(&binary, dir.path());
        let mut times = server.scrape(seconds);
        done.store(true, Ordering::Relaxed);
        let (windows, late) = recorder.join().expect("the recorder");
        times.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let at = |percent: usize| ms(times[(times.len() - 1) * percent / 100]);
        println!(
            "{{\"regions\": {regions}, \"scrapes\": {}, \"median_ms\": {:.2}, \"p99_ms\": {:.2}, \
             \"max_ms\": {:.2}, \"windows\": {windows}, \"committed_late_at_most_ms\": {:.1}}}",
            times.len(),
            at(50),
            at(99),
            at(100),
            ms(late)
        );
    });
}

/// Records until `done` is set. Returns the number of windows, and the largest delay of a commit
/// after its window's end.
fn record(dir: &Path, regions: u64, done: &AtomicBool, begun: &Sender<()>) -> (u32, Duration) {
    let mut recorder = Recorder::create(dir, &Meta::default()).expect("a recording");
    let (began, mut late) = (Instant::now(), Duration::ZERO);
    for index in 0.. {
        if done.load(Ordering::Relaxed) {
            return (index, late);
        }
        let due = began + WINDOW * index;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        window(&mut recorder, index, regions);
        late = late.max(Instant::now().saturating_duration_since(due));
        let _ = begun.send(());
    }
    unreachable!("`done` ends the loop")
}

fn window(recorder: &mut Recorder, index: u32, regions: u64) {
    let of = |number: u64| Region {
        age: index,
        ..Region::sampled(
            Range::new(SpaceId(0), number * REGION, (number + 1) * REGION),
            ((number + u64::from(index)) % 41) as f32,
            40,
        )
    };
    let at = |index: u32| Time((WINDOW * index).as_nanos() as u64);
    let (start, end) = (at(index), at(index + 1));
    let regions_of = (0..regions).map(of).collect();
    let snapshot = Snapshot { start, end, samples: 40, regions: regions_of };
    let range = Range::new(SpaceId(0), 0, regions * REGION);
    let heap = Mapping {
        range,
        backing: Backing::Heap,
        name: "[heap]".into(),
        writable: true,
        object: None,
    };
    let layout = Mappings { mappings: vec![heap], ..Mappings::default() };
    let mappings = (index == 0).then_some(&layout);
    recorder.window(&Window { mappings, ..Window::of(&snapshot) }).expect("a window");
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(binary: &str, dir: &Path) -> Self {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg(dir).stderr(Stdio::piped());
        let mut child = command.spawn().expect("tierscope starts");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("it is piped");
        BufReader::new(stderr).read_line(&mut line).expect("it says where it listens");
        let rest = line.split("http://").nth(1).unwrap_or_else(|| panic!("{line}"));
        Self { child, address: rest.split('/').next().unwrap_or_default().into() }
    }

    fn scrape(&mut self, seconds: u64) -> Vec<Duration> {
        let one = |_| {
            thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            let mut client = TcpStream::connect(&self.address).expect("a connection");
            client
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("a request");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            assert!(answer.ends_with("# EOF\n"), "{answer}");
            began.elapsed()
        };
        (0..10 * seconds).map(one).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
