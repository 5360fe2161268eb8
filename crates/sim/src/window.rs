//! Memory-level parallelism of a core: the accesses that are under way at a time.
//!
//! A core dispatches an access in each `access_cycles`, in program order, until the oldest one that
//! has not retired is `window` accesses behind (its reorder buffer is full); then it stalls for
//! that one. An access needs its translation first: a walk occupies one of the `walkers` and reads
//! its entries one after another. Its line, if the private caches lack it, occupies one of the
//! `fill_buffers` until it arrives. A dependent access begins when the data of the one before has
//! arrived, an independent one when it is dispatched. A store retires before its line arrives, as
//! long as one of the `store_buffer` places is free. The prefetcher waits for at most `prefetches`
//! lines, and drops further requests; a line that is used before it has arrived is waited for.
//!
//! So independent misses overlap as far as buffers and window allow, dependent ones do not, and a
//! miss that is alone in its window is paid for almost in full. The unit of the window is an
//! access, not an instruction: work between accesses is part of `access_cycles`.
//!
//! Sources: Karkhanis and Smith, A first-order superscalar processor model (ISCA 2004), for stalls
//! behind a full reorder buffer; sizes: machine files.
//!
//! Left out: loads that replay, limits of load queue and scheduler, hyper-threads that share all of
//! these.

use tierscope_hw::config::Timing;

/// Fill buffers of a core, walkers, and places of its store buffer and window, at most.
pub(crate) const MOST: [u32; 4] = [64, 8, 128, 256];

/// Time in ps by which requests may begin after the dispatch of their access, at most.
const LEAD: u64 = 1_000_000;
const _: () = assert!(MOST[0] <= 64 && MOST[1] <= 64);

/// The accesses under way.
pub(crate) struct Window {
    /// Times at which the fill buffers, and the walkers, are free.
    buffers: [u64; MOST[0] as usize],
    walkers: [u64; MOST[1] as usize],
    /// Times at which the stores that follow the youngest, cyclically, leave the store buffer.
    stores: [u64; MOST[2] as usize],
    store: usize,
    store_buffer: usize,
    /// Loads that have not retired when they were dispatched, oldest first: number of the access,
    /// and time at which it and all before it have their data.
    loads: [(u64, u64); MOST[3] as usize],
    first: usize,
    held: usize,
    /// Lines that the prefetcher requested, and times at which they arrive.
    prefetched: [(u64, u64); MOST[0] as usize],
    /// Latest of these.
    arrives: u64,
    /// Size of the window.
    size: u64,
    /// Number of accesses dispatched.
    count: u64,
    /// Time at which all loads so far have their data.
    retired: u64,
    /// Time at which the last load has its data.
    last: u64,
    /// Time that the core stalled.
    pub(crate) stalled: u64,
}

/// Sizes of a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core {
    /// Lines and walks that a thread has under way at a time.
    pub(crate) buffers: usize,
    pub(crate) walkers: usize,
    pub(crate) window: u32,
    pub(crate) store_buffer: u32,
}

impl Core {
    /// All that the core has.
    pub(crate) fn of(timing: &Timing) -> Self {
        Self {
            buffers: timing.fill_buffers as usize,
            walkers: timing.walkers as usize,
            window: timing.window,
            store_buffer: timing.store_buffer,
        }
    }
}

impl Window {
    pub(crate) fn of(core: Core) -> Self {
        Self {
            buffers: [0; MOST[0] as usize],
            walkers: [0; MOST[1] as usize],
            stores: [0; MOST[2] as usize],
            store: 0,
            store_buffer: core.store_buffer as usize,
            loads: [(0, 0); MOST[3] as usize],
            first: 0,
            held: 0,
            prefetched: [(u64::MAX, 0); MOST[0] as usize],
            arrives: 0,
            size: core.window.into(),
            count: 0,
            retired: 0,
            last: 0,
            stalled: 0,
        }
    }

    /// Dispatches `accesses` from `time` on, `each` ps apart; returns the time after them.
    #[inline(always)]
    pub(crate) fn dispatch(&mut self, mut time: u64, accesses: u64, each: u64) -> u64 {
        while self.held > 0 {
            let (number, retires) = self.loads[self.first];
            let full = number + self.size;
            if full >= self.count + accesses {
                break;
            }
            let reached = time + full.saturating_sub(self.count) * each;
            let stall = retires.saturating_sub(reached);
            self.stalled += stall;
            time += stall;
            self.first = (self.first + 1) % self.loads.len();
            self.held -= 1;
        }
        self.count += accesses;
        time + accesses * each
    }

    /// The core does not dispatch further ahead of a request that begins at `at` than [`LEAD`]: it
    /// would take memory from cores whose requests are earlier. Only the one that waits is late.
    #[inline(always)]
    pub(crate) fn follow(&mut self, now: u64, at: u64) -> u64 {
        let least = at.saturating_sub(LEAD);
        self.stalled += least.saturating_sub(now);
        now.max(least)
    }

    /// Time from which on an access that is dispatched at `now` may translate.
    #[inline(always)]
    pub(crate) fn begins(&self, now: u64, depends: bool) -> u64 {
        if depends { now.max(self.last) } else { now }
    }

    /// The walker that is free first, of `walkers`, and the time from which on it is.
    #[inline(always)]
    pub(crate) fn walker(&self, walkers: usize) -> (usize, u64) {
        earliest(&self.walkers[..walkers])
    }

    /// A walker is busy until then.
    #[inline(always)]
    pub(crate) fn walks(&mut self, walker: usize, until: u64) {
        self.walkers[walker] = until;
    }

