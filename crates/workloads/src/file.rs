//! Descriptions as TOML files, and [`load`], the entry point for all forms of description.
//!
//! ```toml
//! name = "stairs"
//! seed = 1            # of everything that the description draws; default 1
//! burst = 64          # accesses in a row to one pattern; default 64
//!
//! [[area]]
//! name = "heap"
//! bytes = "1TiB"
//!
//! [[phase]]
//! name = "low"
//! time = "4s"
//! rate = 3000000      # accesses a second; default: unlimited
//! hot_share = 0.9     # share of the accesses that hot ranges take; default 0.9
//!
//! [[phase.access]]
//! area = "heap"
//! from = "100GiB"     # default 0
//! bytes = "10GiB"     # default: to the end of the area
//! pattern = "random"  # sequential, random, table, zipf, gaussian, scattered, striped, drift
//! weight = 1          # default 1
//! writes = 0.0        # share of the accesses, "update" or "non-temporal"; default 0
//! hot = true          # overrides hot_share
//! ```
//!
//! `sequential` needs `stride`; `zipf` takes `item`, `theta`, `scrambled`; `gaussian` `item`,
//! `mean`, `sd` (in items); `scattered` `ranges`, `range`; `striped` `range`, `apart`; `drift`
//! `window`, `step`, `every`.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tierscope_core::{Error, ErrorKind, Result, units};
use toml::Spanned;

use crate::description::{
    Access, Area, DEFAULT_BURST, DEFAULT_HOT_SHARE, Location, Mix, Pattern, Phase, Workload,
};
use crate::generate;
use crate::masim::{self, Mode};
use crate::programs;
use crate::work;

/// Reads any description: a `.toml` file, a masim configuration, or a generator's line
/// ([`generate`]). `mode` applies to masim configurations only. A program's line ([`programs`])
/// yields the description with the same accesses, if there is one.
///
/// # Errors
/// The file cannot be read, or its content is invalid: line and column.
pub fn load(text: &str, mode: Mode) -> Result<Workload> {
    let path = Path::new(text);
    let looks_like_a_path =
        text.contains('/') || path.extension().is_some_and(|e| e == "toml" || e == "cfg");
    if !looks_like_a_path && !path.is_file() {
        return if programs::knows(text) {
            programs::described(text)
        } else {
            generate::from_spec(text)
        };
    }
    let content = crate::text_file::read(path).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot read workload {text}")).cause(e).remedy(format!(
            "give a TOML file, a masim configuration, or NAME:key=value,… with one of {}",
            work::listed(work::names())
        ))
    })?;
    if path.extension().is_some_and(|e| e == "toml") {
        return parse(text, &content);
    }
    masim::parse(text, &content, mode)
}

/// Parses TOML; `name` is used in errors, usually the file's name.
///
/// # Errors
/// [`ErrorKind::Data`] with line and column of the fault.
pub fn parse(name: &str, text: &str) -> Result<Workload> {
    let bad = |at: usize, what: &dyn Display| {
        let (line, column) = line_and_column(text, at);
        Error::new(ErrorKind::Data, format!("{name}:{line}:{column}"))
            .cause(what)
            .remedy("see `toucher --toml` on a generator for an example")
    };
    let file: File = toml::from_str(text)
        .map_err(|e| bad(e.span().map_or(0, |span| span.start), &e.message()))?;
    let workload = file.describe().map_err(|(at, what)| bad(at, &what))?;
    workload.check().map_err(|fault| bad(file.place(fault.place), &fault.what))?;
    Ok(workload)
}

/// Writes TOML that [`parse`] reads back to an equal description.
#[must_use]
pub fn to_toml(workload: &Workload) -> String {
    toml::to_string(&File::of(workload)).expect("the file's types are all TOML's")
}

fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default = "one")]
    seed: u64,
    #[serde(default = "default_burst")]
    burst: u32,
    area: Vec<Spanned<AreaEntry>>,
    phase: Vec<Spanned<PhaseEntry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AreaEntry {
    name: String,
    bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseEntry {
    name: String,
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(
        default = "default_hot_share",
        rename = "hot-share",
        alias = "hot_share",
        skip_serializing_if = "is_default_share"
    )]
    hot_share: f64,
    access: Vec<Spanned<AccessEntry>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AccessEntry {
    area: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
    pattern: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<Writes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chase: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hot: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stride: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    theta: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scrambled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<Time>,
}

fn one() -> u64 {
    1
}
fn default_burst() -> u32 {
    DEFAULT_BURST
}
fn default_hot_share() -> f64 {
    DEFAULT_HOT_SHARE
}
fn is_default_share(share: &f64) -> bool {
    *share == DEFAULT_HOT_SHARE
}

/// A size in TOML: a number of bytes, or a text with a unit.
#[derive(Clone, Copy)]
struct Bytes(u64);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&units::exact_size(self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size, as 4096 or \"10GiB\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<Bytes, E> {
                u64::try_from(value).map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Bytes, E> {
                Ok(Bytes(value))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Bytes, E> {
                units::size(text).map(Bytes).map_err(E::custom)
            }
        }
        from.deserialize_any(Visitor)
    }
}

