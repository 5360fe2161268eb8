//! The "newc" cpio archive that the kernel unpacks as its initial root file system
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFCHR: u32 = 0o020_000;

/// Writes an archive entry by entry; [`Archive::finish`] closes it.
pub struct Archive<W: Write> {
    out: W,
    written: u64,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// Starts an archive on `out`.
    pub fn new(out: W) -> Self {
        Archive { out, written: 0, inode: 0 }
    }

    /// Adds a directory. Parents must be added first: the kernel does not create them.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, S_IFDIR | 0o755, (0, 0), &[])
    }

    /// Adds a regular file with permission bits `mode`.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(path, S_IFREG | (mode & 0o7777), (0, 0), data)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, S_IFLNK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device node.
    pub fn char_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, S_IFCHR | 0o600, (major, minor), &[])
    }

    /// Writes the trailer and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry(TRAILER, 0, (0, 0), &[])?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(data.len()).map_err(|_| too_large(name))?;
        let links = 1;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.inode += 1;
        self.put(MAGIC.as_bytes())?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad()?;
        self.put(data)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 4][..missing as usize])
    }
}

fn too_large(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("{name} does not fit a newc archive (4 GiB)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Independent reader, written from the format's description.
    fn read(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut at = 0;
        let mut entries = Vec::new();
        loop {
            assert_eq!(&archive[at..at + 6], b"070701");
            let field = |i: usize| {
                let start = at + 6 + 8 * i;
                u32::from_str_radix(std::str::from_utf8(&archive[start..start + 8]).unwrap(), 16)
                    .unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name_at = at + 110;
            let name =
                String::from_utf8(archive[name_at..name_at + name_size - 1].to_vec()).unwrap();
            let data_at = (name_at + name_size).next_multiple_of(4);
            let data = archive[data_at..data_at + size].to_vec();
            at = (data_at + size).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(at, archive.len());
                return entries;
            }
            entries.push((name, mode, data));
        }
    }

    #[test]
    fn a_header_is_110_bytes_and_names_end_in_nul() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/a", 0o755, b"xyz").unwrap();
        let bytes = archive.finish().unwrap();
        // Header and "a\0": 110 + 2 = 112, a multiple of 4; "xyz" is padded to 4; trailer: 110 + 11
        // = 121 -> 124.
        assert_eq!(bytes.len(), 112 + 4 + 124);
        assert_eq!(&bytes[110..116], b"a\0xyz\0");
        assert_eq!(read(&bytes), vec![("a".into(), 0o100_755, b"xyz".to_vec())]);
    }

    #[test]
    fn kinds_of_files_keep_their_mode() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("dev").unwrap();
        archive.char_device("dev/console", 5, 1).unwrap();
        archive.symlink("sh", "busybox").unwrap();
        let entries = read(&archive.finish().unwrap());
        let modes: Vec<u32> = entries.iter().map(|e| e.1).collect();
        assert_eq!(modes, [0o040_755, 0o020_600, 0o120_777]);
        assert_eq!(entries[2].2, b"busybox");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(files in prop::collection::vec(("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..50)), 0..8)) {
            let mut archive = Archive::new(Vec::new());
            for (name, data) in &files {
                archive.file(name, 0o644, data).unwrap();
            }
            let entries = read(&archive.finish().unwrap());
            let expected: Vec<_> = files.into_iter().map(|(n, d)| (n, 0o100_644, d)).collect();
            prop_assert_eq!(entries, expected);
        }
    }
}
