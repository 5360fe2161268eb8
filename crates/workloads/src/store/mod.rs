//! Key-value stores that really store, and their clients: programs ([`crate::programs`]) by a line
//! such as `memcached:keys=200000,value=5MB,dist=gaussian:sd=100`.
//!
//! | name | like | index | values |
//! |---|---|---|---|
//! | `flexkvs` | FlexKVS | buckets of five items | a log of segments with cleaning |
//! | `faster` | FASTER | buckets of seven entries | a log, updated in place at its newest part |
//! | `silo` | Silo | a tree of 15 keys a node | versioned records, used by transactions |
//! | `memcached` | memcached | chains | chunks of size classes |
//! | `redis` | Redis | chains of entries | strings in the allocator's size classes |
//!
//! The file of each store names its sources and the omissions. A store behaves as its original: a
//! get returns the value that was set, and the accesses are those of finding, copying and storing
//! it, by cache line and in order. Parsing and the network are left out. Neither keys nor values
//! are held on the host, and of the index only changes since the load: terabytes cost no more than
//! their changes.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `keys` | records at the beginning | 1000000 |
//! | `value` | bytes of a value | 1000: ten fields of 100 as YCSB's |
//! | `key` | bytes of a key | 23: YCSB's `user` and a number; 8 in `faster` and `silo` |
//! | `ycsb` | workload `a` to `f`, or `w`: writes only; or several in turn: `load+a+b` | `c` |
//! | `phase` | time of each workload of a sequence | |
//! | `updates` | share of updates, the rest reads; instead of `ycsb` | |
//! | `dist` | key distribution: `Law::parse` of `keys.rs` | the workload's |
//! | `shift`, `every` | keys by which the hot keys shift, and how often | never, 120s |
//! | `inserts` | additional records that fit | a tenth of `keys` if the workload inserts |
//! | `load` | insert the records first (`true`), or have them at the start | `false` |
//! | `requests` | of every thread, after which it ends | unlimited |
//! | `threads` | of the store, each with a client | 1 |
//! | `segment` | bytes of a segment: `flexkvs` alone | 256KiB |
//! | `log` | bytes of the log: `faster` alone | the data and a ninth: all mutable |
//! | `mutable` | share of the log updated in place: `faster` alone | 0.9 |
//!
//! Scans (workload `e`) are supported by `silo` alone: the other stores do not order keys.

mod access_trace;
mod faster;
mod flexkvs;
mod hashed;
mod heat;
mod memcached;
mod redis;
mod sequence;
mod silo;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tierscope_core::{Error, Rng, units};

use self::access_trace::AccessTrace;
use self::sequence::{Sequence, Turns};
use crate::app::{App, Lane, Next, Phase};
use crate::description::{Area, MAX_BYTES};
use crate::keys::Shift;
use crate::programs::{self, Family};
use crate::spec::{Keys, Parsed};
use crate::ycsb::{Client, Request};
use crate::{Touch, Workload};

pub(crate) const FAMILY: Family =
    Family { names: &["flexkvs", "faster", "silo", "memcached", "redis"], build };

/// The operations of a store. Keys are numbers below [`Plan::most`]; values are represented by
/// numbers too.
trait Store: Debug + Send {
    /// Reads the value of a key.
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64>;

    /// Sets the value of a new or existing key, on behalf of the thread `core`; `false` if memory
    /// is full.
    fn put(&mut self, key: u64, value: u64, core: usize, trace: &mut AccessTrace) -> bool;

    /// Replaces the value of an existing key; returns the old one.
    fn modify(
        &mut self,
        key: u64,
        value: u64,
        core: usize,
        trace: &mut AccessTrace,
    ) -> Option<u64> {
        let old = self.get(key, trace)?;
        self.put(key, value, core, trace).then_some(old)
    }

    /// Reads the values of the first `count` keys from `key` on; `None` if the store does not order
    /// keys.
    fn scan(&mut self, _key: u64, _count: u32, _trace: &mut AccessTrace) -> Option<Vec<u64>> {
        None
    }
}

