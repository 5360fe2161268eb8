//! Keys as the screen knows them, whatever terminal they come from.

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Return.
    Enter,
    /// Escape, or backspace.
    Esc,
    /// Tabulator.
    Tab,
    /// Ctrl-C.
    Interrupt,
    /// Anything that prints.
    Char(char),
}
