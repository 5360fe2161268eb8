//! The terminal: whether it will do, and how it is left as it was found.

use std::io::{self, IsTerminal, Stdout, stdout};
use std::sync::Once;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute, terminal};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_report as reports;
use tierscope_report::Color;

use crate::args::When;

/// The colours to use on the terminal.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is none, or it cannot be drawn on; `instead` is the remedy.
pub(crate) fn check(when: When, instead: &str) -> Result<Color> {
    let refuse = |cause: &str| {
        Err(Error::new(ErrorKind::Usage, "cannot show a live screen").cause(cause).remedy(instead))
    };
    if !stdout().is_terminal() {
        return refuse("stdout is not a terminal");
    }
    if !io::stdin().is_terminal() {
        return refuse("stdin is not a terminal, where would keys come from");
    }
    let term = std::env::var("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return refuse("the terminal cannot place text (TERM is dumb or not set)");
    }
    let when = match when {
        When::Auto => reports::When::Auto,
        When::Always => reports::When::Always,
        When::Never => reports::When::Never,
    };
    Ok(Color::choose(when, true, |name| std::env::var(name).ok()))
}

/// The terminal while it shows the screen. However it goes out of scope, also by a panic, the
/// terminal is as it was.
pub(crate) struct Screen {
    /// To draw on.
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    pub(crate) fn enter() -> Result<Self> {
        restore_on_panic();
        let failed = |e: io::Error| {
            restore();
            Error::new(ErrorKind::Io, "cannot take over the terminal").cause(e)
        };
        terminal::enable_raw_mode().map_err(failed)?;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(failed)?;
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// A terminal that went away needs no restoring: errors have no one to be told to.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

/// What a panic says is to be read: first the terminal is restored.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
