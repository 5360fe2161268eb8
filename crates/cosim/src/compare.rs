//! Steps the cycle model and the circuit of a lane on the same inputs, and ends at the first cycle
//! in which an output differs.

use tierscope_core::{Result, Rng};
use tierscope_nemo::cycle::lane::Lane;
use tierscope_nemo::cycle::ports::{Granted, In, Out};
use tierscope_nemo::program::{Program, Slot};

use crate::coverage::{Coverage, Events};
use crate::defects::Defect;
use crate::lane::CircuitLane;
use crate::stream::{self, Scene};

/// Lines of a lane's states.
const LINES: u16 = 1024;

/// A difference, and the program that both had.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Requests that had entered the lane.
    pub request: u64,
    /// Cycles that had passed.
    pub cycle: u64,
    /// What differs, with the model's result first.
    pub what: String,
}

/// Result of a co-simulation.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first difference.
    pub difference: Option<Difference>,
    /// Programs that ran.
    pub programs: u64,
    /// What happened.
    pub events: Events,
    /// Options of the programs.
    pub coverage: Coverage,
}

/// Changes the program that only the model gets: a seeded defect of its side.
pub type Mutation = fn(&mut Program);

struct Pair {
    model: Lane,
    circuit: CircuitLane,
    mutation: Option<Mutation>,
    events: Events,
}

impl Pair {
    fn clock(&mut self, input: In) -> std::result::Result<Out, Difference> {
        let mut of_model = input;
        if let (Some(mutation), Some(Slot::Program(Some(program)))) =
            (self.mutation, &mut of_model.control)
        {
            mutation(program);
        }
        let out = self.model.clock(of_model);
        self.events.add(&out);
        let (model, circuit) = (out.to_bits(), self.circuit.clock(input));
        if model == circuit {
            return Ok(out);
        }
        Err(self.difference(format!("{model:x?}, {circuit:x?}")))
    }

    fn difference(&self, what: String) -> Difference {
        let Events { requests: request, cycles: cycle, .. } = self.events;
        Difference { request, cycle, what }
    }

    /// Clocks both with a control operation until it enters.
    fn control(&mut self, slot: Slot) -> std::result::Result<(), Difference> {
        while self.clock(In { request: None, control: Some(slot) })?.granted != Granted::Control {}
        Ok(())
    }

    fn drain(&mut self) -> std::result::Result<(), Difference> {
        while !self.model.is_idle() {
            self.clock(In::default())?;
        }
        match self.circuit.is_idle() {
            true => Ok(()),
            false => Err(self.difference("the circuit is not idle".into())),
        }
    }

    /// Requests and control operations at a random rate, up to one a cycle.
    fn requests(
        &mut self,
        scene: &Scene,
        rng: &mut Rng,
        cycles: u64,
    ) -> std::result::Result<(), Difference> {
        let rate = [20, 60, 95, 100, 100][rng.below(5) as usize];
        let controls = [10, 100, 1000][rng.below(3) as usize];
        let mut control = None;
        for time in 0..cycles {
            if control.is_none() && rng.below(controls) == 0 {
                control = Some(stream::slot(rng));
            }
            let request = (rng.below(100) < rate).then(|| scene.request(rng, time));
            if self.clock(In { request, control })?.granted == Granted::Control {
                control = None;
            }
        }
        Ok(())
    }

    /// Compares status and states, the latter through the ports: a line a cycle.
    fn check(&mut self) -> std::result::Result<(), Difference> {
        self.drain()?;
        let (model, circuit) = (self.model.status(), self.circuit.status());
        if model != circuit {
            return Err(self.difference(format!("status {model:?}, {circuit:?}")));
        }
        for line in 0..LINES {
            self.control(Slot::Load { line })?;
        }
        self.drain()
    }

    /// A program from its installation to the comparison of its states. Sometimes it is installed
    /// under load, and sometimes the lane is idle before.
    fn program(
        &mut self,
        scene: &Scene,
        rng: &mut Rng,
        cycles: u64,
    ) -> std::result::Result<(), Difference> {
        if rng.below(8) == 0 {
            self.control(Slot::Program(None))?;
            self.clock(In { request: Some(scene.request(rng, 0)), control: None })?;
            self.control(stream::slot(rng))?;
        }
        let load = rng.below(4) == 0;
        let program = Some(Slot::Program(Some(scene.program)));
        loop {
            let request = load.then(|| scene.request(rng, 0));
            if self.clock(In { request, control: program })?.granted == Granted::Control {
                break;
            }
        }
        self.drain()?;
        for _ in 0..16 {
            self.control(stream::translation(rng))?;
        }
        self.requests(scene, rng, cycles)?;
        self.check()
    }
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Seed of programs, requests and control operations.
    pub seed: u64,
    /// Channel of the lane: 0 has the home bank.
    pub channel: usize,
    /// Requests that enter the lane, at least.
    pub requests: u64,
    /// Cycles of each program under requests, without the 8,192 of its initialisation.
    pub cycles: u64,
    /// A defect of the circuit.
    pub defect: Option<&'a Defect>,
    /// A defect of the model.
    pub mutation: Option<Mutation>,
}

/// Runs random programs until the first difference, or until the requests have entered the lane.
///
/// # Errors
/// The circuit cannot be built or loaded.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let &Run { seed, channel, requests, cycles, defect, mutation } = run;
    let mut rng = Rng::seeded(seed);
    let circuit = CircuitLane::new(channel, defect)?;
    let mut pair = Pair { model: Lane::new(channel), circuit, mutation, events: Events::default() };
    let mut outcome = Outcome::default();
    while pair.events.requests < requests && outcome.difference.is_none() {
        let scene = Scene::new(&mut rng, outcome.programs);
        outcome.coverage.program(&scene.program, channel);
        outcome.programs += 1;
        outcome.difference = pair.program(&scene, &mut rng, cycles).err().map(|mut difference| {
            difference.what += &format!(" with {:?}", scene.program);
            difference
        });
    }
    pair.events.cover(&mut outcome.coverage);
    outcome.events = pair.events;
    Ok(outcome)
}
