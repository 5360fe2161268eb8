//! Unloads a kernel module without rmmod, so that the reason for a refusal is known.

use std::ffi::CString;
use std::io;

/// The kernel's response to an attempt to unload a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unload {
    /// The module was unloaded.
    Done,
    /// The module is in use.
    InUse,
    /// Any other error, as errno.
    Failed(i32),
}

/// Tries to unload `module` without waiting (delete_module(2) with O_NONBLOCK).
#[must_use]
pub fn unload(module: &str) -> Unload {
    let Ok(name) = CString::new(module) else { return Unload::Failed(libc::EINVAL) };
    // SAFETY: the name is a C string that outlives the call.
    let answer = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match (answer, error) {
        (0, _) => Unload::Done,
        (_, libc::EAGAIN) => Unload::InUse,
        (_, errno) => Unload::Failed(errno),
    }
}
