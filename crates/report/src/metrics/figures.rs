//! Bytes of a window by space, by backing, and by heat; short-lived spaces are summed.

use std::collections::BTreeMap;

use tierscope_core::{Backing, Heat, Mapping, Mappings, PAGE_SIZE, Region, Snapshot, Unknown};

use crate::own_rows::{OTHER, OwnRows, Owner};

/// States of memory in the last window, as labels: those of [`Region::heat`], unknown memory in
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeatLabel {
    Hot,
    Warm,
    Cold,
    Unknown,
    Unseen,
}

impl HeatLabel {
    pub(super) const ALL: [HeatLabel; 5] =
        [HeatLabel::Hot, HeatLabel::Warm, HeatLabel::Cold, HeatLabel::Unknown, HeatLabel::Unseen];

    pub(super) fn of(region: &Region) -> Self {
        match region.heat() {
            Heat::Hot => HeatLabel::Hot,
            Heat::Warm => HeatLabel::Warm,
            Heat::Cold => HeatLabel::Cold,
            Heat::Unknown(_) => HeatLabel::Unknown,
            Heat::Unseen => HeatLabel::Unseen,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            HeatLabel::Hot => "hot",
            HeatLabel::Warm => "warm",
            HeatLabel::Cold => "cold",
            HeatLabel::Unknown => "unknown",
            HeatLabel::Unseen => "unseen",
        }
    }
}

/// Upper bounds of the idle-age buckets, in seconds.
pub(super) const AGES: [f64; 8] = [1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, f64::INFINITY];

/// HeatLabel for regions that no mapping covers any more: unmapped since the region was made.
const NO_BACKING: &str = "none";

/// Bytes by heat, for one backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByHeat(pub(super) [u64; HeatLabel::ALL.len()]);

/// Figures of one space.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) regions: u64,
    /// Bytes of regions with at least one hit in the window.
    pub(super) working_set: u64,
    /// Bytes mapped, by backing.
    pub(super) mapped: BTreeMap<&'static str, u64>,
    /// Unknown bytes, by reason in the order of [`Unknown::ALL`].
    pub(super) unknown: [u64; Unknown::ALL.len()],
    /// Estimated accesses per second, by heat; `None` if no region has a known rate.
    pub(super) accesses: Option<[f64; HeatLabel::ALL.len()]>,
    /// Resident bytes in regions, by backing.
    pub(super) bytes: BTreeMap<&'static str, ByHeat>,
    /// Idle bytes by age, one for each bucket of [`AGES`].
    pub(super) ages: [u64; AGES.len()],
    /// Idle bytes times their age in seconds.
    pub(super) age_sum: f64,
}

/// The spaces of a window, and which of them have series of their own.
pub(super) struct Spaces<'a> {
    pub(super) layout: &'a Mappings,
    pub(super) own: &'a OwnRows,
}

impl Spaces<'_> {
    /// Values of the labels `space` and `process`.
    pub(super) fn labels(&self, owner: Owner) -> [String; 2] {
        match owner {
            Owner::Space(space) => [space.0.to_string(), self.layout.space_name(space).to_string()],
            Owner::Other => [OTHER.into(), OTHER.into()],
        }
    }
}

/// Figures of every space that is mapped or has regions. `window` is the window length in seconds,
/// to convert ages of regions, which are in windows.
pub(super) fn figures(
    snapshot: &Snapshot,
    spaces: &Spaces<'_>,
    window: f64,
) -> BTreeMap<Owner, Figures> {
    let (layout, owner) = (spaces.layout, |space| spaces.own.owner(space));
    let mut figures = BTreeMap::<Owner, Figures>::new();
    for space in &layout.spaces {
        figures.entry(owner(space.id)).or_default();
    }
    for mapping in &layout.mappings {
        let mapped = &mut figures.entry(owner(mapping.range.space)).or_default().mapped;
        add(mapped.entry(backing(mapping.backing)).or_default(), mapping.range.bytes());
    }
    let mut rest = layout.mappings.as_slice();
    for region in &snapshot.regions {
        rest = not_before(rest, region);
        figures.entry(owner(region.range.space)).or_default().take(region, rest, window);
    }
    figures
}

