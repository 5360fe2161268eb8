//! damo's JSON (`DamonRecord.to_kvpairs` in src/_damo_records.py): an array of records, one per
//! target, each with its snapshots. Numbers may be strings, with commas or units.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tierscope_core::{CpuTime, Error, Level, Rate, Result, Unknown};
use tierscope_record::Meta;

use super::quantity;
use crate::place::{Place, malformed};
use crate::short_texts::ShortTexts;
use crate::spool::{Age, ForeignRegion, Hits, Origin, Ours, SnapshotHead, Spool, StreamId};

/// Reads an array of damo records into `spool`.
pub(crate) fn read(file: &str, input: &mut dyn Read, spool: &mut Spool) -> Result<()> {
    let mut reading = Reading { file, spool, refused: None };
    let mut json = serde_json::Deserializer::from_reader(ShortTexts::new(input));
    let read = Records(&mut reading).deserialize(&mut json).and_then(|()| json.end());
    let refused = reading.refused.take();
    read.map_err(|cause| refused.unwrap_or_else(|| broken(file, &cause)))
}

/// A JSON error of `file`; serde_json's message contains line and column.
fn broken(file: &str, cause: &serde_json::Error) -> Error {
    malformed(file, Place::Whole, cause)
}

/// Where the deserializers put snapshots.
struct Reading<'a> {
    file: &'a str,
    spool: &'a mut Spool,
    /// The error of the spool that ended reading.
    refused: Option<Error>,
}

impl Reading<'_> {
    fn push(&mut self, stream: StreamId, snapshot: Snapshot) -> Result<(), String> {
        let head = snapshot.head();
        self.spool.drop_field("damos_stats", snapshot.damos_stats.0);
        for region in &snapshot.regions {
            self.spool.drop_field("probe_hits", region.probe_hits.0);
            self.spool.drop_field("sz_filter_passed", region.sz_filter_passed.0);
        }
        let unknown = snapshot.tierscope.map_or(Vec::new(), |ours| ours.unknown);
        let regions = snapshot.regions.into_iter().filter(|region| !region.is_fake());
        let regions =
            regions.map(Region::decoded).chain(unknown.into_iter().map(UnknownRegion::decoded));
        let mut regions = regions.collect::<Result<Vec<_>, _>>()?;
        let place = Place::Nanos(head.end);
        self.spool.push(stream, head, &mut regions, (self.file, place)).map_err(|error| {
            let text = error.to_string();
            self.refused = Some(error);
            text
        })
    }
}

struct Records<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for Records<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Records<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of damo's records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut records: A) -> Result<(), A::Error> {
        while records.next_element_seed(Record(self.0))?.is_some() {}
        Ok(())
    }
}

struct Record<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for Record<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Record<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record of damo's")
    }

    /// Of a record that is cut short, the snapshots before are kept.
    fn visit_map<A: MapAccess<'de>>(self, record: A) -> Result<(), A::Error> {
        let stream = self.0.spool.open();
        let mut origin = Origin::target(0);
        let read = self.0.fields(stream, record, &mut origin);
        self.0.spool.adopt(origin);
        read
    }
}

