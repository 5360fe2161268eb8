//! Section 5.2 of the paper: a program that visits its pages in order, so that every record of the
//! monitor can be predicted.

use std::sync::Arc;

use tierscope_core::Mappings;
use tierscope_sim::exact::Process;
use tierscope_tlb::ptat::{Block, Sink};
use tierscope_workloads::description::Pattern;
use tierscope_workloads::{Program, Stream, Touch, Work};

/// Number of addresses drawn at a time.
const DRAWN: usize = 512;

/// Compares the monitor's records with predicted ones.
pub(super) struct Sequence {
    /// An identical copy of the program's access stream.
    stream: Stream,
    drawn: Vec<Touch>,
    at: usize,
    seen: u64,
    right: u64,
}

impl Sequence {
    /// For a process that sweeps one area page by page; `None` for any other.
    pub(super) fn new(process: &Process, mappings: &Mappings) -> Option<Self> {
        let Work::Described(workload) = &process.work else { return None };
        let [phase] = &workload.phases[..] else { return None };
        let [access] = &phase.accesses[..] else { return None };
        let page = process.pages.bytes();
        let sweeps = matches!(access.pattern, Pattern::Sequential { stride } if stride == page);
        let base = mappings.mappings.first()?.range.start;
        let program = Arc::new(Program::new(workload));
        let mut stream = Stream::new(&program, &[base], process.seed, 0, 1);
        let drawn = first(&mut stream);
        sweeps.then_some(Self { stream, drawn, at: 0, seen: 0, right: 0 })
    }

    fn predict(&mut self) -> u64 {
        if self.at == self.drawn.len() {
            self.drawn = first(&mut self.stream);
            self.at = 0;
        }
        self.at += 1;
        self.drawn[self.at - 1].address()
    }

    /// Share of correct records among `accesses`, each to another page than the ones before, or
    /// among the records if there were more.
    pub(super) fn as_predicted(&self, accesses: u64) -> f64 {
        self.right as f64 / self.seen.max(accesses).max(1) as f64
    }
}

fn first(stream: &mut Stream) -> Vec<Touch> {
    let mut drawn = vec![Touch::default(); DRAWN];
    stream.fill(&mut drawn);
    drawn
}

impl Sink for Sequence {
    fn miss(&mut self, _: u64, block: &Block) {
        let address = self.predict();
        self.seen += 1;
        let holds = block
            .pages()
            .any(|page| (page.start()..page.start() + page.bytes()).contains(&address));
        self.right += u64::from(holds);
    }
}
