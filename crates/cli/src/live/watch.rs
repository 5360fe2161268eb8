//! `tierscope live` on a target: a thread makes a recording, and the screen shows it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use tempfile::TempDir;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::proc::Proc;
use tierscope_record::Recording;
use tierscope_report::live::{Live, Start};

use super::args::LiveArgs;
use super::events::{self, Event};
use super::show::{Outcome, Windows, show};
use super::terminal::{self, Screen};
use crate::plan::Plan;
use crate::print::note;
use crate::record::{self, Done, News};

const INSTEAD: &str = "use `tierscope record`, then `tierscope report`";

/// Watches the target in `args` and shows it.
///
/// # Errors
/// As [`crate::record::run`].
pub(crate) fn run(args: LiveArgs, line: String) -> Result<()> {
    let keep = args.output.is_some();
    let (color, command_output) = (args.color, args.command_output.clone());
    let (mut plan, _temporary) = plan(args, line)?;
    let proc = Proc::default();
    plan.selection.check(&proc)?;
    plan.settle()?;
    let color = terminal::check(color, INSTEAD)?;
    let (sender, receiver) = events::queue()?;
    let diverted = Diverted::if_command(&plan, command_output.as_deref())?;
    let recorder = Recorder::start(Arc::new(plan), proc.kernel_release()?, sender.clone())?;
    drop(diverted);
    let mut live = Live::new(Recording::open(&recorder.plan.output)?, Start::Newest, color);
    let mut screen = Screen::enter()?;
    events::listen(sender);
    let shown = show(&mut live, &mut screen, &receiver, Windows::Told);
    drop(screen);
    let plan = Arc::clone(&recorder.plan);
    let Outcome { recorded, shown } = shown?;
    let done = recorded.unwrap_or_else(|| recorder.stop(&receiver))?;
    note!("{}", shown.line());
    if keep {
        done.report(&plan);
    }
    record::check_complete(&plan, &done.recorded)
}

/// The plan of the recording, and its temporary directory if the recording is not to be kept.
fn plan(args: LiveArgs, line: String) -> Result<(Plan, Option<TempDir>)> {
    let (output, temporary) = match args.output {
        Some(dir) => (dir, None),
        None => {
            let dir = TempDir::with_prefix("tierscope-live-").map_err(no_directory)?;
            (dir.path().to_path_buf(), Some(dir))
        }
    };
    let selection = args.target.selection(args.program);
    Ok((Plan::watching(selection, args.how, output, line)?.checked()?, temporary))
}

fn no_directory(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot create a temporary recording")
        .cause(error)
        .remedy("set TMPDIR to a directory that can be written to, or give one with -o DIR")
}

/// The recording thread.
struct Recorder {
    plan: Arc<Plan>,
    thread: JoinHandle<()>,
}

impl Recorder {
    /// Starts the thread; returns once the recording can be opened.
    fn start(plan: Arc<Plan>, kernel: String, sender: Sender<Event>) -> Result<Self> {
        let (begun, wait) = channel();
        let own = Arc::clone(&plan);
        let thread = thread::spawn(move || make(&own, &kernel, begun, sender));
        match wait.recv() {
            Ok(begun) => begun.map(|()| Self { plan, thread }),
            Err(_) => Err(broken()),
        }
    }

    /// Ends the recording cleanly, unless it has ended, and returns its result.
    fn stop(self, receiver: &Receiver<Event>) -> Result<Done> {
        // SAFETY: the thread was not joined yet. While it records it waits for this signal; at
        // other times the handler of the event queue takes the signal.
        unsafe { libc::pthread_kill(self.thread.as_pthread_t(), libc::SIGTERM) };
        self.thread.join().map_err(|_| broken())?;
        let ended = |event| match event {
            Event::Ended(done) => Some(*done),
            _ => None,
        };
        receiver.try_iter().find_map(ended).unwrap_or_else(|| Err(broken()))
    }
}

/// Makes the recording; reports its start through `begun`, and later events through `sender`.
fn make(plan: &Plan, kernel: &str, begun: Sender<Result<()>>, sender: Sender<Event>) {
    let _stop = StopOnPanic(sender.clone());
    let mut begun = Some(begun);
    let done = record::on_this_host(plan, &mut |ports| {
        // A failed send means that the screen is gone: the event can be dropped.
        record::record_and_tell(ports, plan, kernel, None, &mut |news| match news {
            News::Begun => drop(begun.take().map(|begun| begun.send(Ok(())))),
            News::Window(end) => drop(sender.send(Event::Window(end))),
        })
    });
    match (begun, done) {
        (Some(begun), Err(error)) => drop(begun.send(Err(error))),
        (_, done) => drop(sender.send(Event::Ended(Box::new(done)))),
    }
}

/// Sends a stop on a panic of the recording thread: otherwise the screen would wait for it forever.
struct StopOnPanic(Sender<Event>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(Event::Stop);
        }
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Other, "the recorder broke down")
        .cause("see the message above")
        .remedy("report it, with the command line")
}

/// Redirects standard input, output and error while a command is started, so that it does not
/// inherit those of the screen. Dropping restores them.
struct Diverted([OwnedFd; 3]);

impl Diverted {
    fn if_command(plan: &Plan, output: Option<&Path>) -> Result<Option<Self>> {
        if !plan.selection.is_command() {
            return Ok(None);
        }
        let path = output.unwrap_or(Path::new("/dev/null"));
        let file = File::create(path).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot write to {}", path.display()))
                .cause(e)
                .remedy("give --command-output a file that can be written to")
        })?;
        Self::to(&file).map(Some).map_err(|e| {
            Error::new(ErrorKind::Other, "cannot redirect what the command prints").cause(e)
        })
    }

    fn to(output: &File) -> std::io::Result<Self> {
        let input = File::open("/dev/null")?;
        let before = [stdin(), stdout(), stderr()].map(|fd| fd.try_clone_to_owned());
        let [input_before, output_before, error_before] = before;
        let diverted = Self([input_before?, output_before?, error_before?]);
        dup2_stdin(&input)?;
        dup2_stdout(output)?;
        dup2_stderr(output)?;
        Ok(diverted)
    }
}

impl Drop for Diverted {
    fn drop(&mut self) {
        let Self([input, output, error]) = self;
        // Cannot fail in practice: the descriptors were valid a moment ago.
        let _ = dup2_stdin(input).and(dup2_stdout(output)).and(dup2_stderr(error));
    }
}
