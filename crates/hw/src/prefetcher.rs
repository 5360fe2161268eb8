//! A prefetcher that follows streams of lines inside of pages of 4 KiB.
//!
//! After the streamer of Intel's optimisation reference manual (248966, section on data
//! prefetching to L2 and LLC): it follows one stream a page for a number of pages, in either
//! direction, runs ahead of the program by a bounded number of lines, and never leaves the page.

use crate::config::Streamer;

const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 6;
const LINES: i64 = 64;

/// One page that is followed.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    page: u64,
    /// When it was last used; 0 = free.
    used: u64,
    /// The line last accessed.
    last: i64,
    /// +1, −1, or 0 as long as there is no direction.
    step: i64,
    /// Accesses in that direction.
    run: u32,
    /// The line fetched farthest ahead.
    ahead: i64,
}

/// The prefetcher of one last-level cache.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    streams: Vec<Stream>,
    train: u32,
    degree: i64,
    distance: i64,
    clock: u64,
}

/// Lines to fetch, nearest first: `count` of them from `next` on, by `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetches {
    next: u64,
    step: i64,
    count: u32,
}

impl Iterator for Fetches {
    type Item = u64;

    /// The first byte of the next line.
    fn next(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        let line = self.next;
        self.next = line.wrapping_add_signed(self.step << LINE_SHIFT);
        Some(line)
    }
}

impl Prefetcher {
    /// A prefetcher that has seen nothing.
    #[must_use]
    pub fn new(config: &Streamer) -> Self {
        Self {
            streams: vec![Stream::default(); config.pages as usize],
            train: config.train,
            degree: config.degree.into(),
            distance: config.distance.into(),
            clock: 0,
        }
    }

    /// Sees a demand access to a physical address and says what to fetch.
    #[inline]
    pub fn observe(&mut self, address: u64) -> Fetches {
        let (page, line) = (address >> PAGE_SHIFT, (address >> LINE_SHIFT) as i64 % LINES);
        self.clock += 1;
        let clock = self.clock;
        let Some(stream) = self.streams.iter_mut().find(|s| s.used != 0 && s.page == page) else {
            self.begin(page, line);
            return Fetches::default();
        };
        stream.used = clock;
        stream.advance(line);
        if stream.run < self.train {
            return Fetches::default();
        }
        stream.fetch(self.degree, self.distance)
    }

    fn begin(&mut self, page: u64, line: i64) {
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used);
        let stream = oldest.expect("a prefetcher follows at least one page");
        *stream = Stream { page, used: self.clock, last: line, ..Stream::default() };
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

    fn prefetcher() -> Prefetcher {
        Prefetcher::new(&Streamer {
            pages: 2,
            train: 2,
            degree: 2,
            distance: 4,
            source: "toy".into(),
            assumed: vec![],
        })
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
    fn a_turn_or_a_forgotten_page_starts_again() {
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
