//! From looks at the entries of a table to rates with credible intervals.
//!
//! The model. Along a table an entry has the rate of the entry before it, or, with a small
//! probability, one drawn afresh from the distribution of rates over all memory: a hidden Markov
//! chain whose states are the cells of the grid. So neighbours that behave alike share their
//! evidence, and neighbours that do not are told apart, by the same rule. In time likewise: between
//! two looks a rate is drawn afresh with a small probability, so that old evidence fades and what
//! contradicts it counts. Both probabilities of the chain, the distribution of rates and how often it
//! is drawn from, are learned from tables visited at random (empirical Bayes).
//!
//! The computation. Forward and backward messages over *nodes* (Rabiner, "A tutorial on hidden Markov
//! models", Proceedings of the IEEE 1989); a redraw does not depend on the state, so that a step costs
//! as much as there are cells. A node is one entry; or 64 of them, where their bits show no sign that
//! they differ; or a run of entries with the same bits.

// Cells and words of several arrays are gone through together.
#![allow(clippy::needless_range_loop)]

use std::ops::Range;

use tierscope_core::Time;

use super::curve::{dot, exponentiate, normalise, running_sums, total};
use super::grid::{CELLS, Curve, Law, PER_DECADE, law};
use super::looks::{Look, Looks, SKETCH_STEP, WORDS, mask, sketched};

/// Runs of at least so many entries with the same bits are one node.
const RUN: usize = 6;
/// Bounds of the smallest probability that a cell keeps in the distribution of rates; between them it is that of one
/// entry in this number of targets of the same size: the sample need not hold the rate of a single entry.
const FLOORS: (f32, f32) = (1e-7, 1e-3);
const ONE_IN: f32 = 20.0;
/// Bounds of the probability of a draw from one entry to the next, and what is assumed at first.
const LEAVES: (f32, f32) = (1e-5, 0.95);
const FIRST_LEAVE: f32 = 0.05;
/// Cells on each side over which that probability is smoothed.
const NEAR: usize = 4;
/// Entries that are learned from, fading.
const MEMORY: f32 = 512.0 * 2000.0;
/// Entries of 64 expected to be young in two looks by chance, below which one that is draws attention.
const RARE: f64 = 0.3;
/// Runs of young entries, of 64, as long as the longest that are expected by chance, below which one draws attention.
const RARE_RUN: f64 = 0.03;
/// Seconds after which a rate is expected to be drawn afresh.
const LASTING: f32 = 600.0;
/// Tail on each side of a 90 % interval.
const TAIL: f32 = 0.05;
/// Likewise of what is taken for hot or cold without more ado.
const CORE: f32 = 0.2;

/// What is known of rates before an entry is looked at; learned.
#[derive(Clone, Debug)]
pub(super) struct Prior {
    /// The share of entries with each rate.
    rates: Curve,
    /// Probability, by cell, that the next entry's rate is drawn and not this one's.
    leave: Curve,
    /// Rates that are drawn.
    drawn: Curve,
    /// Entries with each rate, and those of them that were left, of the tables learned from.
    sums: [Curve; 2],
    /// Smallest probability of a cell.
    floor: f32,
    /// The rates drawn when the edition changed last, and its number: conclusions from an older one may
    /// differ.
    edition: (Curve, u32),
}

/// Share of the entries of a table that level 3 points out, that are taken to be busy before they are looked at.
const BUSY: f32 = 0.1;

/// Probability by which the rates drawn differ from one edition to the next.
const REVISED: f32 = 0.2;

/// Likelihood of the highest rate from which on looks set no upper bound, and of the rates among which they cannot
/// choose.
const UNBOUNDED: f32 = 0.5;

/// Entries that are added for each whose looks set no upper bound.
const ADDED: f32 = 0.05;

/// The first of the cells among which looks cannot choose, as each of them came too late for such rates; all cells
/// are before it where the looks set an upper bound.
fn open_from(likelihood: &Curve) -> usize {
    if likelihood[CELLS - 1] <= UNBOUNDED {
        return CELLS;
    }
    likelihood.iter().rposition(|cell| *cell <= UNBOUNDED).map_or(0, |last| last + 1)
}

/// Adds entries to cells by Pareto's law with exponent 1: of the entries busier than a rate, a tenth is ten times as
/// busy.
fn pareto(cells: &mut [f32], entries: f32) {
    let step = 10f32.powf(-1.0 / PER_DECADE);
    let mut part = entries * (1.0 - step);
    for cell in cells {
        *cell += part;
        part *= step;
    }
}

