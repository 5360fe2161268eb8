//! The table below the heatmap: processes, mappings or regions of the shown window.

use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{Level, Mappings, Range, Region, SpaceId};

use super::focus::Scope;
use crate::names;
use crate::own_rows::{OTHER, OwnRows};
use crate::regions::RowRate;

/// Kind of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A row per space.
    Processes,
    /// A row per mapping.
    Mappings,
    /// A row per region.
    #[default]
    Regions,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Processes => "processes",
            Kind::Mappings => "mappings",
            Kind::Regions => "regions",
        }
    }
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Hottest first, then largest.
    #[default]
    Heat,
    /// Most hot bytes first.
    HotBytes,
    /// Largest first.
    Size,
    /// Longest unchanged first.
    Age,
    /// By space and address.
    Address,
}

impl Order {
    const ALL: [Order; 5] = [Order::Heat, Order::HotBytes, Order::Size, Order::Age, Order::Address];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Heat => "heat",
            Order::HotBytes => "hot bytes",
            Order::Size => "size",
            Order::Age => "age",
            Order::Address => "address",
        }
    }

    pub(crate) fn next(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Order::ALL[(at + 1) % Order::ALL.len()]
    }
}

/// A row: a range, and its figures in the displayed window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The address range, from its first to its last byte; of short-lived spaces, the first one.
    pub(crate) range: Range,
    /// Bytes of it that are mapped, or resident in the region.
    pub(crate) bytes: u64,
    /// Bytes that were probed and are known.
    pub(crate) known: u64,
    /// Bytes that were probed and are nevertheless unknown.
    pub(crate) unknown: u64,
    /// Bytes that are hot (METRICS.md).
    pub(crate) hot: u64,
    /// Frequency times known bytes, summed up.
    heat: f64,
    /// Access rate of its pages; for regions with a known rate.
    pub(crate) rate: Option<RowRate>,
    /// Windows for which the count has stayed about the same; for regions.
    pub(crate) age: Option<u32>,
    /// The page-table level of the evidence; for regions.
    pub(crate) level: Option<Level>,
    /// Whether it is the sum of all short-lived spaces.
    pub(crate) is_other: bool,
}

impl Row {
    fn new(range: Range, bytes: u64) -> Self {
        Self {
            range,
            bytes,
            known: 0,
            unknown: 0,
            hot: 0,
            heat: 0.0,
            rate: None,
            age: None,
            level: None,
            is_other: false,
        }
    }

    /// Mean frequency of the known bytes; `None` if there are none.
    pub(crate) fn frequency(&self) -> Option<f64> {
        (self.known > 0).then(|| self.heat / self.known as f64)
    }

    /// Adds the row of another short-lived space.
    fn merge(&mut self, row: &Row) {
        self.bytes += row.bytes;
        self.known += row.known;
        self.unknown += row.unknown;
        self.hot += row.hot;
        self.heat += row.heat;
        self.is_other = true;
    }

    fn add(&mut self, region: &Region, bytes: u64) {
        match () {
            () if region.is_unseen() => {}
            () if region.is_unknown() => self.unknown += bytes,
            () => {
                self.known += bytes;
                self.heat += region.frequency() * bytes as f64;
            }
        }
        if region.is_hot(HOT_FREQUENCY) {
            self.hot += bytes;
        }
    }
}

/// The table, in its current order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) kind: Kind,
    pub(crate) order: Order,
    pub(crate) rows: Vec<Row>,
    selected: usize,
    /// Whether the user chose the row; if not, the first row stays selected.
    chosen: bool,
    /// The first row in view.
    top: usize,
    room: usize,
}

impl Table {
    /// Makes the rows for the memory in `scope`; spaces without rows of their own share one.
    pub(crate) fn rebuild(
        &mut self,
        layout: &Mappings,
        regions: &[Region],
        scope: &Scope,
        own: &OwnRows,
    ) {
        let before = self.chosen_row();
        self.rows = match self.kind {
            Kind::Processes => with_other(processes(layout, regions, scope), scope, own),
            Kind::Mappings => with_other(mappings(layout, regions, scope), scope, own),
            Kind::Regions => rows_of(regions, scope),
        };
        self.sort(before);
    }

