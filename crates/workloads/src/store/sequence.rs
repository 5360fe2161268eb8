//! The workloads that a store's clients run: one of YCSB's for as long as the store runs, or
//! several in turn, each for the same time: `ycsb=load+a+b+c+f+w+d,phase=60s`, as the MULTI-CLOCK
//! paper runs them in one process (HPCA 2022, section V-B).
//!
//! A sequence may begin with `load`, in which the records are inserted; what is left of its time
//! the clients wait. A load that does not end in its time ends the run with an error. In a sequence
//! `dist` replaces YCSB's zipfian distribution, and leaves that of `d`, the latest keys, alone.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind};

use crate::app::{Next, Phase};
use crate::keys::{Chooser, Law, Shift};
use crate::spec::{Keys, Parsed};
use crate::ycsb::{Client, Mix};

/// Name, mix and key distribution of a workload.
type Part = (String, Mix, Law);

/// Workloads in turn.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// At least one.
    parts: Vec<Part>,
    /// Whether the records are inserted first, in a phase of its own.
    pub(super) loads: bool,
    /// Time of each phase; zero if there is a single workload, without end.
    each: Duration,
}

const LOAD: &str = "load";

impl Sequence {
    /// Reads `ycsb`, `phase`, `updates` and `dist`.
    pub(super) fn read(keys: &mut Keys<'_>, store: &str) -> Parsed<Self> {
        let single = vec![("c".to_owned(), Mix::updating(0.0), Law::YCSB)];
        let (loads, mut parts) = keys.take("ycsb", (false, single), workloads)?;
        let in_turn = loads || parts.len() > 1;
        let each = if in_turn { keys.time("phase", Duration::ZERO)? } else { Duration::ZERO };
        if in_turn && each < Duration::from_millis(1) {
            return Err((1, "workloads in turn need the time of each: `phase=60s`".into()));
        }
        let share = |text: &str| match text.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(Some(Mix::updating(share))),
            _ => Err("a share within 0..1".to_owned()),
        };
        if !in_turn && let Some(mix) = keys.take("updates", None, share)? {
            parts[0].1 = mix;
        }
        if let Some(law) = keys.take("dist", None, |text| Law::parse(text).map(Some))? {
            let replaced = parts.iter_mut().filter(|part| !in_turn || part.2 == Law::YCSB);
            replaced.for_each(|part| part.2 = law);
        }
        if store != "silo" && parts.iter().any(|part| part.1.scans > 0.0) {
            return Err((1, format!("`{store}` has no order of keys to scan: take silo")));
        }
        Ok(Self { parts, loads, each })
    }

    /// Mix and distribution, if there is a single workload.
    pub(super) fn single(&self) -> Option<(Mix, Law)> {
        self.each.is_zero().then(|| (self.parts[0].1, self.parts[0].2))
    }

    /// Whether any request inserts a key.
    pub(super) fn inserts(&self) -> bool {
        self.parts.iter().any(|part| part.1.inserts > 0.0)
    }

    /// Whether any request changes an existing value.
    pub(super) fn changes(&self) -> bool {
        self.parts.iter().any(|part| part.1.changes())
    }

    pub(super) fn phases(&self) -> Vec<Phase> {
        if self.each.is_zero() {
            return Vec::new();
        }
        let load = self.loads.then_some(LOAD);
        let names = load.into_iter().chain(self.parts.iter().map(|part| &*part.0));
        let phase = |(index, name): (u32, &str)| Phase {
            name: name.into(),
            from: self.each * index,
            to: self.each * (index + 1),
        };
        (0..).zip(names).map(phase).collect()
    }
}

/// Whether a text such as `load+a+b` begins with a load, and its workloads.
fn workloads(text: &str) -> Result<(bool, Vec<Part>), String> {
    let loads = text.split('+').next() == Some(LOAD);
    let named = |name: &str| match Mix::of(name) {
        Some((mix, law)) => Ok((name.to_owned(), mix, law)),
        None => Err(format!("`{name}` is none of YCSB's a to f, and w")),
    };
    let parts: Vec<_> =
        text.split('+').skip(loads.into()).map(named).collect::<Result<_, String>>()?;
    if parts.is_empty() {
        return Err("a workload follows the load: `load+a`".into());
    }
    Ok((loads, parts))
}

/// A thread's place in a sequence.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    parts: Vec<(Mix, Chooser)>,
    loads: bool,
    each: Duration,
    since: Duration,
    at: usize,
}

impl Turns {
    /// The beginning of a sequence over that number of keys, and of keys inserted later.
    pub(super) fn new(
        sequence: &Sequence,
        (keys, inserts): (u64, u64),
        shift: Option<Shift>,
    ) -> Self {
        let single = sequence.each.is_zero();
        let part = |(_, mix, law): &Part| {
            let room = if single || mix.inserts > 0.0 { inserts } else { 0 };
            (*mix, Chooser::new(*law, keys, room, shift))
        };
        Self {
            parts: sequence.parts.iter().map(part).collect(),
            loads: sequence.loads,
            each: sequence.each,
            since: Duration::ZERO,
            at: 0,
        }
    }

    /// A client that begins with the first workload.
    pub(super) fn client(&self, seed: u64) -> Client {
        let (mix, chooser) = self.parts[0].clone();
        Client::new(mix, chooser, seed)
    }

    /// Sets the time since the store began: the client goes on to the workload of that time.
    pub(super) fn now(&mut self, since: Duration, client: &mut Client) {
        self.since = since;
        let Some(turn) = since.as_nanos().checked_div(self.each.as_nanos()) else { return };
        let turn = (turn as usize).saturating_sub(self.loads.into()).min(self.parts.len() - 1);
        if turn != self.at {
            self.at = turn;
            let (mix, chooser) = self.parts[turn].clone();
            client.turn(mix, chooser);
        }
    }

    /// What a thread does instead of a request: waits for the end of the load's phase, or ends if
    /// that has passed before the load was done.
    pub(super) fn pause(&self, loaded: bool) -> Option<Next> {
        match (self.loads, loaded, self.since < self.each) {
            (true, true, true) => Some(Next::Until(self.each)),
            (true, false, false) => Some(Next::Ends),
            _ => None,
        }
    }

    /// The error of a load that did not end in its phase.
    pub(super) fn too_short(&self, present: u64, keys: u64) -> Error {
        let each = self.each.as_secs_f64();
        let what = format!("only {present} of {keys} records were loaded in {each} s");
        Error::new(ErrorKind::Usage, what).remedy("give a longer `phase`")
    }
}
