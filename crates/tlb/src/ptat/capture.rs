//! A capture: a directory with the streams of a machine's boards and its kernel's dump.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tierscope_core::{Error, Result};
use tierscope_trace::place::{Place, malformed, unreadable};

use super::board::BoardReader;
use super::bus::MOST_BOARDS;
use super::counts::Misses;
use super::dump_reader::{DumpReader, Group};
use super::merge::Merge;
use super::parser::{Parser, Sink};
use super::{Request, saved};

/// The files of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `board-0.bus` and so on.
    pub boards: Vec<PathBuf>,
    /// `dump.ptat`.
    pub dump: PathBuf,
}

impl Files {
    /// File names of a capture with that number of boards in a directory.
    #[must_use]
    pub fn of(directory: &Path, boards: u8) -> Self {
        let board = |number| directory.join(format!("board-{number}.bus"));
        Self { boards: (0..boards).map(board).collect(), dump: directory.join("dump.ptat") }
    }

    /// The files that exist in a directory.
    ///
    /// # Errors
    /// The directory is no capture.
    pub fn find(directory: &Path) -> Result<Self> {
        let all = Self::of(directory, MOST_BOARDS);
        let there = all.boards.iter().take_while(|path| path.is_file()).count();
        if there == 0 || !all.dump.is_file() {
            let cause = "it holds no board-0.bus, or no dump.ptat";
            let remedy = "name a directory with board-0.bus, board-1.bus, … and dump.ptat";
            return Err(malformed(&directory.display().to_string(), Place::Whole, cause, remedy));
        }
        Ok(Self { boards: all.boards[..there].to_vec(), dump: all.dump })
    }

    /// Whether a directory looks like a capture.
    #[must_use]
    pub fn are_in(directory: &Path) -> bool {
        directory.join("dump.ptat").is_file()
    }
}

/// Errors found in a capture.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// The first error.
    pub first: Option<Error>,
    /// Number of errors.
    pub count: u64,
}

impl Damage {
    fn add(&mut self, error: Error) {
        self.first.get_or_insert(error);
        self.count += 1;
    }
}

/// Parses a capture.
pub struct Capture<R = File> {
    merge: Merge<R>,
    dump: DumpReader<R>,
    parser: Parser,
    /// Merged requests that were not parsed yet.
    batch: Vec<Request>,
    group: Group,
    damage: Damage,
    /// Size of all files; 0 if unknown.
    pub bytes: u64,
}

impl Capture {
    /// Opens the capture of a directory.
    ///
    /// # Errors
    /// The directory is no capture, or one of its files cannot be read.
    pub fn open(directory: &Path) -> Result<Self> {
        let files = Files::find(directory)?;
        let mut bytes = 0;
        let mut boards = Vec::new();
        for path in &files.boards {
            let file = open_at(path, 0)?;
            bytes += file.metadata().map_or(0, |metadata| metadata.len());
            boards.push(BoardReader::new(&path.display().to_string(), file)?);
        }
        let dump = DumpReader::new(&files.dump.display().to_string(), open_at(&files.dump, 0)?)?;
        let mut capture = Self::of(boards, dump)?;
        capture.bytes = bytes;
        Ok(capture)
    }

    /// Continues parsing from a state that [`Capture::save`] returned.
    ///
    /// # Errors
    /// As for [`Capture::open`]; or the state is damaged, or of another capture.
    pub fn resume(directory: &Path, state: &[u8]) -> Result<Self> {
        let files = Files::find(directory)?;
        let mut capture = Self::open(directory)?;
        let wrong = |cause: &str| {
            let remedy = "start over without it";
            malformed(&directory.display().to_string(), Place::Whole, cause, remedy)
        };
        let saved = saved::load(state, &mut capture.parser)
            .map_err(|cause| wrong(&format!("its saved state cannot be used: {cause}")))?;
        if saved.boards.len() != files.boards.len() {
            return Err(wrong("its saved state is of other boards"));
        }
        capture.merge.resume(&saved.boards, |board, at| open_at(&files.boards[board], at))?;
        capture.dump.resume(open_at(&files.dump, saved.dump.offset)?, saved.dump);
        Ok(capture)
    }
}

fn open_at(path: &Path, offset: u64) -> Result<File> {
    let name = path.display().to_string();
    let mut file = File::open(path).map_err(|e| unreadable(&name, &e))?;
    file.seek(SeekFrom::Start(offset)).map_err(|e| unreadable(&name, &e))?;
    Ok(file)
}

impl<R: Read> Capture<R> {
    /// A capture of open streams.
    ///
    /// # Errors
    /// The streams are not those of all boards of one machine.
    pub fn of(boards: Vec<BoardReader<R>>, dump: DumpReader<R>) -> Result<Self> {
        let header = *dump.header();
        let merge = Merge::new(boards, [header.region, header.tags])?;
        let parser = Parser::new(&header, merge.grain());
        Ok(Self {
            merge,
            dump,
            parser,
            batch: Vec::new(),
            group: Group::default(),
            damage: Damage::default(),
            bytes: 0,
        })
    }

    /// Bytes read of the boards' files.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.merge.bytes()
    }

    /// Picoseconds per tick.
    #[must_use]
    pub fn tick_ps(&self) -> u32 {
        self.merge.tick_ps()
    }

    /// Errors found so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The first error since the last call.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        self.damage.first.take()
    }

    /// Parses the next requests. False at the end.
    pub fn step<S: Sink>(&mut self, sink: &mut S) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        let errors = self.damage.count;
        let filled = match S::LISTENS {
            true => self.merge.fill(&mut batch),
            false => self.merge.fill_by_tags(&mut batch),
        };
        if let Err(error) = filled {
            self.damage.add(error);
        }
        let mut rest = &batch[..];
        while !rest.is_empty() {
            let (taken, tag) = self.parser.take(rest, sink);
            rest = &rest[taken..];
            if let Some(tag) = tag {
                let due = self.parser.due(tag);
                self.bring_into_force(due, sink);
            }
        }
        self.batch = batch;
        !self.batch.is_empty() || self.damage.count > errors
    }

    /// Applies the dump's groups up to the one that a tag names, `due` further on.
    fn bring_into_force<S: Sink>(&mut self, due: u64, sink: &mut S) {
        let until = self.parser.next + due;
        while self.parser.next < until {
            match self.dump.group(&mut self.group) {
                Ok(true) => self.parser.apply(&self.group, sink),
                Ok(false) => return self.parser.next = until,
                Err(error) => {
                    self.damage.add(error);
                    self.parser.next = self.parser.next.max(self.dump.mark.next);
                }
            }
        }
    }

    /// The parsing state, to continue later.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let places = saved::Places { boards: self.merge.position(), dump: self.dump.mark };
        saved::save(&self.parser, &places)
    }

    /// Ends parsing; returns the misses and the errors found.
    #[must_use]
    pub fn finish(self) -> (Misses, Damage) {
        self.finish_into(&mut ())
    }

    /// As [`Capture::finish`]; a sink is notified of the blocks that are settled at the end.
    #[must_use]
    pub fn finish_into<S: Sink>(mut self, sink: &mut S) -> (Misses, Damage) {
        let mut late = 0;
        loop {
            match self.dump.group(&mut self.group) {
                Ok(true) => late += u64::from(!self.group.changes.is_empty()),
                Ok(false) => break,
                Err(error) => self.damage.add(error),
            }
        }
        let mut misses = self.parser.finish(sink);
        misses.late = late;
        misses.boards = self.merge.traffic();
        (misses, self.damage)
    }
}
