//! Visits to the leaves of entries of 2 MiB: which entries, when, and what follows for the skew of
//! accesses within entries.
//!
//! An entry's rate holds for its pages only if accesses within entries are even. A random sample of
//! leaves shows whether they are, in general and in a table. Where they are not, the leaves of all
//! entries that may contain hot pages are visited, and entries not visited yet are unknown. Leaves
//! known are visited again when they are old, and soon if their entry's rate contradicts them.

use std::cmp::Reverse;
use std::ops::Bound;
use std::time::Duration;

use tierscope_core::{Addr, Level, Ports, Probe, Result, Time};

use super::budget::Work;
use super::chain::Segment;
use super::grid::{cell_of, rate_of};
use super::sweeps::RECENT;
use super::table::{Key, Table};
use super::tally::{IDLE, RARE};
use super::{DISTANCES, LADDER, MEASURE, REVISIT, Rates, Visit, is_one_page};

/// Expected accesses of a page between clear and look if all pages of an entry are alike; and
/// bounds of that time in seconds.
const LEAF_MEASURE: f32 = 0.4;
const LEAF_DISTANCES: (f32, f32) = (0.001, 0.5);
/// Entries of 2 MiB whose leaves are visited, per batch: randomly chosen ones, once a second, by
/// accesses and among entries that are not hot; all
/// others; of these, one per table whose skew is not known and the first and last ones of hot
/// stretches; and known ones that are checked for being outdated.
const LEAF_SAMPLES: usize = 8;
const LEAF_SWEEPS: usize = 4;
const LEAF_BATCH: usize = 128;
const LEAF_FEW: usize = 16;
const LEAF_CHECKS: usize = 1024;
/// Maximum number of undecided tables whose segments are checked per turn.
const LATE_CHECKS: usize = 256;
/// Randomly chosen entries per turn while the skew within entries is unknown; and expected
/// accesses of an entry between clear and look, of which two looks share four pages by chance.
const FIRST_SAMPLES: usize = 16;
const FIRST_ACCESSES: f32 = 50.0;
/// Maximum number of leaf tables kept.
const MOST_LEAVES: usize = 8192;
/// Number of entries of a table with visited leaves from which on its skew is its own.
const OWN_SKEW: f64 = 2.0;
/// Time after which the leaves of an entry may be visited again: of randomly chosen ones and of
/// ends of hot stretches; of entries with skewed accesses; and of those that their entry's rate
/// contradicts.
const LEAVES_AGAIN: Duration = Duration::from_secs(10);
const LEAVES_SKEWED: Duration = Duration::from_secs(5);
const LEAVES_CONTRADICTED: Duration = Duration::from_secs(2);
/// Undecided pages of an entry from which on its leaves are visited before others, in every other
/// visit.
const MANY_PAGES: usize = 64;
/// Factor by which the next look of a visit comes sooner if one found nearly all accessed pages
/// young.
const MUCH_SOONER: u64 = 16;

/// Kinds of entries whose leaves are visited, each with a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafWork {
    /// That are undecided, or many of their pages.
    Undecided,
    /// Chosen at random.
    Random,
    /// Whose leaves are outdated, or decide about others.
    Other,
}

impl Rates {
    /// Whether the leaves to visit are a single huge page: clearing it would destroy the evidence
    /// of its level-2 entry.
    pub(super) fn is_huge_page(&mut self, ports: &mut dyn Ports, visit: Visit) -> Result<bool> {
        self.probes.clear();
        self.probes.push(Probe::test(Addr { space: visit.key.0, at: visit.key.1 }, Level::PMD));
        let now = ports.now();
        ports.access_bits()?.probe(&mut self.probes)?;
        if !is_one_page(&self.probes[0]) {
            return Ok(false);
        }
        if let Some(table) = self.leaves.get_mut(&visit.key) {
            table.segments.clear();
            (table.busy, table.seen) = (false, Some(now));
        }
        self.add_even(visit);
        Ok(true)
    }

    /// The time from clear to look for the last look of a visit to leaves: a sixteenth of the one
    /// before if that found nearly all pages young that are accessed at all.
    pub(super) fn last_distance(&mut self, visit: Visit) -> u64 {
        let table = self.leaves.get(&visit.key);
        let is_late = table.is_some_and(|t| t.last_look().is_some_and(|look| t.is_saturated(look)));
        let sooner = (visit.distance / MUCH_SOONER).max((DISTANCES.0 * 1e9) as u64);
        if is_late { visit.last_distance.min(sooner) } else { visit.last_distance }
    }

