//! Ordinary programs under loads with hot and cold parts (scenario `programs`): a recording of them
//! as shipped, that is with no flusher but the instrument's own, compared with the accesses to all
//! pages as counted by the host.
//!
//! An access is a sampling interval of 5 ms in which a page was touched (METRICS.md: only what sets
//! a clear ACCESSED bit counts). Pages are frames of the guest's RAM: memory that processes share
//! is one. The truth's hot memory follows from the true rates by the instrument's own rule
//! ([`hot_rate`]), page by page. Oracle shares are judged at pages of 4 KiB: the hot memory of most
//! of these programs is smaller than two blocks of 2 MiB.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::metrics::rates::{GRANULE, TrueRates, oracle_share};
use tierscope_core::{Addr, Mappings, PAGE_SIZE, Range, Snapshot, Time};
use tierscope_instruments::rates::hot_rate;
use tierscope_record::Recording;

use super::claims::{Claims, factor, kib_after, listed, space_of};
use super::measure_missing;
use crate::bench::boot::{boot, command_of};
use crate::bench::rows::{Bar, Row, Table, row};
use crate::bench::section::Inputs;
use crate::error::{Context, Error, Kind, Result};
use crate::instrumented::referee::{PAGES, Pages};
use crate::scenario::Scenario;

/// Values of the scenario's parameter `program`, as shipped, that is with huge pages; and without.
const PROGRAMS: [&str; 17] = [
    "java",
    "python",
    "redis",
    "memcached",
    "postgres16",
    "postgres100",
    "postgres-huge",
    "rocksdb",
    "nginx",
    "java, small pages",
    "python, small pages",
    "redis, small pages",
    "memcached, small pages",
    "postgres16, small pages",
    "postgres100, small pages",
    "rocksdb, small pages",
    "nginx, small pages",
];
/// End of the names of cases without huge pages.
const SMALL: &str = ", small pages";

/// Maximum factor between the bytes reported hot and the truth's.
const HOT: Bar = Bar::Most(1.5);
/// Minimum oracle share at the truth's hot bytes.
const ORACLE: Bar = Bar::Least(0.9);
/// Maximum share of the resident bytes that may be unknown.
const UNKNOWN: Bar = Bar::Most(0.1);
/// Accesses per second and page of memory that is resident and not accessed: blocks of an oracle
/// share are as large as their resident memory, not as their accessed pages.
const IDLE: f64 = 1e-9;
/// Accesses per second and page at which a sampling interval of 5 ms has an access always.
const ALWAYS: f64 = 200.0;

fn title(program: &str) -> String {
    format!("program {program}")
}

/// The programs whose rows' names contain `only`, or are it.
pub(super) fn chosen(only: &str) -> Vec<&'static str> {
    let exact = PROGRAMS.iter().any(|program| title(program) == only);
    let is_chosen = |name: String| if exact { name == only } else { name.contains(only) };
    PROGRAMS.into_iter().filter(|program| is_chosen(title(program))).collect()
}

/// Measures the rows that are not yet in the table; returns the names of programs that failed.
///
/// # Errors
/// The table cannot be written.
pub(super) fn bench(
    programs: &[&str],
    inputs: &Inputs<'_>,
    table: &mut Table,
    path: &Path,
) -> Result<Vec<String>> {
    let name = |program: &&str| title(program);
    measure_missing(programs, name, table, path, |program| measure(program, inputs))
}

fn measure(program: &str, inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let sets = match program.strip_suffix(SMALL) {
        None => vec![format!("program={program}")],
        Some(program) => vec![format!("program={program}"), "thp=never".to_owned()],
    };
    let label = format!("-{}", program.replace(", ", "-").replace(' ', "-"));
    let assign = |it: &mut Scenario| sets.iter().try_for_each(|set| it.assign(set));
    let out = boot(inputs, "programs", &label, assign)?;
    rows_of(&title(program), &out, &command_of("programs", &sets.join("' --set '")))
}

