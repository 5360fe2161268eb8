//! Encodes and decodes events other than allocations. FORMAT.md has the layout.

use std::sync::Arc;

use tierscope_core::{Backing, Time};

use super::varint::{put, put_text, take, take_text};
use crate::access::{Event, MAX_THREADS};

const THREAD: u64 = 1;
const MAP: u64 = 2;
const UNMAP: u64 = 3;
const SYMBOL: u64 = 4;

/// Backings, in the order of their numbers.
const BACKINGS: [Backing; 5] =
    [Backing::Anonymous, Backing::Heap, Backing::Stack, Backing::File, Backing::Kernel];

/// Appends an event.
pub(super) fn encode(event: &Event, out: &mut Vec<u8>) {
    let mut numbers = |all: &[u64]| all.iter().for_each(|number| put(*number, out));
    match event {
        Event::Thread { number, pid, tid, name } => {
            numbers(&[THREAD, u64::from(*number), *pid, *tid]);
            put_text(name, out);
        }
        Event::Map { time, pid, start, bytes, backing, writable, name } => {
            let number = BACKINGS.iter().position(|known| known == backing).unwrap_or(0) as u64;
            let properties = number << 1 | u64::from(*writable);
            numbers(&[MAP, time.0, *pid, *start, *bytes, properties]);
            put_text(name, out);
        }
        Event::Unmap { time, pid, start, bytes } => {
            numbers(&[UNMAP, time.0, *pid, *start, *bytes]);
        }
        Event::Symbol { pid, start, bytes, name } => {
            numbers(&[SYMBOL, *pid, *start, *bytes]);
            put_text(name, out);
        }
        // Allocations are encoded among the accesses.
        Event::Given { .. } => {}
    }
}

/// Decodes an event from the front of `bytes`; `None` if they hold none.
pub(super) fn decode(bytes: &mut &[u8]) -> Option<Event> {
    let text = |bytes: &mut &[u8]| take_text(bytes).map(Arc::from);
    Some(match take(bytes)? {
        THREAD => Event::Thread {
            number: take(bytes)?.try_into().ok().filter(|number| *number < MAX_THREADS)?,
            pid: take(bytes)?,
            tid: take(bytes)?,
            name: text(bytes)?,
        },
        MAP => {
            let (time, pid) = (Time(take(bytes)?), take(bytes)?);
            let (start, length) = (take(bytes)?, take(bytes)?);
            let properties = take(bytes)?;
            let backing = *BACKINGS.get(usize::try_from(properties >> 1).ok()?)?;
            let writable = properties & 1 == 1;
            Event::Map { time, pid, start, bytes: length, backing, writable, name: text(bytes)? }
        }
        UNMAP => Event::Unmap {
            time: Time(take(bytes)?),
            pid: take(bytes)?,
            start: take(bytes)?,
            bytes: take(bytes)?,
        },
        SYMBOL => Event::Symbol {
            pid: take(bytes)?,
            start: take(bytes)?,
            bytes: take(bytes)?,
            name: text(bytes)?,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Event> {
        let text = || ".{0,9}".prop_map(|text: String| Arc::from(text.as_str()));
        let four = || (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        prop_oneof![
            (0..MAX_THREADS, any::<u64>(), any::<u64>(), text())
                .prop_map(|(number, pid, tid, name)| Event::Thread { number, pid, tid, name }),
            (four(), 0usize..5, any::<bool>(), text()).prop_map(
                |((time, pid, start, bytes), backing, writable, name)| Event::Map {
                    time: Time(time),
                    pid,
                    start,
                    bytes,
                    backing: BACKINGS[backing],
                    writable,
                    name,
                }
            ),
            four().prop_map(|(time, pid, start, bytes)| Event::Unmap {
                time: Time(time),
                pid,
                start,
                bytes
            }),
            (any::<u64>(), any::<u64>(), any::<u64>(), text())
                .prop_map(|(pid, start, bytes, name)| Event::Symbol { pid, start, bytes, name }),
        ]
    }

    #[test]
    fn an_event_has_the_documented_layout() {
        let mut out = Vec::new();
        let name = "heap".into();
        encode(&Event::Symbol { pid: 7, start: 300, bytes: 1, name }, &mut out);
        assert_eq!(out, [4, 7, 0xac, 2, 1, 4, b'h', b'e', b'a', b'p']);
    }

    proptest! {
        #[test]
        fn events_are_read_back(events in prop::collection::vec(events(), 0..9)) {
            let mut out = Vec::new();
            events.iter().for_each(|event| encode(event, &mut out));
            let mut bytes = &out[..];
            for event in events {
                prop_assert_eq!(decode(&mut bytes), Some(event));
            }
            prop_assert_eq!(decode(&mut bytes), None);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while decode(&mut rest).is_some() {}
        }
    }
}
