//! Import of files of other tools into a recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tierscope_core::drive::Sink;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::{Fact, Meta};
use tierscope_trace::input::BYTE_ORDER_MARK;

use crate::damo::{json, record_file, trace};
use crate::inflate::Inflate;
use crate::merge::{mean_window, merge, spaces};
use crate::perf::{self, Grain};
use crate::place::{Place, excerpt, malformed, unreadable};
use crate::spool::{Flaws, SOURCE, Scratch, Spool, UPDATE, span};
use crate::tables::Tick;

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// damo's JSON.
    DamoJson,
    /// damo's JSON, zlib-compressed: the default of `damo record`.
    DamoJsonCompressed,
    /// The record file of DAMON's debugfs interface in old kernels.
    DamoRecord,
    /// A perf.data file of `damon:damon_aggregated` or sampled accesses; read with `perf script`.
    PerfData,
    /// Text printed by `perf script` or `trace-cmd report`.
    Text,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 5] = [
        Format::DamoJson,
        Format::DamoJsonCompressed,
        Format::DamoRecord,
        Format::PerfData,
        Format::Text,
    ];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::DamoJson => "damo-json",
            Format::DamoJsonCompressed => "damo-json-compressed",
            Format::DamoRecord => "damo-record",
            Format::PerfData => "perf-data",
            Format::Text => "text",
        }
    }

    /// One-line description for the user.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Format::DamoJson => "JSON of damo",
            Format::DamoJsonCompressed => "JSON of damo, zlib-compressed (damo's default)",
            Format::DamoRecord => "record file of DAMON's debugfs in old kernels",
            Format::PerfData => {
                "perf.data with damon_aggregated events or memory samples (needs perf)"
            }
            Format::Text => {
                "perf script or trace-cmd report: damon_aggregated events or memory samples"
            }
        }
    }

    /// What a recording keeps of it, what is lost, and what it was tested against: for
    /// docs/formats.md.
    #[must_use]
    pub fn facts(self) -> [&'static str; 3] {
        let json = [
            "regions, counts, ages, times, intervals, ids of targets, indices of kdamond, context and scheme; all of our own exports but mappings",
            "filters of schemes, `sz_filter_passed`, hits of probes, statistics, goals of intervals; of targets that end at other moments, the moments; ages between two windows (all named with their number)",
            "damo 2.2, 2.7, 3.0 and 3.4.3 (`crates/cli/tests/foreign`, `make test-damo`)",
        ];
        match self {
            Format::DamoJson | Format::DamoJsonCompressed => json,
            Format::DamoRecord => [
                "regions, counts, times, ids of targets",
                "nothing; it has no ages and intervals",
                "damo 1.8, which writes version 2; the layout in the kernel's source, versions 0 and 1",
            ],
            Format::PerfData => {
                ["as `text`, printed by `perf script`", "as `text`", "perf 6.1, damo 1.8 and 3.4.3"]
            }
            Format::Text => [
                "of events of DAMON: regions, counts, ages, times, ids; of memory samples: blocks by their samples",
                "samples without an address of the process (counted), and what a sample says besides address and time; `damos_before_apply` next to `damon_aggregated`",
                "perf 6.1, trace-cmd 3.1.6, damo 1.8 to 3.4.3, tracefs of Linux 6.12, events of Linux 7.3",
            ],
        }
    }

    /// Detects the format from the first bytes of a file.
    fn of(start: &[u8]) -> Self {
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        match start {
            _ if start.starts_with(record_file::MARK) => Format::DamoRecord,
            _ if start.starts_with(b"PERFILE2") => Format::PerfData,
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Format::DamoJsonCompressed,
            _ if first == Some(&b'[') => Format::DamoJson,
            _ => Format::Text,
        }
    }
}

