//! Internals of QEMU: host addresses of accesses, CR3 and CR4 of a vCPU, and flushes of its
//! emulated TLB. The plugin interface of QEMU 7.2 offers none of them, but QEMU exports the
//! functions and keeps the registers in memory.
//!
//! All of this is proven in the running machine before it is used. Candidates for the registers are
//! found by plausibility; a candidate is accepted only after page-table walks from it agreed with
//! the physical addresses of accesses by programs in more than one address space. That also proves
//! the host addresses and the layout of RAM.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::calls::symbol;
use crate::memory::Memory;
use crate::tlb::resolve;

/// QEMU versions for which this code has been tested.
pub const KNOWN: &[&str] = &["7.2"];

type GetCpu = unsafe extern "C" fn(c_int) -> *mut c_void;
type OnCpu = unsafe extern "C" fn(*mut c_void);

/// Functions that QEMU exports, but not in its plugin interface.
#[derive(Clone, Copy, Debug)]
pub struct Qemu {
    get_cpu: GetCpu,
    flush: OnCpu,
    forget_code: OnCpu,
}

impl Qemu {
    /// Looks up the functions.
    ///
    /// # Errors
    /// Name of a missing function.
    pub fn find() -> Result<Self, String> {
        let (get_cpu, flush) = (symbol("qemu_get_cpu")?, symbol("tlb_flush")?);
        let forget_code = symbol("tb_flush")?;
        // SAFETY: the types are those in include/hw/core/cpu.h and include/exec/exec-all.h of QEMU.
        Ok(unsafe {
            Self {
                get_cpu: std::mem::transmute::<*mut c_void, GetCpu>(get_cpu),
                flush: std::mem::transmute::<*mut c_void, OnCpu>(flush),
                forget_code: std::mem::transmute::<*mut c_void, OnCpu>(forget_code),
            }
        })
    }

    /// QEMU's object for a vCPU; null if there is none.
    #[must_use]
    pub fn cpu(&self, number: u32) -> *mut c_void {
        // SAFETY: a look-up in a list that does not change once the machine runs.
        unsafe { (self.get_cpu)(number as c_int) }
    }

    /// Flushes the emulated TLB of a vCPU; may be called from any thread: QEMU queues it for the
    /// vCPU.
    pub fn flush(&self, number: u32) {
        let cpu = self.cpu(number);
        if !cpu.is_null() {
            // SAFETY: a vCPU of this machine; accel/tcg/cputlb.c, tlb_flush_by_mmuidx, queues work
            // from other threads.
            unsafe { (self.flush)(cpu) }
        }
    }
}

impl Qemu {
    /// Makes QEMU translate all code again, so that callbacks are inserted.
    pub fn forget_code(&self) {
        let cpu = self.cpu(0);
        if !cpu.is_null() {
            // SAFETY: a vCPU of this machine; accel/tcg/translate-all.c, tb_flush, waits until no
            // vCPU is running.
            unsafe { (self.forget_code)(cpu) }
        }
    }
}

const CR0_PAGING: u64 = 1 << 31;
const CR0_PROTECTED: u64 = 1;
const CR4_PAE: u64 = 1 << 5;
const CR4_LA57: u64 = 1 << 12;
const ROOT_MASK: u64 = 0x000f_ffff_ffff_f000;

/// Location of a vCPU's CR0 to CR4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Address of CR0 in this process.
    address: usize,
}

impl Registers {
    #[inline(always)]
    fn read(self, number: usize) -> u64 {
        // SAFETY: candidates are in memory that was readable, in an object that lives as long as
        // the machine; only the vCPU's thread writes it, and that thread is the one that reads
        // here.
        unsafe { &*((self.address + number * 8) as *const AtomicU64) }.load(Relaxed)
    }

    /// Physical address of the top-level page table.
    #[inline(always)]
    #[must_use]
    pub fn root(self) -> u64 {
        self.read(3) & ROOT_MASK
    }

    /// Number of levels of the page tables.
    #[inline(always)]
    #[must_use]
    pub fn levels(self) -> u8 {
        if self.read(4) & CR4_LA57 != 0 { 5 } else { 4 }
    }
}

/// Whether five words are plausible values of CR0 to CR4 in 64-bit mode, with RAM that ends at
/// `end`.
fn look_like_control_registers(words: &[u64], end: u64) -> bool {
    let [cr0, cr1, _, cr3, cr4] = words else { return false };
    cr0 & (CR0_PAGING | CR0_PROTECTED) == CR0_PAGING | CR0_PROTECTED
        && cr0 >> 32 == 0
        && *cr1 == 0
        && *cr3 != 0
        && (cr3 & ROOT_MASK) < end
        && cr3 & !ROOT_MASK & !0xfff == 0
        && cr4 & CR4_PAE != 0
        && cr4 >> 32 == 0
}

/// Number of bytes searched in a vCPU's object.
const SEARCHED: usize = 64 << 10;
/// Number of accesses that have to agree with a candidate.
const AGREEMENTS: u32 = 256;
/// Number of accesses after which the search fails if there is no candidate.
const PATIENCE: u32 = 1 << 16;

/// State of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The search needs more accesses.
    Open,
    /// The search found these registers.
    Proven(Registers),
    /// The search failed: no candidate agrees with the accesses.
    Failed,
}

/// Search for the control registers of one vCPU.
#[derive(Debug, Default)]
pub struct Search {
    candidates: Vec<(Registers, u32)>,
    first_root: u64,
    other_roots: bool,
    looks: u32,
}

