//! `tierscope export`: converts a recording to Parquet, CSV, or damo's JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_exchange::damo::{LeftOut, Shape};
use tierscope_exchange::{Failure, Partial, PartialDir, csv, damo};
use tierscope_record::{Fact, Recording, Table};

use crate::print::note;
use crate::stop::Stop;
use crate::ticker::{self, Ticker};
use crate::{newest, scratch};

/// Flags of `tierscope export`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("format").required(true).args(["parquet", "csv", "damo"])))]
pub struct ExportArgs {
    /// The recording; for a series the newest one
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// Parquet, a file for each table (Snappy; DuckDB, pandas and Spark read it)
    #[arg(long)]
    pub parquet: bool,

    /// CSV, a file for each table
    #[arg(long)]
    pub csv: bool,

    /// A file that `damo report` reads, in damo's own default form (zlib-compressed JSON): regions,
    /// ages and counts of all windows; no mappings. Unknown and unwatched memory is left out,
    /// because damo would take it for idle
    #[arg(long)]
    pub damo: bool,

    /// Output path: a new directory, for --damo a new file; - for stdout (--damo as plain JSON,
    /// --csv one table) [default: the recording's name with -parquet, -csv or .damo, in the working
    /// directory]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,

    /// With --parquet and --csv: only this table; can be given more than once
    #[arg(long = "table", value_name = "NAME", value_parser = tables(), conflicts_with = "damo")]
    pub tables: Vec<Table>,
}

/// Parser of table names, for clap.
fn tables() -> impl TypedValueParser<Value = Table> {
    let names = Table::ALL.map(|table| PossibleValue::new(table.name()));
    PossibleValuesParser::new(names).map(|name| {
        Table::ALL.into_iter().find(|table| table.name() == name).unwrap_or(Table::Regions)
    })
}

/// Exports a recording.
///
/// # Errors
/// [`ErrorKind::Usage`] if the output exists already, or the flags contradict each other;
/// [`ErrorKind::Data`] if the input is not a recording; [`ErrorKind::Io`] if the output cannot be
/// written.
pub fn run(args: &ExportArgs) -> Result<()> {
    let recording = Recording::open(newest::resolve(&args.recording)?)?;
    if let Some(damage) = recording.damage() {
        note!("{damage}");
    }
    let output = output(args)?;
    let mut ticker = Ticker::new("exporting", ticker::windows);
    let stop = Stop::on_signals()?;
    let tick = &mut |done, all| {
        ticker.tick(done, all);
        stop.check("export")
    };
    match (output == Path::new("-"), args.damo) {
        (true, _) => return to_stdout(args, &recording, tick),
        (false, true) => to_damo(&recording, &output, tick)?,
        (false, false) => to_tables(args, &recording, &output, tick)?,
    }
    drop(ticker);
    note!(
        "exported {} windows of {} to {}",
        recording.commits().len(),
        recording.name(),
        output.display()
    );
    Ok(())
}

/// Path of the output.
fn output(args: &ExportArgs) -> Result<PathBuf> {
    if let Some(path) = &args.output {
        return Ok(path.clone());
    }
    let path = args.recording.canonicalize().unwrap_or_else(|_| args.recording.clone());
    let name = path.file_name().ok_or_else(|| {
        usage("the recording has no name to name the export after", "give a name with -o")
    })?;
    let mut name = name.to_owned();
    name.push(match (args.parquet, args.csv) {
        (true, _) => "-parquet",
        (_, true) => "-csv",
        _ => ".damo",
    });
    Ok(name.into())
}

fn usage(cause: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::Usage, "cannot export").cause(cause).remedy(remedy)
}

type Tick<'a> = tierscope_exchange::Tick<'a>;

fn to_stdout(args: &ExportArgs, recording: &Recording, tick: Tick<'_>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match (args.csv, args.damo) {
        (true, _) => match args.tables.as_slice() {
            [table] => csv::write(recording, *table, &mut out, tick),
            _ => {
                return Err(usage("stdout takes one table", "choose one, as with --table regions"));
            }
        },
        (_, true) => {
            let mut scratch = scratch::anywhere()?;
            let written = damo::write(recording, Shape::Plain, &mut out, &mut scratch, tick);
            written.map(|left_out| note(&left_out, recording))
        }
        _ => return Err(usage("Parquet has no use on stdout", "give a directory with -o")),
    };
    match written {
        // A reader that closes the pipe early (`| head`) is not an error.
        Err(Failure::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => {
            // Drops the buffered bytes: the pipe is closed.
            let _ = out.into_parts();
            Ok(())
        }
        written => written.map_err(|failure| explain(failure, Path::new("stdout"))),
    }
}

