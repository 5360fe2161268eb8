//! QEMU's plugin interface, as far as it is used: include/qemu/qemu-plugin.h of QEMU 7.2, declared by hand.
//!
//! The functions are looked up when the plugin is installed, so that a QEMU that lacks one is told by name
//! instead of refusing to load the file.

use std::ffi::{CString, c_char, c_int, c_void};

/// Names the plugin towards QEMU.
pub type Id = u64;

/// The interface that this was written for: QEMU 7.2 speaks 1, and still 0.
pub const VERSION: c_int = 1;

/// What QEMU tells at the start.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    /// `x86_64`.
    pub target: *const c_char,
    /// The lowest interface that it speaks.
    pub least: c_int,
    /// The one that it speaks.
    pub current: c_int,
    /// Whole machines, not programs.
    pub system: bool,
    /// CPUs at the start, 0 for programs.
    pub cpus: c_int,
    /// CPUs at most.
    pub most_cpus: c_int,
}

/// A block of instructions that is being translated.
#[repr(C)]
pub struct Block([u8; 0]);

/// An instruction of it.
#[repr(C)]
pub struct Instruction([u8; 0]);

/// Where an access went.
#[repr(C)]
pub struct Place([u8; 0]);

/// A look at a vCPU that begins.
pub type OnVcpu = extern "C" fn(Id, u32);
/// A look at a block that is being translated.
pub type OnBlock = extern "C" fn(Id, *mut Block);
/// An access: vCPU, what it was, virtual address, what was said when it was asked for.
pub type OnAccess = extern "C" fn(u32, u32, u64, *mut c_void);
/// A block that is carried out: vCPU, what was said when it was asked for.
pub type OnExecution = extern "C" fn(u32, *mut c_void);
/// The end of QEMU.
pub type AtExit = extern "C" fn(Id, *mut c_void);
/// A system call of a program: number and eight arguments.
pub type OnCall = extern "C" fn(Id, u32, i64, u64, u64, u64, u64, u64, u64, u64, u64);
/// Its result.
pub type OnReturn = extern "C" fn(Id, u32, i64, i64);

/// Loads and stores; `enum qemu_plugin_mem_rw`. QEMU 7.2 calls back for stores at loads too if it is asked for stores
/// only: ask for both, and [`Calls::mem_is_store`] what it was.
pub const READS_AND_WRITES: c_int = 3;
/// A callback looks at no register; `enum qemu_plugin_cb_flags`.
pub const NO_REGISTERS: c_int = 0;

macro_rules! calls {
    ($($(#[$about:meta])* $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, by their names without `qemu_plugin_`.
        #[derive(Clone, Copy, Debug)]
        pub struct Calls {
            $($(#[$about])* pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Calls {
            /// Finds all of them in the program that loaded this.
            ///
            /// # Errors
            /// The name of the first that is missing.
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
    /// Calls back when a vCPU, or a thread of a program, begins.
    register_vcpu_init_cb: fn(Id, OnVcpu);
    /// Calls back when a block is translated.
    register_vcpu_tb_trans_cb: fn(Id, OnBlock);
    /// Calls back at the end.
    register_atexit_cb: fn(Id, AtExit, *mut c_void);
    /// Calls back at each access of the instruction.
    register_vcpu_mem_cb: fn(*mut Instruction, OnAccess, c_int, c_int, *mut c_void);
    /// Calls back when the block is carried out.
    register_vcpu_tb_exec_cb: fn(*mut Block, OnExecution, c_int, *mut c_void);
    /// Calls back at system calls.
    register_vcpu_syscall_cb: fn(Id, OnCall);
    /// Calls back when they return.
    register_vcpu_syscall_ret_cb: fn(Id, OnReturn);
    /// Instructions of a block.
    tb_n_insns: fn(*const Block) -> usize;
    /// One of them.
    tb_get_insn: fn(*const Block, usize) -> *mut Instruction;
    /// Its virtual address.
    insn_vaddr: fn(*const Instruction) -> u64;
    /// Its bytes.
    insn_data: fn(*const Instruction) -> *const c_void;
    /// How many.
    insn_size: fn(*const Instruction) -> usize;
    /// log2 of the bytes of an access.
    mem_size_shift: fn(u32) -> u32;
    /// Whether an access stores.
    mem_is_store: fn(u32) -> bool;
    /// Where the access in the making goes; null for programs.
    get_hwaddr: fn(u32, u64) -> *mut Place;
    /// Not to RAM.
    hwaddr_is_io: fn(*const Place) -> bool;
    /// The physical address, as far as QEMU has it right.
    hwaddr_phys_addr: fn(*const Place) -> u64;
}

/// A function or variable of the program that loaded this.
///
/// # Errors
/// It has none of that name.
pub fn symbol(name: &str) -> Result<*mut c_void, String> {
    let text = CString::new(name).map_err(|_| format!("{name} is no name"))?;
    // SAFETY: a name that ends with zero; RTLD_DEFAULT needs no handle.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()) };
    if found.is_null() { Err(format!("this QEMU has no {name}")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(symbol("qemu_plugin_outs"), Err("this QEMU has no qemu_plugin_outs".into()));
        assert!(symbol("malloc").is_ok());
        assert!(Calls::find().is_err(), "a test is no QEMU");
    }

    // struct qemu_info_t: a pointer, two ints, a bool, a union of two ints.
    #[test]
    fn what_qemu_tells_lies_as_its_header_has_it() {
        assert_eq!(std::mem::offset_of!(Info, system), 16);
        assert_eq!(std::mem::offset_of!(Info, cpus), 20);
    }
}
