//! Client of a Redis or memcached server: fills it with marked values, then reads and updates them.

use std::collections::HashMap;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};

use crate::checksum::{Checksum, ChecksumReader};
use crate::operations::{Kind, Operation, Operations};
use crate::resp::{Reply, read_reply, write_command};
use crate::{memcached, value};
use tierscope_workloads::hotspot::Hotspot;

/// Commands in flight: enough to keep the server busy, few enough that its buffers stay small
/// compared to its data.
const PIPELINE: u32 = 16;

/// memcached's reply to a stored value.
const STORED: &str = "STORED";

/// Protocol of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Redis: RESP.
    #[default]
    Redis,
    /// memcached's text protocol.
    Memcached,
}

/// Command by which a load reads a whole value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// GET: the value is sent over the socket, and its length is checked.
    Get,
    /// BITCOUNT: the server reads the value and returns the number of set bits, which is checked.
    /// The value is not copied, so that an emulated machine reads a hundred times as much.
    BitCount,
}

impl Read {
    fn command(self) -> &'static [u8] {
        match self {
            Read::Get => b"GET",
            Read::BitCount => b"BITCOUNT",
        }
    }

    /// The reply of a server that holds the value of `key`.
    fn reply(self, key: u32, bytes: usize, hot: bool) -> Reply {
        match self {
            Read::Get => Reply::Bulk(bytes),
            Read::BitCount => {
                let mut data = vec![0; bytes];
                value::fill(&mut data, key, hot);
                let ones: u64 = data.iter().map(|byte| u64::from(byte.count_ones())).sum();
                Reply::Integer(ones as i64)
            }
        }
    }
}

/// A connection to a server.
pub struct Client {
    name: String,
    dialect: Dialect,
    from: ChecksumReader<BufReader<Box<dyn io::Read>>>,
    to: BufWriter<Box<dyn Write>>,
}

/// Results of a load.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Operations answered.
    pub operations: u64,
    /// Operations on hot keys.
    pub hot_operations: u64,
    /// Operations that set a value again.
    pub updates: u64,
    /// Operations of the scan.
    pub scanned: u64,
    /// Bytes of values read and set.
    pub bytes: u64,
    /// Wall time of the load, in seconds.
    pub seconds: f64,
    /// Operations a second.
    pub operations_per_second: f64,
    /// Results per interval, if intervals were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

/// An interval of a load.
#[derive(Debug, Clone, Serialize)]
pub struct Interval {
    /// End of the interval, in seconds since the load began.
    pub at: f64,
    /// Operations answered in the interval.
    pub operations: u64,
    /// 95th percentile of the latency of a batch of sixteen operations, in microseconds.
    pub p95_us: f64,
    /// 99th percentile of the latency of a batch, in microseconds.
    pub p99_us: f64,
}

/// Counters of the operations so far.
#[derive(Default)]
struct Counts {
    all: u64,
    hot: u64,
    updates: u64,
    scanned: u64,
}

impl Counts {
    fn count(&mut self, operation: Operation, spot: &Hotspot) {
        self.all += 1;
        self.hot += u64::from(spot.is_hot(operation.key.into()));
        self.updates += u64::from(operation.kind == Kind::Update);
        self.scanned += u64::from(operation.kind == Kind::Scan);
    }

    fn report(self, value_bytes: usize, took: Duration, intervals: Vec<Interval>) -> LoadReport {
        let seconds = took.as_secs_f64();
        LoadReport {
            operations: self.all,
            hot_operations: self.hot,
            updates: self.updates,
            scanned: self.scanned,
            bytes: self.all * value_bytes as u64,
            seconds,
            operations_per_second: self.all as f64 / seconds,
            intervals,
        }
    }
}

/// Latencies of the batches of an interval.
#[derive(Default)]
struct Latencies {
    micros: Vec<f64>,
}

impl Latencies {
    /// Ends the interval at `at` and begins the next; `None` if it has no batch.
    fn end(&mut self, at: Duration) -> Option<Interval> {
        let mut micros = std::mem::take(&mut self.micros);
        micros.sort_unstable_by(f64::total_cmp);
        // Percentile: the smallest latency that at least `of` in 100 batches do not exceed.
        let at_least =
            |of: usize| micros.get((micros.len() * of).div_ceil(100).checked_sub(1)?).copied();
        let (p95_us, p99_us) = (at_least(95)?, at_least(99)?);
        let operations = micros.len() as u64 * u64::from(PIPELINE);
        Some(Interval { at: at.as_secs_f64(), operations, p95_us, p99_us })
    }
}

