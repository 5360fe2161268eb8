//! Values that can be recognised in a server's memory.
//!
//! A value is a run of blocks of [`BLOCK`] bytes. Each block begins with a mark that holds the key,
//! whether it is hot, and the block's offset in the value; the rest is filler.

/// Bytes from one mark to the next.
pub const BLOCK: usize = 512;

/// First bytes of every mark.
pub const MAGIC: &[u8; 16] = b"\x07TierscopeValue\x1b";

/// Bytes of a mark: magic, flag, key, offset of the block in its value.
pub const MARK: usize = MAGIC.len() + 1 + 4 + 4;

/// The mark at the beginning of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the key.
    pub key: u32,
    /// Whether the key is hot.
    pub hot: bool,
    /// Offset of the mark in the value.
    pub offset: u32,
}

impl Mark {
    fn bytes(self) -> [u8; MARK] {
        let mut bytes = [0; MARK];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16] = if self.hot { b'H' } else { b'C' };
        bytes[17..21].copy_from_slice(&self.key.to_le_bytes());
        bytes[21..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Parses the mark at the beginning of `bytes`; `None` if there is none.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Mark> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let hot = match rest.first()? {
            b'H' => true,
            b'C' => false,
            _ => return None,
        };
        let number = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        Some(Mark { key: number(1)?, hot, offset: number(5)? })
    }
}

/// Fills `value` with the marked blocks of `key`.
pub fn fill(value: &mut [u8], key: u32, hot: bool) {
    for (i, block) in value.chunks_mut(BLOCK).enumerate() {
        let mark = Mark { key, hot, offset: (i * BLOCK) as u32 }.bytes();
        let marked = block.len().min(MARK);
        block[..marked].copy_from_slice(&mark[..marked]);
        block[marked..].fill(b'.');
    }
}

/// Whether `bytes` are the whole value of `key`: every block begins with the right mark.
#[must_use]
pub fn is_whole(bytes: &[u8], key: u32, hot: bool) -> bool {
    let whole_marks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.len() >= MARK);
    whole_marks
        .map(|(i, block)| (i, Mark::read(block)))
        .all(|(i, mark)| mark == Some(Mark { key, hot, offset: (i * BLOCK) as u32 }))
}

/// Offset of the first occurrence of `needle` (Horspool 1980): marks are rare, so most bytes are
/// skipped.
#[must_use]
pub fn find(haystack: &[u8], needle: &[u8; 16]) -> Option<usize> {
    let last = needle.len() - 1;
    let mut skip = [needle.len(); 256];
    for (i, byte) in needle[..last].iter().enumerate() {
        skip[usize::from(*byte)] = last - i;
    }
    let mut at = 0;
    while let Some(window) = haystack.get(at..at + needle.len()) {
        if window == needle {
            return Some(at);
        }
        at += skip[usize::from(window[last])];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_marked_every_block() {
        let mut value = vec![0; 2 * BLOCK + 30];
        fill(&mut value, 7, true);
        assert_eq!(Mark::read(&value), Some(Mark { key: 7, hot: true, offset: 0 }));
        assert_eq!(Mark::read(&value[BLOCK..]), Some(Mark { key: 7, hot: true, offset: 512 }));
        assert_eq!(Mark::read(&value[2 * BLOCK..]), Some(Mark { key: 7, hot: true, offset: 1024 }));
        assert_eq!(Mark::read(&value[1..]), None);
    }

    #[test]
    fn a_torn_value_is_not_whole() {
        let mut value = vec![0; 3 * BLOCK];
        fill(&mut value, 1, false);
        assert!(is_whole(&value, 1, false));
        assert!(!is_whole(&value, 1, true));
        fill(&mut value[BLOCK..], 2, false);
        assert!(!is_whole(&value, 1, false));
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_search(before in prop::collection::vec(0u8..40, 0..100), after in prop::collection::vec(0u8..40, 0..40)) {
            let mut haystack = before;
            haystack.extend_from_slice(MAGIC);
            haystack.extend(after);
            let naive = haystack.windows(16).position(|window| window == MAGIC);
            prop_assert_eq!(find(&haystack, MAGIC), naive);
        }
    }
}
