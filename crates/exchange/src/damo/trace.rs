//! The tracepoints `damon:damon_aggregated` and `damon:damos_before_apply` as text, printed by
//! `perf script`, `trace-cmd report` or ftrace.
//!
//! `kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=0 nr_regions=17
//! 140731667070976-140731668037632: 0 3`: time, target, number of the target's regions, one region,
//! its accesses, its age (missing before Linux 5.17).
//!
//! `damos_before_apply: ctx_idx=0 scheme_idx=0 target_idx=0 nr_regions=11
//! 121932607488-135128711168: 0 136`: likewise, of the regions that a scheme is about to be applied
//! to; `nr_regions` is the number of all. What such a file does not list is not known. Where a file
//! has both kinds of events, the first kind has all regions, and the second one is left out.

use std::collections::HashMap;

use tierscope_core::Result;
use tierscope_trace::perf_script::seconds;

use crate::place::{Place, excerpt, malformed};
use crate::spool::{Age, ForeignRegion, Origin, SnapshotHead, Spool, StreamId};

/// The event's name with and without its subsystem.
const EVENTS: [&str; 2] = ["damon:damon_aggregated:", "damon_aggregated:"];
/// Event emitted whenever the kernel tunes DAMON's intervals (Linux 6.17).
const TUNE: [&str; 2] = ["damon:damon_monitor_intervals_tune:", "damon_monitor_intervals_tune:"];
/// Event emitted only for regions to which a scheme is about to be applied.
const BEFORE_APPLY: [&str; 2] = ["damon:damos_before_apply:", "damos_before_apply:"];
/// Nanoseconds between two events of a scheme from which on they are of two windows: half of
/// DAMON's default aggregation interval.
const APART: u64 = 50_000_000;

/// Nanoseconds between the events of a window: the kernel emits them in a row.
const AT_ONCE: u64 = 1_000_000;

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Line {
    /// A region of an aggregation window.
    Region(Event),
    /// A new sampling interval, in ns.
    Tuned(f64),
    /// A region to which a scheme is about to be applied: indices of context, scheme and target.
    BeforeApply([i64; 2], Event),
    /// Any other line.
    Other,
}

/// Fields of one `damon_aggregated` event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event {
    /// Number of the kernel thread, of which each has targets of its own.
    kdamond: Option<i64>,
    time: u64,
    target: u64,
    regions: u64,
    start: u64,
    end: u64,
    accesses: i64,
    age: Option<i64>,
}

/// Parses a line. The error names the missing or malformed field of a DAMON event.
pub(crate) fn parse(line: &str) -> Result<Line, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let (mut before, mut kdamond) = (None, None);
    for word in words.by_ref() {
        if let Some(number) = word.strip_prefix("kdamond.") {
            // `kdamond.0-4452` by trace-cmd.
            kdamond = number.split('-').next().and_then(|number| number.parse().ok());
        }
        if EVENTS.contains(&word) {
            let time = before.and_then(seconds).ok_or("time")?;
            let event = event(time, &words.collect::<Vec<_>>())?;
            return Ok(Line::Region(Event { kdamond, ..event }));
        }
        if TUNE.contains(&word) {
            let micros = words.next().and_then(|w| w.strip_prefix("sample_us=")?.parse().ok());
            return micros.map(|us: u32| Line::Tuned(f64::from(us) * 1e3)).ok_or("sample_us");
        }
        if BEFORE_APPLY.contains(&word) {
            let time = before.and_then(seconds).ok_or("time")?;
            let (scheme, event) = before_apply(time, &words.collect::<Vec<_>>())?;
            return Ok(Line::BeforeApply(scheme, Event { kdamond, ..event }));
        }
        // `trace-cmd report --ts-diff` prints the time since the last event in between.
        if !word.starts_with("(+") {
            before = Some(word);
        }
    }
    Ok(Line::Other)
}

