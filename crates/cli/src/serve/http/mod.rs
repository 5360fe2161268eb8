//! The subset of HTTP/1.1 that a page, its data and a scraper need, with bounds on all resources
//! that a client can use up: connections, bytes of a request, time to send it, time to receive the
//! response.
//!
//! Each connection carries one response: a client with rare requests gains nothing from keep-alive,
//! and an idle connection would occupy a slot that other clients need.

mod request;
mod response;
mod server;

pub(crate) use request::Request;
pub(crate) use response::{Response, Status};
pub(crate) use server::{Limits, Server, Stop};
