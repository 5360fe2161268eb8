//! Parser of `/proc/PID/maps` (fs/proc/task_mmu.c: `show_map_vma`).

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use tierscope_core::names::plain;
use tierscope_core::{Backing, Mapping, Object, Range, Result, SpaceId};

use super::{Proc, each_line, open};

/// One line of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsLine<'a> {
    /// Address of the mapping's first byte.
    pub start: u64,
    /// Address one past the mapping's last byte; above `start`.
    pub end: u64,
    /// Whether the mapping is writable.
    pub writable: bool,
    /// Whether the mapping is shared (`s`), so that other processes see what is written to it.
    pub shared: bool,
    /// Offset in the file of the mapping's first byte.
    pub offset: u64,
    /// Number of the file's device, as in `st_dev` of stat(2).
    pub device: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// The last column as the kernel prints it: a newline in a file name appears as `\012`. It is
    /// not decoded: the kernel does not escape the backslash, so that decoding would be ambiguous,
    /// and a name has to fit on a line.
    pub name: &'a [u8],
}

impl MapsLine<'_> {
    /// What the mapping maps: a file, the heap, a stack, or anonymous memory.
    #[must_use]
    pub fn backing(&self) -> Backing {
        match self.name {
            b"" => Backing::Anonymous,
            b"[heap]" => Backing::Heap,
            name if self.inode != 0 || name.starts_with(b"/") => Backing::File,
            name if name.starts_with(b"[stack") => Backing::Stack,
            name if name.starts_with(b"[anon_shmem:") => Backing::File,
            name if name.starts_with(b"[anon:") => Backing::Anonymous,
            _ => Backing::Kernel,
        }
    }

    /// The file or shared memory that is mapped. The inode of a System V segment is its id, which
    /// may be 0.
    #[must_use]
    pub fn object(&self) -> Option<Object> {
        let (device, inode, offset) = (self.device, self.inode, self.offset);
        (inode != 0 || self.name.starts_with(b"/SYSV")).then_some(Object { device, inode, offset })
    }

    /// Whether the process sees the same memory as the others that map the object: not where it
    /// gets copies of the pages that it writes to, and not where the inode is that of all anonymous
    /// descriptors (vCPUs, rings of perf_event and io_uring).
    fn is_shareable(&self) -> bool {
        let memory = self.object().is_some() && self.backing() == Backing::File;
        let own_inode = !self.name.starts_with(b"anon_inode:");
        memory && own_inode && (self.shared || !self.writable)
    }

    /// Whether it is in the process's page table: vsyscall is listed in every process, but belongs
    /// to none.
    fn is_own(&self) -> bool {
        self.name != b"[vsyscall]"
    }
}

/// Parses a line of maps.
///
/// # Errors
/// The first item that is missing or malformed.
pub fn parse_line(line: &[u8]) -> Result<MapsLine<'_>, &'static str> {
    let (range, rest) = word(line);
    let (perms, rest) = word(rest);
    let (offset, rest) = word(rest);
    let (device, rest) = word(rest);
    let (inode, rest) = word(rest);
    let dash = range.iter().position(|b| *b == b'-').ok_or("address range")?;
    let start = hex(&range[..dash]).ok_or("start address")?;
    let end = hex(&range[dash + 1..]).filter(|end| *end > start).ok_or("end address")?;
    let &[_, write, _, shared] = perms else { return Err("permissions") };
    let offset = hex(offset).ok_or("offset")?;
    let device = device_number(device).ok_or("device")?;
    let inode = decimal(inode).ok_or("inode")?;
    let (writable, shared) = (write == b'w', shared == b's');
    let name = rest.trim_ascii_start();
    Ok(MapsLine { start, end, writable, shared, offset, device, inode, name })
}

/// The number of a device that is printed as `major:minor`, in hexadecimal digits.
fn device_number(text: &[u8]) -> Option<u64> {
    let colon = text.iter().position(|b| *b == b':')?;
    let number = |digits| u32::try_from(hex(digits)?).ok();
    Some(libc::makedev(number(&text[..colon])?, number(&text[colon + 1..])?))
}

/// Splits off the first word, and the one space after it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|b| *b == b' ') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, b""),
    }
}

