//! The edges of a generated graph, drawn from a seed block by block.
//!
//! Kronecker graphs as Graph500 and GAPBS make them: each edge descends `scale` levels of a matrix
//! whose quadrants have the probabilities 0.57, 0.19, 0.19, 0.05 (R-MAT; Graph500 specification,
//! section 3.2), and vertices are renamed so that their numbers do not reveal their degrees.
//! Uniform graphs draw both ends uniformly (GAPBS specification, section 3, "urand").

use tierscope_core::Rng;

use crate::alias::Alias;

/// Edges of a block: each block has a seed of its own.
pub(crate) const BLOCK: u64 = 1 << 14;
/// Levels of the matrix that one draw decides.
const LEVELS: u32 = 4;
/// Probabilities of the quadrants: neither bit set, only the destination's, only the source's,
/// both.
const QUADRANTS: [f64; 4] = [0.57, 0.19, 0.19, 0.05];

/// Distribution of the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kronecker,
    Uniform,
}

/// Parameters of a generated graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) kind: Kind,
    /// The graph has 2^scale vertices.
    pub(crate) scale: u32,
    /// Edges drawn per vertex; each is stored in both directions.
    pub(crate) degree: u64,
    pub(crate) seed: u64,
}

impl Input {
    pub(crate) fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// Edges that are drawn, including self-loops and repetitions.
    pub(crate) fn edges(&self) -> u64 {
        self.vertices() * self.degree
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.edges().div_ceil(BLOCK)
    }
}

/// A generator of edges.
pub(crate) struct Source<'a> {
    input: &'a Input,
    quadrants: Alias,
}

impl<'a> Source<'a> {
    pub(crate) fn new(input: &'a Input) -> Self {
        Self { input, quadrants: Alias::new(&deep_quadrants()) }
    }

    /// Draws the edges of a block.
    pub(crate) fn block(&self, block: u64, out: &mut Vec<(u32, u32)>) {
        let input = self.input;
        let mut rng = Rng::seeded(mix(input.seed ^ block.rotate_left(24)));
        let count = (input.edges() - block * BLOCK).min(BLOCK);
        out.clear();
        out.extend((0..count).map(|_| match input.kind {
            Kind::Uniform => uniform(input.scale, &mut rng),
            Kind::Kronecker => self.kronecker(&mut rng),
        }));
    }

    fn kronecker(&self, rng: &mut Rng) -> (u32, u32) {
        let scale = self.input.scale;
        let (mut from, mut to) = (0, 0);
        for _ in 0..scale.div_ceil(LEVELS) {
            let drawn = self.quadrants.draw(rng) as u32;
            from = from << LEVELS | drawn >> LEVELS;
            to = to << LEVELS | drawn & 0xf;
        }
        // The levels are independent: surplus ones are masked out.
        let mask = ones(scale);
        let rename = |vertex| rename(vertex & mask, scale, self.input.seed);
        (rename(from), rename(to))
    }
}

/// Joint probabilities of four levels: the source's four bits above the destination's.
fn deep_quadrants() -> Vec<f64> {
    let level = |at: u32, bit: u32| {
        let (from, to) = (at >> (LEVELS + bit) & 1, at >> bit & 1);
        QUADRANTS[(2 * from + to) as usize]
    };
    (0..1 << (2 * LEVELS)).map(|at| (0..LEVELS).map(|bit| level(at, bit)).product()).collect()
}

fn uniform(scale: u32, rng: &mut Rng) -> (u32, u32) {
    let draw = rng.next_u64();
    let mask = ones(scale);
    ((draw >> 32) as u32 & mask, draw as u32 & mask)
}

fn ones(bits: u32) -> u32 {
    ((1u64 << bits) - 1) as u32
}

/// Renames a vertex: a permutation of the numbers of `bits` bits. Multiplying by an odd number and
/// folding the upper half into the lower are both invertible.
fn rename(vertex: u32, bits: u32, seed: u64) -> u32 {
    let mask = ones(bits);
    let half = bits.div_ceil(2);
    let mut name = vertex;
    for round in 0..3 {
        let odd = mix(seed.wrapping_add(round)) as u32 | 1;
        name = name.wrapping_mul(odd) & mask;
        name ^= name >> half;
        name = name.wrapping_add((odd >> 7) ^ odd) & mask;
    }
    name
}

/// The weight of an edge, equal in both directions: 1 to 255, the range of GAPBS.
pub(crate) fn weight(seed: u64, from: u32, to: u32) -> u32 {
    let edge = u64::from(from.min(to)) << 32 | u64::from(from.max(to));
    (mix(seed ^ mix(edge)) % 255) as u32 + 1
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, proptest};

    fn all(input: &Input) -> Vec<(u32, u32)> {
        let (source, mut block, mut all) = (Source::new(input), Vec::new(), Vec::new());
        for number in 0..input.blocks() {
            source.block(number, &mut block);
            all.extend_from_slice(&block);
        }
        all
    }

    proptest! {
        #[test]
        fn renaming_is_a_permutation(bits in 1u32..12, seed: u64) {
            let mut names: Vec<u32> = (0..1 << bits).map(|v| rename(v, bits, seed)).collect();
            names.sort_unstable();
            prop_assert!(names.iter().enumerate().all(|(at, name)| at == *name as usize));
        }

        #[test]
        fn weights_are_small_and_the_same_both_ways(seed: u64, a: u32, b: u32) {
            prop_assert!((1..=255).contains(&weight(seed, a, b)));
            prop_assert!(weight(seed, a, b) == weight(seed, b, a));
        }
    }

    // One level of 2^16 edges: the shares of the quadrants, 0.57 ± 0.0019; six sigma allowed.
    // Renaming may flip the one bit, so the test takes the larger of the two diagonal shares.
    #[test]
    fn a_matrix_of_one_level_has_the_given_quadrants() {
        let input = Input { kind: Kind::Kronecker, scale: 1, degree: 1 << 15, seed: 7 };
        let edges = all(&input);
        let share = |edge| edges.iter().filter(|e| **e == edge).count() as f64 / 65_536.0;
        let most = share((0, 0)).max(share((1, 1)));
        assert!((most - 0.57).abs() < 0.012, "{most}");
        assert!((share((0, 1)) - 0.19).abs() < 0.010, "{}", share((0, 1)));
        assert!((share((1, 0)) - 0.19).abs() < 0.010, "{}", share((1, 0)));
    }

    #[test]
    fn the_same_seed_gives_the_same_edges_and_another_gives_others() {
        let input = |seed| Input { kind: Kind::Kronecker, scale: 10, degree: 16, seed };
        assert_eq!(all(&input(1)), all(&input(1)));
        assert_ne!(all(&input(1)), all(&input(2)));
        assert_eq!(all(&input(1)).len(), 16 << 10);
    }
}
