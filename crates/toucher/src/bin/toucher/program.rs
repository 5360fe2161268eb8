//! Runs programs that compute over real memory: a thread per lane touches the accesses that the
//! lane hands out.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result, Time};
use tierscope_workloads::truth_dir::{AreaLine, CLOCK};
use tierscope_workloads::{App, Call, Lane, Next, Touch};

use crate::args::{Args, Start};
use crate::memory::{Backing, Mapped, touch};
use crate::pages::{Begin, FILE, Line, Pages, Touched, Writer};
use crate::resources::Available;
use crate::thread::Message;
use crate::{area_lines, clock, map, ready, signals, wait_for_start};

/// Accesses that a lane hands out at a time.
const BATCH: usize = 512;
/// Interval at which a waiting lane checks whether it should stop.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// Runs a program with the options of the command line.
pub(crate) fn run(args: &Args, app: &dyn App) -> Result<()> {
    check(args)?;
    let backing = args.backing(app.areas())?;
    let (room, needs) = (Available::read(Path::new("/"))?, backing.needs(app.areas()));
    room.check(&needs)?;
    if args.check {
        println!("{}", room.describe(&needs));
        return Ok(());
    }
    args.check_outputs(FILE)?;
    let (sender, messages) = std::sync::mpsc::channel();
    signals::listen(sender);
    if !prepare(app, &messages) {
        return Ok(());
    }
    let Some(mapped) = map(app.areas(), backing, &messages)? else { return Ok(()) };
    let done = touch_all(args, app, backing, &mapped, &messages);
    mapped.iter().for_each(Mapped::release);
    done
}

/// Rejects options that do not apply to programs.
fn check(args: &Args) -> Result<()> {
    let refuse = |what: &str, cause: &str, remedy: &str| {
        Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
    };
    if args.toml {
        return refuse(
            "--toml",
            "a program has no description: it computes its accesses",
            "leave it out, or take a generator's line",
        );
    }
    if args.rate.is_some() {
        return refuse(
            "--rate",
            "a program always runs as fast as it can",
            "leave it out, or take a generator's line",
        );
    }
    Ok(())
}

/// Prepares the program, reporting progress; `false` if a signal ended it.
fn prepare(app: &dyn App, messages: &Receiver<Message>) -> bool {
    let mut reported = Instant::now();
    app.prepare(&mut |share| {
        if reported.elapsed() >= Duration::from_secs(2) {
            reported = Instant::now();
            eprintln!("toucher: prepared {:.0} % of {}", 100.0 * share, app.name());
        }
        !matches!(messages.try_recv(), Ok(Message::Signal(signal)) if signal != libc::SIGUSR1)
    })
}

/// State shared by all threads.
struct Shared {
    begin: Time,
    stop: AtomicBool,
    touches: AtomicU64,
    operations: AtomicU64,
    pages: Option<Pages>,
    /// Number of steps of all lanes; waiting lanes wait for it to grow.
    steps: Mutex<u64>,
    stepped: Condvar,
}

#[derive(Serialize)]
struct Summary<'a> {
    touches: u64,
    seconds: f64,
    touches_per_second: f64,
    operations: u64,
    unit: &'a str,
    operations_per_second: f64,
}

fn touch_all(
    args: &Args,
    app: &dyn App,
    backing: Backing,
    mapped: &[Mapped],
    messages: &Receiver<Message>,
) -> Result<()> {
    let areas = area_lines(app.areas(), mapped);
    let threads = args.threads.or(app.threads()).unwrap_or(1);
    let mut truth = args.truth.as_deref().map(Writer::create).transpose()?;
    if let Some(writer) = &mut truth {
        writer.line(&Line::Begin(begin_line(args, app, backing, threads, &areas)))?;
    }
    let bases: Vec<u64> = mapped.iter().map(Mapped::start).collect();
    let mut lanes = app.start(&bases, args.seed, threads);
    let mut cause = "the program ended";
    if args.start == Start::Signal {
        ready::announce(args, &areas)?;
        if !wait_for_start(messages) {
            let line =
                Line::End { at_ns: clock::now().0, cause: "ended before it began", operations: 0 };
            return truth.map_or(Ok(()), |mut writer| writer.line(&line));
        }
    }
    let shared = Shared {
        begin: clock::now(),
        stop: AtomicBool::new(false),
        touches: AtomicU64::new(0),
        operations: AtomicU64::new(0),
        pages: truth.as_ref().map(|_| Pages::new(&areas)),
        steps: Mutex::new(0),
        stepped: Condvar::new(),
    };
    if args.start == Start::Now {
        ready::announce(args, &areas)?;
    }
    let limit = args.time.map(|time| shared.begin + time);
    let mut passes = 0;
    loop {
        if let Some(why) = one_pass(args, &shared, lanes, limit, messages, &mut truth)? {
            cause = why;
            break;
        }
        passes += 1;
        if args.time.is_none() && args.passes != 0 && passes >= args.passes {
            break;
        }
        lanes = app.start(&bases, args.seed.wrapping_add(passes.into()), threads);
    }
    println!("{}", summary(&shared, app));
    let operations = shared.operations.load(Relaxed);
    let end = Line::End { at_ns: clock::now().0, cause, operations };
    truth.map_or(Ok(()), |mut writer| writer.line(&end))
}