impl Default for Prior {
    /// Low rates are likelier than high ones: a tenth of the probability per three decades. Weighs as
    /// much as a table.
    fn default() -> Self {
        let mut rates: Curve = std::array::from_fn(|cell| 10f32.powf(-(cell as f32) / 24.0));
        normalise(&mut rates);
        let entries = rates.map(|cell| 512.0 * cell);
        let left = entries.map(|cell| FIRST_LEAVE * cell);
        let edition = (rates, 0);
        let (sums, floor) = ([entries, left], FLOORS.0);
        let mut prior = Self { rates, leave: left, drawn: rates, sums, floor, edition };
        prior.settle();
        prior
    }
}

impl Prior {
    /// The distribution of rates over entries.
    pub(super) fn rates(&self) -> &Curve {
        &self.rates
    }

    /// Sets the number of mapped entries: the fewer there are, the more one entry with a rate of its own weighs.
    pub(super) fn set_entries(&mut self, entries: u64) {
        self.floor = (1.0 / (ONE_IN * entries.max(1) as f32)).clamp(FLOORS.0, FLOORS.1);
    }

    /// Of entries of a table that level 3 says to be busy: some have a rate from this cell on, whatever those of all
    /// memory are.
    pub(super) fn pointed(&self, from: f32) -> Self {
        let from = (from.max(0.0) as usize).min(CELLS - 1);
        let each = BUSY / (CELLS - from) as f32;
        let mix = |curve: &Curve| -> Curve {
            std::array::from_fn(|cell| {
                (1.0 - BUSY) * curve[cell] + if cell < from { 0.0 } else { each }
            })
        };
        Self { rates: mix(&self.rates), drawn: mix(&self.drawn), ..self.clone() }
    }

    /// The number of the edition.
    pub(super) fn edition(&self) -> u32 {
        self.edition.1
    }

    /// Takes in how often rates were left in a table visited at random.
    pub(super) fn learn(&mut self, lesson: &Lesson) {
        let keep = if total(&self.sums[0]) > MEMORY { 0.99 } else { 1.0 };
        for (sum, seen) in self.sums.iter_mut().zip(&lesson.sums) {
            sum.iter_mut().zip(seen).for_each(|(sum, seen)| *sum = keep * *sum + seen);
        }
        self.settle();
    }

    /// Takes in likelihoods of entries drawn at random, each with its weight: a few steps of expectation
    /// maximisation (Dempster, Laird, Rubin, 1977) towards the distribution that explains them best. That alone would
    /// take entries whose looks set no upper bound for some of the busiest that are known, however few and far away
    /// these are: some entries by [`pareto`] are added for them.
    pub(super) fn fit(&mut self, entries: &[(Curve, f32)], steps: usize) {
        if entries.is_empty() {
            return;
        }
        let mut added = FIRST_RATES;
        for (likelihood, weight) in entries {
            let scale = ADDED * weight / dot(&self.rates, likelihood).max(1e-30);
            let from = open_from(likelihood);
            let each = |cell: usize| self.rates[cell] * likelihood[cell];
            pareto(&mut added[from..], (from..CELLS).map(each).sum::<f32>() * scale);
        }
        for _ in 0..steps {
            let mut sums = added;
            for (likelihood, weight) in entries {
                let scale = weight / dot(&self.rates, likelihood).max(1e-30);
                for cell in 0..CELLS {
                    sums[cell] += self.rates[cell] * likelihood[cell] * scale;
                }
            }
            let count = total(&sums);
            self.rates = std::array::from_fn(|cell| (sums[cell] / count).max(self.floor));
            normalise(&mut self.rates);
        }
        self.settle();
    }

    /// Works out the probabilities that follow. How often a rate is left is smoothed over its
    /// neighbours: rates that few entries have say little of it.
    fn settle(&mut self) {
        let [entries, left] = &self.sums;
        let near = |curve: &Curve, cell: usize| {
            curve[cell.saturating_sub(NEAR)..(cell + NEAR + 1).min(CELLS)].iter().sum::<f32>()
        };
        for cell in 0..CELLS {
            let leave = (near(left, cell) + FIRST_LEAVE) / (near(entries, cell) + 1.0);
            self.leave[cell] = leave.clamp(LEAVES.0, LEAVES.1);
        }
        self.drawn = std::array::from_fn(|cell| self.rates[cell] * self.leave[cell]);
        normalise(&mut self.drawn);
        let (known, number) = &mut self.edition;
        let moved = self.drawn.iter().zip(&*known).map(|(new, old)| (new - old).max(0.0));
        if moved.sum::<f32>() > REVISED {
            (*known, *number) = (self.drawn, *number + 1);
        }
    }
}

/// Nothing, by cell.
const FIRST_RATES: Curve = [0.0; CELLS];

/// What a table showed, for [`Prior::learn`].
#[derive(Clone, Debug)]
pub(super) struct Lesson {
    sums: [Curve; 2],
}

/// Nothing.
impl Default for Lesson {
    fn default() -> Self {
        Self { sums: [FIRST_RATES; 2] }
    }
}

