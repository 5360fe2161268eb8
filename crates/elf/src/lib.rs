//! Reads 64-bit ELF files: names of functions and objects, if the file has symbols, and first
//! addresses of functions, which stripped files contain too, in the table for unwinding the stack
//! (Linux Standard Base Core 5.0, section 10.6.2). The crate `object` reads headers and symbols.
//!
//! A crate of its own, because both the plugin of QEMU, which distinguishes functions when it
//! translates code, and the recorder of TLB misses, which names them, read files; the plugin links
//! few crates.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::elf::{
    PT_GNU_EH_FRAME, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_OBJECT,
};
use object::pod::{Pod, from_bytes, slice_from_all_bytes};

/// A loadable segment of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its offset in the file.
    pub offset: u64,
    /// Its address in memory, relative to the load address of the file.
    pub address: u64,
    /// Its length in the file.
    pub bytes: u64,
}

/// A symbol: a function or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its address, relative to the load address of the file.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether the symbol is a function.
    pub function: bool,
    /// Name of the symbol.
    pub name: String,
}

/// An ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Segments that are mapped.
    pub segments: Vec<Segment>,
    /// Functions and objects of known length, from the full symbol table if there is one, else from
    /// the table for dynamic linking.
    pub symbols: Vec<Symbol>,
    /// First addresses of functions, with or without names, ascending; relative to the load address
    /// of the file.
    pub functions: Vec<u64>,
}

/// First bytes of a little-endian 64-bit ELF file.
const MAGIC: [u8; 6] = *b"\x7fELF\x02\x01";
/// Version 1; pointers relative to their own position, a count of four bytes, a table of pairs of
/// four bytes relative to the section: the encodings that linkers write (`DW_EH_PE_pcrel | sdata4`,
/// `udata4`, `datarel | sdata4`).
const UNWIND_KIND: [u8; 4] = [1, 0x1b, 3, 0x3b];
/// The only byte order.
const ORDER: LittleEndian = LittleEndian;
/// Largest table that is read: a hostile file may claim any length, and be sparse. The symbols of
/// the largest browsers take 40 MB.
const MOST: u64 = 64 << 20;
/// Longest name that is kept.
const LONGEST_NAME: usize = 64 << 10;

/// Reads a part of a file: offset and length. `None` beyond its end, or beyond [`MOST`].
type Read<'r> = &'r dyn Fn(u64, u64) -> Option<Vec<u8>>;

impl Elf {
    /// Reads a file by its path; `None` if it is not such an ELF file, or cannot be read. Other
    /// mapped files are not read at all: devices, of which `/dev/zero` never ends, and data files
    /// that may be larger than memory.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        Self::parse(&|offset, bytes| {
            if bytes > MOST || offset.checked_add(bytes)? > length {
                return None;
            }
            let mut part = vec![0; bytes as usize];
            file.read_exact_at(&mut part, offset).ok()?;
            Some(part)
        })
    }

    /// Parses a file; `None` if it is not a little-endian 64-bit ELF file, or its headers are
    /// damaged. Of a file of n bytes, at most 10 n bytes of memory are used; symbols beyond 64 MiB
    /// of their table, and names longer than 64 KiB, are left out.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::parse(&|offset, length| {
            let rest = bytes.get(usize::try_from(offset).ok()?..)?;
            Some(
                rest.get(..usize::try_from(length).ok().filter(|of| *of as u64 <= MOST)?)?.to_vec(),
            )
        })
    }

    fn parse(read: Read<'_>) -> Option<Self> {
        let bytes = read(0, size_of::<FileHeader64<LittleEndian>>() as u64)?;
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let header: &FileHeader64<LittleEndian> = from_bytes(&bytes).ok()?.0;
        let mut elf = Self::default();
        let count = u64::from(header.e_phnum.get(ORDER));
        let programs: Vec<ProgramHeader64<_>> = table(read, header.e_phoff.get(ORDER), count)?;
        for program in programs {
            let (offset, address) = (program.p_offset.get(ORDER), program.p_vaddr.get(ORDER));
            match program.p_type.get(ORDER) {
                PT_LOAD => {
                    let bytes = program.p_filesz.get(ORDER);
                    elf.segments.push(Segment { offset, address, bytes });
                }
                PT_GNU_EH_FRAME => {
                    elf.functions = unwound(read, offset, address).unwrap_or_default();
                }
                _ => {}
            }
        }
        // A file without section headers has no symbols.
        let sections = sections(read, header).unwrap_or_default();
        elf.symbols = symbols(read, &sections, SHT_SYMTAB).unwrap_or_default();
        if elf.symbols.is_empty() {
            elf.symbols = symbols(read, &sections, SHT_DYNSYM).unwrap_or_default();
        }
        let named = elf.symbols.iter().filter(|symbol| symbol.function);
        elf.functions.extend(named.map(|symbol| symbol.address));
        elf.functions.sort_unstable();
        elf.functions.dedup();
        Some(elf)
    }

    /// Load bias: the number to add to addresses of the file if the byte at `offset` of the file is
    /// mapped at `start`.
    #[must_use]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            let first = segment.offset & !4095;
            (first..segment.offset.saturating_add(segment.bytes)).contains(&offset)
        };
        let segment = self.segments.iter().find(holds)?;
        let address = segment.address.wrapping_sub(segment.offset).wrapping_add(offset);
        Some(start.wrapping_sub(address))
    }
}

