//! Stand-ins for programs of SPEC CPU2006, PARSEC and SPLASH-2, which are not available here:
//! **not** mcf, cactusADM and so on, but memory with access patterns modelled after theirs. Results
//! are labelled as such: the names begin with `stand-in-`.
//!
//! The patterns follow the programs' sources; sizes are of the order of their resident memory. The
//! distribution of a program's accesses over its areas, and the share that stays in a few lines of
//! its stack, are **assumed**, once and for all, and never fitted to any result: where such a share
//! matters, `local`, `writes` and `shrink` override it.
//!
//! | name | modelled after | pattern |
//! |---|---|---|
//! | `stand-in-mcf` | 429.mcf | sweeps arcs, random look-ups of nodes and of some arcs |
//! | `stand-in-cactusadm` | 436.cactusADM | stencil over a grid; outer steps are a page apart |
//! | `stand-in-astar` | 473.astar | paths grow around a place of a map that moves on |
//! | `stand-in-leslie3d` | 437.leslie3d | streams through fields |
//! | `stand-in-streamcluster` | PARSEC | streams through points, random centres |
//! | `stand-in-canneal` | PARSEC | swaps random netlist elements and reads their nets |
//! | `stand-in-raytrace` | PARSEC | rays descend a tree with hot upper nodes |
//! | `stand-in-fft` | SPLASH-2 | gathers columns of a matrix, works on rows |
//! | `stand-in-x264` | PARSEC | searches blocks of a frame near their old positions |
//!
//! | key | meaning |
//! |---|---|
//! | `shrink` | divisor of all sizes except the stack's; default 1 |
//! | `local` | share of the accesses that go to 16 KiB of stack |
//! | `writes` | share of all accesses that write |
//! | `seed` | of the random draws |

use std::time::Duration;

use crate::Workload;
use crate::description::{Access, Area, DEFAULT_HOT_SHARE, Mix, Pattern, Phase};
use crate::spec::{Keys, Parsed};

/// Bytes of stack that stay in any first-level cache.
const STACK: u64 = 16 << 10;
const MIB: u64 = 1 << 20;
/// Stride of a stencil's outer axis: a page and a line.
const OUTER: u64 = 4096 + 64;

/// The accesses of a program to one area, and their pattern.
struct Part {
    area: &'static str,
    bytes: u64,
    pattern: Pattern,
    weight: f64,
}

/// A program's parts, and the shares of its accesses that stay on its stack and that write.
struct Program {
    parts: Vec<Part>,
    local: f64,
    writes: f64,
}

fn part(area: &'static str, mib: u64, pattern: Pattern, weight: f64) -> Part {
    Part { area, bytes: mib * MIB, pattern, weight }
}

fn stride(stride: u64) -> Pattern {
    Pattern::Sequential { stride }
}

fn near(kib: u64) -> Pattern {
    let window = kib << 10;
    Pattern::Drift { window, step: window / 2, every: Duration::from_millis(5) }
}

/// The model of a program; `None` if the name is unknown.
fn program(name: &str) -> Option<Program> {
    let random = Pattern::Random;
    let (parts, local, writes) = match name {
        "mcf" => {
            let swept = part("arcs", 1536, stride(72), 1.0);
            let met = part("arcs", 1536, Pattern::Random, 0.5);
            (vec![swept, met, part("nodes", 8, random, 2.0)], 0.7, 0.1)
        }
        "cactusadm" => {
            let grid = [part("grid", 640, stride(OUTER), 1.0), part("grid", 640, stride(8), 1.0)];
            (grid.into(), 0.8, 0.25)
        }
        "astar" => {
            (vec![part("map", 320, near(8192), 1.0), part("bounds", 16, random, 0.3)], 0.8, 0.2)
        }
        "leslie3d" => (vec![part("fields", 120, stride(8), 1.0)], 0.5, 0.3),
        "streamcluster" => {
            (vec![part("points", 110, stride(8), 1.0), part("centres", 1, random, 0.2)], 0.6, 0.05)
        }
        "canneal" => {
            let nets = Pattern::Zipf { item: 64, theta: 0.99, scrambled: true };
            (vec![part("elements", 640, random, 1.0), part("nets", 256, nets, 1.0)], 0.8, 0.2)
        }
        "raytrace" => {
            let tree = Pattern::Zipf { item: 64, theta: 0.99, scrambled: true };
            let scene = [part("tree", 512, tree, 1.0), part("triangles", 512, random, 0.1)];
            (scene.into(), 0.85, 0.1)
        }
        "fft" => {
            let rows =
                [part("matrix", 768, stride(OUTER), 0.2), part("matrix", 768, stride(8), 1.0)];
            (rows.into(), 0.5, 0.4)
        }
        "x264" => (vec![part("frames", 256, near(1024), 1.0)], 0.8, 0.2),
        _ => return None,
    };
    Some(Program { parts, local, writes })
}

