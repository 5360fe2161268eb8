//! `tierscope tlb report`: TLB misses by object and function, and the effect of larger pages.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_exchange::Partial;
use tierscope_hw::{Machine, PageSize};
use tierscope_report::table::{Align, Table};
use tierscope_tlb::advice::{Advice, Estimate, Trial};
use tierscope_tlb::attribution::{self, Baseline, Counts, Object, Objects, Row, Spread, UNIT};
use tierscope_tlb::capture::NAMES;
use tierscope_tlb::ptat::{Block, Misses, Sink, Traffic};
use tierscope_tlb::report::{Report, Watched};

use super::export::Export;
use super::source::{TraceArgs, machine, page_size, size_name};
use crate::print;
use crate::print::note;
use crate::units::about_size;

/// Flags of `tierscope tlb report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The trace or capture to read.
    #[command(flatten)]
    pub trace: TraceArgs,

    /// The machine whose TLBs a trace of accesses goes through: a ready-made one, or a TOML file
    #[arg(long, value_name = "MACHINE", default_value = "xeon-e5-2620v2")]
    pub machine: String,

    /// Page size of the accesses: 4K, 2M or 1G
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = page_size)]
    pub pages: PageSize,

    /// Number of objects and functions shown, and of objects that are tried on larger pages, those
    /// with most misses first; for a trace of accesses each object takes two more passes
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,

    /// Write the misses of every page of a bus monitor's capture into FILE, as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write misses, and their sums by page and object, as partitioned Parquet into DIR, which
    /// reports of other machines may share; for a trace of accesses, sums by page and object only
    #[arg(long, value_name = "DIR", requires = "host")]
    pub parquet: Option<PathBuf>,

    /// Name of the machine in the partitions
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

pub(super) fn run(args: &ReportArgs) -> Result<()> {
    let machine = machine(&args.machine)?;
    if args.trace.is_capture() {
        return of_capture(args, &machine);
    }
    let mut baseline = Baseline::new(&machine, args.pages)?;
    let read = args.trace.accesses(&mut baseline)?;
    let walks = baseline.counts().walks;
    let (mut report, objects) = Report::of_accesses(baseline);
    if let Some(export) = export(args)? {
        export.finish(None, &report.table)?;
    }
    let again = !read.stopped && args.pages == PageSize::K4 && args.top > 0;
    match args.trace.is_piped() {
        true => report.notes.push("what larger pages would save takes a file to read again".into()),
        false if again => advise(args, &machine, walks, &objects, &mut report)?,
        false => {}
    }
    print(args, &report)?;
    read.verdict("this is of what could be read")
}

/// Reads the trace again, with the most missed objects on larger pages.
fn advise(
    args: &ReportArgs,
    machine: &Machine,
    walks: u64,
    objects: &Objects,
    report: &mut Report,
) -> Result<()> {
    let mut trial = Trial::new(machine, objects, &report.table, args.top)?;
    if args.trace.accesses(&mut trial)?.stopped {
        let note = "savings by larger pages are not estimated: reading the trace again was stopped";
        report.notes.push(note.into());
        return Ok(());
    }
    report.advice = trial.advice(walks);
    Ok(())
}

/// Consumers of a capture's misses.
struct Sinks {
    estimate: Estimate,
    export: Option<Export>,
}

impl Sink for Sinks {
    fn settled(&mut self, group: u64, block: &Block, reads: u64) {
        if let Some(export) = &mut self.export {
            export.settled(group, block, reads);
        }
    }

    fn miss(&mut self, ticks: u64, block: &Block) {
        if let Some(export) = &mut self.export {
            export.miss(ticks, block);
        }
        self.estimate.miss(ticks, block);
    }
}

fn of_capture(args: &ReportArgs, machine: &Machine) -> Result<()> {
    let objects = Objects::of_names(&args.trace.file.join(NAMES))?;
    let estimate = Estimate::new(machine, &objects)?;
    let mut sinks = Sinks { estimate, export: export(args)? };
    let (misses, damage) = args.trace.parsed(&mut sinks)?;
    if let Some(path) = &args.csv {
        write_csv(path, &misses)?;
    }
    let report = Report::of_capture(objects, misses, &sinks.estimate, args.top);
    if let Some(export) = sinks.export {
        export.finish(report.misses.as_ref(), &report.table)?;
    }
    print(args, &report)?;
    match damage.first {
        None => Ok(()),
        Some(error) => {
            note!(
                "damaged in {} places, the first is reported below; the rest was used",
                damage.count
            );
            Err(error)
        }
    }
}

/// Creates the Parquet tables if the user requested them.
fn export(args: &ReportArgs) -> Result<Option<Export>> {
    let wanted = args.parquet.as_deref().zip(args.host.as_deref());
    wanted
        .map(|(directory, host)| Export::create(directory, host, args.trace.is_capture()))
        .transpose()
}

/// How often pages were made writable, and read-only.
fn permissions(misses: &Misses) -> [u64; 2] {
    let add = |sum: [u64; 2], [given, taken]: &[u64; 2]| [sum[0] + given, sum[1] + taken];
    misses.permissions.values().fold([0; 2], add)
}

