//! Placement of memory: runs of pages whose tiers follow one rule, so that terabytes take only a
//! few runs.
//!
//! A rule is a tier for each residue: page `n` of a space is in `tiers[n % tiers.len()]`. Most
//! rules are one tier; interleaving has a tier for each turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_core::{
    Error, ErrorKind, Level, Mappings, PAGE_SHIFT, PAGE_SIZE, Range, Result, Tier, TierUse,
};
use tierscope_hw::config::MemoryTier;

use super::space::SPACE;
use crate::placement::{Placement, TierMap, Watermarks};

/// Tiers by page number, modulo their count.
type Rule = Arc<[Tier]>;

/// Pages up to `end` that follow one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    end: u64,
    rule: Rule,
}

impl Run {
    fn tier_of(&self, page: u64) -> Option<Tier> {
        (page < self.end).then(|| self.rule[(page % self.rule.len() as u64) as usize])
    }
}

/// The runs in an array: faster to search than a tree.
pub(super) struct Index<'a> {
    starts: Vec<u64>,
    runs: Vec<&'a Run>,
}

impl Index<'_> {
    /// See [`Places::tier_of`].
    #[inline]
    pub(super) fn tier_of(&self, at: u64) -> Option<Tier> {
        let page = at >> PAGE_SHIFT;
        let next = self.starts.partition_point(|start| *start <= page);
        self.runs[next.checked_sub(1)?].tier_of(page)
    }
}

/// Size of a tier, in pages.
#[derive(Clone, Copy, Debug)]
struct Pool {
    capacity: u64,
    free: u64,
    marks: Watermarks,
}

/// The runs of all mapped memory.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Runs by number of the first page.
    runs: BTreeMap<u64, Run>,
    pools: Vec<Pool>,
    /// Incremented by every move.
    pub(super) version: u64,
}

/// Pages `from..to`, of which some moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Number of promoted pages.
    pub(super) up: u64,
    /// Number of demoted pages.
    pub(super) down: u64,
}

/// Result of a request to move pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Addresses before this one are done.
    pub(super) reached: u64,
    /// Number of pages that moved.
    pub(super) pages: u64,
    /// Number of pages without room in the tier.
    pub(super) failed: u64,
    /// Moved pages, by source tier.
    pub(super) from: [u64; crate::account::TIERS],
    /// Moved ranges, in order of address.
    pub(super) parts: Vec<Part>,
}

impl Places {
    /// Memory of `tiers`, with everything mapped touched once in order of address, like a program
    /// that fills its memory first. Page tables take their share of the fastest tier that has it:
    /// eight bytes a page.
    ///
    /// # Errors
    /// The tiers are too small.
    pub(super) fn new(
        tiers: &[MemoryTier],
        marks: &[Watermarks],
        placement: &Placement,
        mappings: &Mappings,
    ) -> Result<Self> {
        let pool = |(tier, marks): (&MemoryTier, &Watermarks)| {
            let capacity = tier.mib << 8;
            Pool { capacity, free: capacity, marks: *marks }
        };
        let pools: Vec<Pool> = tiers.iter().zip(marks).map(pool).collect();
        let mut places = Self { runs: BTreeMap::new(), pools, version: 0 };
        places.check(tiers, placement, mappings)?;
        let mut tables = (mappings.bytes() / Level::FANOUT) >> PAGE_SHIFT;
        for pool in &mut places.pools {
            let taken = tables.min(pool.free.saturating_sub(pool.marks.low));
            pool.free -= taken;
            tables -= taken;
        }
        for mapping in &mappings.mappings {
            let pages = (mapping.range.start >> PAGE_SHIFT, mapping.range.end >> PAGE_SHIFT);
            places.populate(placement, pages)?;
        }
        Ok(places)
    }

