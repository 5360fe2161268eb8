//! Names of code addresses: function plus offset, or file plus offset where the file has no symbol.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use tierscope_elf::Elf;

/// A mapped code segment of a file.
#[derive(Debug)]
struct Piece {
    end: u64,
    /// Difference between addresses in memory and addresses in the file.
    bias: u64,
    name: Arc<str>,
}

/// End of a function, and its name if it has one.
type Function = (u64, Option<Arc<str>>);

/// Code of a process: its mapped files, and their functions.
#[derive(Debug, Default)]
pub(super) struct Places {
    pieces: BTreeMap<u64, Piece>,
    functions: BTreeMap<u64, Function>,
    sites: HashMap<u64, Arc<str>>,
    met: BTreeSet<u64>,
}

impl Places {
    /// Adds a mapped file; `first` if no part of it was mapped at this bias before.
    pub(super) fn add(
        &mut self,
        path: &str,
        start: u64,
        bytes: u64,
        bias: u64,
        elf: &Elf,
        first: bool,
    ) {
        let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        let piece = Piece { end: start.saturating_add(bytes), bias, name: name.as_ref().into() };
        self.pieces.insert(start, piece);
        self.sites.clear();
        if !first {
            return;
        }
        let ends = elf.functions.iter().skip(1).copied().chain([u64::MAX]);
        for (function, end) in elf.functions.iter().zip(ends) {
            // Without a symbol, the size of the last function is unknown: it is taken as one byte.
            let end = if end == u64::MAX { function.saturating_add(1) } else { end };
            self.functions.insert(function.wrapping_add(bias), (end.wrapping_add(bias), None));
        }
        for symbol in elf.symbols.iter().filter(|symbol| symbol.function) {
            let start = symbol.address.wrapping_add(bias);
            let end = start.saturating_add(symbol.bytes);
            self.functions.insert(start, (end, Some(symbol.name.as_str().into())));
        }
    }

    /// An address as file plus offset.
    fn in_file(&self, address: u64) -> Arc<str> {
        match self.pieces.range(..=address).next_back().filter(|(_, piece)| address < piece.end) {
            Some((_, piece)) => {
                format!("{}+{:#x}", piece.name, address.wrapping_sub(piece.bias)).into()
            }
            None => format!("{address:#x}").into(),
        }
    }

    /// Name of an allocation's call site, by the return address of the call.
    pub(super) fn site(&mut self, returns_to: u64) -> Arc<str> {
        if let Some(name) = self.sites.get(&returns_to) {
            return Arc::clone(name);
        }
        // If the call is the last instruction of its function, the return address is outside of it.
        let call = returns_to.wrapping_sub(1);
        let function = self.functions.range(..=call).next_back();
        let name = match function {
            Some((start, (end, Some(name)))) if call < *end => {
                format!("{name}+{:#x}", returns_to - start).into()
            }
            _ => self.in_file(returns_to),
        };
        self.sites.insert(returns_to, Arc::clone(&name));
        name
    }

    /// Size and name of a function on its first call; `None` on later ones.
    pub(super) fn met(&mut self, function: u64) -> Option<(u64, Arc<str>)> {
        if self.met.contains(&function) {
            return None;
        }
        // Not marked as seen yet: the file's mapping may arrive later.
        let (end, name) = self.functions.get(&function)?;
        let name = name.clone().unwrap_or_else(|| self.in_file(function));
        self.met.insert(function);
        Some((end.saturating_sub(function), name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_elf::Symbol;

    // A file mapped with address 0x1000 at 0x7000: an unnamed function, and one named main.
    #[test]
    fn places_are_named_by_function_or_by_file() {
        let main = Symbol { address: 0x1040, bytes: 16, function: true, name: "main".into() };
        let functions = vec![0x1000, 0x1040];
        let elf = Elf { symbols: vec![main], functions, ..Elf::default() };
        let mut places = Places::default();
        places.add("/usr/bin/sort", 0x7000, 0x1000, 0x6000, &elf, true);
        assert_eq!(&*places.site(0x7045), "main+0x5");
        assert_eq!(&*places.site(0x7050), "main+0x10", "its last call");
        assert_eq!(&*places.site(0x7051), "sort+0x1051");
        assert_eq!(&*places.site(0x9000), "0x9000");
        assert_eq!(places.met(0x7000), Some((0x40, "sort+0x1000".into())));
        assert_eq!((places.met(0x7000), places.met(0x7001)), (None, None));
        assert_eq!(places.met(0x7040), Some((16, "main".into())));
    }
}
