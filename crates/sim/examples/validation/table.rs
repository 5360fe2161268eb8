//! Published figures, predictions, and the page of both.

use std::fmt::Write as _;
use std::path::PathBuf;

use tierscope_core::{Error, ErrorKind, Result};

/// A published figure and its prediction; `None` if the model cannot reach the point.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) what: String,
    pub(crate) published: f64,
    pub(crate) predicted: Option<f64>,
    pub(crate) unit: &'static str,
}

impl Pair {
    /// Error of the prediction, relative to the published figure.
    pub(crate) fn error(&self) -> Option<f64> {
        Some(self.predicted? / self.published - 1.0)
    }
}

/// A result's pairs, and what is said about it.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) pairs: Vec<Pair>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments/validation")
}

/// Rows of a result's CSV file, without the header.
pub(crate) fn rows(name: &str) -> Result<Vec<Vec<String>>> {
    let path = folder().join(format!("{name}.csv"));
    let wrong = |error| Error::new(ErrorKind::Data, path.display().to_string()).cause(error);
    let rows = csv::Reader::from_path(&path).map_err(wrong)?.into_records();
    rows.map(|row| Ok(row.map_err(wrong)?.iter().map(str::to_owned).collect())).collect()
}

/// A given number of a result.
pub(crate) fn given(name: &str, machine: &str, key: &str) -> Result<f64> {
    let path = folder().join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::new(ErrorKind::Io, path.display().to_string()).cause(error))?;
    let table: toml::Table = toml::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::Data, path.display().to_string()).cause(error))?;
    let value = table.get("given").and_then(|given| given.get(machine)).and_then(|of| of.get(key));
    let number = value.and_then(|value| {
        value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
    });
    number.ok_or_else(|| {
        Error::new(ErrorKind::Data, path.display().to_string())
            .cause(format!("it gives no {machine}.{key}"))
    })
}

/// Mean and largest size of the errors, and pairs that the model cannot reach.
pub(crate) fn summary(pairs: &[Pair]) -> (f64, f64, usize) {
    let errors: Vec<f64> = pairs.iter().filter_map(|pair| pair.error().map(f64::abs)).collect();
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    (mean, errors.iter().copied().fold(0.0, f64::max), pairs.len() - errors.len())
}

/// The page's generated part.
pub(crate) fn page(sections: &[Section]) -> String {
    let mut text = String::from(
        "| result | figures | mean error | largest | beyond the model's reach |\n|---|---|---|---|---|\n",
    );
    for Section { name, pairs } in sections {
        let (mean, most, beyond) = summary(pairs);
        let _ = writeln!(
            text,
            "| `{name}` | {} | {:.0} % | {:.0} % | {beyond} |",
            pairs.len(),
            100.0 * mean,
            100.0 * most
        );
    }
    for Section { name, pairs } in sections {
        let _ = write!(
            text,
            "\n### {name}\n\n| figure | published | predicted | error |\n|---|---|---|---|\n"
        );
        for pair in pairs {
            let predicted = pair.predicted.map_or("-".into(), number);
            let error = pair.error().map_or("-".into(), |error| format!("{:+.0} %", 100.0 * error));
            let Pair { what, published, unit, .. } = pair;
            let _ = writeln!(
                text,
                "| {what} | {} {unit} | {predicted} | {error} |",
                number(*published)
            );
        }
    }
    text
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