/// Entries of a table of one rate; bounds and estimate in cells of the grid.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Segment {
    pub(super) entries: Range<usize>,
    pub(super) low: f32,
    pub(super) mean: f32,
    pub(super) high: f32,
    /// The cells between which three fifths of the probability lie.
    pub(super) core: [f32; 2],
    /// Busier entries would have looked like these: no look came soon enough.
    pub(super) blunt: bool,
}

/// Cells above its lower bound up to which a rate is believed.
pub(super) const VAGUE: f32 = 3.0;

impl Segment {
    /// Entries whose rate has this probability by cell.
    pub(super) fn of(entries: Range<usize>, marginal: &Curve) -> Self {
        let [[low, high], core] = quantiles(marginal, [TAIL, CORE]);
        Self { entries, low, mean: dot(marginal, &NUMBERS), high, core, blunt: false }
    }

    /// Entries that have this rate or another.
    fn or(&self, other: &Self, entries: Range<usize>) -> Self {
        Self {
            entries,
            low: self.low.min(other.low),
            mean: f32::midpoint(self.mean, other.mean),
            high: self.high.max(other.high),
            core: [self.core[0].min(other.core[0]), self.core[1].max(other.core[1])],
            blunt: false,
        }
    }

    /// The cell of its rate, but no higher than may be believed: a rate of which little more is known than
    /// that it is high counts as no higher than it must be.
    pub(super) fn believed(&self) -> f32 {
        self.mean.min(self.low + VAGUE)
    }
}

/// Entries that share a likelihood.
#[derive(Clone, Debug)]
struct Node {
    entries: Range<usize>,
    likelihood: Curve,
}

/// Entries that were young in the same looks.
#[derive(Clone, Debug)]
struct Pattern {
    bits: u8,
    likelihood: Curve,
    /// Worked out for the first run of them.
    logarithm: Option<Curve>,
}

impl Pattern {
    fn new(sight: &Sight, bits: u8, prior: &Curve) -> Self {
        Self { bits, likelihood: single(sight, bits, prior), logarithm: None }
    }

    /// The likelihood of so many of them that have one rate.
    fn run(&mut self, entries: usize) -> Curve {
        let logarithm = self.logarithm.get_or_insert_with(|| self.likelihood.map(f32::ln));
        let mut likelihood = logarithm.map(|cell| entries as f32 * cell);
        exponentiate(&mut likelihood);
        likelihood
    }
}

/// Scratch space of the computation, kept from table to table.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    nodes: Vec<Node>,
    patterns: Vec<Pattern>,
    forward: Vec<Curve>,
    /// Probability of a draw after each node.
    left: Vec<f32>,
}

impl Chain {
    /// Works out the segments of a table's mapped entries as of `now`. Returns what the table taught, and how
    /// much work that was, in nodes: a pattern takes as long as three.
    pub(super) fn infer(
        &mut self,
        looks: &Looks,
        span: &Range<usize>,
        prior: &Prior,
        now: Time,
        segments: &mut Vec<Segment>,
    ) -> (Lesson, usize) {
        self.make_nodes(looks, span, prior, now);
        self.pass_forward(prior);
        let lesson = self.pass_backward(prior, segments);
        (lesson, self.nodes.len() + 3 * self.patterns.len())
    }

    /// Likewise of a sketch: the looked-at entries each speak for those around them.
    pub(super) fn infer_sketch(
        &mut self,
        looks: &Looks,
        span: &Range<usize>,
        prior: &Prior,
        now: Time,
        segments: &mut Vec<Segment>,
    ) -> (Lesson, usize) {
        self.nodes.clear();
        let sight = Sight::new(looks.all(), now);
        for at in sketched() {
            let start = at - at % SKETCH_STEP;
            let entries = start.max(span.start)..(start + SKETCH_STEP).min(span.end);
            if entries.is_empty() {
                continue;
            }
            let size = if span.contains(&at) { 1.0 } else { 0.0 };
            let young = |look: &Look| size * (look.young[at / 64] >> (at % 64) & 1) as f32;
            self.nodes.push(Node { entries, likelihood: pooled(looks.all(), &sight, size, young) });
        }
        self.pass_forward(prior);
        let lesson = self.pass_backward(prior, segments);
        part_between_looks(segments);
        (lesson, self.nodes.len())
    }

    fn make_nodes(&mut self, looks: &Looks, span: &Range<usize>, prior: &Prior, now: Time) {
        self.nodes.clear();
        self.patterns.clear();
        let mapped = mask(span);
        let sight = Sight::new(looks.all(), now);
        for word in 0..WORDS {
            let here = span.start.max(word * 64)..span.end.min(word * 64 + 64);
            if here.is_empty() {
                continue;
            }
            if alike(looks.all(), word, mapped[word]) {
                self.pool(looks, &sight, here, mapped[word]);
                continue;
            }
            // Entries young once, by chance mostly, are pooled between those young more often.
            let often = looks.young_often(word);
            let turns = (often ^ often >> 1) & !(1 << 63);
            let mut at = here.start;
            while at < here.end {
                let end = run_end(turns, at).min(here.end);
                let part = mask(&(at..end))[word];
                if often >> (at % 64) & 1 == 0 && alike(looks.all(), word, part) {
                    self.pool(looks, &sight, at..end, part);
                } else {
                    self.split(looks, &sight, at..end, prior);
                }
                at = end;
            }
        }
    }

