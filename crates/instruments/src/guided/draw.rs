//! From counted tables to regions.

use std::collections::BTreeMap;

use tierscope_core::{Level, PAGE_SHIFT, Range, Region, SpaceId};

use super::Settled;
use super::heat::{ENTRIES, Peers, Table, confidence};
use super::leaf::{LEAVES, Leaves};

/// Frequencies within a tenth are alike, as everywhere in region sampling; so are those that the
/// scatter of so few samples explains (twice the largest standard error of a share, 1/(2√n)).
fn tolerance(samples: u32) -> f64 {
    0.1 + 1.0 / f64::from(samples.max(1)).sqrt()
}

/// Draws the regions of `areas`: what no table covers is cold.
pub(super) fn draw(
    areas: &[Range],
    tables: &mut BTreeMap<(SpaceId, u64), Table>,
    settled: &Settled,
) -> Vec<Region> {
    let mut canvas = Canvas { regions: Vec::new(), hot: settled.hot };
    let cold = |range| Region {
        range,
        hits: 0.0,
        samples: settled.samples,
        age: settled.windows,
        level: Some(Level::PUD),
        confidence: 1.0,
        rate: None,
        unknown: false,
    };
    for area in areas {
        let mut at = area.start;
        let first = Level::PUD.align(area).start;
        for (_, table) in tables.range_mut((area.space, first)..(area.space, area.end)) {
            if at < table.range.start {
                canvas.add(cold(Range::new(area.space, at, table.range.start)));
            }
            add_table(&mut canvas, table, area, settled);
            at = table.range.end.min(area.end);
        }
        if at < area.end {
            canvas.add(cold(Range::new(area.space, at, area.end)));
        }
    }
    canvas.regions
}

/// Adds what of a table lies in the area. Within a table nothing is left to be joined.
fn add_table(canvas: &mut Canvas, table: &mut Table, area: &Range, settled: &Settled) {
    let peers = settled.peers.get(&area.space).copied().unwrap_or_default();
    let whole = table.range;
    let regions = table.drawn(peers.vouch(), |table, kept| {
        let mut canvas = Canvas { regions: kept, hot: settled.hot };
        draw_table(&mut canvas, table, peers);
        canvas.regions
    });
    if area.covers(&whole) {
        canvas.add(regions[0]);
        canvas.regions.extend_from_slice(&regions[1..]);
    } else {
        let clipped =
            |region: &Region| Some(Region { range: region.range.intersect(area)?, ..*region });
        regions.iter().filter_map(clipped).for_each(|region| canvas.add(region));
    }
}

fn draw_table(canvas: &mut Canvas, table: &Table, peers: Peers) {
    let pen = Pen { table, samples: table.samples.ceil() as u32 };
    let bar = table.bar(canvas.hot);
    let mut checked = table.leaves().peekable();
    let mut next = 0;
    for entry in table.warm() {
        if next < entry {
            canvas.add(pen.region(next..entry));
        }
        next = entry + 1;
        let region = pen.region(entry..next);
        if region.hits < bar {
            canvas.add(region);
            continue;
        }
        // Hot entries have hits, and only hot ones are checked.
        let leaves = checked.next_if(|(at, _)| *at == entry).map(|(_, leaves)| leaves);
        let region = Region { confidence: confidence(leaves, peers), ..region };
        match leaves.map(Leaves::hot_spans) {
            None => canvas.add(region),
            Some([span]) if *span == (0..LEAVES) => canvas.add(region),
            Some(spans) => draw_leaves(canvas, region, spans),
        }
    }
    if next < ENTRIES {
        canvas.add(pen.region(next..ENTRIES));
    }
}

/// Draws entries of one table.
struct Pen<'a> {
    table: &'a Table,
    samples: u32,
}

impl Pen<'_> {
    /// Entries of the first one's frequency.
    fn region(&self, entries: std::ops::Range<usize>) -> Region {
        let at = |entry: usize| self.table.range.start + ((entry as u64) << Level::PMD.shift());
        Region {
            range: Range {
                space: self.table.range.space,
                start: at(entries.start),
                end: at(entries.end),
            },
            hits: self.table.hits(entries.start),
            samples: self.samples,
            age: self.table.age(entries),
            level: Some(Level::PMD),
            confidence: 1.0,
            rate: None,
            unknown: false,
        }
    }
}

/// A checked entry: hot where its leaves were touched, cold between.
fn draw_leaves(canvas: &mut Canvas, hot: Region, spans: &[std::ops::Range<usize>]) {
    let page = |leaf: usize| hot.range.start + ((leaf as u64) << PAGE_SHIFT);
    let hot = Region { level: Some(Level::PTE), ..hot };
    let cold = Region { hits: 0.0, ..hot };
    let mut at = hot.range.start;
    for span in spans {
        canvas.add_part(cold, at, page(span.start));
        canvas.add_part(hot, page(span.start), page(span.end));
        at = page(span.end);
    }
    canvas.add_part(cold, at, hot.range.end);
}

/// Joins neighbours that are alike as they are added.
struct Canvas {
    regions: Vec<Region>,
    /// Frequency from which a region is hot.
    hot: f64,
}

impl Canvas {
    fn add(&mut self, region: Region) {
        match self.regions.last_mut() {
            Some(last) if alike(last, &region, self.hot) => {
                last.range.end = region.range.end;
                last.age = last.age.min(region.age);
                last.confidence = last.confidence.min(region.confidence);
            }
            _ => self.regions.push(region),
        }
    }

