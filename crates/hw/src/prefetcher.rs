//! A prefetcher that follows streams of lines within pages of 4 KiB.
//!
//! After the streamer of Intel's optimisation reference manual (248966, section on data prefetching
//! to L2 and LLC): it follows one stream per page for a number of pages, in either direction, runs
//! ahead of the program by a bounded number of lines, and never leaves the page.

use crate::config::Streamer;
use crate::tag_match;

const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 6;
const LINES: i64 = 64;

/// State of one followed page.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    page: u64,
    /// Indices of the streams used next after this one and last before it; they form a ring.
    newer: u8,
    older: u8,
    /// Line number of the last access.
    last: i64,
    /// +1, −1, or 0 before the direction is known.
    step: i64,
    /// Number of consecutive accesses in that direction.
    run: u32,
    /// Line number of the farthest prefetch.
    ahead: i64,
}

/// The prefetcher of one last-level cache.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    /// Low bits of the page numbers, in groups of four, for a fast comparison with all.
    tags: Vec<[u32; 4]>,
    streams: Vec<Stream>,
    /// Index of the most recently used stream; the next one in the ring is the least recently used.
    newest: usize,
    train: u32,
    degree: i64,
    distance: i64,
}

/// Page number of an unused stream.
const NONE: u64 = u64::MAX;

/// Lines to fetch, nearest first: `count` lines from `next` on, in steps of `step` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetches {
    next: u64,
    step: i64,
    count: u32,
}

impl Iterator for Fetches {
    type Item = u64;

    /// First byte of the next line to fetch.
    fn next(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let line = self.next;
        self.next = line.wrapping_add_signed(self.step << LINE_SHIFT);
        Some(line)
    }
}

impl Prefetcher {
    /// A prefetcher without any stream.
    #[must_use]
    pub fn new(config: &Streamer) -> Self {
        let count = config.pages as u8;
        let stream = |at: u8| Stream {
            page: NONE,
            newer: (at + 1) % count,
            older: (at + count - 1) % count,
            ..Stream::default()
        };
        Self {
            tags: vec![[NONE as u32; 4]; usize::from(count).div_ceil(4)],
            streams: (0..count).map(stream).collect(),
            newest: usize::from(count) - 1,
            train: config.train,
            degree: config.degree.into(),
            distance: config.distance.into(),
        }
    }

    /// Observes a demand access to a physical address. Returns the lines to fetch.
    #[inline]
    pub fn observe(&mut self, address: u64) -> Fetches {
        let (page, line) = (address >> PAGE_SHIFT, (address >> LINE_SHIFT) as i64 % LINES);
        let Some(at) = self.find(page) else {
            self.begin(page, line);
            return Fetches::default();
        };
        self.touch(at);
        let stream = &mut self.streams[at];
        stream.advance(line);
        if stream.run < self.train {
            return Fetches::default();
        }
        stream.fetch(self.degree, self.distance)
    }

    #[inline(always)]
    fn find(&self, page: u64) -> Option<usize> {
        if tag_match::any(&self.tags, page as u32) { self.find_likely(page) } else { None }
    }

    fn find_likely(&self, page: u64) -> Option<usize> {
        let mut found = None;
        for (first, tags) in self.tags.iter().enumerate() {
            let matching = tag_match::of_four(tags, page as u32);
            let at = 4 * first + matching.trailing_zeros() as usize % 4;
            found = if matching != 0 { Some(at) } else { found };
        }
        let found = found?;
        let is = self.streams.get(found).is_some_and(|stream| stream.page == page);
        if is { Some(found) } else { self.find_equal(page) }
    }

    /// Full comparison, in case several pages have equal tags.
    #[cold]
    fn find_equal(&self, page: u64) -> Option<usize> {
        self.streams.iter().position(|stream| stream.page == page)
    }

    /// Replaces the least recently used stream.
    fn begin(&mut self, page: u64, line: i64) {
        let oldest = usize::from(self.streams[self.newest].newer);
        let Stream { newer, older, .. } = self.streams[oldest];
        self.streams[oldest] = Stream { page, newer, older, last: line, ..Stream::default() };
        self.tags[oldest / 4][oldest % 4] = page as u32;
        // Rotates the ring by one: the oldest stream becomes the newest.
        self.newest = oldest;
    }

