//! Mappings of a program in user emulation: the initial ones, and the system calls that change them
//! with their results, so that addresses can be attributed later. Text lines in `mappings.log` in
//! the run's directory:
//!
//! ```text
//! map START-END PERMISSIONS OFFSET PATH           a mapping at the start of the program
//! call NANOSECONDS THREAD NUMBER RESULT ARGUMENT… mmap, munmap, mprotect, mremap, brk: hexadecimal
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::calls::Id;
use crate::clock::Clock;
use crate::log::say;
use crate::options::MOST_CPUS;
use crate::run::Run;

/// System calls that change mappings: mmap, mprotect, munmap, brk, mremap
/// (arch/x86/entry/syscalls/syscall_64.tbl).
const CHANGES: [i64; 5] = [9, 10, 11, 12, 25];
const BRK: i64 = 12;
const ARGUMENTS: usize = 6;

/// Arguments of a system call that has not returned; None outside of calls.
type Called = Option<[u64; ARGUMENTS]>;

struct Log {
    file: Mutex<BufWriter<File>>,
    calls: Mutex<[Called; MOST_CPUS as usize]>,
    clock: Clock,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts the log with the current mappings.
pub(crate) fn begin(run: &str, maps: &str, clock: Clock) {
    let path = format!("{run}/mappings.log");
    match File::create(&path) {
        Ok(file) => {
            let mut file = BufWriter::new(file);
            maps.lines().filter_map(map_line).for_each(|line| drop(writeln!(file, "{line}")));
            let _ = file.flush();
            let calls = Mutex::new([None; MOST_CPUS as usize]);
            let _ = LOG.set(Log { file: Mutex::new(file), calls, clock });
        }
        Err(error) => say(format_args!("mappings are not kept: {path}: {error}")),
    }
}

/// Converts a line of /proc/self/maps to a line of the log.
fn map_line(line: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path: Vec<&str> = words.skip(2).collect();
    Some(format!("map {range} {permissions} {offset} {}", path.join(" ")))
}

#[allow(clippy::too_many_arguments, reason = "QEMU's header has it so")]
pub(crate) extern "C" fn on_call(
    _: Id,
    cpu: u32,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    if let Some(log) = LOG.get().filter(|_| CHANGES.contains(&number)) {
        let mut calls = log.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = calls.get_mut(cpu as usize) {
            *call = Some([a, b, c, d, e, f]);
        }
    }
}

pub(crate) extern "C" fn on_return(_: Id, cpu: u32, number: i64, result: i64) {
    if let Some((_, vcpu)) = Run::and_vcpu(cpu) {
        vcpu.resumes();
    }
    let Some(log) = LOG.get().filter(|_| CHANGES.contains(&number)) else { return };
    let call = {
        let mut calls = log.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get_mut(cpu as usize).and_then(Option::take)
    };
    let Some(arguments) = call else { return };
    if number != BRK {
        crate::functions::mappings_changed();
    }
    let line = call_line(log.clock.now(), cpu, number, result, &arguments);
    let mut file = log.file.lock().unwrap_or_else(PoisonError::into_inner);
    // The program may be killed at any time, so the buffer is flushed after each line.
    let _ = writeln!(file, "{line}").and_then(|()| file.flush());
}

fn call_line(nanos: u64, cpu: u32, number: i64, result: i64, arguments: &[u64]) -> String {
    let words: Vec<String> = arguments.iter().map(|word| format!("{word:x}")).collect();
    format!("call {nanos} {cpu} {number} {result:x} {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_documented() {
        let maps = "7f00-7f10 r-xp 00001000 08:01 99   /usr/lib/a b.so";
        assert_eq!(map_line(maps).unwrap(), "map 7f00-7f10 r-xp 00001000 /usr/lib/a b.so");
        assert_eq!(
            map_line("7f00-7f10 rw-p 00000000 00:00 0").unwrap(),
            "map 7f00-7f10 rw-p 00000000 "
        );
        assert_eq!(map_line("x"), None);
        assert_eq!(call_line(5, 1, 9, -12, &[0, 4096]), "call 5 1 9 fffffffffffffff4 0 1000");
    }
}
