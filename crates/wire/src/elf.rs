//! Reads 64-bit ELF files: names of functions and objects, if the file has symbols (System V ABI,
//! gABI chapters 4 and 5), and first addresses of functions, which stripped files contain too, in
//! the table for unwinding the stack (Linux Standard Base Core 5.0, section 10.6.2).
//!
//! Both the plugin, which distinguishes functions when it translates code, and the recorder, which
//! names them, read files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

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
/// Upper bound on symbols: a file that claims more is damaged.
const MOST_SYMBOLS: usize = 1 << 22;
const LOAD: u64 = 1;
/// `PT_GNU_EH_FRAME`: type of the program header of the unwind table.
const UNWIND: u64 = 0x6474_e550;
/// Version 1; pointers relative to their own position, a count of four bytes, a table of pairs of
/// four bytes relative to the section: the encodings that linkers write (`DW_EH_PE_pcrel | sdata4`,
/// `udata4`, `datarel | sdata4`).
const UNWIND_KIND: u64 = 0x3b03_1b01;
const SYMTAB: u64 = 2;
const DYNSYM: u64 = 11;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;

impl Elf {
    /// Reads a file by its path; `None` if it is not such an ELF file, or cannot be read. Other
    /// mapped files are not read at all: devices, of which `/dev/zero` never ends, and data files
    /// that may be larger than memory.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let mut bytes = vec![0; MAGIC.len()];
        file.read_exact(&mut bytes).ok()?;
        if bytes != MAGIC {
            return None;
        }
        file.read_to_end(&mut bytes).ok()?;
        Self::read(&bytes)
    }

    /// Parses a file; `None` if it is not a little-endian 64-bit ELF file, or its headers are
    /// damaged.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(&MAGIC) {
            return None;
        }
        let (programs, count) = (number(bytes, 32, 8)?, number(bytes, 56, 2)?);
        let mut elf = Self::default();
        for at in 0..count {
            let header = programs.checked_add(at * 56)?;
            let field = |offset| number(bytes, header.checked_add(offset)?, 8);
            let (offset, address, length) = (field(8)?, field(16)?, field(32)?);
            match number(bytes, header, 4)? {
                LOAD => elf.segments.push(Segment { offset, address, bytes: length }),
                UNWIND => elf.functions = unwound(bytes, offset, address).unwrap_or_default(),
                _ => {}
            }
        }
        // A file without section headers has no symbols.
        elf.symbols = symbols(bytes, SYMTAB).filter(|all| !all.is_empty()).unwrap_or_default();
        if elf.symbols.is_empty() {
            elf.symbols = symbols(bytes, DYNSYM).unwrap_or_default();
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

fn number(bytes: &[u8], at: u64, length: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let field = bytes.get(at..at.checked_add(length)?)?;
    let mut all = [0; 8];
    all[..length].copy_from_slice(field);
    Some(u64::from_le_bytes(all))
}

/// First addresses of the functions with unwind information: reads the table at `offset` of the
/// file, which is mapped at `section`.
fn unwound(bytes: &[u8], offset: u64, section: u64) -> Option<Vec<u64>> {
    if number(bytes, offset, 4)? != UNWIND_KIND {
        return None;
    }
    let count = number(bytes, offset.checked_add(8)?, 4)?.min(MOST_SYMBOLS as u64);
    let first = |at: u64| {
        let relative = number(bytes, offset.checked_add(12 + at * 8)?, 4)? as u32 as i32;
        Some(section.wrapping_add_signed(relative.into()))
    };
    (0..count).map(first).collect()
}

/// The symbols of the first section of type `kind`.
fn symbols(bytes: &[u8], kind: u64) -> Option<Vec<Symbol>> {
    let (sections, count) = (number(bytes, 40, 8)?, number(bytes, 60, 2)?);
    let header = |at: u64| sections.checked_add(at.checked_mul(64)?);
    let of_kind =
        |at: &u64| header(*at).and_then(|h| number(bytes, h.checked_add(4)?, 4)) == Some(kind);
    let table = header((0..count).find(of_kind)?)?;
    let field =
        |header: u64, offset: u64, length| number(bytes, header.checked_add(offset)?, length);
    let (offset, size) = (field(table, 24, 8)?, field(table, 32, 8)?);
    let names = header(field(table, 40, 4)?)?;
    let (text, length) = (field(names, 24, 8)?, field(names, 32, 8)?);
    let mut all = Vec::new();
    for at in (0..(size / 24).min(MOST_SYMBOLS as u64)).map(|at| at * 24) {
        let symbol = offset.checked_add(at)?;
        let info = field(symbol, 4, 1)? as u8;
        let (address, bytes_of) = (field(symbol, 8, 8)?, field(symbol, 16, 8)?);
        let section = field(symbol, 6, 2)?;
        if !matches!(info & 15, OBJECT | FUNCTION) || bytes_of == 0 || section == 0 {
            continue;
        }
        let name = field(symbol, 0, 4)?;
        if let Some(name) = text_at(bytes, text.checked_add(name)?, text.checked_add(length)?) {
            let function = info & 15 == FUNCTION;
            all.push(Symbol { address, bytes: bytes_of, function, name });
        }
    }
    Some(all)
}

fn text_at(bytes: &[u8], start: u64, end: u64) -> Option<String> {
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    let text = bytes.get(range)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&text[..end]).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
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
        let fields: [&[(usize, u64, usize)]; 8] = [
            &[(32, programs, 8), (40, sections, 8), (56, 2, 2), (60, 3, 2)],
            // A segment at 0x2010 in memory, from offset 0x1010 of the file.
            &[(64, 1, 4), (72, 0x1010, 8), (80, 0x2010, 8), (96, 0x100, 8)],
            &[(120, UNWIND, 4), (128, unwind, 8), (136, 0x3000, 8), (152, 28, 8)],
            // Section 1: symbols, whose names are in section 2.
            &[(244, 2, 4), (264, symbols, 8), (272, 48, 8), (280, 2, 4)],
            &[(328, names, 8), (336, 16, 8)],
            &[(368, 1, 4), (372, 2, 1), (374, 1, 2), (376, 0x2020, 8), (384, 9, 8)],
            &[(392, 1, 4), (396, 2, 1), (398, 1, 2)],
            // Functions at 0xfe0 and 0xfc0 below 0x3000.
            &[(432, UNWIND_KIND, 4), (440, 2, 4), (444, 0xffff_f020, 4), (452, 0xffff_f040, 4)],
        ];
        fields.into_iter().flatten().for_each(|(at, value, length)| put(*at, *value, *length));
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[417..422].copy_from_slice(b"main\0");
        bytes
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