impl Client {
    /// Connects to a server: a path (it contains a slash) or `host:port`.
    ///
    /// # Errors
    /// [`ErrorKind::NoTarget`] if no server listens there.
    pub fn connect(server: &str, dialect: Dialect) -> Result<Self> {
        let streams = if server.contains('/') { unix(server) } else { tcp(server) };
        let (from, to) = streams.map_err(|e| {
            Error::new(ErrorKind::NoTarget, format!("cannot connect to {server}"))
                .cause(e)
                .remedy("is the server running, and is this its socket or host:port?")
        })?;
        let (from, to) = (
            ChecksumReader::new(BufReader::with_capacity(1 << 18, from)),
            BufWriter::with_capacity(1 << 18, to),
        );
        Ok(Client { name: server.to_owned(), dialect, from, to })
    }

    /// Sets keys `0..keys` to values of `bytes` bytes, marked hot or cold.
    ///
    /// # Errors
    /// The server refuses, or the connection breaks.
    pub fn fill(&mut self, keys: u32, bytes: usize, spot: &Hotspot) -> Result<()> {
        let mut data = vec![0; bytes];
        for first in (0..keys).step_by(PIPELINE as usize) {
            let batch = first..keys.min(first + PIPELINE);
            for key in batch.clone() {
                value::fill(&mut data, key, spot.is_hot(key.into()));
                self.write_set(key, &data).map_err(|e| self.broken(e))?;
            }
            self.flush()?;
            let done = match self.dialect {
                Dialect::Redis => "OK",
                Dialect::Memcached => STORED,
            };
            batch.clone().try_for_each(|key| self.expect(key, &Reply::Simple(done.into())))?;
        }
        Ok(())
    }

    /// Runs `operations` for `duration` and checks every reply against the value that
    /// [`Client::fill`] set with `marks`; counts operations on keys that are hot by `spot`. With
    /// `every`, reports each interval of that length.
    ///
    /// # Errors
    /// A key is missing or has another value, the server lacks a command, or as [`Client::fill`].
    pub fn load(
        &mut self,
        operations: &mut Operations,
        (spot, marks): (&Hotspot, &Hotspot),
        bytes: usize,
        read: Read,
        (duration, every): (Duration, Option<Duration>),
    ) -> Result<LoadReport> {
        if (self.dialect, read) == (Dialect::Memcached, Read::BitCount) {
            return Err(Error::new(ErrorKind::Usage, "memcached does not count bits")
                .remedy("read values by get"));
        }
        let mut replies: HashMap<u32, Reply> = HashMap::new();
        let (started, mut done) = (Instant::now(), Counts::default());
        let (mut latencies, mut intervals, mut due) = (Latencies::default(), Vec::new(), every);
        let mut data = vec![0; bytes];
        while started.elapsed() < duration {
            let began = Instant::now();
            let batch: [Operation; PIPELINE as usize] =
                std::array::from_fn(|_| operations.next_operation());
            for operation in batch {
                self.write_operation(operation, read, marks, &mut data)
                    .map_err(|e| self.broken(e))?;
            }
            self.flush()?;
            for operation in batch {
                if operation.kind == Kind::Update {
                    self.expect(operation.key, &self.updated(bytes))?;
                } else {
                    let marked = marks.is_hot(operation.key.into());
                    let reply = || read.reply(operation.key, bytes, marked);
                    self.expect(operation.key, replies.entry(operation.key).or_insert_with(reply))?;
                }
                done.count(operation, spot);
            }
            if let (Some(every), Some(end)) = (every, due) {
                latencies.micros.push(began.elapsed().as_secs_f64() * 1e6);
                let now = started.elapsed();
                if now >= end {
                    intervals.extend(latencies.end(now));
                    due = Some(now + every);
                }
            }
        }
        intervals.extend(latencies.end(started.elapsed()));
        Ok(done.report(bytes, started.elapsed(), intervals))
    }

