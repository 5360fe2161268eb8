//! `tierscope report`: prints reports on a recording.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use tierscope_core::{Error, ErrorKind, Result, SpaceId};
use tierscope_record::Recording;
use tierscope_report as reports;
use tierscope_report::{Color, Grid, RegionsOptions, Style, View, html, svg};

use crate::color::When;
use crate::newest;
use crate::print::{note, written};
use crate::units::{self, Place};

/// Columns and lines if the output is not a terminal.
const SIZE: (u16, u16) = (100, 40);
/// Cells of a heatmap drawn for print.
const PRINT: Grid = Grid { columns: 220, rows: 100 };

/// Reports on a recording.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// The target, how much of its memory is hot, and the cost of watching
    Summary(ReportArgs),
    /// Heat over addresses and time
    Heatmap(ReportArgs),
    /// Regions of the last window, with the names of their mappings
    Regions(ReportArgs),
    /// Bytes accessed, and bytes hot, in a window: percentiles over all windows
    Wss(ReportArgs),
    /// Bytes by age: for how long memory has been hot or cold
    Ages(ReportArgs),
}

impl ReportCommand {
    /// Flags of the chosen report.
    #[must_use]
    pub fn args(&self) -> &ReportArgs {
        match self {
            Self::Summary(args)
            | Self::Heatmap(args)
            | Self::Regions(args)
            | Self::Wss(args)
            | Self::Ages(args) => args,
        }
    }
}

/// Flags of `tierscope report`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("format").args(["json", "html", "svg"])))]
pub struct ReportArgs {
    /// The recording
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write all reports as one self-contained page for a browser, with a heatmap to zoom and pan
    #[arg(long)]
    pub html: bool,

    /// Draw an SVG for print: heatmap, wss or ages
    #[arg(long)]
    pub svg: bool,

    /// Write into FILE instead of on stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Only this interval, since the recording began, like 2s..10s
    #[arg(long, value_name = "FROM..TO", value_parser = units::time_range)]
    pub time: Option<Range<Duration>>,

    /// Leave out the first N windows: `damo report wss` leaves out 20 unless given
    /// --exclude_samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: usize,

    /// Only these addresses, like 0x7f0000000000..0x7f8000000000, or mappings of this name: heap,
    /// stack, anon, file, a path or its last part
    #[arg(long, alias = "addr", value_name = "FROM..TO|NAME", value_parser = units::place)]
    pub range: Option<units::Place>,

    /// Only the address space with this number
    #[arg(long, value_name = "N")]
    pub space: Option<u32>,

    /// Use colours; --color alone is --color=always
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub color: When,

    /// Width in columns; by default the terminal's
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub width: Option<u16>,
}

/// Size and style of the output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Width in columns, and colours.
    pub style: Style,
    /// Height in lines.
    pub height: usize,
}

/// Prints a report on stdout, or writes it into a file.
///
/// # Errors
/// [`ErrorKind::Data`] if the input is not a recording; [`ErrorKind::Usage`] for an empty
/// selection, or for an HTML page on a terminal; [`ErrorKind::Io`] if the file cannot be written.
pub fn run(command: &ReportCommand) -> Result<()> {
    let args = command.args();
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal() && args.output.is_none();
    if args.html && is_terminal {
        return Err(Error::new(ErrorKind::Usage, "cannot show a page in a terminal")
            .cause("stdout is one")
            .remedy("name a file by -o FILE.html, and open it in a browser"));
    }
    let screen = screen(args, is_terminal);
    let Some(path) = &args.output else {
        let mut out = BufWriter::new(stdout.lock());
        return write(command, &screen, &mut out).and_then(|()| written(out.flush()));
    };
    let mut text = Vec::new();
    write(command, &screen, &mut text)?;
    fs::write(path, text).map_err(|error| unwritable(path, &error))
}