/// Reads a table of `count` entries at `offset`.
fn table<T: Pod>(read: Read<'_>, offset: u64, count: u64) -> Option<Vec<T>> {
    let bytes = read(offset, count.checked_mul(size_of::<T>() as u64)?)?;
    slice_from_all_bytes(&bytes).ok().map(<[T]>::to_vec)
}

/// The section headers; their number is in the first one if the file's header has no room for it.
fn sections(
    read: Read<'_>,
    header: &FileHeader64<LittleEndian>,
) -> Option<Vec<SectionHeader64<LittleEndian>>> {
    let (offset, count) = (header.e_shoff.get(ORDER), u64::from(header.e_shnum.get(ORDER)));
    if offset == 0 {
        return None;
    }
    let first: Vec<SectionHeader64<LittleEndian>> = table(read, offset, 1)?;
    let count = if count == 0 { first[0].sh_size.get(ORDER) } else { count };
    table(read, offset, count)
}

/// First addresses of the functions with unwind information: reads the table at `offset` of the
/// file, which is mapped at `section`.
fn unwound(read: Read<'_>, offset: u64, section: u64) -> Option<Vec<u64>> {
    const HEAD: u64 = 12;
    let head = read(offset, HEAD)?;
    let count = u32::from_le_bytes(*head.strip_prefix(&UNWIND_KIND)?.get(4..)?.first_chunk()?);
    let pairs = read(offset.checked_add(HEAD)?, u64::from(count) * 8)?;
    let first = |pair: &[u8]| {
        let relative = i32::from_le_bytes(*pair.first_chunk()?);
        Some(section.wrapping_add_signed(relative.into()))
    };
    pairs.chunks_exact(8).map(first).collect()
}

/// Functions and objects of known length and name, of the first section of that type. Their names
/// may overlap: they are kept up to four times the length of the table of names.
fn symbols(
    read: Read<'_>,
    sections: &[SectionHeader64<LittleEndian>],
    kind: object::elf::SectionType,
) -> Option<Vec<Symbol>> {
    let section = sections.iter().find(|section| section.sh_type.get(ORDER) == kind)?;
    let names = sections.get(section.sh_link.get(ORDER) as usize)?;
    let (offset, bytes) = (section.sh_offset.get(ORDER), section.sh_size.get(ORDER));
    let count = bytes / size_of::<Sym64<LittleEndian>>() as u64;
    let table: Vec<Sym64<LittleEndian>> = table(read, offset, count)?;
    let names = read(names.sh_offset.get(ORDER), names.sh_size.get(ORDER))?;
    let mut left = 4 * names.len();
    let mut known = Vec::new();
    for symbol in &table {
        let function = symbol.st_type() == STT_FUNC;
        let bytes = symbol.st_size.get(ORDER);
        let defined = symbol.st_shndx.get(ORDER) != SHN_UNDEF;
        if !(function || symbol.st_type() == STT_OBJECT) || bytes == 0 || !defined {
            continue;
        }
        let Some(name) = name_at(&names, symbol.st_name.get(ORDER)) else { continue };
        left = left.checked_sub(name.len())?;
        let (address, name) = (symbol.st_value.get(ORDER), name.to_owned());
        known.push(Symbol { address, bytes, function, name });
    }
    Some(known)
}

