//! Decodes pages of the kernel's trace ring buffer, read from `per_cpu/cpuN/trace_pipe_raw`
//! (kernel/trace/ring_buffer.c, include/linux/ring_buffer.h).

/// Size of the page header: `time_stamp` and `commit` of `struct buffer_data_page`.
const HEADER: usize = 16;
/// `RB_MISSED_EVENTS`: events before this page were overwritten.
const MISSED: u64 = 1 << 31;
/// Bits of `commit` that hold the length.
const LENGTH: u64 = (1 << 20) - 1;

/// `enum ring_buffer_type`; smaller values are lengths in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Passes every event of a page to `event`, with its time in ns of the trace clock. Returns whether
/// events before the page were lost.
///
/// # Errors
/// The item that is malformed; the events before it have been passed on.
pub(crate) fn decode(page: &[u8], mut event: impl FnMut(u64, &[u8])) -> Result<bool, &'static str> {
    let mut time = u64_at(page, 0).ok_or("time stamp")?;
    let commit = u64_at(page, 8).ok_or("length")?;
    let end = HEADER + (commit & LENGTH) as usize;
    let data = page.get(HEADER..end).ok_or("data of that length")?;
    let mut at = 0;
    while at < data.len() {
        let head = u32_at(data, at).ok_or("event header")?;
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let word = || u32_at(data, at + 4).map(u64::from).ok_or("event length");
        match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                time = time.wrapping_add(delta);
                at += 4 + word()? as usize;
            }
            TIME_EXTEND => {
                time = time.wrapping_add(delta + (word()? << 27));
                at += 8;
            }
            TIME_STAMP => {
                time = delta + (word()? << 27);
                at += 8;
            }
            words => {
                // If the length is 0, the next word holds it, that word included.
                let (from, to) = match words {
                    0 => (at + 8, at + 4 + word()? as usize),
                    words => (at + 4, at + 4 + 4 * words as usize),
                };
                time = time.wrapping_add(delta);
                event(time, data.get(from..to).ok_or("event of that length")?);
                at = to;
            }
        }
    }
    Ok(commit & MISSED != 0)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a page of events (delta, data): each follows the one before by delta ns.
    pub(crate) fn page(time: u64, missed: bool, events: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut data = Vec::new();
        for (delta, bytes) in events {
            assert!(bytes.len().is_multiple_of(4) && (4..=112).contains(&bytes.len()));
            data.extend(((delta << 5) | (bytes.len() as u32 / 4)).to_ne_bytes());
            data.extend(bytes);
        }
        whole(time, data.len() as u64 | if missed { MISSED } else { 0 }, &data)
    }

    fn whole(time: u64, commit: u64, data: &[u8]) -> Vec<u8> {
        let mut page = time.to_ne_bytes().to_vec();
        page.extend(commit.to_ne_bytes());
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    type Decoded = (Result<bool, &'static str>, Vec<(u64, Vec<u8>)>);

    fn events(page: &[u8]) -> Decoded {
        let mut all = Vec::new();
        (decode(page, |time, bytes| all.push((time, bytes.to_vec()))), all)
    }

    #[test]
    fn times_add_up() {
        let page = page(1000, false, &[(0, vec![1; 4]), (20, vec![2; 8])]);
        assert_eq!(events(&page), (Ok(false), vec![(1000, vec![1; 4]), (1020, vec![2; 8])]));
    }

    #[test]
    fn every_kind_of_entry_is_decoded() {
        let words = [
            (3 << 5) | TIME_EXTEND, // 3 + 2 * 2^27 ns later
            2,
            (1 << 5) | PADDING, // 1 ns later, 4 + 8 bytes
            8,
            0xdead,
            5 << 5, // 5 ns later; the next word is the length: itself and 4 bytes
            8,
            7,
            (9 << 5) | TIME_STAMP, // absolute time 9 + 2^27 ns
            1,
            1, // 0 ns later, one word
            8,
            PADDING, // padding to the end of the page
            0xdead,
        ];
        let data: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        let page = whole(100, data.len() as u64 | MISSED, &data);
        let first = 100 + 3 + (2 << 27) + 1 + 5;
        let expected =
            [(first, 7u32), (9 + (1 << 27), 8)].map(|(t, w)| (t, w.to_ne_bytes().to_vec()));
        assert_eq!(events(&page), (Ok(true), expected.to_vec()));
    }

    #[test]
    fn damage_is_an_error_with_a_cause() {
        assert_eq!(events(&[0; 9]).0, Err("length"));
        assert_eq!(events(&whole(0, 5000, &[])).0, Err("data of that length"));
        assert_eq!(events(&whole(0, 4, &28u32.to_ne_bytes())).0, Err("event of that length"));
        assert_eq!(events(&whole(0, 3, &[1, 0, 0])).0, Err("event header"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            commit in 0u64..400,
        ) {
            let _ = events(&bytes);
            let _ = events(&whole(0, commit, &bytes));
        }

        #[test]
        fn written_events_are_read_back(
            list in prop::collection::vec((0u32..1 << 27, prop::collection::vec(any::<u32>(), 1..28)), 0..30)
        ) {
            let list: Vec<(u32, Vec<u8>)> = list.into_iter()
                .map(|(d, w)| (d, w.iter().flat_map(|w| w.to_ne_bytes()).collect())).collect();
            let (answer, read) = events(&page(7, false, &list));
            prop_assert_eq!(answer, Ok(false));
            let mut time = 7;
            for ((delta, bytes), (at, found)) in list.iter().zip(&read) {
                time += u64::from(*delta);
                prop_assert_eq!((time, bytes), (*at, found));
            }
            prop_assert_eq!(read.len(), list.len());
        }
    }
}
