//! The telemetry device of the instrumented virtual machine, as the guest sees it: one region of
//! shared memory (BAR 2 of a PCI device) with registers, command blocks and states.
//!
//! Words of 64 bits, little-endian. Byte offsets:
//!
//! ```text
//!   0x0000  magic    0x0008 version    0x0010 number of states    0x0018 largest number of rules
//!   0x0020  first byte of the rings of TLB misses, 0 for none
//!   0x0028  bytes of each ring    0x0030 number of rings
//!   0x0040  notices written, by the device    0x0048 notices that found no room
//!   0x0080  notices read, by the driver
//!   0x1000  128 notices of four words: rule, nanoseconds, state, its value
//!   0x2000  eight command blocks of 4 KiB:
//!             word 0 doorbell   word 1 answer   word 2 result   word 3 doorbells answered
//!             words 8..56 arguments   words 56..512 reply
//!   0xa000  the states, a word each; after them the rings ([`crate::ring`]), one per CPU
//! ```
//!
//! A client takes a block for itself, writes the arguments, then writes the command to the
//! doorbell; the device answers before the next instruction of that CPU. States may also be read
//! directly from the region: that has no effect on them.
//!
//! [`Command`] lists the commands and their arguments; [`encode`] defines the layout of a rule. A
//! device counts in two ways: rules whose keys select states directly have their states in this
//! region ([`Command::Register`]); programmable controllers have registers of their own
//! ([`Command::Geometry`] and the commands after it), which the crate `nemo` knows.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tierscope_core::{
    Compare, Error, ErrorKind, Filter, Key, Operand, Operator, ReadEffect, RequestField,
    RequestKind, Result, Rule, Trigger,
};

/// First word of the region if there is a device.
pub const MAGIC: u64 = u64::from_be_bytes(*b"tsdevice");
/// Version of this layout.
pub const VERSION: u64 = 2;
/// Index of the word that holds the layout's version.
pub const W_VERSION: usize = 1;
/// Index of the word that holds the number of states.
pub const W_STATES: usize = 2;
/// Index of the word that holds the largest number of rules.
pub const W_RULES: usize = 3;
/// Index of the word that holds the byte offset of the first ring of TLB misses.
pub const W_RINGS: usize = 4;
/// Index of the word that holds the bytes of each ring.
pub const W_RING_BYTES: usize = 5;
/// Index of the word that holds the number of rings.
pub const W_RING_COUNT: usize = 6;
/// Index of the word that counts notices written by the device.
pub const W_NOTICES: usize = 8;
/// Index of the word that counts notices that found no room.
pub const W_NOTICES_LOST: usize = 9;
/// Index of the word that counts notices read by the driver.
pub const W_NOTICES_READ: usize = 16;
/// Index of the first word of the notices.
pub const W_NOTICE: usize = 0x1000 / 8;
/// Notices that fit into the region.
pub const NOTICES: u64 = 128;
/// Words of a notice.
pub const NOTICE_WORDS: usize = 4;
/// Index of the first word of the command blocks.
pub const W_BLOCKS: usize = 0x2000 / 8;
/// Words of a command block.
pub const BLOCK_WORDS: usize = 512;
/// Number of command blocks.
pub const BLOCKS: usize = 8;
/// Word of a block with the device's answer ([`Answer`]).
pub const B_ANSWER: usize = 1;
/// Word of a block with the result.
pub const B_RESULT: usize = 2;
/// Word of a block that counts doorbells answered.
pub const B_ANSWERED: usize = 3;
/// First word of the arguments in a block.
pub const B_ARGUMENTS: usize = 8;
/// Words of the arguments in a block.
pub const ARGUMENTS: usize = 48;
/// First word of the reply in a block.
pub const B_REPLY: usize = 56;
/// Words of the reply in a block.
pub const REPLY_WORDS: usize = BLOCK_WORDS - B_REPLY;
/// Index of the first word of the states.
pub const W_STATE: usize = 0xa000 / 8;

/// Vendor and device ID of the PCI function that carries the region (ivshmem of QEMU:
/// docs/specs/pci-ids.txt).
pub const PCI_ID: (u16, u16) = (0x1af4, 0x1110);

/// Interrupt vectors of the device in the guest.
pub const VECTORS: usize = 2;

