//! The HTTP server: accepts connections and answers each on its own thread, with a limit on their
//! number.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tierscope_core::{Error, ErrorKind, Result};

use super::request::{Method, Refusal, Request, head_end};
use super::response::{Response, Status};

/// Limits on the resources of one client, and of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Concurrent connections; further ones are refused.
    pub(crate) connections: usize,
    /// Bytes of a request's head.
    pub(crate) head_bytes: usize,
    /// Total time to send the head: a slow trickle of bytes does not extend it.
    pub(crate) head_time: Duration,
    /// Total time to receive the response.
    pub(crate) answer_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32,
            head_bytes: 8 << 10,
            head_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(60),
        }
    }
}

/// Handle that stops a server when it is dropped, or by [`Stop::stop`].
#[derive(Debug)]
pub(crate) struct Stop(OwnedFd);

impl Stop {
    /// Stops accepting connections; requests in progress are still answered.
    pub(crate) fn stop(self) {
        drop(self.0);
    }
}

/// A listening server.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    limits: Limits,
    /// Pipe that reports a hang-up once the [`Stop`] is gone.
    stopped: OwnedFd,
}

impl Server {
    /// Listens on `address`; port 0 selects a free port.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the port is in use, `Permission` if it is privileged, `Usage` if the
    /// address does not belong to this machine.
    pub(crate) fn bind(address: SocketAddr, limits: Limits) -> Result<(Self, Stop)> {
        let failed = |e: io::Error| refused(address, &e);
        let listener = TcpListener::bind(address).map_err(failed)?;
        // `accept` must not block if the client has disconnected in the meantime.
        listener.set_nonblocking(true).map_err(failed)?;
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| failed(e.into()))?;
        Ok((Self { listener, limits, stopped }, Stop(stop)))
    }

    /// The address that the server listens on.
    ///
    /// # Errors
    /// The system call fails.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until it is stopped, then waits for responses in progress, at most for
    /// their time limit.
    pub(crate) fn run(&self, answer: &(dyn Fn(&Request) -> Response + Sync)) {
        let slots = Slots::default();
        thread::scope(|scope| {
            while self.wait() {
                let client = match self.listener.accept() {
                    Ok((client, _)) => client,
                    Err(error) => {
                        self.rest_after(&error);
                        continue;
                    }
                };
                let Some(slot) = slots.take(self.limits.connections) else {
                    turn_away(&client);
                    continue;
                };
                let serve = move || {
                    let _slot = slot;
                    // If the client does not accept the response, there is no other place to report
                    // it.
                    let _ = converse(client, &self.limits, answer);
                };
                // If no thread can be started, the connection is closed and its slot is released.
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
}

fn refused(address: SocketAddr, cause: &io::Error) -> Error {
    let (kind, remedy) = match cause.kind() {
        io::ErrorKind::AddrInUse => (
            ErrorKind::Io,
            "choose another port with --listen, or stop the process that uses this one (`ss -ltnp`)",
        ),
        io::ErrorKind::PermissionDenied => {
            (ErrorKind::Permission, "choose a port from 1024 on with --listen")
        }
        io::ErrorKind::AddrNotAvailable => {
            (ErrorKind::Usage, "choose an address of this machine with --listen (`ip addr`)")
        }
        _ => (ErrorKind::Io, "choose another address with --listen"),
    };
    Error::new(kind, format!("cannot listen at {address}")).cause(cause).remedy(remedy)
}

/// Counter of open connections.
#[derive(Debug, Default)]
struct Slots(Mutex<usize>);

impl Slots {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, most: usize) -> Option<Slot<'_>> {
        let mut taken = self.lock();
        (*taken < most).then(|| {
            *taken += 1;
            Slot(self)
        })
    }
}

/// A connection's slot, released on drop.
struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

/// Refuses a connection above the limit, with a message if it can be sent without blocking.
fn turn_away(client: &TcpStream) {
    if client.set_nonblocking(true).is_ok() {
        let busy = Response::text(Status::Unavailable, "too many connections");
        let _ = busy.write(Method::Get, &mut &*client);
    }
}

fn converse(
    client: TcpStream,
    limits: &Limits,
    answer: &(dyn Fn(&Request) -> Response + Sync),
) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let asked = read_head(&mut Timed::new(&client, limits.head_time), limits.head_bytes)
        .and_then(|head| Request::parse(&head));
    let (method, response) = match &asked {
        Ok(request) => (request.method, answer(request).unless_had(request)),
        Err(refusal) => (Method::Get, Response::from(*refusal)),
    };
    response.write(method, &mut Timed::new(&client, limits.answer_time))?;
    client.shutdown(std::net::Shutdown::Write)?;
    take_leave(&client, limits);
    Ok(())
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
fn take_leave(client: &TcpStream, limits: &Limits) {
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
    client: &'a TcpStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    fn new(client: &'a TcpStream, time: Duration) -> Self {
        Self { client, until: Instant::now() + time }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.client.set_read_timeout(self.left()?)?;
        (&mut &*self.client).read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.set_write_timeout(self.left()?)?;
        (&mut &*self.client).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a server while `talk` talks to it; the test's clients wait only for responses.
    fn with_server(limits: Limits, talk: impl FnOnce(SocketAddr)) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (server, stop) = Server::bind(any, limits).unwrap();
        let address = server.address().unwrap();
        let answer = |request: &Request| Response::text(Status::Ok, &request.path);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&answer));
            talk(address);
            stop.stop();
        });
    }

    fn ask(address: SocketAddr, text: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(text).unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        got
    }

    #[test]
    fn answers_get_and_head_and_refuses_the_rest() {
        with_server(Limits::default(), |address| {
            let got = ask(address, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with("\r\n\r\n/a\n"), "{got}");
            assert!(ask(address, b"HEAD /a HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
            assert!(ask(address, b"DELETE /a HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
            assert!(ask(address, b"\x16\x03\x01 tls\r\n\r\n").starts_with("HTTP/1.1 400 "));
            let long = [&b"GET /"[..], &[b'a'; 9000]].concat();
            assert!(ask(address, &long).starts_with("HTTP/1.1 431 "));
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

    #[test]
    fn slots_are_limited() {
        let slots = Slots::default();
        let one = slots.take(1);
        assert!(one.is_some() && slots.take(1).is_none());
        drop(one);
        assert!(slots.take(1).is_some());
    }

    // The first client keeps its slot by sending nothing; the second one is refused.
    #[test]
    fn one_too_many_is_turned_away() {
        let limits = Limits { connections: 1, ..Limits::default() };
        with_server(limits, |address| {
            let mut first = TcpStream::connect(address).unwrap();
            assert!(ask(address, b"").starts_with("HTTP/1.1 503 "));
            first.write_all(b"GET /b HTTP/1.1\r\n\r\n").unwrap();
            let mut got = String::new();
            first.read_to_string(&mut got).unwrap();
            assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
        });
    }

    #[test]
    fn a_port_is_taken_once() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (server, _stop) = Server::bind(any, Limits::default()).unwrap();
        let error = Server::bind(server.address().unwrap(), Limits::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("another port"), "{error}");
    }
}