    /// Infers the rates of the pages of an entry of 2 MiB. They also yield the skew of accesses
    /// within entries: of its table and, if it was chosen at random, of all memory. Returns the
    /// work in nodes.
    pub(super) fn settle_leaves(&mut self, visit: Visit, now: Time) -> usize {
        let Some(leaves) = self.leaves.get_mut(&visit.key) else { return 0 };
        if self.huge > 0 {
            leaves.segments.clear();
            self.add_even(visit);
            return 0;
        }
        let (changes, nodes) = leaves.infer(&mut self.chain, &self.priors[2], now, false);
        self.priors[2].learn(&changes);
        if let Some(table) = self.lower.get_mut(&above(visit.key)) {
            let entry = table.segment(entry_of(visit.key));
            let rate = entry.map_or(0.0, |s| rate_of(s.high));
            // Hot entries are judged by hot ones, not by their even neighbours.
            let threshold = self.tally.entry_hot(false);
            let is_hot = entry.is_some_and(|s| s.mean >= threshold);
            let counts = visit.sampled || is_hot || table.sums.most < threshold;
            let skew = leaves.page_skew(rate);
            if counts {
                table.skew.add_entry(&skew);
            }
            if visit.sampled {
                self.tally.skew.add_entry(&skew);
            }
            table.built = None;
        }
        nodes
    }

    /// Finds the entries many of whose pages are undecided, those that are due longest first.
    pub(super) fn find_undecided_leaves(&mut self, now: Time) {
        let mut found = Vec::new();
        for (key, leaves) in &self.leaves {
            let age = leaves.seen.map_or(Duration::ZERO, |seen| now.since(seen));
            let segment = self.lower.get(&above(*key)).and_then(|t| t.segment(entry_of(*key)));
            if let Some(segment) = segment.filter(|_| age >= REVISIT && !leaves.is_together())
                && self.tally.undecided_pages(leaves) >= MANY_PAGES
            {
                let due = age.as_secs_f64() / self.seldom(leaves);
                found.push((due, *key, rate_of(segment.believed())));
            }
        }
        let mut all = self.leaves_of_late_segments(now);
        all.extend(most_due_first(found).into_iter().map(|(_, key, rate)| (key, rate)));
        all.truncate(LEAF_BATCH);
        self.wanted[LeafWork::Undecided as usize] =
            all.into_iter().map(|(key, rate)| (key, rate, false)).collect();
    }

    /// A random entry of each segment of which it is undecided whether it is hot, since all looks
    /// came too late: then its pages decide. Largest segments first; not those of whose pages some
    /// were looked at lately.
    fn leaves_of_late_segments(&mut self, now: Time) -> Vec<(Key, f32)> {
        let undecided = &self.refined[1];
        let after = undecided.range((Bound::Excluded(self.late_from), Bound::Unbounded));
        let up_to = undecided.range((Bound::Unbounded, Bound::Included(self.late_from)));
        let mut late = Vec::new();
        for key in after.chain(up_to).take(LATE_CHECKS) {
            self.late_from = *key;
            let Some(table) = self.lower.get(key) else { continue };
            for segment in table.segments.iter().filter(|segment| segment.blunt) {
                let whole = table.is_whole(&segment.entries);
                let first = table.entry(segment.entries.start);
                let of = first..=table.entry(segment.entries.end - 1);
                let is_recent = |leaves: &Table| {
                    leaves.busy || leaves.seen.is_some_and(|at| now.since(at) < RECENT / 3)
                };
                let is_known = self.leaves.range(of).any(|(_, leaves)| is_recent(leaves));
                if !whole && !is_known && self.tally.is_unknown(segment, whole) {
                    late.push((segment.entries.len(), first, rate_of(segment.believed())));
                }
            }
        }
        late.sort_by_key(|(entries, first, _)| (Reverse(*entries), *first));
        late.truncate(LEAF_FEW);
        let random = |(entries, (space, first), rate): (usize, Key, f32)| {
            ((space, first + (self.rng.below(entries as u64) << Level::PMD.shift())), rate)
        };
        late.into_iter().map(random).collect()
    }

