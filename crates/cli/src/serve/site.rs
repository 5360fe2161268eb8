//! Routes: the resource for each URL path.

use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::json;
use tierscope_core::{Error, Result};
use tierscope_http::{Request, Response, Status};
use tierscope_report::metrics;

use super::follow::{Board, Ready, by_name};
use super::pages::{Maker, Pages, Part, Place};

/// Age of the last poll from which on the follower counts as stuck: ten polls.
const STUCK: Duration = Duration::from_secs(10);

/// All resources that the server offers.
pub(super) struct Site {
    place: PathBuf,
    board: Board,
    pages: Pages,
}

impl Site {
    /// The site of a recording or series, and the thread that makes its pages.
    pub(super) fn new(place: PathBuf) -> (Self, Maker) {
        let (pages, maker) = Pages::new();
        (Self { place, board: Board::new(), pages }, maker)
    }

    /// Makes no more pages.
    pub(super) fn close(&self) {
        self.pages.close();
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Answers a request.
    pub(super) fn answer(&self, request: &Request) -> Response {
        match request.path.as_str() {
            "/" => self.newest(Part::Page),
            "/data" => self.newest(Part::Data),
            "/metrics" => self.current(Instant::now(), |ready| {
                Response::ok(metrics::CONTENT_TYPE, ready.metrics).tagged(ready.tag)
            }),
            "/healthz" => self.current(Instant::now(), |_| Response::text(Status::Ok, "ok")),
            "/recordings" => self.recordings(),
            path => self.recording(path),
        }
    }

    /// A response from the result of the last poll, unless that is old: a follower that has
    /// panicked, or that a file system holds up, leaves it unchanged.
    fn current(&self, now: Instant, respond: impl FnOnce(Ready) -> Response) -> Response {
        let age = now.saturating_duration_since(self.board.polled());
        if age >= STUCK {
            let text = format!("the recording was last read {} s ago", age.as_secs());
            return Response::text(Status::Unavailable, &text);
        }
        match self.board.read() {
            Ok(Some(ready)) => respond(ready),
            Ok(None) => nothing_yet(),
            Err(error) => failed(&error),
        }
    }

    fn newest(&self, part: Part) -> Response {
        match self.board.read() {
            Ok(Some(ready)) => {
                let before = ready.before.map(|name| format!("recordings/{name}/"));
                self.page(Place { path: ready.recording, before }, part)
            }
            Ok(None) => nothing_yet(),
            Err(error) => failed(&error),
        }
    }

    fn page(&self, place: Place, part: Part) -> Response {
        self.pages.answer(place, part).unwrap_or_else(|error| failed(&error))
    }

    /// `/recordings/NAME/` and `/recordings/NAME/data`. NAME is compared with the existing
    /// recordings; it is never used as a file path.
    fn recording(&self, path: &str) -> Response {
        let asked = path.strip_prefix("/recordings/").and_then(|rest| rest.split_once('/'));
        let part = match asked {
            Some((_, "")) => Part::Page,
            Some((_, "data")) => Part::Data,
            _ => return Response::text(Status::NotFound, "there is no such page; see /"),
        };
        let name = asked.map_or("", |(name, _)| name);
        let found = by_name(&self.place).map(|all| {
            let at = all.iter().position(|(of, _)| of == name)?;
            let before = at.checked_sub(1).map(|before| format!("../{}/", all[before].0));
            Some(Place { path: all[at].1.path.clone(), before })
        });
        match found {
            Ok(Some(place)) => self.page(place, part),
            Ok(None) => Response::text(Status::NotFound, "no such recording; see /recordings"),
            Err(error) => failed(&error),
        }
    }

    fn recordings(&self) -> Response {
        match self.list() {
            Ok(text) => Response::ok("application/json", text.into_bytes()),
            Err(error) => failed(&error),
        }
    }

    fn list(&self) -> Result<String> {
        let row = |(name, member): (String, tierscope_record::series::Member)| {
            let began = member.began.duration_since(UNIX_EPOCH).unwrap_or_default();
            json!({
                "name": name,
                "page": format!("/recordings/{name}/"),
                "began_unix_seconds": began.as_secs_f64(),
                "bytes": member.bytes,
            })
        };
        let rows: Vec<_> = by_name(&self.place)?.into_iter().map(row).collect();
        Ok(format!("{:#}\n", json!(rows)))
    }
}

fn nothing_yet() -> Response {
    Response::text(Status::Unavailable, "nothing was recorded yet")
}

fn failed(error: &Error) -> Response {
    Response::text(Status::InternalError, &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::follow::Follower;
    use super::*;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Meta, Recorder};

    #[test]
    fn old_data_is_not_passed_off_as_current() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(dir.path(), &Meta::default()).unwrap();
        let snapshot = Snapshot { end: Time(1), ..Snapshot::default() };
        recorder.window(&Window::of(&snapshot)).unwrap();
        let (site, _) = Site::new(dir.path().into());
        Follower::new(dir.path().into()).look(site.board());
        let polled = site.board().polled();
        let after = |millis: u64| {
            let now = polled + Duration::from_millis(millis);
            site.current(now, |_| Response::text(Status::Ok, "ok"))
        };
        assert_eq!(after(9_999).status, Status::Ok);
        let stuck = after(10_000);
        assert_eq!(stuck.status, Status::Unavailable);
        assert_eq!(&*stuck.body, b"the recording was last read 10 s ago\n");
    }
}
