//! Ready-made workloads by a line: `stairs:space=1TiB,hot=10GiB,steps=4,every=4s`.
//!
//! | name | meaning | keys of its own |
//! |---|---|---|
//! | `contiguous` | one hot range | `hot`, `at` |
//! | `stairs` | a hot range that moves up by a step each phase | `hot`, `steps`, `every` |
//! | `needle` | a very small hot range, by default in the middle | `hot`, `at` |
//! | `scattered` | hot ranges at random positions | `ranges`, `range` |
//! | `striped` | hot stripes at equal distances | `range`, `apart` |
//! | `graded` | ranges, each `ratio` times as hot as the one before | `ranges`, `range`, `ratio` |
//! | `zipf` | items by Zipf's law | `item`, `theta`, `scrambled` |
//! | `gaussian` | items by a normal distribution | `item`, `mean`, `sd` |
//! | `drift` | a hot window that moves on | `window`, `step`, `every` |
//! | `neighbour` | a noisy neighbour ([`crate::neighbour`]) | `bandwidth`, `on`, `off` |
//! | `stand-in-…` | stand-ins for real programs | see below |
//!
//! [`crate::stand_in`] has page heat like that of an application, [`crate::stand_in_spec`] access
//! patterns like those of a program.
//!
//! All but the last two have the keys `space` (bytes of the one area), `time` (of a phase, or of
//! all), `share` (of the accesses that follow the pattern; the rest are uniform over the space;
//! default 1), `writes` (share of the accesses), `chase` (each access depends on the one before),
//! `stride` (the hot range is swept instead of accessed at random), `rate` (accesses a second),
//! `hot-share`, `burst` and `seed`.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result, names};

use crate::description::{
    Access, Area, DEFAULT_BURST, DEFAULT_HOT_SHARE, Mix, Pattern, Phase, Workload,
};
use crate::spec::{Keys, Parsed};
use crate::{neighbour, stand_in, stand_in_spec, work};

/// Names that [`from_spec`] accepts.
pub const NAMES: [&str; 23] = [
    "contiguous",
    "stairs",
    "needle",
    "scattered",
    "striped",
    "graded",
    "zipf",
    "gaussian",
    "drift",
    "neighbour",
    "stand-in-rubis",
    "stand-in-specpower",
    "stand-in-xalan",
    "stand-in-lusearch",
    "stand-in-mcf",
    "stand-in-cactusadm",
    "stand-in-astar",
    "stand-in-leslie3d",
    "stand-in-streamcluster",
    "stand-in-canneal",
    "stand-in-raytrace",
    "stand-in-fft",
    "stand-in-x264",
];

/// Builds a workload from `NAME:key=value,…`.
///
/// # Errors
/// [`ErrorKind::Usage`] for an unknown name or key, an invalid value, or parts that do not fit.
pub fn from_spec(spec: &str) -> Result<Workload> {
    build(spec).map_err(|(column, cause)| {
        Error::new(ErrorKind::Usage, format!("workload `{spec}`, column {column}"))
            .cause(cause)
            .remedy(format!(
                "give a file, or NAME:key=value,… with one of {}",
                work::listed(work::names())
            ))
    })
}

