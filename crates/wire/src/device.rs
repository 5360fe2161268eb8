//! The telemetry device of the instrumented virtual machine, as a guest sees it: one region of shared memory (BAR 2
//! of a PCI device) with registers, command blocks and states.
//!
//! Words of 64 bits, little-endian. Byte offsets:
//!
//! ```text
//!   0x0000  magic    0x0008 version    0x0010 states there are    0x0018 rules there may be
//!   0x0020  first byte of the rings of TLB misses, 0 for none    0x0028 bytes of each    0x0030 how many
//!   0x0040  notices written, by the device    0x0048 notices that found no room
//!   0x0080  notices read, by the driver
//!   0x1000  128 notices of four words: rule, nanoseconds, state, its value
//!   0x2000  eight command blocks of 4 KiB:
//!             word 0 doorbell   word 1 answer   word 2 result   word 3 doorbells answered
//!             words 8..56 arguments   words 56..512 reply
//!   0xa000  the states, a word each; behind them the rings ([`crate::ring`]), one a CPU
//! ```
//!
//! A client takes a block for itself, writes arguments, then the command into the doorbell; the device answers
//! before the next instruction of that CPU. States may also be read where they lie: that has no effect on them.
//!
//! Commands and what they take: [`Command`]. A rule is laid out by [`encode`]. A device counts in two ways: rules whose
//! keys select states in their order lie among the states ([`Command::Register`]); programmable controllers have
//! registers of their own ([`Command::Geometry`] and what follows it), which `nemo` knows.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tierscope_core::{
    Compare, Error, ErrorKind, Filter, Key, Operand, Operator, ReadEffect, RequestField,
    RequestKind, Result, Rule, Trigger,
};

/// First word of a device that is there.
pub const MAGIC: u64 = u64::from_be_bytes(*b"tsdevice");
/// Of this layout.
pub const VERSION: u64 = 2;
/// Words by their place.
pub const W_VERSION: usize = 1;
/// States that there are.
pub const W_STATES: usize = 2;
/// Rules that there may be.
pub const W_RULES: usize = 3;
/// First byte of the rings of TLB misses.
pub const W_RINGS: usize = 4;
/// Bytes of each ring.
pub const W_RING_BYTES: usize = 5;
/// How many rings.
pub const W_RING_COUNT: usize = 6;
/// Notices written.
pub const W_NOTICES: usize = 8;
/// Notices that found no room.
pub const W_NOTICES_LOST: usize = 9;
/// Notices read.
pub const W_NOTICES_READ: usize = 16;
/// The notices.
pub const W_NOTICE: usize = 0x1000 / 8;
/// Notices that there is room for.
pub const NOTICES: u64 = 128;
/// Words of a notice.
pub const NOTICE_WORDS: usize = 4;
/// The command blocks.
pub const W_BLOCKS: usize = 0x2000 / 8;
/// Words of one.
pub const BLOCK_WORDS: usize = 512;
/// How many.
pub const BLOCKS: usize = 8;
/// Within a block: what the device said.
pub const B_ANSWER: usize = 1;
/// Within a block: the result.
pub const B_RESULT: usize = 2;
/// Within a block: doorbells answered.
pub const B_ANSWERED: usize = 3;
/// Within a block: arguments.
pub const B_ARGUMENTS: usize = 8;
/// How many of them.
pub const ARGUMENTS: usize = 48;
/// Within a block: the reply.
pub const B_REPLY: usize = 56;
/// Words of it.
pub const REPLY_WORDS: usize = BLOCK_WORDS - B_REPLY;
/// The states.
pub const W_STATE: usize = 0xa000 / 8;

/// Vendor and device of the PCI function that carries it (ivshmem of QEMU: docs/specs/pci-ids.txt).
pub const PCI_ID: (u16, u16) = (0x1af4, 0x1110);

/// Interrupt vectors that the guest sees.
pub const VECTORS: usize = 2;