    /// Finds the tables that have entries whose pages become young together.
    pub(super) fn find_swept_tables(&mut self, now: Time) {
        self.lower.values_mut().for_each(|table| table.swept = None);
        let is_recent = |leaves: &Table| leaves.seen.is_some_and(|at| now.since(at) <= RECENT);
        for (key, leaves) in self.leaves.iter().filter(|known| is_recent(known.1)) {
            if let Some(rate) = leaves.swept_rate()
                && let Some(table) = self.lower.get_mut(&above(*key))
            {
                table.swept = Some(rate);
            }
        }
    }

    /// Adds a huge page to the skew within entries: its rate is that of its pages.
    fn add_even(&mut self, visit: Visit) {
        if visit.sampled {
            self.tally.skew.add(1.0);
        }
        if let Some(table) = self.lower.get_mut(&above(visit.key)) {
            table.skew.add(1.0);
        }
    }

    /// The next entry of 2 MiB whose leaves to visit, its rate, and whether it is a sample of
    /// accesses: every other one is an undecided one, of four one is chosen at random, and one as
    /// others want it. Without one of a kind, another follows at once.
    fn next_leaves(&mut self, now: Time) -> Option<(Key, f32, bool)> {
        const ORDER: [LeafWork; 4] =
            [LeafWork::Undecided, LeafWork::Random, LeafWork::Undecided, LeafWork::Other];
        self.leaf_turn = (self.leaf_turn + 1) % ORDER.len();
        (0..ORDER.len()).find_map(|next| {
            let work = ORDER[(self.leaf_turn + next) % ORDER.len()];
            self.next_leaves_of(work, now)
        })
    }

    /// The next one of a kind that was not visited lately. Samples of accesses that were count
    /// without a visit.
    fn next_leaves_of(&mut self, work: LeafWork, now: Time) -> Option<(Key, f32, bool)> {
        while let Some((key, rate, sampled)) = self.wanted[work as usize].pop_front() {
            let Some(table) = self.leaves.get(&key) else { return Some((key, rate, sampled)) };
            let pause = if sampled { LEAVES_AGAIN } else { REVISIT };
            if !table.busy && table.seen.is_none_or(|seen| now.since(seen) >= pause) {
                return Some((key, rate, sampled));
            }
            if sampled {
                self.tally.skew.add_entry(&table.page_skew(rate));
            }
        }
        None
    }

    /// Chooses entries whose leaves to visit, once those of a kind that were chosen last were
    /// visited.
    pub(super) fn want_leaves(&mut self, now: Time) {
        let busy = |table: &Table| table.sums.most >= cell_of(RARE);
        self.shares.veiled = !self.tally.skew.is_known() && self.lower.values().any(busy);
        let is_turn = self.turns % 5 == 2 || self.shares.veiled;
        if is_turn && self.wanted[LeafWork::Random as usize].is_empty() {
            let number = if self.shares.veiled { FIRST_SAMPLES } else { LEAF_SAMPLES };
            let mut chosen = self.random_leaves(number);
            let swept = self.leaves_of_warm_entries();
            chosen.extend(swept.into_iter().map(|(key, rate)| (key, rate, false)));
            self.wanted[LeafWork::Random as usize].extend(chosen);
        }
        if self.wanted[LeafWork::Other as usize].is_empty() {
            let others = self.other_leaves(now);
            let others = others.into_iter().map(|(key, rate)| (key, rate, false));
            self.wanted[LeafWork::Other as usize].extend(others);
        }
        while self.leaves.len() > MOST_LEAVES {
            let oldest = self.leaves.iter().filter(|(_, table)| !table.busy);
            let Some(key) = oldest.min_by_key(|(_, table)| table.seen).map(|(key, _)| *key) else {
                break;
            };
            self.leaves.remove(&key);
        }
    }

    /// Entries whose leaves are outdated, or decide about others.
    fn other_leaves(&mut self, now: Time) -> Vec<(Key, f32)> {
        let [contradicted, old] = self.outdated_leaves(now);
        let mut others = contradicted;
        others.extend(self.leaves_of_unjudged_tables());
        others.extend(self.leaves_of_busy_entries());
        others.truncate(LEAF_BATCH);
        others.extend(self.leaves_at_ends(now));
        // There is time for these while no busy entry waits for its first visit.
        others.extend(old.into_iter().take(LEAF_BATCH.saturating_sub(others.len())));
        others
    }