    /// The fill buffer that is free first, of `buffers`, and the time from which on it is.
    #[inline(always)]
    pub(crate) fn buffer(&self, buffers: usize) -> (usize, u64) {
        earliest(&self.buffers[..buffers])
    }

    /// A line arrives in a fill buffer then.
    #[inline(always)]
    pub(crate) fn fills(&mut self, buffer: usize, until: u64) {
        self.buffers[buffer] = until;
    }

    /// A free one of the prefetcher's `places`, for a line that it requests at `now`.
    #[inline(always)]
    pub(crate) fn prefetch_place(&self, now: u64, places: usize) -> Option<usize> {
        self.prefetched[..places].iter().position(|(_, arrives)| *arrives <= now)
    }

    /// A prefetched line arrives then.
    #[inline(always)]
    pub(crate) fn prefetches(&mut self, place: usize, line: u64, arrives: u64) {
        self.prefetched[place] = (line, arrives);
        self.arrives = self.arrives.max(arrives);
    }

    /// Time at which a cached line is there, if it is used at `now`.
    #[inline(always)]
    pub(crate) fn arrival(&self, line: u64, now: u64) -> u64 {
        if self.arrives <= now {
            return now;
        }
        let found = self.prefetched.iter().find(|(known, _)| *known == line);
        found.map_or(now, |(_, arrives)| now.max(*arrives))
    }

    /// The load that is being dispatched has its data at `done`.
    #[inline(always)]
    pub(crate) fn load(&mut self, now: u64, done: u64) {
        self.last = done;
        self.retired = self.retired.max(done);
        if self.retired > now {
            let at = (self.first + self.held) % self.loads.len();
            self.loads[at] = (self.count, self.retired);
            self.held += 1;
        }
    }

    /// The store that is being dispatched has its line at `done`; returns the time at which there
    /// is a place for it.
    #[inline(always)]
    pub(crate) fn store(&mut self, now: u64, done: u64) -> u64 {
        let place = &mut self.stores[self.store];
        let now = if *place > now {
            self.stalled += *place - now;
            *place
        } else {
            now
        };
        *place = done;
        self.store = if self.store + 1 < self.store_buffer { self.store + 1 } else { 0 };
        now
    }

    /// Waits until all accesses have their data; returns the time.
    pub(crate) fn drain(&mut self, now: u64) -> u64 {
        self.held = 0;
        let stores = self.stores.iter().copied().max().unwrap_or(0);
        let done = self.retired.max(stores).max(now);
        self.stalled += done - now;
        done
    }
}

/// Index and value of the smallest of at most 64 elements: the first of them.
#[inline(always)]
fn earliest(times: &[u64]) -> (usize, u64) {
    // Times of up to 80 hours.
    let with_index = |(at, time): (usize, &u64)| time << 6 | at as u64;
    let least = times.iter().enumerate().map(with_index).fold(u64::MAX, u64::min);
    ((least & 63) as usize, least >> 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u64 = 1;

    /// A window of 4 accesses, and a store buffer of 2.
    fn window() -> Window {
        Window::of(Core { buffers: 8, walkers: 2, window: 4, store_buffer: 2 })
    }

    /// Dispatches loads of lines that take 100, with `buffers`; returns the time after them.
    fn loads(window: &mut Window, count: u64, (buffers, depends): (usize, bool)) -> u64 {
        let mut time = 0;
        for _ in 0..count {
            let at = window.begins(time, depends);
            let (buffer, free) = window.buffer(buffers);
            let done = at.max(free) + 100;
            window.fills(buffer, done);
            window.load(time, done);
            time = window.dispatch(time, 1, EACH);
        }
        window.drain(time)
    }

    // Eight misses: one after another 800; four at a time, as many as the window holds, about 200.
    #[test]
    fn independent_misses_overlap_as_far_as_buffers_and_window_allow() {
        assert_eq!(loads(&mut window(), 8, (8, true)), 800);
        assert_eq!(loads(&mut window(), 8, (1, false)), 800);
        let four = loads(&mut window(), 8, (8, false));
        assert!((200..210).contains(&four), "{four}");
        let two = loads(&mut window(), 8, (2, false));
        assert!((400..410).contains(&two), "{two}");
    }

    // A miss alone: three more accesses are dispatched, the fourth waits until it has retired.
    #[test]
    fn hits_hide_a_miss_as_far_as_the_window_reaches() {
        let mut window = window();
        window.load(0, 100);
        let time = window.dispatch(0, 4, EACH);
        assert_eq!((time, window.stalled), (4, 0));
        assert_eq!(window.dispatch(time, 1, EACH), 101);
        assert_eq!(window.dispatch(101, 50, EACH), 151);
    }

    #[test]
    fn a_prefetched_line_is_waited_for_and_places_are_few() {
        let mut window = window();
        for line in [7, 8] {
            let place = window.prefetch_place(0, 2).expect("two places");
            window.prefetches(place, line, 100 + line);
        }
        assert_eq!(window.prefetch_place(0, 2), None);
        assert_eq!([7, 8, 9].map(|line| window.arrival(line, 50)), [107, 108, 50]);
        assert_eq!(window.arrival(7, 200), 200);
        assert!(window.prefetch_place(107, 2).is_some());
    }

    #[test]
    fn stores_wait_for_a_place_only() {
        let mut window = window();
        let times = [0, 1, 2].map(|now| window.store(now, now + 100));
        assert_eq!(times, [0, 1, 100]);
        assert_eq!(window.drain(100), 102);
    }
}
