//! The HTTP server: accepts connections and answers each on its own thread, within limits.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use tierscope_core::{Error, ErrorKind, Result};

use crate::access::Access;
use crate::listener::{Address, Listener};
use crate::request::{Method, Refusal, Request, head_end};
use crate::response::Response;
use crate::slots::{Most, Slots, Ticket};

/// Limits on the resources of one client, and of all.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Numbers of connections.
    pub most: Most,
    /// Paths of the reserved resources, which are answered at once.
    pub reserved: &'static [&'static str],
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Total time to send the head: a slow trickle of bytes does not extend it.
    pub head_time: Duration,
    /// Total time to receive the response.
    pub answer_time: Duration,
    /// The same for reserved resources.
    pub reserved_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most: Most { lobby: 32, requests: 32, of_a_peer: 8, reserved: 4 },
            reserved: &[],
            head_bytes: 8 << 10,
            head_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(60),
            reserved_time: Duration::from_secs(10),
        }
    }
}

/// Handle that stops a server when it is dropped, or by [`Stop::stop`].
#[derive(Debug)]
pub struct Stop(OwnedFd);

impl Stop {
    /// Stops accepting connections; requests in progress are still answered.
    pub fn stop(self) {
        drop(self.0);
    }
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    access: Access,
    limits: Limits,
    slots: Slots,
    /// Pipe that reports a hang-up once the [`Stop`] is gone.
    stopped: OwnedFd,
}

impl Server {
    /// Answers at `listener` what `access` admits.
    ///
    /// # Errors
    /// No more files may be opened.
    pub fn new(listener: Listener, access: Access, limits: Limits) -> Result<(Self, Stop)> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| Error::new(ErrorKind::Io, "cannot make a pipe").cause(e))?;
        let slots = Slots::default();
        Ok((Self { listener, access, limits, slots, stopped }, Stop(stop)))
    }

    /// The address that the server listens on.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Answers requests until it is stopped, then waits for responses in progress, at most for
    /// their time limit.
    pub fn run(&self, answer: &(dyn Fn(&Request) -> Response + Sync)) {
        thread::scope(|scope| {
            while self.wait() {
                let (client, peer) = match self.listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        self.rest_after(&error);
                        continue;
                    }
                };
                let client = Arc::new(client);
                let ticket = self.slots.enter(&self.limits.most, peer, &client);
                // If the client does not accept the response, there is no other place to report it.
                let serve = move || _ = self.converse(&client, ticket, answer);
                // If no thread can be started, the connection is closed and its place is released.
                let _ = thread::Builder::new().name("http".into()).spawn_scoped(scope, serve);
            }
        });
    }

    /// Pauses after an error of `accept`, unless it concerns a single client: without a free file
    /// descriptor `accept` would fail in a busy loop.
    fn rest_after(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
        let passing = [WouldBlock, Interrupted, ConnectionAborted, ConnectionReset];
        if !passing.contains(&error.kind()) {
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::new(&self.stopped, PollFlags::IN)], Some(&pause));
        }
    }

    /// Waits for a client; returns false once the server is stopped.
    fn wait(&self) -> bool {
        let mut both =
            [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) => both[1].revents().is_empty(),
            Err(error) => error == rustix::io::Errno::INTR,
        }
    }

    fn converse(
        &self,
        client: &OwnedFd,
        ticket: Ticket<'_>,
        answer: &(dyn Fn(&Request) -> Response + Sync),
    ) -> io::Result<()> {
        let limits = &self.limits;
        let asked = read_head(&mut Timed::new(client, limits.head_time), limits.head_bytes)
            .and_then(|head| Request::parse(&head))
            .and_then(|request| self.access.check(&request).map(|()| request));
        let reserved = |request: &Request| limits.reserved.contains(&request.path.as_str());
        let mut slot = None;
        let asked = asked.and_then(|request| {
            slot = ticket.slot(&limits.most, reserved(&request));
            if slot.is_some() { Ok(request) } else { Err(Refusal::Busy) }
        });
        let (method, response, time) = match &asked {
            Ok(request) if reserved(request) => {
                (request.method, answer(request).unless_had(request), limits.reserved_time)
            }
            Ok(request) => {
                (request.method, answer(request).unless_had(request), limits.answer_time)
            }
            Err(refusal) => (Method::Get, Response::from(*refusal), limits.head_time),
        };
        response.write(method, &mut Timed::new(client, time))?;
        shutdown(client, Shutdown::Write)?;
        take_leave(client, limits);
        Ok(())
    }
}