fn begin_line<'a>(
    args: &Args,
    app: &'a dyn App,
    backing: Backing,
    threads: u32,
    areas: &'a [AreaLine],
) -> Begin<'a> {
    Begin {
        format: Begin::FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        clock: CLOCK,
        at_ns: clock::now().0,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        program: app.name(),
        unit: app.unit(),
        seed: args.seed,
        threads,
        grain_ns: args.grain.as_nanos() as u64,
        page_bytes: Begin::PAGE_BYTES,
        regions: None,
        backing: backing.name(),
        areas,
    }
}

/// The summary of the run, as one line of JSON.
fn summary(shared: &Shared, app: &dyn App) -> String {
    let seconds = (clock::now() - shared.begin).as_secs_f64();
    let (touches, operations) = (shared.touches.load(Relaxed), shared.operations.load(Relaxed));
    let summary = Summary {
        touches,
        seconds,
        touches_per_second: touches as f64 / seconds,
        operations,
        unit: app.unit(),
        operations_per_second: operations as f64 / seconds,
    };
    serde_json::to_string(&summary).expect("numbers are JSON")
}

/// Runs all lanes to their end; returns the cause if they were ended early.
fn one_pass(
    args: &Args,
    shared: &Shared,
    lanes: Vec<Box<dyn Lane>>,
    limit: Option<Time>,
    messages: &Receiver<Message>,
    truth: &mut Option<Writer>,
) -> Result<Option<&'static str>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            lanes.into_iter().map(|lane| scope.spawn(move || work_or_stop(shared, lane))).collect();
        let alive = || threads.iter().any(|thread| !thread.is_finished());
        let followed = follow(args, shared, limit, messages, truth, &alive);
        shared.stop.store(true, Relaxed);
        let joined =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(broken())));
        let done: Result<Vec<()>> = joined.collect();
        shared.stop.store(false, Relaxed);
        done.and(followed)
    })
}

fn broken() -> Error {
    Error::new(ErrorKind::Other, "a thread of the program panicked").remedy("see the message above")
}

/// Records the touched pages until the threads end, the time limit is reached or a signal arrives.
fn follow(
    args: &Args,
    shared: &Shared,
    limit: Option<Time>,
    messages: &Receiver<Message>,
    truth: &mut Option<Writer>,
    alive: &dyn Fn() -> bool,
) -> Result<Option<&'static str>> {
    let (mut from, mut before) = (clock::now(), shared.touches.load(Relaxed));
    loop {
        let signal = match messages.recv_timeout(args.grain) {
            Ok(Message::Signal(signal)) if signal != libc::SIGUSR1 => Some(signal),
            Err(RecvTimeoutError::Disconnected) => Some(libc::SIGTERM),
            _ => None,
        };
        let (now, touches) = (clock::now(), shared.touches.load(Relaxed));
        if let (Some(writer), Some(pages)) = (truth.as_mut(), &shared.pages) {
            let (begin_ns, end_ns) = (from.0, now.0);
            let touches = touches - before;
            writer.line(&Line::Pages(Touched {
                begin_ns,
                end_ns,
                touches,
                areas: pages.take(),
            }))?;
        }
        (from, before) = (now, touches);
        match signal {
            Some(signal) => return Ok(Some(signals::name(signal))),
            None if limit.is_some_and(|limit| now >= limit) => return Ok(Some("its time is over")),
            None if !alive() => return Ok(None),
            None => {}
        }
    }
}

