//! Parser of masim's configurations, unmodified (masim, masim.c and configs/).
//!
//! The first paragraph holds the regions, `name, bytes[, file|none]`; each further one a phase: its
//! name, its milliseconds, and lines of `region, random (0 or 1), stride, weight[, ro|wo|rw]`.
//! Lines that begin with `#` are comments; without a mode accesses are writes.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};

use crate::description::{
    Access, Area, DEFAULT_BURST, DEFAULT_HOT_SHARE, Fault, Location, Mix, Pattern, Phase, Workload,
};

/// Accesses that masim makes for each pick of a region.
pub const BURST: u32 = 131_072;

/// How closely masim's behaviour is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As masim behaves: random offsets from 10^6 precomputed 31-bit values, 131072 accesses for
    /// each pick. Large regions are touched only in part.
    Faithful,
    /// As the configuration intends: all bytes of a region are equally likely, and a new region is
    /// picked every 64 accesses.
    Correct,
}

/// Parses a configuration; `name` is used in errors, usually the file's name.
///
/// # Errors
/// [`ErrorKind::Data`] with line and column of the fault.
pub fn parse(name: &str, text: &str, mode: Mode) -> Result<Workload> {
    read(name, text, mode).map_err(|bad| {
        Error::new(ErrorKind::Data, format!("{name}:{}:{}", bad.line, bad.column))
            .cause(bad.what)
            .remedy("a region is `name, bytes`; a phase a name, milliseconds, and lines of `region, random, stride, weight`")
    })
}

struct ParseFault {
    line: usize,
    column: usize,
    what: String,
}

/// A line that is no comment, with its number from 1.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

/// A field of a line, with its column from 1.
#[derive(Clone, Copy)]
struct Field<'a> {
    line: usize,
    column: usize,
    text: &'a str,
}

impl Field<'_> {
    fn bad(&self, what: impl Into<String>) -> ParseFault {
        ParseFault { line: self.line, column: self.column, what: what.into() }
    }

    fn number<T: std::str::FromStr>(&self, what: &str) -> std::result::Result<T, ParseFault> {
        self.text.parse().map_err(|_| self.bad(format!("`{}` is not {what}", self.text)))
    }
}

impl<'a> Line<'a> {
    fn bad(&self, what: impl Into<String>) -> ParseFault {
        ParseFault { line: self.number, column: 1, what: what.into() }
    }

    fn fields(&self) -> Vec<Field<'a>> {
        let mut column = 1;
        let field = |raw: &'a str| {
            let blank = raw.chars().take_while(|c| c.is_whitespace()).count();
            let field = Field { line: self.number, column: column + blank, text: raw.trim() };
            column += raw.chars().count() + 1;
            field
        };
        self.text.split(',').map(field).collect()
    }
}

fn read(name: &str, text: &str, mode: Mode) -> std::result::Result<Workload, ParseFault> {
    let paragraphs = paragraphs(text);
    let Some((first, phases)) = paragraphs.split_first() else {
        return Err(ParseFault { line: 1, column: 1, what: "there is no region".into() });
    };
    let areas: Vec<Area> =
        first.iter().map(|line| region(*line)).collect::<std::result::Result<_, _>>()?;
    if phases.is_empty() {
        return Err(first[first.len() - 1].bad("there is no phase after the regions"));
    }
    let workload = Workload {
        name: name.into(),
        seed: 1,
        burst: if mode == Mode::Faithful { BURST } else { DEFAULT_BURST },
        phases: phases
            .iter()
            .map(|lines| phase(lines, &areas, mode))
            .collect::<std::result::Result<_, _>>()?,
        areas,
    };
    workload.check().map_err(|Fault { place, what }| place_of(place, &paragraphs).bad(what))?;
    Ok(workload)
}

fn place_of<'a>(place: Location, paragraphs: &[Vec<Line<'a>>]) -> Line<'a> {
    match place {
        Location::Whole => paragraphs[0][0],
        Location::Area(area) => paragraphs[0][area],
        Location::Phase(phase) => paragraphs[phase + 1][0],
        Location::Access(phase, access) => paragraphs[phase + 1][access + 2],
    }
}

