//! Narrows regions to resident memory, so that reports and policies count memory that exists.
//!
//! Instruments tile all mapped memory with regions. Of a reservation that was never touched, of a
//! file whose pages are not in memory, and of swapped memory, an instrument sees the same as of
//! idle memory: no access. The machine knows the difference ([`Extent`]).

use crate::{
    Extent, Level, Mapping, Mappings, PAGE_SHIFT, Range, Region, Residence, Snapshot, SpaceId,
};

/// Number of regions that a snapshot may be cut into, unless it had more before: an instrument
/// limits its regions, and cuts must not defeat that.
const FEW: usize = 256;

/// Narrows the regions of the spaces whose extents are known:
///
/// - [`Region::resident`] is set. A region is cut where it would misplace bytes otherwise: at gaps
///   between extents, and at borders between extents of different density. If that made too many
///   regions, only the cuts that misplace most are made. Of an extent that is resident in part, the
///   pages that are known to be accessed are resident first.
/// - A region without resident memory is removed, unless it is known to be accessed: then its
///   memory was populated after the measurement, and all mapped bytes of it count. So do those
///   entries of 2 MiB without resident memory of a region that is known by such entries.
/// - Resident memory that no region lists becomes a region that was not probed.
///
/// Regions of other spaces stay as they are. The time taken is linear in regions, extents and
/// mappings.
pub fn fit(snapshot: &mut Snapshot, mappings: &Mappings, residence: &Residence) {
    if residence.spaces.iter().any(|of| of.extents.is_some()) {
        fit_within(snapshot, mappings, residence, snapshot.regions.len().max(FEW));
    }
}

/// [`fit`], with a limit on the number of regions. More are left only if the snapshot's own regions
/// and the memory between them are more.
fn fit_within(snapshot: &mut Snapshot, mappings: &Mappings, residence: &Residence, most: usize) {
    let regions = std::mem::take(&mut snapshot.regions);
    let mut pieces = Pieces { regions: &regions, list: Vec::with_capacity(regions.len()) };
    let mut next = 0;
    for of in &residence.spaces {
        let Some(extents) = &of.extents else { continue };
        let begin = regions.partition_point(|region| region.range.space < of.space);
        let end = regions.partition_point(|region| region.range.space <= of.space);
        pieces.keep(next..begin);
        pieces.narrow(begin..end, extents, in_space(&mappings.mappings, of.space));
        next = end;
    }
    pieces.keep(next..regions.len());
    let joined = join(pieces.list, most);
    snapshot.regions = joined.iter().map(|piece| piece.region(&regions)).collect();
}

/// The mappings of a space.
fn in_space(mappings: &[Mapping], space: SpaceId) -> &[Mapping] {
    let begin = mappings.partition_point(|mapping| mapping.range.space < space);
    let end = mappings.partition_point(|mapping| mapping.range.space <= space);
    &mappings[begin..end]
}

/// A part of a region, or of memory that no region lists.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: Range,
    resident: u64,
    /// Index of the region.
    of: Option<usize>,
}

impl Piece {
    fn region(&self, regions: &[Region]) -> Region {
        let range = self.range;
        let resident = (self.resident < range.bytes()).then_some(self.resident);
        match self.of {
            Some(index) => Region { range, resident, ..regions[index] },
            None => Region { confidence: 0.0, resident, ..Region::sampled(range, 0.0, 0) },
        }
    }

    fn belongs_with(&self, next: &Piece) -> bool {
        self.of == next.of && self.range.space == next.range.space
    }

    /// Bytes that would be misplaced if this piece and the next one had their resident bytes spread
    /// evenly over both.
    fn misplaced(&self, next: &Piece) -> u64 {
        let gap = next.range.start - self.range.end;
        if gap > 0 {
            return gap;
        }
        let [one, other] = [self, next].map(|piece| u128::from(piece.range.bytes()));
        let (mine, theirs) = (u128::from(self.resident), u128::from(next.resident));
        let difference = (mine * other).abs_diff(theirs * one);
        (difference / one.max(other).max(1)) as u64
    }
}

/// Pieces in the making, in order of address.
struct Pieces<'a> {
    regions: &'a [Region],
    list: Vec<Piece>,
}

