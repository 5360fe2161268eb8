//! Encodes and decodes the parsing state, so that parsing can be interrupted and continued:
//! `crates/tlb/PTAT.md` has the layout.

use std::collections::BTreeMap;

use tierscope_core::Level;
use tierscope_trace::compact::varint::{put, take};

use super::board::{Mark, Traffic};
use super::counts::{Accesses, Misses, Page, PageMisses};
use super::dump_reader;
use super::merge::Position;
use super::parser::{Block, ENTRIES, Mapped, Parser};

const MAGIC: [u8; 8] = *b"\x89TSPTS\r\n";
const VERSION: u64 = 3;

/// Saved positions in the input files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) boards: Vec<Position>,
    pub(super) dump: dump_reader::Mark,
}

pub(super) fn save(parser: &Parser, places: &Places) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put(VERSION, &mut out);
    put(places.boards.len() as u64, &mut out);
    for (mark, taken) in &places.boards {
        put_all(&[mark.offset, mark.records, mark.ticks], &mut out);
        put_all(&traffic(&mark.traffic), &mut out);
        put_all(&[mark.ended.into(), mark.adrift.into(), *taken], &mut out);
    }
    let dump = places.dump;
    put_all(&[dump.offset, dump.records, dump.next, dump.ended.into()], &mut out);
    put(parser.next, &mut out);
    put_misses(&parser.misses, &mut out);
    put(parser.blocks.len() as u64, &mut out);
    parser.blocks.iter().for_each(|(number, block)| put_block(*number, block, &mut out));
    let reads = || parser.reads.iter().enumerate().filter(|(_, reads)| **reads > 0);
    put(reads().count() as u64, &mut out);
    reads().for_each(|(block, reads)| put_all(&[block as u64, *reads], &mut out));
    let writes = || parser.writes.iter().enumerate().filter(|(_, writes)| **writes > 0);
    put(writes().count() as u64, &mut out);
    writes().for_each(|(frame, writes)| put_all(&[frame as u64, *writes], &mut out));
    put(parser.data.len() as u64, &mut out);
    for (frame, page) in &parser.data {
        put_all(
            &[u64::from(*frame), page.pid.into(), page.level.number().into(), page.number],
            &mut out,
        );
    }
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Restores a saved state into a new parser of the same capture.
pub(super) fn load(bytes: &[u8], parser: &mut Parser) -> Result<Places, &'static str> {
    let (front, sum) = bytes.split_last_chunk::<4>().ok_or("it is cut short")?;
    if crc32fast::hash(front).to_le_bytes() != *sum {
        return Err("its checksum does not match");
    }
    let mut rest = front.strip_prefix(&MAGIC).ok_or("it is no saved state")?;
    let rest = &mut rest;
    if take(rest) != Some(VERSION) {
        return Err("it is of another version");
    }
    read(rest, parser).ok_or("it is damaged")?
}

fn read(rest: &mut &[u8], parser: &mut Parser) -> Option<Result<Places, &'static str>> {
    let mut places = Places::default();
    for _ in 0..take(rest)? {
        let [offset, records, ticks] = take_all(rest)?;
        let traffic = traffic_of(take_all(rest)?);
        let [ended, adrift, taken] = take_all(rest)?;
        let (ended, adrift) = (ended != 0, adrift != 0);
        let mark = Mark { offset, records, ticks, traffic, ended, adrift };
        places.boards.push((mark, taken));
    }
    let [offset, records, next, ended] = take_all(rest)?;
    places.dump = dump_reader::Mark { offset, records, next, ended: ended != 0 };
    let next = take(rest)?;
    let misses = take_misses(rest)?;
    let mut blocks = Vec::new();
    for _ in 0..take(rest)? {
        blocks.push(take_block(rest)?);
    }
    let mut reads = Vec::new();
    for _ in 0..take(rest)? {
        let [block, count] = take_all(rest)?;
        reads.push((u32::try_from(block).ok()?, count));
    }
    let mut writes = Vec::new();
    for _ in 0..take(rest)? {
        let [frame, count] = take_all(rest)?;
        writes.push((u32::try_from(frame).ok()?, count));
    }
    let mut data = BTreeMap::new();
    for _ in 0..take(rest)? {
        let frame = u32::try_from(take(rest)?).ok()?;
        data.insert(frame, take_number(rest)?);
    }
    let restored = parser.restore(next, misses, blocks, &reads);
    let restored = restored.and_then(|()| parser.restore_data(&writes, data));
    rest.is_empty().then(|| restored.map(|()| places))
}

fn put_all(numbers: &[u64], out: &mut Vec<u8>) {
    numbers.iter().for_each(|number| put(*number, out));
}