    /// Changes the order of the rows.
    pub(crate) fn set_order(&mut self, order: Order) {
        let before = self.chosen_row();
        self.order = order;
        self.sort(before);
    }

    /// The row that the user chose.
    fn chosen_row(&self) -> Option<Row> {
        self.selected().filter(|_| self.chosen).cloned()
    }

    fn sort(&mut self, before: Option<Row>) {
        match self.order {
            Order::Address => self.rows.sort_unstable_by_key(|row| row.range),
            order => self.rows.sort_unstable_by(|a, b| {
                key(order, b)
                    .total_cmp(&key(order, a))
                    .then(b.bytes.cmp(&a.bytes))
                    .then(a.range.cmp(&b.range))
            }),
        }
        let again =
            before.as_ref().and_then(|old| self.rows.iter().position(|row| holds(row, old)));
        self.selected = again.unwrap_or(if before.is_some() { self.selected } else { 0 });
        self.settle();
    }

    /// Switches to another kind of rows, and selects the first one.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        self.rows.clear();
        self.chosen = false;
        self.selected = 0;
    }

    /// Sets the number of rows that fit.
    pub(crate) fn set_room(&mut self, rows: usize) {
        self.room = rows;
        self.settle();
    }

    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Selects the row `rows` rows further down.
    pub(crate) fn select(&mut self, rows: i64) {
        let step = rows.unsigned_abs() as usize;
        self.selected = match rows < 0 {
            true => self.selected.saturating_sub(step),
            false => self.selected.saturating_add(step),
        };
        self.chosen = true;
        self.settle();
    }

    pub(crate) fn selected(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    /// The rows in view, each with whether it is selected.
    pub(crate) fn in_view(&self) -> impl Iterator<Item = (&Row, bool)> {
        let numbered = self.rows.iter().enumerate().skip(self.top).take(self.room);
        numbered.map(|(index, row)| (row, index == self.selected))
    }

    /// Numbers of the first (from one) and of the last row in view.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        (self.top + 1, (self.top + self.room).min(self.rows.len()))
    }

    fn settle(&mut self) {
        let last = self.rows.len().saturating_sub(1);
        self.selected = self.selected.min(last);
        let lowest = (self.selected + 1).saturating_sub(self.room);
        self.top = self.top.clamp(lowest, self.selected.max(lowest));
        self.top = self.top.min(self.rows.len().saturating_sub(self.room));
    }
}

/// Sort key, highest first. Unknown and unprobed rows sort last.
fn key(order: Order, row: &Row) -> f64 {
    match order {
        Order::Heat => row.frequency().unwrap_or(-1.0),
        Order::HotBytes => row.hot as f64,
        Order::Size => row.bytes as f64,
        Order::Age => row.age.map_or(-1.0, f64::from),
        Order::Address => 0.0,
    }
}

/// Whether `row` shows the memory at which the row `old` began.
fn holds(row: &Row, old: &Row) -> bool {
    let (new, old_range) = (row.range, old.range);
    let begins_here = new.space == old_range.space
        && new.start <= old_range.start
        && old_range.start < new.end.max(new.start + 1);
    row.is_other == old.is_other && (row.is_other || begins_here)
}

/// Sums the rows of short-lived spaces in one, at the end.
fn with_other(rows: Vec<Row>, scope: &Scope, own: &OwnRows) -> Vec<Row> {
    if *scope != Scope::All {
        return rows;
    }
    let (mut rows, short): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| own.has(row.range.space));
    if let Some(first) = short.first() {
        let mut other = Row::new(first.range, 0);
        short.iter().for_each(|row| other.merge(row));
        rows.push(other);
    }
    rows
}

fn rows_of(regions: &[Region], scope: &Scope) -> Vec<Row> {
    let row = |region: &Region| {
        let range = scope.clip(&region.range)?;
        let bytes = region.bytes_of(&range);
        let mut row = Row::new(range, bytes);
        row.add(region, bytes);
        (row.age, row.level) = (Some(region.age), region.level);
        row.rate = region.rate.as_ref().filter(|_| !region.is_unknown()).map(RowRate::of);
        Some(row)
    };
    regions.iter().filter_map(row).collect()
}

