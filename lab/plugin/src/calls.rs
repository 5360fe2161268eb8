//! The part of QEMU's plugin interface that is used here: include/qemu/qemu-plugin.h of QEMU 7.2,
//! declared by hand.
//!
//! The functions are looked up when the plugin is installed: if QEMU lacks one, the error names it,
//! instead of the file failing to load.

use std::ffi::{CString, c_char, c_int, c_void};

/// Identifies the plugin in calls to QEMU.
pub type Id = u64;

/// Interface version that this plugin is written for: QEMU 7.2 has version 1 and still supports 0.
pub const VERSION: c_int = 1;

/// Information that QEMU passes at installation.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    /// Target architecture, `x86_64`.
    pub target: *const c_char,
    /// Lowest interface version that QEMU supports.
    pub least: c_int,
    /// Current interface version of QEMU.
    pub current: c_int,
    /// System emulation, not user emulation.
    pub system: bool,
    /// Number of vCPUs at the start; 0 in user emulation.
    pub cpus: c_int,
    /// Maximum number of vCPUs.
    pub most_cpus: c_int,
}

/// A translation block, during its translation.
#[repr(C)]
pub struct Block([u8; 0]);

/// An instruction of a translation block.
#[repr(C)]
pub struct Instruction([u8; 0]);

/// Hardware address of an access.
#[repr(C)]
pub struct Place([u8; 0]);

/// Callback when a vCPU starts.
pub type OnVcpu = extern "C" fn(Id, u32);
/// Callback when a block is translated.
pub type OnBlock = extern "C" fn(Id, *mut Block);
/// Callback for an access: vCPU, QEMU's description of the access, virtual address, and the user
/// data given at registration.
pub type OnAccess = extern "C" fn(u32, u32, u64, *mut c_void);
/// Callback for the execution of a block: vCPU, and the user data given at registration.
pub type OnExecution = extern "C" fn(u32, *mut c_void);
/// Callback at QEMU's exit.
pub type AtExit = extern "C" fn(Id, *mut c_void);
/// Callback for a system call of a program: number and eight arguments.
pub type OnCall = extern "C" fn(Id, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Callback for the return of a system call: number and result.
pub type OnReturn = extern "C" fn(Id, u32, i64, i64);

/// Callbacks for loads and stores; `enum qemu_plugin_mem_rw`. If registered for stores only, QEMU
/// 7.2 also calls back for loads: register for both, and use [`Calls::mem_is_store`].
pub const READS_AND_WRITES: c_int = 3;
/// The callback reads no registers; `enum qemu_plugin_cb_flags`.
pub const NO_REGISTERS: c_int = 0;

macro_rules! calls {
    ($($(#[$about:meta])* $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// QEMU's plugin functions, named without the prefix `qemu_plugin_`.
        #[derive(Clone, Copy, Debug)]
        pub struct Calls {
            $($(#[$about])* pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Calls {
            /// Looks up all functions in the program that loaded this plugin.
            ///
            /// # Errors
            /// Name of the first missing function.
            pub fn find() -> Result<Self, String> {
                $(let $name = symbol(concat!("qemu_plugin_", stringify!($name)))?;)*
                // SAFETY: the symbols have the types that the header declares.
                Ok(unsafe {
                    Self {
                        $($name: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >($name),)*
                    }
                })
            }
        }
    };
}

calls! {
    /// Registers a callback for the start of a vCPU, or of a thread of a program.
    register_vcpu_init_cb: fn(Id, OnVcpu);
    /// Registers a callback for the translation of a block.
    register_vcpu_tb_trans_cb: fn(Id, OnBlock);
    /// Registers a callback for QEMU's exit.
    register_atexit_cb: fn(Id, AtExit, *mut c_void);
    /// Registers a callback for each memory access of an instruction.
    register_vcpu_mem_cb: fn(*mut Instruction, OnAccess, c_int, c_int, *mut c_void);
    /// Registers a callback for each execution of a block.
    register_vcpu_tb_exec_cb: fn(*mut Block, OnExecution, c_int, *mut c_void);
    /// Registers a callback for system calls.
    register_vcpu_syscall_cb: fn(Id, OnCall);
    /// Registers a callback for returns of system calls.
    register_vcpu_syscall_ret_cb: fn(Id, OnReturn);
    /// Number of instructions in a block.
    tb_n_insns: fn(*const Block) -> usize;
    /// An instruction of a block, by index.
    tb_get_insn: fn(*const Block, usize) -> *mut Instruction;
    /// Virtual address of an instruction.
    insn_vaddr: fn(*const Instruction) -> u64;
    /// Machine code of an instruction.
    insn_data: fn(*const Instruction) -> *const c_void;
    /// Length of an instruction in bytes.
    insn_size: fn(*const Instruction) -> usize;
    /// log2 of an access's size in bytes.
    mem_size_shift: fn(u32) -> u32;
    /// Whether an access is a store.
    mem_is_store: fn(u32) -> bool;
    /// Hardware address of the access in progress; null in user emulation.
    get_hwaddr: fn(u32, u64) -> *mut Place;
    /// Whether a hardware address is outside of RAM.
    hwaddr_is_io: fn(*const Place) -> bool;
    /// Physical address; QEMU 7.2 returns wrong ones beyond the first node.
    hwaddr_phys_addr: fn(*const Place) -> u64;
}

/// Address of a function or variable of the program that loaded this plugin.
///
/// # Errors
/// There is no symbol of that name.
pub fn symbol(name: &str) -> Result<*mut c_void, String> {
    let text = CString::new(name).map_err(|_| format!("{name} is no name"))?;
    // SAFETY: the name ends with a zero byte; RTLD_DEFAULT needs no handle.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) };
    if found.is_null() { Err(format!("this QEMU has no {name}")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_functions_are_named() {
        assert_eq!(symbol("qemu_plugin_outs"), Err("this QEMU has no qemu_plugin_outs".into()));
        assert!(symbol("malloc").is_ok());
        assert!(Calls::find().is_err(), "a test is no QEMU");
    }

    // struct qemu_info_t: a pointer, two ints, a bool, and a union of two ints.
    #[test]
    fn structures_are_laid_out_as_in_qemu_s_header() {
        assert_eq!(std::mem::offset_of!(Info, system), 16);
        assert_eq!(std::mem::offset_of!(Info, cpus), 20);
    }
}
