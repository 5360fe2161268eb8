//! The guest's RAM: from an address of this process to the physical one and the node, and back.
//!
//! The plugin maps the files behind the guest's nodes itself, so that page tables can be read wherever they lie;
//! QEMU's own mapping of the same files is found in /proc/self/maps, so that the host address of an access tells
//! the physical one. (The official function counts the base twice beyond the first node in QEMU 7.2, and takes
//! longer.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Deserialize;
use tierscope_wire::guest_ram;

/// A file that holds a node's memory: its first byte's offset in the machine's RAM follows from those before it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Absolute path.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
}

/// A part of RAM that is contiguous in every respect.
#[derive(Debug)]
struct Piece {
    /// Where QEMU has it.
    host: AtomicU64,
    /// Where we have it.
    ours: u64,
    ram: guest_ram::Piece,
}

impl Piece {
    fn node(&self) -> u8 {
        self.ram.node as u8
    }
}

/// Where nothing is: no difference to it is smaller than a piece.
const UNKNOWN: u64 = 1 << 63;

/// RAM of the machine.
#[derive(Debug, Default)]
pub struct Memory {
    pieces: Vec<Piece>,
}

/// Where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Physical address.
    pub physical: u64,
    /// The node that holds it.
    pub node: u8,
}

impl Memory {
    /// The layout of a q35 machine whose nodes lie in `files`, mapped by us at `ours`.
    #[must_use]
    pub fn of_q35(files: &[NodeFile], ours: &[u64]) -> Self {
        let bytes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
        let mapped = |piece: guest_ram::Piece| Piece {
            host: AtomicU64::new(UNKNOWN),
            ours: ours[piece.node] + piece.offset,
            ram: piece,
        };
        Self { pieces: guest_ram::q35(&bytes).into_iter().map(mapped).collect() }
    }

    /// Learns from /proc/self/maps where QEMU has the files; our own mappings of them are left out.
    ///
    /// # Errors
    /// A file that is mapped nowhere.
    pub fn find_host(&self, files: &[NodeFile], maps: &str) -> Result<(), String> {
        for (node, file) in files.iter().enumerate() {
            let base = self.pieces.iter().filter(|piece| piece.ram.node == node);
            let ours = base.map(|piece| piece.ours).min().unwrap_or(0);
            let host = mapping_of(maps, &file.path, ours)
                .ok_or_else(|| format!("{} is not mapped by QEMU with share=on", file.path))?;
            for piece in self.pieces.iter().filter(|piece| piece.ram.node == node) {
                piece.host.store(host + (piece.ours - ours), Relaxed);
            }
        }
        Ok(())
    }

    /// Where the byte at a host address of QEMU's is; `None` if it is no RAM of the nodes.
    #[inline(always)]
    #[must_use]
    pub fn at_host(&self, host: u64) -> Option<At> {
        self.pieces.iter().find_map(|piece| {
            let offset = host.wrapping_sub(piece.host.load(Relaxed));
            (offset < piece.ram.bytes)
                .then(|| At { physical: piece.ram.physical + offset, node: piece.node() })
        })
    }

    /// The node of a physical address.
    #[must_use]
    pub fn node_of(&self, physical: u64) -> Option<u8> {
        Some(self.place_of(physical)?.0.node())
    }

    #[inline(always)]
    fn place_of(&self, physical: u64) -> Option<(&Piece, u64)> {
        self.pieces.iter().find_map(|piece| Some((piece, piece.ram.offset_of(physical)?)))
    }

    /// The eight bytes at a physical address, a multiple of 8; 0, which is no page-table entry, where no RAM is.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, physical: u64) -> u64 {
        let Some((piece, offset)) = self.place_of(physical & !7) else { return 0 };
        let address = piece.ours + offset;
        // SAFETY: the file is mapped there, shared and for good; the guest writes to it meanwhile, hence an atomic.
        unsafe { &*(address as *const AtomicU64) }.load(Relaxed)
    }

    /// One past the last physical byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.ram.physical + piece.ram.bytes).max().unwrap_or(0)
    }
}

