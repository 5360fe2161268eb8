//! Opens input files: decompresses them and counts the bytes read.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tierscope_core::Result;

use crate::place::{Place, malformed, unreadable};

/// What some editors put before a text.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes that are peeked at to detect a format.
const PEEK: usize = 16 << 10;

/// An open trace whose format is not yet known.
pub struct Input {
    /// Its name, for errors.
    pub name: String,
    /// The decompressed content, from the beginning.
    pub bytes: Box<dyn Read + Send>,
    /// The first bytes of the content, for detecting the format.
    pub start: Vec<u8>,
    /// Progress of reading the file.
    pub read: Progress,
}

/// Bytes read of a file as stored (possibly compressed).
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts more bytes as read.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Relaxed);
    }
}

/// Counts the bytes read from `inner`.
struct CountingReader<R> {
    inner: R,
    read: Progress,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.read.add(count as u64);
        Ok(count)
    }
}

impl Input {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`] if it does not exist; unsupported compression; I/O
    /// errors.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        if path.as_os_str() == "-" {
            return Self::new("standard input", Box::new(io::stdin()));
        }
        let file = File::open(path).map_err(|e| unreadable(&name, &e))?;
        if file.metadata().is_ok_and(|meta| meta.is_dir()) {
            let remedy = "name a file in it, or a directory of drmemtrace's";
            return Err(malformed(&name, Place::Whole, "it is a directory", remedy));
        }
        #[cfg(feature = "archives")]
        if archives::is_zip(&file).map_err(|e| unreadable(&name, &e))? {
            let read = Progress::default();
            let bytes = archives::unzip(&name, file, read.clone())?;
            return Self::peeked(name, bytes, read);
        }
        Self::new(&name, Box::new(file))
    }

    /// Wraps an open stream, decompressing it if necessary.
    ///
    /// # Errors
    /// As for [`Input::open`].
    pub fn new(name: &str, bytes: Box<dyn Read + Send>) -> Result<Self> {
        let read = Progress::default();
        let bytes = Box::new(CountingReader { inner: bytes, read: read.clone() });
        let outer = Self::peeked(name.to_owned(), bytes, read)?;
        if let Some(packed) = Compression::of(&outer.start) {
            return packed.open(outer);
        }
        Ok(outer)
    }

    fn peeked(name: String, mut bytes: Box<dyn Read + Send>, read: Progress) -> Result<Self> {
        let mut start = vec![0; PEEK];
        let mut length = 0;
        while length < PEEK {
            match self::read(&mut bytes, &mut start[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                // The next read reports the error again, at its position.
                Err(_) if length > 0 => break,
                Err(error) => return Err(unreadable(&name, &error)),
            }
        }
        start.truncate(length);
        if start.starts_with(BYTE_ORDER_MARK) {
            start.drain(..BYTE_ORDER_MARK.len());
        }
        let bytes = Box::new(Cursor::new(start.clone()).chain(bytes));
        Ok(Self { name, bytes, start, read })
    }
}

/// As [`Read::read`], but retries when interrupted.
pub fn read(input: &mut (impl Read + ?Sized), out: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Compression formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Xz,
    Lz4,
    Snappy,
    Zip,
    Zstd,
    Bzip2,
}

impl Compression {
    /// Detects the compression from the magic number.
    fn of(start: &[u8]) -> Option<Self> {
        let magics: [(&[u8], Compression); 7] = [
            (&[0x1f, 0x8b, 8], Compression::Gzip),
            (b"\xfd7zXZ\0", Compression::Xz),
            (&[4, 0x22, 0x4d, 0x18], Compression::Lz4),
            (b"\xff\x06\0\0sNaPpY", Compression::Snappy),
            (b"PK\x03\x04", Compression::Zip),
            (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstd),
            (b"BZh", Compression::Bzip2),
        ];
        magics.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, packed)| packed)
    }

    #[cfg(feature = "archives")]
    fn open(self, outer: Input) -> Result<Input> {
        let Input { name, bytes, read, .. } = outer;
        let buffered = io::BufReader::with_capacity(1 << 17, bytes);
        let bytes: Box<dyn Read + Send> = match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
            Compression::Xz => Box::new(xz(&name, buffered)?),
            Compression::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(buffered)),
            Compression::Snappy => Box::new(snap::read::FrameDecoder::new(buffered)),
            Compression::Zip => {
                return Err(refused(&name, "a zip archive can be read from a file only"));
            }
            Compression::Zstd => return Err(refused(&name, "it is compressed with zstd")),
            Compression::Bzip2 => return Err(refused(&name, "it is compressed with bzip2")),
        };
        Input::peeked(name, bytes, read)
    }

    #[cfg(not(feature = "archives"))]
    fn open(self, outer: Input) -> Result<Input> {
        Err(refused(&outer.name, "it is compressed, and this build decompresses nothing"))
    }
}

fn refused(name: &str, cause: &str) -> tierscope_core::Error {
    malformed(name, Place::Whole, cause, "decompress it, and give `-` for standard input")
}

/// Most memory that an xz stream may ask for: `xz -9` asks for 65 MiB.
#[cfg(feature = "archives")]
const XZ_MEMORY: u64 = 128 << 20;

#[cfg(feature = "archives")]
fn xz<R: io::BufRead>(name: &str, input: R) -> Result<liblzma::bufread::XzDecoder<R>> {
    let stream =
        liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, liblzma::stream::CONCATENATED);
    let stream = stream.map_err(|e| refused(name, &format!("xz: {e}")))?;
    Ok(liblzma::bufread::XzDecoder::new_stream(input, stream))
}

#[cfg(feature = "archives")]
mod archives {
    //! Zip archives as written by drmemtrace: the concatenated members are the trace.

    use std::fs::File;
    use std::io::{self, BufReader, Read, Seek, SeekFrom};

    use flate2::bufread::DeflateDecoder;
    use tierscope_core::Result;
    use zip::{CompressionMethod, ZipArchive};

    use super::{CountingReader, Progress};
    use crate::place::{Place, malformed, unreadable};

    pub(super) fn is_zip(mut file: &File) -> io::Result<bool> {
        let mut magic = [0; 4];
        let mut length = 0;
        while length < 4 {
            match super::read(&mut file, &mut magic[length..])? {
                0 => break,
                count => length += count,
            }
        }
        // A pipe cannot seek, and archives need that.
        if length == 4 && &magic == b"PK\x03\x04" {
            file.rewind()?;
            return Ok(true);
        }
        file.rewind().map(|()| false)
    }

    /// Location of an archive member.
    struct Member {
        at: u64,
        packed: u64,
        deflated: bool,
    }

    /// The concatenated members of an archive.
    struct Members {
        file: File,
        read: Progress,
        /// Remaining members, the next one last.
        left: Vec<Member>,
        now: Option<Box<dyn Read + Send>>,
    }

    pub(super) fn unzip(name: &str, file: File, read: Progress) -> Result<Box<dyn Read + Send>> {
        let damaged = |cause: &dyn std::fmt::Display| {
            malformed(
                name,
                Place::Whole,
                format_args!("damaged archive: {cause}"),
                "get the file again",
            )
        };
        let again = file.try_clone().map_err(|e| unreadable(name, &e))?;
        let mut archive = ZipArchive::new(BufReader::new(again)).map_err(|e| damaged(&e))?;
        let mut left = Vec::new();
        for index in (0..archive.len()).rev() {
            let member = archive.by_index_raw(index).map_err(|e| damaged(&e))?;
            let deflated = match member.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::DEFLATE => true,
                other => return Err(damaged(&format_args!("members compressed as {other}"))),
            };
            let Some(at) = member.data_start() else {
                return Err(damaged(&"a member lies nowhere"));
            };
            left.push(Member { at, packed: member.compressed_size(), deflated });
        }
        Ok(Box::new(Members { file, read, left, now: None }))
    }

    impl Read for Members {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            loop {
                if let Some(member) = &mut self.now {
                    match member.read(out)? {
                        0 if !out.is_empty() => self.now = None,
                        count => return Ok(count),
                    }
                }
                let Some(next) = self.left.pop() else { return Ok(0) };
                self.file.seek(SeekFrom::Start(next.at))?;
                let bytes = self.file.try_clone()?.take(next.packed);
                let bytes = BufReader::with_capacity(
                    1 << 17,
                    CountingReader { inner: bytes, read: self.read.clone() },
                );
                self.now = Some(match next.deflated {
                    true => Box::new(DeflateDecoder::new(bytes)),
                    false => Box::new(bytes),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn all(mut input: Input) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        input.bytes.read_to_end(&mut bytes).map(|_| bytes)
    }

    fn of(bytes: Vec<u8>) -> Result<Input> {
        Input::new("t", Box::new(Cursor::new(bytes)))
    }

    #[cfg(feature = "archives")]
    #[test]
    fn compressed_files_are_decompressed() {
        let text = b"I  04000000,3\n".repeat(5000);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        xz.write_all(&text).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&text).unwrap();
        let mut snappy = snap::write::FrameEncoder::new(Vec::new());
        snappy.write_all(&text).unwrap();
        let packed = [
            gz.finish().unwrap(),
            xz.finish().unwrap(),
            lz4.finish().unwrap(),
            snappy.into_inner().unwrap(),
            text.clone(),
        ];
        for bytes in packed {
            let length = bytes.len() as u64;
            let input = of(bytes).unwrap();
            assert_eq!(input.start, text[..PEEK]);
            let read = input.read.clone();
            assert_eq!(all(input).unwrap(), text);
            assert_eq!(read.bytes(), length);
        }
    }

    #[cfg(feature = "archives")]
    #[test]
    fn a_truncated_file_is_an_error() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&b"some text and more of it".repeat(9)).unwrap();
        let mut bytes = gz.finish().unwrap();
        bytes.truncate(bytes.len() - 9);
        assert!(of(bytes).and_then(|input| all(input).map_err(|e| unreadable("t", &e))).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_left_out() {
        let input = of(b"\xef\xbb\xbfaddress\n1\n".to_vec()).unwrap();
        assert_eq!(input.start, b"address\n1\n");
        assert_eq!(all(input).unwrap(), b"address\n1\n");
    }

    #[test]
    fn unsupported_compression_is_refused() {
        let error = of(vec![0x28, 0xb5, 0x2f, 0xfd, 0]).err().unwrap().to_string();
        assert!(error.contains("zstd") && error.contains("decompress it"), "{error}");
        assert_eq!(of(Vec::new()).unwrap().start, b"");
    }
}