impl Pieces<'_> {
    /// Adds regions as they are.
    fn keep(&mut self, regions: std::ops::Range<usize>) {
        for of in regions {
            let region = &self.regions[of];
            self.list.push(Piece { range: region.range, resident: region.bytes(), of: Some(of) });
        }
    }

    /// Adds the resident parts of regions, and those of memory between them, of one space.
    fn narrow(&mut self, of: std::ops::Range<usize>, extents: &[Extent], mappings: &[Mapping]) {
        let parts = mapped_parts(extents, mappings);
        let parts = accessed_pages_first(parts, &self.regions[of.clone()]);
        let (mut rest, mut at) = (parts.as_slice(), 0);
        for index in of {
            let region = &self.regions[index];
            let start = at.min(region.range.start);
            rest = self.take(rest, &Range { start, end: region.range.start, ..region.range }, None);
            let begun = self.list.len();
            let mut from = region.range.start;
            for gap in late_entries(region, rest) {
                rest = self.take(rest, &Range { start: from, end: gap.start, ..gap }, Some(index));
                self.populate(index, &gap, mappings);
                from = gap.end;
            }
            rest = self.take(rest, &Range { start: from, ..region.range }, Some(index));
            if self.list.len() == begun && region.is_accessed() {
                self.populate(index, &region.range, mappings);
            }
            at = region.range.end;
        }
        if let Some(last) = rest.last() {
            let start = at.min(last.range.end);
            self.take(rest, &Range { start, ..last.range }, None);
        }
    }

    /// Adds the common parts of `span` and `parts` as pieces of region `of`; returns the parts that
    /// reach beyond the span.
    fn take<'p>(&mut self, parts: &'p [Extent], span: &Range, of: Option<usize>) -> &'p [Extent] {
        let mut rest = parts;
        while let Some(part) = rest.first() {
            if let Some(range) = part.range.intersect(span) {
                let resident = share(part, &range);
                if resident > 0 {
                    self.list.push(Piece { range, resident, of });
                }
            }
            if part.range.end > span.end {
                break;
            }
            rest = &rest[1..];
        }
        rest
    }

    /// Adds the mapped parts of `range`, a part of a region that was populated after the
    /// measurement.
    fn populate(&mut self, of: usize, range: &Range, mappings: &[Mapping]) {
        let from = mappings.partition_point(|mapping| mapping.range.end <= range.start);
        let mapped = mappings[from..].iter().map_while(|mapping| mapping.range.intersect(range));
        for range in mapped {
            self.list.push(Piece { range, resident: range.bytes(), of: Some(of) });
        }
    }
}

/// Stretches of whole entries of 2 MiB without a part, of an accessed region that is known by such
/// entries: each of them was accessed, so that it has memory.
fn late_entries(region: &Region, parts: &[Extent]) -> Vec<Range> {
    let mut late = Vec::new();
    if region.level != Some(Level::PMD) || !region.is_accessed() {
        return late;
    }
    let size = Level::PMD.entry_bytes();
    let mut from = region.range.start.next_multiple_of(size);
    let here = parts.iter().take_while(|part| part.range.start < region.range.end);
    let here = here.map(|part| part.range).filter(|part| part.end > region.range.start);
    // The end of the region ends the last gap.
    for next in here.chain([Range { start: region.range.end, ..region.range }]) {
        let end = next.start & !(size - 1);
        if from < end {
            late.push(Range { start: from, end, ..region.range });
        }
        from = from.max(next.end.next_multiple_of(size));
    }
    late
}

/// The extents, cut to what is mapped now.
fn mapped_parts(extents: &[Extent], mappings: &[Mapping]) -> Vec<Extent> {
    let mut parts = Vec::with_capacity(extents.len());
    let mut rest = mappings;
    for extent in extents {
        let ended = |mapping: &&Mapping| mapping.range.end <= extent.range.start;
        rest = &rest[rest.iter().take_while(ended).count()..];
        for mapping in rest {
            let Some(range) = mapping.range.intersect(&extent.range) else { break };
            parts.push(Extent { range, resident: share(extent, &range), swapped: 0 });
        }
    }
    parts
}

