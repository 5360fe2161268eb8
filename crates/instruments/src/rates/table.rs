//! A table (a page of page table): its looks, and the rates inferred from them.

use std::ops::Range as Span;
use std::time::Duration;

use tierscope_core::{Level, Range, Region, SpaceId, Time};

use super::chain::{Chain, ChangeCounts, Prior, Segment, known_rate};
use super::grid::{CELLS, rate_of};
use super::looks::{Bits, ENTRIES, Look, Looks, Shared, WORDS, mask};
use super::skew::Skew;
use super::together::{self, Together};
use super::uncorrelated;

/// Key of a table: its space and the first address that it covers.
pub(super) type Key = (SpaceId, u64);

/// Maximum time in seconds from a clear to a look that is kept.
const LONGEST: f32 = 100.0;

/// Factor on the mean rate above which a page is one of the busiest.
const BUSIEST: f64 = 4.0;

/// Expected accesses at the soonest look at which nine of ten entries are young: busier entries
/// would look the same.
const BLUNT: f32 = 2.3;

/// Standard deviations, and entries beyond them, by which a look may differ from what is expected.
const SURE: f32 = 6.0;
const FEW: f32 = 4.0;
/// Rates that change twice within this time are those of bursts; and the time that looks span that
/// are kept of these.
const SOON: Duration = Duration::from_secs(4);
/// Ratio of the times of two looks from which on the longer one shows which entries are accessed.
const LONG: f32 = 8.0;
/// Correlation of entries from which they count as becoming young together.
const TOGETHER: f32 = 0.3;

/// Sums over entries of their rates, as far as these are believed ([`Segment::believed`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Number of entries with a known rate.
    pub(super) entries: f64,
    /// Sum of the rates, in accesses per second.
    pub(super) rate: f64,
    /// Sum of the squares of the rates.
    pub(super) square: f64,
    /// Cell of the highest rate; below all cells if no rate is known.
    pub(super) most: f32,
}

impl Sums {
    fn of(segments: &[Segment]) -> Self {
        let mut sums = Self { most: f32::MIN, ..Self::default() };
        for segment in segments {
            sums.add_entries(segment.entries.len() as f64, f64::from(segment.believed_rate()));
            sums.most = sums.most.max(segment.mean);
        }
        sums
    }

    /// Adds a number of entries with the same rate, except to the highest one.
    pub(super) fn add_entries(&mut self, entries: f64, rate: f64) {
        self.entries += entries;
        self.rate += entries * rate;
        self.square += entries * rate * rate;
    }

    /// Adds the sums of another table.
    pub(super) fn add(&mut self, other: &Self) {
        self.entries += other.entries;
        self.rate += other.rate;
        self.square += other.square;
        self.most = self.most.max(other.most);
    }
}

/// Groups of 64 entries, as bits, of which more or fewer are young than the inferred rates explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contradiction {
    more: u8,
    fewer: u8,
}

impl Contradiction {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether both find more entries of a group young than explained, or both fewer.
    fn is_like(&self, other: &Self) -> bool {
        self.more & other.more | self.fewer & other.fewer != 0
    }
}

