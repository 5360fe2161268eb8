//! The event queue of the live screen: keys, resizes, committed windows and signals.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierscope_core::{Error, ErrorKind, Result, Time};
use tierscope_report::live::Key;

use crate::record::Done;

/// An event that the screen's loop waits for.
pub(crate) enum Event {
    /// A key was pressed.
    Key(Key),
    /// The terminal was resized.
    Resized,
    /// A window that ended at this time was committed.
    Window(Time),
    /// The recording has ended: no more windows will follow.
    Ended(Box<Result<Done>>),
    /// A signal requested a stop, or the terminal is gone.
    Stop,
}

/// Creates the queue and redirects SIGINT, SIGTERM and SIGHUP into it; from now on they have no
/// other effect.
pub(crate) fn queue() -> Result<(Sender<Event>, Receiver<Event>)> {
    let (sender, receiver) = channel();
    let failed = |e| Error::new(ErrorKind::Other, "cannot set up signals").cause(e);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let stop = sender.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            // The receiver is gone: the program is about to end.
            if stop.send(Event::Stop).is_err() {
                break;
            }
        }
    });
    Ok((sender, receiver))
}

/// Starts a thread that feeds the terminal's events into the queue.
pub(crate) fn listen(sender: Sender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => match key_of(key) {
                    Some(key) => Event::Key(key),
                    None => continue,
                },
                Ok(event::Event::Resize(..)) => Event::Resized,
                Ok(_) => continue,
                Err(_) => Event::Stop,
            };
            let last = matches!(event, Event::Stop);
            if sender.send(event).is_err() || last {
                break;
            }
        }
    });
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace => Key::Esc,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_terminal() {
        let key = |code, modifiers| key_of(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
        assert_eq!(key(KeyCode::Char('Z'), KeyModifiers::SHIFT), Some(Key::Char('Z')));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::F(1), KeyModifiers::NONE), None);
    }
}
