//! Body of the fuzz target `elf`; crates/elf replays the corpus with it.

use tierscope_elf::Elf;

/// Parses `data` as an ELF file and returns its numbers of functions and symbols.
pub(crate) fn read(data: &[u8]) -> Option<(usize, usize)> {
    let elf = Elf::read(data)?;
    assert!(elf.functions.is_sorted());
    // Each function takes at least 8 bytes of the file.
    assert!(elf.functions.len() <= data.len() / 8 + elf.symbols.len());
    for segment in &elf.segments {
        let _ = elf.bias(0x7000_0000, segment.offset);
    }
    Some((elf.functions.len(), elf.symbols.len()))
}
