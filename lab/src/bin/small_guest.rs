//! `small-guest`: a virtual machine monitor with a guest of 28 bytes of code, for scenarios whose
//! lab VM has KVM. The guest writes a byte of every page of a part of its RAM and halts; the
//! monitor then does the same in memory of its own, and runs the guest again.
//!
//! Usage: small-guest RAM_MIB GUEST_HOT_MIB OWN_MIB OWN_HOT_MIB PAUSE_MS READY. The hot parts begin
//! in the middle of their memory. It prints the addresses of both memories, creates the file READY
//! after the first pass, and runs until it is killed.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{io, ptr, thread};

const PAGE: u64 = 4096;
/// Guest-physical address of the code.
const CODE_AT: u64 = 0x1000;

// Requests of <linux/kvm.h>; their sizes are those of the arrays passed with them.
const CREATE_VM: libc::c_ulong = 0xae01;
const GET_VCPU_MMAP_SIZE: libc::c_ulong = 0xae04;
const CREATE_VCPU: libc::c_ulong = 0xae41;
const SET_USER_MEMORY_REGION: libc::c_ulong = 0x4020_ae46;
const RUN: libc::c_ulong = 0xae80;
const SET_REGS: libc::c_ulong = 0x4090_ae82;
const GET_SREGS: libc::c_ulong = 0x8138_ae83;
const SET_SREGS: libc::c_ulong = 0x4138_ae84;
/// `KVM_EXIT_HLT`.
const EXIT_HLT: u32 = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [numbers @ .., ready] = &arguments[..] else { return usage() };
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|text| text.parse()).collect();
    let Ok(&[ram, guest_hot, own, own_hot, pause]) = numbers.as_deref() else { return usage() };
    match run((ram << 20, guest_hot << 20), (own << 20, own_hot << 20), pause, ready) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("small-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: small-guest RAM_MIB GUEST_HOT_MIB OWN_MIB OWN_HOT_MIB PAUSE_MS READY");
    ExitCode::from(2)
}

/// A value that does not exist: the guest runs until the process is killed.
enum Never {}

fn run(
    (ram, guest_hot): (u64, u64),
    (own, own_hot): (u64, u64),
    pause: u64,
    ready: &str,
) -> Result<Never, String> {
    // The KVM of the host machine is not the lab's.
    if !Path::new("/lab/job").exists() {
        return Err("runs in a VM of the lab only".to_owned());
    }
    let at = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let memory = map(ram).map_err(at("RAM"))?;
    let own_memory = map(own).map_err(at("own memory"))?;
    println!("ram {memory:p} own {own_memory:p}");
    write(memory, 0, ram);
    write(own_memory, 0, own);
    // SAFETY: the code lies within the RAM, which is at least 1 MiB.
    unsafe {
        let to = memory.add(CODE_AT as usize);
        ptr::copy_nonoverlapping(code(ram / 2, ram / 2 + guest_hot).as_ptr(), to, CODE_BYTES);
    }
    let vcpu = Vcpu::new(memory, ram).map_err(at("KVM"))?;
    for pass in 0_u64.. {
        match vcpu.run().map_err(at("KVM_RUN"))? {
            EXIT_HLT => write(own_memory, own / 2, own / 2 + own_hot),
            reason => return Err(format!("the guest ended in pass {pass}: KVM exit {reason}")),
        }
        if pass == 0 {
            fs::write(ready, "").map_err(at("READY"))?;
        }
        thread::sleep(Duration::from_millis(pause));
    }
    Err("too many passes".to_owned())
}

const CODE_BYTES: usize = 28;

