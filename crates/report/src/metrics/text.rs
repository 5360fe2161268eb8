//! OpenMetrics 1.0 text: families of samples, their types, units and labels.

use std::fmt::{self, Display, Write as _};

/// Types of metric families, a subset of those of OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows; its sample ends in `_total`.
    Counter,
    /// Facts in labels; its sample ends in `_info` and is 1.
    Info,
    /// Current amounts below each of some bounds.
    GaugeHistogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Info => "info",
            Kind::GaugeHistogram => "gaugehistogram",
        }
    }
}

/// A label's name and value.
pub(super) type Label<'a> = (&'a str, &'a str);

/// OpenMetrics text under construction.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a family. Its name must end in its unit, if it has one.
    pub(super) fn family(
        &mut self,
        name: &'static str,
        kind: Kind,
        unit: Option<&str>,
        help: &str,
    ) -> Family<'_> {
        let out = &mut self.0;
        line(out, format_args!("# TYPE {name} {}", kind.name()));
        if let Some(unit) = unit {
            debug_assert!(name.ends_with(&format!("_{unit}")), "{name} is in {unit}");
            line(out, format_args!("# UNIT {name} {unit}"));
        }
        line(out, format_args!("# HELP {name} {}", Escaped(help)));
        Family { out, name, kind }
    }

    /// The text with the final `# EOF`, by which a reader detects truncation.
    pub(super) fn finish(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

/// Samples of one family.
#[derive(Debug)]
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
    kind: Kind,
}

impl Family<'_> {
    /// Writes a sample; the suffix of its name follows from the type.
    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        let suffix = match self.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::GaugeHistogram => unreachable!("a histogram is more than a sample"),
        };
        self.write(suffix, labels, value);
    }

    /// Writes a gauge histogram. `counts` are (upper bound, amount) pairs, not cumulative; the last
    /// bound is infinite.
    pub(super) fn histogram(&mut self, labels: &[Label<'_>], counts: &[(f64, u64)], sum: f64) {
        let mut below = 0u64;
        for (bound, count) in counts {
            below = below.saturating_add(*count);
            let bound = number(*bound);
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.write("_bucket", &labels, below);
        }
        self.write("_gcount", labels, below);
        self.write("_gsum", labels, number(sum));
    }

    fn write(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        line(self.out, format_args!("{}{suffix}{} {value}", self.name, Labels(labels)));
    }
}

fn line(out: &mut String, line: fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes all");
}

/// A number in OpenMetrics syntax: bounds are floats, infinity is `+Inf`.
pub(super) fn number(value: f64) -> String {
    if value.is_infinite() && value > 0.0 { "+Inf".into() } else { format!("{value:?}") }
}

struct Labels<'a>(&'a [Label<'a>]);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        for (index, (name, value)) in self.0.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(f, "{before}{name}=\"{}\"", Escaped(value))?;
        }
        f.write_char('}')
    }
}

/// Text with backslash, quote and newline escaped for labels and help.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_family_has_type_unit_help_and_suffix() {
        let mut text = Text::default();
        let mut cpu = text.family("cpu_seconds", Kind::Counter, Some("seconds"), "CPU \"time\".");
        cpu.sample(&[("of", "a\\b\n\"c\"")], 1.5);
        assert_eq!(
            text.finish(),
            "# TYPE cpu_seconds counter\n# UNIT cpu_seconds seconds\n\
             # HELP cpu_seconds CPU \\\"time\\\".\n\
             cpu_seconds_total{of=\"a\\\\b\\n\\\"c\\\"\"} 1.5\n# EOF\n"
        );
    }

    // Buckets: 10 below 1, 5 from 1 to 2, 1 above 2.
    #[test]
    fn buckets_add_up() {
        let mut text = Text::default();
        let mut ages = text.family("age", Kind::GaugeHistogram, None, "Ages.");
        ages.histogram(&[], &[(1.0, 10), (2.0, 5), (f64::INFINITY, 1)], 20.0);
        assert_eq!(
            text.finish().lines().skip(2).collect::<Vec<_>>(),
            [
                "age_bucket{le=\"1.0\"} 10",
                "age_bucket{le=\"2.0\"} 15",
                "age_bucket{le=\"+Inf\"} 16",
                "age_gcount 16",
                "age_gsum 20.0",
                "# EOF"
            ]
        );
    }

    proptest! {
        // For any process name, a sample is one line with one value.
        #[test]
        fn no_label_breaks_its_line(value in any::<String>()) {
            let written = Labels(&[("name", &value)]).to_string();
            prop_assert!(!written.contains('\n'));
            let inner = written.strip_prefix("{name=\"").and_then(|w| w.strip_suffix("\"}")).unwrap();
            let mut read = String::new();
            let mut chars = inner.chars();
            while let Some(c) = chars.next() {
                read.push(match c {
                    '\\' => match chars.next().unwrap() { 'n' => '\n', c => c },
                    '"' => return Err(TestCaseError::fail("the label ends early")),
                    c => c,
                });
            }
            prop_assert_eq!(read, value);
        }
    }
}