    /// One node of the entries of a word that are alike, whose bits are given.
    fn pool(&mut self, looks: &Looks, sight: &Sight, entries: Range<usize>, bits: u64) {
        let word = entries.start / 64;
        let young = |look: &Look| (look.young[word] & bits).count_ones() as f32;
        let likelihood = pooled(looks.all(), sight, bits.count_ones() as f32, young);
        self.nodes.push(Node { entries, likelihood });
    }

    /// Nodes of entries of a word, by their patterns.
    fn split(&mut self, looks: &Looks, sight: &Sight, entries: Range<usize>, prior: &Prior) {
        let turns = looks.turns(entries.start / 64);
        let mut at = entries.start;
        while at < entries.end {
            let pattern = looks.pattern(at);
            let end = run_end(turns, at).min(entries.end);
            let known = self.patterns.iter().position(|known| known.bits == pattern);
            let known = known.unwrap_or_else(|| {
                self.patterns.push(Pattern::new(sight, pattern, &prior.rates));
                self.patterns.len() - 1
            });
            let pattern = &mut self.patterns[known];
            if end - at >= RUN {
                let likelihood = pattern.run(end - at);
                self.nodes.push(Node { entries: at..end, likelihood });
            } else {
                let likelihood = pattern.likelihood;
                let one = |at: usize| Node { entries: at..at + 1, likelihood };
                self.nodes.extend((at..end).map(one));
            }
            at = end;
        }
    }

    /// Messages from the first node to the last: what the nodes up to each say of its rate.
    fn pass_forward(&mut self, prior: &Prior) {
        self.forward.clear();
        self.left.clear();
        let mut message = prior.rates;
        for (index, node) in self.nodes.iter().enumerate() {
            if index > 0 {
                let leave = prior.leave_between(&self.nodes[index - 1], node);
                let left = dot(&message, &leave);
                for cell in 0..CELLS {
                    let stayed = message[cell] * (1.0 - leave[cell]);
                    message[cell] = (stayed + left * prior.drawn[cell]) * node.likelihood[cell];
                }
                self.left.push(left);
            } else {
                for cell in 0..CELLS {
                    message[cell] *= node.likelihood[cell];
                }
            }
            normalise(&mut message);
            self.forward.push(message);
        }
    }

    /// Messages back from the last node, and with them the segments. They are scaled so that their product
    /// with what came forward adds up to 1.
    fn pass_backward(&mut self, prior: &Prior, segments: &mut Vec<Segment>) -> Lesson {
        let mut lesson = Lesson::default();
        segments.clear();
        let mut message: Curve = [1.0; CELLS];
        for index in (0..self.nodes.len()).rev() {
            let node = &self.nodes[index];
            let forward = &self.forward[index];
            let entries = node.entries.len() as f32;
            let mut marginal: Curve = [0.0; CELLS];
            for cell in 0..CELLS {
                marginal[cell] = forward[cell] * message[cell];
                lesson.sums[0][cell] += entries * marginal[cell];
            }
            add_segment(segments, Segment::of(node.entries.clone(), &marginal));
            let Some(before) = index.checked_sub(1) else { break };
            let leave = prior.leave_between(&self.nodes[before], node);
            let forward = &self.forward[before];
            let mut stayed: Curve = [0.0; CELLS];
            for cell in 0..CELLS {
                message[cell] *= node.likelihood[cell];
                stayed[cell] = message[cell] * (1.0 - leave[cell]);
            }
            let fresh = dot(&prior.drawn, &message);
            let scale = 1.0 / (dot(forward, &stayed) + self.left[before] * fresh).max(1e-30);
            let fresh = fresh * scale;
            for cell in 0..CELLS {
                let draws = leave[cell] * fresh;
                lesson.sums[1][cell] += forward[cell] * draws;
                message[cell] = stayed[cell] * scale + draws;
            }
        }
        segments.reverse();
        lesson
    }
}

