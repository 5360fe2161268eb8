//! `tierscope report`.

use std::io::{self, BufWriter, IsTerminal, Write};

use tierscope_core::{Error, ErrorKind, Result, SpaceId};
use tierscope_record::Recording;
use tierscope_report as reports;
use tierscope_report::{Color, Grid, RegionsOptions, Style, View};

use crate::args::{ReportArgs, ReportCommand, When};

/// Columns and lines where there is no terminal to ask.
const SIZE: (u16, u16) = (100, 40);

/// What a report is written for.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Columns and colours.
    pub style: Style,
    /// Lines.
    pub height: usize,
}

/// Prints a report on stdout.
///
/// # Errors
/// [`ErrorKind::Data`] for what is no recording; [`ErrorKind::Usage`] for a view of nothing.
pub fn run(command: &ReportCommand) -> Result<()> {
    let (ReportCommand::Summary(args)
    | ReportCommand::Heatmap(args)
    | ReportCommand::Regions(args)) = command;
    let stdout = io::stdout();
    let screen = screen(args, stdout.is_terminal());
    let mut out = BufWriter::new(stdout.lock());
    write(command, &screen, &mut out).and_then(|()| written(out.flush()))
}

/// Writes a report.
///
/// # Errors
/// As [`run`].
pub fn write(command: &ReportCommand, screen: &Screen, out: &mut dyn Write) -> Result<()> {
    let style = &screen.style;
    match command {
        ReportCommand::Summary(args) => {
            let report = reports::summary(&open(args)?, &view(args))?;
            written(match args.json {
                true => reports::write_json(&report, out),
                false => report.write_text(out, style),
            })
        }
        ReportCommand::Heatmap(args) => {
            let grid = Grid::for_terminal(style.width, screen.height);
            let report = reports::heatmap(&open(args)?, &view(args), grid)?;
            written(match args.json {
                true => reports::write_json(&report, out),
                false => report.write_text(out, style),
            })
        }
        ReportCommand::Regions(args) => {
            let report = reports::regions(&open(args)?, &view(args), &RegionsOptions::default())?;
            written(match args.json {
                true => reports::write_json(&report, out),
                false => report.write_text(out, style),
            })
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

/// Opens the recording. Damage at its end is told and passed over: what was committed before is
/// good.
fn open(args: &ReportArgs) -> Result<Recording> {
    let recording = Recording::open(&args.recording)?;
    if let Some(damage) = recording.damage() {
        eprintln!("tierscope: {damage}");
    }
    Ok(recording)
}

fn view(args: &ReportArgs) -> View {
    View { time: args.time.clone(), addresses: args.addr.clone(), space: args.space.map(SpaceId) }
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

/// A reader that has seen enough (`| head`) is no error.
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
