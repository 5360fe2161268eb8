//! `tierscope import`: converts recordings of damo or perf to a recording of tierscope.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_exchange::{Format, Options, PartialDir, SAMPLING, import};
use tierscope_record::Recorder;

use crate::print::{note, print};
use crate::scratch;
use crate::stop::Stop;
use crate::ticker::{self, Ticker};
use crate::units::{self, exact_time};

/// Flags of `tierscope import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Recordings of damo, perf.data files, or text of `perf script` or `trace-cmd report`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Directory to write the recording to; must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// Format of the files, if it cannot be detected; always needed for record files without a
    /// header
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    pub from: Option<Format>,

    /// Sampling interval, if the file does not contain it; for memory samples: the time within
    /// which several samples of a block count once. By default 5ms is taken, and reports say that
    /// the recording does not have it
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub sampling: Option<Duration>,

    /// Length of the windows into which memory samples are collected
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = units::time)]
    pub window: Duration,

    /// Size of the blocks in which memory samples are counted: a power of two, at least 4K
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = units::address)]
    pub block: u64,

    /// Refuse a file of which a line, a region or the end makes no sense; without it, that is left
    /// out, and the rest imported
    #[arg(long)]
    pub strict: bool,

    /// Print a summary of the import as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Parser of format names, for clap.
fn formats() -> impl TypedValueParser<Value = Format> {
    let names = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names).map(|name| {
        Format::ALL.into_iter().find(|format| format.name() == name).unwrap_or(Format::Text)
    })
}

/// Imports files.
///
/// # Errors
/// [`ErrorKind::Data`] with file and position for an unknown format, or damaged or truncated input;
/// nothing is written then.
pub fn run(args: &ImportArgs, command: &str) -> Result<()> {
    let options = options(args)?;
    let stop = Stop::on_signals()?;
    let output = PartialDir::create(&args.output)?;
    let scratch = scratch::beside(&args.output)?;
    let mut ticker = Ticker::new("reading", ticker::bytes);
    let mut imported = import(&args.files, options, Box::new(scratch), &mut |done, all| {
        ticker.tick(done, all);
        stop.check("import")
    })?;
    drop(ticker);
    let meta = imported.meta(command);
    let absent: Vec<_> = meta.absent.iter().map(|fact| fact.name()).collect();
    // `create` accepts an existing directory only if it is empty, as this temporary one is.
    let mut recorder = Recorder::create(output.path(), &meta)?;
    let mut ticker = Ticker::new("writing", ticker::windows);
    let windows = imported.write(&mut recorder, &mut |done, all| {
        ticker.tick(done, all);
        stop.check("import")
    })?;
    drop(ticker);
    recorder.finish()?;
    output.keep()?;
    let (incomplete, unused) = (imported.incomplete(), imported.unused_samples());
    let (flaws, dropped) = (imported.flaws(), imported.dropped());
    if incomplete > 0 {
        note!("{incomplete} windows are incomplete in the file, and left out");
    }
    if unused > 0 {
        note!("{unused} samples have no address of the process, and are left out");
    }
    if let Some(first) = &flaws.first {
        let (count, s) = (flaws.count, if flaws.count == 1 { "" } else { "s" });
        note!("{count} part{s} that make no sense are left out; the first: {first}");
    }
    if !dropped.is_empty() {
        let fields: Vec<_> =
            dropped.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        note!("a recording cannot hold these fields, and they are left out: {}", fields.join(", "));
    }
    note!("imported {windows} windows into {}", args.output.display());
    if args.json {
        let text = serde_json::json!({
            "recording": args.output.display().to_string(),
            "windows": windows,
            "incomplete_windows": incomplete,
            "unused_samples": unused,
            "absent": absent,
            "dropped_fields": dropped,
            "flaws": flaws.count,
            "first_flaw": flaws.first.as_ref().map(ToString::to_string),
        });
        print(&format!("{text:#}\n"))?;
    }
    Ok(())
}

fn options(args: &ImportArgs) -> Result<Options> {
    let refuse = |cause: String, remedy: &str| {
        Err(Error::new(ErrorKind::Usage, "cannot import").cause(cause).remedy(remedy))
    };
    let sampling = args.sampling.unwrap_or(SAMPLING);
    if sampling.is_zero() || args.window < sampling {
        let (sampling, window) = (exact_time(sampling), exact_time(args.window));
        let cause = format!("samples every {sampling} do not fit windows of {window}");
        return refuse(cause, "make --window a multiple of --sampling, like 200ms and 5ms");
    }
    if !args.block.is_power_of_two() || args.block < 4096 || args.block > 1 << 40 {
        let cause = format!("blocks of {} bytes", args.block);
        return refuse(cause, "give --block a power of two from 4K to 1T");
    }
    Ok(Options {
        format: args.from,
        sampling: args.sampling,
        window: args.window,
        block_shift: args.block.trailing_zeros(),
        strict: args.strict,
    })
}