/// Where two segments of a sketch meet, the rate changes somewhere between the two entries that were looked at: those
/// between may have either rate.
fn part_between_looks(segments: &mut Vec<Segment>) {
    let mut parted: Vec<Segment> = Vec::with_capacity(2 * segments.len());
    for mut after in segments.drain(..) {
        if let Some(before) = parted.last_mut() {
            let edge = after.entries.start;
            let between = edge - SKETCH_STEP / 2 + 1..edge + SKETCH_STEP / 2;
            let between =
                between.start.max(before.entries.start)..between.end.min(after.entries.end);
            (before.entries.end, after.entries.start) = (between.start, between.end);
            let either = before.or(&after, between);
            parted.push(either);
        }
        parted.push(after);
    }
    parted.retain(|segment| !segment.entries.is_empty());
    *segments = parted;
}

/// Largest probability of a draw between two nodes.
const MOST_LEAVE: f32 = 0.95;

impl Prior {
    /// Probability of a draw between two nodes, by cell: over the entries from the middle of one to the
    /// middle of the next.
    #[inline(always)]
    fn leave_between(&self, before: &Node, node: &Node) -> Curve {
        let between = (before.entries.len() + node.entries.len()) as f32 / 2.0;
        self.leave.map(|leave| (leave * between).min(MOST_LEAVE))
    }
}

/// Adds one in front of the segments found so far (which lie in reverse order), to the first of them if it is alike.
pub(super) fn add_segment(segments: &mut Vec<Segment>, new: Segment) {
    match segments.last_mut() {
        Some(next)
            if (next.mean - new.mean).abs() < 1.0
                && (next.low - new.low).abs() < 2.0
                && (next.high - new.high).abs() < 2.0 =>
        {
            let sizes = (next.entries.len() as f32, new.entries.len() as f32);
            let mix = |a: f32, b: f32| (a * sizes.0 + b * sizes.1) / (sizes.0 + sizes.1);
            next.low = mix(next.low, new.low);
            next.mean = mix(next.mean, new.mean);
            next.high = mix(next.high, new.high);
            next.core = [mix(next.core[0], new.core[0]), mix(next.core[1], new.core[1])];
            next.entries.start = new.entries.start;
        }
        _ => segments.push(new),
    }
}

/// The numbers of the cells.
const NUMBERS: Curve = {
    let mut numbers = [0.0; CELLS];
    let mut cell = 0;
    while cell < CELLS {
        numbers[cell] = cell as f32;
        cell += 1;
    }
    numbers
};

/// The cells below and above which each of two tails lies. Rates lie between cells as well: the density is a line from
/// the middle of each cell to that of the next, so that a rate half-way is covered where one cell has all of it. Without
/// branches, which would be foreseen badly.
fn quantiles(marginal: &Curve, tails: [f32; 2]) -> [[f32; 2]; 2] {
    let sums = running_sums(marginal);
    let all = sums[CELLS - 1];
    let mut middles = sums;
    (0..CELLS).for_each(|cell| middles[cell] -= marginal[cell] / 2.0);
    let at = |sum: f32| {
        let after = middles.iter().map(|upto| i32::from(*upto < sum)).sum::<i32>() as usize;
        let (after, before) = (after.min(CELLS - 1), after.saturating_sub(1));
        let (from, to) = (marginal[before], marginal[after]);
        let part = (sum - middles[before]).max(0.0);
        let root = (from * from + 2.0 * (to - from) * part).max(0.0).sqrt();
        before as f32 + (2.0 * part / (from + root).max(1e-30)).min(1.0)
    };
    tails.map(|tail| [at(tail * all), at((1.0 - tail) * all)])
}

/// What is the same of all entries of a table: the law of each look, and how much of the rates is drawn
/// afresh before each and until now.
pub(super) struct Sight {
    laws: Vec<(Law, f32)>,
    redrawn: f32,
}

impl Sight {
    pub(super) fn new(looks: &[Look], now: Time) -> Self {
        let redrawn = |from: Time, to: Time| 1.0 - (-to.since(from).as_secs_f32() / LASTING).exp();
        let mut last = looks.first().map_or(now, |look| look.at);
        let mut laws = Vec::with_capacity(looks.len());
        for look in looks {
            laws.push((law(look.seconds), redrawn(last, look.at)));
            last = look.at;
        }
        Self { laws, redrawn: redrawn(last, now) }
    }

    /// Takes a look of an entry into the distribution of its rate, which has faded towards the prior since the look
    /// before.
    #[inline(always)]
    pub(super) fn step(&self, state: &mut Curve, look: usize, young: bool, prior: &Curve) {
        let (law, redrawn) = &self.laws[look];
        let curve = if young { law.young } else { law.old };
        for cell in 0..CELLS {
            let kept = state[cell] + redrawn * (prior[cell] - state[cell]);
            state[cell] = kept * curve[cell];
        }
        normalise(state);
    }

    /// Fades the distribution of a rate from the last look until now.
    #[inline(always)]
    pub(super) fn fade(&self, state: &mut Curve, prior: &Curve) {
        (0..CELLS).for_each(|cell| state[cell] += self.redrawn * (prior[cell] - state[cell]));
    }
}