/// Increments a byte of every page from `start` to `end`, halts, and begins again. In real mode,
/// with 32-bit addresses.
fn code(start: u64, end: u64) -> [u8; CODE_BYTES] {
    let mut code = [
        0x66, 0xbe, 0, 0, 0, 0, // mov esi, start
        0x67, 0xfe, 0x06, // next: inc byte [esi]
        0x66, 0x81, 0xc6, 0, 0x10, 0, 0, // add esi, 4096
        0x66, 0x81, 0xfe, 0, 0, 0, 0, // cmp esi, end
        0x72, 0xed, // jb next
        0xf4, // hlt
        0xeb, 0xe4, // jmp to the first instruction
    ];
    code[2..6].copy_from_slice(&(start as u32).to_le_bytes());
    code[19..23].copy_from_slice(&(end as u32).to_le_bytes());
    code
}

/// A virtual machine with one CPU.
struct Vcpu {
    vcpu: OwnedFd,
    /// Its `struct kvm_run`.
    state: *const u8,
    _vm: OwnedFd,
}

impl Vcpu {
    /// A CPU in real mode, at `CODE_AT` of the RAM.
    fn new(ram: *mut u8, bytes: u64) -> io::Result<Self> {
        let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
        let vm = owned(request(&kvm, CREATE_VM, 0)?);
        // slot and flags, guest_phys_addr, memory_size, userspace_addr
        let slot = [0, 0, bytes, ram as u64];
        request(&vm, SET_USER_MEMORY_REGION, slot.as_ptr() as u64)?;
        let vcpu = owned(request(&vm, CREATE_VCPU, 0)?);
        let size = request(&kvm, GET_VCPU_MMAP_SIZE, 0)? as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, fd) = (libc::MAP_SHARED, vcpu.as_raw_fd());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let state = unsafe { libc::mmap(ptr::null_mut(), size, protection, shared, fd, 0) };
        let state = mapped(state)?;
        let mut special = [0_u64; 39];
        request(&vcpu, GET_SREGS, special.as_mut_ptr() as u64)?;
        // CS: base and selector 0. DS: base 0, a limit of 4 GiB, counted in pages.
        (special[0], special[1]) = (0, special[1] & !(0xffff << 32));
        (special[3], special[4]) = (0, special[4] | 0xffff_ffff);
        special[5] |= 1 << 32;
        request(&vcpu, SET_SREGS, special.as_ptr() as u64)?;
        let mut general = [0_u64; 18];
        // RIP, and RFLAGS with the bit that is always set.
        (general[16], general[17]) = (CODE_AT, 2);
        request(&vcpu, SET_REGS, general.as_ptr() as u64)?;
        Ok(Vcpu { vcpu, state, _vm: vm })
    }

    /// Runs until the guest leaves to the monitor; returns the reason.
    fn run(&self) -> io::Result<u32> {
        request(&self.vcpu, RUN, 0)?;
        // SAFETY: `exit_reason` of the mapped `struct kvm_run`.
        Ok(unsafe { self.state.add(8).cast::<u32>().read_volatile() })
    }
}

fn request(fd: &impl AsRawFd, request: libc::c_ulong, argument: u64) -> io::Result<i32> {
    // SAFETY: the argument is a number, or points to an array of the size that the request names.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: KVM has just created the descriptor for this caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Private anonymous memory without huge pages, with a gap behind it: mappings do not merge.
fn map(bytes: u64) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let length = (bytes + PAGE) as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the kernel chooses; its last page is protected.
    unsafe {
        let memory = mapped(libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0))?;
        libc::madvise(memory.cast(), bytes as usize, libc::MADV_NOHUGEPAGE);
        match libc::mprotect(memory.add(bytes as usize).cast(), PAGE as usize, libc::PROT_NONE) {
            0 => Ok(memory),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn mapped(memory: *mut libc::c_void) -> io::Result<*mut u8> {
    match memory {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        memory => Ok(memory.cast()),
    }
}

/// Writes a byte of every page from `start` to `end`.
fn write(memory: *mut u8, start: u64, end: u64) {
    for at in (start..end).step_by(PAGE as usize) {
        // SAFETY: the mapping has at least `end` bytes, and nothing unmaps it.
        unsafe { memory.add(at as usize).write_volatile(1) };
    }
}