/// A table: its state, its last looks, and the rates of its entries.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Addresses that its entries cover.
    pub(super) range: Range,
    /// The level of its entries.
    pub(super) level: Level,
    /// Range from the first to the last entry that covers mapped memory.
    pub(super) span: Span<usize>,
    /// Time of the last clear of its bits.
    pub(super) cleared: Option<Time>,
    /// Time of the last look.
    pub(super) seen: Option<Time>,
    /// The last looks at the table.
    pub(super) looks: Looks,
    /// Whether `looks` are those of sketches: of a few entries, spread over the table.
    pub(super) sketch: bool,
    /// An outlier: a look that the inferred rates cannot explain, held back until a second one
    /// confirms it, since the target may have been kept from running.
    pub(super) surprise: Option<(Look, Contradiction)>,
    /// Time when its rates last changed, or its entries became young together.
    turned: Option<Time>,
    /// Accesses per second of pages of its entries that become young together.
    pub(super) swept: Option<f32>,
    /// Correlation of entries: as contradicting looks showed it since the last inference, and
    /// before; and that of all entries.
    noted: Together,
    together: Together,
    correlation: f32,
    /// Time of the last inference.
    inferred: Option<Time>,
    /// Inferred rates, in order of entries; empty before the first inference.
    pub(super) segments: Vec<Segment>,
    /// Sums over `segments`.
    pub(super) sums: Sums,
    /// Skew of accesses within its entries, if these are of 2 MiB.
    pub(super) skew: Skew,
    /// Its accesses per second when `skew` was begun.
    skew_of: f64,
    /// Edition of the prior that the segments were inferred with.
    pub(super) edition: u32,
    /// Number of its entries that are huge pages, and the number and the entries themselves when
    /// they were last looked for.
    pub(super) huge: u64,
    pub(super) known_huge: u64,
    pub(super) whole: Bits,
    /// Mapped bytes in its range.
    bytes: u64,
    /// CPU time of a scan with what follows, averaged over recent ones.
    pub(super) price: Option<Duration>,
    /// Pass in which it had its last round-robin visit.
    pub(super) passed: Option<u32>,
    /// Number of completed visits.
    pub(super) visits: u32,
    /// Whether a visit is open or planned.
    pub(super) busy: bool,
    /// The table's regions as last built, with the hot threshold, the veil (`Tally::veil`) and the
    /// threshold of pages that they were built for; `None` if they must be rebuilt.
    pub(super) built: Option<([f32; 3], Vec<Region>)>,
}

impl Table {
    /// Makes the table whose entries of `level` begin at `start`.
    pub(super) fn new(space: SpaceId, start: u64, level: Level, areas: &[Range]) -> Self {
        let range = Range::new(space, start, start + (ENTRIES as u64) * level.entry_bytes());
        let mut table = Self {
            range,
            level,
            span: 0..ENTRIES,
            cleared: None,
            seen: None,
            looks: Looks::default(),
            sketch: false,
            surprise: None,
            turned: None,
            swept: None,
            noted: Together::NONE,
            together: Together::NONE,
            correlation: 0.0,
            inferred: None,
            segments: Vec::new(),
            sums: Sums::default(),
            skew: Skew::default(),
            skew_of: 0.0,
            edition: 0,
            huge: 0,
            known_huge: 0,
            whole: [0; WORDS],
            bytes: 0,
            price: None,
            passed: None,
            visits: 0,
            busy: false,
            built: None,
        };
        table.fit(areas);
        table
    }

    pub(super) fn key(&self) -> Key {
        (self.range.space, self.range.start)
    }

    /// Fits the span to the mapped areas. Returns whether any entry is mapped.
    pub(super) fn fit(&mut self, areas: &[Range]) -> bool {
        let before = |area: &Range| (area.space, area.end) <= (self.range.space, self.range.start);
        let here =
            areas[areas.partition_point(before)..].iter().map_while(|a| a.intersect(&self.range));
        let mut ends: Option<(u64, u64)> = None;
        self.bytes = 0;
        for part in here {
            self.bytes += part.bytes();
            ends = Some((ends.map_or(part.start, |ends| ends.0), part.end));
        }
        let Some((first, last)) = ends else { return false };
        let entry = |at: u64| ((at - self.range.start) >> self.level.shift()) as usize;
        self.span = entry(first)..entry(last - 1) + 1;
        true
    }

    /// Fits the span of a table of pages likewise. If pages were mapped since its rates were
    /// inferred, earlier looks are discarded, and the rates of the new pages are unknown.
    pub(super) fn fit_pages(&mut self, areas: &[Range]) -> bool {
        if !self.fit(areas) {
            return false;
        }
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else {
            return true;
        };
        let known = first.entries.start..last.entries.end;
        if known.start <= self.span.start && self.span.end <= known.end {
            return true;
        }
        if self.span.start < known.start {
            self.segments.insert(0, Segment::unknown(self.span.start..known.start));
        }
        if known.end < self.span.end {
            self.segments.push(Segment::unknown(known.end..self.span.end));
        }
        (self.looks, self.cleared, self.surprise) = (Looks::default(), None, None);
        true
    }