fn take_all<const COUNT: usize>(rest: &mut &[u8]) -> Option<[u64; COUNT]> {
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = take(rest)?;
    }
    Some(numbers)
}

fn traffic(traffic: &Traffic) -> [u64; 6] {
    let Traffic { reads, writes, overruns, missing, disordered, damaged } = *traffic;
    [reads, writes, overruns, missing, disordered, damaged]
}

fn traffic_of([reads, writes, overruns, missing, disordered, damaged]: [u64; 6]) -> Traffic {
    Traffic { reads, writes, overruns, missing, disordered, damaged }
}

fn put_misses(misses: &Misses, out: &mut Vec<u8>) {
    let [tags, missing, disordered] = misses.tags;
    put_all(&[misses.announced, misses.unseen, misses.idle, misses.upper, misses.writes], out);
    put_all(&[misses.outside, misses.conflicts, misses.untold, misses.late], out);
    put_all(&[tags, missing, disordered, misses.pages.len() as u64], out);
    misses.pages.iter().for_each(|(page, counts)| put_page(page, counts, out));
    put(misses.permissions.len() as u64, out);
    for (page, [given, taken]) in &misses.permissions {
        put_all(&[page.pid.into(), page.level.number().into(), page.number, *given, *taken], out);
    }
    put(misses.machines.len() as u64, out);
    misses.machines.iter().for_each(|pid| put((*pid).into(), out));
    put(misses.within.len() as u64, out);
    misses.within.iter().for_each(|(pid, in_)| put_all(&[(*pid).into(), (*in_).into()], out));
    put(misses.watched.len() as u64, out);
    for (page, Accesses { reads, writes }) in &misses.watched {
        put_all(&[page.pid.into(), page.level.number().into(), page.number, *reads, *writes], out);
    }
}

/// Decodes a page's identity.
fn take_number(rest: &mut &[u8]) -> Option<Page> {
    let [pid, level, number] = take_all(rest)?;
    let level = Level::new(u8::try_from(level).ok()?)?;
    Some(Page { pid: u32::try_from(pid).ok()?, level, number })
}

fn take_misses(rest: &mut &[u8]) -> Option<Misses> {
    let [announced, unseen, idle, upper, writes] = take_all(rest)?;
    let [outside, conflicts, untold, late] = take_all(rest)?;
    let [came, missing, disordered, count] = take_all(rest)?;
    let tags = [came, missing, disordered];
    let mut misses = Misses {
        announced,
        unseen,
        idle,
        upper,
        writes,
        outside,
        conflicts,
        untold,
        tags,
        late,
        ..Misses::default()
    };
    for _ in 0..count {
        let (page, counts) = take_page(rest)?;
        misses.pages.insert(page, counts);
    }
    for _ in 0..take(rest)? {
        let page = take_number(rest)?;
        misses.permissions.insert(page, take_all(rest)?);
    }
    for _ in 0..take(rest)? {
        misses.machines.insert(u32::try_from(take(rest)?).ok()?);
    }
    for _ in 0..take(rest)? {
        let [pid, machine] = take_all(rest)?;
        misses.within.insert(u32::try_from(pid).ok()?, u32::try_from(machine).ok()?);
    }
    for _ in 0..take(rest)? {
        let page = take_number(rest)?;
        let [reads, writes] = take_all(rest)?;
        misses.watched.insert(page, Accesses { reads, writes });
    }
    Some(misses)
}

fn put_page(page: &Page, counts: &PageMisses, out: &mut Vec<u8>) {
    put_all(&[page.pid.into(), page.level.number().into(), page.number], out);
    put_all(&[counts.exact, counts.shared, counts.mixed], out);
}

fn take_page(rest: &mut &[u8]) -> Option<Mapped> {
    let page = take_number(rest)?;
    let [exact, shared, mixed] = take_all(rest)?;
    Some((page, PageMisses { exact, shared, mixed }))
}

fn put_block(number: u32, block: &Block, out: &mut Vec<u8>) {
    let mask = block.pages.iter().rev().fold(0, |mask, page| mask << 1 | u64::from(page.is_some()));
    put_all(&[number.into(), mask, block.tables.into()], out);
    block.pages.iter().flatten().for_each(|(page, counts)| put_page(page, counts, out));
}

fn take_block(rest: &mut &[u8]) -> Option<(u32, Block)> {
    let [number, mask, tables] = take_all(rest)?;
    let mut block = Block { tables: u8::try_from(tables).ok()?, ..Block::default() };
    for at in (0..ENTRIES).filter(|at| mask >> at & 1 == 1) {
        block.pages[at] = Some(take_page(rest)?);
        block.mapped += 1;
    }
    Some((u32::try_from(number).ok()?, block))
}
