//! What threads do next to the reads of hot memory.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::area::map;
use crate::{MIB, PAGE};

/// Starts threads that wake up once a second.
pub(crate) fn threads(number: u64) -> Result<(), String> {
    for index in 0..number {
        let thread = thread::Builder::new().stack_size(MIB);
        let started = thread.spawn(|| {
            loop {
                thread::sleep(Duration::from_secs(1));
            }
        });
        started.map_err(|e| format!("thread {index}: {e}"))?;
    }
    Ok(())
}

/// Bytes of a mapping that lives shortly.
const SHORT: usize = 256 << 10;

/// Makes, touches and unmaps mappings, that many a second.
pub(crate) fn churn(per_second: u64) {
    thread::spawn(move || {
        let apart = Duration::from_secs(1) / per_second as u32;
        let mut next = Instant::now();
        loop {
            short_mapping();
            next += apart;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
}

fn short_mapping() {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let Ok(start) = map(SHORT, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None) else {
        return;
    };
    for at in (start..start + SHORT).step_by(4 * PAGE) {
        // SAFETY: inside of the mapping that was just made.
        unsafe { (at as *mut u8).write_volatile(1) };
    }
    // SAFETY: the mapping is used by nothing else.
    unsafe { libc::munmap(start as *mut libc::c_void, SHORT) };
}

/// Bytes of a call of read(2).
const PIECE: usize = 64 << 10;

/// Writes a file of that many MiB, and reads its first MiB again and again.
pub(crate) fn reads(mib: u64, hot_mib: u64) -> Result<(), String> {
    let path = "/tmp/shape-reads";
    let open = File::options().read(true).write(true).create_new(true).open(path);
    let mut file = open.map_err(|e| format!("{path}: {e}"))?;
    let mut buffer = vec![1; PIECE];
    let pieces = |mib: u64| mib * (MIB / PIECE) as u64;
    let (all, hot) = (pieces(mib), pieces(hot_mib));
    for _ in 0..all {
        file.write_all(&buffer).map_err(|e| format!("{path}: {e}"))?;
    }
    thread::spawn(move || {
        for piece in (0..hot).cycle() {
            if file.read_exact_at(&mut buffer, piece * PIECE as u64).is_err() {
                return;
            }
        }
    });
    Ok(())
}
