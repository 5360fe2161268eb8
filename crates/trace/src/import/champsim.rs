//! Reads ChampSim traces, plain or compressed.
//!
//! Layout (inc/trace_instruction.h of ChampSim): one record per instruction, little-endian:
//!
//! ```text
//!             input_instr  cloudsuite_instr
//!   ip                  0                 0   8 bytes
//!   is_branch           8                 8   1 byte, 0 or 1
//!   branch_taken        9                 9   1 byte, 0 or 1
//!   registers          10                10   2 + 4 bytes, or 4 + 4
//!   written            16                24   2 addresses, or 4; 0 for none
//!   read               32                56   4 addresses; 0 for none
//!   asid                –                88   2 bytes
//!   record             64                96   bytes in all
//! ```
//!
//! There are no access lengths, no times and no magic number: a file is taken for ChampSim's if its
//! first records are plausible.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use tierscope_core::{Result, Time};

use super::records::{Records, number};
use crate::access::{Access, BATCH, Batch, Event, Kind, Source};

/// The two record layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// input_instr: two addresses written.
    Plain,
    /// cloudsuite_instr: four addresses written, and an address space.
    Cloudsuite,
}

impl Form {
    /// Bytes of a record.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Form::Plain => 64,
            Form::Cloudsuite => 96,
        }
    }

    /// Offsets of the addresses written, of those read, and of their end.
    fn addresses(self) -> (usize, usize, usize) {
        match self {
            Form::Plain => (16, 32, 64),
            Form::Cloudsuite => (24, 56, 88),
        }
    }

    fn asid(self, record: &[u8]) -> u64 {
        match self {
            Form::Plain => 0,
            Form::Cloudsuite => number(&record[88..90]),
        }
    }

    /// Whether a record is plausible; else the reason.
    fn check(self, record: &[u8]) -> Result<(), &'static str> {
        let (written, _, end) = self.addresses();
        if record[8] > 1 || record[9] > 1 {
            return Err("a branch is neither 0 nor 1");
        }
        let padding = match self {
            Form::Plain => 0..0,
            Form::Cloudsuite => 18..24,
        };
        if record[padding].iter().any(|byte| *byte != 0) {
            return Err("there is something in the gap after the registers");
        }
        let addresses = record[written..end].chunks_exact(8).map(number);
        match addresses.chain([number(&record[..8])]).all(is_linear) {
            true => Ok(()),
            false => Err("an address that no processor has"),
        }
    }
}

/// An address that 5-level paging can translate.
fn is_linear(address: u64) -> bool {
    let upper = (address as i64) >> 56;
    upper == 0 || upper == -1
}

const REMEDY: &str = "check that the file is whole and of ChampSim; \
                      name its form with --from champsim or --from champsim-cloudsuite";

/// Reads a ChampSim file.
pub struct Champsim<R> {
    records: Records<R>,
    form: Form,
    /// Threads by address space.
    threads: BTreeMap<u64, u32>,
}

impl<R: Read> Champsim<R> {
    /// Reads `input`.
    pub fn new(name: &str, input: R, form: Form) -> Self {
        Self { records: Records::new(name, input, form.bytes()), form, threads: BTreeMap::new() }
    }
}

impl<R: Read> Source for Champsim<R> {
    fn fill(&mut self, batch: &mut Batch) -> Result<bool> {
        let before = batch.accesses.len();
        let form = self.form;
        while batch.accesses.len() < before + BATCH {
            let Some(record) = self.records.advance()? else { break };
            if let Err(cause) = form.check(record) {
                return Err(self.records.wrong(form.bytes(), cause, REMEDY));
            }
            let asid = form.asid(record);
            let thread = match self.threads.get(&asid) {
                Some(thread) => *thread,
                None => {
                    let number = self.threads.len() as u32;
                    self.threads.insert(asid, number);
                    batch.event(Event::Thread {
                        number,
                        pid: asid,
                        tid: asid,
                        name: Arc::from(""),
                    });
                    number
                }
            };
            instruction(batch, form, record, thread);
        }
        Ok(batch.accesses.len() > before)
    }
}