/// Capacity of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Number of keys at the beginning, or after the load.
    keys: u64,
    /// Number of keys that can be inserted in addition.
    inserts: u64,
    /// Bytes of a key.
    key: u64,
    /// Bytes of a value.
    value: u64,
    /// Whether values are set during the run.
    writes: bool,
}

impl Plan {
    fn most(&self) -> u64 {
        self.keys + self.inserts
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    FlexKvs(flexkvs::Layout),
    Faster(faster::Layout),
    Silo(silo::Layout),
    Memcached(memcached::Layout),
    Redis(redis::Layout),
}

impl Kind {
    fn areas(&self) -> Vec<Area> {
        match self {
            Kind::FlexKvs(layout) => layout.areas(),
            Kind::Faster(layout) => layout.areas(),
            Kind::Silo(layout) => layout.areas(),
            Kind::Memcached(layout) => layout.areas(),
            Kind::Redis(layout) => layout.areas(),
        }
    }

    fn heat(&self) -> Vec<heat::Heat> {
        match self {
            Kind::FlexKvs(layout) => layout.heat(),
            Kind::Faster(layout) => layout.heat(),
            Kind::Silo(layout) => layout.heat(),
            Kind::Memcached(layout) => layout.heat(),
            Kind::Redis(layout) => layout.heat(),
        }
    }

    /// Whether the distribution of heat stays constant when values change: they are updated in
    /// place, or move to slots that are as hot.
    fn stays(&self, changes: bool) -> bool {
        match self {
            Kind::FlexKvs(_) => !changes,
            Kind::Faster(layout) => !changes || layout.all_mutable(),
            _ => true,
        }
    }

    fn open(&self, loaded: u64, lanes: u32) -> Box<dyn Store> {
        match *self {
            Kind::FlexKvs(layout) => Box::new(flexkvs::FlexKvs::new(layout, loaded, lanes)),
            Kind::Faster(layout) => Box::new(faster::Faster::new(layout, loaded)),
            Kind::Silo(layout) => Box::new(silo::Silo::new(layout, loaded)),
            Kind::Memcached(layout) => Box::new(memcached::Memcached::new(layout, loaded)),
            Kind::Redis(layout) => Box::new(redis::Redis::new(layout, loaded)),
        }
    }
}

/// A store and its clients, as a program.
#[derive(Debug)]
struct StoreApp {
    name: String,
    areas: Vec<Area>,
    kind: Kind,
    plan: Plan,
    sequence: Sequence,
    shift: Option<Shift>,
    load: bool,
    requests: u64,
    threads: Option<u32>,
    /// Set by a thread whose load did not end in its phase.
    failed: Arc<OnceLock<Error>>,
}

fn build(name: &str, keys: &mut Keys<'_>) -> Parsed<Arc<dyn App>> {
    Ok(Arc::new(served(name, keys)?))
}

fn served(name: &str, keys: &mut Keys<'_>) -> Parsed<StoreApp> {
    let sequence = Sequence::read(keys, name)?;
    let plan = plan(keys, name, &sequence)?;
    let shift = shift(keys, plan.keys)?;
    let kind = kind(keys, name, plan)?;
    let areas = kind.areas();
    let bytes = areas.iter().map(|area| area.bytes).fold(0, u64::saturating_add);
    if bytes > MAX_BYTES {
        return Err((1, format!("the store is larger than {}", units::about_size(MAX_BYTES))));
    }
    Ok(StoreApp {
        name: format!("{name} with {} keys of {}", plan.keys, units::about_size(plan.value)),
        areas,
        kind,
        plan,
        shift,
        load: keys.number("load", sequence.loads)?,
        sequence,
        requests: keys.number("requests", 0)?,
        threads: programs::threads(keys)?,
        failed: Arc::default(),
    })
}

/// Upper bounds that fit into 57-bit addresses.
const MOST_KEYS: u64 = 1 << 40;
const MOST_VALUE: u64 = 1 << 40;

fn plan(keys: &mut Keys<'_>, name: &str, sequence: &Sequence) -> Parsed<Plan> {
    let short = matches!(name, "faster" | "silo");
    let count = keys.number("keys", 1_000_000u64)?;
    let room = if sequence.inserts() { count / 10 } else { 0 };
    let plan = Plan {
        keys: count,
        inserts: keys.number("inserts", room)?,
        // YCSB's keys: `user` and the decimal digits of a 64-bit hash, mostly 19.
        key: keys.bytes("key", if short { 8 } else { 23 })?,
        value: keys.bytes("value", 1000)?,
        writes: sequence.changes() || sequence.inserts(),
    };
    let within = |what: &str, value: u64, most: u64| match value {
        0 => Err((1, format!("{what} is 0"))),
        _ if value > most => Err((1, format!("{what} is more than {most}"))),
        _ => Ok(()),
    };
    within("keys", plan.keys, MOST_KEYS)?;
    within("inserts and one", plan.inserts.saturating_add(1), MOST_KEYS)?;
    within("key", plan.key, 1 << 16)?;
    within("value", plan.value, MOST_VALUE)?;
    if plan.most().checked_mul(plan.value).is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err((1, format!("the values are larger than {}", units::about_size(MAX_BYTES))));
    }
    Ok(plan)
}