/// Whether there is a stand-in for a program of that name.
pub(crate) fn knows(name: &str) -> bool {
    program(name).is_some()
}

pub(crate) fn build(name: &str, keys: &mut Keys<'_>) -> Parsed<Workload> {
    let Some(given) = program(name) else { return Err((1, format!("nothing is after {name}"))) };
    let shrink = keys.within("shrink", 1u64, 1..=1 << 10)?;
    let local = keys.number("local", given.local)?;
    let writes = keys.number("writes", given.writes)?;
    let seed = keys.number("seed", 1)?;
    if !(0.0..1.0).contains(&local) || !(0.0..=1.0).contains(&writes) {
        return Err((1, "local and writes are shares, and local is below 1".into()));
    }
    let mut areas = vec![Area { name: "stack".into(), bytes: STACK, content: None }];
    let mix = Mix::Writes(writes);
    let access = |area, bytes, pattern, weight| Access {
        area,
        from: 0,
        bytes,
        pattern,
        weight,
        mix,
        chase: false,
        hot: None,
    };
    let all: f64 = given.parts.iter().map(|part| part.weight).sum();
    let mut accesses = Vec::new();
    if local > 0.0 {
        accesses.push(access(0, STACK, Pattern::Random, local * all / (1.0 - local)));
    }
    for part in given.parts {
        let bytes = (part.bytes / shrink).max(MIB);
        let known = areas.iter().position(|area| area.name == part.area);
        let area = known.unwrap_or(areas.len());
        if known.is_none() {
            areas.push(Area { name: part.area.into(), bytes, content: None });
        }
        let pattern = match part.pattern {
            Pattern::Drift { window, step, every } => {
                let window = window.min(bytes / 2);
                Pattern::Drift { window, step: step.min(window), every }
            }
            other => other,
        };
        accesses.push(access(area, bytes, pattern, part.weight));
    }
    let name = format!("stand-in-{name}");
    let phase = Phase {
        name: name.clone(),
        duration: Duration::from_secs(60),
        rate: None,
        hot_share: DEFAULT_HOT_SHARE,
        accesses,
    };
    // Consecutive accesses of these programs are hardly correlated: bursts have one access.
    Ok(Workload { name, seed, burst: 1, areas, phases: vec![phase] })
}

#[cfg(test)]
mod tests {
    use crate::generate::from_spec;

    const ALL: [&str; 9] = [
        "mcf",
        "cactusadm",
        "astar",
        "leslie3d",
        "streamcluster",
        "canneal",
        "raytrace",
        "fft",
        "x264",
    ];

    #[test]
    fn every_name_marks_a_stand_in() {
        for name in ALL {
            let workload = from_spec(&format!("stand-in-{name}")).unwrap();
            assert_eq!(workload.name, format!("stand-in-{name}"));
            assert_eq!(workload.areas[0].name, "stack");
        }
        assert!(from_spec("stand-in-gcc").is_err());
        assert!(from_spec("stand-in-mcf:local=1").is_err());
        assert!(from_spec("stand-in-mcf:shrink=0").is_err());
    }

    // mcf: the weights 1, 0.5 and 2 are 30 % of all, so the 70 % on the stack weigh 3.5 / 0.3 *
    // 0.7.
    #[test]
    fn shares_are_of_all_accesses() {
        let workload = from_spec("stand-in-mcf:shrink=4").unwrap();
        let weights: Vec<f64> = workload.phases[0].accesses.iter().map(|a| a.weight).collect();
        let all: f64 = weights.iter().sum();
        assert!(
            (weights[0] / all - 0.7).abs() < 1e-9
                && (weights[3] / all - 0.3 * 2.0 / 3.5).abs() < 1e-9
        );
        let bytes: Vec<u64> = workload.areas.iter().map(|area| area.bytes >> 20).collect();
        assert_eq!(bytes, [0, 384, 2]);
    }
}