/// Splits extents that are resident in part at regions that are known page by page to be accessed:
/// pages that are accessed are resident, and the others have what is left of the extent.
fn accessed_pages_first(parts: Vec<Extent>, regions: &[Region]) -> Vec<Extent> {
    let is_of_pages = |of: &&Region| of.level == Some(Level::PTE) && of.is_accessed();
    // Extents that page maps were surveyed for are full, and most are.
    if parts.iter().all(is_full) {
        return parts;
    }
    let accessed: Vec<Range> = regions.iter().filter(is_of_pages).map(|of| of.range).collect();
    if accessed.is_empty() {
        return parts;
    }
    let (mut out, mut from) = (Vec::with_capacity(parts.len() + accessed.len()), &accessed[..]);
    for part in parts {
        let ended = |of: &&Range| of.end <= part.range.start;
        from = &from[from.iter().take_while(ended).count()..];
        if is_full(&part) {
            out.push(part);
        } else {
            let here = from.iter().map_while(|of| of.intersect(&part.range));
            split(&part, here.collect(), &mut out);
        }
    }
    out
}

fn is_full(part: &Extent) -> bool {
    part.resident == part.range.bytes()
}

/// Splits an extent at `accessed` parts of it, unless they are larger than what is resident: then
/// the measurement is older than the accesses.
fn split(part: &Extent, accessed: Vec<Range>, out: &mut Vec<Extent>) {
    let bytes = accessed.iter().map(Range::bytes).sum();
    if part.resident <= bytes {
        out.push(*part);
        return;
    }
    // The other parts, as if they were next to each other.
    let others = Extent {
        range: Range { end: part.range.end - bytes, ..part.range },
        resident: part.resident - bytes,
        swapped: 0,
    };
    let mut add = |range: Range, resident: u64| {
        if range.start < range.end {
            out.push(Extent { range, resident, swapped: 0 });
        }
    };
    let (mut at, mut start) = (part.range.start, part.range.start);
    for range in accessed.into_iter().chain([Range { start: part.range.end, ..part.range }]) {
        let end = start + (range.start - at);
        let between = Range { start: at, end: range.start, ..range };
        add(between, share(&others, &Range { start, end, ..range }));
        add(range, range.bytes());
        (at, start) = (range.end, end);
    }
}

/// Resident bytes of `range`, a part of `extent`, spread evenly; the shares of all parts of an
/// extent add up to its resident bytes.
fn share(extent: &Extent, range: &Range) -> u64 {
    let all = u128::from(extent.range.bytes().max(1));
    let up_to =
        |at: u64| (u128::from(extent.resident) * u128::from(at - extent.range.start) / all) as u64;
    up_to(range.end) - up_to(range.start)
}

/// Joins pieces of the same region until at most `most` are left, those first for which it
/// misplaces the fewest bytes; those for which it misplaces less than a page in any case.
fn join(pieces: Vec<Piece>, most: usize) -> Vec<Piece> {
    let least = least_cut(&pieces, most);
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len().min(most));
    let mut last_part: Option<Piece> = None;
    for piece in pieces {
        let joins = last_part
            .is_some_and(|last| last.belongs_with(&piece) && last.misplaced(&piece) < least);
        match joined.last_mut() {
            Some(before) if joins => {
                before.range.end = piece.range.end;
                before.resident += piece.resident;
            }
            _ => joined.push(piece),
        }
        last_part = Some(piece);
    }
    joined
}

/// The least number of misplaced bytes for which pieces are cut: a power of two, at least a page.
fn least_cut(pieces: &[Piece], most: usize) -> u64 {
    let mut cuts = [0; u64::BITS as usize];
    let mut pieces_of_regions = pieces.len();
    for pair in pieces.windows(2).filter(|pair| pair[0].belongs_with(&pair[1])) {
        pieces_of_regions -= 1;
        cuts[pair[0].misplaced(&pair[1]).max(1).ilog2() as usize] += 1;
    }
    let mut room = most.saturating_sub(pieces_of_regions);
    let fits = |power: &u32| {
        let left = room.checked_sub(cuts[*power as usize]);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let powers = (PAGE_SHIFT..u64::BITS).rev().take_while(fits).last();
    powers.map_or(u64::MAX, |power| 1 << power)
}

#[cfg(test)]
mod tests;