    /// The part of `region` between two addresses, if there is one.
    fn add_part(&mut self, region: Region, start: u64, end: u64) {
        if start < end {
            self.add(Region { range: Range { start, end, ..region.range }, ..region });
        }
    }
}

/// Whether two neighbours may be shown as one. Neither hot nor unconfirmed ones ever hide.
fn alike(a: &Region, b: &Region, threshold: f64) -> bool {
    let sure = |region: &Region| region.confidence >= tierscope_core::CONFIRMED;
    if !a.range.touches(&b.range) || (a.hits == 0.0) != (b.hits == 0.0) || sure(a) != sure(b) {
        return false;
    }
    // Most neighbours are: no need to divide.
    if a.hits == 0.0 || (a.hits == b.hits && a.samples == b.samples) {
        return true;
    }
    a.is_hot(threshold) == b.is_hot(threshold)
        && (a.frequency() - b.frequency()).abs() <= tolerance(a.samples.min(b.samples))
}

#[cfg(test)]
mod tests {
    use super::super::heat::is_one;
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    fn table_with(
        entries: &[usize],
        touched: [u64; 8],
        checks: u32,
    ) -> BTreeMap<(SpaceId, u64), Table> {
        let mut table = Table::new(r(GIB, 2 * GIB));
        let mut bits = [0u64; 8];
        entries.iter().for_each(|entry| bits[entry / 64] |= 1 << (entry % 64));
        (0..8).for_each(|_| table.count(Some(&bits)));
        for entry in entries {
            (0..checks).for_each(|_| table.note(*entry as u16, touched));
        }
        BTreeMap::from([((SpaceId(0), GIB), table)])
    }

    fn settled(tables: &BTreeMap<(SpaceId, u64), Table>) -> Settled {
        let mut peers = Peers::default();
        tables.values().for_each(|table| table.tell(&mut peers));
        let peers = BTreeMap::from([(SpaceId(0), peers)]);
        Settled { hot: 0.125, samples: 8, windows: 1, peers }
    }

    fn drawn(mut tables: BTreeMap<(SpaceId, u64), Table>) -> Vec<(u64, u64, bool)> {
        let settled = settled(&tables);
        let regions = draw(&[r(0, 4 * GIB)], &mut tables, &settled);
        regions.iter().map(|g| (g.range.start, g.range.end, g.is_hot(0.125))).collect()
    }

    // One entry hot all over, then one page of it only.
    #[test]
    fn heat_is_drawn_as_far_as_leaves_confirm() {
        let start = GIB + 7 * 2 * MIB;
        let end = start + 2 * MIB;
        assert_eq!(
            drawn(table_with(&[7], [u64::MAX; 8], 2)),
            [(0, start, false), (start, end, true), (end, 4 * GIB, false)]
        );
        let page = start + 4096 * 64;
        assert_eq!(
            drawn(table_with(&[7], [0, 1, 0, 0, 0, 0, 0, 0], 2)),
            [(0, page, false), (page, page + 4096, true), (page + 4096, 4 * GIB, false)]
        );
    }

    #[test]
    fn unconfirmed_is_not_hot() {
        assert!(drawn(table_with(&[7], [0; 8], 0)).iter().all(|(_, _, hot)| !hot));
    }

    #[test]
    fn tables_are_clipped_to_their_area() {
        let mut tables = table_with(&[0], [u64::MAX; 8], 2);
        let settled = settled(&tables);
        let regions = draw(&[r(GIB + MIB, GIB + 3 * MIB)], &mut tables, &settled);
        let ranges: Vec<_> = regions.iter().map(|region| region.range).collect();
        assert_eq!(ranges, [r(GIB + MIB, GIB + 2 * MIB), r(GIB + 2 * MIB, GIB + 3 * MIB)]);
    }

    /// What may happen to a table between two drawings.
    #[derive(Clone, Debug)]
    enum Event {
        Count(Vec<usize>),
        Fade(u32),
        Check(usize, bool),
        Turn,
        Draw,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            prop::collection::vec(0usize..20, 0..20).prop_map(Event::Count),
            (0u32..9).prop_map(Event::Fade),
            (0usize..20, any::<bool>()).prop_map(|(entry, whole)| Event::Check(entry, whole)),
            Just(Event::Turn),
            Just(Event::Draw),
        ];
        prop::collection::vec(event, 0..60)
    }

    fn happen(table: &mut Table, event: &Event) {
        match event {
            Event::Count(entries) => {
                let mut bits = [0u64; 8];
                entries.iter().for_each(|entry| bits[0] |= 1 << entry);
                table.count(Some(&bits));
            }
            Event::Fade(samples) => table.fade(*samples),
            Event::Check(entry, whole) if is_one(&table.hot(0.125), *entry) => {
                table.note(*entry as u16, if *whole { [u64::MAX; 8] } else { [1; 8] });
            }
            Event::Turn => table.turn(0.125),
            Event::Check(..) | Event::Draw => {}
        }
    }

    proptest! {
        // What is kept from window to window shows what drawing everything anew does.
        #[test]
        fn a_kept_drawing_is_never_stale(events in events()) {
            let mut tables = table_with(&[], [0; 8], 0);
            for event in events {
                happen(tables.values_mut().next().unwrap(), &event);
                if matches!(event, Event::Draw) {
                    let settled = settled(&tables);
                    let mut anew = tables.clone();
                    anew.values_mut().for_each(Table::forget);
                    let area = [r(0, 4 * GIB)];
                    prop_assert_eq!(draw(&area, &mut tables, &settled), draw(&area, &mut anew, &settled));
                }
            }
        }
    }
}
