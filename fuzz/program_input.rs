//! Body of the fuzz target `program`; crates/tlb replays the corpus with it.

use tierscope_elf::Elf;
use tierscope_tlb::record::MappingLog;

/// Parses `data` as an ELF file, or else as a log of mappings; returns its number of symbols or
/// events.
pub(crate) fn read(data: &[u8]) -> usize {
    if let Some(elf) = Elf::read(data) {
        let _ = elf.bias(0x40_0000, 0x1000);
        assert!(elf.symbols.iter().all(|symbol| symbol.bytes > 0 && !symbol.name.is_empty()));
        return elf.symbols.len();
    }
    let mut log = MappingLog::new(1);
    let text = String::from_utf8_lossy(data);
    text.lines().map(|line| log.line(line, &mut |_| Some("/x".into())).len()).sum()
}
