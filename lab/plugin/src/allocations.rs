//! Heap allocations of a program and their call sites: calls of malloc(3) and similar functions,
//! observed where the functions start and where they return to.
//!
//! The plugin interface of QEMU 7.2 gives no access to registers. QEMU exports the function with
//! which its debugger stub reads them (target/i386/gdbstub.c), and at the first instruction of a
//! block all registers are up to date in memory. A return address read from the stack is accepted
//! only if there is code at that address.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, RwLock};

use crate::calls::symbol;

/// Source of an allocation's size and address (System V ABI for x86-64: arguments in rdi, rsi, rdx;
/// the result in rax).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SizeFrom {
    /// The first argument is the number of bytes.
    First,
    /// The second argument is the number of bytes.
    Second,
    /// The number of bytes is the product of the first and the second argument.
    Product,
    /// The number of bytes is the product of the second and the third argument.
    SecondProduct,
    /// The third argument is the number of bytes; the address is stored where the first argument
    /// points.
    Pointer,
    /// The function is a wrapper: it calls another allocation function on behalf of its own caller.
    Nested,
}

impl SizeFrom {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        SizeFrom::First,
        SizeFrom::Second,
        SizeFrom::Product,
        SizeFrom::SecondProduct,
        SizeFrom::Pointer,
        SizeFrom::Nested,
    ];

    /// By the name of the function: malloc(3), posix_memalign(3), operator new, and wrappers whose
    /// callers count as the call sites: those of gnulib, GLib, CPython and strdup(3).
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "malloc" | "valloc" | "pvalloc" => SizeFrom::First,
            "realloc" | "memalign" | "aligned_alloc" => SizeFrom::Second,
            "calloc" => SizeFrom::Product,
            "reallocarray" => SizeFrom::SecondProduct,
            "posix_memalign" => SizeFrom::Pointer,
            "strdup" | "__strdup" | "strndup" | "__strndup" => SizeFrom::Nested,
            "xmalloc" | "xcalloc" | "xzalloc" | "xrealloc" | "xnmalloc" | "xnrealloc"
            | "xmemdup" | "xstrdup" | "x2realloc" | "x2nrealloc" | "ximalloc" | "xinmalloc"
            | "xpalloc" => SizeFrom::Nested,
            "g_malloc" | "g_malloc0" | "g_malloc_n" | "g_malloc0_n" | "g_realloc"
            | "g_realloc_n" | "g_try_malloc" | "g_strdup" | "g_slice_alloc" => SizeFrom::Nested,
            "PyMem_Malloc" | "PyMem_Calloc" | "PyMem_Realloc" | "PyMem_RawMalloc"
            | "PyMem_RawCalloc" | "PyMem_RawRealloc" | "PyObject_Malloc" | "PyObject_Calloc"
            | "PyObject_Realloc" => SizeFrom::Nested,
            // operator new and new[]: Itanium C++ ABI, section 5.1.
            _ if name.starts_with("_Znwm") || name.starts_with("_Znam") => SizeFrom::First,
            _ => return None,
        })
    }
}

/// An allocation call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    size_from: SizeFrom,
    /// Stack pointer at the start of the function; it points to the return address.
    stack: u64,
    site: u64,
    bytes: u64,
    /// Address at which the result is stored, if not in rax.
    pointer: u64,
    /// The allocation was already recorded for a nested call.
    recorded: bool,
}

/// A heap allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Address of the first byte.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Call site: return address of the outermost call.
    pub site: u64,
}

/// Nested allocation calls of a thread, outermost first.
#[derive(Debug, Default)]
pub struct OpenCalls(Vec<Call>);

/// Maximum depth of nested calls: deeper ones can only be left over from calls that ended by a
/// jump.
const DEEPEST: usize = 64;

impl OpenCalls {
    /// An allocation function starts; `registers` are rdi, rsi, rdx.
    fn begin(&mut self, size_from: SizeFrom, stack: u64, site: u64, registers: [u64; 3]) {
        let [first, second, third] = registers;
        // A tail call has the same stack pointer and return address as its caller. Calls that ended
        // by a jump, or whose return was missed, have a stack pointer that is not above this one.
        let is_tail_call =
            |call: &Call| call.stack == stack && call.site == site && call.size_from != size_from;
        while self.0.last().is_some_and(|call| call.stack <= stack && !is_tail_call(call)) {
            self.0.pop();
        }
        let (bytes, pointer) = match size_from {
            SizeFrom::First => (first, 0),
            SizeFrom::Second => (second, 0),
            SizeFrom::Product => (first.saturating_mul(second), 0),
            SizeFrom::SecondProduct => (second.saturating_mul(third), 0),
            SizeFrom::Pointer => (third, first),
            SizeFrom::Nested => (0, 0),
        };
        if self.0.len() < DEEPEST {
            self.0.push(Call { size_from, stack, site, bytes, pointer, recorded: false });
        }
    }

