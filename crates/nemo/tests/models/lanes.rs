//! A lane of the cycle model compared with a functional pipeline: operations granted by the lane,
//! in its order, have the same results in the pipeline.

use std::collections::VecDeque;

use tierscope_core::Rng;
use tierscope_nemo::cycle::lane::Lane;
use tierscope_nemo::cycle::ports::{Granted, In, Out};
use tierscope_nemo::functional::Pipeline;
use tierscope_nemo::program::Slot;

use super::{operations, stream};

const CHANNELS: usize = 2;

struct Pair {
    lane: Lane,
    pipeline: Pipeline,
    channel: usize,
    /// Results of the pipeline that the lane has yet to deliver.
    taken: VecDeque<u64>,
    ended: VecDeque<u64>,
    dropped: u64,
}

impl Pair {
    fn new(channel: usize) -> Self {
        Self {
            lane: Lane::new(channel),
            pipeline: Pipeline::new(CHANNELS),
            channel,
            taken: VecDeque::new(),
            ended: VecDeque::new(),
            dropped: 0,
        }
    }

    fn clock(&mut self, input: In) -> Out {
        let out = self.lane.clock(input);
        match out.granted {
            Granted::None => {}
            Granted::Request(request) => {
                self.ended.extend(self.pipeline.request(self.channel, request.record, 0));
            }
            Granted::Control => {
                let slot = input.control.expect("it was granted");
                let programmed = self.pipeline.program().is_some();
                if let Slot::Program(_) = slot {
                    self.dropped = 0;
                }
                let taken = self.pipeline.slot(self.channel, slot);
                self.taken.extend(taken.filter(|_| programmed));
            }
        }
        self.dropped += u64::from(out.dropped);
        if let Some(word) = out.taken {
            assert_eq!(self.taken.pop_front(), Some(word));
        }
        if let Some(ended) = out.ended {
            assert_eq!(self.ended.pop_front(), Some(ended.value));
        }
        out
    }

    fn drain(&mut self) {
        while !self.lane.is_idle() {
            self.clock(In::default());
        }
    }

    /// Compares all externally visible state.
    fn check(&mut self) {
        self.drain();
        assert!(self.taken.is_empty() && self.ended.is_empty());
        let (lane, pipeline) = (self.lane.status(), self.pipeline.status(self.channel));
        assert_eq!((lane.wrapped, lane.hint), (pipeline.wrapped, pipeline.hint));
        assert_eq!(lane.dropped, self.dropped);
        for word in 0..8192 {
            assert_eq!(self.lane.word(word), self.pipeline.word(self.channel, word), "word {word}");
        }
    }
}

fn slot(rng: &mut Rng) -> Slot {
    match rng.below(8) {
        0 => Slot::Acknowledge,
        1 | 2 => Slot::Translate(rng.below(stream::KEYS) as u16, stream::base(rng)),
        3 => Slot::Take { word: rng.below(8192) as u16, lanes: 0 },
        _ => Slot::Take { word: rng.below(4) as u16, lanes: rng.next_u64() as u8 },
    }
}

/// A cycle's input; the share of cycles with a request varies up to 100 %.
fn input(rng: &mut Rng, rate: u64, time: u64, control: &mut Option<Slot>) -> In {
    if control.is_none() && rng.below(10) == 0 {
        *control = Some(slot(rng));
    }
    let request = (rng.below(100) < rate).then(|| stream::request(rng, time).into());
    In { request, control: *control }
}

#[test]
fn a_lane_equals_a_pipeline() {
    let mut rng = Rng::seeded(81);
    let (mut done, mut dropped, mut hints) = (0, 0, 0);
    while done < operations() {
        let mut pair = Pair::new((done % 2) as usize);
        let program = Slot::Program(Some(stream::program(&mut rng)));
        while pair.clock(In { request: None, control: Some(program) }).granted != Granted::Control {
        }
        pair.drain();
        let rate = [20, 60, 95, 100][rng.below(4) as usize];
        let mut control = None;
        for time in 0..20_000 {
            let out = pair.clock(input(&mut rng, rate, time, &mut control));
            done += u64::from(out.granted != Granted::None);
            if out.granted == Granted::Control {
                control = None;
            }
        }
        pair.check();
        dropped += pair.lane.status().dropped;
        hints += u64::from(pair.lane.status().hint.is_some());
    }
    // The run covered drops and hints.
    assert!(dropped > 0 && hints > 0, "{dropped} dropped, {hints} hints");
}

#[test]
fn programs_change_under_load() {
    let mut rng = Rng::seeded(82);
    let mut pair = Pair::new(1);
    for _ in 0..20 {
        let program = (rng.below(4) != 0).then(|| stream::program(&mut rng));
        let mut control = Some(Slot::Program(program));
        for time in 0..9000 {
            let request = Some(stream::request(&mut rng, time).into());
            if pair.clock(In { request, control }).granted == Granted::Control {
                control = None;
            }
            if control.is_none() && time > 8300 && rng.below(9) == 0 {
                control = Some(slot(&mut rng));
            }
        }
        // Requests that were not granted have no effect.
        pair.check();
    }
}

/// Requests are never delayed, whatever the program: each enters in the cycle of its arrival, and
/// if it matches its update completes two cycles later.
#[test]
fn no_program_delays_a_request() {
    let mut rng = Rng::seeded(83);
    for _ in 0..100 {
        let mut pair = Pair::new(0);
        let program = Slot::Program(Some(stream::program(&mut rng)));
        while pair.clock(In { request: None, control: Some(program) }).granted != Granted::Control {
        }
        pair.drain();
        for key in 0..stream::KEYS as u16 {
            let control = Some(Slot::Translate(key, stream::base(&mut rng)));
            assert_eq!(pair.clock(In { request: None, control }).granted, Granted::Control);
        }
        pair.drain();
        let mut entered = VecDeque::from([None, None]);
        for time in 0..500 {
            let request = stream::request(&mut rng, time).into();
            let out = pair.clock(In { request: Some(request), control: None });
            assert_eq!((out.granted, out.dropped), (Granted::Request(request), false));
            entered.push_back(Some(request));
            let due = entered.pop_front().expect("two are under way");
            assert!(out.ended.is_none_or(|ended| Some(ended.request) == due));
        }
        pair.check();
    }
}