    /// How urgent its visits are, next to those of other tables of its level. With visits every T,
    /// its memory B is out of date by B T / 2 on average, at a price of P / T: for a given sum of
    /// prices, the sum over all tables is least if 1 / T is in proportion to the root of B / P.
    pub(super) fn urgency(&self) -> f64 {
        self.price.map_or(f64::INFINITY, |_| self.known_urgency())
    }

    /// [`Table::urgency`] if the price is known, otherwise zero.
    pub(super) fn known_urgency(&self) -> f64 {
        // Pages that were unmapped since have no memory.
        let bytes = self.bytes.max(1) as f64;
        let urgency = |price: Duration| bytes / price.as_nanos().max(1) as f64;
        self.price.map_or(0.0, |price| urgency(price).sqrt())
    }

    /// Space and address of an entry.
    pub(super) fn entry(&self, number: usize) -> Key {
        let cover = self.cover(&(number..number + 1));
        (cover.space, cover.start)
    }

    /// The sums of the lower and of the upper bounds of its entries' rates, in accesses per second.
    pub(super) fn bounds(&self) -> [f32; 2] {
        let sum = |bound: &dyn Fn(&Segment) -> f32| {
            let all = self.segments.iter().map(|s| s.entries.len() as f32 * rate_of(bound(s)));
            all.sum()
        };
        [sum(&|segment| segment.low), sum(&|segment| segment.high)]
    }

    /// Evidence of the skew of accesses over its entries, pages of an entry with `rate` accesses
    /// per second: from pairs of looks, right also if few pages are young; and a lower bound from
    /// rates, right also if the busiest pages are young in all looks.
    pub(super) fn page_skew(&self, rate: f32) -> (Shared, f64) {
        (self.looks.shared(self.span.len()), self.least_skew(rate))
    }

    /// Lower bound of the skew by the rates of the pages that are busier than the average one for
    /// certain.
    fn least_skew(&self, rate: f32) -> f64 {
        let number = |segment: &Segment| segment.entries.len() as f64;
        let low = |segment: &Segment| f64::from(rate_of(segment.low));
        let entries: f64 = self.segments.iter().map(number).sum();
        let all = self.segments.iter().map(|s| number(s) * low(s)).sum::<f64>();
        let all = all.max(f64::from(rate)).max(f64::MIN_POSITIVE);
        let busiest = self.segments.iter().filter(|s| low(s) * entries > BUSIEST * all);
        let square: f64 = busiest.map(|s| number(s) * low(s) * low(s)).sum();
        square * entries / (all * all)
    }

    /// Whether nothing is known of the table, or only the result of a sketch.
    pub(super) fn is_new(&self) -> bool {
        self.sketch || self.looks.all().is_empty()
    }

    /// Begins a visit, as a sketch or of all entries. If the last visit was of the other kind, its
    /// looks and its clear are discarded: they were of other entries.
    pub(super) fn begin(&mut self, sketch: bool) {
        if self.sketch != sketch {
            (self.sketch, self.cleared, self.surprise) = (sketch, None, None);
            self.looks = Looks::default();
        }
    }

    /// Adds a look, which also cleared all entries; accesses have been visible `since` that time.
    /// Two kinds of looks carry too little evidence and are not kept: those too long after the
    /// clear, and those with all entries young at a time that was not `chosen`.
    pub(super) fn look(&mut self, since: Option<Time>, at: Time, young: Bits, chosen: bool) {
        if let Some(since) = since {
            let seconds = at.since(since).as_secs_f32();
            let all = mask(&self.span);
            let full = young.iter().zip(&all).all(|(young, all)| young & all == *all);
            if seconds <= LONGEST && (chosen || !full) {
                self.take_in(Look { at, seconds, young });
            }
        }
        self.cleared = Some(at);
        self.seen = Some(at);
    }