    /// Entries chosen at random, in proportion to their accesses: a sample for the skew within
    /// entries.
    fn random_leaves(&mut self, number: usize) -> Vec<(Key, f32, bool)> {
        let mut next = self.rng.below(1 << 20) as f64 / f64::from(1 << 20);
        let step = self.tally.total_rate() / number as f64;
        let (mut total, mut chosen) = (0.0f64, Vec::new());
        for table in self.lower.values() {
            if total + table.sums.rate < next * step {
                total += table.sums.rate;
                continue;
            }
            for segment in table.segments.iter().filter(|segment| segment.mean > 0.0) {
                let rate = rate_of(segment.believed());
                let before = total;
                total += f64::from(rate) * segment.entries.len() as f64;
                while next * step < total && chosen.len() < number {
                    let into = ((next * step - before) / f64::from(rate)) as usize;
                    let at = (segment.entries.start + into).min(segment.entries.end - 1);
                    chosen.push((table.entry(at), rate, true));
                    next += 1.0;
                }
            }
        }
        chosen
    }

    /// Entries that are not hot and whose pages may be, chosen at random: a sweep over
    /// 2 MiB counts once for the entry, and once for each page.
    fn leaves_of_warm_entries(&mut self) -> Vec<(Key, f32)> {
        let least = self.tally.page_threshold().max(cell_of(IDLE as f32));
        let is_warm = |s: &Segment, table: &Table| {
            s.believed() >= least && s.mean < self.tally.entry_hot(table.is_whole(&s.entries))
        };
        let warm = |table: &Table| {
            let warm = table.segments.iter().filter(|segment| is_warm(segment, table));
            warm.map(|segment| segment.entries.len()).sum::<usize>()
        };
        let all: usize = self.lower.values().map(warm).sum();
        let number = LEAF_SWEEPS.min(all);
        let mut at: Vec<usize> = (0..number).map(|_| self.rng.below(all as u64) as usize).collect();
        at.sort_unstable();
        let (mut before, mut next, mut chosen) = (0, at.into_iter().peekable(), Vec::new());
        for table in self.lower.values() {
            for segment in table.segments.iter().filter(|segment| is_warm(segment, table)) {
                let end = before + segment.entries.len();
                while let Some(at) = next.next_if(|at| *at < end) {
                    let entry = table.entry(segment.entries.start + at - before);
                    chosen.push((entry, rate_of(segment.believed())));
                }
                before = end;
            }
        }
        chosen
    }

    /// Whether a table has hot entries that are accessed so often that visits to their leaves say
    /// something.
    fn has_busy_entries(&self, table: &Table) -> bool {
        table.huge == 0 && table.sums.most >= self.tally.entry_hot(false).max(cell_of(RARE))
    }

    /// A random hot entry of each table whose own skew is not known.
    fn leaves_of_unjudged_tables(&mut self) -> Vec<(Key, f32)> {
        let mut chosen = Vec::new();
        for table in self.lower.values() {
            if table.skew.weight() >= OWN_SKEW || !self.has_busy_entries(table) {
                continue;
            }
            let hot: Vec<_> = table
                .segments
                .iter()
                .filter(|s| self.tally.is_hot(s, table.is_whole(&s.entries)))
                .collect();
            let entries: usize = hot.iter().map(|segment| segment.entries.len()).sum();
            if entries == 0 {
                continue;
            }
            let mut at = self.rng.below(entries as u64) as usize;
            for segment in hot {
                if at < segment.entries.len() {
                    let entry = table.entry(segment.entries.start + at);
                    chosen.push((entry, rate_of(segment.believed())));
                    break;
                }
                at -= segment.entries.len();
            }
            if chosen.len() == LEAF_FEW {
                break;
            }
        }
        chosen
    }

    /// The busiest entries whose pages are not known, where pages within entries differ.
    fn leaves_of_busy_entries(&self) -> Vec<(Key, f32)> {
        let mut busy: Vec<(Key, f32)> = Vec::new();
        for table in self.lower.values() {
            let skew = self.tally.skew_in(table);
            let threshold = self.tally.worth_leaves(&skew);
            if !skew.is_uneven() {
                continue;
            }
            for segment in table.segments.iter().filter(|segment| segment.high >= threshold) {
                if busy.len() < MOST_LEAVES {
                    let rate = rate_of(segment.believed());
                    busy.extend(segment.entries.clone().map(|at| (table.entry(at), rate)));
                }
            }
        }
        busy.retain(|(key, _)| !self.leaves.contains_key(key));
        busy.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        busy.truncate(LEAF_BATCH);
        busy
    }