fn write_csv(path: &Path, misses: &Misses) -> Result<()> {
    let partial = Partial::create(path)?;
    let mut text =
        String::from("pid,address,bytes,exact,mean,mixed,made_writable,made_read_only\n");
    let part = |shares: u64| shares as f64 / UNIT as f64;
    for (page, counts) in &misses.pages {
        let (start, bytes) = (page.start(), page.bytes());
        let (mean, mixed) = (part(counts.shared), part(counts.mixed));
        let [given, taken] = misses.permissions.get(page).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{},{start:#x},{bytes},{},{mean},{mixed},{given},{taken}",
            page.pid, counts.exact
        );
    }
    let written = std::io::Write::write_all(&mut partial.file(), text.as_bytes());
    written.map_err(|e| Error::new(ErrorKind::Io, "cannot write the pages").cause(e))?;
    partial.keep()
}

fn print(args: &ReportArgs, report: &Report) -> Result<()> {
    let spread = Spread::new(report.table.pages.clone());
    let text = match args.trace.json {
        true => format!("{:#}\n", as_json(args, report, &spread)),
        false => as_text(args, report, &spread),
    };
    print::print(&text)
}

fn as_text(args: &ReportArgs, report: &Report, spread: &Spread) -> String {
    let table = &report.table;
    let misses = table.misses / UNIT;
    let mut facts = Table::without_heads([Align::Left, Align::Left]);
    if let Some(counts) = &report.counts {
        add_counts(args, counts, misses, &mut facts);
    }
    if let Some(misses) = &report.misses {
        add_capture(misses, &mut facts);
    }
    add_spread(spread, &mut facts);
    let mut out = facts.to_string();
    let top = args.top.max(1);
    let tables = [
        objects(table, top),
        functions(table, top),
        watched(&report.watched),
        advice(&report.advice, misses),
    ];
    for table in tables.into_iter().flatten() {
        let _ = write!(out, "\n{table}");
    }
    if !report.notes.is_empty() {
        out.push('\n');
    }
    report.notes.iter().for_each(|note| _ = writeln!(out, "{note}"));
    out
}

/// Counts of the model.
fn add_counts(args: &ReportArgs, counts: &Counts, misses: u64, facts: &mut Table) {
    let each = 1000.0 * counts.walks as f64 / counts.accesses.max(1) as f64;
    let reads = counts.reads;
    facts.row(["machine", &format!("{}, pages of {}", args.machine, size_name(args.pages))]);
    facts.row(["accesses", &format!("{} to data", counts.accesses)]);
    let misses = format!("{misses}, {each:.3} of 1000 accesses; they read {reads} entries");
    facts.row(["misses", &misses]);
    facts.row(["second level", &format!("{} translations", counts.second)]);
}

/// Counts of a capture's parser.
fn add_capture(misses: &Misses, facts: &mut Table) {
    let [tags, ..] = misses.tags;
    let sum = |count: fn(&Traffic) -> u64| misses.boards.iter().map(count).sum::<u64>();
    let (reads, writes) = (sum(|board| board.reads), sum(|board| board.writes));
    let boards = format!("{}: {reads} reads and {writes} writes", misses.boards.len());
    facts.row(["boards", &boards]);
    let exact = if misses.is_exact() { "exact by block" } else { "not exact" };
    facts.row(["misses", &format!("{}, {exact}", misses.total())]);
    let others = format!(
        "{} reads that the kernel announced, {} of blocks that map nothing, {} of upper entries, {} writes, {tags} tags",
        misses.announced, misses.idle, misses.upper, misses.writes
    );
    facts.row(["others", &others]);
}

fn add_spread(spread: &Spread, facts: &mut Table) {
    if spread.is_empty() {
        return;
    }
    let percentile = |percent| spread.percentile(percent) as f64 / UNIT as f64;
    let pages = format!(
        "{}: half of them have at most {:.1} misses, 95 % at most {:.1}, none more than {:.1}",
        spread.len(),
        percentile(50.0),
        percentile(95.0),
        percentile(100.0),
    );
    facts.row(["pages", &pages]);
    let misses = format!(
        "{:.1} % are in 5 % of the pages, {:.1} % in 20 %",
        100.0 * spread.share_of_top(5.0),
        100.0 * spread.share_of_top(20.0),
    );
    facts.row(["of misses", &misses]);
}

fn percent(part: f64, all: u64) -> String {
    format!("{:.1}%", 100.0 * part / all.max(1) as f64)
}

/// Objects with the most misses, if there are any.
fn objects(misses: &attribution::Table, top: usize) -> Option<Table> {
    let mut table = Table::default().numbers(["misses", "share", "in use"]).text("object");
    for row in misses.rows.iter().take(top) {
        let object = &row.object;
        table.row([
            format!("{:.1}", row.misses as f64 / UNIT as f64),
            percent(row.misses as f64, misses.misses),
            about_size(row.used),
            format!("{} ({}, process {})", object.name, whence(object), object.pid),
        ]);
    }
    (!misses.rows.is_empty()).then_some(table)
}