/// Skips the mappings that end before `region` begins: both lists are sorted.
fn not_before<'a>(mappings: &'a [Mapping], region: &Region) -> &'a [Mapping] {
    let (space, start) = (region.range.space, region.range.start);
    let before = |m: &&Mapping| (m.range.space, m.range.end) <= (space, start);
    &mappings[mappings.iter().take_while(before).count()..]
}

impl Figures {
    fn take(&mut self, region: &Region, mappings: &[Mapping], window: f64) {
        let (heat, bytes) = (HeatLabel::of(region), region.bytes());
        self.regions += 1;
        match heat {
            HeatLabel::Hot | HeatLabel::Warm => add(&mut self.working_set, bytes),
            HeatLabel::Unknown => {
                let why = region.unknown.unwrap_or(Unknown::Evidence);
                add(&mut self.unknown[why as usize], bytes);
            }
            HeatLabel::Cold | HeatLabel::Unseen => {}
        }
        if let Some(rate) = region.rate.filter(|_| !region.is_unknown()) {
            let accesses = self.accesses.get_or_insert_default();
            accesses[heat as usize] += f64::from(rate.mean) * bytes as f64 / PAGE_SIZE as f64;
        }
        if heat == HeatLabel::Cold {
            let age = f64::from(region.age) * window;
            let bucket = AGES.iter().position(|bound| age <= *bound).expect("the last is endless");
            add(&mut self.ages[bucket], bytes);
            self.age_sum += age * bytes as f64;
        }
        let mut outside = bytes;
        let parts = mappings.iter().map_while(|m| Some((m, m.range.intersect(&region.range)?)));
        for (mapping, part) in parts {
            let bytes = region.bytes_of(&part);
            outside = outside.saturating_sub(bytes);
            self.count(backing(mapping.backing), heat, bytes);
        }
        if outside > 0 {
            self.count(NO_BACKING, heat, outside);
        }
    }

    fn count(&mut self, backing: &'static str, heat: HeatLabel, bytes: u64) {
        add(&mut self.bytes.entry(backing).or_default().0[heat as usize], bytes);
    }
}

/// Adds without overflow, for spaces of up to 2^64 bytes.
pub(super) fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

