//! The terminal of the live screen: checks, set-up and restoration.

use std::io::{self, IsTerminal, Stdout, stdout};
use std::sync::Once;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{cursor, execute, terminal};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_report as reports;
use tierscope_report::Color;

use crate::color::When;

/// The colours to use on the terminal.
///
/// # Errors
/// [`ErrorKind::Usage`] if there is no terminal, or it cannot be drawn on; `instead` is the remedy.
pub(crate) fn check(when: When, instead: &str) -> Result<Color> {
    let refuse = |cause: &str| {
        Err(Error::new(ErrorKind::Usage, "cannot show a live screen").cause(cause).remedy(instead))
    };
    if !stdout().is_terminal() {
        return refuse("stdout is not a terminal");
    }
    if !io::stdin().is_terminal() {
        return refuse("stdin is not a terminal, so there are no keys");
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

/// The terminal in full-screen mode. Dropping it restores the terminal, also on a panic.
pub(crate) struct Screen {
    /// Backend for drawing.
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Switches the terminal to full-screen mode.
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

/// Restores the terminal. Errors are ignored: a terminal that is gone needs no restoring.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}

/// Restores the terminal before a panic's message is printed, so that it can be read.
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
