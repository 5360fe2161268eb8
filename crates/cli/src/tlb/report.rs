//! `tierscope tlb report`: TLB misses by object and function, and the effect of larger pages.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::{Access, Result};
use tierscope_hw::{Machine, PageSize};
use tierscope_tlb::ptat::{Block, Capture, Damage, Misses, Page, PageMisses, Sink, Traffic};
use tierscope_trace::{Batch, Options, read_all};

use super::capture::NAMES;
use super::export::Export;
use super::misses::{Baseline, LARGER, Row, Table, Tried, UNIT, Variant, table};
use super::model::Counts;
use super::objects::{Object, Objects};
use super::source::{TraceArgs, machine, page_size, size_name};
use super::spread::Spread;
use crate::print as report;
use crate::stop::Stop;
use crate::ticker::{self, Ticker};
use crate::units::show_bytes;

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

/// Contents of a report.
struct Report {
    table: Table,
    /// For a trace of accesses.
    counts: Option<Counts>,
    /// For a capture.
    misses: Option<Misses>,
    /// Watched structures that the bus showed: object, process, reads, writes, pages.
    watched: Vec<Watched>,
    advice: Vec<Advice>,
    notes: Vec<String>,
}

/// A watched structure, and its accesses that crossed the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    object: String,
    pid: u32,
    reads: u64,
    writes: u64,
    pages: u64,
}

/// Effect of larger pages for one object or all.
struct Advice {
    object: String,
    size: PageSize,
    /// Misses left and misses saved, over the whole trace.
    left: u64,
    saved: i64,
    bloat: u64,
}

pub(super) fn run(args: &ReportArgs) -> Result<()> {
    let machine = machine(&args.machine)?;
    if args.trace.is_capture() {
        return of_capture(args, &machine);
    }
    let mut baseline = Baseline::new(&machine, args.pages)?;
    let read = args.trace.accesses(&mut baseline)?;
    let (counts, gifts) = (baseline.counts(), baseline.gifts);
    let (table, objects) = baseline.table();
    if let Some(export) = export(args)? {
        export.finish(None, &table)?;
    }
    let mut report = Report {
        table,
        counts: Some(counts),
        misses: None,
        watched: Vec::new(),
        advice: Vec::new(),
        notes: Vec::new(),
    };
    if counts.refused > 0 {
        let refused = counts.refused;
        report.notes.push(format!("{refused} accesses lie where the machine translates nothing"));
    }
    if table_has_no_functions(&report) {
        report.notes.push(
            "the trace tells of no function: it has no fetches, as those of `tierscope tlb record` have where functions change".into(),
        );
    }
    if !gifts {
        report.notes.push(
            "memory is told by mapping and symbol: the trace does not tell who asked for it".into(),
        );
    }
    let again = !read.stopped && args.pages == PageSize::K4 && args.top > 0;
    match args.trace.is_piped() {
        true => report.notes.push("what larger pages would save takes a file to read again".into()),
        false if again => advise(args, &machine, counts.walks, &objects, &mut report)?,
        false => {}
    }
    print(args, &report)?;
    read.verdict("this is of what could be read")
}

fn table_has_no_functions(report: &Report) -> bool {
    report.table.functions.is_empty() && report.table.misses > 0
}

/// Tries the most missed objects on larger pages, each one alone and all objects together.
fn advise(
    args: &ReportArgs,
    machine: &Machine,
    walks: u64,
    objects: &Objects,
    report: &mut Report,
) -> Result<()> {
    let rows = &report.table.rows;
    let mut all: Vec<(usize, &Object)> = Vec::new();
    for row in rows {
        let same = |object: &Object| {
            (object.pid, object.start, &object.name)
                == (row.object.pid, row.object.start, &row.object.name)
        };
        all.extend(objects.list.iter().position(same).map(|number| (number, &row.object)));
    }
    let mut tried: Vec<(String, PageSize, u64)> = Vec::new();
    let mut variants = Vec::new();
    for size in LARGER {
        for (row, object) in rows.iter().zip(&all).take(args.top) {
            variants.push(Variant::new(machine, size, [*object])?);
            tried.push((called(row), size, row.bloat(size)));
        }
        if rows.len() > 1 {
            variants.push(Variant::new(machine, size, all.iter().copied())?);
            tried.push((ALL.into(), size, rows.iter().map(|row| row.bloat(size)).sum()));
        }
    }
    let mut variants = Tried::new(objects, variants);
    if args.trace.accesses(&mut variants)?.stopped {
        let note = "what larger pages would save is not told: reading the trace again was stopped";
        report.notes.push(note.into());
        return Ok(());
    }
    let advice = |(variant, (object, size, bloat)): (&Variant, (String, PageSize, u64))| {
        let left = variant.walks();
        Advice { object, size, left, saved: walks as i64 - left as i64, bloat }
    };
    report.advice = variants.variants.iter().zip(tried).map(advice).collect();
    Ok(())
}

const ALL: &str = "all objects";