fn read_head(client: &mut dyn Read, most: usize) -> Result<Vec<u8>, Refusal> {
    let mut received = Vec::with_capacity(512);
    loop {
        if let Some(end) = head_end(&received) {
            received.truncate(end);
            return Ok(received);
        }
        if received.len() >= most {
            return Err(Refusal::TooLong);
        }
        let mut more = [0; 512];
        match client.read(&mut more) {
            Ok(0) => return Err(Refusal::Malformed),
            Ok(bytes) => received.extend_from_slice(&more[..bytes]),
            Err(_) => return Err(Refusal::TooSlow),
        }
    }
}

/// Reads the rest of the client's data, so that closing does not discard the response with a reset
/// (RFC 9112, 9.6); within limits of time and size.
fn take_leave(client: &OwnedFd, limits: &Limits) {
    let mut rest = Timed::new(client, limits.head_time.min(Duration::from_millis(500)));
    let mut unread = [0; 512];
    let mut left = limits.head_bytes;
    while let Ok(bytes @ 1..) = rest.read(&mut unread) {
        match left.checked_sub(bytes) {
            Some(less) => left = less,
            None => break,
        }
    }
}

/// A connection with a total deadline for all reads and writes.
struct Timed<'a> {
    client: &'a OwnedFd,
    until: Instant,
}

impl<'a> Timed<'a> {
    fn new(client: &'a OwnedFd, time: Duration) -> Self {
        Self { client, until: Instant::now() + time }
    }

