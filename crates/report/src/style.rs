//! Terminal style of reports: width and colours.

/// Width and colours of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Width in columns.
    pub width: usize,
    /// Colour support.
    pub color: Color,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 100, color: Color::None }
    }
}

/// Colour support of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// No colours: heat is shown by characters.
    #[default]
    None,
    /// A palette of 256 colours.
    Ansi256,
    /// 24-bit colours.
    True,
}

/// The user's choice of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Use the terminal's colour support.
    #[default]
    Auto,
    /// Colours, even into a pipe.
    Always,
    /// Use no colours.
    Never,
}

impl Color {
    /// The colours to use. `variable` reads an environment variable: `NO_COLOR` (any non-empty
    /// value turns colours off unless they were requested explicitly), `TERM` and `COLORTERM`.
    #[must_use]
    pub fn choose(
        when: When,
        is_terminal: bool,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Color {
        let term = variable("TERM").unwrap_or_default();
        let no_color = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = term.is_empty() || term == "dumb" || !term_has_256(&term);
        let off = match when {
            When::Never => true,
            When::Always => false,
            When::Auto => no_color || !is_terminal || (dumb && !is_true(&variable)),
        };
        match off {
            true => Color::None,
            false if is_true(&variable) => Color::True,
            false => Color::Ansi256,
        }
    }
}

fn term_has_256(term: &str) -> bool {
    ["256color", "direct", "kitty", "alacritty", "ghostty"].iter().any(|part| term.contains(part))
}

fn is_true(variable: &impl Fn(&str) -> Option<String>) -> bool {
    variable("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit")
}

/// Escape sequence that sets the background to a colour of the heat ramp.
pub(crate) fn background(color: Color, heat: f64) -> String {
    match shade(color, heat) {
        Shade::Density(_) => String::new(),
        Shade::Indexed(index) => format!("\x1b[48;5;{index}m"),
        Shade::Rgb(r, g, b) => format!("\x1b[48;2;{r};{g};{b}m"),
    }
}

/// A colour of the heat ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shade {
    /// A character, if there are no colours.
    Density(char),
    /// An index into the palette of 256 colours.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// Cold to hot, as characters.
pub(crate) const DENSITY: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// The colour of `heat`, for this colour support.
pub(crate) fn shade(color: Color, heat: f64) -> Shade {
    match color {
        Color::None => Shade::Density(DENSITY[step(heat, DENSITY.len())]),
        Color::Ansi256 => Shade::Indexed(PALETTE[step(heat, PALETTE.len())]),
        Color::True => {
            let (r, g, b) = blend(heat);
            Shade::Rgb(r, g, b)
        }
    }
}

/// Faint text, for memory that was not probed.
pub(crate) const FAINT: &str = "\x1b[2m";
/// Cyan text, for unknown memory: a colour that is not in the heat ramp.
pub(crate) const DOUBT: &str = "\x1b[36m";
/// Resets the style to plain text.
pub(crate) const RESET: &str = "\x1b[0m";

/// Cold to hot in the 256-colour palette: black-blue, purple, red, orange, yellow, white.
const PALETTE: [u8; 9] = [17, 54, 90, 126, 161, 202, 214, 226, 231];

/// Cold to hot as (red, green, blue).
const RAMP: [(u8, u8, u8); 6] =
    [(12, 12, 60), (88, 16, 110), (180, 30, 90), (235, 90, 30), (250, 190, 40), (255, 255, 220)];

/// The step of a ramp for `heat`: 0 for exactly cold, so that any heat is visible.
pub(crate) fn step(heat: f64, steps: usize) -> usize {
    if heat <= 0.0 { 0 } else { 1 + ((heat * (steps - 1) as f64) as usize).min(steps - 2) }
}

fn blend(heat: f64) -> (u8, u8, u8) {
    let least = if heat > 0.0 { 0.06 } else { 0.0 };
    let place = heat.clamp(least, 1.0) * (RAMP.len() - 1) as f64;
    let low = (place as usize).min(RAMP.len() - 2);
    let share = place - low as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share) as u8;
    let (a, b) = (RAMP[low], RAMP[low + 1]);
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(when: When, is_terminal: bool, variables: &[(&str, &str)]) -> Color {
        Color::choose(when, is_terminal, |name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn colours_follow_user_then_terminal() {
        let xterm = [("TERM", "xterm-256color")];
        assert_eq!(choose(When::Auto, true, &xterm), Color::Ansi256);
        assert_eq!(choose(When::Auto, false, &xterm), Color::None);
        assert_eq!(choose(When::Always, false, &xterm), Color::Ansi256);
        assert_eq!(choose(When::Never, true, &xterm), Color::None);
        assert_eq!(choose(When::Auto, true, &[("TERM", "vt100")]), Color::None);
        let rich = [("TERM", "xterm"), ("COLORTERM", "truecolor")];
        assert_eq!(choose(When::Auto, true, &rich), Color::True);
        let no_color = [("TERM", "xterm-256color"), ("NO_COLOR", "1")];
        assert_eq!(choose(When::Auto, true, &no_color), Color::None);
        assert_eq!(choose(When::Always, true, &no_color), Color::Ansi256);
    }

    #[test]
    fn the_least_heat_is_not_cold() {
        assert_eq!(step(0.0, 9), 0);
        assert_eq!(step(1e-9, 9), 1);
        assert_eq!(step(1.0, 9), 8);
        assert_ne!(background(Color::True, 1e-9), background(Color::True, 0.0));
    }
}
