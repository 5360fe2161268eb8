//! As much of HTTP/1.1 as a page, its data and a scraper need, with bounds on everything a client
//! can use up: connections, bytes of a request, time to send it, time to take the answer.
//!
//! One answer a connection: whoever asks seldom gains nothing from keeping it, and slots that
//! nobody uses are slots that nobody else gets.

mod request;
mod response;
mod server;

pub(crate) use request::Request;
pub(crate) use response::{Response, Status};
pub(crate) use server::{Limits, Server, Stop};
