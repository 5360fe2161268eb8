//! Shared libraries of the circuit: made by `rtl/verilate`, loaded at run time.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tierscope_core::{Error, ErrorKind, Result};

use crate::defects::Defect;

/// A loaded library; it stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut libc::c_void);

impl Library {
    /// The library of a module of the circuit, built if it is not of the current sources; with
    /// parameters, or a defect, one of its own.
    ///
    /// # Errors
    /// Verilator or a C++ compiler is missing, the circuit is faulty, or the library cannot be
    /// loaded.
    pub fn of(module: &str, parameters: &[(&str, usize)], defect: Option<&Defect>) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let set = |(name, value): &(&str, usize)| format!("-{name}={value}");
        let variant = parameters.iter().map(set).chain(defect.map(|d| format!("-{}", d.name)));
        let name = module.to_owned() + &variant.collect::<String>();
        let library = folder(&root).join(name).with_extension("so");
        let mut command = Command::new(root.join("rtl/verilate"));
        command.arg(module).arg(&library);
        command.args(parameters.iter().map(|(name, value)| format!("-G{name}={value}")));
        if let Some(Defect { file, from, to, .. }) = defect {
            command.args([file, from, to]);
        }
        let what = || format!("cannot build {}", library.display());
        let broken = |cause: String| Error::new(ErrorKind::Missing, what()).cause(cause);
        let output = command.output().map_err(|e| broken(e.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(broken(said).remedy("run scripts/setup.sh"));
        }
        Self::load(&library)
    }

    fn load(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero byte");
        // SAFETY: the path ends with a zero byte; what the library runs when it is loaded is ours.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let what = format!("cannot load {}", path.display());
            return Err(Error::new(ErrorKind::Missing, what).cause("the loader refused it"));
        }
        Ok(Self(handle))
    }

    /// A function, as a pointer of type `F`.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and the library defines the function with that type.
    ///
    /// # Panics
    /// The library has no such function: its source in `rtl/cosim` has another.
    pub(crate) unsafe fn function<F>(self, name: &str) -> F {
        let symbol = CString::new(name).expect("a name has no zero byte");
        // SAFETY: the handle is of a library that stays loaded; the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0, symbol.as_ptr()) };
        assert!(!found.is_null(), "rtl/cosim has no function {name}");
        const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
        // SAFETY: by the contract; both have the size of a pointer.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

/// An instance of a module; freed with its owner.
#[derive(Debug)]
pub(crate) struct Circuit {
    pointer: *mut libc::c_void,
    free: unsafe extern "C" fn(*mut libc::c_void),
}

impl Circuit {
    /// A new instance.
    ///
    /// # Safety
    /// The library defines `MODULE_new` without arguments, and `MODULE_free` of what that returns.
    pub(crate) unsafe fn new(library: Library, module: &str) -> Self {
        // SAFETY: by the contract of this function.
        unsafe {
            let new: unsafe extern "C" fn() -> *mut libc::c_void =
                library.function(&format!("{module}_new"));
            let free = library.function(&format!("{module}_free"));
            Self { pointer: new(), free }
        }
    }

    /// The instance, for the functions of its library.
    pub(crate) fn pointer(&self) -> *mut libc::c_void {
        self.pointer
    }
}

impl Drop for Circuit {
    fn drop(&mut self) {
        // SAFETY: no other pointer to the instance is left.
        unsafe { (self.free)(self.pointer) }
    }
}

/// The folder of built libraries: `rtl` of cargo's target directory.
fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("rtl")
}
