//! HPCC RandomAccess: `gups:table=1GiB,updates=4,threads=4`.
//!
//! The table is a power of two of words of 64 bits. Four times as many updates as words (another
//! multiple with `updates`) XOR the next number of a random stream into the word that its low bits
//! select. The stream is that of the primitive polynomial x^63 + x^2 + x + 1 over GF(2), run as 128
//! streams that share it, of which none looks more than 1024 updates ahead (HPC Challenge,
//! RandomAccess rules; `HPCC_starts` gives where a stream begins).
//!
//! The content of a word never determines an address, so the lanes hold no table: terabytes cost
//! nothing. The 128 numbers of the streams occupy one kilobyte that always stays in the cache, and
//! their accesses are left out.

use std::sync::Arc;
use tierscope_core::units;

use crate::description::{Access, Area, DEFAULT_HOT_SHARE, Mix, Pattern, Phase};
use crate::programs::{self, Family};
use crate::spec::{Keys, Parsed};
use crate::team::{Array, Kernel, Loop, Out, team};
use crate::{App, Lane, Workload};

/// The polynomial x^63 + x^2 + x + 1 without its highest term.
const POLY: u64 = 7;
/// Period of the random stream, in steps.
const PERIOD: i64 = 1_317_624_576_693_539_401;
/// Streams that are run at a time.
const STREAMS: u64 = 128;
/// Steps of all streams in a lane's chunk: 2^19 updates.
const STEPS: u64 = 4096;
/// Bytes of a table word.
const WORD: u64 = 8;

pub(crate) const FAMILY: Family = Family { names: &["gups"], build };

/// The RandomAccess program.
#[derive(Debug)]
struct RandomAccess {
    name: String,
    areas: [Area; 1],
    updates: u64,
    threads: Option<u32>,
}

fn build(name: &str, keys: &mut Keys<'_>) -> Parsed<Arc<dyn App>> {
    let bytes = keys.take("table", 1 << 30, |text| {
        let bytes = units::size(text)?;
        let fits = bytes.is_power_of_two() && (STREAMS * WORD..=1 << 50).contains(&bytes);
        fits.then_some(bytes)
            .ok_or_else(|| format!("`{text}` is no power of two from 1KiB to 1PiB"))
    })?;
    let times = keys.within("updates", 4, 1..=1 << 20)?;
    Ok(Arc::new(RandomAccess {
        name: format!("{name} on {}", units::about_size(bytes)),
        areas: [Area { name: "table".into(), bytes, content: None }],
        updates: bytes / WORD * times,
        threads: programs::threads(keys)?,
    }))
}

impl App for RandomAccess {
    fn name(&self) -> &str {
        &self.name
    }

    fn areas(&self) -> &[Area] {
        &self.areas
    }

    fn unit(&self) -> &'static str {
        "updates"
    }

    fn threads(&self) -> Option<u32> {
        self.threads
    }

    // Over a few thousand updates the words are practically uniform and independent.
    fn described(&self) -> Option<Workload> {
        let access = Access {
            area: 0,
            from: 0,
            bytes: self.areas[0].bytes,
            pattern: Pattern::Random,
            weight: 1.0,
            mix: Mix::Update,
            chase: false,
            hot: None,
        };
        let phase = Phase {
            name: "updates".into(),
            duration: std::time::Duration::from_secs(60),
            rate: None,
            hot_share: DEFAULT_HOT_SHARE,
            accesses: vec![access],
        };
        Some(Workload {
            name: "gups".into(),
            seed: 1,
            burst: 1,
            areas: self.areas.to_vec(),
            phases: vec![phase],
        })
    }

    /// The benchmark defines one stream only; the seed selects how far into it a run begins, and
    /// seed 1 is its beginning.
    fn start(&self, bases: &[u64], seed: u64, lanes: u32) -> Vec<Box<dyn Lane>> {
        let updates = Updates {
            table: Array::new(bases[0], WORD),
            mask: self.areas[0].bytes / WORD - 1,
            steps: self.updates / STREAMS,
            first: (seed.wrapping_sub(1) as i64).rem_euclid(PERIOD),
            jumps: Jumps::new(),
            begun: false,
            chunks: vec![Chunk::default(); lanes as usize],
        };
        team(updates, lanes)
    }
}

/// All updates, as one loop over the steps of the streams.
struct Updates {
    table: Array,
    mask: u64,
    /// Steps of each stream.
    steps: u64,
    /// Offset of the first stream into the random stream.
    first: i64,
    jumps: Jumps,
    begun: bool,
    /// The chunk that each lane works on.
    chunks: Vec<Chunk>,
}

/// A lane's state of the streams.
#[derive(Clone)]
struct Chunk {
    /// The step that `ran` continues with.
    at: u64,
    ran: [u64; STREAMS as usize],
}

impl Default for Chunk {
    fn default() -> Self {
        Self { at: u64::MAX, ran: [0; STREAMS as usize] }
    }
}

impl Kernel for Updates {
    fn next_loop(&mut self, _: &mut Out) -> Option<Loop> {
        let first = !std::mem::replace(&mut self.begun, true);
        first.then_some(Loop { items: self.steps, chunk: STEPS })
    }