/// What a doorbell may be rung with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Command {
    /// Nothing. Result: the device's clock in nanoseconds.
    Ping = 1,
    /// Install a rule, arguments as [`encode`] lays it out. Result: its number; reply: its first state, how many.
    Register = 2,
    /// Remove rule (number).
    Unregister = 3,
    /// Read states (number, first, how many, at most [`REPLY_WORDS`]) into the reply, with the rule's effect.
    Read = 4,
    /// Raise an interrupt (vector). Result: the clock at that moment.
    Interrupt = 5,
    /// Nanoseconds that misses on a node take longer (node, nanoseconds). Result: what it was.
    Latency = 6,
    /// MiB a second of a node (node, MiB/s, 0 for no limit). Result: what it was.
    Bandwidth = 7,
    /// A count of [`crate::stats`] over all CPUs (which). Result: it.
    Count = 8,
    /// Switches parts off (bits of [`crate::stats::Switch`]); all others are on. Result: the bits as they were.
    Switch = 9,
    /// Number of the address space that rings, as records of accesses have it. Result: it.
    Space = 10,
    /// What the programmable controllers carry and serve. Reply: pipelines, channels, banks; how many zones of memory;
    /// of each its start, end, first controller, controllers, granule.
    Geometry = 11,
    /// Writes to control registers (controller, pipeline, words of `nemo::registers`).
    Control = 12,
    /// Loads a line of a controller's telemetry region (controller, line). Reply: its eight words.
    Line = 13,
    /// Reads status registers (controller, pipeline, channel). Reply: requests dropped, whether a counter wrapped,
    /// whether there is a hint; its state, value, nanoseconds, how many more.
    Status = 14,
    /// Pipelines of a controller that hold a hint (controller). Result: a bit each.
    Pending = 15,
}

impl Command {
    /// The command of that number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        use Command::{
            Bandwidth, Control, Count, Geometry, Interrupt, Latency, Line, Pending, Ping, Read,
            Register, Space, Status, Switch, Unregister,
        };
        let all = [
            Ping, Register, Unregister, Read, Interrupt, Latency, Bandwidth, Count, Switch, Space,
            Geometry, Control, Line, Status, Pending,
        ];
        all.into_iter().find(|command| *command as u64 == number)
    }
}

/// What the device says to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Answer {
    /// Nothing yet.
    Waiting = 0,
    /// It is done.
    Done = 1,
    /// No such command.
    Unknown = 2,
    /// An argument is out of range.
    BadArgument = 3,
    /// This device cannot do what the rule asks.
    Unsupported = 4,
    /// No rule or states are left.
    Full = 5,
    /// A part that the command needs is off in this machine.
    Off = 6,
}

impl Answer {
    fn of(number: u64) -> Option<Self> {
        use Answer::{BadArgument, Done, Full, Off, Unknown, Unsupported, Waiting};
        let all = [Waiting, Done, Unknown, BadArgument, Unsupported, Full, Off];
        all.into_iter().find(|answer| *answer as u64 == number)
    }

    fn cause(self) -> &'static str {
        match self {
            Answer::Waiting => "it did not answer",
            Answer::Done => "it is done",
            Answer::Unknown => "it does not know the command",
            Answer::BadArgument => "an argument is out of range",
            Answer::Unsupported => "it cannot do what the rule asks",
            Answer::Full => "no rule or not as many states are left",
            Answer::Off => "the part that it needs is off in this machine",
        }
    }
}

/// Words of a rule.
pub const RULE_WORDS: usize = 15;

const OPERATORS: [Operator; 5] =
    [Operator::Add, Operator::Subtract, Operator::ShiftLeft, Operator::ShiftRight, Operator::Xor];
const FIELDS: [RequestField; 4] =
    [RequestField::Address, RequestField::IsWrite, RequestField::Length, RequestField::Requester];
const COMPARES: [Compare; 5] =
    [Compare::Equal, Compare::AtLeast, Compare::Above, Compare::Below, Compare::AtMost];
const KINDS: [RequestKind; 3] = [RequestKind::Read, RequestKind::Write, RequestKind::All];