/// The likelihood of one entry's bits, by cell. From look to look, and until now, rates fade towards the
/// prior; what comes out is a likelihood: the prior is taken off again.
pub(super) fn single(sight: &Sight, pattern: u8, prior: &Curve) -> Curve {
    let mut state = *prior;
    for look in 0..sight.laws.len() {
        sight.step(&mut state, look, pattern >> look & 1 == 1, prior);
    }
    sight.fade(&mut state, prior);
    (0..CELLS).for_each(|cell| state[cell] /= prior[cell]);
    let most = state.iter().copied().fold(0.0, f32::max);
    state.map(|cell| (cell / most).max(1e-12))
}

/// The likelihood of an entry whose rate is known closely.
pub(super) fn near(known: f32) -> Curve {
    std::array::from_fn(|cell| (-(cell as f32 - known).powi(2)).exp().max(1e-12))
}

/// The likelihood of `size` entries of one rate of which so many were young in each look.
fn pooled(looks: &[Look], sight: &Sight, size: f32, young: impl Fn(&Look) -> f32) -> Curve {
    let mut curve: Curve = [0.0; CELLS];
    for (look, (law, _)) in looks.iter().zip(&sight.laws) {
        let young = young(look);
        let old = size - young;
        for cell in 0..CELLS {
            curve[cell] += young * law.ln_young[cell] + old * law.ln_old[cell];
        }
    }
    exponentiate(&mut curve);
    curve
}

/// Where the run of an entry ends, given the entries of its word after which another one begins.
fn run_end(turns: u64, at: usize) -> usize {
    at + (turns >> (at % 64)).trailing_zeros() as usize + 1
}

/// How many set bits lie side by side at most.
fn longest_run(mut bits: u64) -> i32 {
    let mut length = 0;
    while bits != 0 {
        bits &= bits << 1;
        length += 1;
    }
    length
}