    /// Entries whose leaves were visited, and must be again: those whose own rate contradicts that
    /// of their pages; and those whose pages are not closely known or may have changed since,
    /// oldest first. Checks a few entries at a time, in turns.
    fn outdated_leaves(&mut self, now: Time) -> [Vec<(Key, f32)>; 2] {
        let after = (Bound::Excluded(self.leaves_from), Bound::Unbounded);
        let up_to = (Bound::Unbounded, Bound::Included(self.leaves_from));
        let checked = self.leaves.range(after).chain(self.leaves.range(up_to)).take(LEAF_CHECKS);
        let vague = |leaves: &Table| !leaves.is_together() && self.tally.wants_more_pages(leaves);
        let again = |leaves: &Table| if vague(leaves) { REVISIT } else { LEAVES_SKEWED };
        let (mut contradicted, mut old) = (Vec::new(), Vec::new());
        let mut last = self.leaves_from;
        for (key, leaves) in checked {
            last = *key;
            let Some(table) = self.lower.get(&above(*key)) else { continue };
            let (Some(segment), Some(seen)) = (table.segment(entry_of(*key)), leaves.seen) else {
                continue;
            };
            let skew = self.tally.skew_in(table);
            if leaves.segments.is_empty() {
                continue;
            }
            let (age, rate) = (now.since(seen), rate_of(segment.believed()));
            let due = age.as_secs_f64() / self.seldom(leaves);
            let idle = self.tally.is_idle(segment, &skew);
            if self.tally.contradicts(segment, leaves, idle) && age >= LEAVES_CONTRADICTED {
                contradicted.push((due, *key, rate));
            } else if !idle && skew.is_uneven() && age >= again(leaves) {
                old.push((due, *key, rate));
            }
        }
        self.leaves_from = last;
        contradicted = most_due_first(contradicted);
        contradicted.truncate(LEAF_BATCH / 2);
        [contradicted, most_due_first(old)].map(|all| {
            let keys = all.into_iter().map(|(_, key, rate)| (key, rate));
            keys.collect()
        })
    }

    /// The first and last entries of hot stretches where entries are even: parts of these may not
    /// belong to the stretch.
    fn leaves_at_ends(&self, now: Time) -> Vec<(Key, f32)> {
        let mut ends = Vec::new();
        let due = |key: &Key| {
            self.leaves
                .get(key)
                .is_none_or(|table| table.seen.is_none_or(|seen| now.since(seen) >= LEAVES_AGAIN))
        };
        for table in self.lower.values() {
            if !self.has_busy_entries(table) {
                continue;
            }
            let mut before: Option<usize> = None;
            for segment in table
                .segments
                .iter()
                .filter(|segment| self.tally.is_hot(segment, table.is_whole(&segment.entries)))
            {
                let rate = rate_of(segment.believed());
                let (first, last) = (segment.entries.start, segment.entries.end - 1);
                if before == Some(first) {
                    ends.pop();
                } else {
                    ends.push((table.entry(first), rate));
                }
                ends.push((table.entry(last), rate));
                before = Some(segment.entries.end);
            }
        }
        ends.dedup_by_key(|(key, _)| *key);
        ends.retain(|(key, _)| due(key));
        ends.sort_by_key(|(key, _)| self.leaves.contains_key(key));
        ends.truncate(LEAF_FEW);
        ends
    }