    /// Reads the value of every key once and compares all its bytes with what [`Client::fill`] set.
    ///
    /// # Errors
    /// The first key whose value differs, or as [`Client::load`].
    pub fn check(&mut self, keys: u32, bytes: usize, spot: &Hotspot) -> Result<()> {
        let mut data = vec![0; bytes];
        for key in 0..keys {
            self.write_read(Read::Get, key).map_err(|e| self.broken(e))?;
            self.flush()?;
            self.from.begin();
            self.expect(key, &Reply::Bulk(bytes))?;
            let found = self.from.end();
            value::fill(&mut data, key, spot.is_hot(key.into()));
            if found != self.reply_checksum(key, &data) {
                return Err(Error::new(ErrorKind::Data, format!("key {key}"))
                    .cause("its value is not the one that was set")
                    .remedy("memory was corrupted, or the server was filled otherwise"));
            }
        }
        Ok(())
    }

    /// Checksum of a whole reply that carries `data`.
    fn reply_checksum(&self, key: u32, data: &[u8]) -> Checksum {
        match self.dialect {
            Dialect::Redis => {
                Checksum::of(&[format!("${}\r\n", data.len()).as_bytes(), data, b"\r\n"])
            }
            Dialect::Memcached => {
                let head = format!("VALUE key:{key:010} 0 {}\r\n", data.len());
                Checksum::of(&[head.as_bytes(), data, b"\r\nEND\r\n"])
            }
        }
    }

    fn write_set(&mut self, key: u32, data: &[u8]) -> io::Result<()> {
        match self.dialect {
            Dialect::Redis => write_command(&mut self.to, &[b"SET", &key_name(key), data]),
            Dialect::Memcached => memcached::write_set(&mut self.to, &key_name(key), data),
        }
    }

    /// Writes the command of an operation; `data` is a buffer for a value.
    fn write_operation(
        &mut self,
        operation: Operation,
        read: Read,
        marks: &Hotspot,
        data: &mut [u8],
    ) -> io::Result<()> {
        if operation.kind != Kind::Update {
            return self.write_read(read, operation.key);
        }
        value::fill(data, operation.key, marks.is_hot(operation.key.into()));
        match self.dialect {
            Dialect::Redis => {
                let words: [&[u8]; 4] = [b"SETRANGE", &key_name(operation.key), b"0", data];
                write_command(&mut self.to, &words)
            }
            // memcached has no command that overwrites a value in place.
            Dialect::Memcached => self.write_set(operation.key, data),
        }
    }

    /// The server's reply to an update.
    fn updated(&self, bytes: usize) -> Reply {
        match self.dialect {
            Dialect::Redis => Reply::Integer(bytes as i64),
            Dialect::Memcached => Reply::Simple(STORED.into()),
        }
    }

    fn write_read(&mut self, read: Read, key: u32) -> io::Result<()> {
        match self.dialect {
            Dialect::Redis => write_command(&mut self.to, &[read.command(), &key_name(key)]),
            Dialect::Memcached => memcached::write_get(&mut self.to, &key_name(key)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.to.flush().map_err(|e| self.broken(e))
    }

    fn expect(&mut self, key: u32, expected: &Reply) -> Result<()> {
        let reply = match self.dialect {
            Dialect::Redis => read_reply(&mut self.from),
            Dialect::Memcached => memcached::read_reply(&mut self.from),
        };
        let reply = reply.map_err(|e| self.broken(e))?;
        if reply == *expected {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Data, format!("key {key}"))
            .cause(format!("the server answered {reply:?} instead of {expected:?}"))
            .remedy("fill the server first, with the same keys and value size"))
    }

    fn broken(&self, error: io::Error) -> Error {
        Error::new(ErrorKind::Io, format!("connection to {}", self.name))
            .cause(error)
            .remedy("the server has gone; see its log")
    }
}

type Streams = (Box<dyn io::Read>, Box<dyn Write>);

fn unix(path: &str) -> io::Result<Streams> {
    let stream = UnixStream::connect(path)?;
    Ok((Box::new(stream.try_clone()?), Box::new(stream)))
}

fn tcp(address: &str) -> io::Result<Streams> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok((Box::new(stream.try_clone()?), Box::new(stream)))
}