/// Regions and mappings are both sorted and disjoint: a single pass over both.
fn mappings(layout: &Mappings, regions: &[Region], scope: &Scope) -> Vec<Row> {
    let clipped = layout.mappings.iter().filter_map(|mapping| scope.clip(&mapping.range));
    let mut rows: Vec<Row> = clipped.map(|range| Row::new(range, range.bytes())).collect();
    let mut first = 0;
    for region in regions {
        let at = (region.range.space, region.range.start);
        while rows.get(first).is_some_and(|r| (r.range.space, r.range.end) <= at) {
            first += 1;
        }
        for row in &mut rows[first..] {
            let Some(common) = row.range.intersect(&region.range) else { break };
            row.add(region, region.bytes_of(&common));
        }
    }
    rows
}

fn processes(layout: &Mappings, regions: &[Region], scope: &Scope) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for mapping in layout.mappings.iter().filter_map(|mapping| scope.clip(&mapping.range)) {
        match rows.last_mut() {
            Some(row) if row.range.space == mapping.space => {
                row.range.end = mapping.end;
                row.bytes += mapping.bytes();
            }
            _ => rows.push(Row::new(mapping, mapping.bytes())),
        }
    }
    for region in regions {
        let Some(range) = scope.clip(&region.range) else { continue };
        match rows.binary_search_by_key(&range.space, |row| row.range.space) {
            Ok(index) => rows[index].add(region, region.bytes_of(&range)),
            Err(index) => {
                let bytes = region.bytes_of(&range);
                let mut row = Row::new(range, bytes);
                row.add(region, bytes);
                rows.insert(index, row);
            }
        }
    }
    rows
}

/// Display name of the memory at `range`: its mapping, with a mark if it extends beyond that.
pub(crate) fn label(layout: &Mappings, range: &Range) -> String {
    let Some(mapping) = layout.find(range) else { return "not mapped".into() };
    let more = if range.end > mapping.range.end { " …" } else { "" };
    format!("{}{more}", names::label(mapping))
}

/// Display name of a row of this kind.
pub(crate) fn name(kind: Kind, layout: &Mappings, row: &Row) -> String {
    match kind {
        _ if row.is_other => OTHER.into(),
        Kind::Processes => space_label(layout, row.range.space),
        Kind::Mappings | Kind::Regions => label(layout, &row.range),
    }
}