    /// The last look, also one that is held back.
    pub(super) fn last_look(&self) -> Option<&Look> {
        let held = self.surprise.as_ref().map(|(look, _)| look);
        held.or(self.looks.all().last())
    }

    /// Adds a look to the evidence that rates are inferred from. If two successive looks contradict
    /// the inferred rates in the same way, the rates have changed, and all earlier looks are
    /// discarded. A single such look is held back until the next one shows whether that is so; if
    /// not, or if the rates changed a short time ago already, entries become young together: all
    /// looks count, and those that are kept are spread over some seconds.
    fn take_in(&mut self, look: Look) {
        if self.is_together() {
            if let Some((first, _)) = self.surprise.take() {
                self.looks.add_apart(first, SOON);
            }
            self.looks.add_apart(look, SOON);
            return;
        }
        let found = self.contradiction(look.seconds, &look.young);
        if let Some((first, before)) = self.surprise.take() {
            let again = self.turned.is_some_and(|turned| look.at.since(turned) < SOON);
            self.turned = Some(look.at);
            if found.is_like(&before) && !again {
                self.looks = Looks::default();
            } else {
                self.note_correlation([&first, &look]);
            }
            self.looks.add(first);
        } else if !found.is_none() {
            self.surprise = Some((look, found));
            return;
        }
        self.looks.add(look);
    }

    /// Notes how far the entries of its segments become young together.
    fn note_correlation(&mut self, last: [&Look; 2]) {
        let looks: Vec<Look> = self.looks.all().iter().chain(last).copied().collect();
        self.noted.add(&Together::of_changed(&self.segments, &looks));
    }

    /// How a look contradicts the inferred rates.
    fn contradiction(&self, seconds: f32, young: &Bits) -> Contradiction {
        let likelihood = super::grid::look_likelihood(seconds);
        let mut expected = [(0.0f32, 0.0f32); WORDS];
        for segment in &self.segments {
            let cell = |cell: f32| cell.round().clamp(0.0, (CELLS - 1) as f32) as usize;
            let (low, high) =
                (likelihood.young[cell(segment.low)], likelihood.young[cell(segment.high)]);
            let mut at = segment.entries.start;
            while at < segment.entries.end {
                let end = (at | 63).min(segment.entries.end - 1) + 1;
                let (least, most) = &mut expected[at / 64];
                *least += (end - at) as f32 * low;
                *most += (end - at) as f32 * high;
                at = end;
            }
        }
        let mut found = Contradiction::default();
        if self.sketch || self.segments.is_empty() {
            return found;
        }
        let mapped = mask(&self.span);
        for word in 0..WORDS {
            let number = (young[word] & mapped[word]).count_ones() as f32;
            let all = mapped[word].count_ones() as f32;
            let (least, most) = expected[word];
            let bit = |is: bool| u8::from(is) << word;
            found.more |= bit(number > most + SURE * most.sqrt() + FEW);
            found.fewer |= bit(number < least - SURE * (all - least).max(0.0).sqrt() - FEW);
        }
        found
    }