    fn one(&mut self, lane: usize, step: u64, out: &mut Out) {
        let chunk = &mut self.chunks[lane];
        if chunk.at != step {
            for (stream, ran) in chunk.ran.iter_mut().enumerate() {
                let step = stream as u64 * self.steps + step;
                *ran = self
                    .jumps
                    .at((self.first as i128 + step as i128).rem_euclid(PERIOD as i128) as i64);
            }
        }
        for ran in &mut chunk.ran {
            *ran = next(*ran);
            out.update(self.table, *ran & self.mask);
        }
        chunk.at = step + 1;
        out.complete(STREAMS);
    }
}

/// The next number of the random stream.
#[inline(always)]
fn next(ran: u64) -> u64 {
    (ran << 1) ^ if (ran as i64) < 0 { POLY } else { 0 }
}

/// Computes any number of the stream: a step is linear over GF(2), so 2^k steps are a matrix of
/// bits.
struct Jumps {
    /// Per k, the images of the 64 unit bits under 2^k steps.
    powers: Vec<[u64; 64]>,
}

impl Jumps {
    fn new() -> Self {
        let mut powers = vec![std::array::from_fn(|bit| next(1 << bit))];
        for _ in 1..61 {
            let last: [u64; 64] = powers[powers.len() - 1];
            powers.push(std::array::from_fn(|bit| apply(&last, last[bit])));
        }
        Self { powers }
    }

    /// The number after `step` steps from 1.
    fn at(&self, step: i64) -> u64 {
        let bits = (0..self.powers.len()).filter(|bit| step >> bit & 1 == 1);
        bits.fold(1, |ran, bit| apply(&self.powers[bit], ran))
    }
}

/// Product of a matrix over GF(2) and a number.
fn apply(matrix: &[u64; 64], mut ran: u64) -> u64 {
    let mut made = 0;
    while ran != 0 {
        made ^= matrix[ran.trailing_zeros() as usize];
        ran &= ran - 1;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::run_out;
    use proptest::prelude::{prop_assert_eq, proptest};

    // 1, 2, 4, … 2^63, and then the polynomial.
    #[test]
    fn the_stream_follows_its_polynomial() {
        let stream: Vec<u64> =
            std::iter::successors(Some(1), |ran| Some(next(*ran))).take(66).collect();
        assert_eq!((stream[63], stream[64], stream[65]), (1 << 63, 7, 14));
        let jumps = Jumps::new();
        (0..66).for_each(|step| assert_eq!(jumps.at(step), stream[step as usize]));
    }

    #[test]
    fn the_stream_repeats_after_its_period() {
        let jumps = Jumps::new();
        assert_eq!(next(jumps.at(PERIOD - 1)), 1);
    }

    // The rule as the benchmark states it: one stream, one table, no lanes.
    fn naive(words: u64, updates: u64) -> Vec<u64> {
        let mut table: Vec<u64> = (0..words).collect();
        let mut ran = 1;
        for _ in 0..updates {
            ran = next(ran);
            table[(ran & (words - 1)) as usize] ^= ran;
        }
        table
    }

    // An address alone does not determine the number, so the test runs the streams in parallel:
    // each lane's accesses must be those of its chunks, and all chunks together those of the rule.
    fn handed(words: u64, lanes: u32, batch: usize) -> Vec<u64> {
        let app = programs::from_spec(&format!("gups:table={}", words * WORD)).unwrap();
        let mut lanes = app.start(&[4096], 1, lanes);
        let all = run_out(&mut lanes, batch);
        let mut counts = vec![0; words as usize];
        for touch in all.iter().flatten() {
            assert!(touch.reads() && touch.writes());
            counts[((touch.address() - 4096) / WORD) as usize] += 1;
        }
        assert_eq!(lanes.iter().map(|lane| lane.operations()).sum::<u64>(), 4 * words);
        counts
    }

    fn naive_counts(words: u64) -> Vec<u64> {
        let mut counts = vec![0; words as usize];
        let stream = std::iter::successors(Some(next(1)), |ran| Some(next(*ran)));
        stream.take(4 * words as usize).for_each(|ran| counts[(ran & (words - 1)) as usize] += 1);
        counts
    }

    // Applying the same updates twice restores the table: the benchmark's own verification.
    #[test]
    fn updates_undo_themselves() {
        let once = naive(1024, 4096);
        let mut ran = 1;
        let mut table = once.clone();
        for _ in 0..4096 {
            ran = next(ran);
            table[(ran & 1023) as usize] ^= ran;
        }
        assert_ne!(once, (0..1024).collect::<Vec<u64>>());
        assert_eq!(table, (0..1024).collect::<Vec<u64>>());
    }

    proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(16))]

        #[test]
        fn lanes_apply_the_update_rule(bits in 7u32..14, lanes in 1u32..5, batch in 1usize..700) {
            prop_assert_eq!(handed(1 << bits, lanes, batch), naive_counts(1 << bits));
        }

        #[test]
        fn a_jump_is_as_many_steps(step in 0i64..100_000) {
            let walked = (0..step).fold(1, |ran, _| next(ran));
            prop_assert_eq!(Jumps::new().at(step), walked);
        }
    }

    #[test]
    fn it_is_described_by_a_uniform_update() {
        let workload = crate::file::load("gups:table=1TiB", crate::masim::Mode::Correct).unwrap();
        assert_eq!((workload.bytes(), workload.check()), (1 << 40, Ok(())));
        assert_eq!(workload.phases[0].accesses[0].mix, Mix::Update);
    }
}