    /// Makes a stream the most recently used.
    #[inline(always)]
    fn touch(&mut self, at: usize) {
        if at == self.newest {
            return;
        }
        let Stream { newer, older, .. } = self.streams[at];
        let oldest = self.streams[self.newest].newer;
        if usize::from(oldest) == at {
            self.newest = at;
            return;
        }
        self.streams[usize::from(newer)].older = older;
        self.streams[usize::from(older)].newer = newer;
        self.streams[self.newest].newer = at as u8;
        self.streams[usize::from(oldest)].older = at as u8;
        let (newest, stream) = (self.newest as u8, &mut self.streams[at]);
        (stream.older, stream.newer) = (newest, oldest);
        self.newest = at;
    }
}

impl Stream {
    fn advance(&mut self, line: i64) {
        let step = (line - self.last).signum();
        if step == 0 {
            return;
        }
        if step == self.step {
            self.run += 1;
        } else {
            (self.step, self.run, self.ahead) = (step, 1, line);
        }
        self.last = line;
        if (line - self.ahead) * step > 0 {
            self.ahead = line;
        }
    }

    fn fetch(&mut self, degree: i64, distance: i64) -> Fetches {
        let lead = (self.ahead - self.last) * self.step;
        let edge = if self.step > 0 { LINES - 1 - self.ahead } else { self.ahead };
        let count = degree.min(distance - lead).min(edge).max(0);
        let first = self.page << PAGE_SHIFT | ((self.ahead + self.step) << LINE_SHIFT) as u64;
        let fetches = Fetches { next: first, step: self.step, count: count as u32 };
        self.ahead += count * self.step;
        if count == 0 { Fetches::default() } else { fetches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Streamer {
        let (pages, train, degree, distance) = (2, 2, 2, 4);
        Streamer { pages, train, degree, distance, source: "toy".into(), assumed: vec![] }
    }

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(&config())
    }

    fn lines(prefetcher: &mut Prefetcher, page: u64, line: u64) -> Vec<u64> {
        prefetcher.observe(page << 12 | line << 6).map(|at| (at >> 6) - page * 64).collect()
    }

    //   access  0  1  2  3  4        trained by the second step, two lines a time,
    //   fetch         3,4 5,6 7,8    at most four ahead
    #[test]
    fn runs_ahead_of_a_stream() {
        let mut p = prefetcher();
        let fetched: Vec<_> = (0..6).map(|line| lines(&mut p, 5, line)).collect();
        assert_eq!(fetched, [vec![], vec![], vec![3, 4], vec![5, 6], vec![7, 8], vec![9]]);
    }

    #[test]
    fn follows_backwards_and_stops_at_the_page() {
        let mut p = prefetcher();
        let fetched: Vec<_> = [4, 3, 2, 1, 0].map(|line| lines(&mut p, 5, line)).into();
        assert_eq!(fetched, [vec![], vec![], vec![1, 0], vec![], vec![]]);
    }

    #[test]
    fn the_page_used_longest_ago_is_forgotten() {
        let mut rng = tierscope_core::Rng::seeded(5);
        let mut config = config();
        config.pages = 7;
        let mut p = Prefetcher::new(&config);
        let mut followed: Vec<u64> = Vec::new();
        for _ in 0..10_000 {
            let page = rng.below(12) << 32 | rng.below(3);
            assert_eq!(p.find(page).is_some(), followed.contains(&page));
            p.observe(page << 12);
            followed.retain(|other| *other != page);
            followed.insert(0, page);
            followed.truncate(7);
        }
    }

    #[test]
    fn a_new_direction_or_page_restarts_training() {
        let mut p = prefetcher();
        for line in 0..3 {
            lines(&mut p, 5, line);
        }
        assert_eq!(lines(&mut p, 5, 1), [], "it turned");
        for page in [6, 7] {
            lines(&mut p, page, 0);
        }
        assert_eq!(lines(&mut p, 5, 0), [], "page 5 was forgotten");
    }
}
