//! The functions of a program's code, and those among them that allocate memory: looked up in the
//! mapped files when code is translated.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tierscope_elf::Elf;

use crate::allocations::SizeFrom;

/// Code without known functions is attributed to aligned blocks of this many bytes instead.
const PIECE: u64 = 1 << 16;

/// Whether mappings have changed since they were last read.
static CHANGED: AtomicBool = AtomicBool::new(true);

/// Marks the known mappings as outdated.
pub(crate) fn mappings_changed() {
    CHANGED.store(true, Ordering::Release);
}

/// Symbols of a file.
#[derive(Debug, Default)]
struct Known {
    elf: Elf,
    /// Functions that allocate memory, with the source of their size, in ascending order.
    allocators: Vec<(u64, SizeFrom)>,
}

/// A mapping of a file.
#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    /// Load bias: added to the file's addresses.
    bias: u64,
    of: Arc<Known>,
}

/// Files by path; `None` for files without symbols.
type Files = HashMap<String, Option<Arc<Known>>>;

/// Functions of a running program.
#[derive(Debug, Default)]
pub struct Functions {
    wrappers: Vec<String>,
    state: Mutex<(Vec<Piece>, Files)>,
}

impl Functions {
    /// An empty set; functions with names in `wrappers` count as wrappers of allocation functions.
    #[must_use]
    pub fn new(wrappers: &[String]) -> Self {
        Self { wrappers: wrappers.to_vec(), state: Mutex::default() }
    }

    /// The start of the function that contains the code at `address`, and the size source if
    /// `address` is the start of an allocation function.
    pub fn at(&self, address: u64) -> (u64, Option<SizeFrom>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (pieces, files) = &mut *state;
        if CHANGED.swap(false, Ordering::AcqRel) {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            *pieces = maps.lines().filter_map(|line| self.piece(line, files)).collect();
        }
        let found = pieces.iter().find(|piece| (piece.start..piece.end).contains(&address));
        let Some(piece) = found else { return (address & !(PIECE - 1), None) };
        let own = address.wrapping_sub(piece.bias);
        let functions = &piece.of.elf.functions;
        let start = match functions.partition_point(|start| *start <= own).checked_sub(1) {
            Some(at) => functions[at].wrapping_add(piece.bias),
            None => piece.start,
        };
        let allocators = piece.of.allocators.binary_search_by_key(&own, |(at, _)| *at).ok();
        (start, allocators.map(|at| piece.of.allocators[at].1))
    }

    /// Whether a file with functions is mapped at an address.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.iter().any(|piece| (piece.start..piece.end).contains(&address))
    }

    /// Parses a line of /proc/self/maps; `None` unless a file with functions is mapped.
    fn piece(&self, line: &str, files: &mut Files) -> Option<Piece> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(words.nth(1)?)?);
        // Device and inode contain no slash; paths may contain spaces.
        let path = &line[line.find('/')?..];
        let read = || Some(Arc::new(self.known(Elf::open(Path::new(path))?)));
        let of = files.entry(path.to_owned()).or_insert_with(read).clone()?;
        let bias = of.elf.bias(start, offset)?;
        Some(Piece { start, end, bias, of })
    }

    fn known(&self, elf: Elf) -> Known {
        let functions = elf.symbols.iter().filter(|symbol| symbol.function);
        let allocators = functions.filter_map(|symbol| {
            let wraps = || self.wrappers.contains(&symbol.name).then_some(SizeFrom::Nested);
            Some((symbol.address, SizeFrom::by_name(&symbol.name).or_else(wraps)?))
        });
        let allocators: BTreeSet<(u64, SizeFrom)> = allocators.collect();
        Known { elf, allocators: allocators.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A copy of this program under a name with spaces, and a shared anonymous mapping, which the
    // kernel shows as `/dev/zero (deleted)`.
    #[test]
    fn files_are_found_whatever_their_names() {
        let functions = Functions::new(&[]);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a program");
        std::fs::copy("/proc/self/exe", &path).expect("there is room");
        let piece = |path: &str| {
            let line = format!("10000-20000 r--p 00000000 08:01 1234    {path}");
            functions.piece(&line, &mut Files::new())
        };
        let found = piece(path.to_str().expect("ASCII")).expect("it is a program");
        assert!(found.start == 0x10000 && !found.of.elf.functions.is_empty());
        assert!(piece("/dev/zero").is_none() && piece("/dev/zero (deleted)").is_none());
        assert!(piece("").is_none() && piece("[heap]").is_none());
    }

    // This program itself, as it is mapped.
    #[test]
    fn functions_of_running_programs_are_found() {
        let functions = Functions::new(&[]);
        let own = functions_of_running_programs_are_found as *const () as u64;
        let (start, allocators) = functions.at(own + 1);
        assert!(start <= own + 1 && own + 1 - start < PIECE && allocators.is_none(), "{start:#x}");
        assert_eq!(functions.at(own), functions.at(start));
        let malloc = libc::malloc as *const () as u64;
        assert_eq!(functions.at(malloc), (malloc, Some(SizeFrom::First)));
        assert!(functions.holds(own) && !functions.holds(8));
        assert_eq!(functions.at(PIECE + 5), (PIECE, None));
    }
}