/// The name at an offset of the table of names; `None` if it is empty, too long or no text.
fn name_at(names: &[u8], at: u32) -> Option<&str> {
    let rest = names.get(at as usize..)?;
    let length = rest.iter().take(LONGEST_NAME + 1).position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..length]).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file of one segment and two symbols, a function and one without a length, followed by
    /// unwind information of two functions.
    fn file() -> Vec<u8> {
        let mut bytes = vec![0; 64 + 2 * 56 + 3 * 64 + 48 + 16 + 28];
        let mut put = |at: usize, value: u64, length: usize| {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        };
        let (programs, sections, symbols, names, unwind) = (64, 176, 368, 416, 432);
        let fields: [&[(usize, u64, usize)]; 9] = [
            &[(6, 1, 1), (32, programs, 8), (40, sections, 8), (54, 56, 2), (56, 2, 2)],
            &[(58, 64, 2), (60, 3, 2)],
            // A segment at 0x2010 in memory, from offset 0x1010 of the file.
            &[(64, 1, 4), (72, 0x1010, 8), (80, 0x2010, 8), (96, 0x100, 8)],
            &[(120, 0x6474_e550, 4), (128, unwind, 8), (136, 0x3000, 8), (152, 28, 8)],
            // Section 1: symbols, whose names are in section 2.
            &[(244, 2, 4), (264, symbols, 8), (272, 48, 8), (280, 2, 4)],
            &[(308, 3, 4), (328, names, 8), (336, 16, 8)],
            &[(368, 1, 4), (372, 2, 1), (374, 1, 2), (376, 0x2020, 8), (384, 9, 8)],
            &[(392, 1, 4), (396, 2, 1), (398, 1, 2)],
            // Functions at 0xfe0 and 0xfc0 below 0x3000.
            &[(432, 0x3b03_1b01, 4), (440, 2, 4), (444, 0xffff_f020, 4), (452, 0xffff_f040, 4)],
        ];
        fields.into_iter().flatten().for_each(|(at, value, length)| put(*at, *value, *length));
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[417..422].copy_from_slice(b"main\0");
        bytes
    }

    // A table of names of 64 bytes, in which 200 symbols name all but its first byte.
    #[test]
    fn names_that_overlap_take_no_more_than_four_times_their_table() {
        let sections = |symbols: u64| {
            let mut bytes = vec![0; 3 * 64 + 64];
            let mut put = |at: usize, value: u64, length: usize| {
                bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
            };
            let of_symbols = [(64 + 4, 2, 4), (64 + 24, 256, 8), (64 + 32, 24 * symbols, 8)];
            let of_names = [(64 + 40, 2, 4), (128 + 24, 192, 8), (128 + 32, 64, 8)];
            of_symbols
                .iter()
                .chain(&of_names)
                .for_each(|(at, value, size)| put(*at, *value, *size));
            bytes[193..255].fill(b'a');
            for _ in 0..symbols {
                let symbol = [&[1, 0, 0, 0, 2, 0, 1, 0][..], &9u64.to_le_bytes(), &[1], &[0; 7]];
                bytes.extend(symbol.concat());
            }
            bytes
        };
        let named = |count: u64| {
            let bytes = sections(count);
            let read = |at: u64, length: u64| {
                bytes.get(at as usize..(at + length) as usize).map(<[u8]>::to_vec)
            };
            let headers: Vec<SectionHeader64<LittleEndian>> = table(&read, 0, 3).unwrap();
            symbols(&read, &headers, SHT_SYMTAB).map(|symbols| symbols.len())
        };
        assert_eq!((named(4), named(5)), (Some(4), None));
    }

    #[test]
    fn functions_have_names_and_places() {
        let elf = Elf::read(&file()).unwrap();
        assert_eq!(elf.segments, [Segment { offset: 0x1010, address: 0x2010, bytes: 0x100 }]);
        let main = Symbol { address: 0x2020, bytes: 9, function: true, name: "main".into() };
        assert_eq!(elf.symbols, [main]);
        assert_eq!(elf.functions, [0x2020, 0x2040], "one of them twice");
        // The page at 0x1000 of the file is mapped at 0x555000, and its address is 0x2000.
        assert_eq!(elf.bias(0x55_5000, 0x1000), Some(0x55_3000));
        assert_eq!(elf.bias(0x55_5000, 0x4000), None);
    }

    // The test program itself has symbols: cargo builds with line tables.
    #[test]
    fn a_real_file_is_read() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::read(&own).unwrap();
        assert!(elf.symbols.iter().any(|symbol| symbol.name == "main"));
        assert_eq!(Elf::read(b"\x7fELF\x01\x01"), None);
        assert_eq!(Elf::read(b"#!/bin/sh"), None);
    }

    #[test]
    fn only_such_files_are_read_to_their_end() {
        let own = Elf::open(Path::new("/proc/self/exe")).expect("this program is one");
        assert!(!own.segments.is_empty() && !own.functions.is_empty());
        for other in ["/dev/zero", "/proc/self/maps", "/proc", "/nowhere"] {
            assert_eq!(Elf::open(Path::new(other)), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn damage_does_no_harm(at in 0usize..460, byte: u8, cut in 0usize..460) {
            let mut bytes = file();
            bytes[at] = byte;
            let _ = Elf::read(&bytes);
            let _ = Elf::read(&bytes[..cut]);
        }
    }
}
