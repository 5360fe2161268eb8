//! Export to damo's JSON, and import from it.

use proptest::prelude::*;
use tierscope_core::names::plain;
use tierscope_exchange::damo::{LeftOut, Shape, write};
use tierscope_exchange::{Options, read};
use tierscope_record::Recording;

use crate::common::{kept, layout, meta, record, scratch, windows};

fn exported(recording: &Recording, shape: Shape) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = write(recording, shape, &mut out, &mut *scratch(), &mut |_, _| Ok(())).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_export_is_imported_equal(seen in windows(6), compressed in any::<bool>()) {
        let shape = if compressed { Shape::Compressed } else { Shape::Plain };
        let bytes = exported(&record(&seen), shape);
        let imported = read("x", &mut &*bytes, Options::default(), scratch()).unwrap();
        let again = imported.meta("import");
        let before = meta();
        prop_assert_eq!(&again.target, &before.target);
        prop_assert_eq!(again.annotations["who"].as_str(), plain(&before.annotations["who"]));
        let kept = kept(imported);
        prop_assert_eq!(kept.windows, seen);
        for space in &kept.layouts[0].spaces {
            prop_assert_eq!(&space.name, &layout().space_name(space.id));
        }
    }

    // Of a file that is truncated anywhere, the snapshots before are kept, and the flaw is named;
    // a strict import refuses it.
    #[test]
    fn of_a_truncated_export_the_whole_snapshots_are_read(
        seen in windows(3), at in any::<prop::sample::Index>(), compressed in any::<bool>(),
    ) {
        let shape = if compressed { Shape::Compressed } else { Shape::Plain };
        let bytes = exported(&record(&seen), shape);
        let cut = &bytes[..at.index(bytes.len() - 2)];
        let strict = Options { strict: true, ..Options::default() };
        let error = read("x", &mut &*cut, strict, scratch()).err().expect("it is not whole");
        prop_assert!(error.to_string().starts_with("cannot import x: "), "{}", error);
        let whole = read("x", &mut &*bytes, strict, scratch()).unwrap();
        match read("x", &mut &*cut, Options::default(), scratch()) {
            Ok(some) => {
                prop_assert_eq!(some.flaws().first.as_ref(), Some(&error));
                prop_assert!(some.windows() <= whole.windows());
            }
            Err(none) => prop_assert_eq!(none, error),
        }
    }
}

/// Export has every key that damo's `from_kvpairs` (src/_damo_records.py, src/_damon.py) looks up
/// without a check.
#[test]
fn damo_finds_every_key_that_it_needs() {
    use tierscope_core::{CpuTime, Range, Region, Snapshot, SpaceId, Time};
    let region = |start, hits, samples| Region {
        age: 3,
        ..Region::sampled(Range::new(SpaceId(5), start, start + 4096), hits, samples)
    };
    let regions = vec![region(0, 40.0, 40), region(4096, 2.5, 5), region(8192, 0.001, 40)];
    let snapshot = Snapshot { start: Time(100), end: Time(200), samples: 40, regions };
    let recording = record(&[crate::common::Seen { snapshot, cpu: CpuTime::default() }]);
    let json: serde_json::Value =
        serde_json::from_slice(&exported(&recording, Shape::Plain)).unwrap();
    let one = &json[0];
    assert_eq!(one["intervals"]["sample_us"], 5000);
    assert_eq!(one["intervals"]["aggr_us"], 200_000);
    assert!(one["intervals"]["ops_update_us"].is_u64());
    assert_eq!(one["target_id"], 5);
    let shot = &one["snapshots"][0];
    assert_eq!((&shot["start_time"], &shot["end_time"]), (&100.into(), &200.into()));
    let accesses: Vec<_> =
        (0..3).map(|i| shot["regions"][i]["nr_accesses"]["samples"].clone()).collect();
    // 2.5 hits of 5 samples become 20 of 40; less than one hit does not count as accessed.
    assert_eq!(accesses, [40, 20, 0]);
    let age = &shot["regions"][0]["age"];
    assert!(age["usec"].is_null() && age["aggr_intervals"] == 3);
    assert!(shot["regions"][0]["tierscope"].is_null(), "damo says it all");
    assert_eq!(shot["regions"][1]["tierscope"]["hits"], 2.5);
}

// damo would take regions that are unknown or were not probed for idle: they are omitted from the
// regions that damo reads, they are counted, and an import restores them. The fourth region has a
// rate, which damo's format lacks, and is exported otherwise.
#[test]
fn unknown_regions_are_hidden_from_damo() {
    use tierscope_core::{CpuTime, Range, Rate, Region, Snapshot, SpaceId, Time};
    let region = |page: u64| Region {
        age: 3,
        ..Region::sampled(Range::new(SpaceId(0), page * 4096, (page + 1) * 4096), 0.0, 40)
    };
    let rate = Some(Rate { low: 0.5, mean: 1.5, high: 2.5 });
    let regions = vec![
        region(0),
        Region { unknown: Some(tierscope_core::Unknown::Evidence), rate, ..region(1) },
        Region { samples: 0, ..region(2) },
        Region { rate, ..region(3) },
    ];
    let snapshot =
        |start, regions| Snapshot { start, end: Time(start.0 + 100), samples: 40, regions };
    let seen = [snapshot(Time(100), regions), snapshot(Time(200), vec![region(0)])]
        .map(|snapshot| crate::common::Seen { snapshot, cpu: CpuTime::default() });
    let recording = record(&seen);
    let mut out = Vec::new();
    let left_out =
        write(&recording, Shape::Plain, &mut out, &mut *scratch(), &mut |_, _| Ok(())).unwrap();
    assert_eq!(left_out, LeftOut { regions: 2, windows: 1 });
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let shot = &json[0]["snapshots"][0];
    let starts: Vec<_> =
        shot["regions"].as_array().unwrap().iter().map(|r| r["start"].as_u64().unwrap()).collect();
    assert_eq!((starts, shot["total_bytes"].as_u64()), (vec![0, 3 * 4096], Some(8192)));
    assert_eq!(shot["regions"][1]["tierscope"]["rate"], serde_json::json!([0.5, 1.5, 2.5]));
    let imported = read("x", &mut &*out, Options::default(), scratch()).unwrap();
    assert_eq!(kept(imported).windows, seen);
}
