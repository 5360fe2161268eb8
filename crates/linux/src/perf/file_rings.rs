//! Rings in temporary files, in place of those of perf_event_open(2): tests append records to them
//! as the kernel does.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use perf_event_open_sys::bindings::{PERF_RECORD_LOST, perf_event_attr};

use super::event::EventOpener;
use super::ring::compose;
use super::{HEAD, PAGES};

/// One opened event: its attributes, its CPU, and the file of its ring.
struct FileRing {
    attr: perf_event_attr,
    cpu: u32,
    file: File,
}

/// The rings that were opened so far.
#[derive(Default)]
pub(crate) struct FileRings(RefCell<Vec<FileRing>>);

impl EventOpener for FileRings {
    fn open(&self, attr: perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
        let file = tempfile::tempfile()?;
        file.set_len(((PAGES + 1) * rustix::param::page_size()) as u64)?;
        let fd = file.try_clone()?.into();
        self.0.borrow_mut().push(FileRing { attr, cpu, file });
        Ok(fd)
    }
}

impl FileRings {
    /// Configuration, frequency and CPU of each event, in the order of opening.
    pub(crate) fn events(&self) -> Vec<(u64, u64, u32)> {
        let rings = self.0.borrow();
        rings.iter().map(|ring| (ring.attr.config, ring.attr.sample_freq, ring.cpu)).collect()
    }

    /// Appends a sample without a data source to ring `number`.
    pub(crate) fn sample(&self, number: usize, pid: u32, address: u64) {
        let ring = &self.0.borrow()[number];
        ring.append(&compose::sample(pid, 0, address, ring.cpu, 0));
    }

    /// Appends the record of `count` lost samples to ring `number`.
    pub(crate) fn lose(&self, number: usize, count: u64) {
        let body = [0u64.to_ne_bytes(), count.to_ne_bytes()].concat();
        self.0.borrow()[number].append(&compose::record(PERF_RECORD_LOST, &body));
    }
}

impl FileRing {
    /// Writes a record behind the head, wrapping around at the end, then advances the head.
    fn append(&self, record: &[u8]) {
        let page = rustix::param::page_size() as u64;
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, HEAD as u64).unwrap();
        let head = u64::from_ne_bytes(word);
        for (at, byte) in (head..).zip(record) {
            self.file.write_all_at(&[*byte], page + at % (PAGES as u64 * page)).unwrap();
        }
        let head = head + record.len() as u64;
        self.file.write_all_at(&head.to_ne_bytes(), HEAD as u64).unwrap();
    }
}
