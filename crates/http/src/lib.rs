//! A server for the subset of HTTP/1.1 that a page, its data and a scraper need, with bounds on all
//! resources that a client can use up: connections, bytes of a request, time to send it, time to
//! receive the response. It answers at a port or a Unix socket, under its own names only, and to
//! clients with a token if there is one.
//!
//! Each connection carries one response: a client with rare requests gains nothing from keep-alive,
//! and an idle connection would occupy a slot that other clients need.

mod access;
mod listener;
mod peer;
mod request;
mod response;
mod server;
mod slots;

pub use access::{Access, Token};
pub use listener::{Address, Listener};
pub use request::{Method, Request};
pub use response::{Response, Status};
pub use server::{Limits, Server, Stop};
pub use slots::Most;
