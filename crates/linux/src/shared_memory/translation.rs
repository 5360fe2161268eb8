//! From the addresses at which memory is listed to those of processes that map it, and back.

use tierscope_core::{Addr, Mappings, Range, SpaceId};

/// A part of a process's space, and the memory that it maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Piece {
    /// Addresses of the process.
    pub(crate) range: Range,
    /// Where the first byte is listed.
    pub(crate) memory: Addr,
    /// Whether processes share what they write to it: shared mappings of which one is writable.
    pub(crate) writable: bool,
}

impl Piece {
    /// The range that the memory is listed at.
    pub(crate) fn listed(&self) -> Range {
        let Addr { space, at } = self.memory;
        Range::new(space, at, at + self.range.bytes())
    }

    /// The part of it that maps `range` of the memory.
    fn of_memory(&self, range: &Range) -> Option<Self> {
        let listed = self.listed().intersect(range)?;
        let start = self.range.start + (listed.start - self.memory.at);
        let range = Range::new(self.range.space, start, start + listed.bytes());
        Some(Self { range, memory: listed.at(0), writable: self.writable })
    }

    /// The part of it inside of `start..end` of the process.
    fn of_process(&self, range: &Range) -> Option<Self> {
        let range = self.range.intersect(range)?;
        let memory = self.memory.at + (range.start - self.range.start);
        let memory = Addr { at: memory, ..self.memory };
        Some(Self { range, memory, writable: self.writable })
    }
}

/// Views of memory that is listed in another space, indexed from both sides.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    shared: Option<SpaceId>,
    /// Sorted by range.
    views: Vec<Piece>,
    /// Sorted by memory.
    users: Vec<Piece>,
    /// The greatest end of the memory of `users[..=i]`, with its space.
    reach: Vec<(SpaceId, u64)>,
}

/// The views of a range; see [`Translation::users`].
pub(crate) struct Users<'a> {
    rest: &'a [Piece],
    range: Range,
}

impl Iterator for Users<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while let Some((first, rest)) = self.rest.split_first() {
            if (first.memory.space, first.memory.at) >= (self.range.space, self.range.end) {
                self.rest = &[];
                return None;
            }
            self.rest = rest;
            if let Some(piece) = first.of_memory(&self.range) {
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
                Piece { range: view.range, memory: view.memory, writable }
            })
            .collect();
        let mut users = views.clone();
        users.sort_by_key(|piece| (piece.listed().space, piece.listed().start, piece.range));
        let mut end = (SpaceId(0), 0);
        let reach = users.iter().map(|piece| {
            end = (piece.memory.space, piece.listed().end).max(end);
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

    /// Whether memory of `space` has views: that of the shared space, and of processes that
    /// others were forked from.
    pub(crate) fn has_views_of(&self, space: SpaceId) -> bool {
        let whole = Range::new(space, 0, u64::MAX);
        self.users(&whole).next().is_some()
    }

    /// The views of `range`, in the order of the memory. A process appears once for each of its
    /// views; the process whose space it is does not.
    pub(crate) fn users(&self, range: &Range) -> Users<'_> {
        let first = self.reach.partition_point(|end| *end <= (range.space, range.start));
        Users { rest: &self.users[first..], range: *range }
    }

    /// The views inside of `range`, a range of a process, in order.
    pub(crate) fn views(&self, range: Range) -> impl Iterator<Item = Piece> + '_ {
        let key = |piece: &Piece| (piece.range.space, piece.range.end);
        let first = self.views.partition_point(|piece| key(piece) <= (range.space, range.start));
        self.views[first..].iter().map_while(move |piece| piece.of_process(&range))
    }

    /// Where a process's address is listed; `None` outside of views.
    pub(crate) fn shared_address(&self, at: Addr) -> Option<Addr> {
        let here = Range::new(at.space, at.at, at.at.checked_add(1)?);
        Some(self.views(here).next()?.memory)
    }

    /// Splits a range of a process into parts outside of views, which keep their address, and
    /// views, with the addresses at which they are listed; in order of the process's addresses.
    pub(crate) fn split(&self, range: &Range, mut out: impl FnMut(Range, Range)) {
        let mut at = range.start;
        for piece in self.views(*range) {
            if at < piece.range.start {
                let own = Range { start: at, end: piece.range.start, ..*range };
                out(own, own);
            }
            out(piece.range, piece.listed());
            at = piece.range.end;
        }
        if at < range.end {
            let own = Range { start: at, ..*range };
            out(own, own);
        }
    }
}