/// Where a file is mapped from its first byte on, apart from `ours`.
#[must_use]
pub fn mapping_of(maps: &str, path: &str, ours: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, _, offset) = (words.next()?, words.next()?, words.next()?);
        let start = u64::from_str_radix(range.split_once('-')?.0, 16).ok()?;
        let first = u64::from_str_radix(offset, 16).ok()? == 0;
        (line.ends_with(path) && first && start != ours).then_some(start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn files(bytes: &[u64]) -> Vec<NodeFile> {
        let file =
            |(n, bytes): (usize, &u64)| NodeFile { path: format!("/run/ram-{n}"), bytes: *bytes };
        bytes.iter().enumerate().map(file).collect()
    }

    const MAPS: &str = "\
        7f0000000000-7f0040000000 rw-s 00000000 00:19 7 /run/ram-0\n\
        7f1000000000-7f1040000000 rw-s 00000000 00:19 8 /run/ram-1\n\
        7e0000000000-7e0040000000 rw-s 00000000 00:19 7 /run/ram-0\n";

    #[test]
    fn a_small_machine_has_no_hole() {
        let files = files(&[GIB, GIB]);
        let memory = Memory::of_q35(&files, &[0x7f00_0000_0000, 0x100]);
        memory.find_host(&files, MAPS).unwrap();
        let at = memory.at_host(0x7e00_0000_1234).unwrap();
        assert_eq!((at.physical, at.node), (0x1234, 0), "our own mapping is not QEMU's");
        let at = memory.at_host(0x7f10_0000_0040).unwrap();
        assert_eq!((at.physical, at.node), (GIB + 0x40, 1));
        assert_eq!(memory.at_host(0x7f10_0000_0000 + GIB), None);
        assert_eq!(
            memory.at_host(0x7e00_0000_0000 - 1),
            None,
            "just before a node that begins at 0"
        );
        assert_eq!(memory.at_host(0x7f0f_ffff_ffff), None, "just before one that does not");
        assert_eq!(
            (memory.node_of(GIB - 1), memory.node_of(GIB), memory.end()),
            (Some(0), Some(1), 2 * GIB)
        );
    }

    #[test]
    fn beyond_2816_mib_ram_goes_on_above_4_gib() {
        // 3 GiB: 2 GiB below the hole, so that node 1 lies on both sides of it
        let files = files(&[GIB, 2 * GIB]);
        let memory = Memory::of_q35(&files, &[1 << 40, 2 << 40]);
        memory.find_host(&files, MAPS).unwrap();
        assert_eq!(memory.node_of(2 * GIB - 1), Some(1));
        assert_eq!(memory.node_of(2 * GIB), None, "the hole");
        assert_eq!(memory.node_of(4 * GIB), Some(1));
        let at = memory.at_host(0x7f10_0000_0000 + GIB + 5).unwrap();
        assert_eq!(at.physical, 4 * GIB + 5);
        assert_eq!(memory.end(), 5 * GIB);
    }

    #[test]
    fn a_file_that_qemu_does_not_map_is_named() {
        let files = files(&[GIB]);
        let memory = Memory::of_q35(&files, &[0x7f00_0000_0000]);
        let error = memory.find_host(&files, "").unwrap_err();
        assert!(error.contains("/run/ram-0") && error.contains("share=on"), "{error}");
    }

    #[test]
    fn words_are_read_where_we_mapped_them() {
        let words = [3u64, 5, 7];
        let files = [NodeFile { path: "/x".into(), bytes: 24 }];
        let memory = Memory::of_q35(&files, &[words.as_ptr() as u64]);
        assert_eq!((memory.word(8), memory.word(20), memory.word(24)), (5, 7, 0));
    }
}