/// The value of a field `name=value`.
fn field<'a>(words: &[&'a str], at: usize, name: &'static str) -> Result<&'a str, &'static str> {
    words.get(at).and_then(|word| word.strip_prefix(name)?.strip_prefix('=')).ok_or(name)
}

fn before_apply(time: u64, words: &[&str]) -> Result<([i64; 2], Event), &'static str> {
    let index = |at: usize, name: &'static str| {
        field(words, at, name)?.parse::<u32>().map(i64::from).map_err(|_| name)
    };
    let scheme = [index(0, "ctx_idx")?, index(1, "scheme_idx")?];
    let target = index(2, "target_idx")?.cast_unsigned();
    Ok((scheme, rest(time, target, &words[2..])?))
}

fn event(time: u64, words: &[&str]) -> Result<Event, &'static str> {
    // A kernel address in early kernels, also printed with a sign.
    let target = field(words, 0, "target_id")?;
    let signed = || target.parse::<i64>().ok().map(i64::cast_unsigned);
    let target = target.parse().ok().or_else(signed).ok_or("target_id")?;
    rest(time, target, words)
}

/// The fields from the second one on, which both kinds of events have.
fn rest(time: u64, target: u64, words: &[&str]) -> Result<Event, &'static str> {
    let regions = field(words, 1, "nr_regions")?.parse().map_err(|_| "nr_regions")?;
    if words.get(2).is_some_and(|word| word.starts_with("start=")) {
        return raw(time, target, regions, words);
    }
    let range = words.get(2).and_then(|word| word.strip_suffix(':')?.split_once('-'));
    let (start, end) = range.ok_or("address range")?;
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
    Ok(Event {
        kdamond: None,
        time,
        target,
        regions,
        start: start.parse().map_err(|_| "start of the address range")?,
        end: end.parse().map_err(|_| "end of the address range")?,
        accesses: number(3).ok_or("number of accesses")?,
        age: match words.get(4) {
            Some(_) => Some(number(4).ok_or("age")?),
            None => None,
        },
    })
}

/// The fields as `trace-cmd report -R` prints them, each with its name.
fn raw(time: u64, target: u64, regions: u64, words: &[&str]) -> Result<Event, &'static str> {
    let number = |at: usize, name| field(words, at, name)?.parse::<u64>().map_err(|_| name);
    let signed = |at: usize, name| number(at, name)?.try_into().map_err(|_| name);
    let (start, end) = (number(2, "start")?, number(3, "end")?);
    let accesses = signed(4, "nr_accesses")?;
    let age = words.get(5).map(|_| signed(5, "age")).transpose()?;
    Ok(Event { kdamond: None, time, target, regions, start, end, accesses, age })
}

impl Event {
    fn region(&self, hits: u32) -> ForeignRegion {
        let windows = |age: i64| Age::Windows(u32::try_from(age.max(0)).unwrap_or(u32::MAX));
        let age = self.age.map_or(Age::Absent, windows);
        ForeignRegion { age, ..ForeignRegion::new(self.start, self.end, hits as f32, 0) }
    }
}

/// Assembles events into snapshots, per target.
#[derive(Default)]
pub(crate) struct Reader {
    /// By kdamond and target.
    targets: HashMap<(Option<i64>, u64), Pending>,
    sampling: Option<f64>,
    /// By kdamond, context and scheme, and target.
    applied: HashMap<([Option<i64>; 3], u64), Pending>,
}

/// A snapshot of which some regions are still missing.
struct Pending {
    stream: StreamId,
    regions: Vec<ForeignRegion>,
    expected: u64,
    /// Times of its first and of its last region.
    time: u64,
    latest: u64,
    line: u64,
    last_end: Option<u64>,
}

