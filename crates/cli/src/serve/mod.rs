//! `tierscope serve`: a page and OpenMetrics of a recording, live or finished.
//!
//! Three kinds of threads share nothing but files and one board: the *recorder* (here, or another
//! process) writes a recording; the *follower* reads newly committed windows and keeps an
//! exposition ready; the threads of the *server* send it to clients. So a scrape never waits for
//! the recorder, nor the recorder for a scrape.

mod args;
mod follow;
mod http;
mod pages;
mod site;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::StopSignals;
use tierscope_linux::proc::Proc;
use tierscope_record::Recording;
use tierscope_record::series::{Retention, is_series};

pub use args::ServeArgs;
use follow::Follower;
use http::{Limits, Server, Stop};
use site::Site;

use crate::plan::Plan;
use crate::record;

/// Interval between two polls of the recording; scrapers do not scrape more often.
const PAUSE: Duration = Duration::from_secs(1);
/// Default retention.
const KEPT: Retention = Retention { age: None, bytes: Some(1 << 30) };

/// Serves until a signal requests a stop or, if it records, until the target ends.
///
/// # Errors
/// It cannot listen on the address; as `tierscope record`; [`ErrorKind::Data`] if DIR is not a
/// recording.
pub fn run(args: ServeArgs, line: String) -> Result<()> {
    // Threads inherit the signal mask of the thread that starts them, so this must be first.
    let signals = StopSignals::hold()?;
    let (server, stop) = Server::bind(args.listen, Limits::default())?;
    let address = server.address().map_or(args.listen, |address| address);
    match &args.recording {
        Some(dir) => {
            check_serving_only(&args)?;
            check_readable(dir)?;
            with_server(&server, stop, dir.clone(), || {
                announce(address, dir);
                signals.wait();
                Ok(())
            })
        }
        None => {
            let room = Room::of(args.output.clone())?;
            let plan = plan(args, room.path(), line)?;
            plan.selection.check(&Proc::default())?;
            with_server(&server, stop, room.path().to_owned(), || {
                announce(address, room.path());
                record::run(&plan, false)
            })
        }
    }
}

fn announce(address: std::net::SocketAddr, dir: &Path) {
    eprintln!("tierscope: {} at http://{address}/, for Prometheus at /metrics", dir.display());
}

/// Refuses a retention for a recording that is only served: nothing would be removed.
fn check_serving_only(args: &ServeArgs) -> Result<()> {
    match args.keep.retention() {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Usage, "cannot remove old recordings")
            .cause("DIR is only served, not recorded into")
            .remedy("give --retention and --max-size to the command that records")),
    }
}

fn check_readable(dir: &Path) -> Result<()> {
    if is_series(dir) { Ok(()) } else { Recording::open(dir).map(drop) }
}

fn plan(args: ServeArgs, output: &Path, line: String) -> Result<Plan> {
    let selection = args.target.selection(Vec::new());
    let retention = Some(args.keep.retention().unwrap_or(KEPT));
    let watching = Plan::watching(selection, args.how, output.to_owned(), line)?;
    Plan { retention, ..watching }.checked()
}

/// Runs `work` while the recording in `place` is served, then stops the server and waits for it.
fn with_server<T>(server: &Server, stop: Stop, place: PathBuf, work: impl FnOnce() -> T) -> T {
    let site = &Site::new(place.clone());
    let mut follower = Follower::new(place);
    // One poll before the server starts, so that the first request finds the existing windows.
    follower.look(site.board());
    let (done, told) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| server.run(&|request| site.answer(request)));
        scope.spawn(move || follow(follower, site, &told));
        // If the work panics, dropping these ends the threads as well.
        let (stop, done): (Stop, Sender<()>) = (stop, done);
        let result = work();
        stop.stop();
        drop(done);
        result
    })
}

/// Polls the recording at intervals until the sender is dropped.
fn follow(mut follower: Follower, site: &Site, told: &Receiver<()>) {
    while told.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        follower.look(site.board());
    }
}

/// Directory of a series; a temporary one is removed on drop.
struct Room {
    path: PathBuf,
    temporary: bool,
}

impl Room {
    fn of(asked: Option<PathBuf>) -> Result<Self> {
        match asked {
            Some(path) => Ok(Self { path, temporary: false }),
            None => Self::temporary(),
        }
    }

    /// Accessible by the owner only: a target's mappings are private.
    fn temporary() -> Result<Self> {
        let name = format!("tierscope-serve-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot create {}", path.display()))
                .cause(e)
                .remedy("give a directory with -o DIR")
        })?;
        Ok(Self { path, temporary: true })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
