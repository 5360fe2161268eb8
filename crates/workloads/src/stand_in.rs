//! Stand-ins for applications that cannot run here: **not** RUBiS, SPECpower, xalan or lusearch,
//! but memory with the three kinds of pages that the MULTI-CLOCK paper (HPCA 2022, section II-A)
//! distinguishes in samples of theirs: always hot, hardly accessed, and *tier-friendly*: hot at
//! times only. Results are labelled as such: the names begin with `stand-in-`.
//!
//! The heat maps of the paper's figure 1 are pictures without numbers, so every number here is
//! assumed: services under steady load (RUBiS, SPECpower) get long turns and a large part that is
//! always hot; programs that stream through their input (xalan, lusearch) get short turns and more
//! tier-friendly pages. All numbers are keys, to be varied.
//!
//! | key | meaning |
//! |---|---|
//! | `space` | bytes; default 1GiB |
//! | `dram` | share of the bytes that is always hot |
//! | `tier` | share of the bytes that is hot at times |
//! | `groups` | parts of the latter, which are hot one after the other |
//! | `every` | how long one group is hot |
//! | `ratio` | how many times hotter a tier-friendly byte is in its turn than otherwise |
//! | `writes` | share of the accesses |
//! | `seed` | of the random positions of the pages in the space |

use std::time::Duration;

use tierscope_core::Rng;

use crate::Workload;
use crate::description::{Access, Area, DEFAULT_HOT_SHARE, Mix, Pattern, Phase};
use crate::spec::{Keys, Parsed};

/// Uniformly accessed chunks of the space: finer than the resolution of the shares.
const CHUNKS: u64 = 200;
/// Heat of hardly accessed bytes, relative to tier-friendly bytes outside of their turn. Assumed,
/// for "very infrequent accesses" of the paper.
const COLDER: f64 = 0.1;

struct Assumed {
    dram: f64,
    tier: f64,
    groups: u64,
    every: Duration,
    ratio: f64,
    writes: f64,
}

fn assumed(application: &str) -> Assumed {
    let secs = Duration::from_secs;
    match application {
        "rubis" => {
            Assumed { dram: 0.15, tier: 0.3, groups: 4, every: secs(20), ratio: 20.0, writes: 0.2 }
        }
        "specpower" => {
            Assumed { dram: 0.25, tier: 0.2, groups: 4, every: secs(30), ratio: 10.0, writes: 0.3 }
        }
        "xalan" => {
            Assumed { dram: 0.05, tier: 0.5, groups: 10, every: secs(5), ratio: 40.0, writes: 0.4 }
        }
        _ => Assumed { dram: 0.1, tier: 0.4, groups: 8, every: secs(5), ratio: 40.0, writes: 0.3 },
    }
}

pub(crate) fn build(application: &str, keys: &mut Keys<'_>) -> Parsed<Workload> {
    let given = assumed(application);
    let space = keys.bytes("space", 1 << 30)?;
    let shares = Assumed {
        dram: keys.number("dram", given.dram)?,
        tier: keys.number("tier", given.tier)?,
        groups: keys.number("groups", given.groups)?,
        every: keys.time("every", given.every)?,
        ratio: keys.number("ratio", given.ratio)?,
        writes: keys.number("writes", given.writes)?,
    };
    let seed = keys.number("seed", 1)?;
    check(&shares, space).map_err(|what| (1, what))?;
    let chunks = Chunks::draw(&shares, seed);
    let name = format!("stand-in-{application}");
    let phase = |turn: u64| Phase {
        name: format!("{name}, turn {turn}"),
        duration: shares.every,
        rate: None,
        hot_share: DEFAULT_HOT_SHARE,
        accesses: chunks.accesses(&shares, space, turn),
    };
    Ok(Workload {
        phases: (0..shares.groups).map(phase).collect(),
        areas: vec![Area { name: name.clone(), bytes: space, content: None }],
        seed,
        burst: 1,
        name,
    })
}

fn check(shares: &Assumed, space: u64) -> Result<(), String> {
    let share = |share: f64| (0.0..=1.0).contains(&share);
    if !(share(shares.dram) && share(shares.tier) && shares.dram + shares.tier <= 1.0) {
        return Err("dram and tier are shares within 0..1, together at most 1".into());
    }
    if shares.groups == 0 || shares.groups > (shares.tier * CHUNKS as f64) as u64 {
        return Err(format!("1 to {} groups fit into tier", (shares.tier * CHUNKS as f64) as u64));
    }
    if !(shares.ratio >= 1.0 && shares.ratio <= 1e6) {
        return Err("ratio is a number from 1 to 1000000".into());
    }
    if space < CHUNKS {
        return Err(format!("space is at least {CHUNKS} bytes"));
    }
    Ok(())
}

/// The chunks of each kind.
struct Chunks {
    dram: Vec<u64>,
    groups: Vec<Vec<u64>>,
    cold: Vec<u64>,
}