fn hex(text: &[u8]) -> Option<u64> {
    (!text.is_empty() && text.len() <= 16).then_some(())?;
    text.iter().try_fold(0, |value, b| Some(value << 4 | u64::from((*b as char).to_digit(16)?)))
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Interned names of mappings: a file mapped 65,000 times is stored as one string.
#[derive(Debug, Default)]
pub struct Names {
    known: HashSet<Arc<str>>,
    last: Option<Arc<str>>,
}

impl Names {
    /// Interns `name`, made [plain]. Bytes that are not UTF-8 become U+FFFD.
    pub fn share(&mut self, name: &[u8]) -> Arc<str> {
        match &self.last {
            Some(last) if last.as_bytes() == name => Arc::clone(last),
            _ => {
                let shared = self.look_up(&plain(&String::from_utf8_lossy(name)));
                self.last = Some(Arc::clone(&shared));
                shared
            }
        }
    }

    fn look_up(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.known.insert(Arc::clone(&new));
        new
    }

    /// Drops names that are not used by any mapping.
    pub fn tidy(&mut self) {
        self.last = None;
        self.known.retain(|name| Arc::strong_count(name) > 1);
    }
}

/// The mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMaps {
    /// Sorted by range, disjoint.
    pub mappings: Vec<Mapping>,
    /// Indices of mappings that are the same memory in every process that maps the object: shared
    /// mappings, and private mappings of files that cannot be written to.
    pub shareable: Vec<u32>,
}

impl Proc {
    /// The mappings of process `pid`, as mappings of `space`; `None` if the process is gone. A
    /// process that is ending has none.
    ///
    /// # Errors
    /// If they cannot be read or parsed.
    pub fn maps(&self, pid: u32, space: SpaceId, names: &mut Names) -> Result<Option<ProcessMaps>> {
        let path = self.path(pid, "maps");
        let Some(file) = open(&path)? else { return Ok(None) };
        read_mappings(BufReader::new(file), &path, space, names)
    }
}

fn read_mappings(
    text: impl BufRead,
    path: &Path,
    space: SpaceId,
    names: &mut Names,
) -> Result<Option<ProcessMaps>> {
    let mut maps = ProcessMaps::default();
    let read = each_line(text, path, |line| {
        push(&mut maps, &parse_line(line)?, space, names);
        Ok(())
    })?;
    Ok(read.map(|()| maps))
}