/// Parameters that the files do not contain.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The format; `None` to detect it.
    pub format: Option<Format>,
    /// Sampling interval of sampled accesses, and of files that do not contain one; `None` for
    /// DAMON's default, 5 ms.
    pub sampling: Option<Duration>,
    /// Length of the windows into which samples are binned.
    pub window: Duration,
    /// log2 of the size in bytes of the blocks into which samples are binned.
    pub block_shift: u32,
    /// Refuse files of which a part makes no sense, instead of leaving it out.
    pub strict: bool,
}

/// DAMON's default sampling interval: that of files that have none.
pub const SAMPLING: Duration = Duration::from_millis(5);

impl Options {
    fn sampling(&self) -> Duration {
        self.sampling.unwrap_or(SAMPLING)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: None,
            sampling: None,
            window: Duration::from_millis(200),
            block_shift: 21,
            strict: false,
        }
    }
}

/// Imported files, spooled and ready to be written to a recording.
pub struct Imported {
    spool: Spool,
    options: Options,
    formats: Vec<Format>,
    files: Vec<String>,
    modified: SystemTime,
    sampled: bool,
}

/// Reads `files` and spools their snapshots to `scratch`, which has to be empty. `tick` is called
/// with the bytes read so far and the total.
///
/// # Errors
/// [`ErrorKind::Data`] with file and position for input of no known format or without a whole
/// snapshot, and for any that is damaged or truncated if the import is strict; [`ErrorKind::Usage`]
/// if a file does not exist.
pub fn import(
    files: &[PathBuf],
    options: Options,
    scratch: Box<dyn Scratch>,
    tick: Tick<'_>,
) -> Result<Imported> {
    let mut imported = Imported::new(options, scratch);
    let length = |path: &PathBuf| path.metadata().map_or(0, |m| m.len());
    let all: u64 = files.iter().map(length).sum();
    let mut done = 0;
    for path in files {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
        let metadata = file.metadata().map_err(|e| unreadable(&name, &e))?;
        if metadata.is_dir() {
            return Err(malformed(&name, Place::Whole, "it is a directory"));
        }
        imported.modified = imported.modified.max(metadata.modified().unwrap_or(UNIX_EPOCH));
        let input = BufReader::with_capacity(1 << 18, file);
        let mut input = Counted { input, done, all, tick, stopped: None };
        let read = imported.read(&name, Some(path), &mut input);
        // An error of `tick` takes precedence over the read error that it causes.
        input.stopped.map_or(read, Err)?;
        done += metadata.len();
    }
    imported.check()?;
    Ok(imported)
}

/// Like [`import()`], for one input stream; `name` is used in errors.
///
/// # Errors
/// Those of [`import()`]; a perf.data file can be read from disk only.
pub fn read(
    name: &str,
    input: &mut dyn BufRead,
    options: Options,
    scratch: Box<dyn Scratch>,
) -> Result<Imported> {
    let mut imported = Imported::new(options, scratch);
    imported.read(name, None, input)?;
    imported.check()?;
    Ok(imported)
}

impl Imported {
    fn new(options: Options, scratch: Box<dyn Scratch>) -> Self {
        let spool = Spool::new(scratch);
        Self {
            spool: if options.strict { spool.strictly() } else { spool },
            options,
            formats: Vec::new(),
            files: Vec::new(),
            modified: UNIX_EPOCH,
            sampled: false,
        }
    }

    fn read(&mut self, name: &str, path: Option<&Path>, input: &mut dyn BufRead) -> Result<()> {
        let start = input.fill_buf().map_err(|e| unreadable(name, &e))?;
        if start.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        let start = input.fill_buf().map_err(|e| unreadable(name, &e))?;
        if start.is_empty() {
            return Err(malformed(name, Place::Whole, "it is empty"));
        }
        let format = self.options.format.unwrap_or_else(|| Format::of(start));
        self.files.push(name.to_owned());
        self.formats.push(format);
        let before = self.windows();
        match self.read_as(format, name, path, input) {
            // What was read before the flaw is kept.
            Err(error) if self.windows() > before => self.spool.leave_out(error),
            read => read,
        }
    }