    /// Chooses a visit to the leaves of an entry. The time to its look leaves two thirds of the
    /// pages old if all are alike; or, in every other visit if hot pages are known, about half of
    /// these.
    pub(super) fn choose_leaves(&mut self, now: Time) -> Option<Visit> {
        let (key, rate, sampled) = self.next_leaves(now)?;
        let areas = &self.areas;
        let new = || Table::new(key.0, key.1, Level::PTE, areas);
        let table = &*self.leaves.entry(key).or_insert_with(new);
        let hot = self.tally.aims(table);
        let visits = table.visits as usize;
        // If few pages take all accesses, they become young sooner.
        let uneven =
            self.lower.get(&above(key)).is_some_and(|table| self.tally.skew_in(table).is_uneven());
        let sooner = if uneven { 4f32.powi((visits % 3) as i32) } else { 1.0 };
        let first = self.shares.veiled;
        let alike = match first {
            true => FIRST_ACCESSES / rate,
            false => LEAF_MEASURE * 512.0 / rate / sooner,
        };
        let measured = !hot.is_empty() && visits % 2 == 1;
        let alike = alike.clamp(LEAF_DISTANCES.0, LEAF_DISTANCES.1);
        let distance = match (measured, table.rate_if_young_at(alike)) {
            (true, _) => (MEASURE / hot[visits / 2 % hot.len()]).clamp(DISTANCES.0, DISTANCES.1),
            (false, Some(rate)) => (MEASURE / rate).clamp(LEAF_DISTANCES.0, alike),
            (false, None) => alike,
        };
        let distance = (distance * 1e9) as u64;
        self.ladder = (self.ladder + 1) % LADDER.len();
        // Where pages are rarely accessed, a sooner look would find none young.
        let last_distance = match first || alike >= LEAF_DISTANCES.1 {
            true => distance,
            false => (distance / (2 * LADDER[self.ladder])).max((DISTANCES.0 * 1e9) as u64),
        };
        Some(Visit {
            level: Level::PTE,
            key,
            work: Work::Leaves,
            distance,
            last_distance,
            looks: 2,
            prepaid: 0,
            sampled,
            sketch: false,
        })
    }
}

/// Sorts entries by how long they are due, longest first.
fn most_due_first(mut entries: Vec<(f64, Key, f32)>) -> Vec<(f64, Key, f32)> {
    entries.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    entries
}

/// Key of the table of level 2 that has an entry.
pub(super) fn above(key: Key) -> Key {
    (key.0, Level::PUD.entry_of(Addr { space: key.0, at: key.1 }).start)
}

/// Number of an entry in its table of level 2.
pub(super) fn entry_of(key: Key) -> usize {
    ((key.1 - above(key).1) >> Level::PMD.shift()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Config;
    use tierscope_core::{Range, SpaceId};

    const SPACE: SpaceId = SpaceId(0);

    // Queues of three: undecided ones come twice as often as each of the others, and an empty queue
    // is passed over.
    #[test]
    fn kinds_of_leaves_take_turns() {
        let mut rates = Rates::new(Config::default()).unwrap();
        for (kind, queue) in rates.wanted.iter_mut().enumerate() {
            queue.extend((0..3).map(|n| ((SPACE, (10 * kind as u64 + n) << 21), 1.0, false)));
        }
        let next = || rates.next_leaves(Time(0)).map(|((_, at), ..)| at >> 21);
        let order: Vec<u64> = std::iter::from_fn(next).collect();
        assert_eq!(order, [10, 0, 20, 1, 11, 2, 21, 12, 22]);
    }

    // All looks at 17 entries came too late for an upper bound: one of them has its pages looked
    // at, and another one three seconds later.
    #[test]
    fn a_segment_that_only_pages_decide_has_one_looked_at() {
        let mut rates = Rates::new(Config::default()).unwrap();
        let whole = Range::new(SPACE, 0, 1 << 30);
        let mut table = Table::new(SPACE, 0, Level::PMD, &[whole]);
        let [low, mean, high] = [256.0, 4_000.0, 500_000.0].map(cell_of);
        let segment =
            Segment { entries: 100..117, low, mean, high, core: [low, high], blunt: true };
        let closer = Segment { entries: 200..300, blunt: false, ..segment.clone() };
        table.segments = vec![segment, closer];
        rates.lower.insert(table.key(), table);
        rates.refined[1].insert((SPACE, 0));
        let seconds = |seconds: u64| Time(seconds * 1_000_000_000);
        let late = rates.leaves_of_late_segments(seconds(10));
        let [(key, _)] = late[..] else { panic!("{late:?}") };
        assert!((100..117).contains(&entry_of(key)), "{key:?}");
        let mut leaves = Table::new(key.0, key.1, Level::PTE, &[whole]);
        leaves.seen = Some(seconds(10));
        rates.leaves.insert(key, leaves);
        assert_eq!(rates.leaves_of_late_segments(seconds(13)), []);
        assert_eq!(rates.leaves_of_late_segments(seconds(14)).len(), 1);
    }
}
