//! The guest's RAM: translates host addresses to physical addresses and nodes, and reads physical
//! memory.
//!
//! The plugin itself maps the files of the guest's nodes, to read page tables anywhere in RAM.
//! QEMU's own mapping of the same files is found in /proc/self/maps, so that the host address of an
//! access yields the physical one. (QEMU's official function is slower, and in QEMU 7.2 it counts
//! the base twice beyond the first node.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Deserialize;
use tierscope_wire::guest_ram;

/// A file with a node's memory. The nodes' memories are contiguous in the machine's RAM, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Absolute path of the file.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A part of RAM that is contiguous in physical memory, in the file and in both mappings.
#[derive(Debug)]
struct Piece {
    /// Address in QEMU's mapping.
    host: AtomicU64,
    /// Address in the plugin's mapping.
    ours: u64,
    ram: guest_ram::RamPart,
}

impl Piece {
    fn node(&self) -> u8 {
        self.ram.node as u8
    }
}

/// Address of an unknown mapping: further from any other address than the size of a piece.
const UNKNOWN: u64 = 1 << 63;

/// RAM of the machine.
#[derive(Debug, Default)]
pub struct Memory {
    pieces: Vec<Piece>,
}

/// Location of an access in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Physical address of the access.
    pub physical: u64,
    /// Node of that address.
    pub node: u8,
}

impl Memory {
    /// The layout of a q35 machine whose nodes are in `files`, mapped by the plugin at `ours`.
    #[must_use]
    pub fn of_q35(files: &[NodeFile], ours: &[u64]) -> Self {
        let bytes: Vec<u64> = files.iter().map(|file| file.bytes).collect();
        let mapped = |piece: guest_ram::RamPart| Piece {
            host: AtomicU64::new(UNKNOWN),
            ours: ours[piece.node] + piece.offset,
            ram: piece,
        };
        Self { pieces: guest_ram::q35(&bytes).into_iter().map(mapped).collect() }
    }

    /// Finds QEMU's mappings of the files in /proc/self/maps, ignoring the plugin's own.
    ///
    /// # Errors
    /// A file that QEMU has not mapped.
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

    /// Location of the byte at a host address of QEMU; `None` outside of the nodes' RAM.
    #[inline(always)]
    #[must_use]
    pub fn at_host(&self, host: u64) -> Option<At> {
        self.pieces.iter().find_map(|piece| {
            let offset = host.wrapping_sub(piece.host.load(Relaxed));
            (offset < piece.ram.bytes)
                .then(|| At { physical: piece.ram.physical + offset, node: piece.node() })
        })
    }

    /// The node of a physical address; `None` outside of RAM.
    #[must_use]
    pub fn node_of(&self, physical: u64) -> Option<u8> {
        Some(self.place_of(physical)?.0.node())
    }

    #[inline(always)]
    fn place_of(&self, physical: u64) -> Option<(&Piece, u64)> {
        self.pieces.iter().find_map(|piece| Some((piece, piece.ram.offset_of(physical)?)))
    }

    /// The 64-bit word at a physical address (a multiple of 8); 0, an absent page-table entry,
    /// outside of RAM.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, physical: u64) -> u64 {
        let Some((piece, offset)) = self.place_of(physical & !7) else { return 0 };
        let address = piece.ours + offset;
        // SAFETY: the file is permanently mapped there, shared; atomic because the guest writes to
        // it concurrently.
        unsafe { &*(address as *const AtomicU64) }.load(Relaxed)
    }

    /// End of physical memory (exclusive).
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.ram.physical + piece.ram.bytes).max().unwrap_or(0)
    }
}

/// Address at which the start of a file is mapped, other than `ours`.
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
        // 3 GiB of RAM, 2 GiB of it below the hole: node 1 is on both sides of the hole.
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