    /// Execution continues at `site` with this stack pointer: returns the completed allocation, if
    /// any. `read` reads a result that is stored in memory.
    fn end(
        &mut self,
        site: u64,
        stack: u64,
        rax: u64,
        read: impl Fn(u64) -> Option<u64>,
    ) -> Option<Allocation> {
        let mut found = None;
        // A function and its tail calls return together.
        while let Some(call) = self.0.pop_if(|call| call.site == site && call.stack + 8 == stack) {
            if call.recorded || call.size_from == SizeFrom::Nested || found.is_some() {
                continue;
            }
            let start = match call.size_from {
                SizeFrom::Pointer if rax == 0 => read(call.pointer).unwrap_or(0),
                SizeFrom::Pointer => 0,
                _ => rax,
            };
            let site = self.0.first().map_or(call.site, |outer| outer.site);
            found = (start != 0).then_some(Allocation { start, bytes: call.bytes, site });
        }
        if found.is_some() {
            self.0.iter_mut().for_each(|call| call.recorded = true);
        }
        found
    }
}

type GetCpu = unsafe extern "C" fn(c_int) -> *mut c_void;
type OnCpu = unsafe extern "C" fn(*mut c_void);
type ReadRegister = unsafe extern "C" fn(*mut c_void, *mut Bytes, c_int) -> c_int;
type NewBytes = unsafe extern "C" fn() -> *mut Bytes;
type SetBytes = unsafe extern "C" fn(*mut Bytes, u32) -> *mut Bytes;

/// `GByteArray` of GLib.
#[repr(C)]
struct Bytes {
    data: *const u8,
    length: u32,
}

/// Register numbers of the debugger interface: gdb's org.gnu.gdb.i386.core.
const RAX: c_int = 0;
const RDX: c_int = 3;
const RSI: c_int = 4;
const RDI: c_int = 5;
const RSP: c_int = 7;

/// Looks up a function of QEMU, or of GLib, which QEMU links.
///
/// # Safety
/// `F` must be the type that the function's header declares.
unsafe fn function<F: Copy>(name: &str) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let found = symbol(name)?;
    // SAFETY: the caller guarantees that the function has that type.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
}

/// Access to the registers of a program's threads, and to its memory.
#[derive(Debug)]
pub struct Registers {
    get_cpu: GetCpu,
    forget_code: OnCpu,
    read: ReadRegister,
    new: NewBytes,
    set: SetBytes,
    /// Address of QEMU's offset of the program's addresses, which is set when the program is
    /// loaded.
    base: usize,
    /// Return addresses of allocation calls, and start addresses of translated blocks.
    places: RwLock<[HashSet<u64>; 2]>,
}

impl Registers {
    /// Looks up the functions that read registers.
    ///
    /// # Errors
    /// The name of a function that is missing.
    pub fn find() -> Result<Self, String> {
        // SAFETY: types as in include/hw/core/cpu.h, include/exec/exec-all.h, target/i386/cpu.h and
        // include/exec/cpu-all.h of QEMU, and glib/garray.h.
        unsafe {
            Ok(Self {
                get_cpu: function("qemu_get_cpu")?,
                forget_code: function("tb_flush")?,
                read: function("x86_cpu_gdb_read_register")?,
                new: function("g_byte_array_new")?,
                set: function("g_byte_array_set_size")?,
                base: symbol("guest_base")?.expose_provenance(),
                places: RwLock::default(),
            })
        }
    }

    /// Whether the program's addresses equal host addresses.
    #[must_use]
    pub fn addresses_are_host_addresses(&self) -> bool {
        self.base() == 0
    }

    fn base(&self) -> u64 {
        // SAFETY: a word-sized variable of QEMU (include/exec/cpu-all.h, `extern uintptr_t
        // guest_base`), which is not written once the program runs.
        unsafe { *std::ptr::with_exposed_provenance::<u64>(self.base) }
    }

    /// Registers the start of a translated block; returns whether an allocation call returns to it.
    pub fn begins(&self, block: u64) -> bool {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        places[1].insert(block);
        places[0].contains(&block)
    }

    /// Reads registers of a thread; must be called in a callback at the first instruction of a
    /// block.
    fn of<const N: usize>(&self, cpu: u32, numbers: [c_int; N]) -> Option<[u64; N]> {
        // SAFETY: the running thread is in QEMU's list; the array is allocated here and never
        // freed.
        unsafe {
            let object = (self.get_cpu)(cpu as c_int);
            if object.is_null() {
                return None;
            }
            thread_local! { static ROOM: std::cell::Cell<*mut Bytes> = const { std::cell::Cell::new(std::ptr::null_mut()) } }
            let room = ROOM.with(|room| {
                if room.get().is_null() {
                    room.set((self.new)());
                }
                room.get()
            });
            let mut values = [0; N];
            for (value, number) in values.iter_mut().zip(numbers) {
                (self.set)(room, 0);
                if (self.read)(object, room, number) != 8 || (*room).length != 8 {
                    return None;
                }
                *value = (*room).data.cast::<u64>().read_unaligned();
            }
            Some(values)
        }
    }