/// Writes a report to `out`.
///
/// # Errors
/// As [`run`].
pub fn write(command: &ReportCommand, screen: &Screen, out: &mut dyn Write) -> Result<()> {
    let (style, args) = (&screen.style, command.args());
    let recording = open(args)?;
    let view = view(args, &recording)?;
    if args.html {
        let options = html::Options { view, ..html::Options::default() };
        let page = html::page(&recording, &options, html::Data::Inline)?;
        return written(out.write_all(page.as_bytes()));
    }
    let drawn = |image: String, out: &mut dyn Write| written(out.write_all(image.as_bytes()));
    match command {
        ReportCommand::Summary(_) | ReportCommand::Regions(_) if args.svg => Err(no_drawing()),
        ReportCommand::Summary(_) => {
            let report = reports::summary(&recording, &view)?;
            written(match args.json {
                true => reports::write_json(&report, out),
                false => report.write_text(out, style),
            })
        }
        ReportCommand::Heatmap(_) => {
            let terminal = Grid::for_terminal(style.width, screen.height);
            let grid = if args.svg { PRINT } else { terminal };
            let report = reports::heatmap(&recording, &view, grid)?;
            match (args.svg, args.json) {
                (true, _) => drawn(svg::heatmap(&report), out),
                (_, true) => written(reports::write_json(&report, out)),
                _ => written(report.write_text(out, style)),
            }
        }
        ReportCommand::Regions(_) => {
            let report = reports::regions(&recording, &view, &RegionsOptions::default())?;
            written(match args.json {
                true => reports::write_json(&report, out),
                false => report.write_text(out, style),
            })
        }
        ReportCommand::Wss(_) => {
            let report = reports::wss(&recording, &view)?;
            match (args.svg, args.json) {
                (true, _) => drawn(svg::wss(&report), out),
                (_, true) => written(reports::write_json(&report, out)),
                _ => written(report.write_text(out, style)),
            }
        }
        ReportCommand::Ages(_) => {
            let report = reports::ages(&recording, &view)?;
            match (args.svg, args.json) {
                (true, _) => drawn(svg::ages(&report), out),
                (_, true) => written(reports::write_json(&report, out)),
                _ => written(report.write_text(out, style)),
            }
        }
    }
}

/// Opens the recording. Damage at its end is reported on stderr, and the windows committed before
/// are used.
fn open(args: &ReportArgs) -> Result<Recording> {
    let recording = Recording::open(newest::resolve(&args.recording)?)?;
    if let Some(damage) = recording.damage() {
        note!("{damage}");
    }
    for sentence in reports::missing_accesses(&recording)? {
        note!("{sentence}");
    }
    Ok(recording)
}

fn view(args: &ReportArgs, recording: &Recording) -> Result<View> {
    let (time, space) = (args.time.clone(), args.space.map(SpaceId));
    let view = View { time, space, skip: args.skip, ..View::default() };
    Ok(match &args.range {
        None => view,
        Some(Place::Addresses(addresses)) => View { addresses: Some(addresses.clone()), ..view },
        Some(Place::Named(name)) => {
            let ranges = reports::ranges_named(recording, &view, name)?;
            View { ranges: Some(ranges), ..view }
        }
    })
}

fn screen(args: &ReportArgs, is_terminal: bool) -> Screen {
    let when = match args.color {
        When::Auto => reports::When::Auto,
        When::Always => reports::When::Always,
        When::Never => reports::When::Never,
    };
    let color = Color::choose(when, is_terminal, |name| std::env::var(name).ok());
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|s| (s.ws_col, s.ws_row));
    let (columns, lines) = size.filter(|size| size.0 > 0 && size.1 > 0).unwrap_or(SIZE);
    let width = usize::from(args.width.unwrap_or(columns));
    Screen { style: Style { width, color }, height: usize::from(lines) }
}

fn no_drawing() -> Error {
    Error::new(ErrorKind::Usage, "cannot draw this report")
        .cause("it is a table")
        .remedy("draw heatmap, wss or ages with --svg, or take --html, which has all of them")
}

fn unwritable(path: &Path, cause: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
        .cause(cause)
        .remedy("name a file in a directory that is there and can be written")
}
