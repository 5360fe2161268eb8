//! Encodes the accesses of a thread as tokens. FORMAT.md has the layout.
//!
//! A program alternates between several places: its stack, an array, a table, its code. The coder
//! keeps a *cursor* for each of the 15 most recent places, and writes an access as: which cursor,
//! the distance from it, and which *form* (kind and length). Two bytes suffice for most accesses;
//! and since programs loop, the byte sequences repeat, which LZ4 exploits.

use std::collections::HashMap;
use std::sync::Arc;

use tierscope_core::Time;

use super::block::MOST_EVENTS;
use super::varint;
use crate::access::{Access, Batch, Event, Kind};

/// Number of cursors.
pub(super) const CURSORS: usize = 15;
/// The cursor of instruction fetches.
const CODE: usize = 0;
/// In place of a cursor's number in a token: the lower four bits give the kind of token.
const ESCAPE: u8 = 15;
/// Token: time passes.
const TIME: u8 = ESCAPE << 4;
/// Token: defines a form, which gets the next number.
const FORM: u8 = ESCAPE << 4 | 1;
/// Token: names a call site of allocations, which gets the next number.
const SITE: u8 = ESCAPE << 4 | 2;
/// Token: an allocation by a named call site.
const GIVEN: u8 = ESCAPE << 4 | 3;
/// In place of a form's number: the number is in the next byte.
const FAR_FORM: u8 = 15;
/// Limit on the forms of a block.
pub(super) const FORMS: usize = 255;

/// If no cursor is within this distance, the least recently used one is moved.
const NEAR: u64 = 1 << 14;

/// Kind and length as one number.
fn form_of(access: &Access) -> u32 {
    u32::from(access.bytes) << 2 | access.kind as u32
}

/// Encodes the accesses of one block.
pub(super) struct Encoder {
    pub(super) out: Vec<u8>,
    pub(super) count: u32,
    /// Time of the first access.
    pub(super) begins: Time,
    time: Time,
    cursors: [u64; CURSORS],
    used: [u32; CURSORS],
    forms: Vec<u32>,
    /// Form number by a few bits of the form: a one-way cache, checked on use.
    guess: [u8; 64],
    sites: HashMap<Arc<str>, u64>,
    /// Address of the last allocation.
    given: u64,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self {
            out: Vec::new(),
            count: 0,
            begins: Time(0),
            time: Time(0),
            cursors: [0; CURSORS],
            used: [0; CURSORS],
            forms: Vec::new(),
            guess: [0; 64],
            sites: HashMap::new(),
            given: 0,
        }
    }

    /// Begins a block.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.forms.clear();
        (self.count, self.begins, self.time) = (0, Time(0), Time(0));
        (self.cursors, self.used) = ([0; CURSORS], [0; CURSORS]);
        self.sites.clear();
        self.given = 0;
    }

    /// Whether another access fits, which may need a new form.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.forms.len() < FORMS
    }

    /// Appends an access; false if its time is before the previous one's.
    #[inline]
    pub(super) fn put(&mut self, access: &Access) -> bool {
        if access.time != self.time && !self.advance(access.time) {
            return false;
        }
        self.count += 1;
        let form = self.form(form_of(access));
        let cursor = self.cursor(access);
        let far = varint::zigzag(access.address.wrapping_sub(self.cursors[cursor]));
        self.cursors[cursor] = access.address;
        self.used[cursor] = self.count;
        let place = (cursor as u8) << 4;
        if form < FAR_FORM {
            self.out.push(place | form);
        } else {
            self.out.extend_from_slice(&[place | FAR_FORM, form]);
        }
        varint::put(far, &mut self.out);
        true
    }

    /// Appends an allocation.
    pub(super) fn given(&mut self, start: u64, bytes: u64, site: &Arc<str>) {
        let number = match self.sites.get(site) {
            Some(number) => *number,
            None => {
                self.out.push(SITE);
                varint::put_text(site, &mut self.out);
                let number = self.sites.len() as u64;
                self.sites.insert(Arc::clone(site), number);
                number
            }
        };
        self.out.push(GIVEN);
        varint::put(number, &mut self.out);
        varint::put(varint::zigzag(start.wrapping_sub(self.given)), &mut self.out);
        varint::put(bytes, &mut self.out);
        self.given = start;
    }

    #[cold]
    fn advance(&mut self, time: Time) -> bool {
        if self.count == 0 {
            self.begins = time;
        } else {
            let Some(passed) = time.0.checked_sub(self.time.0) else { return false };
            self.out.push(TIME);
            varint::put(passed, &mut self.out);
        }
        self.time = time;
        true
    }

    #[inline]
    fn form(&mut self, form: u32) -> u8 {
        let guess = self.guess[form as usize % 64];
        if self.forms.get(usize::from(guess)) == Some(&form) { guess } else { self.find_form(form) }
    }

    #[cold]
    fn find_form(&mut self, form: u32) -> u8 {
        let known = self.forms.iter().position(|known| *known == form);
        let number = known.unwrap_or_else(|| {
            self.out.push(FORM);
            varint::put(form.into(), &mut self.out);
            self.forms.push(form);
            self.forms.len() - 1
        }) as u8;
        self.guess[form as usize % 64] = number;
        number
    }

    /// The nearest cursor, or the least recently used one if none is near.
    #[inline]
    fn cursor(&self, access: &Access) -> usize {
        if access.kind == Kind::Fetch {
            return CODE;
        }
        let (mut nearest, mut distance) = (CODE + 1, u64::MAX);
        for at in CODE + 1..CURSORS {
            let far = varint::zigzag(access.address.wrapping_sub(self.cursors[at]));
            if far < distance {
                (nearest, distance) = (at, far);
            }
        }
        if distance < NEAR { nearest } else { self.oldest() }
    }

    fn oldest(&self) -> usize {
        (CODE + 1..CURSORS).min_by_key(|at| self.used[*at]).unwrap_or(CODE + 1)
    }
}

