//! Reads truth directories, and rejects invalid ones.

use std::path::Path;
use std::time::Duration;

use tierscope_core::metrics::rates::RatedRange;
use tierscope_core::{Error, ErrorKind, PAGE_SIZE, Range, RangeSet, Result, SpaceId, Time};

use super::{Begin, CLOCK, End, FILE, FORMAT, Line, Piece, SegmentLine};
use crate::description::Workload;
use crate::file;
use crate::schedule::Segment;

/// A truth directory, parsed and checked.
#[derive(Clone, Debug)]
pub struct TruthDir {
    name: String,
    workload: Workload,
    begin: Begin,
    segments: Vec<SegmentLine>,
    hot: Vec<RangeSet>,
    pieces: Vec<Piece>,
    end: Option<End>,
}

/// The hot ranges in a window of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot<'a> {
    /// The ranges that were hot for the longest part of the window.
    pub ranges: &'a RangeSet,
    /// Index of the phase in which `ranges` were hot.
    pub phase: usize,
    /// The segment in which they were, for [`TruthDir::weights`].
    segment: usize,
    /// Whether the hot ranges changed within the window.
    pub changed: bool,
}

impl TruthDir {
    /// Reads the truth in `dir`. A truncated last line is dropped; everything else must be valid.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] with the line, if it is not a truth directory, or is of another version,
    /// empty or damaged.
    pub fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| {
            Error::new(ErrorKind::Data, format!("cannot read truth {}", path.display()))
                .cause(e)
                .remedy("give the directory that `toucher --truth DIR` wrote")
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses the text of a truth file; `name` is used in errors.
    ///
    /// # Errors
    /// As [`TruthDir::open`].
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let bad = |(line, cause): (usize, String)| {
            Error::new(ErrorKind::Data, format!("{name}:{line}"))
                .cause(cause)
                .remedy("this truth cannot be used; let the toucher write a new one")
        };
        let mut lines = lines(text).map_err(bad)?.into_iter();
        let Some((number, Line::Begin(begin))) = lines.next() else {
            return Err(bad((1, "the file does not begin as a truth does".into())));
        };
        let workload = check_begin(&begin).map_err(|cause| bad((number, cause)))?;
        let mut truth = Self {
            name: name.into(),
            workload,
            begin,
            segments: Vec::new(),
            hot: Vec::new(),
            pieces: Vec::new(),
            end: None,
        };
        for (number, line) in lines {
            truth.add(line).map_err(|cause| bad((number, cause)))?;
        }
        Ok(truth)
    }

    fn add(&mut self, line: Line) -> std::result::Result<(), String> {
        if self.end.is_some() {
            return Err("there is more after the end".into());
        }
        match line {
            Line::Begin(_) => Err("it begins a second time".into()),
            Line::Segment(segment) => self.add_segment(segment),
            Line::Piece(piece) => self.add_piece(piece),
            Line::End(end) => {
                self.end = Some(end);
                Ok(())
            }
        }
    }

    fn add_segment(&mut self, segment: SegmentLine) -> std::result::Result<(), String> {
        if self.segments.last().is_some_and(|last| last.begin_ns >= segment.begin_ns) {
            return Err("the segment begins before the last one".into());
        }
        if segment.phase >= self.workload.phases.len() {
            return Err(format!("the workload has no phase {}", segment.phase));
        }
        if segment.hot.iter().any(|[start, end]| start >= end) {
            return Err("a hot range ends before it starts".into());
        }
        let ranges = segment.hot.iter().map(|[start, end]| Range::new(SpaceId(0), *start, *end));
        self.hot.push(ranges.collect());
        self.segments.push(segment);
        Ok(())
    }