/// Functions with the most misses, if there are any.
fn functions(misses: &attribution::Table, top: usize) -> Option<Table> {
    let mut table = Table::default().numbers(["misses", "share"]).text("in");
    for (name, count) in misses.functions.iter().take(top) {
        let share = percent(*count as f64, misses.misses);
        table.row([(count / UNIT).to_string(), share, name.to_string()]);
    }
    (!misses.functions.is_empty()).then_some(table)
}

fn watched(watched: &[Watched]) -> Option<Table> {
    let mut table = Table::default().numbers(["reads", "writes", "pages"]).text("watched");
    for Watched { object, pid, reads, writes, pages } in watched {
        let counts = [reads.to_string(), writes.to_string(), pages.to_string()];
        table.row(counts.into_iter().chain([format!("{object} (process {pid})")]));
    }
    (!watched.is_empty()).then_some(table)
}

fn advice(advice: &[Advice], misses: u64) -> Option<Table> {
    let heads = ["saved", "share", "more memory", "pages"];
    let mut table = Table::default().numbers(heads).text("object");
    for advice in advice {
        table.row([
            advice.saved.to_string(),
            percent(advice.saved as f64, misses),
            about_size(advice.bloat),
            size_name(advice.size).to_owned(),
            advice.object.to_string(),
        ]);
    }
    (!advice.is_empty()).then_some(table)
}

/// Start of an object, or for a call site the number and size of its allocations.
fn whence(object: &Object) -> String {
    match object.allocated {
        Some((times, bytes)) => format!("asked {times} times for {}", about_size(bytes)),
        None => format!("{:#x}", object.start),
    }
}

fn as_json(args: &ReportArgs, report: &Report, spread: &Spread) -> Value {
    let part = |shares: u64| shares as f64 / UNIT as f64;
    let object = |row: &Row| {
        json!({
            "name": &*row.object.name, "pid": row.object.pid, "start": row.object.start,
            "bytes": row.object.end - row.object.start, "misses": part(row.misses),
            "allocations": row.object.allocated.map(|(times, _)| times),
            "allocated_bytes": row.object.allocated.map(|(_, bytes)| bytes),
            "bytes_in_use": row.used, "bloat_2m": row.bloat(PageSize::M2), "bloat_1g": row.bloat(PageSize::G1),
        })
    };
    let advice = |advice: &Advice| {
        json!({
            "object": advice.object, "pages": size_name(advice.size), "misses_left": advice.left,
            "misses_saved": advice.saved, "more_bytes": advice.bloat,
        })
    };
    let watched = |of: &Watched| {
        json!({
            "object": of.object, "pid": of.pid, "reads": of.reads, "writes": of.writes, "pages": of.pages,
        })
    };
    let function = |(name, misses): &(std::sync::Arc<str>, u64)| json!({ "name": &**name, "misses": part(*misses) });
    json!({
        "trace": args.trace.file.display().to_string(),
        "machine": args.machine,
        "pages": size_name(args.pages),
        "misses": part(report.table.misses),
        "accesses": report.counts.map(|counts| counts.accesses),
        "second_level": report.counts.map(|counts| counts.second),
        "entries_read": report.counts.map(|counts| counts.reads),
        "capture": report.misses.as_ref().map(capture_json),
        "spread": spread_json(spread),
        "objects": report.table.rows.iter().map(object).collect::<Vec<_>>(),
        "watched": report.watched.iter().map(watched).collect::<Vec<_>>(),
        "functions": report.table.functions.iter().map(function).collect::<Vec<_>>(),
        "larger_pages": report.advice.iter().map(advice).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}

fn capture_json(misses: &Misses) -> Value {
    let board = |board: &Traffic| {
        json!({
            "reads": board.reads, "writes": board.writes, "overruns": board.overruns,
            "missing": board.missing, "disordered": board.disordered, "damaged": board.damaged,
        })
    };
    json!({
        "exact": misses.is_exact(), "misses": misses.total(), "entries_a_block": misses.entries,
        "announced_reads": misses.announced, "idle_reads": misses.idle, "upper_reads": misses.upper,
        "permission_changes": { "pages": misses.permissions.len(), "given": permissions(misses)[0], "taken": permissions(misses)[1] },
        "machines": misses.machines, "within": misses.within,
        "writes": misses.writes, "pages_outside": misses.outside, "tags": misses.tags,
        "boards": misses.boards.iter().map(board).collect::<Vec<_>>(),
    })
}

fn spread_json(spread: &Spread) -> Value {
    let percentile = |percent| spread.percentile(percent) as f64 / UNIT as f64;
    json!({
        "pages": spread.len(),
        "misses_a_page": {
            "p50": percentile(50.0), "p80": percentile(80.0), "p95": percentile(95.0),
            "most": percentile(100.0),
        },
        "share_of_top_5_percent": spread.share_of_top(5.0),
        "share_of_top_20_percent": spread.share_of_top(20.0),
        "cdf": spread.cdf(),
    })
}