/// Decoder state of allocations: call sites, and the address of the last allocation.
#[derive(Default)]
struct Sites {
    names: Vec<Arc<str>>,
    given: u64,
    /// Tokens of both kinds so far.
    tokens: u32,
}

impl Sites {
    /// Decodes the operands of a SITE or GIVEN token.
    fn take(&mut self, token: u8, bytes: &mut &[u8], thread: u32) -> Option<Option<Event>> {
        self.tokens += 1;
        if self.tokens > MOST_EVENTS {
            return None;
        }
        if token == SITE {
            self.names.push(varint::take_text(bytes)?.into());
            return Some(None);
        }
        let site = self.names.get(usize::try_from(varint::take(bytes)?).ok()?)?;
        let start = self.given.wrapping_add(varint::unzigzag(varint::take(bytes)?));
        self.given = start;
        let (bytes, site) = (varint::take(bytes)?, Arc::clone(site));
        Some(Some(Event::Given { thread, start, bytes, site }))
    }
}

/// Appends the accesses and allocations of a payload. `None` if the payload is invalid; `batch`
/// then has the accesses before the error.
pub(super) fn decode(
    mut bytes: &[u8],
    thread: u32,
    begins: Time,
    count: u32,
    batch: &mut Batch,
) -> Option<()> {
    let Batch { accesses: out, events } = batch;
    let mut sites = Sites::default();
    let bytes = &mut bytes;
    let mut cursors = [0u64; CURSORS + 1];
    let mut forms = [(0u16, Kind::Load); FORMS + 1];
    let mut known = 0;
    let mut time = begins;
    let end = out.len() + count as usize;
    // An access takes at least a byte: a wrong count cannot cause a large allocation.
    out.reserve((count as usize).min(bytes.len()));
    while let Some((token, rest)) = bytes.split_first() {
        *bytes = rest;
        let cursor = usize::from(token >> 4);
        if cursor == CURSORS {
            match *token {
                TIME => time = Time(time.0.checked_add(varint::take(bytes)?)?),
                FORM if known < FORMS => {
                    let form = varint::take(bytes)?;
                    forms[known] = (u16::try_from(form >> 2).ok()?, Kind::ALL[form as usize & 3]);
                    known += 1;
                }
                SITE | GIVEN => {
                    events.extend(sites.take(*token, bytes, thread)?.map(|e| (out.len(), e)));
                }
                _ => return None,
            }
            continue;
        }
        let mut form = token & 15;
        if form == FAR_FORM {
            let (number, rest) = bytes.split_first()?;
            (form, *bytes) = (*number, rest);
        }
        let address = cursors[cursor].wrapping_add(varint::unzigzag(varint::take(bytes)?));
        cursors[cursor] = address;
        if usize::from(form) >= known || out.len() == end {
            return None;
        }
        let (length, kind) = forms[usize::from(form)];
        out.push(Access { address, time, thread, bytes: length, kind });
    }
    (out.len() == end).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn access(address: u64, time: u64, bytes: u16, kind: Kind) -> Access {
        Access { address, time: Time(time), thread: 3, bytes, kind }
    }

    #[test]
    fn tokens_have_the_documented_layout() {
        let mut encoder = Encoder::new();
        let stack = 0x7000;
        assert!(encoder.put(&access(stack, 9, 8, Kind::Store)));
        assert!(encoder.put(&access(stack + 8, 9, 8, Kind::Store)));
        assert!(encoder.put(&access(0x40_1000, 12, 3, Kind::Fetch)));
        let expected = [
            // A form: 8 bytes, store. Cursor 1 (0x10), form 0, 0x7000 from zero. Then 8 from there.
            &[0xf1, 8 << 2 | 1, 0x10, 0x80, 0xc0, 3, 0x10, 16][..],
            // 3 ns later; a form: 3 bytes, fetch. Cursor 0, form 1, 0x401000 from zero.
            &[0xf0, 3, 0xf1, 3 << 2 | 3, 1, 0x80, 0xc0, 0x80, 4],
        ];
        assert_eq!(encoder.out, expected.concat());
        assert_eq!((encoder.count, encoder.begins), (3, Time(9)));
    }

    // Two call sites, the first of them twice, with an access between.
    #[test]
    fn allocations_keep_their_position_among_accesses() {
        let mut encoder = Encoder::new();
        let (table, list): (Arc<str>, Arc<str>) = ("table".into(), "list".into());
        encoder.given(0x5000, 64, &table);
        assert!(encoder.put(&access(0x5000, 0, 8, Kind::Store)));
        encoder.given(0x6000, 32, &list);
        encoder.given(0x5000, 16, &table);
        assert_eq!(encoder.out[..11], *b"\xf2\x05table\xf3\0\x80\xc0");
        let mut found = Batch::default();
        assert_eq!(decode(&encoder.out, 3, Time(0), 1, &mut found), Some(()));
        let given = |start, bytes, site: &Arc<str>| Event::Given {
            thread: 3,
            start,
            bytes,
            site: Arc::clone(site),
        };
        let expected = [
            (0, given(0x5000, 64, &table)),
            (1, given(0x6000, 32, &list)),
            (1, given(0x5000, 16, &table)),
        ];
        assert_eq!(found.events, expected);
    }

    #[test]
    fn time_does_not_go_backwards() {
        let mut encoder = Encoder::new();
        assert!(encoder.put(&access(1, 9, 8, Kind::Load)));
        assert!(!encoder.put(&access(1, 8, 8, Kind::Load)));
    }

    #[test]
    fn invalid_payloads_are_refused() {
        let decode = |bytes: &[u8], count| decode(bytes, 0, Time(0), count, &mut Batch::default());
        assert_eq!(decode(&[0xf1, 4, 0x10, 2], 1), Some(()));
        assert_eq!(decode(&[0xf1, 4, 0x10, 2], 2), None, "fewer than said");
        assert_eq!(decode(&[0xf1, 4, 0x10, 2, 0x10, 2], 1), None, "more than said");
        assert_eq!(decode(&[0x10, 2], 1), None, "an unknown form");
        assert_eq!(decode(&[0xf4], 0), None, "an unknown escape");
        assert_eq!(decode(&[0xf2, 1, b'x', 0xf3, 0, 2, 3], 0), Some(()));
        assert_eq!(decode(&[0xf2, 1, b'x', 0xf3, 1, 2, 3], 0), None, "an unknown site");
        assert_eq!(decode(&[0xf1, 4, 0x10], 1), None, "cut short");
        let given = |count| [&[0xf2, 1, b'x'][..], &[0xf3, 0, 2, 3].repeat(count)].concat();
        let most = MOST_EVENTS as usize - 1;
        assert_eq!(decode(&given(most), 0), Some(()));
        assert_eq!(decode(&given(most + 1), 0), None, "more allocations than a block may have");
    }

    proptest! {
        #[test]
        fn accesses_are_read_back(
            accesses in prop::collection::vec(
                (prop_oneof![any::<u64>(), 0u64..1 << 16], 0u64..3, prop_oneof![1u16..20, any::<u16>()], 0usize..4),
                0..400,
            ),
        ) {
            let mut encoder = Encoder::new();
            let mut time = 0;
            let mut expected = Vec::new();
            for (address, passed, bytes, kind) in accesses {
                time += passed;
                let access = access(address, time, bytes, Kind::ALL[kind]);
                if !encoder.has_room() {
                    break;
                }
                prop_assert!(encoder.put(&access));
                expected.push(access);
            }
            let mut found = Batch::default();
            let done = decode(&encoder.out, 3, encoder.begins, encoder.count, &mut found);
            prop_assert_eq!(done, Some(()));
            prop_assert_eq!(found.accesses, expected);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>, count in 0u32..99) {
            let mut out = Batch::default();
            let _ = decode(&bytes, 0, Time(0), count, &mut out);
            prop_assert!(out.accesses.len() <= count as usize);
        }
    }
}