    /// A word of the program's memory; `None` if it is not mapped.
    fn word(&self, address: u64) -> Option<u64> {
        let mut value = 0u64;
        let local = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: 8 };
        let there = std::ptr::without_provenance_mut(address.wrapping_add(self.base()) as usize);
        let remote = libc::iovec { iov_base: there, iov_len: 8 };
        // SAFETY: the kernel checks the address.
        let got = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
        };
        (got == 8).then_some(value)
    }

    /// Called when an allocation function starts. `is_code` returns whether there is code at an
    /// address.
    pub fn called(
        &self,
        open: &mut OpenCalls,
        cpu: u32,
        size_from: SizeFrom,
        is_code: impl Fn(u64) -> bool,
    ) -> Option<()> {
        let [stack, first, second, third] = self.of(cpu, [RSP, RDI, RSI, RDX])?;
        let site = self.word(stack).filter(|site| is_code(*site))?;
        open.begin(size_from, stack, site, [first, second, third]);
        let known = |places: &[HashSet<u64>; 2]| places[0].contains(&site);
        if known(&self.places.read().unwrap_or_else(PoisonError::into_inner)) {
            return Some(());
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        places[0].insert(site);
        if places[1].contains(&site) {
            drop(places);
            // SAFETY: accel/tcg/translate-all.c, tb_flush, waits until no thread is running; the
            // block is then translated again, with its callback.
            unsafe { (self.forget_code)((self.get_cpu)(cpu as c_int)) }
        }
        Some(())
    }

    /// Called when an allocation call returns to `site`; returns the allocation.
    pub fn returned(&self, open: &mut OpenCalls, cpu: u32, site: u64) -> Option<Allocation> {
        if open.0.is_empty() {
            return None;
        }
        let [stack, rax] = self.of(cpu, [RSP, RAX])?;
        open.end(site, stack, rax, |address| self.word(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(u64) -> Option<u64> = |_| None;

    #[test]
    fn the_outermost_caller_is_the_call_site() {
        let mut open = OpenCalls::default();
        // xmalloc, called from 0x11, calls malloc, which returns to 0x22.
        open.begin(SizeFrom::Nested, 1000, 0x11, [0; 3]);
        open.begin(SizeFrom::First, 900, 0x22, [64, 0, 0]);
        assert_eq!(open.end(0x22, 900, 7, NONE), None, "that is not its stack");
        assert_eq!(
            open.end(0x22, 908, 7, NONE),
            Some(Allocation { start: 7, bytes: 64, site: 0x11 })
        );
        assert_eq!(open.end(0x11, 1008, 7, NONE), None, "it was recorded already");
        assert!(open.0.is_empty());
    }

    // realloc(0, n) tail-calls malloc(n): same stack pointer, same return address.
    #[test]
    fn a_tail_call_is_recorded_once() {
        let mut open = OpenCalls::default();
        open.begin(SizeFrom::Second, 1000, 0x11, [0, 32, 0]);
        open.begin(SizeFrom::First, 1000, 0x11, [32, 0, 0]);
        assert_eq!(
            open.end(0x11, 1008, 7, NONE),
            Some(Allocation { start: 7, bytes: 32, site: 0x11 })
        );
        assert!(open.0.is_empty());
    }

    #[test]
    fn calls_left_by_a_jump_are_dropped() {
        let mut open = OpenCalls::default();
        open.begin(SizeFrom::First, 900, 0x22, [8, 0, 0]);
        // The same call again: the first one's return was missed. Then one with a higher stack
        // pointer: the call before was left by longjmp(3).
        open.begin(SizeFrom::First, 900, 0x22, [16, 0, 0]);
        open.begin(SizeFrom::Product, 1000, 0x33, [4, 6, 0]);
        assert_eq!(
            open.end(0x33, 1008, 7, NONE),
            Some(Allocation { start: 7, bytes: 24, site: 0x33 })
        );
        assert!(open.0.is_empty());
        open.begin(SizeFrom::First, 900, 0x22, [8, 0, 0]);
        assert_eq!(open.end(0x22, 908, 0, NONE), None, "the allocation failed");
    }

    #[test]
    fn results_may_go_through_a_pointer() {
        let mut open = OpenCalls::default();
        let read = |address| (address == 500).then_some(0x4000);
        open.begin(SizeFrom::Pointer, 900, 0x22, [500, 64, 4096]);
        assert_eq!(
            open.end(0x22, 908, 0, read),
            Some(Allocation { start: 0x4000, bytes: 4096, site: 0x22 })
        );
        open.begin(SizeFrom::Pointer, 900, 0x22, [500, 64, 4096]);
        assert_eq!(open.end(0x22, 908, 12, read), None, "ENOMEM");
    }

    #[test]
    fn allocation_functions_are_known_by_name() {
        assert_eq!(SizeFrom::by_name("calloc"), Some(SizeFrom::Product));
        assert_eq!(SizeFrom::by_name("_ZnwmSt11align_val_t"), Some(SizeFrom::First));
        assert_eq!(SizeFrom::by_name("free"), None);
        assert!(
            SizeFrom::ALL
                .iter()
                .enumerate()
                .all(|(number, size_from)| *size_from as usize == number)
        );
    }
}
