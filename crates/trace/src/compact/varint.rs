//! Variable-length integers of up to 64 bits: seven bits a byte, lowest first, the upper bit set in
//! all but the last (LEB128).

/// Appends a number.
#[inline]
pub fn put(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front; `None` if there is none, or one of more than 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    if *first < 0x80 { Some(u64::from(*first)) } else { take_long(*first, bytes) }
}

fn take_long(first: u8, bytes: &mut &[u8]) -> Option<u64> {
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return (shift < 63 || *byte <= 1).then_some(value);
        }
    }
    None
}

/// Maps a signed difference to an unsigned number that is small if its magnitude is small.
#[inline]
pub(super) fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    (signed << 1 ^ signed >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(super) fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// Appends a string: its length, then its bytes.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Takes a string off the front.
pub(super) fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_as_documented() {
        let mut out = Vec::new();
        put(0, &mut out);
        put(300, &mut out);
        put(u64::MAX, &mut out);
        assert_eq!(out[..3], [0, 0xac, 2]);
        assert_eq!(out[3..], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(take(&mut &[0xff; 10][..]), None, "more than 64 bits");
        assert_eq!((take(&mut &[0x80][..]), take(&mut &[][..])), (None, None));
        assert_eq!([0u64, 1, 2].map(zigzag), [0, 2, 4]);
        assert_eq!(zigzag(u64::MAX), 1);
    }

    proptest! {
        #[test]
        fn numbers_and_texts_are_read_back(value: u64, text in ".{0,9}", rest: Vec<u8>) {
            let mut out = Vec::new();
            put(value, &mut out);
            put(zigzag(value), &mut out);
            put_text(&text, &mut out);
            out.extend_from_slice(&rest);
            let mut bytes = &out[..];
            prop_assert_eq!(take(&mut bytes), Some(value));
            prop_assert_eq!(take(&mut bytes).map(unzigzag), Some(value));
            prop_assert_eq!(take_text(&mut bytes), Some(&*text));
            prop_assert_eq!(bytes, &rest[..]);
        }
    }
}