impl Search {
    /// Checks the candidates with an access of a program: `linear` was translated to `physical`.
    pub fn look(
        &mut self,
        cpu: *const c_void,
        memory: &Memory,
        linear: u64,
        physical: u64,
    ) -> Verdict {
        self.looks += 1;
        if self.candidates.is_empty() {
            self.candidates = candidates(cpu as usize, memory.end());
        }
        self.candidates.retain_mut(|(registers, agreed)| {
            let found = resolve(memory, registers.root(), registers.levels(), linear);
            let agrees = found.is_some_and(|found| found.physical == physical);
            *agreed += u32::from(agrees);
            agrees
        });
        let Some((registers, agreed)) = self.candidates.first().copied() else {
            return if self.looks >= PATIENCE { Verdict::Failed } else { Verdict::Open };
        };
        let root = registers.root();
        if self.first_root == 0 {
            self.first_root = root;
        }
        self.other_roots |= root != self.first_root;
        if agreed >= AGREEMENTS && self.other_roots {
            Verdict::Proven(registers)
        } else {
            Verdict::Open
        }
    }
}

fn candidates(cpu: usize, end: u64) -> Vec<(Registers, u32)> {
    let words = read_words(cpu, SEARCHED);
    let looks = |(at, five): (usize, &[u64])| {
        let address = cpu + at * 8;
        look_like_control_registers(five, end).then_some((Registers { address }, 0))
    };
    words.windows(5).enumerate().filter_map(looks).collect()
}

/// Reads words of this process up to the first unreadable byte: memory after the object may not be
/// mapped.
fn read_words(address: usize, bytes: usize) -> Vec<u64> {
    let mut words = vec![0u64; bytes / 8];
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes };
    // SAFETY: the kernel writes at most `bytes` bytes into `words`, and returns an error for
    // unreadable memory.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    words.truncate(usize::try_from(read).unwrap_or(0) / 8);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::NodeFile;

    const CR0: u64 = 0x8005_0033;
    const CR4: u64 = 0x0035_06f0;

    #[test]
    fn control_registers_are_known_by_their_bits() {
        let end = 1 << 30;
        let good = [CR0, 0, 0x7f00_1234, 0x2000_3000, CR4];
        assert!(look_like_control_registers(&good, end));
        for (at, value) in
            [(0, 0x33), (1, 7), (3, 0), (3, 1 << 31), (4, 0x10), (4, 1 << 33), (0, CR0 | 1 << 40)]
        {
            let mut bad = good;
            bad[at] = value;
            assert!(!look_like_control_registers(&bad, end), "{at} {value:#x}");
        }
    }

    /// A machine of 64 KiB with two address spaces, whose only page is at 0x8000 and at 0x9000.
    fn machine() -> (Vec<u64>, Memory) {
        let mut ram = vec![0u64; 8192];
        for (root, page) in [(0x1000u64, 0x8000u64), (0x2000, 0x9000)] {
            let (pdpt, pd, pt) = (root + 0x2000, root + 0x4000, root + 0x5000 + (root - 0x1000));
            for (table, next) in [(root, pdpt), (pdpt, pd), (pd, pt), (pt, page)] {
                ram[table as usize / 8] = next | 7;
            }
        }
        let bytes = ram.len() as u64 * 8;
        let files = [NodeFile { path: "/x".into(), bytes }];
        let memory = Memory::of_q35(&files, &[ram.as_ptr() as u64]);
        (ram, memory)
    }

    #[test]
    fn registers_are_proven_by_where_accesses_went() {
        let (_ram, memory) = machine();
        // A stale copy of the registers, followed by the real ones.
        let mut cpu = vec![0u64; SEARCHED / 8];
        cpu[100..105].copy_from_slice(&[CR0, 0, 0, 0x1000, CR4]);
        cpu[500..505].copy_from_slice(&[CR0, 0, 0, 0x1000, CR4]);
        let object = cpu.as_mut_ptr();
        let mut search = Search::default();
        let mut verdict = Verdict::Open;
        for round in 0..2 * AGREEMENTS {
            let (root, page) = if round % 8 < 4 { (0x1000, 0x8000) } else { (0x2000, 0x9000) };
            // SAFETY: within `cpu`.
            unsafe { object.add(503).write_volatile(root) };
            verdict = search.look(object.cast(), &memory, 0x10, page + 0x10);
            if verdict != Verdict::Open {
                break;
            }
        }
        let Verdict::Proven(registers) = verdict else { panic!("{verdict:?}") };
        assert_eq!(registers.address, object as usize + 500 * 8);
        assert_eq!((registers.root(), registers.levels()), (0x2000, 4));
    }

    #[test]
    fn one_address_space_proves_nothing_and_nothing_proves_failure() {
        let (_ram, memory) = machine();
        let mut cpu = vec![0u64; SEARCHED / 8];
        cpu[500..505].copy_from_slice(&[CR0, 0, 0, 0x1000, CR4]);
        let mut search = Search::default();
        for _ in 0..2 * AGREEMENTS {
            assert_eq!(search.look(cpu.as_ptr().cast(), &memory, 0x10, 0x8010), Verdict::Open);
        }
        let empty = vec![0u64; SEARCHED / 8];
        let mut search = Search::default();
        let last =
            (0..PATIENCE).map(|_| search.look(empty.as_ptr().cast(), &memory, 0x10, 0x8010)).last();
        assert_eq!(last, Some(Verdict::Failed));
    }
}
