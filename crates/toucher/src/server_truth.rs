//! Ground truth about a Redis or memcached server: where in its memory the values of its hot keys
//! lie.
//!
//! A server holds copies of values in many places: query buffers, replies, freed memory. The header
//! identifies the value itself: Redis keeps a string as an SDS, with length and type directly
//! before its bytes (redis, src/sds.h); memcached keeps it in an item, after its key and before a
//! line end (memcached, memcached.h, struct _stritem).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tierscope_core::{Error, ErrorKind, Range, RangeSet, Result, SpaceId};

use crate::client::{self, Dialect};
use crate::proc_mem::ProcMem;
use crate::value::{self, MAGIC, MARK, Mark};

/// Bytes read at once in the search for marks.
const CHUNK: usize = 4 << 20;

/// Address ranges of hot and cold values of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Pid of the server.
    pub pid: u32,
    /// Number of keys searched for.
    pub keys: u32,
    /// Bytes of one value.
    pub value_bytes: usize,
    /// Start and end of the hot values, ascending, adjacent ones merged.
    pub hot: Vec<[u64; 2]>,
    /// Checksum of the bytes in `hot`.
    pub hot_bytes: u64,
    /// Start and end of the values of all other keys, ascending, adjacent ones merged.
    pub cold: Vec<[u64; 2]>,
    /// Checksum of the bytes in `cold`.
    pub cold_bytes: u64,
    /// Content of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub thp: String,
    /// KiB of the server in transparent huge pages.
    pub thp_kib: u64,
}

/// Finds the values of `keys` keys of a Redis server.
///
/// # Errors
/// [`ErrorKind::Data`] if a key's value is missing, or occurs more than once.
pub fn find_values(
    mem: &ProcMem,
    pid: u32,
    keys: u32,
    value_bytes: usize,
    thp: String,
) -> Result<Truth> {
    let search = Search::run(mem, (Dialect::Redis, keys, value_bytes))?;
    let ranges = |hot| search.ranges(hot);
    let (hot, cold) = (ranges(true), ranges(false));
    Ok(Truth {
        pid,
        keys,
        value_bytes,
        hot: pairs(&hot),
        hot_bytes: hot.bytes(),
        cold: pairs(&cold),
        cold_bytes: cold.bytes(),
        thp,
        thp_kib: mem.huge_kib()?,
    })
}

/// Address of the value of each of `keys` keys in a server, by key. memcached splits its largest
/// items, above half a MiB, into several chunks: those are not found.
///
/// # Errors
/// As [`find_values`].
pub fn value_addresses(
    mem: &ProcMem,
    server: Dialect,
    keys: u32,
    value_bytes: usize,
) -> Result<Vec<(u32, u64)>> {
    let search = Search::run(mem, (server, keys, value_bytes))?;
    let mut places: Vec<(u32, u64)> =
        search.found.iter().map(|(key, (at, _))| (*key, *at)).collect();
    places.sort_unstable();
    Ok(places)
}

fn pairs(set: &RangeSet) -> Vec<[u64; 2]> {
    set.as_slice().iter().map(|range| [range.start, range.end]).collect()
}

/// Bytes of an SDS header including its type byte: sdshdr64, 32, 16, 8.
const SDS_HEADERS: [usize; 4] = [17, 9, 5, 3];

/// Bytes between an item's key and its value: the key's terminating zero, and flags if there are
/// any.
const ITEM_GAPS: [usize; 2] = [1, 5];

struct Search<'a> {
    mem: &'a ProcMem,
    server: Dialect,
    value_bytes: usize,
    found: HashMap<u32, (u64, bool)>,
    twice: u32,
}

impl<'a> Search<'a> {
    /// Finds all values of a server.
    fn run(mem: &'a ProcMem, (server, keys, value_bytes): (Dialect, u32, usize)) -> Result<Self> {
        let mut search = Search { mem, server, value_bytes, found: HashMap::new(), twice: 0 };
        for (start, end) in mem.data_mappings()? {
            search.mapping(start, end);
        }
        search.check(keys)?;
        Ok(search)
    }

    /// Searches `start..end` for values.
    fn mapping(&mut self, start: u64, end: u64) {
        let mut chunk = vec![0; CHUNK];
        let mut at = start;
        while at < end {
            let wanted = CHUNK.min((end - at) as usize);
            let there = self.mem.read(at, &mut chunk[..wanted]);
            if there < MARK {
                return;
            }
            let past = self.chunk(at, &chunk[..there]);
            // A mark may straddle two chunks.
            at += past.max(there - MARK + 1) as u64;
        }
    }

    /// Finds values that begin in `chunk`, which lies at `base`; returns the offset up to which the
    /// search is complete.
    fn chunk(&mut self, base: u64, chunk: &[u8]) -> usize {
        let mut at = 0;
        while let Some(next) = chunk.get(at..).and_then(|rest| value::find(rest, MAGIC)) {
            at += next;
            let begins = Mark::read(&chunk[at..]).filter(|mark| mark.offset == 0);
            let whole = begins.is_some_and(|mark| self.take(base + at as u64, mark));
            at += if whole { self.value_bytes } else { MAGIC.len() };
        }
        at
    }

    /// Records the value at `at` if it is whole and has the header of a stored value.
    fn take(&mut self, at: u64, mark: Mark) -> bool {
        let mut bytes = vec![0; self.value_bytes];
        let there = self.mem.read(at, &mut bytes);
        let whole = there == bytes.len() && value::is_whole(&bytes, mark.key, mark.hot);
        let held = match self.server {
            Dialect::Redis => self.is_string(at),
            Dialect::Memcached => self.is_item(at, mark.key),
        };
        if !whole || !held {
            return false;
        }
        self.twice += u32::from(self.found.insert(mark.key, (at, mark.hot)).is_some());
        true
    }

