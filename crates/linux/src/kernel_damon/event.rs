//! The tracepoint `damon:damon_aggregated` (include/trace/events/damon.h): one region at the end of
//! one window. The event's `format` file specifies the offsets of its fields.

/// One region as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Trace clock time in ns.
    pub(crate) time: u64,
    /// Index of the target.
    pub(crate) target: u64,
    /// Number of the target's regions, which are reported in consecutive events.
    pub(crate) regions: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Sampling intervals with an access.
    pub(crate) accesses: u64,
    /// Number of windows in which that count has not changed.
    pub(crate) age: u64,
}

/// Offsets and sizes of the event's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    id: u64,
    kind: Field,
    target: Field,
    regions: Field,
    start: Field,
    end: Field,
    accesses: Field,
    age: Field,
}

impl Format {
    /// Parses a `format` file.
    ///
    /// # Errors
    /// The item that is missing or malformed.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let field = |name: &'static str| Field::find(text, name).ok_or(name);
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"));
        Ok(Self {
            id: id.and_then(|id| id.trim().parse().ok()).ok_or("ID")?,
            kind: field("common_type")?,
            target: field("target_id")?,
            regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// Decodes a record of the ring buffer; `None` if it is another event or malformed.
    pub(crate) fn read(&self, time: u64, record: &[u8]) -> Option<Event> {
        let event = Event {
            time,
            target: self.target.read(record)?,
            regions: self.regions.read(record)?,
            start: self.start.read(record)?,
            end: self.end.read(record)?,
            accesses: self.accesses.read(record)?,
            age: self.age.read(record)?,
        };
        let sound = event.start < event.end && event.regions > 0;
        (self.kind.read(record)? == self.id && sound).then_some(event)
    }
}

/// Position of an unsigned integer in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Finds the line of a field: `field:unsigned long start; offset:24; size:8; signed:0;`
    fn find(text: &str, name: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
            if declaration.split_ascii_whitespace().last()? != name {
                return None;
            }
            let number = |key: &str| {
                rest.split(';').find_map(|item| item.trim().strip_prefix(key)?.parse().ok())
            };
            let field = Self { offset: number("offset:")?, size: number("size:")? };
            (matches!(field.size, 1 | 2 | 4 | 8) && field.offset < 4096).then_some(field)
        })
    }

    fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset + self.size)?;
        let mut word = [0; 8];
        let from = if cfg!(target_endian = "big") { 8 - self.size } else { 0 };
        word[from..from + self.size].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(word))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The event's `format` file in Linux 6.12.
    pub(crate) const FORMAT: &str = "name: damon_aggregated\nID: 734\nformat:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;

print fmt: \"target_id=%lu\", REC->target_id
";

    /// Encodes an event as the kernel does.
    pub(crate) fn record(event: &Event) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[0..2].copy_from_slice(&734u16.to_ne_bytes());
        bytes[8..16].copy_from_slice(&event.target.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(event.regions as u32).to_ne_bytes());
        bytes[24..32].copy_from_slice(&event.start.to_ne_bytes());
        bytes[32..40].copy_from_slice(&event.end.to_ne_bytes());
        bytes[40..44].copy_from_slice(&(event.accesses as u32).to_ne_bytes());
        bytes[44..48].copy_from_slice(&(event.age as u32).to_ne_bytes());
        bytes
    }

    const EVENT: Event =
        Event { time: 5, target: 1, regions: 3, start: 4096, end: 8192, accesses: 7, age: 2 };

    #[test]
    fn a_record_is_read_by_the_kernels_format() {
        let format = Format::parse(FORMAT).unwrap();
        assert_eq!(format.read(5, &record(&EVENT)), Some(EVENT));
    }

    #[test]
    fn other_records_are_no_events() {
        let format = Format::parse(FORMAT).unwrap();
        let mut other = record(&EVENT);
        other[0] ^= 1;
        assert_eq!(format.read(5, &other), None);
        assert_eq!(format.read(5, &record(&EVENT)[..47]), None);
        assert_eq!(format.read(5, &record(&Event { end: 4096, ..EVENT })), None);
    }

    #[test]
    fn the_missing_field_is_named() {
        assert_eq!(Format::parse(""), Err("ID"));
        assert_eq!(Format::parse(&FORMAT.replace("nr_accesses", "x")), Err("nr_accesses"));
        assert_eq!(Format::parse(&FORMAT.replace("size:2", "size:3")), Err("common_type"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_and_records_do_not_panic(
            text in "(field:[a-z ]{0,9};|offset:[0-9]{0,9};|\n|[ -~]){0,40}",
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = Format::parse(&text);
            let _ = Format::parse(FORMAT).unwrap().read(0, &bytes);
        }
    }
}
