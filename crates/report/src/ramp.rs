//! The heat colour ramp, for light paper and for dark screens.

use std::fmt::Write;

/// Number of colours of the ramp.
pub(crate) const STEPS: usize = 24;

type Rgb = (u8, u8, u8);

/// Cold to hot on white: monotonically darker, so that it survives a black-and-white printer.
const LIGHT: [Rgb; 6] =
    [(232, 237, 246), (253, 228, 172), (251, 176, 84), (233, 92, 46), (170, 22, 70), (66, 6, 64)];
/// Cold to hot on black: monotonically lighter.
const DARK: [Rgb; 6] =
    [(24, 28, 48), (66, 24, 104), (150, 32, 104), (226, 78, 50), (250, 176, 50), (255, 252, 214)];
/// Mapped, but not probed.
const UNSEEN: (Rgb, Rgb) = ((243, 243, 243), (31, 32, 36));

/// Probed, with too little evidence: a hue that is not in the ramps.
const UNKNOWN: (Rgb, Rgb) = ((150, 205, 198), (30, 84, 80));

/// The step of a frequency: 0 for exactly cold, otherwise by its square root, so that memory that
/// is just hot (5 of 40) does not look cold.
pub(crate) fn step(heat: f64) -> usize {
    match heat {
        cold if cold <= 0.0 => 0,
        heat => 1 + ((heat.sqrt() * (STEPS - 1) as f64) as usize).min(STEPS - 2),
    }
}

/// The lowest frequency of a step.
pub(crate) fn least(step: usize) -> f64 {
    (step.saturating_sub(1) as f64 / (STEPS - 1) as f64).powi(2)
}

fn blend(ramp: &[Rgb; 6], step: usize) -> Rgb {
    let place = step as f64 / (STEPS - 1) as f64 * (ramp.len() - 1) as f64;
    let low = (place as usize).min(ramp.len() - 2);
    let share = place - low as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    let (a, b) = (ramp[low], ramp[low + 1]);
    (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The colour of a step on paper, in hexadecimal.
pub(crate) fn on_paper(step: usize) -> String {
    hex(blend(&LIGHT, step))
}

/// Colour on paper of memory that was not probed.
pub(crate) fn unseen_on_paper() -> String {
    hex(UNSEEN.0)
}

/// Colour on paper of memory whose heat is unknown.
pub(crate) fn unknown_on_paper() -> String {
    hex(UNKNOWN.0)
}

/// The ramp as CSS custom properties, `--h0` and so on, for the light and the dark scheme.
pub(crate) fn css() -> String {
    let mut css = String::from(":root {\n");
    for step in 0..STEPS {
        let (light, dark) = (hex(blend(&LIGHT, step)), hex(blend(&DARK, step)));
        // Writing to a string does not fail.
        let _ = writeln!(css, "  --h{step}: light-dark({light}, {dark});");
    }
    for (name, (light, dark)) in [("unseen", UNSEEN), ("unknown", UNKNOWN)] {
        let _ = writeln!(css, "  --{name}: light-dark({}, {});", hex(light), hex(dark));
    }
    css.push_str("}\n");
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_is_a_step_of_its_own() {
        assert_eq!([0.0, 1e-9, 1.0].map(step), [0, 1, STEPS - 1]);
        assert!((1..STEPS).all(|n| step(least(n) + 1e-9) == n), "least() is where a step begins");
    }

    #[test]
    fn light_gets_darker_and_dark_lighter() {
        let luma =
            |(r, g, b): Rgb| 0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b);
        for step in 1..STEPS {
            assert!(luma(blend(&LIGHT, step)) < luma(blend(&LIGHT, step - 1)), "step {step}");
            assert!(luma(blend(&DARK, step)) > luma(blend(&DARK, step - 1)), "step {step}");
        }
    }
}
