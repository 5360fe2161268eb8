//! Where the server listens: a port, or a Unix socket in the file system.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tierscope_core::{Error, ErrorKind, Result};

use crate::peer;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port of this machine.
    Port(SocketAddr),
    /// A Unix socket at this path.
    Socket(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Socket(path.into())),
            Some(_) => Err("the path of a Unix socket begins with /".into()),
            None => text.parse().map(Self::Port).map_err(|e| format!("{e}; or unix:/PATH")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A client, in the view of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// A machine by its address; of IPv6 the first 64 bits, as a machine has all of such a network.
    Machine(IpAddr),
    /// A user of this machine by its uid, at a Unix socket.
    User(u32),
}

impl Peer {
    fn at(address: IpAddr) -> Self {
        Self::Machine(match address.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// A listening socket. A Unix socket is removed from its path on drop.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
    /// Path, device and inode of the Unix socket.
    file: Option<(PathBuf, (u64, u64))>,
}

impl Listener {
    /// Listens on `address`; port 0 selects a free port, and a Unix socket gets the permissions
    /// `mode`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the port or socket is in use, `Permission` if it is not permitted,
    /// `Usage` if the address does not belong to this machine.
    pub fn bind(address: &Address, mode: u32) -> Result<Self> {
        let bound = match address {
            Address::Port(port) => Self::port(*port),
            Address::Socket(path) => Self::socket(path, mode),
        };
        bound.map_err(|e| refused(address, &e))
    }

    fn port(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // `accept` must not block if the client has disconnected in the meantime.
        listener.set_nonblocking(true)?;
        let address = Address::Port(listener.local_addr()?);
        Ok(Self { socket: listener.into(), address, file: None })
    }

    fn socket(path: &Path, mode: u32) -> io::Result<Self> {
        remove_unused(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::STREAM;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // The file gets at most the socket's own mode: it is never open to more users than asked.
        fchmod(&socket, Mode::from_raw_mode(mode))?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let file = fs::symlink_metadata(path)?;
        rustix::net::listen(&socket, 128)?;
        let file = Some((path.to_owned(), (file.dev(), file.ino())));
        Ok(Self { socket, address: Address::Socket(path.to_owned()), file })
    }

    /// The address, with the port that was selected.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection, if there is one.
    ///
    /// # Errors
    /// There is none, or no more files may be opened.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        let (client, from) = rustix::net::acceptfrom_with(&self.socket, SocketFlags::CLOEXEC)?;
        let peer = match self.address {
            Address::Socket(_) => Peer::User(peer::user_of(client.as_fd())?),
            Address::Port(_) => {
                let from = from.ok_or(rustix::io::Errno::AFNOSUPPORT)?;
                rustix::net::sockopt::set_tcp_nodelay(&client, true)?;
                Peer::at(SocketAddr::try_from(from)?.ip())
            }
        };
        Ok((client, peer))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, was)) = &self.file
            && fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == *was)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a Unix socket that no process listens at any more. Nothing else is removed.
fn remove_unused(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(file) if !file.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) => Err(error),
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        },
    }
}

fn refused(address: &Address, cause: &io::Error) -> Error {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, AlreadyExists, PermissionDenied};
    let socket = matches!(address, Address::Socket(_));
    let (kind, remedy) = match cause.kind() {
        AddrInUse if socket => (
            ErrorKind::Io,
            "choose another path with --listen, or stop the process that uses this one (`ss -lxp`)",
        ),
        AddrInUse => (
            ErrorKind::Io,
            "choose another port with --listen, or stop the process that uses this one (`ss -ltnp`)",
        ),
        AlreadyExists => (ErrorKind::Io, "choose a path with --listen where no file is"),
        PermissionDenied if socket => {
            (ErrorKind::Permission, "choose a directory with --listen that you may write to")
        }
        PermissionDenied => (ErrorKind::Permission, "choose a port from 1024 on with --listen"),
        AddrNotAvailable => {
            (ErrorKind::Usage, "choose an address of this machine with --listen (`ip addr`)")
        }
        _ => (ErrorKind::Io, "choose another address with --listen"),
    };
    Error::new(kind, format!("cannot listen at {address}")).cause(cause).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn addresses_are_ports_or_paths() {
        assert_eq!("127.0.0.1:80".parse(), Ok(Address::Port(([127, 0, 0, 1], 80).into())));
        assert_eq!("unix:/run/a b".parse(), Ok(Address::Socket("/run/a b".into())));
        for wrong in ["unix:", "unix:run", "localhost:80", "80"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_unix_socket_has_the_mode_and_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = Address::Socket(path.clone());
        for wanted in [0o660, 0o600, 0o666] {
            let listener = Listener::bind(&address, wanted).unwrap();
            assert_eq!(mode(&path), wanted);
            let second = Listener::bind(&address, wanted).unwrap_err();
            assert!(second.to_string().contains("another path"), "{second}");
            let _client = UnixStream::connect(&path).unwrap();
            let me = fs::metadata("/proc/self").unwrap().uid();
            assert_eq!(listener.accept().unwrap().1, Peer::User(me));
            drop(listener);
            assert!(!path.exists());
        }
    }

    // The first server was killed: its socket is there, and no process listens at it.
    #[test]
    fn only_an_unused_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = Address::Socket(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind(&address, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        let error = Listener::bind(&address, 0o600).unwrap_err();
        assert!(error.to_string().contains("where no file is"), "{error}");
        let nowhere = Address::Socket(dir.path().join("no/socket"));
        assert_eq!(Listener::bind(&nowhere, 0o600).unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn a_port_is_taken_once() {
        let any = Address::Port(([127, 0, 0, 1], 0).into());
        let listener = Listener::bind(&any, 0).unwrap();
        let error = Listener::bind(listener.address(), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("another port"), "{error}");
    }

    #[test]
    fn a_machine_has_all_addresses_of_its_network() {
        let at = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:0:0:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
    }
}