/// Appends the accesses of an instruction: the fetch, then reads, then writes.
fn instruction(batch: &mut Batch, form: Form, record: &[u8], thread: u32) {
    let (written, read, end) = form.addresses();
    let mut push = |kind, bytes: &[u8]| {
        let address = number(bytes);
        if address != 0 {
            batch.push(Access { address, time: Time(0), thread, bytes: 0, kind });
        }
    };
    push(Kind::Fetch, &record[..8]);
    record[read..end].chunks_exact(8).for_each(|bytes| push(Kind::Load, bytes));
    record[written..read].chunks_exact(8).for_each(|bytes| push(Kind::Store, bytes));
}

/// Plausible records required before a file is taken for ChampSim's.
const ENOUGH: usize = 16;

/// The record layout, if a file looks like ChampSim's.
#[must_use]
pub fn form_of(start: &[u8]) -> Option<Form> {
    let fits = |form: &Form| {
        let records = start.chunks_exact(form.bytes());
        let looked_at = records.len().min(ENOUGH);
        let sensible = |record: &[u8]| {
            form.check(record).is_ok() && number(&record[..8]) != 0 && record[9] <= record[8]
        };
        looked_at > 0 && records.take(ENOUGH).all(sensible)
    };
    [Form::Plain, Form::Cloudsuite].into_iter().find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_all;

    /// A record in the documented layout.
    fn record(form: Form, ip: u64, written: &[u64], read: &[u64], asid: u16) -> Vec<u8> {
        let (to, from, _) = form.addresses();
        let mut bytes = vec![0; form.bytes()];
        bytes[..8].copy_from_slice(&ip.to_le_bytes());
        bytes[10] = 6;
        for (at, address) in written.iter().enumerate() {
            bytes[to + 8 * at..][..8].copy_from_slice(&address.to_le_bytes());
        }
        for (at, address) in read.iter().enumerate() {
            bytes[from + 8 * at..][..8].copy_from_slice(&address.to_le_bytes());
        }
        if form == Form::Cloudsuite {
            bytes[88..90].copy_from_slice(&asid.to_le_bytes());
        }
        bytes
    }

    fn read(form: Form, bytes: &[u8]) -> (Batch, Result<()>) {
        let mut batch = Batch::default();
        let ended = read_all(&mut Champsim::new("t", bytes, form), &mut batch);
        (batch, ended)
    }

    #[test]
    fn an_instruction_is_a_fetch_and_its_references() {
        for form in [Form::Plain, Form::Cloudsuite] {
            let mut bytes = record(form, 0x401000, &[0x7000], &[0x8000, 0x9000], 3);
            bytes.extend(record(form, 0x401004, &[], &[], 4));
            let (batch, ended) = read(form, &bytes);
            assert_eq!(ended, Ok(()));
            let second = u32::from(form == Form::Cloudsuite);
            let seen: Vec<_> =
                batch.accesses.iter().map(|a| (a.kind, a.address, a.thread)).collect();
            let expected = [
                (Kind::Fetch, 0x401000, 0),
                (Kind::Load, 0x8000, 0),
                (Kind::Load, 0x9000, 0),
                (Kind::Store, 0x7000, 0),
                (Kind::Fetch, 0x401004, second),
            ];
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn errors_have_a_position() {
        let mut bytes = record(Form::Plain, 0x401000, &[], &[0x8000], 0);
        bytes.extend_from_slice(&bytes.clone()[..40]);
        let (batch, ended) = read(Form::Plain, &bytes);
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("byte 64: 40 bytes are left"), "{error}");
        assert_eq!(batch.accesses.len(), 2);
        bytes[8] = 2;
        let error = read(Form::Plain, &bytes).1.unwrap_err().to_string();
        assert!(error.contains("byte 0: a branch"), "{error}");
    }

    #[test]
    fn forms_are_recognised() {
        for form in [Form::Plain, Form::Cloudsuite] {
            let records = (0..20).map(|i| {
                record(form, 0x401000 + 4 * i, &[0x7000 + i], &[0x7fff_0000_0000 + i * 99], 0)
            });
            let bytes: Vec<u8> = records.flatten().collect();
            assert_eq!(form_of(&bytes), Some(form));
        }
        assert_eq!(form_of(b"I  04000000,3\n L 0400"), None);
        assert_eq!(form_of(&[0; 640]), None);
        let text = b"time,address,kind\n0,0x7000,load\n".repeat(20);
        assert_eq!(form_of(&text), None);
    }
}