    /// Infers its segments as of `now`; entries are inferred separately if they are uncorrelated
    /// (`strangers`). Returns the change counts and the work in nodes.
    pub(super) fn infer(
        &mut self,
        chain: &mut Chain,
        prior: &Prior,
        now: Time,
        strangers: bool,
    ) -> (ChangeCounts, usize) {
        self.built = None;
        self.edition = prior.edition();
        let (looks, span, segments) = (&self.looks, &self.span, &mut self.segments);
        let mut done = match strangers {
            _ if self.sketch => chain.infer_sketch(looks, span, prior, now, segments),
            true => {
                (ChangeCounts::default(), uncorrelated::infer(looks, span, prior, now, segments))
            }
            false => chain.infer(looks, span, prior, now, segments),
        };
        let noted = std::mem::replace(&mut self.noted, Together::NONE);
        let since = self.inferred.map_or(0.0, |at| now.since(at).as_secs_f32());
        self.together.renew(&noted, since);
        self.inferred = Some(now);
        done.0.together = noted;
        if !self.sketch {
            let all = Together::of_table(&self.segments, looks.all());
            [_, self.correlation] = prior.together(&all, &self.together);
            done.0.together.add(&all);
        }
        for segment in self.segments.iter_mut().filter(|_| !self.sketch) {
            let own = Together::of_segment(segment, looks.all());
            done.0.together.add(&own);
            let [correlation, _] = prior.together(&own, &self.together);
            together::widen(segment, looks.all(), correlation);
        }
        let soonest = looks.all().iter().map(|look| look.seconds).fold(f32::MAX, f32::min);
        for segment in &mut self.segments {
            segment.blunt = segment.mean > 0.0 && rate_of(segment.mean) * soonest > BLUNT;
        }
        self.sums = Sums::of(&self.segments);
        // Most accesses are new ones, of which the skew is not known.
        if self.sums.rate > 2.0 * self.skew_of {
            (self.skew, self.skew_of) = (Skew::default(), self.sums.rate);
        }
        done
    }

    /// The segment that contains an entry.
    pub(super) fn segment(&self, entry: usize) -> Option<&Segment> {
        let next = self.segments.partition_point(|segment| segment.entries.end <= entry);
        self.segments.get(next).filter(|segment| segment.entries.contains(&entry))
    }

    /// Whether no entry was young in the last looks, at least three.
    pub(super) fn is_idle(&self) -> bool {
        let looks = self.looks.all();
        looks.len() > 2 && looks.iter().all(super::looks::Look::is_old)
    }

    /// Accesses per second of all its entries together, as far as their rates are known.
    pub(super) fn rate(&self) -> f32 {
        let each = |segment: &Segment| match segment.mean {
            mean if mean <= 0.0 => 0.0,
            mean => segment.entries.len() as f32 * rate_of(mean),
        };
        self.segments.iter().map(each).sum()
    }

    /// Number of entries that are accessed at all, as far as looks show it: of few looks none of
    /// which was much longer than `look`, all. Entries that are young in `look` count as well.
    pub(super) fn accessed(&self, look: &Look) -> usize {
        let is_long = |kept: &Look| kept.seconds >= LONG * look.seconds;
        let enough = self.looks.is_full() || self.looks.all().iter().any(is_long);
        if enough { self.looks.young_once(&look.young) as usize } else { self.span.len() }
    }

    /// Whether nine of ten entries that are accessed were young in a look.
    pub(super) fn is_saturated(&self, look: &Look) -> bool {
        !look.is_old() && 10 * look.count() as usize >= 9 * self.accessed(look)
    }

    /// Mean rate of the entries that are accessed, if a look up to `seconds` after the clear found
    /// nine of ten of them young: such a look is too late.
    pub(super) fn rate_if_young_at(&self, seconds: f32) -> Option<f32> {
        let is_late = |look: &&Look| look.seconds <= 1.1 * seconds && self.is_saturated(look);
        let late = self.looks.all().iter().find(is_late)?;
        let entries = self.sums.entries.min(self.accessed(late) as f64);
        let rate = (self.sums.rate / entries.max(1.0)) as f32;
        (rate > 0.0).then_some(rate)
    }

    /// Whether entries become young together.
    pub(super) fn is_together(&self) -> bool {
        self.correlation >= TOGETHER
    }

    /// Mean accesses per second of an entry, if entries become young together.
    pub(super) fn swept_rate(&self) -> Option<f32> {
        let rate = self.sums.rate / self.sums.entries.max(1.0);
        (self.is_together() && rate > 0.0).then_some(rate as f32)
    }

