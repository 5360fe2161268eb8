//! `tierscope serve`: a page and OpenMetrics of a recording, live or finished.
//!
//! Four kinds of threads share nothing but files, one board and a queue: the *recorder* (here, or
//! another process) writes a recording; the *follower* reads newly committed windows and keeps an
//! exposition ready; the *maker* makes pages; the threads of the *server* send them to clients.
//! So a scrape never waits for the recorder or a page, nor the recorder for a scrape.

mod args;
mod follow;
mod pages;
mod room;
mod site;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_http::{Access, Address, Limits, Listener, Server, Stop, Token};
use tierscope_linux::StopSignals;
use tierscope_linux::proc::Proc;
use tierscope_record::Recording;
use tierscope_record::series::{Retention, is_series};

pub use args::ServeArgs;
use follow::{Board, Follower};
use pages::Maker;
use room::Room;
use site::Site;

use crate::plan::Plan;
use crate::print::note;
use crate::record;

/// Interval between two polls of the recording; scrapers do not scrape more often.
const PAUSE: Duration = Duration::from_secs(1);
/// Resources that a busy server still answers requests for.
const RESERVED: [&str; 2] = ["/metrics", "/healthz"];
/// Default retention.
const KEPT: Retention = Retention { age: None, bytes: Some(1 << 30) };

/// Serves until a signal requests a stop or, if it records, until the target ends.
///
/// # Errors
/// It cannot listen on the address, or use the token; as `tierscope record`; [`ErrorKind::Data`] if
/// DIR is not a recording; the follower has panicked.
pub fn run(args: ServeArgs, line: String) -> Result<()> {
    // Threads inherit the signal mask of the thread that starts them, so this must be first.
    let signals = StopSignals::hold()?;
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    let access = Access { hosts: args.host.clone(), token };
    let listener = Listener::bind(&args.listen, args.socket_mode)?;
    let (server, stop) =
        Server::new(listener, access, Limits { reserved: &RESERVED, ..Limits::default() })?;
    let address = server.address();
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
                record::run(plan, false)
            })
        }
    }
}

fn announce(address: &Address, dir: &Path) {
    let url = match address {
        Address::Port(address) => format!("http://{address}/"),
        Address::Socket(_) => address.to_string(),
    };
    note!("{} at {url}, for Prometheus at /metrics", dir.display());
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
    let access = args.keep.access()?;
    let watching = Plan::watching(selection, args.how, output.to_owned(), line)?;
    Plan { retention, access, ..watching }.checked()
}

/// Runs `work` while the recording in `place` is served, then stops the server and waits for it.
fn with_server(
    server: &Server,
    stop: Stop,
    place: PathBuf,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (site, maker) = Site::new(place.clone());
    let mut follower = Follower::new(place);
    // One poll before the server starts, so that the first request finds the existing windows.
    follower.look(site.board());
    let threads = Threads { server, stop, site: &site, maker, pause: PAUSE };
    threads.run(|board| follower.look(board), work)
}

/// What the threads besides the recorder's work with.
struct Threads<'a> {
    server: &'a Server,
    stop: Stop,
    site: &'a Site,
    maker: Maker,
    /// Interval between two polls.
    pause: Duration,
}

impl Threads<'_> {
    /// Runs `work`, while the follower polls the recording by `look`.
    fn run(self, look: impl FnMut(&Board) + Send, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let Self { server, stop, site, maker, pause } = self;
        let (done, is_done) = channel::<()>();
        thread::scope(|scope| {
            let served = scope.spawn(|| {
                // Also after a panic: the maker ends once no more pages can be requested.
                let _closing = Closing(site);
                server.run(&|request| site.answer(request));
            });
            scope.spawn(|| maker.run());
            let followed = scope.spawn(move || follow(look, site, &is_done, pause));
            // If the work panics, dropping these ends the threads as well.
            let (stop, done): (Stop, Sender<()>) = (stop, done);
            let result = work();
            stop.stop();
            drop(done);
            // A panic was printed; the recording is whole.
            let ended = [served.join(), followed.join()].into_iter().all(|thread| thread.is_ok());
            if ended { result } else { result.and(Err(panicked())) }
        })
    }
}

struct Closing<'a>(&'a Site);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Other, "the recording was not served to the end")
        .cause("a thread has panicked, which is a defect of tierscope")
        .remedy("report it with the message above")
}

/// Polls the recording by `look` at intervals until the sender is dropped.
fn follow(mut look: impl FnMut(&Board), site: &Site, is_done: &Receiver<()>, pause: Duration) {
    while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        look(site.board());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_follower_is_reported() {
        let (site, maker) = Site::new("nowhere".into());
        let any = Address::Port(([127, 0, 0, 1], 0).into());
        let listener = Listener::bind(&any, 0).unwrap();
        let (server, stop) = Server::new(listener, Access::default(), Limits::default()).unwrap();
        let (begins, begun) = channel();
        let pause = Duration::from_millis(1);
        let threads = Threads { server: &server, stop, site: &site, maker, pause };
        let polled = site.board().polled();
        let look = move |_: &Board| {
            begins.send(()).unwrap();
            panic!("on purpose");
        };
        let work = || {
            begun.recv().unwrap();
            // The sender is dropped: there is no other poll.
            assert!(begun.recv().is_err());
            Ok(())
        };
        let error = threads.run(look, work).unwrap_err();
        assert!(error.to_string().contains("a thread has panicked"), "{error}");
        assert_eq!(site.board().polled(), polled, "by its age, /healthz fails later");
    }
}
