//! The page and its data, generated on request and cached until the recording has grown.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tierscope_core::Result;
use tierscope_record::Recording;
use tierscope_report::html;

use super::http::Response;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

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

/// Cache of the responses for the last requested recording. Concurrent requests wait for the first
/// one to generate them.
#[derive(Default)]
pub(super) struct Pages(Mutex<Option<Made>>);

struct Made {
    place: Place,
    recording: Recording,
    tag: String,
    page: Option<Response>,
    data: Option<Response>,
}

impl Pages {
    /// A part of the page of the recording at `place`.
    ///
    /// # Errors
    /// As [`html::page`] and [`html::data`].
    pub(super) fn answer(&self, place: &Place, part: Part) -> Result<Response> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = match kept.take().filter(|made| made.place == *place) {
            Some(made) => made,
            None => Made::open(place)?,
        };
        made.refresh()?;
        let response = made.answer(part);
        *kept = Some(made);
        response
    }
}

impl Made {
    fn open(place: &Place) -> Result<Self> {
        let recording = Recording::open(&place.path)?;
        let tag = html::tag(&recording);
        Ok(Self { place: place.clone(), recording, tag, page: None, data: None })
    }

    fn refresh(&mut self) -> Result<()> {
        self.recording.refresh()?;
        let tag = html::tag(&self.recording);
        if tag != self.tag {
            (self.page, self.data, self.tag) = (None, None, tag);
        }
        Ok(())
    }

    fn answer(&mut self, part: Part) -> Result<Response> {
        let kept = match part {
            Part::Page => &mut self.page,
            Part::Data => &mut self.data,
        };
        if let Some(response) = kept {
            return Ok(response.clone());
        }
        let before = self.place.before.clone();
        let options = html::Options { before, ..html::Options::live() };
        let (mime, text) = match part {
            Part::Page => (HTML, html::page(&self.recording, &options, html::Data::Url("data"))?),
            Part::Data => (JSON, html::data(&self.recording, &options)?),
        };
        let response = Response::ok(mime, text.into_bytes()).tagged(self.tag.as_str());
        Ok(kept.insert(response).clone())
    }
}