/// Name of a key on the server.
pub(crate) fn key_name(key: u32) -> Vec<u8> {
    format!("key:{key:010}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{Draw, Shares};
    use std::io::{BufRead, Read as _};
    use std::os::unix::net::UnixListener;
    use std::thread;
    use tierscope_workloads::hotspot::Layout;

    /// A server that answers every command with the result of `answer`.
    fn server(path: &std::path::Path, answer: fn(&[Vec<u8>]) -> Vec<u8>) {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let (mut from, mut to) = (BufReader::new(stream.try_clone().unwrap()), stream);
            while let Some(words) = read_command(&mut from) {
                if to.write_all(&answer(&words)).is_err() {
                    return;
                }
            }
        });
    }

    fn read_command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
        let mut number = || {
            let mut line = String::new();
            from.read_line(&mut line).ok().filter(|n| *n > 0)?;
            line.trim_end()[1..].parse::<usize>().ok()
        };
        let count = number()?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            from.read_line(&mut line).ok()?;
            let mut word = vec![0; line.trim_end()[1..].parse::<usize>().ok()? + 2];
            from.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            words.push(word);
        }
        Some(words)
    }

    #[test]
    fn fills_every_key_with_marked_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        server(&path, |words| {
            let key: u32 = String::from_utf8_lossy(&words[1][4..]).parse().unwrap();
            let hot = key == 3 || key == 4;
            if value::is_whole(&words[2], key, hot) {
                b"+OK\r\n".to_vec()
            } else {
                b"-ERR torn\r\n".to_vec()
            }
        });
        let spot = Hotspot::new(20, 0.1, 1.0, Layout::Run(0.15));
        Client::connect(path.to_str().unwrap(), Dialect::Redis)
            .unwrap()
            .fill(20, 1000, &spot)
            .unwrap();
    }

    fn reads(keys: u32, spot: Hotspot) -> Operations {
        Operations::new(keys, Draw::Hotspot(spot), Shares::default(), 1)
    }

    // A server that holds every value as set, accepts updates to the same bytes, and refuses key
    // 19.
    #[test]
    fn redis_updates_overwrite_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        server(&path, |words| {
            let key: u32 = String::from_utf8_lossy(&words[1][4..]).parse().unwrap();
            match (key, words[0].as_slice()) {
                (19, _) => b"-ERR enough\r\n".to_vec(),
                (_, b"GET") => [b"$600\r\n".as_slice(), &[b'.'; 600], b"\r\n"].concat(),
                (_, b"SETRANGE")
                    if words[2] == b"0" && value::is_whole(&words[3], key, key == 3) =>
                {
                    format!(":{}\r\n", words[3].len()).into_bytes()
                }
                _ => b"-ERR torn\r\n".to_vec(),
            }
        });
        let spot = Hotspot::new(20, 0.05, 0.5, Layout::Run(0.15));
        let shares = Shares { updates: 0.5, scans: 0.5 };
        let mut operations = Operations::new(20, Draw::Hotspot(spot), shares, 1);
        let mut client = Client::connect(path.to_str().unwrap(), Dialect::Redis).unwrap();
        let long = (Duration::from_secs(60), None);
        let error = client.load(&mut operations, (&spot, &spot), 600, Read::Get, long).unwrap_err();
        assert!(error.to_string().contains("key 19: the server answered Error"), "{error}");
        assert!(error.to_string().contains("enough"), "{error}");
    }

    #[test]
    fn operations_are_counted_by_kind() {
        let spot = Hotspot::new(4, 0.25, 1.0, Layout::Run(0.0));
        let mut done = Counts::default();
        for (key, kind) in [(0, Kind::Read), (1, Kind::Update), (0, Kind::Scan), (1, Kind::Scan)] {
            done.count(Operation { key, kind }, &spot);
        }
        let report = done.report(10, Duration::from_secs(2), Vec::new());
        assert_eq!((report.operations, report.hot_operations), (4, 2));
        assert_eq!((report.updates, report.scanned, report.bytes), (1, 2, 40));
        assert_eq!(report.operations_per_second, 2.0);
    }

    #[test]
    fn a_value_of_another_size_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        server(&path, |_| b"$3\r\nabc\r\n".to_vec());
        let spot = Hotspot::new(20, 0.1, 1.0, Layout::Run(0.0));
        let mut client = Client::connect(path.to_str().unwrap(), Dialect::Redis).unwrap();
        let error = client
            .load(
                &mut reads(20, spot),
                (&spot, &spot),
                4,
                Read::Get,
                (Duration::from_secs(60), None),
            )
            .unwrap_err();
        assert!(error.to_string().contains("answered Bulk(3) instead of Bulk(4)"), "{error}");
    }

    #[test]
    fn a_value_with_other_bits_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        server(&path, |_| b":7\r\n".to_vec());
        let spot = Hotspot::new(1, 1.0, 1.0, Layout::Run(0.0));
        let mut client = Client::connect(path.to_str().unwrap(), Dialect::Redis).unwrap();
        let long = (Duration::from_secs(60), None);
        let error = client.load(&mut reads(1, spot), (&spot, &spot), 600, Read::BitCount, long);
        assert!(error.unwrap_err().to_string().contains("answered Integer(7) instead of Integer("));
    }

    // A server that stores nothing: it accepts every set, and returns values of three bytes.
    #[test]
    fn memcached_is_filled_and_read_by_its_own_protocol() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let (mut from, mut to) = (BufReader::new(stream.try_clone().unwrap()), stream);
            let mut line = String::new();
            while from.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let answer: &[u8] = match line.split(' ').next() {
                    Some("set") => {
                        from.read_exact(&mut [0; 3 + 2]).unwrap();
                        b"STORED\r\n"
                    }
                    _ => b"VALUE k 0 3\r\nabc\r\nEND\r\n",
                };
                if to.write_all(answer).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let spot = Hotspot::new(4, 0.5, 1.0, Layout::Run(0.0));
        let mut client = Client::connect(path.to_str().unwrap(), Dialect::Memcached).unwrap();
        client.fill(4, 3, &spot).unwrap();
        let spots = (&spot, &spot);
        let mut load = |operations: &mut Operations, bytes, read, seconds| {
            client.load(operations, spots, bytes, read, (Duration::from_secs(seconds), None))
        };
        assert_eq!(load(&mut reads(4, spot), 3, Read::Get, 0).unwrap().operations, 0);
        let other = load(&mut reads(4, spot), 4, Read::Get, 60).unwrap_err();
        assert!(other.to_string().contains("Bulk(3) instead of Bulk(4)"), "{other}");
        let bits = load(&mut reads(4, spot), 3, Read::BitCount, 60).unwrap_err();
        assert_eq!(bits.kind(), ErrorKind::Usage);
    }

    // A server that holds key 0 as set, and key 1 with two bytes swapped.
    #[test]
    fn a_value_whose_bytes_changed_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let spot = Hotspot::new(2, 0.5, 1.0, Layout::Run(0.0));
        server(&path, |words| {
            let key = u32::from(words[1].ends_with(b"1"));
            let mut data = vec![0; 600];
            value::fill(&mut data, key, key == 0);
            if key == 1 {
                data.swap(520, 599);
            }
            [b"$600\r\n".as_slice(), &data, b"\r\n"].concat()
        });
        let mut client = Client::connect(path.to_str().unwrap(), Dialect::Redis).unwrap();
        assert_eq!(client.check(1, 600, &spot), Ok(()));
        let error = client.check(2, 600, &spot).unwrap_err().to_string();
        assert!(error.starts_with("key 1: its value is not the one that was set"), "{error}");
    }

    // 100 batches of 1 to 100 µs: 95 of them take 95 µs or less, 99 of them 99.
    #[test]
    fn an_interval_holds_operations_and_percentiles() {
        let mut latencies = Latencies { micros: (1..=100).rev().map(f64::from).collect() };
        let interval = latencies.end(Duration::from_secs(2)).unwrap();
        assert_eq!((interval.operations, interval.at), (1600, 2.0));
        assert_eq!((interval.p95_us, interval.p99_us), (95.0, 99.0));
        assert!(latencies.end(Duration::from_secs(3)).is_none());
    }

    #[test]
    fn a_missing_server_is_no_target() {
        let error = Client::connect("/nonexistent/socket", Dialect::Redis).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NoTarget);
    }
}
