//! A report on TLB misses: by object, function and page, with the effect of larger pages.

use std::collections::BTreeMap;

use crate::advice::{Advice, Estimate};
use crate::attribution::{Baseline, Counts, Objects, Table, UNIT, table};
use crate::ptat::{Misses, Page, PageMisses, Traffic};

/// Contents of a report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Misses by object, function and page.
    pub table: Table,
    /// For a trace of accesses: counts of the model.
    pub counts: Option<Counts>,
    /// For a capture: counts of the parser.
    pub misses: Option<Misses>,
    /// Watched structures that the bus showed, most accesses first.
    pub watched: Vec<Watched>,
    /// Effect of larger pages.
    pub advice: Vec<Advice>,
    /// Caveats for the reader.
    pub notes: Vec<String>,
}

/// A watched structure, and its accesses that crossed the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Name of the structure.
    pub object: String,
    /// Its process.
    pub pid: u32,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Pages that were accessed.
    pub pages: u64,
}

impl Report {
    /// A report on a trace of accesses, without advice; and the trace's objects.
    #[must_use]
    pub fn of_accesses(baseline: Baseline) -> (Self, Objects) {
        let (counts, allocations) = (baseline.counts(), baseline.allocations);
        let (table, objects) = baseline.table();
        let mut notes = Vec::new();
        if counts.refused > 0 {
            let refused = counts.refused;
            notes.push(format!("{refused} accesses are to addresses without a translation"));
        }
        if table.functions.is_empty() && table.misses > 0 {
            notes.push(
                "functions are unknown: the trace has no fetches; `tierscope tlb record` writes one where the function changes".into(),
            );
        }
        if !allocations {
            notes.push(
                "memory is grouped by mapping and symbol: the trace has no call sites of allocations"
                    .into(),
            );
        }
        let (counts, watched, advice) = (Some(counts), Vec::new(), Vec::new());
        (Self { table, counts, misses: None, watched, advice, notes }, objects)
    }

    /// A report on a capture, from the objects that its file of names holds, the counts of its
    /// parser, and an estimate that was fed with its misses, for the first `top` objects.
    #[must_use]
    pub fn of_capture(
        mut objects: Objects,
        misses: Misses,
        estimate: &Estimate,
        top: usize,
    ) -> Self {
        let table = capture_table(&mut objects, &misses);
        let advice = estimate.advice(&table, top);
        let (notes, watched) = (notes(&misses), watched(&objects, &misses));
        Self { table, counts: None, misses: Some(misses), watched, advice, notes }
    }
}

fn capture_table(objects: &mut Objects, misses: &Misses) -> Table {
    let place = |(page, counts): (&Page, &PageMisses)| {
        let place = (u64::from(page.pid), page.start(), page.bytes());
        ((place, objects.find(place.0, place.1)), counts.shares())
    };
    let missed = misses.pages.iter().map(place).collect();
    table(objects, &missed, BTreeMap::new())
}

/// Accesses to watched structures by object, most accesses first.
fn watched(objects: &Objects, misses: &Misses) -> Vec<Watched> {
    let mut found: BTreeMap<(u32, String), Watched> = BTreeMap::new();
    for (page, accesses) in &misses.watched {
        let at = objects.find(page.pid.into(), page.start());
        let object = at.map_or("[unknown]".into(), |at| objects.list[at].name.to_string());
        let none = Watched { object: object.clone(), pid: page.pid, reads: 0, writes: 0, pages: 0 };
        let of = found.entry((page.pid, object)).or_insert(none);
        of.reads += accesses.reads;
        of.writes += accesses.writes;
        of.pages += 1;
    }
    let mut found: Vec<Watched> = found.into_values().collect();
    found.sort_by_key(|of| std::cmp::Reverse(of.reads + of.writes));
    found
}

/// Caveats for the reader of a capture's report.
fn notes(misses: &Misses) -> Vec<String> {
    let mut notes = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{count} {what}"));
        }
    };
    let [_, missing, disordered] = misses.tags;
    let lost: u64 = misses.boards.iter().map(Traffic::lost).sum();
    let mixed: u64 = misses.pages.values().map(|page| page.mixed).sum();
    add(lost, "requests are missing from the streams: misses are no longer exact");
    add(missing + disordered, "tags are missing or out of order: mappings came into force late");
    add(misses.unseen, "reads that the kernel announced were not on the bus");
    add(misses.conflicts, "changes contradict what was mapped before");
    let changes: u64 = misses.permissions.values().flatten().sum();
    add(changes, "times a page was made writable or read-only");
    add(misses.outside, "pages have entries outside of the region, where misses are not seen");
    add(
        mixed / UNIT,
        "misses are of blocks that also point to tables: some are steps of walks to others",
    );
    let shared: u64 = misses.pages.values().map(|page| page.shared).sum();
    let share = 100.0 * shared as f64 / misses.shares().max(1) as f64;
    notes.push(format!(
        "blocks of {} entries are seen as one: misses of blocks are exact, and so are those of pages alone in theirs; \
         {share:.1} % are means over the pages of a block",
        misses.entries
    ));
    for (pid, machine) in &misses.within {
        notes.push(format!("process {pid} runs in machine {machine}"));
    }
    notes.extend(misses.machines.iter().map(|machine| machine_note(misses, *machine)));
    notes.push("what larger pages save is estimated from misses alone".into());
    notes.push("the bus shows no instructions: which function missed is not known".into());
    notes
}

/// Explains the misses of a machine, as opposed to those of its processes.
fn machine_note(misses: &Misses, machine: u32) -> String {
    let of = misses.pages.iter().filter(|(page, _)| page.pid == machine);
    let walks: u64 = of.map(|(_, counts)| counts.shares()).sum();
    format!(
        "{machine} is a machine: its {} misses are of guest-physical pages, which walks of its processes had to find",
        walks / UNIT
    )
}