fn shift(keys: &mut Keys<'_>, count: u64) -> Parsed<Option<Shift>> {
    let by = keys.number("shift", 0u64)?;
    // The interval of the NEMO paper, section 5.1: the hot set changes after two minutes.
    let every = keys.time("every", Duration::from_secs(120))?;
    if every < Duration::from_millis(1) {
        return Err((1, "keys shift at most every ms".into()));
    }
    Ok((by > 0).then_some(Shift { keys: by % count, every }))
}

fn kind(keys: &mut Keys<'_>, name: &str, plan: Plan) -> Parsed<Kind> {
    let faulty = |what: String| (1, what);
    Ok(match name {
        "flexkvs" => {
            let least = (flexkvs::SEGMENT).max((plan.value + plan.key + 64).next_power_of_two());
            let segment = keys.bytes("segment", least)?;
            Kind::FlexKvs(flexkvs::Layout::new(plan, segment).map_err(faulty)?)
        }
        "faster" => {
            let log = keys.bytes("log", 0)?;
            let mutable = keys.number("mutable", faster::MUTABLE)?;
            let log = (log > 0).then_some(log);
            Kind::Faster(faster::Layout::new(plan, log, mutable).map_err(faulty)?)
        }
        "silo" => Kind::Silo(silo::Layout::new(plan)),
        "memcached" => Kind::Memcached(memcached::Layout::new(plan)),
        _ => Kind::Redis(redis::Layout::new(plan)),
    })
}

fn area(name: &str, bytes: u64) -> Area {
    Area { name: name.into(), bytes, content: None }
}

impl App for StoreApp {
    fn name(&self) -> &str {
        &self.name
    }

