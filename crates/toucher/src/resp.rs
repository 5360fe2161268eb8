//! The subset of RESP 2 that a load needs (redis.io/docs/reference/protocol-spec).

use std::io::{self, BufRead, Write};

/// Writes a command as an array of bulk strings.
///
/// # Errors
/// Those of the writer.
pub fn write_command(out: &mut impl Write, words: &[&[u8]]) -> io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// A reply of the server. The bytes of a bulk string are skipped, not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string, `+OK`.
    Simple(String),
    /// An error, `-ERR …`.
    Error(String),
    /// An integer, `:1`.
    Integer(i64),
    /// A bulk string of that many bytes.
    Bulk(usize),
    /// The null bulk string: no such key.
    Null,
}

/// Reads a reply.
///
/// # Errors
/// Those of the reader; `UnexpectedEof` if the server closed the connection; `InvalidData` if it
/// does not speak RESP.
pub fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let line = read_line(from)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| foreign(&line))?;
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => rest.parse().map(Reply::Integer).map_err(|_| foreign(&line)),
        "$" if rest == "-1" => Ok(Reply::Null),
        "$" => {
            let bytes = rest.parse().map_err(|_| foreign(&line))?;
            skip(from, bytes)?;
            skip(from, 2)?;
            Ok(Reply::Bulk(bytes))
        }
        _ => Err(foreign(&line)),
    }
}

/// Reads a line without its end; `UnexpectedEof` if the server closed the connection.
pub(crate) fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// Skips that many bytes of the input.
pub(crate) fn skip(from: &mut impl BufRead, mut bytes: usize) -> io::Result<()> {
    while bytes > 0 {
        let there = from.fill_buf()?.len().min(bytes);
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        from.consume(there);
        bytes -= there;
    }
    Ok(())
}

/// The error for a line that is not of the expected protocol.
pub(crate) fn foreign(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:.40}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"GET", b"k1"]).unwrap();
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n");
    }

    #[test]
    fn replies_are_read_one_after_the_other() {
        let mut from: &[u8] = b"+OK\r\n$5\r\nab\r\nc\r\n$-1\r\n:12\r\n-ERR no\r\n";
        let replies: Vec<_> = (0..5).map(|_| read_reply(&mut from).unwrap()).collect();
        let error = Reply::Error("ERR no".into());
        assert_eq!(
            replies,
            [Reply::Simple("OK".into()), Reply::Bulk(5), Reply::Null, Reply::Integer(12), error]
        );
        assert_eq!(read_reply(&mut from).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn strangers_and_broken_replies_are_errors() {
        let kind = |mut from: &[u8]| read_reply(&mut from).unwrap_err().kind();
        assert_eq!(kind(b"HTTP/1.1 400\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"\r\n"), io::ErrorKind::InvalidData);
        assert_eq!(kind(b"$9\r\nshort"), io::ErrorKind::UnexpectedEof);
    }
}
