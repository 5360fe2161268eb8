//! The telemetry device: registers in memory that the guest has mapped. A doorbell is handled by
//! the thread of the vCPU that rings it, before its next instruction. Layout:
//! [`tierscope_wire::device`].
//!
//! Every vCPU counts with its own copy of the rule table, under a lock of its own; a change of
//! rules takes all locks. So a removed rule never counts again, and vCPUs do not contend while
//! counting.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tierscope_wire::device as wire;
use tierscope_wire::device::{
    ARGUMENTS, Answer, B_ANSWER, B_ANSWERED, B_ARGUMENTS, B_REPLY, B_RESULT, BLOCK_WORDS, BLOCKS,
    Command, MAGIC, NOTICE_WORDS, NOTICES, REPLY_WORDS, RULE_WORDS, VERSION, W_BLOCKS, W_NOTICE,
    W_NOTICES, W_NOTICES_LOST, W_NOTICES_READ, W_RING_BYTES, W_RING_COUNT, W_RINGS, W_RULES,
    W_STATE, W_STATES, W_VERSION, decode,
};
use tierscope_wire::stats::{self, Block, Count, sum};

use crate::clock::Clock;
use crate::controllers::Telemetry;
use crate::counters::{Fired, RULES, Table};
use crate::interrupts::Interrupts;
use crate::tiers::Tiers;

/// Interrupt vector for notifications of triggers.
pub const NOTICE_VECTOR: usize = 0;

/// Context of commands, in addition to the device itself.
#[derive(Debug)]
pub struct Machine<'a> {
    /// Clock of the machine.
    pub clock: Clock,
    /// Latency and bandwidth of nodes, if that part is enabled.
    pub tiers: Option<&'a Tiers>,
    /// Counters of all vCPUs.
    pub stats: &'a [AtomicU64],
    /// Whether the device's counters are fed.
    pub counts: bool,
    /// Number of the address space that rings the doorbell, if known.
    pub space: Option<u8>,
}

/// The telemetry device.
#[derive(Debug)]
pub struct Device {
    region: &'static [AtomicU64],
    states: usize,
    tables: Vec<Mutex<Table>>,
    /// Whether any rule is installed; otherwise requests take no lock.
    ruled: AtomicBool,
    notices: Mutex<()>,
    interrupts: Interrupts,
    /// Programmable memory controllers, if the machine has any.
    controllers: Option<Telemetry>,
}

type Reply = Result<u64, Answer>;

impl Device {
    /// Initialises a device in the region for `cpus` vCPUs; the end of the region holds a ring of
    /// `ring_bytes` for each.
    ///
    /// # Errors
    /// The region is too small.
    pub fn new(
        region: &'static [AtomicU64],
        cpus: u32,
        ring_bytes: u64,
        interrupts: Interrupts,
    ) -> Result<Self, String> {
        let rings = cpus as usize * (ring_bytes / 8) as usize;
        let Some(states) = region.len().checked_sub(W_STATE + rings).filter(|states| *states > 0)
        else {
            return Err(format!("{} bytes are too few for the telemetry device", region.len() * 8));
        };
        region[..W_STATE + states].iter().for_each(|word| word.store(0, Relaxed));
        if rings > 0 {
            region[W_RINGS].store(((W_STATE + states) * 8) as u64, Relaxed);
            region[W_RING_BYTES].store(ring_bytes, Relaxed);
            region[W_RING_COUNT].store(cpus.into(), Relaxed);
        }
        region[W_VERSION].store(VERSION, Relaxed);
        region[W_STATES].store(states as u64, Relaxed);
        region[W_RULES].store(RULES as u64, Relaxed);
        region[0].store(MAGIC, Release);
        let tables = (0..cpus).map(|_| Mutex::new(Table::default())).collect();
        let ruled = AtomicBool::new(false);
        let (notices, controllers) = (Mutex::new(()), None);
        Ok(Self { region, states, tables, ruled, notices, interrupts, controllers })
    }

    /// Adds programmable memory controllers.
    #[must_use]
    pub fn with_controllers(self, controllers: Telemetry) -> Self {
        Self { controllers: Some(controllers), ..self }
    }

