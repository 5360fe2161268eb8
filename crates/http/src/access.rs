//! Which requests may be answered: by the name that the client knows the server by, and by a
//! token.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use subtle::ConstantTimeEq;
use tierscope_core::{Error, ErrorKind, Result};

use crate::request::{Refusal, Request};

/// Largest token, in bytes.
const LONGEST: u64 = 4096;

/// Conditions of a request.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names of this server, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// The token that a request needs.
    pub token: Option<Token>,
}

impl Access {
    /// Checks a request.
    ///
    /// # Errors
    /// [`Refusal::Host`]: a page of another site may have made the browser take this server for its
    /// own, by a name that it resolves (DNS rebinding); an address cannot be resolved to another.
    /// [`Refusal::Token`]: the token is missing or wrong.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        if !request.host.as_ref().is_none_or(|host| self.is_ours(host)) {
            return Err(Refusal::Host);
        }
        match &self.token {
            Some(token) if !token.is(request.token.as_deref()) => Err(Refusal::Token),
            _ => Ok(()),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
            return true;
        }
        if let Some(v6) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return v6.parse::<Ipv6Addr>().is_ok();
        }
        let name = match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        };
        let ours = self.hosts.iter().map(String::as_str).chain(["localhost"]);
        ours.into_iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// A secret of the server and its clients.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// The first line of a file, without blanks around it.
    ///
    /// # Errors
    /// [`ErrorKind::Permission`] if every user may read the file, [`ErrorKind::Data`] if it holds
    /// no token, [`ErrorKind::Io`] if it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |kind, cause: &dyn std::fmt::Display, remedy: &str| {
            let what = format!("cannot take the token from {}", path.display());
            Error::new(kind, what).cause(cause).remedy(remedy)
        };
        let unread = |e: std::io::Error| {
            failed(ErrorKind::Io, &e, "give a file that you may read with --token-file")
        };
        let file = File::open(path).map_err(unread)?;
        // What is checked is what is read: the open file, not its path.
        if file.metadata().map_err(unread)?.permissions().mode() & 0o007 != 0 {
            let remedy = "take the permission away (`chmod o= FILE`), and make a new token";
            return Err(failed(ErrorKind::Permission, &"every user may open it", remedy));
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).map_err(unread)?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.is_empty() || !token.bytes().all(|letter| letter.is_ascii_graphic()) {
            let cause = "its first line is not a word of printable ASCII";
            let remedy = "make one with `openssl rand -hex 32`";
            return Err(failed(ErrorKind::Data, &cause, remedy));
        }
        Ok(Self(token.into()))
    }

    /// Whether `given` is this token. The time depends on the lengths only.
    fn is(&self, given: Option<&str>) -> bool {
        self.0.ct_eq(given.unwrap_or_default().as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn asked(lines: &str) -> Request {
        Request::parse(format!("GET / HTTP/1.1\r\n{lines}").as_bytes()).unwrap()
    }

    #[test]
    fn a_name_that_others_may_resolve_is_refused() {
        let access = Access { hosts: vec!["Box.example".into()], token: None };
        let answer = |host: &str| access.check(&asked(&format!("Host: {host}\r\n")));
        for ours in [
            "127.0.0.1",
            "127.0.0.1:9464",
            "[::1]",
            "[::1]:9464",
            "LocalHost:1",
            "localhost",
            "box.example",
            "box.example:80",
        ] {
            assert_eq!(answer(ours), Ok(()), "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost:80.evil.example",
            "evil.localhost",
            "0x7f000001",
            "[::1].evil.example",
            "[evil.example]",
            "a@localhost",
            "",
        ] {
            assert_eq!(answer(other), Err(Refusal::Host), "{other}");
        }
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let access = Access { hosts: Vec::new(), token: Some(Token(b"s3cret".to_vec())) };
        let answer = |lines: &str| access.check(&asked(&format!("Host: [::1]\r\n{lines}")));
        assert_eq!(answer("Authorization: Bearer s3cret\r\n"), Ok(()));
        assert_eq!(answer("authorization:  bearer  s3cret \r\n"), Ok(()));
        for wrong in [
            "",
            "Authorization: Bearer s3cre\r\n",
            "Authorization: Bearer s3crets\r\n",
            "Authorization: Bearer\r\n",
            "Authorization: Basic s3cret\r\n",
            "Authorization: s3cret\r\n",
        ] {
            assert_eq!(answer(wrong), Err(Refusal::Token), "{wrong}");
        }
    }

    #[test]
    fn a_token_that_every_user_reads_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0)
        };
        assert_eq!(read(" s3cret\nmore\n", 0o640).unwrap(), b"s3cret");
        for mode in [0o644, 0o602] {
            let error = read("s3cret", mode).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission);
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        for empty in ["", "\n s3cret", "two words", "\u{1b}"] {
            assert_eq!(read(empty, 0o600).unwrap_err().kind(), ErrorKind::Data, "{empty:?}");
        }
        assert_eq!(Token::read(&dir.path().join("no")).unwrap_err().kind(), ErrorKind::Io);
    }
}
