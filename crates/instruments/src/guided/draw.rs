//! From counted tables to regions.

use std::collections::BTreeMap;

use tierscope_core::{Level, PAGE_SHIFT, Range, Region, SpaceId};

use super::Settled;
use super::heat::{ENTRIES, Table, confidence};
use super::leaf::LEAVES;

/// Frequencies within a tenth are alike, as everywhere in region sampling; so are those that the
/// scatter of so few samples explains (twice the largest standard error of a share, 1/(2√n)).
fn tolerance(samples: u32) -> f64 {
    0.1 + 1.0 / f64::from(samples.max(1)).sqrt()
}

/// Draws the regions of `areas`: what no table covers is cold.
pub(super) fn draw(
    areas: &[Range],
    tables: &BTreeMap<(SpaceId, u64), Table>,
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
    };
    for area in areas {
        let mut at = area.start;
        let first = Level::PUD.align(area).start;
        for table in tables.range((area.space, first)..(area.space, area.end)).map(|(_, t)| t) {
            if at < table.range.start {
                canvas.add(cold(Range::new(area.space, at, table.range.start)));
            }
            draw_table(&mut canvas, table, area, settled);
            at = table.range.end.min(area.end);
        }
        if at < area.end {
            canvas.add(cold(Range::new(area.space, at, area.end)));
        }
    }
    canvas.regions
}

fn draw_table(canvas: &mut Canvas, table: &Table, area: &Range, settled: &Settled) {
    let peers = settled.peers.get(&area.space).copied().unwrap_or_default();
    let mut checked = table.leaves.iter().peekable();
    let mut next = 0;
    for entry in table.warm() {
        draw_span(canvas, table, area, next..entry);
        next = entry + 1;
        // Hot entries have hits, and only hot ones are checked.
        let leaves = checked.next_if(|(at, _)| usize::from(**at) == entry).map(|(_, l)| l);
        if table.frequency(entry) < settled.hot {
            draw_span(canvas, table, area, entry..next);
            continue;
        }
        let Some(region) = region(table, area, entry..next) else { continue };
        let region = Region { confidence: confidence(leaves, peers), ..region };
        match leaves {
            None => canvas.add(region),
            Some(leaves) => {
                draw_leaves(canvas, &table.entry(entry), region, leaves.hot_spans());
            }
        }
    }
    draw_span(canvas, table, area, next..ENTRIES);
}

/// Entries that are not hot, and alike.
fn draw_span(canvas: &mut Canvas, table: &Table, area: &Range, entries: std::ops::Range<usize>) {
    if let Some(region) = region(table, area, entries) {
        canvas.add(region);
    }
}

/// Entries of the first one's frequency, as far as they lie in the area.
fn region(table: &Table, area: &Range, entries: std::ops::Range<usize>) -> Option<Region> {
    let (first, bytes) = (entries.start, Level::PMD.entry_bytes());
    let at = |entry: usize| table.range.start + entry as u64 * bytes;
    let whole = Range::new(area.space, at(first), at(entries.end));
    (first < entries.end).then_some(())?;
    Some(Region {
        range: whole.intersect(area)?,
        hits: (table.frequency(first) * f64::from(table.samples)) as f32,
        samples: table.samples.ceil() as u32,
        age: table.age(entries),
        level: Some(Level::PMD),
        confidence: 1.0,
    })
}

/// A checked entry: hot where its leaves were touched, cold between.
fn draw_leaves(canvas: &mut Canvas, entry: &Range, hot: Region, spans: &[std::ops::Range<usize>]) {
    if spans.first() == Some(&(0..LEAVES)) {
        return canvas.add(hot);
    }
    let page = |leaf: usize| entry.start + ((leaf as u64) << PAGE_SHIFT);
    let hot = Region { level: Some(Level::PTE), ..hot };
    let cold = Region { hits: 0.0, ..hot };
    let mut at = entry.start;
    for span in spans {
        canvas.add_part(cold, at, page(span.start));
        canvas.add_part(hot, page(span.start), page(span.end));
        at = page(span.end);
    }
    canvas.add_part(cold, at, entry.end);
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
        let part = (start < end).then(|| Range::new(region.range.space, start, end));
        if let Some(range) = part.and_then(|part| part.intersect(&region.range)) {
            self.add(Region { range, ..region });
        }
    }
}

/// Whether two neighbours may be shown as one. Neither hot nor unconfirmed ones ever hide.
fn alike(a: &Region, b: &Region, threshold: f64) -> bool {
    a.range.touches(&b.range)
        && (a.hits == 0.0) == (b.hits == 0.0)
        && a.is_hot(threshold) == b.is_hot(threshold)
        && (a.frequency() - b.frequency()).abs() <= tolerance(a.samples.min(b.samples))
        && (a.confidence >= tierscope_core::CONFIRMED)
            == (b.confidence >= tierscope_core::CONFIRMED)
}

#[cfg(test)]
mod tests {
    use super::super::heat::Peers;
    use super::*;

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
            (0..checks).for_each(|_| table.leaves.entry(*entry as u16).or_default().note(touched));
        }
        BTreeMap::from([((SpaceId(0), GIB), table)])
    }

    fn settled(tables: &BTreeMap<(SpaceId, u64), Table>) -> Settled {
        let mut peers = Peers::default();
        tables.values().for_each(|table| table.tell(&mut peers));
        let peers = BTreeMap::from([(SpaceId(0), peers)]);
        Settled { hot: 0.125, samples: 8, windows: 1, peers }
    }

    fn drawn(tables: &BTreeMap<(SpaceId, u64), Table>) -> Vec<(u64, u64, bool)> {
        let regions = draw(&[r(0, 4 * GIB)], tables, &settled(tables));
        regions.iter().map(|g| (g.range.start, g.range.end, g.is_hot(0.125))).collect()
    }

    // One entry hot all over, then one page of it only.
    #[test]
    fn heat_is_drawn_as_far_as_leaves_confirm() {
        let start = GIB + 7 * 2 * MIB;
        let end = start + 2 * MIB;
        assert_eq!(
            drawn(&table_with(&[7], [u64::MAX; 8], 2)),
            [(0, start, false), (start, end, true), (end, 4 * GIB, false)]
        );
        let page = start + 4096 * 64;
        assert_eq!(
            drawn(&table_with(&[7], [0, 1, 0, 0, 0, 0, 0, 0], 2)),
            [(0, page, false), (page, page + 4096, true), (page + 4096, 4 * GIB, false)]
        );
    }

    #[test]
    fn unconfirmed_is_not_hot() {
        assert!(drawn(&table_with(&[7], [0; 8], 0)).iter().all(|(_, _, hot)| !hot));
    }

    #[test]
    fn tables_are_clipped_to_their_area() {
        let tables = table_with(&[0], [u64::MAX; 8], 2);
        let regions = draw(&[r(GIB + MIB, GIB + 3 * MIB)], &tables, &settled(&tables));
        let ranges: Vec<_> = regions.iter().map(|region| region.range).collect();
        assert_eq!(ranges, [r(GIB + MIB, GIB + 2 * MIB), r(GIB + 2 * MIB, GIB + 3 * MIB)]);
    }
}