    /// Accesses per second of all its entries together, each of them at most `most`.
    pub(super) fn limited_rate(&self, most: f32) -> f32 {
        self.limited(most, Segment::believed)
    }

    /// The sum over its entries of the rate of a cell of their segment, each of them at most
    /// `most`.
    pub(super) fn limited(&self, most: f32, cell: impl Fn(&Segment) -> f32) -> f32 {
        let rate = |segment: &Segment| known_rate(cell(segment)).min(most);
        self.segments.iter().map(|s| s.entries.len() as f32 * rate(s)).sum()
    }

    /// The entries that cover a part of its range.
    pub(super) fn entries_of(&self, part: &Range) -> Span<usize> {
        let number = |at: u64| ((at - self.range.start) >> self.level.shift()) as usize;
        number(part.start)..number(part.end - 1) + 1
    }

    /// Whether entries are known to be huge pages, all of them.
    pub(super) fn is_whole(&self, entries: &Span<usize>) -> bool {
        let is_set = |entry: usize| self.whole[entry / 64] >> (entry % 64) & 1 == 1;
        self.known_huge > 0 && entries.clone().all(is_set)
    }

    /// Number of entries that are known to be huge pages.
    pub(super) fn count_whole(&self, entries: &Span<usize>) -> f64 {
        let whole = mask(entries).into_iter().zip(&self.whole);
        f64::from(whole.map(|(here, whole)| (here & whole).count_ones()).sum::<u32>())
    }

