//! `toucher`: touches memory as a description specifies, and records the ground truth of hot memory
//! over time.

mod args;
mod clock;
mod memory;
mod pages;
mod program;
mod ready;
mod resources;
mod signals;
mod thread;
mod truth_log;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::Parser;
use tierscope_core::{Error, ErrorKind, Result, Time};
use tierscope_workloads::description::Area;
use tierscope_workloads::truth_dir::{AreaLine, End, FILE};
use tierscope_workloads::{Program, Work, Workload, file};

use crate::args::{Args, Start};
use crate::memory::{Backing, Mapped, Progress};
use crate::resources::Available;
use crate::thread::{Message, Shared, work};
use crate::truth_log::TruthLog;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toucher: {error}");
            ExitCode::from(match error.kind() {
                ErrorKind::Usage | ErrorKind::Data => 2,
                ErrorKind::Missing => 3,
                _ => 1,
            })
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let workload = match args.work()? {
        Work::Described(workload) => workload,
        Work::Computed(app) => return program::run(args, &*app),
    };
    if args.toml {
        print!("{}", file::to_toml(&workload));
        return Ok(());
    }
    let backing = args.backing(&workload.areas)?;
    let (room, needs) = (Available::read(Path::new("/"))?, backing.needs(&workload.areas));
    room.check(&needs)?;
    if args.check {
        println!("{}", room.describe(&needs));
        return Ok(());
    }
    args.check_outputs(FILE)?;
    let (sender, messages) = channel();
    signals::listen(sender.clone());
    let Some(mapped) = map(&workload.areas, backing, &messages)? else { return Ok(()) };
    let done = touch_all(args, workload, backing, &mapped, sender, &messages);
    mapped.iter().for_each(Mapped::release);
    done
}

/// Maps and populates all areas; `None` if a signal ended it early.
fn map(
    areas: &[Area],
    backing: Backing,
    messages: &Receiver<Message>,
) -> Result<Option<Vec<Mapped>>> {
    let mut progress = Progress::new(areas.iter().map(|area| area.bytes).sum());
    let mut stopped = false;
    let mut all = Vec::new();
    for area in areas {
        let mapped = Mapped::new(area, backing)?;
        mapped.populate(area, backing, &mut |done| {
            progress.at(done);
            stopped |=
                matches!(messages.try_recv(), Ok(Message::Signal(signal)) if signal != libc::SIGUSR1);
            !stopped
        })?;
        progress.next(area.bytes);
        all.push(mapped);
        if stopped {
            all.iter().for_each(Mapped::release);
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Names and addresses of the mapped areas.
fn area_lines(areas: &[Area], mapped: &[Mapped]) -> Vec<AreaLine> {
    let line = |(area, mapped): (&Area, &Mapped)| AreaLine {
        name: area.name.clone(),
        start: mapped.start(),
        end: mapped.start() + area.bytes,
    };
    areas.iter().zip(mapped).map(line).collect()
}

fn touch_all(
    args: &Args,
    workload: Workload,
    backing: Backing,
    mapped: &[Mapped],
    sender: Sender<Message>,
    messages: &Receiver<Message>,
) -> Result<()> {
    let bases: Vec<u64> = mapped.iter().map(Mapped::start).collect();
    let areas = area_lines(&workload.areas, mapped);
    let mut shared = Shared {
        program: Arc::new(Program::new(&workload)),
        limit: args.limit(&workload),
        workload,
        bases,
        seed: args.seed,
        threads: args.threads.unwrap_or(1),
        grain: args.grain,
        rate: args.rate,
        begin: Time(0),
        stop: AtomicBool::new(false),
    };
    let mut log = TruthLog::create(args, &shared, backing, areas.clone())?;
    if args.start == Start::Signal {
        ready::announce(args, &areas)?;
        if !wait_for_start(messages) {
            return log.end(End { at_ns: clock::now().0, cause: "ended before it began".into() });
        }
    }
    shared.begin = clock::now();
    let cause = std::thread::scope(|scope| {
        for lane in 0..shared.threads {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || work(shared, lane, &sender));
        }
        let reported =
            if args.start == Start::Now { ready::announce(args, &areas) } else { Ok(()) };
        let seen = reported.and_then(|()| follow(&shared, messages, &mut log));
        shared.stop.store(true, Ordering::Relaxed);
        seen
    })?;
    println!("{}", log.summary());
    log.end(End { at_ns: clock::now().0, cause: cause.into() })
}

/// Waits for SIGUSR1; `false` if another signal arrived.
fn wait_for_start(messages: &Receiver<Message>) -> bool {
    matches!(messages.recv(), Ok(Message::Signal(libc::SIGUSR1)))
}

/// Records the threads' pieces until all threads have ended; returns the cause of the end.
fn follow(
    shared: &Shared,
    messages: &Receiver<Message>,
    log: &mut TruthLog,
) -> Result<&'static str> {
    let mut pieces = truth_log::OpenPieces::new(shared);
    let mut cause = "the workload ended";
    let mut left = shared.threads;
    while left > 0 {
        match messages.recv() {
            Ok(Message::PieceDone { lane, piece, tally, at }) => pieces.cut(lane, piece, tally, at),
            Ok(Message::Done) => left -= 1,
            Ok(Message::Signal(libc::SIGUSR1)) => {}
            Ok(Message::Signal(signal)) => {
                cause = signals::name(signal);
                shared.stop.store(true, Ordering::Relaxed);
            }
            Err(e) => return Err(Error::new(ErrorKind::Other, "the threads are gone").cause(e)),
        }
        pieces.write_whole(log)?;
    }
    pieces.write_rest(log)?;
    Ok(cause)
}
