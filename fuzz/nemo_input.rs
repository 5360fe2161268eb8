//! Body of the fuzz target `nemo`; crates/nemo replays the corpus with it, and runs it on bytes of
//! proptest's.

use tierscope_core::{
    BusObserver, BusRecord, Cell, Counters, Filter, Key, Operand, Operator, ReadEffect,
    RequestKind, Rule, RuleId, Time,
};
use tierscope_nemo::driver::{Backing, GuestId, StateMapping, View};
use tierscope_nemo::{Driver, Functional, Memory, Spec, Zone};

/// End of the host's memory: 0..1 GiB is interleaved over two controllers, 2..3 GiB has a third.
const END: u64 = 3 << 30;
/// The guest's memory in the host's address space: first byte, and length of 64 MiB.
const GUEST: (u64, u64) = (16 << 21, 32 << 21);

/// Numbers of requests that were carried out and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) done: u32,
    pub(crate) refused: u32,
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number of up to 8 bytes, preceded by a byte with its length.
    fn number(&mut self) -> Option<u64> {
        let bytes = self.byte()? % 9;
        (0..bytes).try_fold(0, |number, _| Some(number << 8 | u64::from(self.byte()?)))
    }
}

fn machine() -> (Driver<Functional>, GuestId) {
    let zone = |start: u64, first, controllers| Zone {
        start: start << 30,
        end: (start + 1) << 30,
        first,
        controllers,
        granule: 256,
    };
    let memory = Memory::new(vec![zone(0, 0, 2), zone(2, 2, 1)], 2).expect("a memory");
    let mut driver = Driver::new(Functional::new(memory, 4, 16).expect("an engine"));
    let memory = vec![Backing { guest: 0, host: GUEST.0, bytes: GUEST.1 }];
    let guest = driver.admit(memory, 2).expect("its memory is there");
    (driver, guest)
}

fn spec(bytes: &mut Bytes<'_>) -> Option<Spec> {
    const OPERATORS: [Operator; 4] =
        [Operator::Add, Operator::Subtract, Operator::ShiftLeft, Operator::Xor];
    let key = |bytes: &mut Bytes<'_>| {
        let mask = match bytes.byte()? % 3 {
            0 => 0,
            1 => Key::ALL_MEMORY,
            _ => bytes.number()?,
        };
        Some(Key { mask, shift: bytes.byte()? & 63 })
    };
    let kind = [RequestKind::All, RequestKind::Read][usize::from(bytes.byte()? & 1)];
    let filter = match bytes.byte()? & 1 {
        0 => Filter { kind, start: 0, end: u64::MAX },
        _ => Filter { kind, start: bytes.number()?, end: bytes.number()? },
    };
    let rule = Rule {
        filter,
        key: key(bytes)?,
        offset: key(bytes)?,
        update: (OPERATORS[usize::from(bytes.byte()? & 3)], Operand::Constant(bytes.number()?)),
        notify: None,
        on_read: match bytes.byte()? & 1 {
            0 => ReadEffect::Keep,
            _ => ReadEffect::Reset(bytes.number()?),
        },
    };
    let cell = Cell::new(bytes.byte()? % 8 + 1, bytes.byte()? & 1 == 1).ok()?;
    let states = if bytes.byte()? & 1 == 0 { None } else { Some(bytes.number()?) };
    Some(Spec { rule, cell, states })
}

/// Carries out the requests encoded in `data`.
pub(crate) fn run(data: &[u8]) -> Tally {
    let (mut driver, guest) = machine();
    let free = driver.free();
    let (mut host_rules, mut guest_rules) = (Vec::new(), Vec::new());
    let mut tally = Tally::default();
    let mut bytes = Bytes(data);
    while let Some(done) = one(&mut driver, guest, &mut host_rules, &mut guest_rules, &mut bytes) {
        if done { tally.done += 1 } else { tally.refused += 1 }
    }
    host_rules.into_iter().for_each(|id| driver.uninstall(id).expect("it was installed"));
    driver.dismiss(guest).expect("it was admitted");
    assert_eq!(driver.free(), free, "something is left");
    tally
}

/// Carries out one request; `None` at the end of the bytes.
fn one(
    driver: &mut Driver<Functional>,
    guest: GuestId,
    host_rules: &mut Vec<RuleId>,
    guest_rules: &mut Vec<RuleId>,
    bytes: &mut Bytes<'_>,
) -> Option<bool> {
    let which = bytes.byte()?;
    let rules = if which & 0x80 == 0 { &*host_rules } else { &*guest_rules };
    let picked = usize::from(bytes.byte()?);
    let known = rules.get(picked % rules.len().max(1)).copied();
    let id = known.unwrap_or(RuleId(picked as u32));
    Some(match which & 0x87 {
        0 => driver.install(&spec(bytes)?).map(|id| host_rules.push(id)).is_ok(),
        0x80 => view(driver, guest).install(&spec(bytes)?).map(|id| guest_rules.push(id)).is_ok(),
        1 => driver.uninstall(id).map(|()| host_rules.retain(|other| *other != id)).is_ok(),
        0x81 => view(driver, guest)
            .uninstall(id)
            .map(|()| guest_rules.retain(|other| *other != id))
            .is_ok(),
        2 | 3 => {
            let (key, index) = (bytes.number()?, bytes.number()?);
            driver.translate(id, key, u32::try_from(index).ok()).is_ok()
        }
        0x82 | 0x83 => {
            let (key, index) = (bytes.number()?, bytes.number()?);
            view(driver, guest).translate(id, key, u32::try_from(index).ok()).is_ok()
        }
        4 => {
            let (start, end) = (bytes.number()?, bytes.number()?);
            // Bounded, to keep the fuzzer fast.
            let end = end.min(start.saturating_add(64 << 21));
            driver
                .translate_range(id, start, end, StateMapping::Each(u32::from(bytes.byte()?)))
                .is_ok()
        }
        5 => driver.read(id, &mut vec![0; picked]).is_ok(),
        0x85 => view(driver, guest).read(id, &mut vec![0; picked]).is_ok(),
        // Requests to memory of others leave the guest's states unchanged.
        _ => {
            let outside = |n: u64| (n % END) & !63;
            let own = |address: &u64| (GUEST.0..GUEST.0 + GUEST.1).contains(address);
            let addresses = [outside(bytes.number()?), outside(bytes.number()?)];
            // Read twice: the first read may reset the states.
            states_of(driver, guest, guest_rules);
            let before = states_of(driver, guest, guest_rules);
            let requests = addresses.into_iter().filter(|address| !own(address) && *address < END);
            let batch: Vec<_> =
                requests.map(|address| BusRecord::new(Time(0), address, false)).collect();
            driver.observe(&batch);
            assert_eq!(
                states_of(driver, guest, guest_rules),
                before,
                "a guest saw what is foreign"
            );
            true
        }
    })
}

/// First state of each of the guest's telemetries.
fn states_of(driver: &mut Driver<Functional>, guest: GuestId, rules: &[RuleId]) -> Vec<u64> {
    let mut view = view(driver, guest);
    let mut first = |id: &RuleId| {
        let mut states = [0];
        view.read(*id, &mut states).expect("it is the guest's");
        states[0]
    };
    rules.iter().map(&mut first).collect()
}

fn view(driver: &mut Driver<Functional>, guest: GuestId) -> View<'_, Functional> {
    driver.guest(guest).expect("it was admitted")
}
