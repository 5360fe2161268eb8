//! Interrupts of the telemetry device: the lab serves QEMU's ivshmem-doorbell with one eventfd per
//! vector; a write to such an eventfd raises that interrupt in the guest. The plugin gets the
//! eventfds from the same server.
//!
//! The protocol: docs/specs/ivshmem-spec.txt of QEMU, "Interrupts and the ivshmem client-server
//! protocol": messages of eight bytes, some with a descriptor, in this order: version, client id,
//! the memory (-1), then the vectors.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use tierscope_wire::device::VECTORS;

/// Number of messages before those of the vectors.
const BEFORE: usize = 3;

/// The eventfds that raise the interrupts.
#[derive(Debug, Default)]
pub struct Interrupts {
    vectors: Vec<OwnedFd>,
}

impl Interrupts {
    /// No interrupts: raising them has no effect.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Gets the eventfds from the server at `path`.
    ///
    /// # Errors
    /// The server does not follow the protocol.
    pub fn request(path: &str) -> Result<Self, String> {
        let because = |e: io::Error| format!("{path}: {e}");
        let server = UnixStream::connect(path).map_err(because)?;
        (0..BEFORE).try_for_each(|_| receive(&server).map(drop)).map_err(because)?;
        let vector = |_| receive(&server)?.ok_or_else(|| io::ErrorKind::InvalidData.into());
        let vectors = (0..VECTORS).map(vector).collect::<io::Result<_>>().map_err(because)?;
        Ok(Self { vectors })
    }

    /// Raises the interrupt of a vector. Returns whether that succeeded.
    pub fn raise(&self, vector: usize) -> bool {
        let Some(fd) = self.vectors.get(vector) else { return false };
        let one = 1u64.to_ne_bytes();
        // SAFETY: the eventfd is open as long as self exists; eight bytes are read from `one`.
        unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) == 8 }
    }
}

/// Receives a message; returns its descriptor, if it has one.
fn receive(server: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut bytes = [0u8; 8];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: zero is a valid msghdr; its pointers refer to memory that outlives the call. A
    // received descriptor is owned by this process alone.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        match libc::recvmsg(
            server.as_raw_fd(),
            &raw mut message,
            libc::MSG_WAITALL | libc::MSG_CMSG_CLOEXEC,
        ) {
            8 => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null()
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || (*header).cmsg_len < libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize
        {
            return Ok(None);
        }
        Ok(Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let error = Interrupts::request("/nowhere/socket").unwrap_err();
        assert!(error.contains("/nowhere/socket"), "{error}");
        assert!(!Interrupts::none().raise(0));
    }

    #[test]
    fn a_server_that_sends_no_descriptors_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&[0; 40]));
        assert!(Interrupts::request(path.to_str().unwrap()).is_err());
        server.join().unwrap().unwrap();
    }
}