fn number_of<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|each| each == one).map_or(0, |at| at as u64)
}

fn pick<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

/// A rule as words: kind (0 reads, 1 writes, 2 all), start, end; key mask, shift; offset mask, shift; operator
/// (0 +, 1 −, 2 <<, 3 >>, 4 ^), operand (0 a constant, 1.. the request's address, write, length, requester), its
/// value; predicate (0 none, 1 ==, 2 >=, 3 >, 4 <, 5 <=), its value; effect of a read (0 none, 1 reset, 2.. an
/// operator), its value; zero.
#[must_use]
pub fn encode(rule: &Rule) -> [u64; RULE_WORDS] {
    let (operator, operand) = rule.update;
    let (operand, value) = match operand {
        Operand::Constant(value) => (0, value),
        Operand::Field(field) => (1 + number_of(&FIELDS, &field), 0),
    };
    let (compare, threshold) = match rule.notify {
        None => (0, 0),
        Some(Trigger { compare, value }) => (1 + number_of(&COMPARES, &compare), value),
    };
    let (effect, by) = match rule.on_read {
        ReadEffect::Keep => (0, 0),
        ReadEffect::Reset(value) => (1, value),
        ReadEffect::Apply(operator, value) => (2 + number_of(&OPERATORS, &operator), value),
    };
    [
        number_of(&KINDS, &rule.filter.kind),
        rule.filter.start,
        rule.filter.end,
        rule.key.mask,
        rule.key.shift.into(),
        rule.offset.mask,
        rule.offset.shift.into(),
        number_of(&OPERATORS, &operator),
        operand,
        value,
        compare,
        threshold,
        effect,
        by,
        0,
    ]
}

/// The rule that words are; `None` if no rule looks like that.
#[must_use]
pub fn decode(words: &[u64; RULE_WORDS]) -> Option<Rule> {
    let key =
        |mask, shift: u64| Some(Key { mask, shift: u8::try_from(shift).ok().filter(|s| *s < 64)? });
    let operand = match words[8] {
        0 => Operand::Constant(words[9]),
        field => Operand::Field(pick(&FIELDS, field - 1)?),
    };
    let notify = match words[10] {
        0 => None,
        number => Some(Trigger { compare: pick(&COMPARES, number - 1)?, value: words[11] }),
    };
    let on_read = match words[12] {
        0 => ReadEffect::Keep,
        1 => ReadEffect::Reset(words[13]),
        operator => ReadEffect::Apply(pick(&OPERATORS, operator - 2)?, words[13]),
    };
    let filter = Filter { kind: pick(&KINDS, words[0])?, start: words[1], end: words[2] };
    Some(Rule {
        filter,
        key: key(words[3], words[4])?,
        offset: key(words[5], words[6])?,
        update: (pick(&OPERATORS, words[7])?, operand),
        notify,
        on_read,
    })
}

/// The rings of TLB misses in a device's memory; none if it has none, or they do not fit.
#[must_use]
pub fn rings(region: &[AtomicU64]) -> Vec<&[AtomicU64]> {
    let word = |at: usize| region.get(at).map_or(0, |word| word.load(Acquire) as usize);
    let (first, words) = (word(W_RINGS) / 8, word(W_RING_BYTES) / 8);
    if first < W_STATE || words == 0 {
        return Vec::new();
    }
    let ring = |number: usize| region.get(first + number * words..)?.get(..words);
    (0..word(W_RING_COUNT)).map_while(ring).collect()
}

/// A notice as the device writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawNotice {
    /// The rule's number.
    pub rule: u64,
    /// Nanoseconds of the device's clock.
    pub nanos: u64,
    /// Which of the rule's states.
    pub state: u64,
    /// What it had become.
    pub value: u64,
}

/// A guest's side: one command block of the device.
#[derive(Debug)]
pub struct Client<'a> {
    region: &'a [AtomicU64],
    block: &'a [AtomicU64],
}

