//! Keys of the live screen, independent of the terminal library.

/// A key press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home key.
    Home,
    /// End key.
    End,
    /// Return.
    Enter,
    /// Escape, or backspace.
    Esc,
    /// Tabulator.
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// A printable character.
    Char(char),
}
