//! A reader that checksums the bytes that are read: streams with equal sums are equal, except with
//! a probability of 2^-64.

use std::io::{self, BufRead, Read};

/// Position-dependent checksum of a stream, independent of how it is cut into buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    bytes: u64,
    sum: u64,
}

impl Checksum {
    /// Adds the next bytes of the stream.
    pub fn add(&mut self, bytes: &[u8]) {
        // The weight of a byte grows by this odd, large step: swapping neighbours changes the sum.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut place = self.bytes.wrapping_mul(STEP).wrapping_add(STEP);
        for byte in bytes {
            self.sum = self.sum.wrapping_add((u64::from(*byte) + 1).wrapping_mul(place));
            place = place.wrapping_add(STEP);
        }
        self.bytes += bytes.len() as u64;
    }

    /// The sum of the concatenated parts.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut sum = Checksum::default();
        parts.iter().for_each(|part| sum.add(part));
        sum
    }
}

/// A reader that can checksum the bytes consumed from it.
pub struct ChecksumReader<R> {
    inner: R,
    sum: Option<Checksum>,
}

impl<R: BufRead> ChecksumReader<R> {
    /// Wraps a reader; no sum is active.
    pub fn new(inner: R) -> Self {
        Self { inner, sum: None }
    }

    /// Begins a sum.
    pub fn begin(&mut self) {
        self.sum = Some(Checksum::default());
    }

    /// Ends the sum and returns it; the empty sum if none was begun.
    pub fn end(&mut self) -> Checksum {
        self.sum.take().unwrap_or_default()
    }
}

impl<R: BufRead> Read for ChecksumReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(out)?;
        if let Some(sum) = &mut self.sum {
            sum.add(&out[..bytes]);
        }
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for ChecksumReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(sum) = &mut self.sum
            && bytes > 0
            // The buffer still holds the bytes, so this reads nothing more.
            && let Ok(filled) = self.inner.fill_buf()
        {
            sum.add(&filled[..bytes.min(filled.len())]);
        }
        self.inner.consume(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    #[test]
    fn swapped_bytes_change_the_checksum() {
        assert_ne!(Checksum::of(&[b"ab"]), Checksum::of(&[b"ba"]));
        assert_ne!(Checksum::of(&[b"\0"]), Checksum::of(&[b"\0\0"]));
        assert_eq!(Checksum::of(&[b"a", b"", b"b"]), Checksum::of(&[b"ab"]));
    }

    proptest! {
        // Holds for any buffer size, and if a part is read line by line.
        #[test]
        fn buffer_sizes_make_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..300), buffer in 1usize..40) {
            let mut from = ChecksumReader::new(BufReader::with_capacity(buffer, bytes.as_slice()));
            from.begin();
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line).unwrap();
            let mut rest = Vec::new();
            from.read_to_end(&mut rest).unwrap();
            prop_assert_eq!(from.end(), Checksum::of(&[&bytes]));
        }
    }
}