    /// The memory of a vCPU's ring of TLB misses, if the guest reads the rings.
    #[must_use]
    pub fn ring(&self, cpu: u32) -> Option<&'static [AtomicU64]> {
        wire::rings(self.region).get(cpu as usize).copied()
    }

    fn states(&self) -> &[AtomicU64] {
        &self.region[W_STATE..][..self.states]
    }

    fn table(&self, cpu: usize) -> MutexGuard<'_, Table> {
        self.tables[cpu].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rule tables of all vCPUs.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> Result<T, Answer>) -> Result<T, Answer> {
        let mut tables: Vec<_> = (0..self.tables.len()).map(|cpu| self.table(cpu)).collect();
        let (first, others) = tables.split_first_mut().ok_or(Answer::Off)?;
        let done = change(first)?;
        others.iter_mut().for_each(|table| (**table).clone_from(first));
        self.ruled.store(!first.is_empty(), Relaxed);
        Ok(done)
    }

    /// Counts a request of a vCPU.
    #[inline(always)]
    pub fn count(&self, cpu: u32, address: u64, write: bool, clock: &Clock, stats: Block) {
        if let Some(controllers) = &self.controllers
            && controllers.count(cpu, address, write, clock)
            && self.interrupts.raise(NOTICE_VECTOR)
        {
            stats.share(Count::Interrupts, 1);
        }
        if !self.ruled.load(Relaxed) {
            return;
        }
        let counted = self.table(cpu as usize).count(self.states(), address, write, |fired| {
            self.notify(fired, clock, stats);
        });
        stats.add(Count::Counted, counted);
    }

    #[cold]
    fn notify(&self, fired: Fired, clock: &Clock, stats: Block) {
        let _one_at_a_time = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let (head, tail) =
            (self.region[W_NOTICES].load(Relaxed), self.region[W_NOTICES_READ].load(Acquire));
        if head.wrapping_sub(tail) >= NOTICES {
            self.region[W_NOTICES_LOST].fetch_add(1, Relaxed);
            return;
        }
        let words = &self.region[W_NOTICE + (head % NOTICES) as usize * NOTICE_WORDS..];
        for (word, value) in
            words.iter().zip([fired.rule as u64, clock.now(), fired.state, fired.value])
        {
            word.store(value, Relaxed);
        }
        self.region[W_NOTICES].store(head + 1, Release);
        // Interrupt only if the driver had read all earlier notices.
        if head == tail && self.interrupts.raise(NOTICE_VECTOR) {
            stats.share(Count::Interrupts, 1);
        }
    }

    /// Handles a store of the guest to the byte `offset` of the region, if that is a doorbell.
    #[inline]
    pub fn stored(&self, offset: u64, machine: &Machine, stats: Block) {
        let word = (offset / 8) as usize;
        let block = word.wrapping_sub(W_BLOCKS);
        if block.is_multiple_of(BLOCK_WORDS) && block < BLOCKS * BLOCK_WORDS {
            self.answer(&self.region[word..][..BLOCK_WORDS], machine, stats);
        }
    }

    fn answer(&self, block: &[AtomicU64], machine: &Machine, stats: Block) {
        let arguments = std::array::from_fn(|n| block[B_ARGUMENTS + n].load(Relaxed));
        let (result, answer) = match Command::of(block[0].load(Acquire)) {
            None => (0, Answer::Unknown),
            Some(command) => {
                match self.perform(command, &arguments, &block[B_REPLY..], machine, stats) {
                    Ok(result) => (result, Answer::Done),
                    Err(answer) => (0, answer),
                }
            }
        };
        stats.share(Count::Doorbells, 1);
        block[B_RESULT].store(result, Relaxed);
        block[B_ANSWERED].fetch_add(1, Relaxed);
        block[B_ANSWER].store(answer as u64, Release);
    }

    fn perform(
        &self,
        command: Command,
        arguments: &[u64; ARGUMENTS],
        reply: &[AtomicU64],
        machine: &Machine,
        stats: Block,
    ) -> Reply {
        let [first, second, third, ..] = *arguments;
        let node = usize::try_from(first).map_err(|_| Answer::BadArgument);
        match command {
            Command::Ping => Ok(machine.clock.now()),
            Command::Register if !machine.counts => Err(Answer::Off),
            Command::Register => self.register(arguments, reply),
            Command::Unregister => self.change(|table| table.remove(first)).map(|()| 0),
            Command::Read => self.read(first, second, third, reply),
            Command::Interrupt => self.interrupt(first, machine, stats),
            Command::Latency => {
                let tiers = machine.tiers.ok_or(Answer::Off)?;
                tiers.set_latency(node?, second).ok_or(Answer::BadArgument)
            }
            Command::Bandwidth => {
                let tiers = machine.tiers.ok_or(Answer::Off)?;
                tiers.set_bandwidth(node?, second).ok_or(Answer::BadArgument)
            }
            Command::Count => {
                let which = Count::ALL.iter().find(|count| **count as u64 == first);
                which.map(|count| sum(machine.stats, *count)).ok_or(Answer::BadArgument)
            }
            Command::Switch => {
                let word = stats::switches(machine.stats).ok_or(Answer::Off)?;
                Ok(word.swap(first, Relaxed))
            }
            Command::Space => machine.space.map(u64::from).ok_or(Answer::Off),
            Command::Geometry
            | Command::Control
            | Command::Line
            | Command::Status
            | Command::Pending => {
                let controllers = self.controllers.as_ref().ok_or(Answer::Off)?;
                let (result, words) = controllers.perform(command, arguments)?;
                if controllers.is_due_now() && self.interrupts.raise(NOTICE_VECTOR) {
                    stats.share(Count::Interrupts, 1);
                }
                reply.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
                Ok(result)
            }
        }
    }

    fn register(&self, arguments: &[u64; ARGUMENTS], reply: &[AtomicU64]) -> Reply {
        let words: [u64; RULE_WORDS] = std::array::from_fn(|n| arguments[n]);
        let rule = decode(&words).ok_or(Answer::BadArgument)?;
        let states = self.states().len() as u64;
        self.change(|table| {
            let number = table.install(rule, states)? as u64;
            let installed = table.get(number).ok_or(Answer::Full)?;
            reply[0].store(installed.base, Relaxed);
            reply[1].store(installed.count, Relaxed);
            let own = &self.states()[installed.base as usize..][..installed.count as usize];
            own.iter().for_each(|state| state.store(0, Relaxed));
            Ok(number)
        })
    }

    fn read(&self, number: u64, first: u64, count: u64, reply: &[AtomicU64]) -> Reply {
        let installed = *self.table(0).get(number).ok_or(Answer::BadArgument)?;
        let end = first
            .checked_add(count)
            .filter(|end| *end <= installed.count)
            .ok_or(Answer::BadArgument)?;
        if count > REPLY_WORDS as u64 {
            return Err(Answer::BadArgument);
        }
        for (word, state) in reply.iter().zip(first..end) {
            word.store(installed.read(self.states(), state), Relaxed);
        }
        Ok(count)
    }

    fn interrupt(&self, vector: u64, machine: &Machine, stats: Block) -> Reply {
        let now = machine.clock.now();
        let raised = usize::try_from(vector).is_ok_and(|vector| self.interrupts.raise(vector));
        stats.share(Count::Interrupts, raised.into());
        if raised { Ok(now) } else { Err(Answer::Off) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{
        Compare, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Rule, Trigger,
    };
    use tierscope_wire::device::{Client, encode};
    use tierscope_wire::stats::BLOCK_WORDS as STAT_WORDS;

    struct Bench {
        device: Device,
        region: &'static [AtomicU64],
        stats: &'static [AtomicU64],
        clock: Clock,
        tiers: Tiers,
    }

    fn words(count: usize) -> &'static [AtomicU64] {
        (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
    }

    impl Bench {
        fn new() -> Self {
            let region = words(W_STATE + 1000);
            let device = Device::new(region, 2, 0, Interrupts::none()).unwrap();
            let tiers = Tiers::new(&[], 2);
            Self { device, region, stats: words(3 * STAT_WORDS), clock: Clock::start(), tiers }
        }

        fn block(&self) -> Block<'static> {
            Block::of(self.stats, 0).unwrap()
        }

        /// Rings the doorbell as a guest does, and passes the store to the device as the plugin
        /// does.
        fn ring(&self, command: u64, arguments: &[u64]) -> (Answer, u64) {
            let block = &self.region[W_BLOCKS + BLOCK_WORDS..][..BLOCK_WORDS];
            arguments
                .iter()
                .enumerate()
                .for_each(|(n, value)| block[B_ARGUMENTS + n].store(*value, Relaxed));
            block[0].store(command, Relaxed);
            let machine = Machine {
                clock: self.clock,
                tiers: Some(&self.tiers),
                stats: self.stats,
                counts: true,
                space: Some(3),
            };
            self.device.stored(((W_BLOCKS + BLOCK_WORDS) * 8) as u64, &machine, self.block());
            let answer = block[B_ANSWER].load(Relaxed);
            let all = [
                Answer::Done,
                Answer::Unknown,
                Answer::BadArgument,
                Answer::Unsupported,
                Answer::Full,
                Answer::Off,
            ];
            let answer = all.into_iter().find(|each| *each as u64 == answer).unwrap();
            (answer, block[B_RESULT].load(Relaxed))
        }

        fn count(&self, cpu: u32, address: u64) {
            self.device.count(cpu, address, false, &self.clock, self.block());
        }
    }

    fn per_page(pages: u64) -> Rule {
        Rule {
            filter: Filter { kind: RequestKind::All, start: 0, end: pages << 12 },
            key: Key { mask: u64::MAX, shift: 12 },
            offset: Key::NONE,
            update: (Operator::Add, Operand::Constant(1)),
            notify: Some(Trigger { compare: Compare::Equal, value: 2 }),
            on_read: ReadEffect::Reset(0),
        }
    }

    #[test]
    fn a_rule_counts_for_all_vcpus_until_its_removal() {
        let bench = Bench::new();
        assert_eq!(bench.ring(Command::Register as u64, &encode(&per_page(4))), (Answer::Done, 0));
        bench.count(0, 0x1000);
        bench.count(1, 0x1008);
        bench.count(1, 0x3000);
        assert_eq!(bench.ring(Command::Read as u64, &[0, 0, 4]), (Answer::Done, 4));
        let client = Client::attach(bench.region, 1).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| client.reply(n)), [0, 2, 0, 1]);
        let mut notices = Vec::new();
        client.notices(|notice| notices.push((notice.rule, notice.state, notice.value)));
        assert_eq!(notices, [(0, 1, 2)]);
        assert_eq!(bench.ring(Command::Unregister as u64, &[0]).0, Answer::Done);
        bench.count(0, 0x1000);
        assert_eq!(bench.ring(Command::Read as u64, &[0, 0, 1]).0, Answer::BadArgument);
        assert_eq!(bench.block().get(Count::Counted), 3);
    }

    #[test]
    fn rings_take_the_end_of_the_memory() {
        let region = words(W_STATE + 100);
        let device = Device::new(region, 2, 320, Interrupts::none()).unwrap();
        assert_eq!(device.states().len(), 20);
        assert_eq!(device.ring(1).map(<[AtomicU64]>::len), Some(40));
        assert_eq!(device.ring(1).unwrap().as_ptr(), &raw const region[W_STATE + 60]);
        assert!(device.ring(2).is_none());
        assert!(Device::new(region, 2, 400, Interrupts::none()).unwrap_err().contains("too few"));
    }

    #[test]
    fn malformed_requests_are_answered() {
        let bench = Bench::new();
        assert_eq!(bench.ring(99, &[]).0, Answer::Unknown);
        assert_eq!(bench.ring(Command::Register as u64, &[9; 15]).0, Answer::BadArgument);
        assert_eq!(bench.ring(Command::Register as u64, &encode(&per_page(1001))).0, Answer::Full);
        assert_eq!(bench.ring(Command::Register as u64, &encode(&per_page(1000))).0, Answer::Done);
        assert_eq!(bench.ring(Command::Read as u64, &[0, 999, 2]).0, Answer::BadArgument);
        assert_eq!(bench.ring(Command::Read as u64, &[0, u64::MAX, 2]).0, Answer::BadArgument);
        assert_eq!(
            bench.ring(Command::Read as u64, &[0, 0, REPLY_WORDS as u64 + 1]).0,
            Answer::BadArgument
        );
        assert_eq!(
            bench.ring(Command::Interrupt as u64, &[0]).0,
            Answer::Off,
            "no interrupt file is open"
        );
        assert_eq!(bench.ring(Command::Latency as u64, &[7, 1]).0, Answer::BadArgument);
        assert_eq!(bench.ring(Command::Count as u64, &[999]).0, Answer::BadArgument);
    }

    #[test]
    fn settings_are_changed_by_the_guest() {
        let bench = Bench::new();
        assert_eq!(bench.ring(Command::Latency as u64, &[1, 700]), (Answer::Done, 0));
        assert_eq!(bench.ring(Command::Latency as u64, &[1, 0]), (Answer::Done, 700));
        assert_eq!(bench.ring(Command::Bandwidth as u64, &[1, 64]), (Answer::Done, 0));
        let (answer, now) = bench.ring(Command::Ping as u64, &[]);
        assert!(answer == Answer::Done && now > 0);
        assert_eq!(
            bench.ring(Command::Count as u64, &[Count::Doorbells as u64]),
            (Answer::Done, 4)
        );
        assert_eq!(bench.ring(Command::Switch as u64, &[5]), (Answer::Done, 0));
        assert_eq!(bench.ring(Command::Switch as u64, &[0]), (Answer::Done, 5));
        assert_eq!(bench.ring(Command::Space as u64, &[]), (Answer::Done, 3));
    }

    #[test]
    fn stores_elsewhere_are_no_doorbells() {
        let bench = Bench::new();
        let machine = Machine {
            clock: bench.clock,
            tiers: None,
            stats: bench.stats,
            counts: false,
            space: None,
        };
        for offset in [0, 0x40, 0x2008, 0x1fff, 0xa000, u64::MAX] {
            bench.device.stored(offset, &machine, bench.block());
        }
        assert_eq!(bench.block().get(Count::Doorbells), 0);
    }

    #[test]
    fn notices_that_find_no_room_are_counted() {
        let bench = Bench::new();
        bench.ring(Command::Register as u64, &encode(&per_page(200)));
        (0..200u64).for_each(|page| (0..2).for_each(|_| bench.count(0, page << 12)));
        assert_eq!(bench.region[W_NOTICES].load(Relaxed), NOTICES);
        assert_eq!(bench.region[W_NOTICES_LOST].load(Relaxed), 200 - NOTICES);
    }
}