/// Paragraphs: lines between blank ones. Comment lines are dropped, so they neither end a paragraph
/// nor belong to it.
fn paragraphs(text: &str) -> Vec<Vec<Line<'_>>> {
    let mut paragraphs = vec![Vec::new()];
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.starts_with('#')) {
        if text.trim().is_empty() {
            paragraphs.push(Vec::new());
        } else if let Some(last) = paragraphs.last_mut() {
            last.push(Line { number: index + 1, text });
        }
    }
    paragraphs.retain(|lines| !lines.is_empty());
    paragraphs
}

fn region(line: Line<'_>) -> std::result::Result<Area, ParseFault> {
    let fields = line.fields();
    let (name, bytes, content) = match fields.as_slice() {
        [name, bytes] => (name, bytes, None),
        [name, bytes, file] => (name, bytes, Some(file.text).filter(|text| *text != "none")),
        _ => return Err(line.bad(format!("a region has 2 or 3 fields, not {}", fields.len()))),
    };
    if name.text.is_empty() {
        return Err(name.bad("the region has no name"));
    }
    Ok(Area {
        name: name.text.into(),
        bytes: bytes.number("a number of bytes")?,
        content: content.map(str::to_owned),
    })
}

fn phase(lines: &[Line<'_>], areas: &[Area], mode: Mode) -> std::result::Result<Phase, ParseFault> {
    let [name, time, accesses @ ..] = lines else {
        return Err(lines[0].bad("the phase has no line of milliseconds"));
    };
    if accesses.is_empty() {
        return Err(time.bad("the phase has no line of accesses"));
    }
    let millis = time.fields()[0].number("a number of milliseconds")?;
    Ok(Phase {
        name: name.text.trim().into(),
        duration: Duration::from_millis(millis),
        rate: None,
        hot_share: DEFAULT_HOT_SHARE,
        accesses: accesses
            .iter()
            .map(|line| access(*line, areas, mode))
            .collect::<std::result::Result<_, _>>()?,
    })
}

fn access(line: Line<'_>, areas: &[Area], mode: Mode) -> std::result::Result<Access, ParseFault> {
    let fields = line.fields();
    let ([name, random, stride, weight] | [name, random, stride, weight, _]) = fields.as_slice()
    else {
        return Err(line.bad(format!("an access has 4 or 5 fields, not {}", fields.len())));
    };
    let found = areas.iter().position(|area| area.name == name.text);
    let area = found.ok_or_else(|| name.bad(format!("there is no region `{}`", name.text)))?;
    let stride: u64 = stride.number("a number of bytes")?;
    // masim goes to the first byte when it has passed the last one: with a stride of at least the
    // size, and with none, it stays there.
    let bytes = areas[area].bytes;
    let stride = if stride == 0 || stride > bytes { bytes } else { stride };
    let pattern = match (random.number::<u32>("0 or 1")?, mode) {
        (0, _) => Pattern::Sequential { stride },
        (1, Mode::Faithful) => Pattern::Table,
        (1, Mode::Correct) => Pattern::Random,
        _ => return Err(random.bad(format!("`{}` is not 0 or 1", random.text))),
    };
    Ok(Access {
        area,
        from: 0,
        bytes,
        pattern,
        weight: weight.number::<u32>("a weight, a whole number")?.into(),
        mix: fields.get(4).map_or(Ok(Mix::Writes(1.0)), rw_mode)?,
        chase: false,
        hot: None,
    })
}

fn rw_mode(field: &Field<'_>) -> std::result::Result<Mix, ParseFault> {
    match field.text {
        "ro" => Ok(Mix::Writes(0.0)),
        "wo" => Ok(Mix::Writes(1.0)),
        "rw" => Ok(Mix::Update),
        other => Err(field.bad(format!("`{other}` is not ro, wo or rw"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ZIGZAG: &str = "\
# two regions
a, 100000000
b, 100000000, none

# both
start
10000
a, 0, 4096, 1
# a comment in between
b, 0, 4096, 1, ro

only a
5000
a, 1, 64, 50, rw
";

    #[test]
    fn regions_phases_and_modes() {
        let workload = parse("zigzag", ZIGZAG, Mode::Correct).unwrap();
        assert_eq!(workload.areas.iter().map(|a| a.bytes).collect::<Vec<_>>(), [100_000_000; 2]);
        let [start, only_a] = workload.phases.as_slice() else { panic!("{:?}", workload.phases) };
        assert_eq!((start.name.as_str(), start.duration), ("start", Duration::from_secs(10)));
        assert_eq!(start.accesses[0].pattern, Pattern::Sequential { stride: 4096 });
        assert_eq!(start.accesses[0].mix, Mix::Writes(1.0));
        assert_eq!(start.accesses[1].mix, Mix::Writes(0.0));
        assert_eq!(
            (only_a.accesses[0].pattern, only_a.accesses[0].mix),
            (Pattern::Random, Mix::Update)
        );
        let faithful = parse("zigzag", ZIGZAG, Mode::Faithful).unwrap();
        assert_eq!(
            (faithful.burst, faithful.phases[1].accesses[0].pattern),
            (BURST, Pattern::Table)
        );
    }

    // Region `a` has 100,000,000 bytes: with no stride, and with one beyond it, only its first byte
    // is accessed.
    #[test]
    fn a_stride_beyond_the_region_stays_at_its_beginning() {
        for stride in ["0", "100000001"] {
            let text = ZIGZAG.replacen("a, 0, 4096", &format!("a, 0, {stride}"), 1);
            let workload = parse("zigzag", &text, Mode::Correct).unwrap();
            let access = &workload.phases[0].accesses[0];
            assert_eq!(access.pattern, Pattern::Sequential { stride: 100_000_000 });
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = |text: &str| parse("f", text, Mode::Correct).unwrap_err().to_string();
        let replaced = |from: &str, to: &str| error(&ZIGZAG.replacen(from, to, 1));
        assert!(replaced("a, 1,", "c, 1,").starts_with("f:14:1: there is no region `c`"));
        assert!(
            replaced("a, 1, 64", "a, 1, x").starts_with("f:14:7: `x` is not a number of bytes")
        );
        assert!(
            replaced("5000", "soon").starts_with("f:13:1: `soon` is not a number of milliseconds")
        );
        assert!(replaced(", rw", ", xx").starts_with("f:14:15: `xx` is not ro, wo or rw"));
        assert!(replaced("a, 1, 64", "a, 2, 64").starts_with("f:14:4: `2` is not 0 or 1"));
        assert!(
            replaced("a, 1, 64, 50, rw", "a, 1")
                .starts_with("f:14:1: an access has 4 or 5 fields, not 2")
        );
        assert!(replaced("a, 100000000", "a, 0").starts_with("f:2:1: area `a` is empty"));
        assert!(
            error("a, 1\na, 2\n\np\n1\na, 1, 1, 1\n").starts_with("f:2:1: there are two areas `a`")
        );
        assert!(error("").starts_with("f:1:1: there is no region"));
        assert!(error("a, 1\n").starts_with("f:1:1: there is no phase"));
        assert!(error("a, 1\n\np\n").starts_with("f:3:1: the phase has no line of milliseconds"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse("any", &text, Mode::Correct);
        }

        #[test]
        fn damaged_text_is_read_or_refused(at in 0usize..ZIGZAG.len(), with in "[ -~\n]{0,4}", cut in 0usize..6) {
            let end = (at + cut).min(ZIGZAG.len());
            let _ = parse("any", &format!("{}{with}{}", &ZIGZAG[..at], &ZIGZAG[end..]), Mode::Faithful);
        }

        #[test]
        fn errors_lie_within_the_text(text in "[ab0-9,# \nrwo]{0,80}") {
            if let Err(bad) = read("any", &text, Mode::Correct) {
                prop_assert!(bad.line >= 1 && bad.line <= text.lines().count().max(1));
                let line = text.lines().nth(bad.line - 1).unwrap_or("");
                prop_assert!(bad.column >= 1 && bad.column <= line.chars().count() + 1);
            }
        }
    }
}
