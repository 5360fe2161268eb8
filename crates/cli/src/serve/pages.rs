//! The page and its data, generated on request by one thread, and kept for further requests.
//!
//! Requests wait for their page no longer than a deadline. A page that takes longer is still made:
//! the client is asked to come again, and finds it then. So requests for many recordings cost one
//! CPU at most, and hold up neither scrapes nor the follower.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_http::{Response, Status};
use tierscope_record::Recording;
use tierscope_report::html;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Time that a request waits for its page.
const DEADLINE: Duration = Duration::from_secs(10);
/// Number of requests that wait for the thread.
const WAITING: usize = 32;
/// Number of recordings whose pages are kept.
const KEPT: usize = 4;

/// A recording, and the URL of its predecessor's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Path of the recording.
    pub(super) path: PathBuf,
    /// Relative URL of the page of the preceding recording.
    pub(super) before: Option<String>,
}

/// The requested part of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The page, which fetches its data from the relative URL `data`.
    Page,
    /// The page's data.
    Data,
}

/// A request for a part of a page, until that time.
struct Job {
    place: Place,
    part: Part,
    until: Instant,
    reply: SyncSender<Result<Response>>,
}

/// The clients' side: passes requests to the [`Maker`].
pub(super) struct Pages {
    /// `None` once the server ends.
    jobs: Mutex<Option<SyncSender<Job>>>,
    deadline: Duration,
}

impl Pages {
    /// Both sides.
    pub(super) fn new() -> (Self, Maker) {
        let (jobs, maker) = sync_channel(WAITING);
        (Self { jobs: Mutex::new(Some(jobs)), deadline: DEADLINE }, Maker(maker))
    }

    /// A part of the page of the recording at `place`, or a 503 if it is not ready in time.
    ///
    /// # Errors
    /// As [`html::page`] and [`html::data`].
    pub(super) fn answer(&self, place: Place, part: Part) -> Result<Response> {
        let (reply, made) = sync_channel(1);
        let job = Job { place, part, until: Instant::now() + self.deadline, reply };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if jobs.is_none_or(|jobs| jobs.try_send(job).is_err()) {
            return Ok(Response::text(Status::Unavailable, "too many pages are being made"));
        }
        made.recv_timeout(self.deadline).unwrap_or_else(|_| {
            Ok(Response::text(Status::Unavailable, "the page is still being made; try again"))
        })
    }