impl Reader {
    /// Parses a line; returns whether it was a DAMON event.
    pub(crate) fn line(
        &mut self,
        file: &str,
        number: u64,
        text: &str,
        spool: &mut Spool,
    ) -> Result<bool> {
        let missing = |item: &str| {
            let cause = format!("no {item} in {}", excerpt(text.as_bytes()));
            malformed(file, Place::Line(number), cause)
        };
        match parse(text).map_err(missing)? {
            Line::Region(event) => self.event(file, number, &event, spool)?,
            Line::Tuned(sampling) => self.sampling = Some(sampling),
            Line::BeforeApply(scheme, event) => self.apply(file, number, scheme, &event, spool)?,
            Line::Other => return Ok(false),
        }
        Ok(true)
    }

    fn event(&mut self, file: &str, line: u64, event: &Event, spool: &mut Spool) -> Result<()> {
        let pending = self.targets.entry((event.kdamond, event.target)).or_insert_with(|| {
            let context = [event.kdamond, None, None];
            let origin = Origin { context, ..Origin::target(event.target) };
            Pending::new(spool.stream(&origin), event, line)
        });
        if pending.last_end.is_some_and(|last| event.time < last) {
            let cause = "time goes backwards: the lines are not in order of time";
            return Err(malformed(file, Place::Line(line), cause));
        }
        // Events are lost when the ring buffer overflows: a region that is not above the last one
        // starts a new window. If it overlaps that at the same moment, it is a flaw of this window.
        let at_once = event.time.saturating_sub(pending.latest) <= AT_ONCE;
        let goes_on = event.regions == pending.expected
            && pending.regions.last().is_none_or(|last| match at_once {
                true => last.start < event.start,
                false => last.end <= event.start,
            });
        pending.latest = event.time;
        if !pending.regions.is_empty() && !goes_on {
            pending.give_up(spool);
        }
        if pending.regions.is_empty() {
            (pending.expected, pending.time, pending.line) = (event.regions, event.time, line);
        }
        let hits = u32::try_from(event.accesses).ok().filter(|hits| *hits <= 1 << 24);
        match hits {
            Some(hits) => {
                pending.regions.push(event.region(hits));
            }
            // damo ends a recording of one window with a dummy region of -1 accesses, for its time.
            None if event.accesses == -1 && event.end == 0 => return Ok(()),
            None => {
                let cause = format!("{} accesses", event.accesses);
                return Err(malformed(file, Place::Line(line), cause));
            }
        }
        if pending.regions.len() as u64 >= pending.expected {
            pending.push(file, self.sampling, spool)?;
        }
        Ok(())
    }

    /// Adds a region that a scheme is about to be applied to.
    fn apply(
        &mut self,
        file: &str,
        line: u64,
        scheme: [i64; 2],
        event: &Event,
        spool: &mut Spool,
    ) -> Result<()> {
        let context = [event.kdamond, Some(scheme[0]), Some(scheme[1])];
        let pending = self.applied.entry((context, event.target)).or_insert_with(|| {
            let stream = spool.stream(&Origin { context, ..Origin::target(event.target) });
            Pending::new(stream, event, line)
        });
        if event.time < pending.latest {
            let cause = "time goes backwards: the lines are not in order of time";
            return Err(malformed(file, Place::Line(line), cause));
        }
        let is_next = event.time - pending.latest > APART
            || pending.regions.last().is_some_and(|last| event.start <= last.start);
        if is_next && !pending.regions.is_empty() {
            pending.push(file, self.sampling, spool)?;
        }
        if pending.regions.is_empty() {
            (pending.time, pending.line) = (event.time, line);
        }
        pending.latest = event.time;
        let hits = u32::try_from(event.accesses).ok().filter(|hits| *hits <= 1 << 24);
        let Some(hits) = hits else {
            let cause = format!("{} accesses", event.accesses);
            return Err(malformed(file, Place::Line(line), cause));
        };
        pending.regions.push(event.region(hits));
        Ok(())
    }