/// Runs [`work`]; on failure stops the other lanes, which would wait for this one.
fn work_or_stop(shared: &Shared, lane: Box<dyn Lane>) -> Result<()> {
    let done = catch_unwind(AssertUnwindSafe(|| work(shared, lane)));
    let done = done.unwrap_or_else(|_| Err(broken()));
    if done.is_err() {
        shared.stop.store(true, Relaxed);
    }
    done
}

/// Touches the accesses of a lane until it ends or all threads are stopped.
fn work(shared: &Shared, mut lane: Box<dyn Lane>) -> Result<()> {
    let mut batch = [Touch::default(); BATCH];
    let mut waited = false;
    let done = loop {
        if shared.stop.load(Relaxed) {
            break Ok(());
        }
        let seen = *shared.steps();
        lane.now(clock::now() - shared.begin);
        let before = lane.steps();
        let next = lane.next(&mut batch);
        let steps = next != Next::Waits || !waited || lane.steps() != before;
        if steps {
            *shared.steps() += 1;
            shared.stepped.notify_all();
        }
        waited = next == Next::Waits;
        match next {
            Next::Touches(count) => shared.touch(&batch[..count]),
            Next::Waits => shared.wait(seen + u64::from(steps)),
            Next::Until(due) => {
                std::thread::sleep((shared.begin + due - clock::now()).min(MAX_WAIT))
            }
            Next::Ends => break Ok(()),
            Next::Call(one) => {
                if let Err(error) = call(one) {
                    break Err(error);
                }
            }
        }
    };
    shared.operations.fetch_add(lane.operations(), Relaxed);
    done
}

impl Shared {
    fn steps(&self) -> MutexGuard<'_, u64> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self, touches: &[Touch]) {
        if let Some(pages) = &self.pages {
            pages.mark(touches);
        }
        touches.iter().for_each(|t| touch(t.address(), t.reads(), t.writes()));
        self.touches.fetch_add(touches.len() as u64, Relaxed);
    }

    /// Waits until other lanes made steps beyond `seen`, at most for [`MAX_WAIT`].
    fn wait(&self, seen: u64) {
        let steps = self.steps();
        if *steps <= seen {
            drop(self.stepped.wait_timeout(steps, MAX_WAIT));
        }
    }
}

/// Executes a program's system call. File pages are read or written by the kernel on the program's
/// behalf (`process_vm_readv(2)` of its own memory, which marks pages as `read(2)` does).
fn call(call: Call) -> Result<()> {
    let done = match call {
        Call::Free { at, bytes } => advise_free(at, bytes),
        Call::Lock { at, bytes, on } => lock(at, bytes, on),
        Call::File { at, bytes, writes } => pass_by_kernel(at, bytes, writes),
    };
    done.map_err(|e| {
        Error::new(ErrorKind::Other, format!("the program's {call:?} failed"))
            .cause(e)
            .remedy("see `ulimit -l` for locks; other calls need the memory that is mapped")
    })
}

fn advise_free(at: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: the program owns these bytes, and only atomics access them; afterwards they read as
    // zeros.
    unsafe {
        rustix::mm::madvise(at as *mut _, bytes as usize, rustix::mm::Advice::LinuxDontNeed)?;
    }
    Ok(())
}

fn lock(at: u64, bytes: u64, on: bool) -> io::Result<()> {
    // SAFETY: locking changes no content.
    unsafe {
        if on {
            rustix::mm::mlock(at as *mut _, bytes as usize)?;
        } else {
            rustix::mm::munlock(at as *mut _, bytes as usize)?;
        }
    }
    Ok(())
}

fn pass_by_kernel(at: u64, bytes: u64, writes: bool) -> io::Result<()> {
    let iovec = libc::iovec { iov_base: at as *mut _, iov_len: bytes as usize };
    let mut here = vec![0u8; bytes as usize];
    let own = libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: here.len() };
    let pid = std::process::id() as i32;
    // SAFETY: both buffers lie in this process; a bad address fails with EFAULT. The contents are
    // irrelevant.
    let copied = unsafe {
        if writes {
            libc::process_vm_writev(pid, &raw const own, 1, &raw const iovec, 1, 0)
        } else {
            libc::process_vm_readv(pid, &raw const own, 1, &raw const iovec, 1, 0)
        }
    };
    if copied < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