    fn check(
        &self,
        tiers: &[MemoryTier],
        placement: &Placement,
        mappings: &Mappings,
    ) -> Result<()> {
        let refuse = |cause: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, "the workload cannot be placed")
                .cause(cause)
                .remedy(remedy))
        };
        let there = |tier: &Tier| usize::from(tier.0) < tiers.len();
        let known = match placement {
            Placement::FirstTouch => true,
            Placement::Bind(tier) => there(tier),
            Placement::Interleave(list) => !list.is_empty() && list.iter().all(there),
            Placement::Known(map) => map.fits(tiers.len()),
        };
        if !known {
            return refuse(
                "it names a tier that the machine does not have".into(),
                "choose from the machine's tiers",
            );
        }
        if tiers.len() > crate::account::TIERS {
            let most = crate::account::TIERS;
            return refuse(format!("there are more than {most} tiers"), "configure fewer tiers");
        }
        let room: u64 = self.pools.iter().map(|pool| pool.capacity << PAGE_SHIFT).sum();
        let wanted = mappings.bytes() + mappings.bytes() / Level::FANOUT;
        if wanted > room {
            let [wanted, room] = [wanted >> 20, room >> 20];
            return refuse(
                format!("{wanted} MiB with its page tables in {room} MiB of memory"),
                "make the workload smaller or the tiers larger",
            );
        }
        Ok(())
    }

    /// Places the pages `from..to`, in order.
    fn populate(&mut self, placement: &Placement, (mut from, to): (u64, u64)) -> Result<()> {
        while from < to {
            let (rule, pages) = match placement {
                Placement::Bind(tier) => self.plain(*tier, self.pools[usize::from(tier.0)].free),
                Placement::FirstTouch => self.first(),
                Placement::Interleave(tiers) => self.in_turn(tiers, from),
                Placement::Known(map) => self.known(map, from),
            };
            let end = to.min(from.saturating_add(pages));
            if end == from {
                return Err(Error::new(ErrorKind::Usage, "the workload cannot be placed")
                    .cause("the memory that its placement allows is full")
                    .remedy("make the workload smaller, or place it elsewhere"));
            }
            for (residue, tier) in rule.iter().enumerate() {
                self.pools[usize::from(tier.0)].free -=
                    of_residue((from, end), residue, rule.len());
            }
            self.put((from, end), rule);
            from = end;
        }
        Ok(())
    }

    fn plain(&self, tier: Tier, pages: u64) -> (Rule, u64) {
        (Arc::new([tier]), pages)
    }

    /// The tier of a first touch, and its number of pages for that: above its low watermark, then
    /// above its min watermark.
    fn first(&self) -> (Rule, u64) {
        for mark in [|marks: &Watermarks| marks.low, |marks: &Watermarks| marks.min] {
            for (number, pool) in self.pools.iter().enumerate() {
                let left = pool.free.saturating_sub(mark(&pool.marks));
                if left > 0 {
                    return self.plain(Tier(number as u8), left);
                }
            }
        }
        self.plain(Tier(0), 0)
    }

    /// The tier that a map gives for a page, or one with room instead, and the number of pages from
    /// there on for which that holds.
    fn known(&self, map: &TierMap, from: u64) -> (Rule, u64) {
        let (first, end) = map.at(from << PAGE_SHIFT);
        let pages = (end >> PAGE_SHIFT).max(from + 1) - from;
        let left = |tier: &Tier| {
            let pool = &self.pools[usize::from(tier.0)];
            pool.free.saturating_sub(pool.marks.low)
        };
        let tier = TierMap::instead(first, self.pools.len()).find(|tier| left(tier) > 0);
        let (rule, room) = tier.map_or_else(|| self.first(), |tier| self.plain(tier, left(&tier)));
        (rule, room.min(pages))
    }

    /// The interleaving rule with full tiers replaced, and the number of pages from `from` on for
    /// which it holds.
    fn in_turn(&self, tiers: &[Tier], from: u64) -> (Rule, u64) {
        let left = |tier: &Tier| {
            let pool = &self.pools[usize::from(tier.0)];
            pool.free.saturating_sub(pool.marks.low)
        };
        let (instead, room) = self.first();
        let rule: Vec<Tier> =
            tiers.iter().map(|tier| if left(tier) > 0 { *tier } else { instead[0] }).collect();
        let turns = rule.len() as u64;
        let rounds = (0..self.pools.len() as u8).map(Tier).filter_map(|tier| {
            let each = rule.iter().filter(|other| **other == tier).count() as u64;
            let there = if left(&tier) > 0 { left(&tier) } else { room };
            (each > 0).then(|| there / each)
        });
        let rounds = rounds.min().unwrap_or(0);
        if rounds > 0 {
            return (rule.into(), rounds * turns);
        }
        // Less than one whole round is left: page by page.
        let next = rule[(from % turns) as usize];
        let there = if left(&next) > 0 { left(&next) } else { room };
        self.plain(next, there.min(1))
    }

    /// Assigns `rule` to the pages, and joins neighbouring runs of the same rule.
    fn put(&mut self, (mut from, mut to): (u64, u64), rule: Rule) {
        self.cut(from);
        self.cut(to);
        let gone: Vec<u64> = self.runs.range(from..to).map(|(start, _)| *start).collect();
        gone.iter().for_each(|start| {
            self.runs.remove(start);
        });
        if let Some((start, run)) = self.runs.range(..from).next_back()
            && run.end == from
            && run.rule == rule
        {
            from = *start;
        }
        if let Some(next) = self.runs.get(&to).filter(|next| next.rule == rule) {
            let end = next.end;
            self.runs.remove(&to);
            to = end;
        }
        self.runs.insert(from, Run { end: to, rule });
    }

    /// Splits the run that holds that page, so that a run begins there.
    fn cut(&mut self, at: u64) {
        let Some((start, run)) = self.runs.range_mut(..at).next_back() else { return };
        if at < run.end && *start < at {
            let rest = run.clone();
            run.end = at;
            self.runs.insert(at, rest);
        }
    }

    /// The runs that overlap the pages, cut to them.
    pub(super) fn runs(&self, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64, &Rule)> {
        let first = self.runs.range(..=from).next_back().map_or(from, |(start, _)| *start);
        self.runs.range(first..to).filter_map(move |(start, run)| {
            let (start, end) = ((*start).max(from), run.end.min(to));
            (start < end).then_some((start, end, &run.rule))
        })
    }

    /// Pages of a range, by tier.
    pub(super) fn pages(&self, range: &Range) -> [u64; crate::account::TIERS] {
        let mut pages = [0; crate::account::TIERS];
        if range.space != SPACE {
            return pages;
        }
        for (from, to, rule) in self.runs(span(range)) {
            for (residue, tier) in rule.iter().enumerate() {
                pages[usize::from(tier.0)] += of_residue((from, to), residue, rule.len());
            }
        }
        pages
    }

    /// The tier of the page that holds the address.
    pub(super) fn tier_of(&self, at: u64) -> Option<Tier> {
        let page = at >> PAGE_SHIFT;
        let (_, run) = self.runs.range(..=page).next_back()?;
        run.tier_of(page)
    }

    /// An index for looking up the tiers of many addresses.
    pub(super) fn index(&self) -> Index<'_> {
        Index { starts: self.runs.keys().copied().collect(), runs: self.runs.values().collect() }
    }

    /// Moves at most `most` pages of `range` to `tier`, in order of address. Once the tier is full,
    /// the rest fails.
    pub(super) fn move_pages(&mut self, range: &Range, tier: Tier, most: u64) -> Moved {
        let to = usize::from(tier.0);
        let (mut from, end) = span(range);
        let mut moved = Moved { reached: range.end, ..Moved::default() };
        while let Some((start, stop, rule)) = self.next_elsewhere((from, end), tier) {
            let wanted = elsewhere((start, stop), &rule, tier);
            let allowed = wanted.min(most - moved.pages);
            if allowed == 0 {
                moved.reached = start << PAGE_SHIFT;
                break;
            }
            let count = allowed.min(self.pools[to].free);
            if count == 0 {
                let rest = self.pages(&Range::new(range.space, start << PAGE_SHIFT, range.end));
                moved.failed = rest.iter().sum::<u64>() - rest[to];
                break;
            }
            let stop = if count == wanted { stop } else { prefix(start, &rule, tier, count) };
            let mut part = Part { from: start, to: stop, ..Part::default() };
            for (residue, source) in rule.iter().enumerate().filter(|(_, source)| **source != tier)
            {
                let pages = of_residue((start, stop), residue, rule.len());
                moved.from[usize::from(source.0)] += pages;
                *if *source > tier { &mut part.up } else { &mut part.down } += pages;
                self.pools[usize::from(source.0)].free += pages;
            }
            self.pools[to].free -= count;
            moved.pages += count;
            moved.parts.push(part);
            self.put((start, stop), Arc::new([tier]));
            from = stop;
        }
        self.version += u64::from(moved.pages > 0);
        moved
    }

    /// The first run of these pages with pages in other tiers.
    fn next_elsewhere(&self, pages: (u64, u64), tier: Tier) -> Option<(u64, u64, Rule)> {
        let (from, to, rule) =
            self.runs(pages).find(|(from, to, rule)| elsewhere((*from, *to), rule, tier) > 0)?;
        Some((from, to, Arc::clone(rule)))
    }

    /// Frees reclaimed pages of a tier; after a refault they are in the same tier again.
    pub(super) fn release(&mut self, tier: usize, pages: u64) {
        if let Some(pool) = self.pools.get_mut(tier) {
            pool.free = (pool.free + pages).min(pool.capacity);
        }
    }

    /// Takes pages of a tier again; a shortage is not reported.
    pub(super) fn claim(&mut self, tier: usize, pages: u64) {
        if let Some(pool) = self.pools.get_mut(tier) {
            pool.free = pool.free.saturating_sub(pages);
        }
    }

    /// Usage of the tiers.
    pub(super) fn tiers(&self) -> impl Iterator<Item = TierUse> + '_ {
        self.pools.iter().enumerate().map(|(number, pool)| TierUse {
            tier: Tier(number as u8),
            capacity: pool.capacity << PAGE_SHIFT,
            used: (pool.capacity - pool.free) << PAGE_SHIFT,
        })
    }

    /// Bytes of each tier that mapped pages have, or may take above its low watermark.
    pub(super) fn room(&self) -> Vec<u64> {
        let mut room: Vec<u64> = self.pools.iter().map(|pool| pool.free).collect();
        for (from, run) in &self.runs {
            for (residue, tier) in run.rule.iter().enumerate() {
                room[usize::from(tier.0)] += of_residue((*from, run.end), residue, run.rule.len());
            }
        }
        let above = |(room, pool): (u64, &Pool)| room.saturating_sub(pool.marks.low) << PAGE_SHIFT;
        room.into_iter().zip(&self.pools).map(above).collect()
    }

    /// Watermarks of the tiers, the fastest first.
    pub(super) fn watermarks(&self) -> impl Iterator<Item = Watermarks> + '_ {
        self.pools.iter().map(|pool| pool.marks)
    }
}