impl Reading<'_> {
    /// Reads the fields of a record into its stream and its origin.
    fn fields<'de, A: MapAccess<'de>>(
        &mut self,
        stream: StreamId,
        mut record: A,
        origin: &mut Origin,
    ) -> Result<(), A::Error> {
        let index = |value: Option<Number>| value.map(|number| number.0 as i64);
        while let Some(key) = record.next_key::<String>()? {
            match key.as_str() {
                "kdamond_idx" => origin.context[0] = index(record.next_value()?),
                "context_idx" => origin.context[1] = index(record.next_value()?),
                "scheme_idx" => origin.context[2] = index(record.next_value()?),
                "target_id" => {
                    let id = record.next_value::<Option<Id>>()?;
                    origin.target = id.map_or(0, |id| id.0);
                }
                "intervals" => {
                    if let Some(intervals) = record.next_value::<Option<Intervals>>()? {
                        intervals.check().map_err(de::Error::custom)?;
                        let stream = &mut self.spool.streams[stream.0];
                        stream.sampling = Some(intervals.sample_us.0);
                        stream.window = Some(intervals.aggr_us.0);
                        stream.update = intervals.ops_update_us.as_ref().map(|us| us.0);
                        self.spool.drop_field("intervals_goal", intervals.intervals_goal.0);
                    }
                }
                "snapshots" => record.next_value_seed(Snapshots(self, stream))?,
                "tierscope" => {
                    self.ours(record.next_value()?, origin).map_err(de::Error::custom)?
                }
                "scheme_filters" => {
                    let filters = record.next_value::<Content>()?;
                    self.spool.drop_field("scheme_filters", filters.0);
                }
                "data_source" => {
                    let source = record.next_value::<Option<String>>()?;
                    let known = |source: &str| ["unknown", "tierscope"].contains(&source);
                    let holds = source.is_some_and(|source| !known(&source));
                    self.spool.drop_field("data_source", holds);
                }
                _ => drop(record.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    /// Takes what tierscope added to a record.
    fn ours(&mut self, ours: OurRecord, origin: &mut Origin) -> Result<(), String> {
        (origin.name, origin.space) = (Some(ours.name), Some(ours.space));
        let Some(facts) = ours.recording else { return Ok(()) };
        let meta = Meta::from_map(&facts);
        let meta = meta.map_err(|key| format!("no sound `{key}` in what tierscope added"))?;
        self.spool.meta.get_or_insert(meta);
        Ok(())
    }
}

struct Snapshots<'a, 'b>(&'a mut Reading<'b>, StreamId);

impl<'de> DeserializeSeed<'de> for Snapshots<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Snapshots<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of snapshots")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut snapshots: A) -> Result<(), A::Error> {
        while let Some(snapshot) = snapshots.next_element()? {
            self.0.push(self.1, snapshot).map_err(de::Error::custom)?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Intervals {
    sample_us: Micros,
    aggr_us: Micros,
    ops_update_us: Option<Micros>,
    #[serde(default)]
    intervals_goal: Content,
}

impl Intervals {
    fn check(&self) -> Result<(), String> {
        let (sampling, window) = (self.sample_us.0, self.aggr_us.0);
        if sampling >= 1.0 && window >= sampling {
            return Ok(());
        }
        Err(format!("intervals of {sampling} ns in {window} ns"))
    }
}

/// tierscope's additions to a record, under the key `tierscope`, which damo ignores.
#[derive(Deserialize)]
struct OurRecord {
    space: u32,
    name: String,
    recording: Option<std::collections::HashMap<String, String>>,
}

#[derive(Deserialize)]
struct Snapshot {
    start_time: Option<Nanos>,
    end_time: Nanos,
    #[serde(deserialize_with = "few")]
    regions: Vec<Region>,
    sample_interval_us: Option<Micros>,
    #[serde(default)]
    damos_stats: Content,
    tierscope: Option<OurSnapshot>,
}

/// Whether a value that is not kept holds anything: no null, zero, or empty text, list or object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Content(bool);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(AnyContent).map(Content)
    }
}

struct AnyContent;

impl<'de> Visitor<'de> for AnyContent {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_u64<E>(self, value: u64) -> Result<bool, E> {
        Ok(value != 0)
    }

    fn visit_i64<E>(self, value: i64) -> Result<bool, E> {
        Ok(value != 0)
    }

    fn visit_f64<E>(self, value: f64) -> Result<bool, E> {
        Ok(value != 0.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty() && quantity::bytes(text) != Some(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut holds = false;
        while let Some(Content(item)) = items.next_element()? {
            holds |= item;
        }
        Ok(holds)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut holds = false;
        while let Some((IgnoredAny, Content(item))) = items.next_entry()? {
            holds |= item;
        }
        Ok(holds)
    }
}

/// Most regions of a snapshot; damo's default is 1000. A snapshot of as many takes some 60 MB.
const MOST_REGIONS: usize = 1 << 18;

/// A list of at most [`MOST_REGIONS`] regions.
fn few<'de, T: Deserialize<'de>, D: Deserializer<'de>>(json: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(std::marker::PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of regions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MOST_REGIONS {
                    let cause = format_args!("a snapshot has more than {MOST_REGIONS} regions");
                    return Err(de::Error::custom(cause));
                }
                list.push(item);
            }
            Ok(list)
        }
    }
    json.deserialize_seq(Few(std::marker::PhantomData))
}

/// tierscope's additions to a snapshot.
#[derive(Deserialize)]
struct OurSnapshot {
    window: u64,
    samples: u32,
    profiler_ns: u64,
    target_ns: u64,
    #[serde(default, deserialize_with = "few")]
    unknown: Vec<UnknownRegion>,
}

/// An unknown region: kept outside `regions`, where damo would count it as idle.
#[derive(Deserialize)]
struct UnknownRegion {
    start: Bytes,
    end: Bytes,
    age: u32,
    unknown: bool,
    reason: Option<String>,
    #[serde(flatten)]
    ours: OurRegion,
}

