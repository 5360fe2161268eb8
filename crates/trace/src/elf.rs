//! Names of functions and objects in a 64-bit ELF file, as far as it has any (System V ABI, gABI chapters 4 and 5).

/// A piece of the file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in memory, but for where the file as a whole is put.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: u64,
}

/// A function or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it is, but for where the file as a whole is put.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its name.
    pub name: String,
}

/// What was read of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// What is mapped.
    pub segments: Vec<Segment>,
    /// Functions and objects of known length, of its full table of symbols if it has one, else of that
    /// for dynamic linking.
    pub symbols: Vec<Symbol>,
}

/// No file has more: one that says so is damaged.
const MOST_SYMBOLS: usize = 1 << 22;
const LOAD: u64 = 1;
const SYMTAB: u64 = 2;
const DYNSYM: u64 = 11;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;

impl Elf {
    /// Reads a file; `None` if it is no little-endian 64-bit ELF, or damaged where it matters.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (programs, count) = (number(bytes, 32, 8)?, number(bytes, 56, 2)?);
        let mut elf = Self::default();
        for at in 0..count {
            let header = programs.checked_add(at * 56)?;
            if number(bytes, header, 4)? == LOAD {
                let field = |offset| number(bytes, header.checked_add(offset)?, 8);
                let (offset, address, bytes) = (field(8)?, field(16)?, field(32)?);
                elf.segments.push(Segment { offset, address, bytes });
            }
        }
        // A file without sections has no names.
        elf.symbols = symbols(bytes, SYMTAB).filter(|all| !all.is_empty()).unwrap_or_default();
        if elf.symbols.is_empty() {
            elf.symbols = symbols(bytes, DYNSYM).unwrap_or_default();
        }
        Some(elf)
    }

    /// What to add to addresses if the byte at `offset` of the file is mapped at `start`.
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

/// The symbols of the first section of that type.
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
            all.push(Symbol { address, bytes: bytes_of, name });
        }
    }
    Some(all)
}

fn text_at(bytes: &[u8], start: u64, end: u64) -> Option<String> {
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    let text = bytes.get(range)?;
    let end = memchr::memchr(0, text)?;
    let name = std::str::from_utf8(&text[..end]).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file of one segment and two symbols: a function, and one of no length.
    fn file() -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 + 3 * 64 + 48 + 16];
        let mut put = |at: usize, value: u64, length: usize| {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        };
        let (programs, sections, symbols, names) = (64, 120, 312, 360);
        let fields: [&[(usize, u64, usize)]; 6] = [
            &[(32, programs, 8), (40, sections, 8), (56, 1, 2), (60, 3, 2)],
            // A segment at 0x2010 in memory, from 0x1010 of the file on.
            &[(64, 1, 4), (72, 0x1010, 8), (80, 0x2010, 8), (96, 0x100, 8)],
            // Section 1: symbols, with the names of section 2.
            &[(188, 2, 4), (208, symbols, 8), (216, 48, 8), (224, 2, 4)],
            &[(272, names, 8), (280, 16, 8)],
            &[(312, 1, 4), (316, 2, 1), (318, 1, 2), (320, 0x2020, 8), (328, 9, 8)],
            &[(336, 1, 4), (340, 2, 1), (342, 1, 2)],
        ];
        fields.into_iter().flatten().for_each(|(at, value, length)| put(*at, *value, *length));
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[361..366].copy_from_slice(b"main\0");
        bytes
    }

    #[test]
    fn functions_have_names_and_places() {
        let elf = Elf::read(&file()).unwrap();
        assert_eq!(elf.segments, [Segment { offset: 0x1010, address: 0x2010, bytes: 0x100 }]);
        assert_eq!(elf.symbols, [Symbol { address: 0x2020, bytes: 9, name: "main".into() }]);
        // The page at 0x1000 of the file is mapped at 0x555000: address 0x2000 is there.
        assert_eq!(elf.bias(0x55_5000, 0x1000), Some(0x55_3000));
        assert_eq!(elf.bias(0x55_5000, 0x4000), None);
    }

    // This very program has symbols: cargo builds with line tables.
    #[test]
    fn a_real_file_is_read() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::read(&own).unwrap();
        assert!(elf.symbols.iter().any(|symbol| symbol.name == "main"));
        assert_eq!(Elf::read(b"\x7fELF\x01\x01"), None);
        assert_eq!(Elf::read(b"#!/bin/sh"), None);
    }

    proptest! {
        #[test]
        fn damage_does_no_harm(at in 0usize..376, byte: u8, cut in 0usize..376) {
            let mut bytes = file();
            bytes[at] = byte;
            let _ = Elf::read(&bytes);
            let _ = Elf::read(&bytes[..cut]);
        }
    }
}
