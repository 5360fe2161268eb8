//! Interrupts of the telemetry device. QEMU's ivshmem-doorbell connects to a server on a socket,
//! which passes it the shared memory and one eventfd for each vector; a write to such an eventfd
//! raises that interrupt in the guest. The lab is the server; the plugin connects too, to get the
//! eventfds to write to.
//!
//! Protocol: docs/specs/ivshmem-spec.txt of QEMU, "Interrupts and the ivshmem client-server
//! protocol".

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use tierscope_wire::device::VECTORS;

use crate::error::{Context, Result};

/// The server's version of the protocol.
const PROTOCOL: i64 = 0;
/// Client id, the same for every client.
const CLIENT: i64 = 0;
/// Message that announces the shared memory.
const MEMORY: i64 = -1;

/// Serves the socket at `path` as long as the lab runs, and passes the file at `memory` to every
/// client.
///
/// # Errors
/// The socket or an eventfd cannot be created.
pub(super) fn serve(path: &Path, memory: &Path) -> Result<()> {
    let listener = UnixListener::bind(path).at(path.display())?;
    let memory = File::options().read(true).write(true).open(memory).at(memory.display())?;
    let vectors: Vec<OwnedFd> =
        (0..VECTORS).map(|_| eventfd()).collect::<io::Result<_>>().at("eventfd")?;
    std::thread::spawn(move || {
        // Connections stay open: closing one would signal to QEMU that its peer is gone.
        let mut clients = Vec::new();
        for client in listener.incoming() {
            match client.and_then(|client| introduce(&client, &memory, &vectors).map(|()| client)) {
                Ok(client) => clients.push(client),
                Err(error) => eprintln!("lab: the device's socket failed: {error}"),
            }
        }
    });
    Ok(())
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: eventfd accesses no memory of this process; the result is checked, and owned from
    // here on.
    unsafe {
        match libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn introduce(client: &UnixStream, memory: &File, vectors: &[OwnedFd]) -> io::Result<()> {
    send(client, PROTOCOL, None)?;
    send(client, CLIENT, None)?;
    send(client, MEMORY, Some(memory.as_raw_fd()))?;
    vectors.iter().try_for_each(|vector| send(client, CLIENT, Some(vector.as_raw_fd())))
}

/// Sends a message: a 64-bit little-endian number, optionally with a descriptor.
fn send(to: &UnixStream, number: i64, descriptor: Option<RawFd>) -> io::Result<()> {
    let mut bytes = number.to_le_bytes();
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: zero is a valid msghdr; its pointers are set below to memory that outlives the call,
    // and the control message is written into `control`, which is aligned and longer than
    // CMSG_SPACE for one descriptor.
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
    fn a_client_receives_its_number_and_its_descriptors() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("memory"), [0; 64]).unwrap();
        serve(&path("socket"), &path("memory")).unwrap();
        let mut client = UnixStream::connect(path("socket")).unwrap();
        // Descriptors are dropped on reception; only the numbers are checked.
        let mut bytes = [0; 8 * (3 + VECTORS)];
        let mut got = 0;
        while got < bytes.len() {
            got += client.read(&mut bytes[got..]).unwrap();
        }
        let numbers: Vec<i64> =
            bytes.chunks(8).map(|each| i64::from_le_bytes(each.try_into().unwrap())).collect();
        assert_eq!(numbers, [PROTOCOL, CLIENT, MEMORY, CLIENT, CLIENT]);
    }

    #[test]
    fn a_socket_that_cannot_be_made_is_named() {
        let error = serve(Path::new("/nowhere/socket"), Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/socket"), "{error}");
    }
}