/// The rows of a run of the scenario whose files are in `out`.
pub(super) fn rows_of(name: &str, out: &Path, command: &str) -> Result<Vec<Row>> {
    let text = |file: &str| {
        let path = out.join(file);
        fs::read_to_string(&path).at(path.display())
    };
    let pages: Pages = serde_json::from_str(&text(PAGES)?).map_err(broken)?;
    let counted = counted(&text("counted.txt")?)?;
    let machine = kib_after(&text("memory.txt")?, "MemTotal:").ok_or_else(|| broken("MemTotal"))?;
    let recording = Recording::open(out.join("recording")).map_err(broken)?;
    let truth = Truth::of(&pages, (counted.end.0 - counted.start.0) as f64 / 1e9);
    let claims = Claims::of(&recording, &counted)?;
    Ok(Judged { truth: &truth, claims: &claims, pages: &pages, machine }.rows(name, command))
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "programs", cause)
}

/// When touches were counted, from a line of two times in seconds since boot.
fn counted(text: &str) -> Result<std::ops::Range<Time>> {
    let times: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match times[..] {
        [from, to] if from < to => Ok(Time((from * 1e9) as u64)..Time((to * 1e9) as u64)),
        _ => Err(broken(format!("counted.txt: not two times: {text}"))),
    }
}

/// True rates of all resident pages.
#[derive(Debug, PartialEq)]
struct Truth {
    resident: u64,
    hot: u64,
    /// Bytes of pages that were touched in at least 5 of 40 sampling intervals.
    frequent: u64,
    seconds: f64,
}

impl Truth {
    fn of(pages: &Pages, seconds: f64) -> Self {
        let mut frames = BTreeMap::<u64, u64>::new();
        let mut gone = Vec::new();
        for (_, frame, count) in pages.spaces.values().flatten() {
            match frame {
                Some(frame) => *frames.entry(*frame).or_default() += count,
                None => gone.push(*count),
            }
        }
        let rates: Vec<f64> =
            frames.into_values().chain(gone).map(|count| count as f64 / seconds).collect();
        let resident = pages.resident_bytes;
        let (sum, square) =
            rates.iter().fold((0.0, 0.0), |(sum, square), r| (sum + r, square + r * r));
        let mean = sum / (resident / PAGE_SIZE).max(1) as f64;
        let threshold = hot_rate(mean, if sum > 0.0 { square / sum } else { 0.0 });
        let bytes =
            |least: f64| rates.iter().filter(|rate| **rate >= least).count() as u64 * PAGE_SIZE;
        Self { resident, hot: bytes(threshold), frequent: bytes(HOT_FREQUENCY * ALWAYS), seconds }
    }

    /// Accesses in the addresses of a recording; memory of `snapshot` without accesses has almost
    /// none.
    fn rates(&self, pages: &Pages, layout: &Mappings, snapshot: &Snapshot) -> TrueRates {
        let touched = pages.spaces.iter().flat_map(|(pid, pages)| {
            let space = space_of(layout, *pid);
            pages.iter().filter_map(move |(at, _, count)| {
                let start = listed(layout, Addr { space: space?, at: *at });
                let range = Range::new(start.space, start.at, start.at + PAGE_SIZE);
                Some((range, *count as f64 / self.seconds))
            })
        });
        let idle = snapshot.regions.iter().map(|region| (region.range, IDLE));
        TrueRates::of(touched.chain(idle))
    }
}

struct Judged<'a> {
    truth: &'a Truth,
    claims: &'a Claims,
    pages: &'a Pages,
    machine: u64,
}

