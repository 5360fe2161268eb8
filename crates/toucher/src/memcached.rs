//! The subset of memcached's text protocol that a load needs (doc/protocol.txt of memcached 1.6).

use std::io::{self, BufRead, Write};

use crate::resp::{Reply, foreign, read_line, skip};

/// Writes a `set` command without expiry and flags.
///
/// # Errors
/// Those of the writer.
pub fn write_set(out: &mut impl Write, key: &[u8], data: &[u8]) -> io::Result<()> {
    out.write_all(b"set ")?;
    out.write_all(key)?;
    write!(out, " 0 0 {}\r\n", data.len())?;
    out.write_all(data)?;
    out.write_all(b"\r\n")
}

/// Writes a `get` command for one key.
///
/// # Errors
/// Those of the writer.
pub fn write_get(out: &mut impl Write, key: &[u8]) -> io::Result<()> {
    out.write_all(b"get ")?;
    out.write_all(key)?;
    out.write_all(b"\r\n")
}

/// Reads the reply to one of them: `STORED` and the like are [`Reply::Simple`], a value is a
/// [`Reply::Bulk`], a missing key a [`Reply::Null`].
///
/// # Errors
/// As [`crate::resp::read_reply`].
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(from)?;
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["END"] => Ok(Reply::Null),
        ["VALUE", _, _, bytes, ..] => {
            let bytes = bytes.parse().map_err(|_| foreign(&line))?;
            skip(from, bytes)?;
            skip(from, 2)?;
            match read_line(from)?.as_str() {
                "END" => Ok(Reply::Bulk(bytes)),
                other => Err(foreign(other)),
            }
        }
        ["ERROR" | "CLIENT_ERROR" | "SERVER_ERROR", ..] => Ok(Reply::Error(line)),
        ["STORED" | "NOT_STORED"] => Ok(Reply::Simple(line)),
        _ => Err(foreign(&line)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lines_and_data() {
        let mut out = Vec::new();
        write_set(&mut out, b"k1", b"ab").unwrap();
        write_get(&mut out, b"k1").unwrap();
        assert_eq!(out, b"set k1 0 0 2\r\nab\r\nget k1\r\n");
    }

    #[test]
    fn replies_are_read_one_after_the_other() {
        let mut from: &[u8] =
            b"STORED\r\nVALUE k1 0 5\r\na\r\nbc\r\nEND\r\nEND\r\nSERVER_ERROR out of memory\r\n";
        let replies: Vec<_> = (0..4).map(|_| read_reply(&mut from).unwrap()).collect();
        let error = Reply::Error("SERVER_ERROR out of memory".into());
        assert_eq!(replies, [Reply::Simple("STORED".into()), Reply::Bulk(5), Reply::Null, error]);
        assert_eq!(read_reply(&mut from).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn strangers_and_broken_replies_are_errors() {
        let kind = |mut from: &[u8]| read_reply(&mut from).unwrap_err().kind();
        assert_eq!(kind(b"+OK\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"VALUE k 0 x\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"VALUE k 0 1\r\na\r\nEN\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"VALUE k 0 9\r\nshort"), io::ErrorKind::UnexpectedEof);
    }
}