/// The name of a space.
pub(crate) fn space_label(layout: &Mappings, space: SpaceId) -> String {
    layout.space_name(space).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Backing, Mapping, Space, Time};

    const PAGE: u64 = 4096;

    fn range(space: u32, start: u64, end: u64) -> Range {
        Range::new(SpaceId(space), start * PAGE, end * PAGE)
    }

    fn region(space: u32, start: u64, end: u64, hits: f32) -> Region {
        let range = range(space, start, end);
        Region { age: start as u32, ..Region::sampled(range, hits, 40) }
    }

    fn mapping(space: u32, start: u64, end: u64, name: &str) -> Mapping {
        let range = range(space, start, end);
        Mapping { range, backing: Backing::Heap, name: name.into(), writable: true, object: None }
    }

    /// Two processes; the first has ten pages of heap and four of a file.
    fn layout() -> Mappings {
        let space = |id, name: &str| Space { id: SpaceId(id), name: name.into() };
        Mappings {
            taken: Time(0),
            spaces: vec![space(0, "one[1]"), space(1, "two[2]")],
            mappings: vec![
                mapping(0, 0, 10, "[heap]"),
                mapping(0, 20, 24, "/lib/x.so"),
                mapping(1, 0, 8, ""),
            ],
            ..Mappings::default()
        }
    }

    /// The heap's second half is always hit, the file in a quarter of the samples, the other
    /// process never.
    fn regions() -> Vec<Region> {
        vec![
            region(0, 0, 5, 0.0),
            region(0, 5, 10, 40.0),
            region(0, 20, 24, 10.0),
            region(1, 0, 8, 0.0),
        ]
    }

    fn table(kind: Kind, order: Order, scope: Scope) -> Vec<(String, u64, u64, f64)> {
        let mut table = Table { kind, order, ..Table::default() };
        table.rebuild(&layout(), &regions(), &scope, &OwnRows::default());
        let row = |r: &Row| {
            (name(kind, &layout(), r), r.bytes / PAGE, r.hot / PAGE, r.frequency().unwrap_or(-1.0))
        };
        table.rows.iter().map(row).collect()
    }

    #[test]
    fn regions_hottest_first() {
        let rows = table(Kind::Regions, Order::Heat, Scope::All);
        let text = |s: &str| s.to_string();
        assert_eq!(rows[0], (text("[heap]"), 5, 5, 1.0));
        assert_eq!(rows[1], (text("/lib/x.so"), 4, 4, 0.25));
        assert_eq!(rows[2], (text("heap"), 8, 0, 0.0), "of equals the largest");
    }

    // Heap: half of it at 1, half at 0. Process one: 5 pages at 1, 4 at 1/4, of 14 probed.
    #[test]
    fn mappings_and_processes_sum_up_their_regions() {
        let heap = table(Kind::Mappings, Order::Address, Scope::Space(SpaceId(0))).remove(0);
        assert_eq!(heap, ("[heap]".into(), 10, 5, 0.5));
        let one = table(Kind::Processes, Order::HotBytes, Scope::All).remove(0);
        assert_eq!(one, ("one[1]".into(), 14, 9, 6.0 / 14.0));
    }

    // Space 0 has rows of its own. 1 and 2 are short-lived: a row of 12 pages, of which the 4 of
    // space 2 are hot.
    #[test]
    fn short_lived_spaces_are_one_row() {
        let mut layout = layout();
        layout.mappings.push(mapping(2, 0, 4, "[heap]"));
        let mut regions = regions();
        regions.push(region(2, 0, 4, 40.0));
        let own = OwnRows::only([SpaceId(0)]);
        for (kind, count) in [(Kind::Processes, 2), (Kind::Mappings, 3)] {
            let mut table = Table { kind, order: Order::Address, ..Table::default() };
            table.set_room(9);
            table.rebuild(&layout, &regions, &Scope::All, &own);
            let other = table.rows[count - 1].clone();
            assert_eq!(name(kind, &layout, &other), "other");
            let figures = (other.bytes / PAGE, other.hot / PAGE, other.frequency());
            assert_eq!((table.rows.len(), figures), (count, (12, 4, Some(1.0 / 3.0))));
            // The chosen row is still "other" when it begins in another space.
            table.select(9);
            layout.mappings.retain(|mapping| mapping.range.space != SpaceId(1));
            table.rebuild(&layout, &regions[4..], &Scope::All, &own);
            assert!(table.selected().unwrap().is_other);
            layout.mappings.insert(2, mapping(1, 0, 8, ""));
        }
        let rows = with_other(
            processes(&layout, &regions, &Scope::Space(SpaceId(2))),
            &Scope::Space(SpaceId(2)),
            &own,
        );
        assert!(!rows[0].is_other);
    }

    #[test]
    fn a_scope_cuts_regions() {
        let rows = table(Kind::Regions, Order::Address, Scope::Range(range(0, 8, 22)));
        let pages: Vec<_> = rows.iter().map(|row| row.1).collect();
        assert_eq!(pages, [2, 2]);
    }

    #[test]
    fn a_chosen_row_stays_chosen_and_the_hottest_is_otherwise() {
        let mut table = Table::default();
        table.set_room(2);
        table.rebuild(&layout(), &regions(), &Scope::All, &OwnRows::default());
        table.select(1);
        let chosen = table.selected().unwrap().range;
        let mut colder = regions();
        colder[2].hits = 0.0;
        colder[3].hits = 20.0;
        table.rebuild(&layout(), &colder, &Scope::All, &OwnRows::default());
        assert_eq!(table.selected().unwrap().range, chosen);
        assert_eq!(table.in_view().filter(|(_, selected)| *selected).count(), 1);
        table.select(i64::MAX);
        assert_eq!(table.numbers(), (3, 4));
        table.select(i64::MIN);
        assert_eq!(table.numbers(), (1, 2));
    }
}