impl<'a> Client<'a> {
    /// Uses the command block of that number, which nobody else may use meanwhile.
    ///
    /// # Errors
    /// The region holds no device, one of another version, or not so many blocks.
    pub fn attach(region: &'a [AtomicU64], block: usize) -> Result<Self> {
        let there = region.len() > W_STATE && region[0].load(Acquire) == MAGIC;
        if !there {
            return Err(Error::new(ErrorKind::Missing, "cannot use the telemetry device")
                .cause("the shared memory holds none")
                .remedy("start the machine with part `device`"));
        }
        match region[W_VERSION].load(Relaxed) {
            VERSION if block < BLOCKS => {
                let first = W_BLOCKS + block * BLOCK_WORDS;
                Ok(Self { region, block: &region[first..first + BLOCK_WORDS] })
            }
            VERSION => Err(Error::new(ErrorKind::Usage, "cannot use the telemetry device")
                .cause(format!("it has {BLOCKS} command blocks, not {block} and more"))),
            other => Err(Error::new(ErrorKind::Version, "cannot use the telemetry device")
                .cause(format!("its layout is {other}, not {VERSION}"))
                .remedy("use machine and guest programs of one build")),
        }
    }

    /// States that there are.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.region[W_STATES].load(Relaxed)
    }

    /// Rings the doorbell and returns the result.
    ///
    /// # Errors
    /// What the device says.
    pub fn ring(&self, command: Command, arguments: &[u64]) -> Result<u64> {
        for (word, argument) in self.block[B_ARGUMENTS..][..ARGUMENTS].iter().zip(arguments) {
            word.store(*argument, Relaxed);
        }
        self.block[B_ANSWER].store(Answer::Waiting as u64, Relaxed);
        self.block[0].store(command as u64, Release);
        let answer = Answer::of(self.block[B_ANSWER].load(Acquire)).unwrap_or(Answer::Waiting);
        if answer == Answer::Done {
            return Ok(self.block[B_RESULT].load(Relaxed));
        }
        Err(Error::new(ErrorKind::Missing, format!("the telemetry device refused {command:?}"))
            .cause(answer.cause()))
    }

    /// A word of the reply.
    #[must_use]
    pub fn reply(&self, at: usize) -> u64 {
        self.block[B_REPLY..][..REPLY_WORDS].get(at).map_or(0, |word| word.load(Relaxed))
    }

    /// Reads states of a rule from `first` on, with the rule's effect on them.
    ///
    /// # Errors
    /// What the device says.
    pub fn read(&self, rule: u64, first: u64, out: &mut [u64]) -> Result<()> {
        for (part, states) in out.chunks_mut(REPLY_WORDS).enumerate() {
            let from = first + (part * REPLY_WORDS) as u64;
            self.ring(Command::Read, &[rule, from, states.len() as u64])?;
            states.iter_mut().enumerate().for_each(|(at, state)| *state = self.reply(at));
        }
        Ok(())
    }

    /// Takes the notices that are there. Only one client may.
    pub fn notices(&self, mut each: impl FnMut(RawNotice)) {
        let head = self.region[W_NOTICES].load(Acquire);
        let tail = self.region[W_NOTICES_READ].load(Relaxed);
        for number in tail.max(head.saturating_sub(NOTICES))..head {
            let words = &self.region[W_NOTICE + (number % NOTICES) as usize * NOTICE_WORDS..];
            let [rule, nanos, state, value] = std::array::from_fn(|n| words[n].load(Relaxed));
            each(RawNotice { rule, nanos, state, value });
        }
        self.region[W_NOTICES_READ].store(head, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_rule() -> impl Strategy<Value = Rule> {
        let key = || (any::<u64>(), 0u8..64).prop_map(|(mask, shift)| Key { mask, shift });
        let operand = prop_oneof![
            any::<u64>().prop_map(Operand::Constant),
            (0..4usize).prop_map(|n| Operand::Field(FIELDS[n]))
        ];
        let notify = proptest::option::of((0..5usize, any::<u64>()));
        let on_read = prop_oneof![
            Just(ReadEffect::Keep),
            any::<u64>().prop_map(ReadEffect::Reset),
            (0..5usize, any::<u64>()).prop_map(|(n, v)| ReadEffect::Apply(OPERATORS[n], v))
        ];
        let filter = (0..3usize, any::<u64>(), any::<u64>());
        (filter, key(), key(), 0..5usize, operand, notify, on_read).prop_map(
            |((kind, start, end), key, offset, operator, operand, notify, on_read)| Rule {
                filter: Filter { kind: KINDS[kind], start, end },
                key,
                offset,
                update: (OPERATORS[operator], operand),
                notify: notify.map(|(n, value)| Trigger { compare: COMPARES[n], value }),
                on_read,
            },
        )
    }

    proptest! {
        #[test]
        fn rules_come_back(rule in any_rule()) {
            prop_assert_eq!(decode(&encode(&rule)), Some(rule));
        }

        #[test]
        fn no_words_are_too_strange(words in any::<[u64; RULE_WORDS]>()) {
            let _ = decode(&words);
        }
    }

    fn region() -> Vec<AtomicU64> {
        (0..W_STATE + 8).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn every_command_is_known_by_its_number() {
        let numbers: Vec<u64> = (0..20).filter(|n| Command::of(*n).is_some()).collect();
        assert_eq!(numbers, (1..=Command::Pending as u64).collect::<Vec<_>>());
        assert!((1..=15).all(|n| Command::of(n).is_some_and(|command| command as u64 == n)));
    }

    #[test]
    fn a_device_that_is_not_there_is_told() {
        let region = region();
        assert!(Client::attach(&region, 0).unwrap_err().to_string().contains("part `device`"));
        region[0].store(MAGIC, Relaxed);
        region[W_VERSION].store(7, Relaxed);
        assert_eq!(Client::attach(&region, 0).unwrap_err().kind(), ErrorKind::Version);
        region[W_VERSION].store(VERSION, Relaxed);
        assert!(Client::attach(&region, BLOCKS).is_err());
        let client = Client::attach(&region, BLOCKS - 1).unwrap();
        let silent = client.ring(Command::Ping, &[]).unwrap_err().to_string();
        assert!(silent.contains("did not answer"), "{silent}");
    }

    #[test]
    fn rings_lie_where_the_registers_say() {
        let region: Vec<AtomicU64> = (0..W_STATE + 40).map(|_| AtomicU64::new(0)).collect();
        assert!(rings(&region).is_empty());
        let set = |at: usize, value: usize| region[at].store(value as u64, Relaxed);
        set(W_RINGS, (W_STATE + 8) * 8);
        set(W_RING_BYTES, 16 * 8);
        set(W_RING_COUNT, 2);
        let found: Vec<usize> = rings(&region).iter().map(|ring| ring.len()).collect();
        assert_eq!(found, [16, 16]);
        set(W_RING_COUNT, 9);
        assert_eq!(rings(&region).len(), 2, "what does not fit is not there");
        set(W_RINGS, 8);
        assert!(rings(&region).is_empty(), "not among the registers");
    }

    #[test]
    fn notices_are_taken_once_and_the_newest_remain() {
        let region = region();
        region[0].store(MAGIC, Relaxed);
        region[W_VERSION].store(VERSION, Relaxed);
        let client = Client::attach(&region, 0).unwrap();
        for number in 0..NOTICES as usize {
            region[W_NOTICE + number * NOTICE_WORDS].store(number as u64, Relaxed);
        }
        let rules = || {
            let mut rules = Vec::new();
            client.notices(|notice| rules.push(notice.rule));
            rules
        };
        region[W_NOTICES].store(2, Relaxed);
        assert_eq!(rules(), [0, 1]);
        assert_eq!(rules(), []);
        region[W_NOTICES].store(2 + NOTICES + 1, Relaxed);
        assert_eq!(rules().len() as u64, NOTICES);
    }
}
