//! Unloading a kernel module without rmmod, so that the refusal can be told apart.

use std::ffi::CString;
use std::io;

/// What the kernel answered to an attempt to unload a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unload {
    /// It is gone.
    Done,
    /// It is in use.
    InUse,
    /// Anything else, by errno.
    Failed(i32),
}

/// Tries to unload `module` without waiting (delete_module(2) with O_NONBLOCK).
#[must_use]
pub fn unload(module: &str) -> Unload {
    let Ok(name) = CString::new(module) else { return Unload::Failed(libc::EINVAL) };
    // SAFETY: the name is a C string that lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match (answer, error) {
        (0, _) => Unload::Done,
        (_, libc::EAGAIN) => Unload::InUse,
        (_, errno) => Unload::Failed(errno),
    }
}