    /// Whether an SDS header with the length of our values precedes `at`. A header may be at the
    /// start of a mapping: then fewer bytes than those of the longest header can be read before the
    /// string.
    fn is_string(&self, at: u64) -> bool {
        SDS_HEADERS.iter().any(|bytes| {
            let mut before = [0; 17];
            let header = &mut before[17 - bytes..];
            self.mem.read(at.saturating_sub(*bytes as u64), header) == *bytes
                && sds_length(&before) == Some(self.value_bytes as u64)
        })
    }

    /// Whether the value at `at` is in an item: its key before it, a line end after it.
    fn is_item(&self, at: u64, key: u32) -> bool {
        let key = client::key_name(key);
        let mut end = [0; 2];
        let ends = self.mem.read(at + self.value_bytes as u64, &mut end) == 2 && &end == b"\r\n";
        ends && ITEM_GAPS.iter().any(|gap| {
            let mut before = vec![0; key.len()];
            let from = at.saturating_sub((key.len() + gap) as u64);
            self.mem.read(from, &mut before) == before.len() && before == key
        })
    }

    fn check(&self, keys: u32) -> Result<()> {
        let found = self.found.len() as u32;
        if found == keys && self.twice == 0 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Data, "the truth is incomplete")
            .cause(format!("found {found} of {keys} values, {} of them twice", self.twice))
            .remedy(
                "fill the server once, with the same keys and value size, and stop the load first",
            ))
    }

    fn ranges(&self, hot: bool) -> RangeSet {
        let values = self.found.values().filter(|(_, is_hot)| *is_hot == hot);
        values.map(|(at, _)| Range::new(SpaceId(0), *at, at + self.value_bytes as u64)).collect()
    }
}

/// The length in the SDS header that ends `before`, the bytes before a string: length, allocation,
/// then a type byte, whose value gives the width of both, and whose upper bits are zero.
fn sds_length(before: &[u8; 17]) -> Option<u64> {
    let width = match before[16] {
        1 => 1,
        2 => 2,
        3 => 4,
        4 => 8,
        _ => return None,
    };
    let begin = 16 - 2 * width;
    let mut length = [0; 8];
    length[..width].copy_from_slice(&before[begin..begin + width]);
    Some(u64::from_le_bytes(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_header_holds_the_length_in_its_own_width() {
        let header = |tail: &[u8]| {
            let mut before = [0xEE; 17];
            before[17 - tail.len()..].copy_from_slice(tail);
            before
        };
        assert_eq!(sds_length(&header(&[200, 201, 1])), Some(200));
        assert_eq!(sds_length(&header(&[0x10, 0x27, 0x10, 0x27, 2])), Some(10_000));
        assert_eq!(sds_length(&header(&[0, 0, 1, 0, 9, 0, 1, 0, 3])), Some(65_536));
        assert_eq!(sds_length(&header(b"$4096\r\n")), None);
    }

    /// A value in our own memory, preceded by an SDS header of its length or by a reply's header.
    fn planted(key: u32, hot: bool, bytes: usize, header: bool) -> Vec<u8> {
        let mut data = vec![0; 17 + bytes];
        value::fill(&mut data[17..], key, hot);
        let tail = if header { [bytes as u8, (bytes >> 8) as u8, 0, 0, 2] } else { *b"600\r\n" };
        data[12..17].copy_from_slice(&tail);
        data
    }

    fn search(mem: &ProcMem, server: Dialect, value_bytes: usize) -> Search<'_> {
        Search { mem, server, value_bytes, found: HashMap::new(), twice: 0 }
    }

    // A value in an item, one as received from the network, and one in another key's item.
    #[test]
    fn an_item_has_its_key_before_it() {
        let bytes = 600;
        let planted = |head: &[u8], key: u32| {
            let mut data = [head, &vec![0; bytes], b"\r\n"].concat();
            value::fill(&mut data[head.len()..head.len() + bytes], key, true);
            data
        };
        let datas = [
            planted(b"key:0000000000\0", 0),
            planted(b"key:0000000002\0\x01\x02\x03\x04", 2),
            planted(b"set key:0000000001 0 0 600\r\n", 1),
            planted(b"key:0000000009\0", 3),
        ];
        let mem = ProcMem::open(Path::new("/proc"), std::process::id()).unwrap();
        let mut search = search(&mem, Dialect::Memcached, bytes);
        for data in &datas {
            search.mapping(data.as_ptr() as u64, data.as_ptr() as u64 + data.len() as u64);
        }
        let mut found: Vec<(u32, u64)> =
            search.found.iter().map(|(key, (at, _))| (*key, *at)).collect();
        found.sort_unstable();
        let at = |data: &[u8], head: usize| data[head..].as_ptr() as u64;
        assert_eq!(found, [(0, at(&datas[0], 15)), (2, at(&datas[1], 19))]);
    }

    #[test]
    fn values_are_found_and_their_copies_are_not() {
        let bytes = 600;
        let (hot, cold, copy) = (
            planted(0, true, bytes, true),
            planted(1, false, bytes, true),
            planted(0, true, bytes, false),
        );
        let mem = ProcMem::open(Path::new("/proc"), std::process::id()).unwrap();
        let mut search = search(&mem, Dialect::Redis, bytes);
        for data in [&hot, &cold, &copy] {
            search.mapping(data.as_ptr() as u64, data.as_ptr() as u64 + data.len() as u64);
        }
        search.check(2).unwrap();
        assert_eq!(search.found[&0], (hot[17..].as_ptr() as u64, true));
        assert_eq!((search.ranges(true).bytes(), search.ranges(false).bytes()), (600, 600));
        assert!(search.check(3).unwrap_err().to_string().contains("found 2 of 3"));
    }
}