fn build(spec: &str) -> Parsed<Workload> {
    let (name, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let known = NAMES.into_iter().find(|known| names::same(known, name));
    let name = known.ok_or_else(|| (1, format!("there is no workload `{name}`")))?;
    let mut keys = Keys::read(rest, name.chars().count() + 2)?;
    let workload = match name.strip_prefix("stand-in-") {
        Some(program) if stand_in_spec::knows(program) => stand_in_spec::build(program, &mut keys)?,
        Some(application) => stand_in::build(application, &mut keys)?,
        None if name == "neighbour" => neighbour::build(&mut keys)?,
        None => pattern(name, &mut keys)?,
    };
    keys.all_used(name)?;
    workload.check().map_err(|fault| (1, fault.what))?;
    Ok(workload)
}

fn pattern(name: &str, keys: &mut Keys<'_>) -> Parsed<Workload> {
    let space = keys.bytes("space", 1 << 30)?;
    let area = Area { name: name.into(), bytes: space, content: None };
    let phases = keys.phases(name, space)?;
    Ok(Workload {
        name: name.into(),
        seed: keys.number("seed", 1)?,
        burst: keys.number("burst", DEFAULT_BURST)?,
        areas: vec![area],
        phases,
    })
}

impl Keys<'_> {
    fn phases(&mut self, name: &str, space: u64) -> Parsed<Vec<Phase>> {
        let grades = if name == "graded" { self.grades(space)? } else { Vec::new() };
        let places = match name {
            "stairs" => self.stairs(space)?,
            "graded" => vec![(0, space, Pattern::Random)],
            _ => vec![self.pattern(name, space)?],
        };
        let time = if name == "stairs" { "every" } else { "time" };
        let duration =
            self.time(time, Duration::from_secs(if name == "stairs" { 4 } else { 60 }))?;
        let rate = self.number("rate", 0)?;
        let hot_share = self.number("hot-share", DEFAULT_HOT_SHARE)?;
        let share = self.number("share", 1.0)?;
        let mix = Mix::Writes(self.number("writes", 0.0)?);
        let stride = self.bytes("stride", 0)?;
        let chase = self.number("chase", false)?;
        let many = places.len() > 1;
        let phase = |(index, (from, bytes, pattern)): (usize, (u64, u64, Pattern))| {
            let pattern = match pattern {
                Pattern::Random if stride > 0 => Pattern::Sequential { stride },
                other => other,
            };
            let hot =
                Access { area: 0, from, bytes, pattern, weight: share, mix, chase, hot: None };
            let all: f64 = grades.iter().map(|(_, _, weight)| weight).sum();
            let graded = grades.iter().map(|(from, bytes, weight)| Access {
                from: *from,
                bytes: *bytes,
                weight: share * weight / all,
                ..hot.clone()
            });
            let graded: Vec<Access> = graded.collect();
            let rest = Access {
                from: 0,
                bytes: space,
                pattern: Pattern::Random,
                weight: 1.0 - share,
                ..hot.clone()
            };
            Phase {
                name: if many { format!("{name} {index}") } else { name.into() },
                duration,
                rate: (rate > 0).then_some(rate),
                hot_share,
                accesses: if graded.is_empty() { vec![hot] } else { graded }
                    .into_iter()
                    .chain((share < 1.0).then_some(rest))
                    .collect(),
            }
        };
        Ok(places.into_iter().enumerate().map(phase).collect())
    }

    /// Offset, size and pattern of the hot part of a single-phase workload.
    fn pattern(&mut self, name: &str, space: u64) -> Parsed<(u64, u64, Pattern)> {
        let whole = |pattern| Ok((0, space, pattern));
        match name {
            "scattered" => {
                let range = self.bytes("range", 2 << 20)?;
                let ranges = self.number("ranges", 100)?;
                whole(Pattern::Scattered { ranges, range })
            }
            "striped" => {
                let range = self.bytes("range", 16 << 10)?;
                whole(Pattern::Striped { range, apart: self.bytes("apart", 2 << 20)? })
            }
            "zipf" => {
                let item = self.bytes("item", 4096)?;
                let theta = self.number("theta", 0.99)?;
                whole(Pattern::Zipf { item, theta, scrambled: self.number("scrambled", false)? })
            }
            "gaussian" => {
                let item = self.bytes("item", 4096)?;
                let items = space.checked_div(item).unwrap_or(0) as f64;
                let mean = self.number("mean", items / 2.0)?;
                whole(Pattern::Gaussian { item, mean, sd: self.number("sd", items / 6.0)? })
            }
            "drift" => {
                let window = self.bytes("window", space / 10)?;
                let step = self.bytes("step", window)?;
                whole(Pattern::Drift {
                    window,
                    step,
                    every: self.time("every", Duration::from_secs(4))?,
                })
            }
            _ => {
                let needle = name == "needle";
                let hot = self.bytes("hot", if needle { 4096 } else { space / 10 })?;
                let middle = (space / 2).saturating_sub(hot / 2) / 4096 * 4096;
                let at = self.bytes("at", if needle { middle } else { 0 })?;
                Ok((at, hot, Pattern::Random))
            }
        }
    }

    /// Offset, size and weight of each range of `graded`; a range lies in the middle of its part of
    /// the space, page-aligned.
    fn grades(&mut self, space: u64) -> Parsed<Vec<(u64, u64, f64)>> {
        let ranges = self.number("ranges", 8u64)?;
        if ranges == 0 || ranges > 64 {
            return Err((1, "there are 1 to 64 graded ranges".into()));
        }
        let width = space / ranges;
        let range = self.bytes("range", width / 16)?;
        let ratio = self.number("ratio", 0.5f64)?;
        if !(ratio > 0.0 && ratio <= 1.0) {
            return Err((1, "the ratio of graded ranges is above 0 and at most 1".into()));
        }
        let middle = width.saturating_sub(range) / 2 / 4096 * 4096;
        let grade = |index: u64| (index * width + middle, range, ratio.powi(index as i32));
        Ok((0..ranges).map(grade).collect())
    }

    /// Offset, size and pattern of each step of `stairs`: equal steps, the hot range page-aligned
    /// in the middle of each.
    fn stairs(&mut self, space: u64) -> Parsed<Vec<(u64, u64, Pattern)>> {
        let hot = self.bytes("hot", space / 100)?;
        let steps = self.number("steps", 4u64)?;
        if steps == 0 || steps > 10_000 {
            return Err((1, "stairs have 1 to 10000 steps".into()));
        }
        let width = space / steps;
        let middle = width.saturating_sub(hot) / 2 / 4096 * 4096;
        Ok((0..steps).map(|step| (step * width + middle, hot, Pattern::Random)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //  0 GiB                 4 GiB
    //  --#--|--#--|--#--|--#--
    #[test]
    fn stairs_climb_through_the_space() {
        let workload = from_spec("stairs:space=4GiB,hot=256MiB,steps=4,every=2s").unwrap();
        let froms: Vec<_> = workload.phases.iter().map(|p| p.accesses[0].from >> 20).collect();
        assert_eq!(froms, [384, 1408, 2432, 3456]);
        assert_eq!(workload.duration(), Duration::from_secs(8));
    }

    #[test]
    fn old_names_are_still_read() {
        let new = "contiguous:space=1GiB,hot=64MiB,share=0.9,hot-share=0.4";
        let built = from_spec(new).unwrap();
        assert_eq!(built.phases[0].hot_share, 0.4);
        assert_eq!(from_spec(&new.replace("hot-share", "hot_share")).unwrap(), built);
        assert_eq!(from_spec("stand_in_mcf").unwrap(), from_spec("stand-in-mcf").unwrap());
        let text = crate::file::to_toml(&built);
        assert!(text.contains("hot-share = 0.4"), "{text}");
        let old = crate::file::parse("old", &text.replace("hot-share", "hot_share"));
        assert_eq!(old.unwrap(), built);
    }

    #[test]
    fn errors_name_the_column() {
        let error = |spec: &str| from_spec(spec).unwrap_err().to_string();
        assert!(
            error("sairs:space=1TiB")
                .starts_with("workload `sairs:space=1TiB`, column 1: there is no workload `sairs`")
        );
        assert!(
            error("zipf:space=1TiB,color=red").contains("column 17: `zipf` has no key `color`")
        );
        assert!(error("zipf:space=1TiB,theta").contains("column 17: `theta` is not key=value"));
        assert!(error("zipf:space=huge").contains("column 6: space: `huge` is not a size"));
        assert!(error("needle:space=4KiB,hot=1GiB").contains("do not fit"));
        assert!(error("zipf:seed=1,seed=2").contains("given twice"));
    }

    proptest! {
        #[test]
        fn any_text_is_made_or_refused(text: String, name in prop::sample::select(NAMES.to_vec())) {
            let _ = from_spec(&text);
            let _ = from_spec(&format!("{name}:{text}"));
        }

        #[test]
        fn any_numbers_are_made_or_refused(name in prop::sample::select(NAMES.to_vec()), space: u64, hot: u64, steps: u64, item: u64) {
            let _ = from_spec(&format!("{name}:space={space},hot={hot}"));
            let _ = from_spec(&format!("{name}:space={space},item={item}"));
            let _ = from_spec(&format!("{name}:space={space},hot={hot},steps={steps}"));
            let _ = from_spec(&format!("{name}:space={space},window={hot},step={steps}"));
        }
    }
}