/// Appends a line's mapping. The kernel drops its lock between two pages of text: a VMA that grew
/// downwards or was merged in between can overlap the previous mapping, which keeps the overlap.
fn push(maps: &mut ProcessMaps, line: &MapsLine<'_>, space: SpaceId, names: &mut Names) {
    let from = maps.mappings.last().map_or(0, |last| last.range.end).max(line.start);
    if from >= line.end || !line.is_own() {
        return;
    }
    if line.is_shareable() {
        maps.shareable.push(maps.mappings.len() as u32);
    }
    let cut = from - line.start;
    let object = line.object().map(|at| Object { offset: at.offset.wrapping_add(cut), ..at });
    maps.mappings.push(Mapping {
        range: Range::new(space, from, line.end),
        backing: line.backing(),
        name: names.share(line.name),
        writable: line.writable,
        object,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::ErrorKind;

    const SPACE: SpaceId = SpaceId(3);

    fn read_all(text: &[u8]) -> Result<ProcessMaps> {
        let mut names = Names::default();
        Ok(read_mappings(text, Path::new("maps"), SPACE, &mut names)?.unwrap())
    }

    fn read(text: &[u8]) -> Result<Vec<Mapping>> {
        Ok(read_all(text)?.mappings)
    }

    #[test]
    fn a_line_is_parsed() {
        let line = b"7f1c8000-7f1ca000 rw-p 0001f000 fe:01 1835 /opt/a b\\012c (deleted)";
        let parsed = parse_line(line).unwrap();
        assert_eq!((parsed.start, parsed.end), (0x7f1c_8000, 0x7f1c_a000));
        assert!(parsed.writable && !parsed.shared);
        assert_eq!((parsed.offset, parsed.device), (0x1f000, libc::makedev(0xfe, 1)));
        assert_eq!(parsed.name, b"/opt/a b\\012c (deleted)");
        assert_eq!(parsed.backing(), Backing::File);
    }

    #[test]
    fn the_missing_item_is_named() {
        assert_eq!(parse_line(b""), Err("address range"));
        assert_eq!(parse_line(b"zz-2000 rw-p 0 0:0 0"), Err("start address"));
        assert_eq!(parse_line(b"2000-2000 rw-p 0 0:0 0"), Err("end address"));
        assert_eq!(parse_line(b"1000-2000 rw 0 0:0 0"), Err("permissions"));
        assert_eq!(parse_line(b"1000-2000 rw-p x 0:0 0"), Err("offset"));
        assert_eq!(parse_line(b"1000-2000 rw-p 0 00 5"), Err("device"));
        assert_eq!(parse_line(b"1000-2000 rw-p 0 0:100000000 5"), Err("device"));
        assert_eq!(parse_line(b"1000-2000 rw-p 0 0:0 -1"), Err("inode"));
        assert_eq!(parse_line(b"1000-11112222333344445 rw-p 0 0:0 0"), Err("end address"));
    }

    #[test]
    fn the_backing_is_recognised() {
        let backing = |inode, name: &str| {
            let line = format!("1000-2000 r--p 0 0:0 {inode}    {name}");
            parse_line(line.as_bytes()).unwrap().backing()
        };
        assert_eq!(backing(0, ""), Backing::Anonymous);
        assert_eq!(backing(0, "[anon:jit]"), Backing::Anonymous);
        assert_eq!(backing(0, "[heap]"), Backing::Heap);
        assert_eq!(backing(0, "[stack]"), Backing::Stack);
        assert_eq!(backing(0, "[stack:77]"), Backing::Stack);
        assert_eq!(backing(0, "[vdso]"), Backing::Kernel);
        assert_eq!(backing(9, "[heap]x"), Backing::File);
        assert_eq!(backing(9, "anon_inode:[perf_event]"), Backing::File);
        assert_eq!(backing(0, "/SYSV00000000 (deleted)"), Backing::File);
        assert_eq!(backing(0, "[anon_shmem:x]"), Backing::File);
    }

    #[test]
    fn an_error_names_its_line() {
        let error = read(b"1000-2000 rw-p 0 0:0 0\nnonsense\n").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("line 2: no address range in \"nonsense\""), "{error}");
    }

    #[test]
    fn overlaps_are_cut_and_vsyscall_is_left_out() {
        let text = b"1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n1000-4000 rw-p 0 0:0 0\n\
            ffffffffff600000-ffffffffff601000 --xp 0 0:0 0    [vsyscall]";
        let ranges: Vec<_> =
            read(text).unwrap().iter().map(|m| (m.range.start, m.range.end)).collect();
        assert_eq!(ranges, [(0x1000, 0x3000), (0x3000, 0x4000)]);
    }

    // Anonymous memory is no object. The last line begins where the one before ends: a page later
    // than it says, at a later offset.
    #[test]
    fn objects_are_device_inode_and_offset() {
        let text = b"1000-2000 rw-p 0 0:0 0\n2000-4000 rw-s 3000 0:1 7 /memfd:x (deleted)\n\
            4000-5000 rw-s 0 0:1 0 /SYSV00000000 (deleted)\n4000-6000 r--p 8000 fe:1 9 /a";
        let device = libc::makedev(0xfe, 1);
        let object = |device, inode, offset| Some(Object { device, inode, offset });
        let objects: Vec<_> = read(text).unwrap().iter().map(|m| m.object).collect();
        let expected = [None, object(1, 7, 0x3000), object(1, 0, 0), object(device, 9, 0x9000)];
        assert_eq!(objects, expected);
    }

    // Shareable: shared memory, and private mappings of files unless they are writable; not memory
    // of anonymous descriptors, which all have one inode.
    #[test]
    fn memory_without_copies_is_shareable() {
        let text = b"1000-2000 r-xp 0 fe:1 9 /a\n2000-3000 rw-p 0 fe:1 9 /a\n\
            3000-4000 rw-s 0 fe:1 8 /b\n4000-5000 rw-p 0 0:0 0 [heap]\n\
            5000-6000 r--p 0 0:0 0 [vvar]\n6000-7000 rw-s 0 0:1 0 /SYSV00000000 (deleted)\n\
            7000-8000 rw-s 0 0:e 9 anon_inode:kvm-vcpu:0";
        assert_eq!(read_all(text).unwrap().shareable, [0, 2, 5]);
    }

    #[test]
    fn equal_names_are_one_string() {
        let text = b"1000-2000 r--p 0 0:0 5 /a\n2000-3000 r--p 0 0:0 0\n3000-4000 r--p 0 0:0 5 /a";
        let maps = read(text).unwrap();
        assert!(Arc::ptr_eq(&maps[0].name, &maps[2].name));
    }

    #[test]
    fn names_that_steer_a_terminal_are_written_out() {
        let maps = read(b"1000-2000 r--p 0 0:0 5 /tmp/\x1b[2J\xe2\x80\xae").unwrap();
        assert_eq!(&*maps[0].name, "/tmp/\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn unused_names_are_dropped() {
        let mut names = Names::default();
        let kept = names.share(b"kept");
        names.share(b"dropped");
        names.tidy();
        assert_eq!(names.known.len(), 1);
        assert!(Arc::ptr_eq(&kept, &names.share(b"kept")));
    }

    #[test]
    fn reads_its_own_stack_and_heap() {
        let maps = Proc::default().maps(std::process::id(), SPACE, &mut Names::default());
        let maps = maps.unwrap().unwrap().mappings;
        let here = std::ptr::from_ref(&maps) as u64;
        assert!(maps.iter().any(|m| m.range.start <= here && here < m.range.end && m.writable));
        assert!(maps.iter().any(|m| m.backing == Backing::File));
        assert!(maps.iter().all(|m| m.range.space == SPACE));
        assert!(maps.windows(2).all(|w| w[0].range.end <= w[1].range.start));
    }

    /// The parser survives the corpus of `fuzz/fuzz_targets/proc_maps.rs`.
    #[test]
    fn the_fuzz_corpus_is_parsed_without_panic() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proc_maps");
        let files: Vec<_> = std::fs::read_dir(corpus).unwrap().collect();
        assert!(!files.is_empty());
        for file in files {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            check_any(&bytes);
        }
    }

    /// For any bytes: no panic, and accepted mappings are sorted and disjoint.
    fn check_any(bytes: &[u8]) {
        if let Ok(ProcessMaps { mappings: maps, shareable }) = read_all(bytes) {
            assert!(maps.iter().all(|m| m.range.start < m.range.end));
            assert!(maps.windows(2).all(|w| w[0].range.end <= w[1].range.start));
            assert!(shareable.is_sorted());
            assert!(shareable.iter().all(|index| maps[*index as usize].object.is_some()));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            check_any(&bytes);
        }

        // Mostly valid lines with a few changed bytes exercise more of the parser.
        #[test]
        fn damaged_lines_do_not_panic(
            lines in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u16>(), any::<u64>()), 1..6),
            hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut text = String::new();
            for (start, end, inode, offset) in lines {
                text += &format!("{start:08x}-{end:08x} rw-s {offset:08x} fd:00 {inode}   /x y\n");
            }
            let mut bytes = text.into_bytes();
            for (at, value) in hits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            check_any(&bytes);
        }

        #[test]
        fn printed_lines_are_parsed_back(
            start in 0u64..1 << 47, pages in 1u64..1000, inode in any::<u64>(), write in any::<bool>(),
            shared in any::<bool>(), offset in any::<u64>(), major in 0u32..4096, minor in 0u32..1 << 20,
            name in "/[a-z ]{0,20}[a-z]",
        ) {
            let end = start + pages * 4096;
            let (w, s) = (if write { 'w' } else { '-' }, if shared { 's' } else { 'p' });
            let line = format!(
                "{start:08x}-{end:08x} r{w}x{s} {offset:08x} {major:02x}:{minor:02x} {inode}      {name}"
            );
            let parsed = parse_line(line.as_bytes()).unwrap();
            prop_assert_eq!((parsed.shared, parsed.offset), (shared, offset));
            prop_assert_eq!(parsed.device, libc::makedev(major, minor));
            prop_assert_eq!((parsed.start, parsed.end), (start, end));
            prop_assert_eq!((parsed.writable, parsed.inode), (write, inode));
            prop_assert_eq!(parsed.name, name.as_bytes());
        }
    }
}