/// Commands that a client writes to the doorbell; the arguments are in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Command {
    /// Does nothing. Result: the device's clock in nanoseconds.
    Ping = 1,
    /// Installs a rule, with the words of [`encode`] as arguments. Result: its number; reply: its
    /// first state and its number of states.
    Register = 2,
    /// Removes a rule (number).
    Unregister = 3,
    /// Reads states (number, first, count, at most [`REPLY_WORDS`]) into the reply, with the rule's
    /// effect of a read.
    Read = 4,
    /// Raises an interrupt (vector). Result: the clock at that moment.
    Interrupt = 5,
    /// Sets the extra nanoseconds that cache misses on a node take (node, nanoseconds). Result: the
    /// previous value.
    Latency = 6,
    /// Sets the bandwidth of a node (node, MiB/s, 0 for no limit). Result: the previous value.
    Bandwidth = 7,
    /// Sums a counter of [`crate::stats`] over all CPUs (its number). Result: the sum.
    Count = 8,
    /// Switches parts off (bits of [`crate::stats::Switch`]); all others are switched on. Result:
    /// the previous bits.
    Switch = 9,
    /// Result: number of the address space that rings the doorbell, as in records of accesses.
    Space = 10,
    /// Geometry of the programmable controllers. Reply: pipelines, channels, banks; number of
    /// memory zones; for each zone its start, end, first controller, number of controllers,
    /// granule.
    Geometry = 11,
    /// Writes control registers (controller, pipeline, words of `nemo::registers`).
    Control = 12,
    /// Loads a line of a controller's telemetry region (controller, line). Reply: its eight words.
    Line = 13,
    /// Reads status registers (controller, pipeline, channel). Reply: requests dropped, whether a
    /// counter wrapped, whether there is a hint; the hint's state, value, nanoseconds, number of
    /// further hints.
    Status = 14,
    /// Pipelines of a controller that hold a hint (controller). Result: one bit per pipeline.
    Pending = 15,
}

impl Command {
    /// The command with that number.
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

/// The device's answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Answer {
    /// Not answered yet.
    Waiting = 0,
    /// The command was carried out.
    Done = 1,
    /// The command number is unknown.
    Unknown = 2,
    /// An argument is out of range.
    BadArgument = 3,
    /// This device does not support the rule.
    Unsupported = 4,
    /// No rule or no states are left.
    Full = 5,
    /// A part that the command needs is switched off in this machine.
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

/// A rule as words: kind (0 reads, 1 writes, 2 all), start, end; key mask, shift; offset mask,
/// shift; operator (0 +, 1 −, 2 <<, 3 >>, 4 ^), operand (0 a constant, 1.. the request's address,
/// write, length, requester), its value; predicate (0 none, 1 ==, 2 >=, 3 >, 4 <, 5 <=), its value;
/// effect of a read (0 none, 1 reset, 2.. an operator), its value; zero.
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

/// Decodes the words of a rule; `None` if they are invalid.
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

/// The rings of TLB misses in a device's memory; empty if there are none, or they do not fit.
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

/// A notice (a rule's trigger fired), as the device writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawNotice {
    /// Number of the rule whose trigger fired.
    pub rule: u64,
    /// Time of the notice, in nanoseconds of the device's clock.
    pub nanos: u64,
    /// Index of the state among those of the rule.
    pub state: u64,
    /// Value of the state when the trigger fired.
    pub value: u64,
}

/// The guest's side of one command block of the device.
#[derive(Debug)]
pub struct Client<'a> {
    region: &'a [AtomicU64],
    block: &'a [AtomicU64],
}

impl<'a> Client<'a> {
    /// Uses the command block with that number, which no other client may use meanwhile.
    ///
    /// # Errors
    /// The region holds no device, a device of another version, or too few blocks.
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

    /// Number of states of the device.
    #[must_use]
    pub fn states(&self) -> u64 {
        self.region[W_STATES].load(Relaxed)
    }

    /// Rings the doorbell and returns the result.
    ///
    /// # Errors
    /// The device's refusal.
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

    /// Reads states of a rule from `first` on, with the rule's effect of a read.
    ///
    /// # Errors
    /// The device's refusal.
    pub fn read(&self, rule: u64, first: u64, out: &mut [u64]) -> Result<()> {
        for (part, states) in out.chunks_mut(REPLY_WORDS).enumerate() {
            let from = first + (part * REPLY_WORDS) as u64;
            self.ring(Command::Read, &[rule, from, states.len() as u64])?;
            states.iter_mut().enumerate().for_each(|(at, state)| *state = self.reply(at));
        }
        Ok(())
    }

    /// Takes the pending notices. Only one client may do so.
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
        fn rules_are_decoded(rule in any_rule()) {
            prop_assert_eq!(decode(&encode(&rule)), Some(rule));
        }

        #[test]
        fn any_words_are_decoded_or_refused(words in any::<[u64; RULE_WORDS]>()) {
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
    fn a_missing_device_is_an_error() {
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
    fn rings_are_at_the_offsets_of_the_registers() {
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