    /// Drops the snapshots that are incomplete at the end of the file, and counts them; and those
    /// of schemes, if the file has snapshots with all regions.
    pub(crate) fn finish(&mut self, file: &str, spool: &mut Spool) -> Result<()> {
        let open = self.targets.values_mut().filter(|pending| !pending.regions.is_empty());
        open.for_each(|pending| pending.give_up(spool));
        for pending in self.applied.values_mut() {
            if self.targets.is_empty() {
                pending.push(file, self.sampling, spool)?;
            } else {
                spool.discard(pending.stream, "damos_before_apply");
            }
        }
        Ok(())
    }
}

impl Pending {
    fn new(stream: StreamId, event: &Event, line: u64) -> Self {
        let (regions, last_end) = (Vec::new(), None);
        let (expected, time) = (event.regions, event.time);
        Self { stream, regions, expected, time, latest: time, line, last_end }
    }

    fn give_up(&mut self, spool: &mut Spool) {
        self.regions.clear();
        self.last_end = Some(self.time);
        spool.incomplete += 1;
    }

    fn push(&mut self, file: &str, sampling: Option<f64>, spool: &mut Spool) -> Result<()> {
        let snapshot = SnapshotHead { start: self.last_end, end: self.time, sampling, ours: None };
        spool.push(self.stream, snapshot, &mut self.regions, (file, Place::Line(self.line)))?;
        self.regions.clear();
        self.last_end = Some(self.time);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::in_memory;

    const LINE: &str = "  kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: \
                        target_id=18446623435582458880 nr_regions=17 140731667070976-140731668037632: 0 3";

    #[test]
    fn lines_of_every_tool_are_understood() {
        let expected = Event {
            kdamond: Some(0),
            time: 82_877_315_633_000,
            target: 18_446_623_435_582_458_880,
            regions: 17,
            start: 140_731_667_070_976,
            end: 140_731_668_037_632,
            accesses: 0,
            age: Some(3),
        };
        assert_eq!(parse(LINE), Ok(Line::Region(expected)));
        let trace_cmd =
            LINE.replace("4452 [000]", "4452 [000] .....").replace("damon:damon", "damon");
        assert_eq!(parse(&trace_cmd), Ok(Line::Region(expected)));
        let deltas = LINE.replace("633: ", "633: (+402) ");
        assert_eq!(parse(&deltas), Ok(Line::Region(expected)));
        let raw = LINE.replace("140731667070976-", "start=140731667070976 end=");
        let raw = raw.replace(": 0 3", " nr_accesses=0 age=3");
        assert_eq!(parse(&raw), Ok(Line::Region(expected)));
        let old = LINE.trim_end_matches(" 3");
        assert_eq!(parse(old), Ok(Line::Region(Event { age: None, ..expected })));
        let tuned = "kdamond.0 1 [0] 5.5: damon:damon_monitor_intervals_tune: sample_us=80000";
        assert_eq!(parse(tuned), Ok(Line::Tuned(80e6)));
        assert_eq!(parse("# perf script"), Ok(Line::Other));
    }

    #[test]
    fn errors_name_the_damaged_line() {
        assert_eq!(parse(&LINE.replace("82877.315633", "x")), Err("time"));
        assert_eq!(parse(LINE.split(" nr_").next().unwrap()), Err("nr_regions"));
        assert_eq!(parse(LINE.trim_end_matches(" 0 3")), Err("number of accesses"));
        assert_eq!(parse(&LINE.replace("140731668037632", "é")), Err("end of the address range"));
    }

    fn lines(text: &[(u64, u64, u64, u64)]) -> Result<Spool> {
        let (mut spool, mut reader) = (in_memory(), Reader::default());
        for (number, (time, target, regions, start)) in text.iter().enumerate() {
            let line = format!(
                "k 1 [0] {time}.5: damon_aggregated: target_id={target} nr_regions={regions} {start}-{}: 1 1",
                start + 10
            );
            reader.line("x", number as u64 + 1, &line, &mut spool)?;
        }
        reader.finish("x", &mut spool)?;
        Ok(spool)
    }

    // Two kernel threads have a target 0 each.
    #[test]
    fn targets_of_two_kdamonds_are_two() {
        let (mut spool, mut reader) = (in_memory(), Reader::default());
        for (number, kdamond) in [(1, 0), (2, 1)] {
            let line = LINE.replace("nr_regions=17", "nr_regions=1");
            let line = line.replace("kdamond.0  4452", &format!("kdamond.{kdamond}-4452"));
            reader.line("x", number, &line, &mut spool).unwrap();
        }
        let contexts: Vec<_> =
            spool.streams.iter().map(|s| s.origin.as_ref().unwrap().context[0]).collect();
        assert_eq!(contexts, [Some(0), Some(1)]);
    }

    // The second region of the second window is lost, and the last window is truncated: both
    // windows are dropped.
    #[test]
    fn windows_of_which_a_part_is_lost_are_left_out() {
        let spool = lines(&[
            (1, 0, 2, 0),
            (1, 0, 2, 10),
            (2, 0, 2, 0),
            (3, 0, 2, 0),
            (3, 0, 2, 10),
            (4, 0, 2, 0),
        ]);
        let spool = spool.unwrap();
        let snapshots: Vec<_> =
            spool.streams[0].snapshots.iter().map(|(s, ..)| (s.start, s.end)).collect();
        let time = |s: u64| s * 1_000_000_000 + 500_000_000;
        assert_eq!(snapshots, [(None, time(1)), (Some(time(2)), time(3))]);
        assert_eq!(spool.incomplete, 2);
    }

    #[test]
    fn time_does_not_go_backwards() {
        let error = lines(&[(5, 0, 1, 0), (4, 0, 1, 0)]).err().unwrap().to_string();
        assert!(error.contains("line 2: time goes backwards"), "{error}");
    }

    /// A line of a region from `start` on to which scheme 3 of target 2 is about to be applied.
    fn applied(time: &str, start: u64) -> String {
        let end = start + 10;
        format!(
            "k 1 [0] {time}: damon:damos_before_apply: ctx_idx=0 scheme_idx=3 target_idx=2 nr_regions=9 \
             {start}-{end}: 1 1"
        )
    }

    // Two of nine regions are applied at 1.5 s, and one at 1.6 s and at 1.7 s: three snapshots, of
    // what is listed.
    #[test]
    fn events_of_schemes_have_the_listed_regions() {
        let (mut spool, mut reader) = (in_memory(), Reader::default());
        let lines = [("1.500000", 0), ("1.500002", 40), ("1.600000", 80), ("1.700000", 10)];
        for (number, (time, start)) in (1..).zip(lines) {
            assert!(reader.line("x", number, &applied(time, start), &mut spool).unwrap());
        }
        reader.finish("x", &mut spool).unwrap();
        let snapshots = spool.streams[0].snapshots.iter();
        let found: Vec<_> = snapshots.map(|(s, _, n)| (s.end / 1_000_000, *n)).collect();
        assert_eq!(found, [(1500, 2), (1600, 1), (1700, 1)]);
        assert_eq!(spool.streams[0].origin.as_ref().unwrap().context, [None, Some(0), Some(3)]);
    }

    #[test]
    fn events_of_schemes_are_left_out_where_all_regions_are_known() {
        let (mut spool, mut reader) = (in_memory(), Reader::default());
        reader.line("x", 1, &applied("1.500000", 0), &mut spool).unwrap();
        let whole = LINE.replace("nr_regions=17", "nr_regions=1");
        reader.line("x", 2, &whole, &mut spool).unwrap();
        reader.finish("x", &mut spool).unwrap();
        let numbers: Vec<_> = spool.streams.iter().map(|s| s.snapshots.len()).collect();
        assert_eq!((numbers, spool.dropped["damos_before_apply"]), (vec![0, 1], 1));
    }
}
