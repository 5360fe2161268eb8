//! `sharer`: processes that map one file, shared, and read a byte of every page of a part of it,
//! pass after pass. They are forked after the file is mapped: it has the same address in all of
//! them.
//!
//! Usage: sharer FILE START_MIB HOT_MIB PAUSE_MS PROCESSES READY [COPIED_MIB | own]. A process
//! creates the file READY, with its number appended, when it has mapped all pages; in it is a line
//! of truth, as `shape` writes it. With `own`, each process reads a part of its own of the hot
//! memory. If FILE is a number, it is that many MiB of anonymous memory, of which the second
//! process writes to the last COPIED_MIB, and gets copies; when there is a file READY with `fork`
//! appended, the first process forks one more, which does the same.

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([file, start, hot, pause, processes, ready], last) = (match &arguments[..] {
        [first @ .., last] if first.len() == 6 => (first, last.as_str()),
        all => (all, "0"),
    }) else {
        eprintln!(
            "usage: sharer FILE START_MIB HOT_MIB PAUSE_MS PROCESSES READY [COPIED_MIB | own]"
        );
        return ExitCode::from(2);
    };
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let own = last == "own";
    let copied = if own { "0" } else { last };
    let numbers = [start.as_str(), hot, copied, pause, processes].map(number);
    let numbers: Result<Vec<u64>, String> = numbers.into_iter().collect();
    let run = |numbers: Vec<u64>| match numbers[..] {
        [start, hot, copied, pause, processes] => {
            read(file, (start, hot, copied), pause, (processes, ready, own))
        }
        _ => Err("five numbers are needed".into()),
    };
    match numbers.and_then(run) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("sharer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A value that does not exist: reading ends with the process.
enum Never {}

/// Reads pages for ever.
fn read(
    path: &str,
    (start, hot, copied): (u64, u64, u64),
    pause: u64,
    (processes, ready, own): (u64, &str, bool),
) -> Result<Never, String> {
    let (memory, bytes) = match path.parse::<usize>() {
        Ok(mib) => (map(None, mib << 20), mib << 20),
        Err(_) => {
            let file = File::options().read(true).write(true).open(path);
            let file = file.map_err(|e| format!("{path}: {e}"))?;
            let bytes = file.metadata().map_err(|e| format!("{path}: {e}"))?.len() as usize;
            (map(Some(&file), bytes), bytes)
        }
    };
    let [start, hot, copied] = [start, hot, copied].map(|mib| (mib << 20) as usize);
    if start + hot > bytes || copied > bytes {
        return Err(format!("{path} has {bytes} bytes"));
    }
    let memory = memory.map_err(|e| format!("cannot map {path}: {e}"))?;
    if copied > 0 {
        write(memory, 0, bytes);
    }
    let mut number = fork(processes);
    touch(memory, 0, bytes);
    if number == 2 {
        write(memory, bytes - copied, bytes);
    }
    let (start, end) = part(start, hot, own.then_some((number, processes)));
    let announce = |number: u64| {
        let (pid, at) = (std::process::id(), memory.addr());
        let line = format!("0 {pid} {:x} {:x}\n", at + start, at + end);
        fs::write(format!("{ready}{number}"), line).map_err(|e| format!("{ready}{number}: {e}"))
    };
    announce(number)?;
    // Reads would take the CPUs from processes that still map their pages.
    for other in 1..=processes {
        while !Path::new(&format!("{ready}{other}")).exists() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    let forks = format!("{ready}fork");
    let mut forked = false;
    loop {
        touch(memory, start, end);
        if number == 1 && !forked && Path::new(&forks).exists() {
            forked = true;
            // SAFETY: the process has one thread.
            if unsafe { libc::fork() } == 0 {
                number = processes + 1;
                touch(memory, 0, bytes);
                write(memory, bytes - copied, bytes);
                announce(number)?;
            }
        }
        thread::sleep(Duration::from_millis(pause));
    }
}

/// Offsets of the hot pages of a process: all of them, or its part if it is one of several.
fn part(start: usize, hot: usize, of: Option<(u64, u64)>) -> (usize, usize) {
    let (number, processes) = of.unwrap_or((1, 1));
    let border = |index: u64| hot / PAGE * index as usize / processes as usize * PAGE;
    (start + border(number - 1), start + border(number))
}

/// Forks until there are as many processes; returns the number of this one, from 1 on.
fn fork(processes: u64) -> u64 {
    for number in 2..=processes {
        // SAFETY: the process has one thread.
        if unsafe { libc::fork() } == 0 {
            return number;
        }
    }
    1
}

/// Maps a file, shared; without one, anonymous memory of the process.
fn map(file: Option<&File>, bytes: usize) -> std::io::Result<*mut u8> {
    use std::os::fd::AsRawFd;
    let (flags, file) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
    match memory {
        libc::MAP_FAILED => Err(std::io::Error::last_os_error()),
        memory => Ok(memory.cast()),
    }
}

/// Reads a byte of every page from `start` to `end`.
fn touch(memory: *mut u8, start: usize, end: usize) {
    for at in (start..end).step_by(PAGE) {
        // SAFETY: the mapping has at least `end` bytes, and nothing unmaps it.
        unsafe { memory.add(at).read_volatile() };
    }
}

/// Writes a byte of every page from `start` to `end`.
fn write(memory: *mut u8, start: usize, end: usize) {
    for at in (start..end).step_by(PAGE) {
        // SAFETY: the mapping has at least `end` bytes, and nothing unmaps it.
        unsafe { memory.add(at).write_volatile(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 10 pages for 4 processes: 2, 3, 2 and 3.
    #[test]
    fn parts_make_up_the_whole() {
        let page = |(start, end): (usize, usize)| (start / PAGE, end / PAGE);
        let parts: Vec<_> = (1..=4).map(|n| page(part(PAGE, 10 * PAGE, Some((n, 4))))).collect();
        assert_eq!(parts, [(1, 3), (3, 6), (6, 8), (8, 11)]);
        assert_eq!(page(part(PAGE, 10 * PAGE, None)), (1, 11));
    }
}