    fn read_as(
        &mut self,
        format: Format,
        name: &str,
        path: Option<&Path>,
        input: &mut dyn BufRead,
    ) -> Result<()> {
        match format {
            Format::DamoJson => json::read(name, &mut { input }, &mut self.spool),
            Format::DamoJsonCompressed => {
                json::read(name, &mut Inflate::new(input), &mut self.spool)
            }
            Format::DamoRecord => record_file::read(name, input, &mut self.spool),
            Format::Text => self.text(name, input),
            Format::PerfData => match path {
                Some(path) => self.perf_data(name, path),
                None => Err(malformed(name, Place::Whole, "perf.data is read from a file only")),
            },
        }
    }

    /// Reads a perf.data file. Of some events, perf prints addresses only if they are asked for,
    /// and then nothing of the fields of tracepoints.
    fn perf_data(&mut self, name: &str, path: &Path) -> Result<()> {
        let printed = self.perf_script(name, path, &[]);
        let Err(error) = &printed else { return Ok(()) };
        if error.kind() != ErrorKind::Data || self.windows() > 0 {
            return printed;
        }
        let addresses = ["-F", "comm,pid,tid,time,event,addr"];
        let flaws = std::mem::take(&mut self.spool.flaws);
        self.perf_script(name, path, &addresses).or_else(|_| {
            self.spool.flaws = flaws;
            printed
        })
    }

