//! From addresses of the shared space to those of processes, and back.

use tierscope_core::{Addr, Mappings, Range, SpaceId};

/// A part of a process's space, and the memory that it maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    /// Addresses of the process.
    pub(crate) range: Range,
    /// Address of the first byte in the space that the memory is listed in.
    pub(crate) memory: u64,
    /// Whether processes share what they write to it: shared mappings of which one is writable.
    pub(crate) writable: bool,
}

impl Piece {
    fn memory_end(&self) -> u64 {
        self.memory + self.range.bytes()
    }

    /// The part of it that maps `start..end` of the memory.
    fn of_memory(&self, start: u64, end: u64) -> Option<Self> {
        let (from, to) = (start.max(self.memory), end.min(self.memory_end()));
        (from < to).then(|| {
            let start = self.range.start + (from - self.memory);
            let range = Range::new(self.range.space, start, start + (to - from));
            Self { range, memory: from, writable: self.writable }
        })
    }

    /// The part of it inside of `start..end` of the process.
    fn of_process(&self, range: &Range) -> Option<Self> {
        let range = self.range.intersect(range)?;
        let memory = self.memory + (range.start - self.range.start);
        Some(Self { range, memory, writable: self.writable })
    }
}

/// Views of the shared space, indexed from both sides.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    shared: Option<SpaceId>,
    /// Sorted by range.
    views: Vec<Piece>,
    /// Sorted by memory.
    users: Vec<Piece>,
    /// The greatest end of the memory of `users[..=i]`.
    reach: Vec<u64>,
}

/// The parts of processes that map a range of the shared space; see [`Translation::users`].
pub(crate) struct Users<'a> {
    rest: &'a [Piece],
    start: u64,
    end: u64,
}

impl Iterator for Users<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while let Some((first, rest)) = self.rest.split_first() {
            if first.memory >= self.end {
                self.rest = &[];
                return None;
            }
            self.rest = rest;
            if let Some(piece) = first.of_memory(self.start, self.end) {
                return Some(piece);
            }
        }
        None
    }
}

impl Translation {
    pub(crate) fn of(mappings: &Mappings) -> Self {
        let views: Vec<Piece> = mappings
            .views
            .iter()
            .map(|view| {
                let first = Range::new(view.memory.space, view.memory.at, view.memory.at + 1);
                let writable = mappings.find(&first).is_some_and(|memory| memory.writable);
                Piece { range: view.range, memory: view.memory.at, writable }
            })
            .collect();
        let mut users = views.clone();
        users.sort_by_key(|piece| (piece.memory, piece.range));
        let mut end = 0;
        let reach = users.iter().map(|piece| {
            end = piece.memory_end().max(end);
            end
        });
        Self { shared: mappings.shared, views, reach: reach.collect(), users }
    }

    /// Whether no memory is shared.
    pub(crate) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Whether `space` is the shared space.
    pub(crate) fn is_shared(&self, space: SpaceId) -> bool {
        self.shared == Some(space)
    }

    /// The parts of processes that map `range`, a range of the shared space, in the order of the
    /// memory. A process appears once for each of its views.
    pub(crate) fn users(&self, range: &Range) -> Users<'_> {
        let mine = self.is_shared(range.space);
        let first = self.reach.partition_point(|end| *end <= range.start);
        let rest = if mine { &self.users[first..] } else { &[] };
        Users { rest, start: range.start, end: range.end }
    }

    /// The views inside of `range`, a range of a process, in order.
    pub(crate) fn views(&self, range: Range) -> impl Iterator<Item = Piece> + '_ {
        let key = |piece: &Piece| (piece.range.space, piece.range.end);
        let first = self.views.partition_point(|piece| key(piece) <= (range.space, range.start));
        self.views[first..].iter().map_while(move |piece| piece.of_process(&range))
    }

    /// The address in the shared space of a process's address; `None` outside of views.
    pub(crate) fn shared_address(&self, at: Addr) -> Option<Addr> {
        let here = Range::new(at.space, at.at, at.at.checked_add(1)?);
        let piece = self.views(here).next()?;
        Some(Addr { space: self.shared?, at: piece.memory })
    }

    /// Splits a range of a process into parts outside of views, which keep their address, and
    /// views, with addresses of the shared space; in order of the process's addresses.
    pub(crate) fn split(&self, range: &Range, mut out: impl FnMut(Range, Range)) {
        let mut at = range.start;
        for piece in self.views(*range) {
            if at < piece.range.start {
                let own = Range { start: at, end: piece.range.start, ..*range };
                out(own, own);
            }
            let space = self.shared.unwrap_or(range.space);
            out(piece.range, Range::new(space, piece.memory, piece.memory_end()));
            at = piece.range.end;
        }
        if at < range.end {
            let own = Range { start: at, ..*range };
            out(own, own);
        }
    }
}