    /// Limits the next operation to the time that is left.
    fn limit(&self, which: Timeout) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(set_socket_timeout(self.client, which, Some(left))?)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit(Timeout::Recv)?;
        Ok(rustix::io::read(self.client, buffer)?)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit(Timeout::Send)?;
        Ok(send(self.client, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::Status;
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const PAGE: &[u8] = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn limits() -> Limits {
        Limits { reserved: &["/metrics"], ..Limits::default() }
    }

    fn loopback() -> Listener {
        Listener::bind(&Address::Port(([127, 0, 0, 1], 0).into()), 0).unwrap()
    }

    /// Runs a server while `talk` talks to it; the test's clients wait only for responses.
    fn with_server(limits: Limits, talk: impl FnOnce(SocketAddr)) {
        with_answers(limits, &|request| Response::text(Status::Ok, &request.path), talk);
    }

    fn with_answers(
        limits: Limits,
        answer: &(dyn Fn(&Request) -> Response + Sync),
        talk: impl FnOnce(SocketAddr),
    ) {
        let (server, stop) = Server::new(loopback(), Access::default(), limits).unwrap();
        let Address::Port(address) = *server.address() else { panic!("a port") };
        thread::scope(|scope| {
            scope.spawn(|| server.run(answer));
            talk(address);
            stop.stop();
        });
    }

    fn ask(address: SocketAddr, text: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(text).unwrap();
        received(&mut client)
    }

    fn received(client: &mut impl Read) -> String {
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        got
    }

    /// An answer that begins when its request is there, and ends when the test permits it.
    fn waiting() -> (impl Fn(&Request) -> Response + Sync, Receiver<()>, Sender<()>) {
        let ((begins, begun), (permit, permitted)) = (channel(), channel());
        let permitted = Mutex::new(permitted);
        let answer = move |request: &Request| {
            if request.path != "/metrics" {
                begins.send(()).unwrap();
                let _ = permitted.lock().unwrap_or_else(PoisonError::into_inner).recv();
            }
            Response::text(Status::Ok, &request.path)
        };
        (answer, begun, permit)
    }

    #[test]
    fn answers_get_and_head_and_refuses_the_rest() {
        with_server(Limits::default(), |address| {
            let got = ask(address, PAGE);
            assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("\r\n\r\n/a\n"), "{got}");
            assert!(ask(address, b"HEAD /a HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
            assert!(ask(address, b"DELETE /a HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 405 "));
            assert!(ask(address, b"\x16\x03\x01 tls\r\n\r\n").starts_with("HTTP/1.1 400 "));
            let long = [&b"GET /"[..], &[b'a'; 9000]].concat();
            assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
            let other = ask(address, b"GET /a HTTP/1.1\r\nHost: evil.example\r\n\r\n");
            assert!(other.starts_with("HTTP/1.1 421 ") && other.contains("--host NAME"), "{other}");
        });
    }

    #[test]
    fn a_unix_socket_and_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let token = dir.path().join("token");
        std::fs::write(&token, "s3cret").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token, private).unwrap();
        let token = Some(crate::access::Token::read(&token).unwrap());
        let access = Access { token, ..Access::default() };
        let listener = Listener::bind(&Address::Socket(path.clone()), 0o600).unwrap();
        let (server, stop) = Server::new(listener, access, Limits::default()).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| server.run(&|request| Response::text(Status::Ok, &request.path)));
            let ask = |line: &str| {
                let mut client = UnixStream::connect(&path).unwrap();
                write!(client, "GET /a HTTP/1.1\r\nHost: localhost\r\n{line}\r\n").unwrap();
                received(&mut client)
            };
            let refused = ask("");
            assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
            assert!(refused.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{refused}");
            assert!(ask("Authorization: Bearer s3cret\r\n").starts_with("HTTP/1.1 200 "));
            stop.stop();
        });
    }

    // Only the time limit of the head ends this: the client sends nothing more and waits.
    #[test]
    fn a_slow_client_is_let_go() {
        let limits = Limits { head_time: Duration::from_millis(20), ..Limits::default() };
        with_server(limits, |address| {
            assert!(ask(address, b"GET / HTTP/1.1\r\nX: ").starts_with("HTTP/1.1 408 "));
        });
    }

    // 40 clients that send nothing, and one client with all requests that it may have.
    #[test]
    fn slow_clients_do_not_keep_a_scraper_away() {
        let (answer, begun, permit) = waiting();
        with_answers(limits(), &answer, |address| {
            let mut pages: Vec<_> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
            pages.iter_mut().for_each(|page| page.write_all(PAGE).unwrap());
            (0..8).for_each(|_| begun.recv().unwrap());
            let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
            for _ in 0..10 {
                assert!(ask(address, METRICS).starts_with("HTTP/1.1 200 "));
            }
            let busy = ask(address, PAGE);
            assert!(busy.starts_with("HTTP/1.1 503 "), "{busy}");
            assert!(busy.contains("\r\nRetry-After: 1\r\n"), "{busy}");
            drop(silent);
            drop(permit);
            assert!(pages.iter_mut().all(|page| received(page).starts_with("HTTP/1.1 200 ")));
        });
    }

    // The first machine has a request in progress, which is all that it may have.
    #[test]
    fn a_client_takes_no_slot_of_another_one() {
        let most = Most { of_a_peer: 1, requests: 2, ..Limits::default().most };
        let (answer, begun, permit) = waiting();
        with_answers(Limits { most, ..limits() }, &answer, |address| {
            let mut first = TcpStream::connect(address).unwrap();
            first.write_all(PAGE).unwrap();
            begun.recv().unwrap();
            assert!(ask(address, PAGE).starts_with("HTTP/1.1 503 "));
            let mut other = from([127, 0, 0, 2], address);
            other.write_all(PAGE).unwrap();
            begun.recv().unwrap();
            drop(permit);
            for client in [&mut first, &mut other] {
                assert!(received(client).starts_with("HTTP/1.1 200 "));
            }
        });
    }

    /// A connection from that address of this machine.
    fn from(own: [u8; 4], address: SocketAddr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&client, &SocketAddr::from((own, 0))).unwrap();
        connect(&client, &address).unwrap();
        client.into()
    }
}