    /// Addresses that a range of its entries covers.
    pub(super) fn cover(&self, entries: &Span<usize>) -> Range {
        let at = |entry: usize| self.range.start + ((entry as u64) << self.level.shift());
        Range::new(self.range.space, at(entries.start), at(entries.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let area = Range::new(SpaceId(0), 0, 1 << 30);
        Table::new(SpaceId(0), 0, Level::PMD, &[area])
    }

    /// Adds a look 10 ms after the clear: all entries young, or none.
    fn look(table: &mut Table, milliseconds: u64, young: bool) {
        let at = |ms: u64| Time(ms * 1_000_000);
        let bits = [if young { u64::MAX } else { 0 }; WORDS];
        table.look(Some(at(milliseconds - 10)), at(milliseconds), bits, true);
    }

    fn infer(table: &mut Table, milliseconds: u64) {
        let now = Time(milliseconds * 1_000_000);
        table.infer(&mut Chain::default(), &Prior::default(), now, false);
    }

    // A sketch leaves most bits uncleared: the first look at all entries after it has no clear
    // before it.
    #[test]
    fn looks_at_all_entries_do_not_follow_a_sketch() {
        let mut table = table();
        table.begin(true);
        look(&mut table, 100, true);
        assert!(table.is_new() && table.cleared.is_some() && table.looks.all().len() == 1);
        table.begin(true);
        assert_eq!(table.looks.all().len(), 1);
        table.begin(false);
        assert!(table.cleared.is_none() && table.looks.all().is_empty());
        look(&mut table, 200, true);
        assert!(!table.is_new());
    }

    // Four looks find all entries young. One look that finds none, as if the target had been kept
    // from running, changes nothing until the next one finds all young again: then it is one of
    // six.
    #[test]
    fn one_look_alone_does_not_contradict_all_others() {
        let mut table = table();
        (1..=4).for_each(|number| look(&mut table, 100 * number, true));
        infer(&mut table, 400);
        let busy = table.segments[0].low;
        look(&mut table, 500, false);
        infer(&mut table, 500);
        assert!(table.surprise.is_some() && (table.segments[0].low - busy).abs() < 0.5);
        look(&mut table, 600, true);
        assert!(table.surprise.is_none());
        infer(&mut table, 600);
        assert!(table.looks.all().len() == 6 && table.correlation > 0.0);
    }

    // All 512 entries are young in every other look, 10 ms after the clear: that is once per 14 ms.
    // The looks of all are one observation each, and the rate is known within a factor of two or
    // more.
    #[test]
    fn bursts_keep_their_looks_and_are_known_less_closely() {
        let mut table = table();
        (1..=3).for_each(|number| look(&mut table, 100 * number, false));
        infer(&mut table, 300);
        for number in 4..=24 {
            look(&mut table, 100 * number, number % 2 == 0);
            infer(&mut table, 100 * number);
        }
        assert!(table.correlation >= TOGETHER && table.looks.all().len() == 8);
        let [segment] = &table.segments[..] else { panic!("{:?}", table.segments) };
        assert!((rate_of(segment.mean) / 69.0).ln().abs() < 0.9, "{}", rate_of(segment.mean));
        assert!(rate_of(segment.high) / rate_of(segment.low) > 4.0, "{segment:?}");
    }

    // All entries young in four looks. Two looks in succession that find none of them young mean
    // that the rates have changed.
    #[test]
    fn two_alike_looks_contradict_all_others() {
        let mut table = table();
        (1..=4).for_each(|number| look(&mut table, 100 * number, true));
        infer(&mut table, 400);
        let busy = table.segments[0].low;
        look(&mut table, 700, false);
        look(&mut table, 800, false);
        infer(&mut table, 800);
        assert_eq!(table.looks.all().len(), 2);
        assert!(table.segments[0].high < busy, "{:?}", table.segments);
    }

    // Entries are young in three looks, then in none of eight, and so on. At first, the rates
    // change; when they change again within a second, these are bursts, and looks of both kinds are
    // kept: three of eleven 10 ms after the clear are 32 a second.
    #[test]
    fn rates_that_change_again_soon_are_bursts() {
        let mut table = table();
        for number in 1..=66 {
            look(&mut table, 100 * number, number % 11 < 3);
            infer(&mut table, 100 * number);
        }
        assert!(table.correlation >= TOGETHER);
        let looks = table.looks.all();
        let young = looks.iter().filter(|look| !look.is_old()).count();
        assert!((1..=4).contains(&young), "{looks:?}");
        assert!(looks[0].at < Time(4_000_000_000), "{looks:?}");
        let rate = rate_of(table.segments[0].mean);
        assert!((32.0 / 2.5..32.0 * 2.5).contains(&rate), "{rate}");
    }

    // Objects of 32 entries are accessed one after the other, each as a whole. Then all entries are
    // young in two looks: that is a change, since objects did not become young together before.
    #[test]
    fn objects_that_are_swept_do_not_hide_a_change() {
        let mut table = table();
        for number in 1..=4 {
            let at = |ms: u64| Time(ms * 1_000_000);
            let mut bits: Bits = [0; WORDS];
            bits[2 * (number % 4) as usize] = 0xffff_ffff;
            table.look(Some(at(100 * number - 10)), at(100 * number), bits, true);
            infer(&mut table, 100 * number);
        }
        assert!(!table.is_together(), "{}", table.correlation);
        look(&mut table, 5000, true);
        look(&mut table, 5100, true);
        infer(&mut table, 5100);
        assert_eq!(table.looks.all().len(), 2);
    }

    // Half of the entries young after 10 ms means some 70 accesses per second; all of them young,
    // any higher rate.
    #[test]
    fn tables_with_all_entries_young_have_no_upper_bound() {
        let mut half = table();
        for number in 1..=4u64 {
            let at = |ms: u64| Time(ms * 1_000_000);
            let bits = [0x5555_5555_5555_5555 << (number % 2); WORDS];
            half.look(Some(at(100 * number - 10)), at(100 * number), bits, true);
        }
        infer(&mut half, 400);
        assert!(half.segments.iter().all(|segment| !segment.blunt), "{:?}", half.segments);
        let mut all = table();
        (1..=4).for_each(|number| look(&mut all, 100 * number, true));
        infer(&mut all, 400);
        assert!(all.segments.iter().all(|segment| segment.blunt), "{:?}", all.segments);
    }
}