/// The whole pages of a range.
fn span(range: &Range) -> (u64, u64) {
    (range.start >> PAGE_SHIFT, range.end.div_ceil(PAGE_SIZE))
}

/// Numbers within `from..to` that leave `residue` when divided by `turns`.
fn of_residue((from, to): (u64, u64), residue: usize, turns: usize) -> u64 {
    let (residue, turns) = (residue as u64, turns as u64);
    let below = |end: u64| end / turns + u64::from(end % turns > residue);
    below(to) - below(from)
}

/// Number of pages within `from..to` in other tiers.
fn elsewhere(pages: (u64, u64), rule: &[Tier], tier: Tier) -> u64 {
    let others = rule.iter().enumerate().filter(|(_, other)| **other != tier);
    others.map(|(residue, _)| of_residue(pages, residue, rule.len())).sum()
}

/// End of the shortest run of pages from `from` on with `count` pages, at least one, in other
/// tiers.
fn prefix(from: u64, rule: &[Tier], tier: Tier, count: u64) -> u64 {
    let each = rule.iter().filter(|other| **other != tier).count() as u64;
    let mut end = from + (count - 1) / each * rule.len() as u64;
    let mut left = count - (count - 1) / each * each;
    while left > 0 {
        left -= u64::from(rule[(end % rule.len() as u64) as usize] != tier);
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{WATERMARK_SCALE, toy_tiers};
    use proptest::prelude::*;
    use tierscope_core::{Backing, Mapping, Space};

    const FAST: Tier = Tier(0);
    const SLOW: Tier = Tier(1);
    const FAR: Tier = Tier(2);

    /// One mapping of `mib` MiB from 1 MiB on.
    fn mapped(mib: u64) -> (Mappings, Range) {
        let range = Range::new(SPACE, 1 << 20, (mib + 1) << 20);
        let mapping = Mapping {
            range,
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        };
        let spaces = vec![Space { id: SPACE, name: "".into() }];
        (
            Mappings {
                taken: tierscope_core::Time(0),
                spaces,
                mappings: vec![mapping],
                ..Mappings::default()
            },
            range,
        )
    }

    fn placed(tiers: &[MemoryTier], placement: &Placement, of: &Mappings) -> Result<Places> {
        let marks = Watermarks::of_tiers(tiers, 0, WATERMARK_SCALE, None);
        Places::new(tiers, &marks, placement, of)
    }

    fn places(mib: &[u64], placement: &Placement, bytes: u64) -> (Places, Range) {
        let (mappings, range) = mapped(bytes);
        (placed(&toy_tiers(mib), placement, &mappings).expect("it fits"), range)
    }

    fn mib(places: &Places, range: &Range) -> Vec<f64> {
        places.pages(range).iter().map(|pages| *pages as f64 / 256.0).collect()
    }

    // 64 of 128 MiB: watermarks of 181 and 226 pages, which stay free; page tables of 80 MiB take
    // 40 pages.
    #[test]
    fn first_touch_fills_the_fast_tier_down_to_its_low_watermark() {
        let (places, range) = places(&[64, 64], &Placement::FirstTouch, 80);
        let low = Watermarks::of(64 << 8, 128 << 8, WATERMARK_SCALE, None).low;
        assert_eq!(places.pages(&range)[0], (64 << 8) - low - 40);
        assert_eq!(places.runs.len(), 2);
        let usage: Vec<TierUse> = places.tiers().collect();
        assert_eq!(usage[0].capacity - usage[0].used, low << 12);
    }

    // Pages 256, 257, 258, ... alternate between tiers 1 and 2: even ones are in the first of the
    // list.
    #[test]
    fn tiers_take_turns_until_one_is_full() {
        let placement = Placement::Interleave(vec![SLOW, FAR]);
        let (one, range) = places(&[64, 64, 64], &placement, 16);
        assert_eq!(mib(&one, &range)[..3], [0.0, 8.0, 8.0]);
        assert_eq!((one.tier_of(1 << 20), one.tier_of((1 << 20) + 4096)), (Some(SLOW), Some(FAR)));
        assert_eq!(one.tier_of(17 << 20), None);
        // 16 MiB less the low watermark of 52 pages; then the fast tier takes over its turns.
        let (full, range) = places(&[64, 64, 16], &placement, 60);
        let far = (16 << 8) - Watermarks::of(16 << 8, 144 << 8, WATERMARK_SCALE, None).low;
        assert_eq!(full.pages(&range)[2], far);
        assert_eq!(full.pages(&range)[1], 30 << 8);
        assert_eq!(full.pages(&range)[0], (30 << 8) - far);
    }

    #[test]
    fn a_workload_that_does_not_fit_is_refused() {
        let (mappings, _) = mapped(100);
        let refused = |placement: Placement| {
            placed(&toy_tiers(&[32, 64]), &placement, &mappings).unwrap_err().to_string()
        };
        assert!(refused(Placement::FirstTouch).contains("100 MiB with its page tables in 96 MiB"));
        assert!(refused(Placement::Bind(FAR)).contains("does not have"));
        let (mappings, _) = mapped(50);
        let bound = placed(&toy_tiers(&[32, 64]), &Placement::Bind(FAST), &mappings);
        assert!(bound.unwrap_err().to_string().contains("is full"));
    }

    // pages 0 1 2 3 4 5 6 7 ... are F S F S F S F S ...: moving three of S makes F F F F F F F S
    // ...
    #[test]
    fn a_move_takes_pages_of_other_tiers_in_address_order() {
        let (mut places, range) = places(&[64, 64], &Placement::Interleave(vec![FAST, SLOW]), 8);
        let moved = places.move_pages(&range, FAST, 3);
        assert_eq!((moved.pages, moved.failed, moved.from[1]), (3, 0, 3));
        assert_eq!(moved.reached, range.start + 6 * 4096, "the third was page 5");
        assert_eq!(places.pages(&range)[0], 1024 + 3);
        let rest = Range { start: moved.reached, ..range };
        let moved = places.move_pages(&rest, FAST, u64::MAX);
        assert_eq!((moved.pages, moved.reached), (1021, range.end));
        assert_eq!((places.runs.len(), places.version), (1, 2));
    }

    // 16 MiB of room for 32: half moves, and the other half is reported as failed.
    #[test]
    fn no_room_fails_the_rest() {
        let (mut places, range) = places(&[64, 16], &Placement::Bind(FAST), 32);
        let moved = places.move_pages(&range, SLOW, u64::MAX);
        assert_eq!((moved.pages, moved.failed), (16 << 8, 16 << 8));
        assert_eq!(moved.reached, range.end);
    }

    proptest! {
        // Against a plain list of pages: 2048 of them from page 256 on.
        #[test]
        fn moves_equal_moves_page_by_page(
            turns in prop::collection::vec(0u8..3, 1..5),
            steps in prop::collection::vec((0u64..2048, 1u64..2048, 0u8..3, 1u64..3000), 0..20),
        ) {
            let turns: Vec<Tier> = turns.into_iter().map(Tier).collect();
            let (mut places, range) =
                places(&[16, 16, 6], &Placement::Interleave(turns), 8);
            let tier_at = |places: &Places, page: u64| places.tier_of((256 + page) << 12);
            let mut plain: Vec<Option<Tier>> = (0..2048).map(|page| tier_at(&places, page)).collect();
            for (from, pages, tier, most) in steps {
                let part = Range::new(SPACE, (256 + from) << 12, (256 + (from + pages).min(2048)) << 12);
                let mut free: u64 =
                    places.tiers().nth(tier.into()).map(|t| (t.capacity - t.used) >> 12).unwrap();
                let moved = places.move_pages(&part, Tier(tier), most);
                let mut left = most;
                for page in &mut plain[from as usize..(from + pages).min(2048) as usize] {
                    if *page != Some(Tier(tier)) && left > 0 && free > 0 {
                        *page = Some(Tier(tier));
                        left -= 1;
                        free -= 1;
                    }
                }
                prop_assert_eq!(moved.pages, most - left);
                prop_assert_eq!(moved.from.iter().sum::<u64>(), moved.pages);
                let now: Vec<Option<Tier>> = (0..2048).map(|page| tier_at(&places, page)).collect();
                prop_assert_eq!(&now, &plain);
                let index = places.index();
                prop_assert!((254..2306u64).all(|page| index.tier_of(page << 12) == places.tier_of(page << 12)));
                let count = |tier| plain.iter().filter(|page| **page == Some(Tier(tier))).count() as u64;
                prop_assert_eq!(&places.pages(&range)[..3], &[count(0), count(1), count(2)][..]);
            }
        }
    }
}
