//! `sharer`: processes that map one file, shared, and read a byte of every page of a part of it,
//! pass after pass. They are forked after the file is mapped: it has the same address in all of
//! them.
//!
//! Usage: sharer FILE START_MIB HOT_MIB PAUSE_MS PROCESSES READY. A process creates the file READY,
//! with its number appended, when it has mapped all pages.

use std::fs::{self, File};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, start, hot, pause, processes, ready] = &arguments[..] else {
        eprintln!("usage: sharer FILE START_MIB HOT_MIB PAUSE_MS PROCESSES READY");
        return ExitCode::from(2);
    };
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let numbers = (|| Ok([number(start)?, number(hot)?, number(pause)?, number(processes)?]))();
    let run = |[start, hot, pause, processes]: [u64; 4]| {
        read(file, (start, hot), pause, (processes, ready))
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
    (start, hot): (u64, u64),
    pause: u64,
    (processes, ready): (u64, &str),
) -> Result<Never, String> {
    let file = File::options().read(true).write(true).open(path);
    let file = file.map_err(|e| format!("{path}: {e}"))?;
    let bytes = file.metadata().map_err(|e| format!("{path}: {e}"))?.len() as usize;
    let (start, hot) = ((start << 20) as usize, (hot << 20) as usize);
    if start + hot > bytes {
        return Err(format!("{path} has {bytes} bytes"));
    }
    let memory = map(&file, bytes).map_err(|e| format!("cannot map {path}: {e}"))?;
    let number = fork(processes);
    touch(memory, 0, bytes);
    fs::write(format!("{ready}{number}"), "").map_err(|e| format!("{ready}{number}: {e}"))?;
    loop {
        touch(memory, start, start + hot);
        thread::sleep(Duration::from_millis(pause));
    }
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

fn map(file: &File, bytes: usize) -> std::io::Result<*const u8> {
    use std::os::fd::AsRawFd;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let memory = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    match memory {
        libc::MAP_FAILED => Err(std::io::Error::last_os_error()),
        memory => Ok(memory.cast()),
    }
}

/// Reads a byte of every page from `start` to `end`.
fn touch(memory: *const u8, start: usize, end: usize) {
    for at in (start..end).step_by(PAGE) {
        // SAFETY: the mapping has at least `end` bytes, and nothing unmaps it.
        unsafe { memory.add(at).read_volatile() };
    }
}