impl UnknownRegion {
    fn decoded(self) -> Result<ForeignRegion, String> {
        let mut decoded = ForeignRegion::new(self.start.0, self.end.0, 0.0, self.age);
        decoded.unknown = self.unknown.then(|| {
            let name = self.reason.as_deref();
            let known = Unknown::ALL.into_iter().find(|reason| Some(reason.name()) == name);
            known.unwrap_or(Unknown::Evidence)
        });
        self.ours.apply_to(&mut decoded)?;
        Ok(decoded)
    }
}

impl Snapshot {
    fn head(&self) -> SnapshotHead {
        let sampling = self.sample_interval_us.as_ref().map(|us| us.0).filter(|ns| *ns >= 1.0);
        let ours = self.tierscope.as_ref().map(|ours| Ours {
            window: ours.window,
            samples: ours.samples,
            cpu: CpuTime {
                profiler: Duration::from_nanos(ours.profiler_ns),
                target: Duration::from_nanos(ours.target_ns),
            },
        });
        let start = self.start_time.as_ref().map(|start| start.0);
        SnapshotHead { start, end: self.end_time.0, sampling, ours }
    }
}

#[derive(Deserialize)]
struct Region {
    start: Bytes,
    end: Bytes,
    nr_accesses: Option<Accesses>,
    age: Option<AgeOf>,
    #[serde(default)]
    probe_hits: Content,
    #[serde(default)]
    sz_filter_passed: Content,
    tierscope: Option<OurRegion>,
}

#[derive(Deserialize)]
struct Accesses {
    samples: Option<Number>,
    percent: Option<Number>,
}

#[derive(Deserialize)]
struct AgeOf {
    usec: Option<Micros>,
    aggr_intervals: Option<Number>,
}

/// tierscope's additions to a region.
#[derive(Deserialize)]
struct OurRegion {
    hits: f32,
    samples: u32,
    level: Option<u8>,
    confidence: f32,
    /// Access rate: lower bound, estimate, upper bound.
    rate: Option<[f32; 3]>,
    /// Resident bytes.
    resident: Option<u64>,
}

impl OurRegion {
    fn apply_to(self, region: &mut ForeignRegion) -> Result<(), String> {
        region.hits = Hits::Samples(self.hits);
        region.samples = Some(self.samples);
        region.confidence = self.confidence;
        let level = |number| Level::new(number).ok_or(format!("page-table level {number}"));
        region.level = self.level.map(level).transpose()?;
        region.resident = self.resident;
        region.rate = self.rate.map(|[low, mean, high]| Rate { low, mean, high });
        Ok(())
    }
}

/// Greatest number of hits that a 32-bit float counts exactly.
const MOST_HITS: f64 = (1 << 24) as f64;

impl Region {
    /// The dummy region with which damo ends a recording of a single window, in formats without
    /// start times.
    fn is_fake(&self) -> bool {
        (self.start.0, self.end.0) == (0, 0)
    }

    fn decoded(self) -> Result<ForeignRegion, String> {
        let mut decoded = ForeignRegion::new(self.start.0, self.end.0, 0.0, 0);
        decoded.hits = match self.nr_accesses {
            Some(Accesses { samples: Some(Number(samples)), .. }) => {
                if !(0.0..=MOST_HITS).contains(&samples) {
                    return Err(format!("{samples} accesses"));
                }
                Hits::Samples(samples as f32)
            }
            Some(Accesses { percent: Some(Number(percent)), .. }) => Hits::Percent(percent as f32),
            _ => Hits::Samples(0.0),
        };
        decoded.age = match self.age {
            Some(AgeOf { aggr_intervals: Some(Number(age)), .. }) => Age::Windows(age as u32),
            Some(AgeOf { usec: Some(Micros(nanos)), .. }) => Age::Micros((nanos / 1e3) as u64),
            _ => Age::Absent,
        };
        if let Some(ours) = self.tierscope {
            ours.apply_to(&mut decoded)?;
        }
        Ok(decoded)
    }
}

/// A quantity as JSON encodes it.
enum Raw<'a> {
    Whole(u64),
    Real(f64),
    Text(&'a str),
}

/// Converts a JSON number or string to a quantity.
struct Of<T>(&'static str, fn(Raw<'_>) -> Option<T>);

impl<T> Of<T> {
    fn make<E: de::Error>(&self, raw: Raw<'_>, shown: de::Unexpected<'_>) -> Result<T, E> {
        self.1(raw).ok_or_else(|| E::invalid_value(shown, &self.0))
    }
}

impl<T> Visitor<'_> for Of<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.make(Raw::Whole(value), de::Unexpected::Unsigned(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.make(Raw::Real(value as f64), de::Unexpected::Signed(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.make(Raw::Real(value), de::Unexpected::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        self.make(Raw::Text(value), de::Unexpected::Str(value))
    }
}

