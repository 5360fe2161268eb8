//! `tierscope report`: prints reports on a recording.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result, SpaceId};
use tierscope_record::Recording;
use tierscope_report as reports;
use tierscope_report::{Color, Grid, RegionsOptions, Style, View, html, svg};

use crate::args::{ReportArgs, ReportCommand, When};
use crate::newest;
use crate::units::Place;

/// Columns and lines if the output is not a terminal.
const SIZE: (u16, u16) = (100, 40);
/// Cells of a heatmap drawn for print.
const PRINT: Grid = Grid { columns: 220, rows: 100 };

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

/// Prints text on stdout.
///
/// # Errors
/// If it cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints a report on stdout: as JSON, or as a table.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn print_report<T: Serialize + ?Sized>(
    report: &T,
    json: bool,
    table: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    written(match json {
        true => reports::write_json(&report, &mut out),
        false => table(report, &mut out).and_then(|()| out.flush()),
    })
}

/// Opens the recording. Damage at its end is reported on stderr, and the windows committed before
/// are used.
fn open(args: &ReportArgs) -> Result<Recording> {
    let recording = Recording::open(newest::resolve(&args.recording)?)?;
    if let Some(damage) = recording.damage() {
        eprintln!("tierscope: {damage}");
    }
    Ok(recording)
}

fn view(args: &ReportArgs, recording: &Recording) -> Result<View> {
    let view = View { time: args.time.clone(), space: args.space.map(SpaceId), ..View::default() };
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

/// A reader that closes the pipe early (`| head`) is not an error.
pub(crate) fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::new(ErrorKind::Io, "cannot write to stdout")
                .cause(error)
                .remedy("check where it goes"))
        }
        _ => Ok(()),
    }
}
