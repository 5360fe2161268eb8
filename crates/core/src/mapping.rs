//! Mappings of a target.

use std::sync::Arc;

use crate::{Addr, Range, SpaceId, Time};

/// Backing of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Anonymous memory that is neither heap nor stack.
    Anonymous,
    /// The heap up to the program break.
    Heap,
    /// A thread's stack as the kernel knows it.
    Stack,
    /// A file or shared memory object.
    File,
    /// Something the kernel provides (vdso, vvar, …).
    Kernel,
}

/// A mapping (VMA) of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The mapped addresses.
    pub range: Range,
    /// Backing of the mapped memory.
    pub backing: Backing,
    /// File path, or the kernel's bracketed name; empty for plain anonymous memory.
    pub name: Arc<str>,
    /// Whether the target may write to it.
    pub writable: bool,
    /// The file or shared memory that is mapped; `None` for anonymous memory, and where the machine
    /// does not report it.
    pub object: Option<Object>,
}

impl Mapping {
    /// Plain anonymous memory that the target may write to.
    #[must_use]
    pub fn anonymous(range: Range) -> Self {
        let backing = Backing::Anonymous;
        Self { range, backing, name: "".into(), writable: true, object: None }
    }
}

/// Memory with an identity of its own, which several processes may map: a file, shared memory, a
/// hugetlb pool's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Number of its file system's device.
    pub device: u64,
    /// Number of its inode there.
    pub inode: u64,
    /// Offset in it of the mapping's first byte.
    pub offset: u64,
}

/// A part of a space that maps memory which is listed and counted in another space only: a file or
/// shared memory in [`Mappings::shared`], memory inherited by fork in the space of the process that
/// it was inherited from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedView {
    /// Addresses in the space that maps it.
    pub range: Range,
    /// Where its first byte is listed.
    pub memory: Addr,
    /// File path, or the kernel's name.
    pub name: Arc<str>,
}

/// A space of a target, with its name for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// The id in all ranges of the space.
    pub id: SpaceId,
    /// Display name: `redis-server[4711]`, `node 1`.
    pub name: Arc<str>,
}

/// Spaces and mappings of a target at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// When the mappings were read.
    pub taken: Time,
    /// Spaces, sorted by id.
    pub spaces: Vec<Space>,
    /// Mappings, sorted by range, disjoint.
    pub mappings: Vec<Mapping>,
    /// The space that holds the memory which several of the other spaces map; `None` if there is
    /// none. Its addresses are no process's: each object has a part of it, at its own alignment.
    pub shared: Option<SpaceId>,
    /// The parts of spaces that map memory which is listed in another space, sorted by range,
    /// disjoint. They are not in `mappings`.
    pub views: Vec<SharedView>,
}

impl Mappings {
    /// The mapping that holds the first byte of `range`, else the first that overlaps it.
    #[must_use]
    pub fn find(&self, range: &Range) -> Option<&Mapping> {
        let from = self
            .mappings
            .partition_point(|m| (m.range.space, m.range.end) <= (range.space, range.start));
        self.mappings.get(from).filter(|m| m.range.intersect(range).is_some())
    }

    /// Whether there is a space with this id.
    #[must_use]
    pub fn has_space(&self, id: SpaceId) -> bool {
        self.spaces.iter().any(|space| space.id == id)
    }

    /// Number of spaces with views of `range`.
    #[must_use]
    pub fn users(&self, range: &Range) -> usize {
        let maps = |view: &&SharedView| {
            let memory = view.memory;
            let whole = Range::new(memory.space, memory.at, memory.at + view.range.bytes());
            whole.intersect(range).is_some()
        };
        let mut spaces: Vec<SpaceId> =
            self.views.iter().filter(maps).map(|view| view.range.space).collect();
        spaces.dedup();
        spaces.len()
    }

    /// Bytes mapped, over all spaces; shared memory counts once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.mappings.iter().map(|m| m.range.bytes()).sum()
    }

    /// Whether spaces and mappings are equal, regardless of when they were read.
    #[must_use]
    pub fn same_layout(&self, other: &Mappings) -> bool {
        (&self.spaces, &self.mappings, self.shared, &self.views)
            == (&other.spaces, &other.mappings, other.shared, &other.views)
    }

    /// The name of a space; its number if the space is not known.
    #[must_use]
    pub fn space_name(&self, id: SpaceId) -> Arc<str> {
        match self.spaces.iter().find(|s| s.id == id) {
            Some(space) => Arc::clone(&space.name),
            None => id.to_string().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping {
            range: Range::new(SpaceId(0), start, end),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        }
    }

    #[test]
    fn finds_by_first_byte_then_by_overlap() {
        let maps =
            Mappings { mappings: vec![mapping(10, 20), mapping(30, 40)], ..Default::default() };
        let find = |s, e| maps.find(&Range::new(SpaceId(0), s, e)).map(|m| m.range.start);
        assert_eq!(find(12, 35), Some(10));
        assert_eq!(find(20, 35), Some(30));
        assert_eq!(find(20, 30), None);
        assert_eq!(find(40, 50), None);
    }
}