fn backing(backing: Backing) -> &'static str {
    tierscope_record::backing_name(backing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::{Range, Rate, Space, SpaceId};

    fn region(start: u64, end: u64, hits: f32, age: u32) -> Region {
        let range = Range::new(SpaceId(0), start, end);
        Region { age, ..Region::sampled(range, hits, 40) }
    }

    fn mapping(start: u64, end: u64, backing: Backing) -> Mapping {
        let range = Range::new(SpaceId(0), start, end);
        Mapping { range, backing, name: "".into(), writable: true, object: None }
    }

    fn of(regions: Vec<Region>, mappings: Vec<Mapping>) -> Figures {
        let spaces = vec![Space { id: SpaceId(0), name: "toy[1]".into() }];
        let mappings = Mappings { spaces, mappings, ..Mappings::default() };
        let snapshot = Snapshot { samples: 40, regions, ..Snapshot::default() };
        let spaces = Spaces { layout: &mappings, own: &OwnRows::default() };
        figures(&snapshot, &spaces, 0.2).remove(&Owner::Space(SpaceId(0))).unwrap()
    }

    // Heap 0..100, stack 150..160. Regions: 0..50 hot, 50..120 cold (20 of it unmapped),
    // 150..160 idle for 10 windows of 200 ms.
    #[test]
    fn regions_are_cut_at_mappings() {
        let heap = mapping(0, 100, Backing::Heap);
        let stack = mapping(150, 160, Backing::Stack);
        let regions =
            vec![region(0, 50, 40.0, 3), region(50, 120, 1.0, 0), region(150, 160, 0.0, 10)];
        let figures = of(regions, vec![heap, stack]);
        assert_eq!(figures.mapped, [("heap", 100), ("stack", 10)].into());
        assert_eq!(figures.bytes["heap"], ByHeat([50, 50, 0, 0, 0]));
        assert_eq!(figures.bytes["none"], ByHeat([0, 20, 0, 0, 0]));
        assert_eq!(figures.bytes["stack"], ByHeat([0, 0, 10, 0, 0]));
        assert_eq!((figures.regions, figures.working_set), (3, 120));
        assert_eq!(figures.ages, [0, 10, 0, 0, 0, 0, 0, 0]);
        assert!((figures.age_sum - 20.0).abs() < 1e-9);
    }

    // A heap of 100 bytes and a file of 100: of the idle region from 50 to 150, 40 are resident.
    #[test]
    fn resident_bytes_are_counted() {
        let heap = mapping(0, 100, Backing::Heap);
        let file = mapping(100, 200, Backing::File);
        let idle = Region { resident: Some(40), ..region(50, 150, 0.0, 1) };
        let figures = of(vec![idle], vec![heap, file]);
        assert_eq!(figures.bytes["heap"], ByHeat([0, 0, 20, 0, 0]));
        assert_eq!(figures.bytes["file"], ByHeat([0, 0, 20, 0, 0]));
        assert_eq!((figures.bytes.len(), figures.ages[0]), (2, 40));
    }

    #[test]
    fn not_looked_at_is_not_idle_and_unsure_is_not_hot() {
        let unseen = Region { samples: 0, ..region(0, 10, 0.0, 9) };
        let unsure = Region { confidence: 0.1, ..region(10, 20, 40.0, 0) };
        let figures = of(vec![unseen, unsure], vec![mapping(0, 20, Backing::File)]);
        assert_eq!(figures.bytes["file"], ByHeat([0, 10, 0, 0, 10]));
        assert_eq!((figures.working_set, figures.ages), (10, [0; AGES.len()]));
    }

    // Three pages are hot at 500 /s each; two at 0.5 /s, less than a hit per window, are idle; four
    // are unknown, and their rate is not counted.
    #[test]
    fn unknown_memory_is_neither_hot_nor_idle() {
        let page = PAGE_SIZE;
        let rated = |from: u64, to: u64, hits: f32, mean: f32, unknown: bool| Region {
            rate: Some(Rate { low: mean / 2.0, mean, high: mean * 2.0 }),
            unknown: unknown.then_some(Unknown::Evidence),
            ..region(from * page, to * page, hits, 0)
        };
        let regions = vec![
            rated(0, 3, 40.0, 500.0, false),
            rated(3, 5, 0.1, 0.5, false),
            rated(5, 9, 40.0, 9000.0, true),
        ];
        let figures = of(regions, vec![mapping(0, 9 * page, Backing::Heap)]);
        let pages = figures.bytes["heap"].0.map(|bytes| bytes / page);
        assert_eq!(pages, [3, 0, 2, 4, 0]);
        assert_eq!((figures.unknown, figures.working_set), ([4 * page, 0, 0], 3 * page));
        assert_eq!(figures.accesses, Some([1500.0, 0.0, 1.0, 0.0, 0.0]));
    }

    proptest! {
        // Every byte of every region is in exactly one cell, that of its own mapping.
        #[test]
        fn cells_hold_each_byte_once(
            cuts in prop::collection::vec((1u64..9, 0u64..9, 0u32..3), 0..12),
            maps in prop::collection::vec((1u64..9, 0u64..9, 0usize..5), 0..12),
        ) {
            const KINDS: [Backing; 5] =
                [Backing::Anonymous, Backing::Heap, Backing::Stack, Backing::File, Backing::Kernel];
            let mut at = 0;
            let regions: Vec<_> = cuts.into_iter().map(|(bytes, gap, hits)| {
                at += gap + bytes;
                region(at - bytes, at, 20.0 * hits as f32, 0)
            }).collect();
            let mut at = 0;
            let mappings: Vec<_> = maps.into_iter().map(|(bytes, gap, kind)| {
                at += gap + bytes;
                mapping(at - bytes, at, KINDS[kind])
            }).collect();
            let mut naive = BTreeMap::<&str, ByHeat>::new();
            for region in &regions {
                for byte in region.range.start..region.range.end {
                    let holds = |m: &&Mapping| m.range.start <= byte && byte < m.range.end;
                    let name = mappings.iter().find(holds).map_or("none", |m| backing(m.backing));
                    naive.entry(name).or_default().0[HeatLabel::of(region) as usize] += 1;
                }
            }
            prop_assert_eq!(of(regions, mappings).bytes, naive);
        }
    }
}