/// Whether the bits of up to 64 entries give no sign that these differ: entries young in one look are not
/// young in another more often than by chance, and do not lie together.
fn alike(looks: &[Look], word: usize, mapped: u64) -> bool {
    let size = f64::from(mapped.count_ones());
    if size < 2.0 {
        return true;
    }
    let (mut excess, mut variance) = (0.0, 0.0);
    // Entries young in all looks, and how many would be by chance.
    let (mut always, mut by_chance) = (mapped, size);
    for (index, one) in looks.iter().enumerate() {
        let one = one.young[word] & mapped;
        let ones = f64::from(one.count_ones());
        always &= one;
        by_chance *= ones / size;
        if ones == 0.0 || ones == size {
            continue;
        }
        let changes = f64::from(((one ^ one >> 1) & mapped & mapped >> 1).count_ones());
        let expected = 2.0 * ones * (size - ones) / size;
        if changes < expected - 3.0 * expected.sqrt()
            || size * (ones / size).powi(longest_run(one)) < RARE_RUN
        {
            return false;
        }
        for other in &looks[..index] {
            let other = other.young[word] & mapped;
            let others = f64::from(other.count_ones());
            let (both, expected) = (f64::from((one & other).count_ones()), ones * others / size);
            if both >= 1.0 && expected < RARE {
                return false;
            }
            excess += both - expected;
            variance +=
                ones * others * (size - ones) * (size - others) / (size * size * (size - 1.0));
        }
    }
    let rare = always != 0 && looks.len() > 1 && by_chance < RARE;
    !rare && (excess <= 0.5 || excess <= 2.5 * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::grid::{cell_of, rate_of};
    use proptest::prelude::*;
    use tierscope_core::Rng;

    // One look after 20 ms at 16 of 512 entries, which finds the first eight young: 240 entries are busy, what lies
    // between the eighth and the ninth that were looked at (240 and 272) may be either.
    #[test]
    fn a_sketch_says_nothing_of_what_lies_between_two_rates() {
        let mut looks = Looks::default();
        let mut young = [0; WORDS];
        sketched().take(8).for_each(|at| young[at / 64] |= 1 << (at % 64));
        looks.add(Look { at: Time(20_000_000), seconds: 0.02, young });
        let mut prior = Prior::default();
        for cell in 0..CELLS {
            let near = (cell as f32 - cell_of(0.02)).abs() < 2.0;
            prior.rates[cell] = if near { 1.0 } else { 1e-7 };
        }
        normalise(&mut prior.rates);
        prior.settle();
        let mut segments = Vec::new();
        let now = Time(20_000_000);
        let busy = prior.pointed(cell_of(50.0));
        let (_, nodes) =
            Chain::default().infer_sketch(&looks, &(0..512), &busy, now, &mut segments);
        assert_eq!(nodes, 16);
        let (first, last) = (&segments[0], &segments[segments.len() - 1]);
        assert_eq!((first.entries.start, last.entries.end), (0, 512));
        assert!(first.core[0] >= cell_of(50.0) - 1.0, "{segments:?}");
        assert!(last.core[1] < cell_of(1.0), "{segments:?}");
        let between = segments.iter().find(|s| s.entries.contains(&256)).unwrap();
        assert_eq!(between.entries, 241..272, "{segments:?}");
        assert!(between.core[0] < cell_of(1.0) && between.core[1] >= cell_of(50.0));
        assert!(segments.windows(2).all(|pair| pair[0].entries.end == pair[1].entries.start));
        // Level 3 raises the share of busy entries from that cell on, and of no others.
        let share = |prior: &Prior, from: usize| prior.rates[from..].iter().sum::<f32>();
        let from = cell_of(50.0) as usize;
        assert!((share(&busy, from) - BUSY).abs() < 1e-3 && (share(&busy, 0) - 1.0).abs() < 1e-3);
        // Only what is mapped: no entry from 20 to 40 was looked at but the one at 48, which is outside.
        Chain::default().infer_sketch(&looks, &(20..40), &busy, now, &mut segments);
        assert_eq!((segments[0].entries.start, segments.last().unwrap().entries.end), (20, 40));
    }

    #[test]
    fn the_longest_run_of_bits() {
        assert_eq!([0, 1, 0b1101110, u64::MAX].map(longest_run), [0, 1, 3, 64]);
    }

    // Of 101 entries one takes 100,000 accesses a second; of the others it is but known that they take ten and more.
    // The likeliest distribution has all of them as busy as the one.
    #[test]
    fn what_has_no_upper_bound_is_not_taken_for_the_busiest() {
        let at = |rate: f32| cell_of(rate) as usize;
        let from =
            |first: usize| std::array::from_fn(|cell| if cell >= first { 1.0 } else { 1e-12 });
        let mut entries = vec![(from(at(10.0)), 1.0); 100];
        entries.push((near(cell_of(1e5)), 1.0));
        let mut prior = Prior::default();
        (0..10).for_each(|_| prior.fit(&entries, 15));
        let busy: f32 = prior.rates()[at(1e4)..].iter().sum();
        // One is known to be, five are added for the others.
        assert!((0.01..0.2).contains(&busy), "{busy}");
    }

    // A small server: 200 entries of values are accessed 25 times a second each, the others are idle, and that is all
    // that the sample knows. A thread's stack, one entry among idle ones, was young in each of three looks.
    #[test]
    fn in_a_small_target_a_single_entry_may_be_as_no_other() {
        let mut looks = Looks::default();
        for (at, seconds) in [(100, 0.06), (200, 0.055), (300, 0.0017)] {
            let mut young = [0; WORDS];
            young[4] = 1 << 42;
            looks.add(Look { at: Time(at * 1_000_000), seconds, young });
        }
        let now = Time(300_000_000);
        let infer = |entries| {
            let mut prior = Prior::default();
            prior.set_entries(entries);
            let values = vec![(near(cell_of(25.0)), 1.0); 100];
            let idle = vec![(near(cell_of(0.02)), 1.0); 100];
            let all = [values, idle].concat();
            (0..10).for_each(|_| prior.fit(&all, 15));
            let mut segments = Vec::new();
            let mut chain = Chain::default();
            for _ in 0..20 {
                let lesson = chain.infer(&looks, &(256..448), &prior, now, &mut segments).0;
                prior.learn(&lesson);
            }
            segments.iter().find(|segment| segment.entries.contains(&298)).unwrap().mean
        };
        let (few, many) = (infer(400), infer(1 << 20));
        // 104 a second; a million entries rather have one more value, at 24.
        assert!(few > cell_of(60.0) && many < few, "{few}, among many {many}");
    }

    // Where one cell has nearly all of the probability, the truth may lie half-way to the next.
    #[test]
    fn a_rate_between_two_cells_is_within_the_interval() {
        let mut marginal = [1e-9; CELLS];
        marginal[16] = 1.0;
        let segment = Segment::of(0..1, &marginal);
        assert!((segment.low - 15.316).abs() < 1e-3, "{segment:?}");
        assert!((segment.high - 16.684).abs() < 1e-3, "{segment:?}");
        marginal[17] = 1.0;
        let [core, _] = Segment::of(0..1, &marginal).core;
        // A fifth of two cells: 0.4, of which half a cell's rising half is 0.5.
        assert!((core - (15.0 + 0.8f32.sqrt())).abs() < 1e-3, "{core}");
    }

    fn node(at: usize, peak: f32) -> Node {
        let curve = |cell: usize| (-(cell as f32 - peak).powi(2) / 40.0).exp().max(1e-6);
        Node { entries: at..at + 1, likelihood: std::array::from_fn(curve) }
    }

    /// The chance of every path of rates over three entries, added up by hand.
    fn naive(nodes: &[Node; 3], prior: &Prior) -> [Vec<f64>; 3] {
        let step = |from: usize, to: usize| {
            let leave = f64::from(prior.leave[from].min(MOST_LEAVE));
            let stay = if from == to { 1.0 - leave } else { 0.0 };
            stay + leave * f64::from(prior.drawn[to])
        };
        let like = |node: usize, cell: usize| f64::from(nodes[node].likelihood[cell]);
        let mut sums = [(); 3].map(|()| vec![0.0; CELLS]);
        for a in 0..CELLS {
            for b in 0..CELLS {
                let two = f64::from(prior.rates[a]) * like(0, a) * step(a, b) * like(1, b);
                for c in 0..CELLS {
                    let path = two * step(b, c) * like(2, c);
                    sums[0][a] += path;
                    sums[1][b] += path;
                    sums[2][c] += path;
                }
            }
        }
        sums.map(|sum| {
            let total = sum.iter().sum::<f64>();
            sum.into_iter().map(|cell| cell / total).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        // Messages against the sum over all paths: means within a hundredth of a cell.
        #[test]
        fn messages_add_up_all_paths(peaks in (0.0f32..63.0, 0.0f32..63.0, 0.0f32..63.0)) {
            let nodes = [node(0, peaks.0), node(1, peaks.1), node(2, peaks.2)];
            let prior = Prior::default();
            let mut chain = Chain { nodes: nodes.to_vec(), ..Chain::default() };
            chain.pass_forward(&prior);
            let mut segments = Vec::new();
            chain.pass_backward(&prior, &mut segments);
            let wanted = naive(&nodes, &prior).map(|cells| {
                cells.iter().enumerate().map(|(cell, p)| cell as f64 * p).sum::<f64>()
            });
            for segment in &segments {
                let mean = segment.entries.clone().map(|at| wanted[at]).sum::<f64>()
                    / segment.entries.len() as f64;
                prop_assert!((f64::from(segment.mean) - mean).abs() < 0.01, "{segment:?} {wanted:?}");
            }
        }
    }

    /// Looks at entries of these rates at times drawn at random.
    fn looked(rates: &[f32], times: &[f32], seed: u64) -> Looks {
        let mut rng = Rng::seeded(seed);
        let mut looks = Looks::default();
        for (index, seconds) in times.iter().enumerate() {
            let mut young = [0; WORDS];
            for (entry, rate) in rates.iter().enumerate() {
                let chance = 1.0 - (-rate * seconds).exp();
                let drawn = rng.below(1 << 24) as f32 / (1 << 24) as f32;
                young[entry / 64] |= u64::from(drawn < chance) << (entry % 64);
            }
            looks.add(Look { at: Time(index as u64 * 50_000_000), seconds: *seconds, young });
        }
        looks
    }

    fn inferred(rates: &[f32], times: &[f32], seed: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let looks = looked(rates, times, seed);
        let now = looks.all().last().unwrap().at;
        Chain::default().infer(&looks, &(0..512), &Prior::default(), now, &mut segments);
        segments
    }

    // 100 entries of 500 a second among cold ones of 0.5: at the right distance one look each is enough.
    #[test]
    fn hot_entries_are_told_from_warm_ones_by_time() {
        let rates: Vec<f32> =
            (0..512).map(|i| if (100..200).contains(&i) { 500.0 } else { 0.5 }).collect();
        let segments = inferred(&rates, &[0.02, 0.02, 0.0014], 7);
        for segment in &segments {
            let truth = cell_of(rates[segment.entries.start]);
            assert!(segment.low <= truth + 4.0 && segment.high >= truth - 4.0, "{segment:?}");
        }
        let hot: usize =
            segments.iter().filter(|s| rate_of(s.mean) > 50.0).map(|s| s.entries.len()).sum();
        assert!((98..=102).contains(&hot), "{segments:?}");
    }

    // Of 40 tables with a range of a rate of its own each, 90 % intervals of the range hold the rate in at
    // least 85 % of the cases: 34; six sigma below 36 would be 25.
    #[test]
    fn intervals_hold_the_rate_as_often_as_they_say() {
        let mut held = 0;
        for seed in 0..40 {
            let rate = 10f32.powf(0.5 + seed as f32 / 20.0);
            let rates = [vec![0.2; 256], vec![rate; 256]].concat();
            let segments = inferred(&rates, &[0.3 / rate, 1.0 / rate, 0.02, 0.7 / rate], seed);
            let middle = segments.iter().find(|s| s.entries.contains(&400)).unwrap();
            println!(
                "{rate:.1}: {:.1} {:.1} {:.1}",
                rate_of(middle.low),
                rate_of(middle.mean),
                rate_of(middle.high)
            );
            held += u32::from(middle.low <= cell_of(rate) && cell_of(rate) <= middle.high);
        }
        assert!(held >= 34, "{held} of 40");
    }
}