/// The value of a float as an integer, if it is in range.
fn whole(value: f64) -> Option<u64> {
    (0.0..u64::MAX as f64).contains(&value).then_some(value as u64)
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $make:expr) => {
        $(#[$doc])*
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
                json.deserialize_any(Of($what, $make)).map($name)
            }
        }
    };
}

quantity!(
    /// A count or a percentage, as a number or a string.
    Number(f64),
    "a number",
    |raw| match raw {
        Raw::Whole(value) => Some(value as f64),
        Raw::Real(value) => Some(value),
        Raw::Text(text) => quantity::number(text),
    }
);
quantity!(
    /// An address, as a number or a string.
    Bytes(u64),
    "an address",
    |raw| match raw {
        Raw::Whole(value) => Some(value),
        Raw::Real(value) => whole(value),
        Raw::Text(text) => quantity::bytes(text),
    }
);
quantity!(
    /// A point in time, in ns.
    Nanos(u64),
    "a time",
    |raw| match raw {
        Raw::Whole(value) => Some(value),
        Raw::Real(value) => whole(value),
        Raw::Text(text) => text.parse().ok().or_else(|| whole(quantity::nanos(text, 1.0)?)),
    }
);
quantity!(
    /// A time given in us, converted to ns.
    Micros(f64),
    "a time in microseconds",
    |raw| match raw {
        Raw::Whole(value) => Some(value as f64 * 1e3),
        Raw::Real(value) => Some(value * 1e3),
        Raw::Text(text) => quantity::nanos(text, 1e3),
    }
);
quantity!(
    /// The id of a target; in recordings of early kernels, a kernel address.
    Id(u64),
    "the id of a target",
    |raw| match raw {
        Raw::Whole(value) => Some(value),
        // Negative, that is, printed with a sign.
        Raw::Real(value) => whole(value).or(Some((value as i64).cast_unsigned())),
        Raw::Text(text) => quantity::bytes(text),
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::in_memory;

    fn spooled(text: &str) -> Result<Spool> {
        let mut spool = in_memory().strictly();
        read("x", &mut text.as_bytes(), &mut spool).map(|()| spool)
    }

    /// A record as damo writes it today, with its keys in another order.
    const RECORD: &str = r#"[{"kdamond_idx": 0, "context_idx": null,
        "intervals": {"sample_us": "5000", "aggr_us": "100 ms", "ops_update_us": "1000000",
                      "intervals_goal": {"access_bp": "0 %"}},
        "scheme_idx": null, "target_id": "3", "scheme_filters": [],
        "snapshots": [{"start_time": "1000000", "end_time": 101000000, "regions": [
            {"start": "4,096", "end": "8.000 KiB", "nr_accesses": {"samples": 7, "percent": null},
             "age": {"usec": null, "aggr_intervals": "1,002"}, "probe_hits": [], "sz_filter_passed": "0 B"},
            {"start": "8,192", "end": "12,288", "nr_accesses": {"samples": null, "percent": 50},
             "age": {"usec": "1 s 200 ms", "aggr_intervals": null}}],
            "total_bytes": "8192", "damos_stats": null, "sample_interval_us": null}],
        "data_source": "unknown"}]"#;

    #[test]
    fn a_record_of_damos_is_read() {
        let mut spool = spooled(RECORD).unwrap();
        let stream = &spool.streams[0];
        assert_eq!(stream.origin.as_ref().unwrap().target, 3);
        assert_eq!((stream.sampling, stream.window), (Some(5e6), Some(100e6)));
        let (snapshot, at, count) = stream.snapshots[0].clone();
        assert_eq!((snapshot.start, snapshot.end), (Some(1_000_000), 101_000_000));
        let mut regions = Vec::new();
        spool.regions(at, count, &mut regions).unwrap();
        assert_eq!(regions[0], ForeignRegion::new(4096, 8192, 7.0, 1002));
        assert_eq!(
            (regions[1].hits, regions[1].age),
            (Hits::Percent(50.0), Age::Micros(1_200_000))
        );
    }

    #[test]
    fn errors_say_line_and_column() {
        let said = |text: &str| spooled(text).err().unwrap().to_string();
        let text = said(&RECORD[..400]);
        assert!(text.contains("EOF") && text.contains("line 6"), "{text}");
        let text = said(&RECORD.replace("\"4,096\"", "\"four\""));
        assert!(text.contains("expected an address at line 6"), "{text}");
        let text = said(&RECORD.replace("\"8,192\"", "\"8,191\""));
        assert!(text.contains("overlap") && text.contains("snapshot at 0.101000000 s"), "{text}");
        assert!(said("{}").contains("expected an array of damo's records"));
        assert!(said(&RECORD.replace("5000", "0")).contains("intervals"));
        assert!(said(&format!("{RECORD}x")).contains("trailing"));
    }
}