    fn add_piece(&mut self, piece: Piece) -> std::result::Result<(), String> {
        let threads = self.begin.threads as usize;
        if piece.touches.len() != threads || piece.sums.len() != threads {
            return Err(format!("the piece does not have {threads} threads"));
        }
        if self.segments.len().checked_sub(1) != Some(piece.segment) {
            return Err(format!("the piece is of segment {}, which is not on", piece.segment));
        }
        let from = self.pieces.last().map_or(self.segments[0].begin_ns, |last| last.end_ns);
        if piece.begin_ns != from || piece.end_ns < piece.begin_ns {
            return Err("the piece does not begin where the last one ended".into());
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// The first line: the program and its workload.
    #[must_use]
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// The workload that was run.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The pieces, in order, without gaps.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The last line; `None` if the program was killed, or still runs.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The period that the truth covers; `None` if nothing was touched yet.
    #[must_use]
    pub fn span(&self) -> Option<(Time, Time)> {
        let (first, last) = (self.pieces.first()?, self.pieces.last()?);
        Some((Time(first.begin_ns), Time(last.end_ns)))
    }

    /// Times at which the hot ranges changed, including the start: after each of them accuracy has
    /// to be reached again.
    #[must_use]
    pub fn changes(&self) -> Vec<Time> {
        let differs = |i: &usize| *i == 0 || self.hot[*i] != self.hot[i - 1];
        (0..self.segments.len()).filter(differs).map(|i| Time(self.segments[i].begin_ns)).collect()
    }

    /// Name of the phase at `time`; empty before the first phase.
    #[must_use]
    pub fn phase_at(&self, time: Time) -> &str {
        let begun = self.segments.partition_point(|segment| segment.begin_ns <= time.0);
        begun.checked_sub(1).map_or("", |last| &self.segments[last].name)
    }

    /// The hot ranges in the window, with all addresses in space 0; `None` if the truth does not
    /// cover it.
    #[must_use]
    pub fn hot(&self, start: Time, end: Time) -> Option<Hot<'_>> {
        let (first, last) = self.span()?;
        if start < first || end > last || start >= end {
            return None;
        }
        let on = |i: &usize| {
            let until = self.segments.get(i + 1).map_or(u64::MAX, |next| next.begin_ns);
            until.min(end.0).saturating_sub(self.segments[*i].begin_ns.max(start.0))
        };
        let seen: Vec<usize> = (0..self.segments.len()).filter(|i| on(i) > 0).collect();
        let longest = *seen.iter().max_by_key(|i| on(i))?;
        Some(Hot {
            ranges: &self.hot[longest],
            phase: self.segments[longest].phase,
            segment: longest,
            changed: seen.windows(2).any(|pair| self.hot[pair[0]] != self.hot[pair[1]]),
        })
    }

    /// Accesses a second in the pieces whose middle lies in the window; `None` if there is no such
    /// piece.
    #[must_use]
    pub fn rate(&self, start: Time, end: Time) -> Option<f64> {
        let within =
            self.pieces.iter().filter(|piece| start <= piece.middle() && piece.middle() < end);
        let (touches, nanos) = within.fold((0, 0), |(touches, nanos), piece| {
            (touches + piece.touches.iter().sum::<u64>(), nanos + (piece.end_ns - piece.begin_ns))
        });
        (nanos > 0).then(|| touches as f64 / (nanos as f64 / 1e9))
    }

    /// Checks that a recording from `from` to `to` covers this program. `spaces` are the names of
    /// the recorded spaces, `name[pid]` for processes; returns the index of the program's space.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if the process is another one, or the times do not overlap.
    pub fn check_belongs(&self, spaces: &[&str], from: Time, to: Time) -> Result<usize> {
        let foreign = |cause: String, remedy: &str| {
            let what = format!("recording and truth {} do not belong together", self.name);
            Err(Error::new(ErrorKind::Data, what).cause(cause).remedy(remedy))
        };
        let found = spaces.iter().position(|name| pid_of(name) == Some(self.begin.pid));
        // A machine without processes has one space, and no pid in its name.
        let only = (spaces.len() == 1 && pid_of(spaces[0]).is_none()).then_some(0);
        let Some(place) = found.or(only) else {
            let cause = format!(
                "the truth is of process {}, the recording saw {}",
                self.begin.pid,
                if spaces.is_empty() { "nothing".into() } else { spaces.join(", ") }
            );
            return foreign(cause, "give the truth that the recorded toucher wrote");
        };
        let Some((first, last)) = self.span() else {
            return foreign(
                "the truth ends before anything was touched".into(),
                "run the toucher longer",
            );
        };
        if to <= first || last <= from {
            let cause = format!("the recording covers {from} to {to}, the truth {first} to {last}");
            return foreign(
                cause,
                "record while the toucher runs, on the same boot of the machine",
            );
        }
        Ok(place)
    }

    /// Accesses to the ranges of a window, relative to each other: ranges of uniform access, and
    /// weight of each of their pages. Weights of overlapping ranges add up. They are those of the
    /// workload's description, so that no access is replayed.
    #[must_use]
    pub fn weights(&self, hot: &Hot<'_>) -> Vec<RatedRange> {
        let bases: Vec<u64> = self.begin.areas.iter().map(|area| area.start).collect();
        let densities = self.workload.densities(&self.segment(hot.segment));
        let weighted = densities.into_iter().filter(|density| density.weight > 0.0);
        weighted
            .map(|density| {
                let range = density.part.at(&bases, SpaceId(0));
                (range, density.weight * PAGE_SIZE as f64 / range.bytes() as f64)
            })
            .collect()
    }

    pub(super) fn segment_of(&self, piece: &Piece) -> Segment {
        self.segment(piece.segment)
    }

    fn segment(&self, index: usize) -> Segment {
        let line = &self.segments[index];
        let into = Duration::from_nanos(line.into_ns);
        Segment {
            pass: line.pass,
            phase: line.phase,
            into,
            begin: Duration::ZERO,
            end: Duration::MAX,
        }
    }

    /// Path of the file, for errors and titles.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Piece {
    /// The middle of the piece.
    #[must_use]
    pub fn middle(&self) -> Time {
        Time(self.begin_ns + (self.end_ns - self.begin_ns) / 2)
    }
}

/// Parses the lines, with their numbers; a truncated last line is dropped.
fn lines(text: &str) -> std::result::Result<Vec<(usize, Line)>, (usize, String)> {
    let whole = text.rfind('\n').map_or(0, |newline| newline + 1);
    let line = |(index, text): (usize, &str)| match serde_json::from_str(text) {
        Ok(line) => Ok((index + 1, line)),
        Err(e) => Err((index + 1, e.to_string())),
    };
    text[..whole].lines().enumerate().map(line).collect()
}

fn check_begin(begin: &Begin) -> std::result::Result<Workload, String> {
    if begin.format != FORMAT {
        return Err(format!("format {} is not known, only {FORMAT}", begin.format));
    }
    if begin.clock != CLOCK {
        return Err(format!("times are of {}, not of {CLOCK}", begin.clock));
    }
    if begin.threads == 0 || begin.threads > 4096 {
        return Err(format!("{} threads", begin.threads));
    }
    let workload = file::parse("workload", &begin.workload).map_err(|e| e.to_string())?;
    let fits = begin.areas.len() == workload.areas.len()
        && begin.areas.iter().zip(&workload.areas).all(|(line, area)| {
            line.name == area.name
                && line.end.checked_sub(line.start) == Some(area.bytes)
                && line.end < 1 << 57
        });
    if fits { Ok(workload) } else { Err("the areas are not those of the workload".into()) }
}

/// Parses the pid of a space's name: 4711 of `redis-server[4711]`.
fn pid_of(target: &str) -> Option<u32> {
    target.trim_end().strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::AreaLine;
    use super::*;
    use crate::generate::from_spec;
    use proptest::prelude::*;

    pub(in super::super) fn begin(workload: &Workload) -> Begin {
        Begin {
            format: FORMAT,
            version: "0".into(),
            pid: 7,
            boot: "b".into(),
            clock: CLOCK.into(),
            at_ns: 0,
            command: String::new(),
            workload: file::to_toml(workload),
            seed: 1,
            threads: 1,
            grain_ns: 10,
            backing: "anon".into(),
            areas: vec![AreaLine {
                name: workload.areas[0].name.clone(),
                start: 1 << 30,
                end: (1 << 30) + workload.areas[0].bytes,
            }],
        }
    }

    fn segment(begin_ns: u64, hot: [u64; 2]) -> Line {
        Line::Segment(SegmentLine {
            begin_ns,
            pass: 0,
            phase: 0,
            name: "p".into(),
            into_ns: 0,
            hot: vec![hot],
        })
    }

    fn piece(begin_ns: u64, segment: usize) -> Line {
        Line::Piece(Piece {
            begin_ns,
            end_ns: begin_ns + 10,
            segment,
            touches: vec![20],
            sums: vec![0],
            late_ns: 0,
        })
    }

    fn text(lines: &[Line]) -> String {
        lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
    }

    //  pieces    100      110      120      130      140
    //  hot       |--0..4096--------|--4096..8192------|
    fn toy() -> Vec<Line> {
        let workload = from_spec("contiguous:space=1MiB,hot=4KiB").unwrap();
        vec![
            Line::Begin(begin(&workload)),
            segment(100, [0, 4096]),
            piece(100, 0),
            piece(110, 0),
            segment(120, [4096, 8192]),
            piece(120, 1),
            piece(130, 1),
            Line::End(End { at_ns: 140, cause: "done".into() }),
        ]
    }

    fn hot_start(truth: &TruthDir, start: u64, end: u64) -> Option<(u64, bool)> {
        truth.hot(Time(start), Time(end)).map(|hot| (hot.ranges.as_slice()[0].start, hot.changed))
    }

    #[test]
    fn a_window_has_the_truth_of_its_longest_part() {
        let truth = TruthDir::parse("t", &text(&toy())).unwrap();
        assert_eq!(hot_start(&truth, 100, 120), Some((0, false)));
        assert_eq!(hot_start(&truth, 113, 133), Some((4096, true)));
        assert_eq!(hot_start(&truth, 99, 110), None);
        assert_eq!(hot_start(&truth, 130, 141), None);
        assert_eq!(truth.changes(), [Time(100), Time(120)]);
        assert_eq!(truth.rate(Time(100), Time(120)), Some(2e9));
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_no_other() {
        let whole = text(&toy());
        let torn = TruthDir::parse("t", &whole[..whole.len() - 5]).unwrap();
        assert_eq!((torn.end(), torn.pieces().len()), (None, 4));
        let error = TruthDir::parse("t", &whole.replacen("\"piece\"", "\"price\"", 1)).unwrap_err();
        assert!(error.to_string().starts_with("t:3: unknown variant `price`"), "{error}");
        assert!(
            TruthDir::parse("t", "")
                .unwrap_err()
                .to_string()
                .contains("does not begin as a truth does")
        );
    }

    #[test]
    fn inconsistent_lines_are_refused() {
        let error = |change: &dyn Fn(&mut Vec<Line>)| {
            let mut lines = toy();
            change(&mut lines);
            TruthDir::parse("t", &text(&lines)).unwrap_err().to_string()
        };
        assert!(error(&|l| drop(l.remove(2))).contains("t:3: the piece does not begin where"));
        assert!(error(&|l| drop(l.remove(4))).contains("t:5: the piece is of segment 1"));
        assert!(error(&|l| l.swap(6, 7)).contains("more after the end"));
        assert!(error(&|l| l[1] = segment(100, [5, 4])).contains("ends before it starts"));
        assert!(
            error(&|l| if let Line::Begin(b) = &mut l[0] {
                b.format = 9
            })
            .contains("format 9")
        );
        assert!(
            error(&|l| if let Line::Begin(b) = &mut l[0] {
                b.areas[0].end += 1
            })
            .contains("areas")
        );
    }

    #[test]
    fn a_recording_of_another_process_is_refused() {
        let truth = TruthDir::parse("t", &text(&toy())).unwrap();
        let check = |spaces: &[&str], from, to| {
            truth.check_belongs(spaces, Time(from), Time(to)).map_err(|e| e.to_string())
        };
        assert_eq!(check(&["sh[6]", "toucher[7]"], 0, 101), Ok(1));
        assert_eq!(check(&["machine"], 139, 200), Ok(0));
        let error = check(&["toucher[8]"], 0, 200).unwrap_err();
        assert!(error.contains("of process 7, the recording saw toucher[8]"), "{error}");
        assert!(check(&[], 0, 200).unwrap_err().contains("saw nothing"));
        assert!(check(&["toucher[7]"], 140, 200).unwrap_err().contains("the recording covers"));
    }

    proptest! {
        #[test]
        fn any_damage_is_read_or_refused(at in 0usize..1800, with in "[ -~\n]{0,5}", cut in 0usize..40) {
            let whole = text(&toy());
            let at = at.min(whole.len());
            let damaged = format!("{}{with}{}", &whole[..at], &whole[(at + cut).min(whole.len())..]);
            if let Ok(truth) = TruthDir::parse("t", &damaged) {
                let _ = (truth.span(), truth.changes(), truth.hot(Time(100), Time(120)));
            }
        }
    }
}