    /// Runs `perf script` on a perf.data file: only perf can decode all of the format.
    fn perf_script(&mut self, name: &str, path: &Path, fields: &[&str]) -> Result<()> {
        let mut perf = Command::new("perf");
        perf.arg("script").args(fields).args(["--force", "-i"]).arg(path);
        let spawned =
            perf.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|e| {
            Error::new(ErrorKind::Missing, format!("cannot import {name}"))
                .cause(format_args!("`perf script` cannot be run: {e}"))
                .remedy(
                    "install perf (linux-perf), or print it elsewhere: \
                         `perf script --force -i FILE > FILE.txt`, and import that",
                )
        })?;
        let read = match child.stdout.take() {
            Some(stdout) => self.text(name, &mut BufReader::<ChildStdout>::new(stdout)),
            None => Ok(()),
        };
        let status = child.wait().map_err(|e| unreadable(name, &e))?;
        if !status.success() {
            let cause = format!("`perf script` ended with {status}");
            return Err(malformed(name, Place::Whole, cause));
        }
        read
    }

    /// Reads DAMON tracepoint lines or samples; the first line that matches decides which.
    fn text(&mut self, name: &str, input: &mut dyn BufRead) -> Result<()> {
        let grain = Grain {
            sampling: self.options.sampling(),
            window: self.options.window,
            shift: self.options.block_shift,
        };
        let mut damon = trace::Reader::default();
        let mut samples = perf::Reader::new(grain);
        let (mut is_damon, mut is_samples) = (false, false);
        let mut lines = Lines { name, input, number: 0, line: Vec::new(), first: None };
        let spool = &mut self.spool;
        let is_event = |read: Result<bool>, spool: &mut Spool| match read {
            Ok(is_event) => Ok(is_event),
            Err(error) => spool.leave_out(error).map(|()| false),
        };
        loop {
            match lines.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    spool.leave_out(error)?;
                    continue;
                }
            }
            let text = String::from_utf8_lossy(&lines.line);
            let number = lines.number;
            if !is_samples && is_event(damon.line(name, number, &text, spool), spool)? {
                is_damon = true;
            } else if !is_damon && is_event(samples.line(name, number, &text, spool), spool)? {
                is_samples = true;
            }
        }
        if !is_damon && !is_samples {
            if let Some(flaw) = self.spool.flaws.first.take() {
                return Err(flaw);
            }
            let first = lines.first.unwrap_or_default();
            let cause =
                format!("no line of it is an event of perf or trace-cmd: it begins with {first}");
            return Err(malformed(name, Place::Line(1), cause));
        }
        self.sampled |= is_samples;
        damon.finish(name, &mut self.spool)?;
        samples.finish(&mut self.spool)
    }

    fn check(&mut self) -> Result<()> {
        self.spool.streams.retain(|stream| !stream.snapshots.is_empty());
        if self.windows() > 0 {
            return Ok(());
        }
        if let Some(flaw) = &self.spool.flaws.first {
            return Err(flaw.clone());
        }
        let cause = "it holds no snapshot";
        Err(malformed(&self.files.join(", "), Place::Whole, cause))
    }

    /// Number of snapshots that were read, over all targets.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.spool.streams.iter().map(|stream| stream.snapshots.len() as u64).sum()
    }

    /// Number of windows that were dropped because parts of them are missing.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        self.spool.incomplete
    }

    /// Parts of the files that make no sense, and were left out.
    #[must_use]
    pub fn flaws(&self) -> &Flaws {
        &self.spool.flaws
    }

    /// Fields of the files that a recording cannot hold, and how many of them held something. Some
    /// are known only after [`Imported::write`].
    #[must_use]
    pub fn dropped(&self) -> &BTreeMap<&'static str, u64> {
        &self.spool.dropped
    }

    /// Number of samples that were dropped: without an address, or with one in kernel memory.
    #[must_use]
    pub fn unused_samples(&self) -> u64 {
        self.spool.unused_samples
    }

    /// Metadata for the new recording; that of an exported recording is restored.
    #[must_use]
    pub fn meta(&self, command: &str) -> Meta {
        let formats: Vec<&str> = self.formats.iter().map(|format| format.name()).collect();
        let mut meta = self.spool.meta.clone().unwrap_or_else(|| self.guessed_meta());
        meta.absent.insert(Fact::Mappings);
        let spaces = self.spool.streams.iter().zip(spaces(&self.spool));
        let sources = spaces.filter_map(|(stream, space)| {
            let origin = stream.origin.as_ref().filter(|origin| origin.space.is_none())?;
            Some((format!("{SOURCE}{}", space.id.0), origin.text()))
        });
        meta.annotations.extend(sources);
        let update = self.spool.streams.iter().find_map(|stream| stream.update);
        // An export of ours has damo's default if the recording did not say.
        if let Some(update) = update.filter(|_| self.spool.meta.is_none()) {
            let micros = format!("{:.0}", update / 1e3);
            meta.annotations.insert(UPDATE.into(), micros);
        }
        meta.annotations.insert("imported-from".into(), self.files.join(" "));
        meta.annotations.insert("imported-format".into(), formats.join(" "));
        meta.annotations.insert("import-command".into(), command.into());
        meta
    }

    fn guessed_meta(&self) -> Meta {
        let intervals = self.spool.streams.iter().find_map(|s| s.sampling.zip(s.window));
        let snapshots = || {
            self.spool
                .streams
                .iter()
                .flat_map(|s| s.snapshots.iter().map(|(snapshot, ..)| snapshot))
        };
        let first =
            snapshots().map(|snapshot| snapshot.start.unwrap_or(snapshot.end)).min().unwrap_or(0);
        let last = snapshots().map(|snapshot| snapshot.end).max().unwrap_or(0);
        let mean = span(self.spool.streams.first().map_or(0.0, mean_window));
        let is_tuned = snapshots().any(|snapshot| snapshot.sampling.is_some());
        let has_intervals = intervals.is_some() || is_tuned || self.options.sampling.is_some();
        let absent = [
            (Fact::Ages, self.spool.ages == 0),
            (Fact::Intervals, !has_intervals),
            (Fact::Start, true),
        ];
        let targets = match self.spool.streams.len() {
            1 => "1 target".to_owned(),
            n => format!("{n} targets"),
        };
        Meta {
            instrument: if self.sampled { "perf-samples" } else { "kernel-damon" }.into(),
            sampling: intervals.map_or(self.options.sampling(), |(sampling, _)| span(sampling)),
            window: intervals.map_or(mean, |(_, window)| span(window)),
            target: format!("{targets} of {}", self.files.join(", ")),
            // The modification time approximates the end of the recording.
            started: self
                .modified
                .checked_sub(Duration::from_nanos(last - first))
                .unwrap_or(UNIX_EPOCH),
            absent: absent.into_iter().filter_map(|(fact, is)| is.then_some(fact)).collect(),
            ..Meta::default()
        }
    }

    /// Writes the windows in order of time; returns their number.
    ///
    /// # Errors
    /// Those of `sink`; [`ErrorKind::Io`] if the scratch file cannot be read back.
    pub fn write(&mut self, sink: &mut dyn Sink, tick: Tick<'_>) -> Result<u64> {
        merge(&mut self.spool, self.options.sampling(), sink, tick)
    }
}

