//! The memory accesses of a request, recorded before they are executed.

use std::collections::VecDeque;

use crate::Touch;

/// Bytes of a cache line: one access per line.
const LINE: u64 = 64;

/// Recorded accesses in order, as runs of lines.
#[derive(Debug, Default)]
pub(crate) struct AccessTrace {
    bases: Vec<u64>,
    runs: VecDeque<Run>,
}

/// One access to each cache line of an address range.
#[derive(Clone, Copy, Debug)]
struct Run {
    at: u64,
    end: u64,
    touch: fn(u64) -> Touch,
    /// Whether its address is known only when the run before has been read.
    depends: bool,
    /// Whether the run completes a request.
    last: bool,
}

impl AccessTrace {
    /// A trace for areas that begin at `bases`.
    pub(crate) fn new(bases: &[u64]) -> Self {
        Self { bases: bases.to_vec(), runs: VecDeque::new() }
    }

    /// Records reads of `bytes` bytes of an area, in ascending order of lines.
    pub(crate) fn read(&mut self, area: usize, from: u64, bytes: u64) {
        self.run(area, from, bytes, Touch::read);
    }

    /// Records writes of `bytes` bytes of an area.
    pub(crate) fn write(&mut self, area: usize, from: u64, bytes: u64) {
        self.run(area, from, bytes, Touch::write);
    }

    /// Records an atomic update of a word.
    pub(crate) fn update(&mut self, area: usize, from: u64) {
        self.run(area, from, 1, Touch::update);
    }

    fn run(&mut self, area: usize, from: u64, bytes: u64, touch: fn(u64) -> Touch) {
        let at = self.bases[area] + from;
        if bytes > 0 {
            self.runs.push_back(Run { at, end: at + bytes, touch, depends: true, last: false });
        }
    }

    /// Marks the last recorded run as the end of a request.
    pub(crate) fn end(&mut self) {
        self.runs.back_mut().expect("every request touches memory").last = true;
    }

    /// Removes and returns all remaining runs: first address, end, whether it writes.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<(u64, u64, bool)> {
        self.runs.drain(..).map(|run| (run.at, run.end, (run.touch)(0).writes())).collect()
    }

    /// Hands out accesses; returns their number, and the number of requests that they complete.
    pub(crate) fn fill(&mut self, out: &mut [Touch]) -> (usize, u64) {
        let (mut filled, mut ended) = (0, 0);
        while let Some(run) = self.runs.front_mut() {
            if filled == out.len() {
                break;
            }
            let touch = (run.touch)(run.at);
            let touch = if std::mem::take(&mut run.depends) { touch.depending() } else { touch };
            run.at = (run.at / LINE + 1) * LINE;
            let over = run.at >= run.end;
            let last = over && run.last;
            out[filled] = if last { touch.last() } else { touch };
            ended += u64::from(last);
            filled += 1;
            if over {
                self.runs.pop_front();
            }
        }
        (filled, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //  bytes 100..260:  |..64..|..128..|..192..|..256..|
    //                     ^100   ^128    ^192    ^256
    #[test]
    fn a_run_touches_every_line_once() {
        let mut trace = AccessTrace::new(&[0, 1 << 20]);
        trace.read(0, 100, 160);
        trace.update(1, 8);
        trace.end();
        let mut out = [Touch::default(); 3];
        assert_eq!(trace.fill(&mut out), (3, 0));
        assert_eq!(out.map(Touch::address), [100, 128, 192]);
        assert_eq!(trace.fill(&mut out), (2, 1));
        assert_eq!(out[0], Touch::read(256));
        assert_eq!(out[1], Touch::update((1 << 20) + 8).depending().last());
        assert_eq!(trace.fill(&mut out), (0, 0));
    }
}
