//! Routes: the resource for each URL path.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde_json::json;
use tierscope_core::{Error, Result};
use tierscope_report::metrics;

use super::follow::{Board, by_name};
use super::http::{Request, Response, Status};
use super::pages::{Pages, Part, Place};

/// All resources that the server offers.
pub(super) struct Site {
    place: PathBuf,
    board: Board,
    pages: Pages,
}

impl Site {
    pub(super) fn new(place: PathBuf) -> Self {
        Self { place, board: Board::new(), pages: Pages::default() }
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Answers a request.
    pub(super) fn answer(&self, request: &Request) -> Response {
        match request.path.as_str() {
            "/" => self.newest(Part::Page),
            "/data" => self.newest(Part::Data),
            "/metrics" => self.metrics(),
            "/healthz" => self.health(),
            "/recordings" => self.recordings(),
            path => self.recording(path),
        }
    }

    fn metrics(&self) -> Response {
        match self.board.read() {
            Ok(Some(ready)) => Response::ok(metrics::CONTENT_TYPE, ready.metrics).tagged(ready.tag),
            Ok(None) => nothing_yet(),
            Err(error) => failed(&error),
        }
    }

    fn health(&self) -> Response {
        match self.board.read() {
            Ok(Some(_)) => Response::text(Status::Ok, "ok"),
            Ok(None) => nothing_yet(),
            Err(error) => failed(&error),
        }
    }

    fn newest(&self, part: Part) -> Response {
        match self.board.read() {
            Ok(Some(ready)) => {
                let before = ready.before.map(|name| format!("recordings/{name}/"));
                self.page(&Place { path: ready.recording, before }, part)
            }
            Ok(None) => nothing_yet(),
            Err(error) => failed(&error),
        }
    }

    fn page(&self, place: &Place, part: Part) -> Response {
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
            Ok(Some(place)) => self.page(&place, part),
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