/// Limit on the length of a line in bytes; no line of an event is as long.
const LONGEST_LINE: u64 = 1 << 16;

/// Iterates over the lines of a text.
struct Lines<'a> {
    name: &'a str,
    input: &'a mut dyn BufRead,
    number: u64,
    line: Vec<u8>,
    /// The first line that is not empty, for the error message.
    first: Option<String>,
}

impl Lines<'_> {
    /// Passes over what is left of a line that is too long.
    fn pass_over(&mut self) -> Result<()> {
        let mut part = Vec::new();
        loop {
            part.clear();
            let mut limited = (&mut *self.input).take(LONGEST_LINE);
            let read = limited.read_until(b'\n', &mut part);
            let length = read.map_err(|e| unreadable(self.name, &e))?;
            if length == 0 || part.ends_with(b"\n") {
                return Ok(());
            }
        }
    }

    /// Reads the next line; returns whether there was one.
    fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        let mut limited = (&mut *self.input).take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut self.line);
        let length = read.map_err(|e| unreadable(self.name, &e))?;
        self.number += 1;
        if length as u64 == LONGEST_LINE && !self.line.ends_with(b"\n") {
            self.pass_over()?;
            let cause =
                format!("it is longer than {LONGEST_LINE} bytes: this is no text of perf's");
            return Err(malformed(self.name, Place::Line(self.number), cause));
        }
        if self.first.is_none() && !self.line.trim_ascii().is_empty() {
            self.first = Some(excerpt(&self.line));
        }
        Ok(length > 0)
    }
}

/// A reader that reports progress in bytes.
struct Counted<'a, 't> {
    input: BufReader<File>,
    done: u64,
    all: u64,
    tick: &'a mut (dyn FnMut(u64, u64) -> Result<()> + 't),
    /// Error of the progress callback: ends the import.
    stopped: Option<Error>,
}

impl Read for Counted<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.check()?;
        let count = self.input.read(buffer)?;
        self.consumed(count);
        Ok(count)
    }
}

impl BufRead for Counted<'_, '_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.check()?;
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.input.consume(amount);
        self.consumed(amount);
    }
}

impl Counted<'_, '_> {
    fn consumed(&mut self, count: usize) {
        self.done += count as u64;
        self.stopped = (self.tick)(self.done, self.all).err();
    }

    fn check(&self) -> std::io::Result<()> {
        self.stopped.clone().map_or(Ok(()), |error| Err(std::io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_their_first_bytes() {
        assert_eq!(Format::of(b"damon_recfmt_ver\x02\0\0\0"), Format::DamoRecord);
        assert_eq!(Format::of(b"PERFILE2h"), Format::PerfData);
        assert_eq!(Format::of(&[0x78, 0x9c, 1]), Format::DamoJsonCompressed);
        assert_eq!(Format::of(b"\n [\n {"), Format::DamoJson);
        assert_eq!(Format::of(b"kdamond.0 1 [000]"), Format::Text);
    }
}
