//! The user at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Uid of the process that connected a Unix socket, at that time (SO_PEERCRED).
///
/// # Errors
/// The socket is of another kind.
pub(crate) fn user_of(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `found` has.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    if done == 0 { Ok(found.uid) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_other_end_is_of_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        let me = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(user_of(one.as_fd()).unwrap(), me);
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(user_of(file.as_fd()).is_err());
    }
}