/// A time in TOML: a text with a unit.
#[derive(Clone, Copy)]
struct Time(Duration);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&units::exact_time(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        units::time(&String::deserialize(from)?).map(Time).map_err(de::Error::custom)
    }
}

/// The key `writes` in TOML: a share, or a word.
#[derive(Clone, Copy)]
struct Writes(Mix);

impl Serialize for Writes {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Mix::Writes(share) => to.serialize_f64(share),
            Mix::Update => to.serialize_str("update"),
            Mix::NonTemporal => to.serialize_str("non-temporal"),
        }
    }
}

impl<'de> Deserialize<'de> for Writes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Writes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a share within 0..1, \"update\" or \"non-temporal\"")
            }
            fn visit_f64<E: de::Error>(self, share: f64) -> std::result::Result<Writes, E> {
                Ok(Writes(Mix::Writes(share)))
            }
            fn visit_i64<E: de::Error>(self, share: i64) -> std::result::Result<Writes, E> {
                Ok(Writes(Mix::Writes(share as f64)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Writes, E> {
                match text {
                    "update" => Ok(Writes(Mix::Update)),
                    "non-temporal" => Ok(Writes(Mix::NonTemporal)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl File {
    /// The description, not yet checked; the error carries the offset of the fault in the text.
    fn describe(&self) -> std::result::Result<Workload, (usize, String)> {
        let areas: Vec<Area> = self.area.iter().map(|entry| entry.get_ref().describe()).collect();
        let phase = |entry: &Spanned<PhaseEntry>| entry.get_ref().describe(&areas);
        Ok(Workload {
            name: self.name.clone(),
            seed: self.seed,
            burst: self.burst,
            phases: self.phase.iter().map(phase).collect::<std::result::Result<_, _>>()?,
            areas,
        })
    }

    fn place(&self, place: Location) -> usize {
        match place {
            Location::Whole => 0,
            Location::Area(area) => self.area[area].span().start,
            Location::Phase(phase) => self.phase[phase].span().start,
            Location::Access(phase, access) => {
                self.phase[phase].get_ref().access[access].span().start
            }
        }
    }

    fn of(workload: &Workload) -> Self {
        let spanned = |phase: &Phase| Spanned::new(0..0, PhaseEntry::of(phase, &workload.areas));
        Self {
            name: workload.name.clone(),
            seed: workload.seed,
            burst: workload.burst,
            area: workload
                .areas
                .iter()
                .map(|area| Spanned::new(0..0, AreaEntry::of(area)))
                .collect(),
            phase: workload.phases.iter().map(spanned).collect(),
        }
    }
}

impl AreaEntry {
    fn describe(&self) -> Area {
        Area { name: self.name.clone(), bytes: self.bytes.0, content: self.content.clone() }
    }

    fn of(area: &Area) -> Self {
        Self { name: area.name.clone(), bytes: Bytes(area.bytes), content: area.content.clone() }
    }
}

impl PhaseEntry {
    fn describe(&self, areas: &[Area]) -> std::result::Result<Phase, (usize, String)> {
        let access = |entry: &Spanned<AccessEntry>| {
            entry.get_ref().describe(areas).map_err(|what| (entry.span().start, what))
        };
        Ok(Phase {
            name: self.name.clone(),
            duration: self.time.0,
            rate: self.rate,
            hot_share: self.hot_share,
            accesses: self.access.iter().map(access).collect::<std::result::Result<_, _>>()?,
        })
    }

    fn of(phase: &Phase, areas: &[Area]) -> Self {
        let spanned = |access: &Access| Spanned::new(0..0, AccessEntry::of(access, areas));
        Self {
            name: phase.name.clone(),
            time: Time(phase.duration),
            rate: phase.rate,
            hot_share: phase.hot_share,
            access: phase.accesses.iter().map(spanned).collect(),
        }
    }
}

impl AccessEntry {
    fn describe(&self, areas: &[Area]) -> std::result::Result<Access, String> {
        let found = areas.iter().position(|area| area.name == self.area);
        let area = found.ok_or_else(|| format!("there is no area `{}`", self.area))?;
        let from = self.from.map_or(0, |from| from.0);
        let rest = areas[area].bytes.saturating_sub(from);
        let bytes = self.bytes.map_or(rest, |bytes| bytes.0);
        Ok(Access {
            area,
            from,
            bytes,
            pattern: self.pattern(bytes)?,
            weight: self.weight.unwrap_or(1.0),
            mix: self.writes.map_or(Mix::Writes(0.0), |writes| writes.0),
            chase: self.chase.unwrap_or(false),
            hot: self.hot,
        })
    }

    fn pattern(&self, bytes: u64) -> std::result::Result<Pattern, String> {
        let needs = |key: &str| format!("`{}` needs `{key}`", self.pattern);
        let item = self.item.map_or(4096, |item| item.0);
        let items = bytes.checked_div(item).unwrap_or(0) as f64;
        let pattern = match self.pattern.as_str() {
            "sequential" => {
                Pattern::Sequential { stride: self.stride.ok_or_else(|| needs("stride"))?.0 }
            }
            "random" => Pattern::Random,
            "table" => Pattern::Table,
            "zipf" => Pattern::Zipf {
                item,
                theta: self.theta.unwrap_or(0.99),
                scrambled: self.scrambled.unwrap_or(false),
            },
            "gaussian" => Pattern::Gaussian {
                item,
                mean: self.mean.unwrap_or(items / 2.0),
                sd: self.sd.unwrap_or(items / 6.0),
            },
            "scattered" => Pattern::Scattered {
                ranges: self.ranges.ok_or_else(|| needs("ranges"))?,
                range: self.range.map_or(2 << 20, |range| range.0),
            },
            "striped" => Pattern::Striped {
                range: self.range.ok_or_else(|| needs("range"))?.0,
                apart: self.apart.ok_or_else(|| needs("apart"))?.0,
            },
            "drift" => {
                let window = self.window.ok_or_else(|| needs("window"))?.0;
                Pattern::Drift {
                    window,
                    step: self.step.map_or(window, |step| step.0),
                    every: self.every.ok_or_else(|| needs("every"))?.0,
                }
            }
            other => return Err(format!("there is no pattern `{other}`")),
        };
        self.check_keys(pattern)?;
        Ok(pattern)
    }

    /// A key of another pattern would have no effect: reject it rather than ignore it.
    fn check_keys(&self, pattern: Pattern) -> std::result::Result<(), String> {
        let given = [
            ("stride", self.stride.is_some()),
            ("item", self.item.is_some()),
            ("theta", self.theta.is_some()),
            ("scrambled", self.scrambled.is_some()),
            ("mean", self.mean.is_some()),
            ("sd", self.sd.is_some()),
            ("ranges", self.ranges.is_some()),
            ("range", self.range.is_some()),
            ("apart", self.apart.is_some()),
            ("window", self.window.is_some()),
            ("step", self.step.is_some()),
            ("every", self.every.is_some()),
        ];
        let known: &[&str] = match pattern {
            Pattern::Sequential { .. } => &["stride"],
            Pattern::Random | Pattern::Table => &[],
            Pattern::Zipf { .. } => &["item", "theta", "scrambled"],
            Pattern::Gaussian { .. } => &["item", "mean", "sd"],
            Pattern::Scattered { .. } => &["ranges", "range"],
            Pattern::Striped { .. } => &["range", "apart"],
            Pattern::Drift { .. } => &["window", "step", "every"],
        };
        match given.iter().find(|(key, given)| *given && !known.contains(key)) {
            Some((key, _)) => Err(format!("`{}` has no key `{key}`", self.pattern)),
            None => Ok(()),
        }
    }

    fn of(access: &Access, areas: &[Area]) -> Self {
        let mut entry = AccessEntry {
            area: areas[access.area].name.clone(),
            from: Some(Bytes(access.from)),
            bytes: Some(Bytes(access.bytes)),
            weight: Some(access.weight),
            writes: Some(Writes(access.mix)),
            chase: access.chase.then_some(true),
            hot: access.hot,
            ..Default::default()
        };
        entry.set_pattern(access.pattern);
        entry
    }

    fn set_pattern(&mut self, pattern: Pattern) {
        let name = match pattern {
            Pattern::Sequential { stride } => {
                self.stride = Some(Bytes(stride));
                "sequential"
            }
            Pattern::Random => "random",
            Pattern::Table => "table",
            Pattern::Zipf { item, theta, scrambled } => {
                self.item = Some(Bytes(item));
                (self.theta, self.scrambled) = (Some(theta), Some(scrambled));
                "zipf"
            }
            Pattern::Gaussian { item, mean, sd } => {
                self.item = Some(Bytes(item));
                (self.mean, self.sd) = (Some(mean), Some(sd));
                "gaussian"
            }
            Pattern::Scattered { ranges, range } => {
                (self.ranges, self.range) = (Some(ranges), Some(Bytes(range)));
                "scattered"
            }
            Pattern::Striped { range, apart } => {
                (self.range, self.apart) = (Some(Bytes(range)), Some(Bytes(apart)));
                "striped"
            }
            Pattern::Drift { window, step, every } => {
                (self.window, self.step) = (Some(Bytes(window)), Some(Bytes(step)));
                self.every = Some(Time(every));
                "drift"
            }
        };
        self.pattern = name.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOML: &str = r#"name = "two"

[[area]]
name = "heap"
bytes = "1GiB"

[[phase]]
name = "low"
time = "4s"

[[phase.access]]
area = "heap"
bytes = 4096
pattern = "random"
writes = "update"
"#;

    #[test]
    fn omitted_keys_have_defaults() {
        let workload = parse("f", TOML).unwrap();
        let phase = &workload.phases[0];
        assert_eq!((workload.seed, workload.burst, phase.rate), (1, DEFAULT_BURST, None));
        let expected = Access {
            area: 0,
            from: 0,
            bytes: 4096,
            pattern: Pattern::Random,
            weight: 1.0,
            mix: Mix::Update,
            chase: false,
            hot: None,
        };
        assert_eq!(phase.accesses, [expected]);
    }

    #[test]
    fn non_temporal_stores_have_a_word() {
        let workload = parse("f", &TOML.replace("\"update\"", "\"non-temporal\"")).unwrap();
        assert_eq!(workload.phases[0].accesses[0].mix, Mix::NonTemporal);
        assert_eq!(parse("g", &to_toml(&workload)), Ok(workload));
    }

    #[test]
    fn errors_name_line_and_column() {
        let error =
            |from: &str, to: &str| parse("f", &TOML.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error("time = \"4s\"", "time = \"4\"").starts_with("f:9:8: `4` is not a time"));
        assert!(error("bytes = \"1GiB\"", "size = 1").starts_with("f:5:1: unknown field `size`"));
        assert!(
            error("pattern = \"random\"", "pattern = \"wild\"")
                .starts_with("f:11:1: there is no pattern `wild`")
        );
        assert!(
            error("bytes = 4096", "bytes = \"2GiB\"")
                .starts_with("f:11:1: 2 GiB from 0 B on do not fit")
        );
        assert!(
            error("bytes = 4096", "stride = 64")
                .starts_with("f:11:1: `random` has no key `stride`")
        );
        assert!(error("\"update\"", "2.0").starts_with("f:11:1: writes is a share"));
        assert!(error("name = \"two\"", "name = ").starts_with("f:1:8: "));
    }

    #[test]
    fn a_written_workload_is_read_again() {
        for spec in [
            "contiguous:space=1TiB,hot=10GiB,share=0.9,writes=0.25,rate=3000000",
            "stairs:space=5TiB,hot=10GiB,stride=4096,every=1500us",
            "needle:space=1TiB,hot=5MB,hot-share=0.5",
            "scattered:space=1TiB,ranges=10000,seed=7",
            "zipf:space=1GiB,scrambled=true,theta=0.7",
            "gaussian:space=1TiB,item=5MB,sd=100",
            "drift:space=1TiB,window=10GiB,step=1GiB,every=1s",
        ] {
            let workload = generate::from_spec(spec).unwrap();
            assert_eq!(parse("again", &to_toml(&workload)).unwrap(), workload, "{spec}");
        }
        let masim = masim::parse("m", "a, 100\n\np\n10\na, 1, 1, 3, rw\n", Mode::Faithful).unwrap();
        assert_eq!(parse("again", &to_toml(&masim)).unwrap(), masim);
    }

    #[test]
    fn an_error_on_a_missing_file_lists_the_alternatives() {
        let error = load("/nowhere/x.toml", Mode::Correct).unwrap_err().to_string();
        assert!(error.contains("No such file") && error.contains("contiguous"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse("any", &text);
        }

        #[test]
        fn damaged_text_is_read_or_refused(at in 0usize..TOML.len(), with in "[ -~\n]{0,4}", cut in 0usize..6) {
            let end = (at + cut).min(TOML.len());
            let _ = parse("any", &format!("{}{with}{}", &TOML[..at], &TOML[end..]));
        }
    }
}