fn called(row: &Row) -> String {
    row.object.name.to_string()
}

/// Estimate for a capture: sends its misses through MMUs with larger pages. It sees only accesses
/// that the machine's own MMUs missed.
struct Estimate {
    objects: Objects,
    variants: [Variant; 2],
    export: Option<Export>,
}

impl Sink for Estimate {
    fn settled(&mut self, group: u64, block: &Block, reads: u64) {
        if let Some(export) = &mut self.export {
            export.settled(group, block, reads);
        }
    }

    fn miss(&mut self, ticks: u64, block: &Block) {
        // All pages of a block are in the same larger page.
        let Some(page) = block.pages().next() else { return };
        if let Some(export) = &mut self.export {
            export.miss(ticks, block);
        }
        let object = self.objects.find(page.pid.into(), page.start());
        for variant in &mut self.variants {
            variant.touch((0, page.pid.into()), page.start(), Access::Load, object);
        }
    }
}

fn of_capture(args: &ReportArgs, machine: &Machine) -> Result<()> {
    let mut objects = names(&args.trace.file.join(NAMES))?;
    let of_size = |size| Variant::new(machine, size, objects.list.iter().enumerate());
    let variants = [of_size(PageSize::M2)?, of_size(PageSize::G1)?];
    let mut estimate = Estimate { objects: objects.clone(), variants, export: export(args)? };
    let (misses, damage) = parsed(&args.trace.file, &mut estimate)?;
    if let Some(path) = &args.csv {
        write_csv(path, &misses)?;
    }
    let list = objects.list.clone();
    let table = capture_table(&mut objects, &misses);
    if let Some(export) = estimate.export.take() {
        export.finish(Some(&misses), &table)?;
    }
    let advice = estimated(&table, &list, &estimate, args.top);
    let notes = notes(&misses);
    let watched = watched(&objects, &misses);
    print(args, &Report { table, counts: None, misses: Some(misses), watched, advice, notes })?;
    match damage.first {
        None => Ok(()),
        Some(error) => {
            eprintln!(
                "tierscope: damaged in {} places, the first told below; the rest was used",
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

/// Parses a capture to its end, or until a signal requests a stop.
pub(super) fn parsed<S: Sink>(directory: &Path, sink: &mut S) -> Result<(Misses, Damage)> {
    let mut capture = Capture::open(directory)?;
    let stop = Stop::on_signals()?;
    let mut ticker = Ticker::new("reading", ticker::bytes);
    while capture.step(sink) {
        if stop.check("report").is_err() {
            eprintln!("tierscope: stopped; this is of what was read until then");
            break;
        }
        ticker.tick(capture.read(), capture.bytes);
    }
    drop(ticker);
    Ok(capture.finish_into(sink))
}

/// Mappings of a capture, if it has the file of names. Unmapped memory keeps its name.
fn names(path: &Path) -> Result<Objects> {
    let mut objects = Objects::default();
    if !path.is_file() {
        return Ok(objects);
    }
    let mut batch = Batch::default();
    read_all(&mut *tierscope_trace::open(path, Options::default())?.source, &mut batch)?;
    let unmaps =
        |event: &tierscope_trace::Event| matches!(event, tierscope_trace::Event::Unmap { .. });
    let events = batch.events.iter().map(|(_, event)| event);
    events.filter(|event| !unmaps(event)).for_each(|event| objects.event(event));
    Ok(objects)
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

fn estimated(table: &Table, list: &[Object], estimate: &Estimate, top: usize) -> Vec<Advice> {
    let mut advice = Vec::new();
    for (variant, size) in estimate.variants.iter().zip(LARGER) {
        for row in table.rows.iter().take(top) {
            let known =
                |object: &Object| (object.pid, object.start) == (row.object.pid, row.object.start);
            let Some(at) = list.iter().position(known) else { continue };
            let (left, object, bloat) = (variant.misses[at], called(row), row.bloat(size));
            let saved = (row.misses / UNIT) as i64 - left as i64;
            advice.push(Advice { object, size, left, saved, bloat });
        }
    }
    advice
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
    let [given, taken] = permissions(misses);
    add(given + taken, "times a page was made writable or read-only");
    add(misses.outside, "pages have entries outside of the region, where nobody sees misses");
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
    for machine in &misses.machines {
        let of = misses.pages.iter().filter(|(page, _)| page.pid == *machine);
        let walks: u64 = of.map(|(_, counts)| counts.shares()).sum();
        notes.push(format!(
            "{machine} is a machine: its {} misses are of guest-physical pages, which walks of its processes had to find",
            walks / UNIT
        ));
    }
    notes.push("what larger pages save is estimated from misses alone".into());
    notes.push("the bus shows no instructions: which function missed is not known".into());
    notes
}

/// How often pages were made writable, and read-only.
fn permissions(misses: &Misses) -> [u64; 2] {
    let add = |sum: [u64; 2], [given, taken]: &[u64; 2]| [sum[0] + given, sum[1] + taken];
    misses.permissions.values().fold([0; 2], add)
}

fn write_csv(path: &Path, misses: &Misses) -> Result<()> {
    let partial = tierscope_exchange::Partial::create(path)?;
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
    written.map_err(|e| {
        tierscope_core::Error::new(tierscope_core::ErrorKind::Io, "cannot write the pages").cause(e)
    })?;
    partial.keep()
}

fn print(args: &ReportArgs, report: &Report) -> Result<()> {
    let spread = Spread::new(report.table.pages.clone());
    let text = match args.trace.json {
        true => format!("{:#}\n", as_json(args, report, &spread)),
        false => as_text(args, report, &spread),
    };
    report::print(&text)
}

fn as_text(args: &ReportArgs, report: &Report, spread: &Spread) -> String {
    let all = report.table.misses.max(1) as f64;
    let misses = report.table.misses / UNIT;
    let mut out = String::new();
    if let Some(counts) = report.counts {
        let each = 1000.0 * counts.walks as f64 / counts.accesses.max(1) as f64;
        let _ = writeln!(out, "machine       {}, pages of {}", args.machine, size_name(args.pages));
        let _ = writeln!(out, "accesses      {} to data", counts.accesses);
        let _ = writeln!(
            out,
            "misses        {misses}, {each:.3} of 1000 accesses; they read {} entries",
            counts.reads
        );
        let _ = writeln!(out, "second level  {} translations", counts.second);
    }
    if let Some(misses) = &report.misses {
        let [tags, ..] = misses.tags;
        let sum = |count: fn(&Traffic) -> u64| misses.boards.iter().map(count).sum::<u64>();
        let (reads, writes) = (sum(|board| board.reads), sum(|board| board.writes));
        let _ = writeln!(
            out,
            "boards        {}: {reads} reads and {writes} writes",
            misses.boards.len()
        );
        let exact = if misses.is_exact() { "exact by block" } else { "not exact" };
        let _ = writeln!(out, "misses        {}, {exact}", misses.total());
        let _ = writeln!(
            out,
            "others        {} reads that the kernel announced, {} of blocks that map nothing, {} of upper entries, {} writes, {tags} tags",
            misses.announced, misses.idle, misses.upper, misses.writes
        );
    }
    out.push_str(&spread.text(UNIT as f64));
    if !report.table.rows.is_empty() {
        let _ = writeln!(out, "\n      misses   share       in use  object");
    }
    for row in report.table.rows.iter().take(args.top.max(1)) {
        let (misses, share) = (row.misses as f64 / UNIT as f64, 100.0 * row.misses as f64 / all);
        let (used, name) = (show_bytes(row.used), &row.object.name);
        let _ = writeln!(
            out,
            "{misses:>12.1}  {share:>5.1}%  {used:>11}  {name} ({}, process {})",
            whence(&row.object),
            row.object.pid
        );
    }
    if !report.table.functions.is_empty() {
        let _ = writeln!(out, "\n      misses   share  in");
    }
    for (name, misses) in report.table.functions.iter().take(args.top.max(1)) {
        let share = 100.0 * *misses as f64 / all;
        let _ = writeln!(out, "{:>12}  {share:>5.1}%  {name}", misses / UNIT);
    }
    if !report.watched.is_empty() {
        let _ = writeln!(out, "\n       reads        writes      pages  watched");
    }
    for Watched { object, pid, reads, writes, pages } in &report.watched {
        let _ = writeln!(out, "{reads:>12}  {writes:>12}  {pages:>9}  {object} (process {pid})");
    }
    if !report.advice.is_empty() {
        let _ = writeln!(out, "\n       saved   share  more memory  pages  object");
    }
    for advice in &report.advice {
        let share = 100.0 * advice.saved as f64 / misses.max(1) as f64;
        let (bloat, size) = (show_bytes(advice.bloat), size_name(advice.size));
        let _ = writeln!(
            out,
            "{:>12}  {share:>5.1}%  {bloat:>11}  {size:>5}  {}",
            advice.saved, advice.object
        );
    }
    if !report.notes.is_empty() {
        out.push('\n');
    }
    report.notes.iter().for_each(|note| _ = writeln!(out, "{note}"));
    out
}

/// Start of an object, or for a call site the number and size of its allocations.
fn whence(object: &Object) -> String {
    match object.given {
        Some((times, bytes)) => format!("asked {times} times for {}", show_bytes(bytes)),
        None => format!("{:#x}", object.start),
    }
}

fn as_json(args: &ReportArgs, report: &Report, spread: &Spread) -> Value {
    let part = |shares: u64| shares as f64 / UNIT as f64;
    let object = |row: &Row| {
        json!({
            "name": &*row.object.name, "pid": row.object.pid, "start": row.object.start,
            "bytes": row.object.end - row.object.start, "misses": part(row.misses),
            "allocations": row.object.given.map(|(times, _)| times),
            "allocated_bytes": row.object.given.map(|(_, bytes)| bytes),
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
        "spread": spread.json(UNIT as f64),
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
