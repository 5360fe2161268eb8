//! What the fuzz target `elf` does with its input; crates/wire replays the corpus with it.

use tierscope_wire::elf::Elf;

/// Reads `data` as an ELF file; gives how many functions and symbols it has.
pub(crate) fn read(data: &[u8]) -> Option<(usize, usize)> {
    let elf = Elf::read(data)?;
    assert!(elf.functions.is_sorted());
    // Eight bytes of the file at least for each.
    assert!(elf.functions.len() <= data.len() / 8 + elf.symbols.len());
    for segment in &elf.segments {
        let _ = elf.bias(0x7000_0000, segment.offset);
    }
    Some((elf.functions.len(), elf.symbols.len()))
}
