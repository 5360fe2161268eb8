//! zlib decompression that detects truncated input.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

use flate2::{Decompress, FlushDecompress, Status};

/// Decompresses a zlib stream, including its checksum: a truncated stream is an error, even if only
/// the checksum is incomplete. `flate2::bufread::ZlibDecoder` takes the end of its input for the
/// end of the stream, and so accepts a file that lost its last bytes.
pub(crate) struct Inflate<R> {
    input: R,
    state: Decompress,
    ended: bool,
}

impl<R: BufRead> Inflate<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, state: Decompress::new(true), ended: false }
    }
}

impl<R: BufRead> Read for Inflate<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        while !self.ended && !out.is_empty() {
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            let (consumed, produced) = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(input, out, FlushDecompress::None);
            self.ended = status.map_err(Error::from)? == Status::StreamEnd;
            let consumed = (self.state.total_in() - consumed) as usize;
            let produced = (self.state.total_out() - produced) as usize;
            self.input.consume(consumed);
            if produced > 0 {
                return Ok(produced);
            }
            if at_end && !self.ended {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the zlib stream is cut short"));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    #[test]
    fn a_stream_without_its_last_byte_is_refused() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"hot and cold").unwrap();
        let whole = encoder.finish().unwrap();
        let read = |bytes: &[u8]| {
            let mut text = String::new();
            Inflate::new(bytes).read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read(&whole).unwrap(), "hot and cold");
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]).unwrap_err().kind(), ErrorKind::UnexpectedEof, "{cut}");
        }
    }
}