fn to_damo(recording: &Recording, path: &Path, tick: Tick<'_>) -> Result<()> {
    let partial = Partial::create(path)?;
    let mut scratch = scratch::beside(path)?;
    let mut out = BufWriter::with_capacity(1 << 18, partial.file());
    let left_out = damo::write(recording, Shape::Compressed, &mut out, &mut scratch, tick)
        .map_err(|f| explain(f, path))?;
    drop(out);
    partial.keep()?;
    note(&left_out, recording);
    Ok(())
}

/// Reports on stderr which parts of the recording are left out of damo's file, and what it lacks.
fn note(left_out: &LeftOut, recording: &Recording) {
    if !recording.meta().has(Fact::Ages) {
        note!("the recording does not have ages: damo reads 0");
    }
    if !recording.meta().has(Fact::Intervals) {
        note!(
            "the recording does not have intervals: damo counts samples instead of shares of them"
        );
    }
    if let Some(text) = note_of(left_out) {
        note!("{text}");
    }
}

fn note_of(left_out: &LeftOut) -> Option<String> {
    let LeftOut { regions, windows } = left_out;
    (*regions > 0).then(|| {
        format!(
            "damo would show memory that is unknown or was not looked at as idle: {regions} such regions of \
             {windows} windows are left out of what damo reads, and kept under the key `tierscope`"
        )
    })
}

fn to_tables(args: &ExportArgs, recording: &Recording, path: &Path, tick: Tick<'_>) -> Result<()> {
    let partial = PartialDir::create(path)?;
    let all = &Table::ALL[..];
    let tables = if args.tables.is_empty() { all } else { &args.tables };
    for table in tables {
        let extension = if args.csv { "csv" } else { "parquet" };
        let file = partial.path().join(format!("{}.{extension}", table.name()));
        let written = File::create(&file).map_err(Failure::Write).and_then(|out| {
            let mut out = BufWriter::with_capacity(1 << 18, out);
            if args.csv {
                csv::write(recording, *table, &mut out, tick)
            } else {
                to_parquet(recording, *table, &mut out, tick)
            }?;
            Ok(out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?)
        });
        written.map_err(|failure| explain(failure, path))?;
    }
    partial.keep()
}

#[cfg(feature = "parquet")]
fn to_parquet(
    recording: &Recording,
    table: Table,
    out: &mut (dyn Write + Send),
    tick: Tick<'_>,
) -> Result<(), Failure> {
    tierscope_exchange::parquet::write(recording, table, out, tick)
}

#[cfg(not(feature = "parquet"))]
fn to_parquet(
    _: &Recording,
    _: Table,
    _: &mut (dyn Write + Send),
    _: Tick<'_>,
) -> Result<(), Failure> {
    Err(Failure::Read(
        Error::new(ErrorKind::Missing, "cannot export to Parquet")
            .cause("this tierscope was built without the feature `parquet`")
            .remedy("build it with `--features parquet`, or use --csv"),
    ))
}

fn explain(failure: Failure, path: &Path) -> Error {
    match failure {
        Failure::Read(error) => error,
        Failure::Write(cause) => {
            Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
                .cause(cause)
                .remedy("free space, or choose another place with -o")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Meta, Recorder};

    fn recording(dir: &Path) -> Recording {
        let mut recorder = Recorder::create(dir, &Meta::default()).unwrap();
        for number in 0..3 {
            let (start, end) = (Time(number), Time(number + 1));
            recorder.window(&Window::of(&Snapshot { start, end, ..Snapshot::default() })).unwrap();
        }
        recorder.finish().unwrap();
        Recording::open(dir).unwrap()
    }

    fn args(line: &str) -> ExportArgs {
        match parse(line.split_whitespace().map(Into::into)).unwrap().command {
            Command::Export(args) => args,
            _ => unreachable!("it says export"),
        }
    }

    #[test]
    fn notes_data_that_damo_ignores() {
        assert_eq!(note_of(&LeftOut::default()), None);
        let said = note_of(&LeftOut { regions: 12, windows: 3 }).unwrap();
        assert!(said.contains("12 such regions of 3 windows are left out"), "{said}");
    }

    // Stopped after the second of three windows.
    #[test]
    fn a_stopped_export_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let recording = recording(&dir.path().join("redis"));
        let stopped = || Error::new(ErrorKind::Other, "stopped");
        let tick = |done, _| if done < 2 { Ok(()) } else { Err(stopped()) };
        let out = dir.path().join("out");
        let tables =
            to_tables(&args("tierscope export redis --csv"), &recording, &out, &mut { tick });
        assert_eq!(tables.unwrap_err(), stopped());
        assert_eq!(to_damo(&recording, &out, &mut { tick }).unwrap_err(), stopped());
        let left: Vec<_> = dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["redis"]);
    }
}
