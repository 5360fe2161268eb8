//! Interrupts of the telemetry device: QEMU's ivshmem-doorbell asks a server on a socket for the shared memory and
//! for one eventfd a vector; whoever writes to such an eventfd raises that interrupt in the guest. The server is a
//! thread of the plugin, so that nothing is left behind.
//!
//! The protocol: docs/specs/ivshmem-spec.txt of QEMU, "Interrupts and the ivshmem client-server protocol".

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::said::say;

/// Vectors that the guest sees.
pub const VECTORS: usize = 2;

/// The server's version of the protocol.
const PROTOCOL: i64 = 0;
/// What the one client is called.
const CLIENT: i64 = 0;
/// Announces the shared memory.
const MEMORY: i64 = -1;

/// The raising ends.
#[derive(Debug, Default)]
pub struct Interrupts {
    vectors: Vec<OwnedFd>,
}

impl Interrupts {
    /// None: nobody can be interrupted.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Serves the socket at `path`, and gives the file at `memory` to who connects.
    ///
    /// # Errors
    /// The socket or an eventfd cannot be made.
    pub fn serve(path: &str, memory: &str) -> Result<Self, String> {
        let because = |e: io::Error| format!("{path}: {e}");
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(because)?;
        let memory = File::options()
            .read(true)
            .write(true)
            .open(memory)
            .map_err(|e| format!("{memory}: {e}"))?;
        let vectors: Vec<OwnedFd> =
            (0..VECTORS).map(|_| eventfd()).collect::<io::Result<_>>().map_err(because)?;
        let theirs: Vec<OwnedFd> =
            vectors.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>().map_err(because)?;
        std::thread::spawn(move || serve(&listener, &memory, &theirs));
        Ok(Self { vectors })
    }

    /// Raises the interrupt of a vector. Returns whether there is one.
    pub fn raise(&self, vector: usize) -> bool {
        let Some(fd) = self.vectors.get(vector) else { return false };
        let one = 1u64.to_ne_bytes();
        // SAFETY: the eventfd is open as long as self is; eight bytes are read from `one`.
        unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) == 8 }
    }
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; the result is checked and then ours.
    unsafe {
        match libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn serve(listener: &UnixListener, memory: &File, vectors: &[OwnedFd]) {
    // The connections are kept: one that ends tells QEMU that its peer is gone.
    let mut clients = Vec::new();
    for client in listener.incoming() {
        match client.and_then(|client| introduce(&client, memory, vectors).map(|()| client)) {
            Ok(client) => clients.push(client),
            Err(error) => say(format_args!("no interrupts: the device's socket failed: {error}")),
        }
    }
}

fn introduce(client: &UnixStream, memory: &File, vectors: &[OwnedFd]) -> io::Result<()> {
    send(client, PROTOCOL, None)?;
    send(client, CLIENT, None)?;
    send(client, MEMORY, Some(memory.as_raw_fd()))?;
    vectors.iter().try_for_each(|vector| send(client, CLIENT, Some(vector.as_raw_fd())))
}

/// Sends a message: eight bytes, little-endian, and perhaps a descriptor.
fn send(to: &UnixStream, number: i64, descriptor: Option<RawFd>) -> io::Result<()> {
    let mut bytes = number.to_le_bytes();
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: zero is a valid msghdr; its pointers are set below to memory that outlives the call, and the control
    // message is written into `control`, which is aligned and longer than CMSG_SPACE of one descriptor.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        }
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match sent {
        8 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_client_is_told_who_it_is_and_gets_its_descriptors() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("memory"), [0; 64]).unwrap();
        let interrupts = Interrupts::serve(&path("socket"), &path("memory")).unwrap();
        let mut client = UnixStream::connect(path("socket")).unwrap();
        // Descriptors that nobody takes are dropped; the numbers remain.
        let mut bytes = [0; 8 * (3 + VECTORS)];
        let mut got = 0;
        while got < bytes.len() {
            got += client.read(&mut bytes[got..]).unwrap();
        }
        let numbers: Vec<i64> =
            bytes.chunks(8).map(|each| i64::from_le_bytes(each.try_into().unwrap())).collect();
        assert_eq!(numbers, [PROTOCOL, CLIENT, MEMORY, CLIENT, CLIENT]);
        assert!(interrupts.raise(0) && interrupts.raise(VECTORS - 1));
        assert!(!interrupts.raise(VECTORS) && !Interrupts::none().raise(0));
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_named() {
        let error = Interrupts::serve("/nowhere/socket", "/dev/null").unwrap_err();
        assert!(error.contains("/nowhere/socket"), "{error}");
    }
}