impl Judged<'_> {
    fn rows(&self, name: &str, command: &str) -> Vec<Row> {
        let Self { truth, claims, .. } = self;
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let add = |what: &str, value: f64, unit: &str, bar: Bar| {
            row(format!("{name}: {what}"), value, unit, bar, command)
        };
        let share = |granule| self.oracle(granule).unwrap_or(0.0);
        let (hot, resident) = (claims.median(|it| it.hot), claims.median(|it| it.resident));
        let unknown = claims.median(|it| it.unknown);
        let mut rows = vec![
            add("hot, reported", mib(hot), "MiB", Bar::None),
            add("hot, true", mib(truth.hot as f64), "MiB", Bar::None),
            add("hot bytes, off by", factor(hot, truth.hot as f64), "times", HOT),
            add(
                "oracle share at the truth's hot bytes, pages of 4 KiB",
                share(PAGE_SIZE),
                "share",
                ORACLE,
            ),
            add("likewise, blocks of 2 MiB", share(GRANULE), "share", Bar::None),
            add("unknown of the resident bytes", unknown / resident.max(1.0), "share", UNKNOWN),
            add("resident, reported", mib(resident), "MiB", Bar::None),
            add("resident, true", mib(truth.resident as f64), "MiB", Bar::None),
            add(
                "accessed in 5 of 40 sampling intervals, true",
                mib(truth.frequent as f64),
                "MiB",
                Bar::None,
            ),
        ];
        rows.extend(claims.sanity.rows(name, self.machine, command));
        rows
    }

    fn oracle(&self, granule: u64) -> Option<f64> {
        let Claims { last, layout, .. } = self.claims;
        let truth = self.truth.rates(self.pages, layout, last);
        let mapped = last.regions.iter().map(|region| region.range.bytes()).sum();
        oracle_share(last, &truth, mapped, self.truth.hot, granule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{SharedView, Space, SpaceId};

    const PAGE: u64 = PAGE_SIZE;

    /// Process 7 touches frame 1 at page 0 a hundred times, process 8 the same frame at page 5, and
    /// each of frames 2 to 9 once; ten pages are resident, all within ten seconds.
    fn pages() -> Pages {
        let cold = (2..10).map(|frame| ((frame + 8) * PAGE, Some(frame), 1));
        let eight = [(5 * PAGE, Some(1), 100)].into_iter().chain(cold).collect();
        let spaces = BTreeMap::from([(7, vec![(0, Some(1), 100)]), (8, eight)]);
        Pages { resident_bytes: 10 * PAGE, spaces }
    }

    // Mean rate 20.8 / 10; the page that an average access falls on has about 19: the threshold is
    // 4.8, and one page is above it, however many processes map it. None reaches 25 a second.
    #[test]
    fn shared_pages_are_hot_once() {
        let truth = Truth::of(&pages(), 10.0);
        assert_eq!((truth.hot, truth.frequent, truth.resident), (PAGE, 0, 10 * PAGE));
        assert_eq!(Truth::of(&pages(), 8.0).frequent, PAGE);
    }

    #[test]
    fn accesses_to_a_view_are_those_of_its_memory() {
        let space = |id, name: &str| Space { id: SpaceId(id), name: name.into() };
        let view = |id, page: u64| SharedView {
            range: Range::new(SpaceId(id), page * PAGE, (page + 1) * PAGE),
            memory: Addr { space: SpaceId(9), at: 64 * PAGE },
            name: "".into(),
        };
        let layout = Mappings {
            spaces: vec![space(0, "a[7]"), space(1, "b[8]"), space(9, "shared memory")],
            views: vec![view(0, 0), view(1, 5)],
            ..Mappings::default()
        };
        let truth = Truth::of(&pages(), 10.0);
        let rates = truth.rates(&pages(), &layout, &Snapshot::default());
        let page = |space, page: u64| Range::new(SpaceId(space), page * PAGE, (page + 1) * PAGE);
        assert_eq!(rates.accesses(&page(9, 64)), 20.0);
        assert_eq!([rates.accesses(&page(0, 0)), rates.accesses(&page(1, 10))], [0.0, 0.1]);
    }

    #[test]
    fn files_of_the_scenario_are_read() {
        assert_eq!(counted("1.5 3.25\n").unwrap(), Time(1_500_000_000)..Time(3_250_000_000));
        assert!(counted("3 1").is_err());
    }

    #[test]
    fn a_whole_name_chooses_one_program() {
        assert_eq!(chosen("program"), PROGRAMS);
        assert_eq!(chosen("program postgres16"), ["postgres16"]);
        assert_eq!(chosen("nosuch"), [""; 0]);
    }
}