    /// Ends the maker's thread, after the page that it is making.
    pub(super) fn close(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The side of the thread that makes pages.
pub(super) struct Maker(Receiver<Job>);

impl Maker {
    /// Makes pages until [`Pages::close`].
    pub(super) fn run(self) {
        let mut shelf = Shelf::default();
        self.each(|place, part| shelf.answer(place, part, &Instant::now));
    }

    fn each(self, mut make: impl FnMut(&Place, Part) -> Result<Response>) {
        for Job { place, part, until, reply } in self.0 {
            // The client of an older request has its answer.
            if Instant::now() < until {
                let made = catch_unwind(AssertUnwindSafe(|| make(&place, part)));
                let _ = reply.send(made.unwrap_or_else(|_| Err(panicked())));
            }
        }
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Other, "cannot make the page")
        .cause("a defect of tierscope")
        .remedy("report it with the message on stderr")
}

/// Pages of the recordings that were requested last, the last one first.
#[derive(Default)]
struct Shelf(Vec<Made>);

impl Shelf {
    fn answer(
        &mut self,
        place: &Place,
        part: Part,
        clock: &dyn Fn() -> Instant,
    ) -> Result<Response> {
        let at = self.0.iter().position(|made| made.place == *place);
        // While it is being answered, it is not kept: after a panic it is opened again.
        let mut made = match at.map(|at| self.0.remove(at)) {
            Some(made) => made,
            None => Made::open(place)?,
        };
        let response = made.answer(part, clock);
        self.0.insert(0, made);
        self.0.truncate(KEPT);
        response
    }
}

struct Made {
    place: Place,
    recording: Recording,
    page: Option<Kept>,
    data: Option<Kept>,
}

/// A response and the tag of the recording then. It is current for as long as it took to make,
/// also if the recording has grown: so the thread is idle half of the time, and a client whose
/// request was over before a slow page finds it.
struct Kept {
    response: Response,
    tag: String,
    until: Instant,
}

impl Made {
    fn open(place: &Place) -> Result<Self> {
        let recording = Recording::open(&place.path)?;
        Ok(Self { place: place.clone(), recording, page: None, data: None })
    }

    fn answer(&mut self, part: Part, clock: &dyn Fn() -> Instant) -> Result<Response> {
        self.recording.refresh()?;
        let tag = html::tag(&self.recording);
        let began = clock();
        let kept = match part {
            Part::Page => &mut self.page,
            Part::Data => &mut self.data,
        };
        if let Some(kept) = kept.as_ref().filter(|kept| kept.tag == tag || began < kept.until) {
            return Ok(kept.response.clone());
        }
        let before = self.place.before.clone();
        let options = html::Options { before, ..html::Options::live() };
        let (mime, text) = match part {
            Part::Page => (HTML, html::page(&self.recording, &options, html::Data::Url("data"))?),
            Part::Data => (JSON, html::data(&self.recording, &options)?),
        };
        let response = Response::ok(mime, text.into_bytes()).tagged(tag.as_str());
        let over = clock();
        let made = Kept { response, tag, until: over + (over - began) };
        Ok(kept.insert(made).response.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Meta, Recorder};

    fn place(path: &Path) -> Place {
        Place { path: path.to_owned(), before: None }
    }

    fn pass(recorder: &mut Recorder, index: u64) {
        let at = |second: u64| Time(second * 1_000_000_000);
        let snapshot = Snapshot { start: at(index), end: at(index + 1), ..Snapshot::default() };
        recorder.window(&Window::of(&snapshot)).unwrap();
    }

    // Requests alternate between two recordings, the first of which takes for ever.
    #[test]
    fn a_page_that_takes_too_long_is_a_503() {
        let (mut pages, maker) = Pages::new();
        pages.deadline = Duration::from_millis(20);
        let (permit, permitted) = channel::<()>();
        thread::scope(|scope| {
            let mut made = 0;
            scope.spawn(move || {
                maker.each(|place, _| {
                    let _ = permitted.recv();
                    made += 1;
                    Ok(Response::text(Status::Ok, &format!("{} {made}", place.path.display())))
                });
            });
            let ask = |name: &str| pages.answer(place(Path::new(name)), Part::Data).unwrap();
            for name in ["a", "b", "a", "b"] {
                assert_eq!(ask(name).status, Status::Unavailable);
            }
            drop(permit);
            // The page of the first request was made; the others' clients had gone by then.
            let answer = loop {
                let answer = ask("b");
                if answer.status == Status::Ok {
                    break answer;
                }
            };
            let text = String::from_utf8(answer.body.to_vec()).unwrap();
            assert!(text.starts_with("b "), "{text}");
            pages.close();
            assert_eq!(ask("a").status, Status::Unavailable);
        });
    }

    #[test]
    fn a_panic_is_an_error_of_that_page_only() {
        let (pages, maker) = Pages::new();
        thread::scope(|scope| {
            scope.spawn(move || {
                maker.each(|place, _| {
                    assert!(place.path != Path::new("bad"), "on purpose");
                    Ok(Response::text(Status::Ok, "good"))
                });
            });
            let ask = |name: &str| pages.answer(place(Path::new(name)), Part::Page);
            assert!(ask("bad").unwrap_err().to_string().contains("a defect"));
            assert_eq!(ask("good").unwrap().status, Status::Ok);
            pages.close();
        });
    }

    // A look at the clock takes a second: making a page takes one. At 1 s the page is ready, and at
    // 2 s it is too old if the recording has grown.
    #[test]
    fn a_page_is_made_again_once_it_is_old_and_the_recording_has_grown() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(dir.path(), &Meta::default()).unwrap();
        pass(&mut recorder, 0);
        let (start, seconds) = (Instant::now(), Cell::new(0));
        let clock = || start + Duration::from_secs(seconds.replace(seconds.get() + 1));
        let mut shelf = Shelf::default();
        let mut tag = || shelf.answer(&place(dir.path()), Part::Page, &clock).unwrap().tag.unwrap();
        let first = tag();
        assert_eq!((tag(), tag()), (first.clone(), first.clone()), "it has not grown");
        pass(&mut recorder, 1);
        let second = tag();
        assert_ne!(second, first);
        pass(&mut recorder, 2);
        seconds.set(seconds.get() - 1);
        assert_eq!(tag(), second, "it took a second, and is as old");
        assert_ne!(tag(), second);
    }

    #[test]
    fn few_recordings_are_kept_open() {
        let dirs: Vec<_> = (0..KEPT + 1).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut shelf = Shelf::default();
        for dir in &dirs {
            pass(&mut Recorder::create(dir.path(), &Meta::default()).unwrap(), 0);
            shelf.answer(&place(dir.path()), Part::Page, &Instant::now).unwrap();
        }
        let kept: Vec<_> = shelf.0.iter().map(|made| made.place.path.clone()).collect();
        let last: Vec<_> = dirs[1..].iter().rev().map(|dir| dir.path().to_owned()).collect();
        assert_eq!(kept, last);
    }
}