    fn areas(&self) -> &[Area] {
        &self.areas
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn threads(&self) -> Option<u32> {
        self.threads
    }

    fn described(&self) -> Option<Workload> {
        let (mix, law) = self.sequence.single()?;
        // After a restart the hot keys are at their beginning again, at an unknown time.
        let begins_again = self.requests > 0 && self.shift.is_some();
        let moves = mix.inserts + mix.scans > 0.0 || !self.kind.stays(mix.changes());
        if moves || self.load || begins_again {
            return None;
        }
        let (heat, writes) = (self.kind.heat(), mix.updates + mix.modifies);
        heat::describe(&self.name, &self.areas, &heat, law, self.plan.keys, self.shift, writes)
    }

    fn phases(&self) -> Vec<Phase> {
        self.sequence.phases()
    }

    fn failed(&self) -> Option<Error> {
        self.failed.get().cloned()
    }

    fn start(&self, bases: &[u64], seed: u64, lanes: u32) -> Vec<Box<dyn Lane>> {
        let loaded = if self.load { 0 } else { self.plan.keys };
        let server = Server {
            store: self.kind.open(loaded, lanes),
            plan: self.plan,
            present: loaded,
            loading: self.load,
            values: self.plan.most(),
        };
        let server = Arc::new(Mutex::new(server));
        let turns = Turns::new(&self.sequence, (self.plan.keys, self.plan.inserts), self.shift);
        let lane = |lane: u32| {
            let seed = Rng::seeded(seed ^ u64::from(lane).rotate_left(40)).next_u64();
            let thread = Thread {
                server: Arc::clone(&server),
                client: turns.client(seed),
                turns: turns.clone(),
                failed: Arc::clone(&self.failed),
                trace: AccessTrace::new(bases),
                lane: lane as usize,
                left: if self.requests > 0 { self.requests } else { u64::MAX },
                done: 0,
            };
            Box::new(thread) as Box<dyn Lane>
        };
        (0..lanes).map(lane).collect()
    }
}

/// State shared by all threads of a store.
#[derive(Debug)]
struct Server {
    store: Box<dyn Store>,
    plan: Plan,
    /// Keys inserted so far.
    present: u64,
    loading: bool,
    /// Number of values created so far: the next value is the next number.
    values: u64,
}

impl Server {
    fn is_loaded(&self) -> bool {
        !self.loading || self.present >= self.plan.keys
    }

    /// Serves the next request: one of the load phase, or the client's; `false` if the client has
    /// used up its requests.
    fn serve(
        &mut self,
        client: &mut Client,
        core: usize,
        left: &mut u64,
        trace: &mut AccessTrace,
    ) -> bool {
        if !self.is_loaded() {
            self.store.put(self.present, self.present, core, trace);
            self.present += 1;
            trace.end();
            return true;
        }
        if *left == 0 {
            return false;
        }
        *left -= 1;
        self.values += 1;
        let value = self.values;
        match client.next(self.present) {
            Request::Read(key) => _ = self.store.get(key, trace),
            Request::Update(key) => _ = self.store.put(key, value, core, trace),
            Request::Modify(key) => _ = self.store.modify(key, value, core, trace),
            Request::Scan(key, count) => _ = self.store.scan(key, count, trace),
            Request::Insert => self.insert(value, core, trace),
        }
        trace.end();
        true
    }

    /// Inserts a new key; if the store is full, sets the newest key's value again.
    fn insert(&mut self, value: u64, core: usize, trace: &mut AccessTrace) {
        let key = self.present.min(self.plan.most() - 1);
        if self.store.put(key, value, core, trace) {
            self.present = self.present.max(key + 1);
        }
    }
}

/// A thread of the store, and the client that sends it requests.
struct Thread {
    server: Arc<Mutex<Server>>,
    client: Client,
    turns: Turns,
    failed: Arc<OnceLock<Error>>,
    trace: AccessTrace,
    lane: usize,
    left: u64,
    done: u64,
}

impl Lane for Thread {
    fn now(&mut self, since: Duration) {
        self.turns.now(since, &mut self.client);
        self.client.now(since);
    }

    fn next(&mut self, out: &mut [Touch]) -> Next {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let mut filled = 0;
        loop {
            let (count, ended) = self.trace.fill(&mut out[filled..]);
            filled += count;
            self.done += ended;
            if filled == out.len() {
                return Next::Touches(filled);
            }
            if let Some(next) = self.turns.pause(server.is_loaded()) {
                if next == Next::Ends {
                    _ = self.failed.set(self.turns.too_short(server.present, server.plan.keys));
                }
                return if filled > 0 { Next::Touches(filled) } else { next };
            }
            if !server.serve(&mut self.client, self.lane, &mut self.left, &mut self.trace) {
                return if filled > 0 { Next::Touches(filled) } else { Next::Ends };
            }
        }
    }

    fn operations(&self) -> u64 {
        self.done
    }
}