impl Chunks {
    fn draw(shares: &Assumed, seed: u64) -> Self {
        let mut order: Vec<u64> = (0..CHUNKS).collect();
        let mut rng = Rng::seeded(seed);
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let count = |share: f64| (share * CHUNKS as f64).round() as usize;
        let (dram, tier) =
            (count(shares.dram), count(shares.tier).min(CHUNKS as usize - count(shares.dram)));
        let each = |group: u64| tier * group as usize / shares.groups as usize;
        let groups = (0..shares.groups).map(|g| order[dram..][each(g)..each(g + 1)].to_vec());
        Self {
            groups: groups.collect(),
            cold: order[dram + tier..].to_vec(),
            dram: order[..dram].to_vec(),
        }
    }

    /// One access per chunk; its weight is the chunk's heat.
    fn accesses(&self, shares: &Assumed, space: u64, turn: u64) -> Vec<Access> {
        let chunk = space / CHUNKS;
        let mix = Mix::Writes(shares.writes);
        let access = |at: u64, weight: f64| Access {
            area: 0,
            from: at * chunk,
            bytes: if at + 1 == CHUNKS { space - at * chunk } else { chunk },
            pattern: Pattern::Random,
            weight,
            mix,
            chase: false,
            hot: None,
        };
        let mut accesses: Vec<Access> =
            self.dram.iter().map(|at| access(*at, shares.ratio)).collect();
        for (group, chunks) in (0..).zip(&self.groups) {
            let weight = if group == turn { shares.ratio } else { 1.0 };
            accesses.extend(chunks.iter().map(|at| access(*at, weight)));
        }
        accesses.extend(self.cold.iter().map(|at| access(*at, COLDER)));
        accesses.sort_by_key(|access| access.from);
        accesses
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::from_spec;
    use crate::{Program, Stream, Touch};
    use std::collections::HashMap;
    use std::sync::Arc;

    const ALL: [&str; 4] =
        ["stand-in-rubis", "stand-in-specpower", "stand-in-xalan", "stand-in-lusearch"];

    #[test]
    fn every_name_marks_a_stand_in() {
        for spec in ALL {
            let workload = from_spec(spec).unwrap();
            assert_eq!(workload.name, spec);
            assert!(workload.areas.iter().all(|area| area.name.starts_with("stand-in-")));
            assert!(workload.phases.iter().all(|phase| phase.name.starts_with("stand-in-")));
        }
        assert!(from_spec("stand-in-h2").is_err());
        assert!(from_spec("stand-in-xalan:dram=0.9,tier=0.5").is_err());
        assert!(from_spec("stand-in-xalan:groups=0").is_err());
    }

    // Of 200 chunks, 1 in 10 is always hot, and 3 in 10 at times, in 3 turns: in each turn 20 and
    // 20 of 60 are hot, and the other 40 warm.
    #[test]
    fn tier_friendly_bytes_are_hot_in_rotation() {
        let spec = "stand-in-rubis:dram=0.1,tier=0.3,groups=3,ratio=8,space=200KiB";
        let workload = from_spec(spec).unwrap();
        let hot: Vec<Vec<u64>> = workload
            .phases
            .iter()
            .map(|p| p.accesses.iter().filter(|a| a.weight == 8.0).map(|a| a.from).collect())
            .collect();
        assert!(hot.iter().all(|turn| turn.len() == 40));
        let always = hot[0].iter().filter(|at| hot[1].contains(at) && hot[2].contains(at)).count();
        assert_eq!(always, 20);
        let warm = workload.phases[0].accesses.iter().filter(|a| a.weight == 1.0).count();
        assert_eq!((warm, workload.phases[0].accesses.len()), (40, 200));
    }

    // The claim of the paper's figure 2: pages accessed more than once in a window are accessed
    // more often in the next window than pages accessed once. 2000 pages, 4000 accesses per window,
    // one turn.
    #[test]
    fn pages_seen_more_than_once_are_hotter_later() {
        for spec in ALL {
            let workload = from_spec(&format!("{spec}:space=8000KiB")).unwrap();
            let mut stream = Stream::new(&Arc::new(Program::new(&workload)), &[0], 1, 0, 1);
            let mut window = || {
                let mut touches = vec![Touch::default(); 4000];
                stream.fill(&mut touches);
                let mut pages: HashMap<u64, u32> = HashMap::new();
                touches.iter().for_each(|t| *pages.entry(t.address() / 4096).or_default() += 1);
                pages
            };
            let (seen, later) = (window(), window());
            let mean = |often: fn(u32) -> bool| {
                let pages: Vec<u64> =
                    seen.iter().filter(|page| often(*page.1)).map(|page| *page.0).collect();
                let sum: u32 = pages.iter().filter_map(|page| later.get(page)).sum();
                f64::from(sum) / pages.len() as f64
            };
            let (once, more) = (mean(|n| n == 1), mean(|n| n > 1));
            assert!(more > 2.0 * once, "{spec}: {once} after once, {more} after more");
        }
    }
}
