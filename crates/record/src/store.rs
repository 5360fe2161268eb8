//! Storage of a recording's bytes: a directory, or memory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::table::Table;

/// Append-only storage for a recording.
pub trait Store {
    /// Appends to a table's stream and passes the bytes to the kernel, so that they survive the end
    /// of this process.
    ///
    /// # Errors
    /// Not all bytes could be appended.
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()>;

    /// Waits until all appended bytes are on the medium.
    ///
    /// # Errors
    /// The flush failed.
    fn sync(&mut self) -> io::Result<()>;

    /// Name of the recording, for errors.
    fn name(&self) -> String;
}

/// Read access to a recording's bytes.
pub trait Source {
    /// Current length of a table's stream; `None` if the stream does not exist.
    ///
    /// # Errors
    /// The length cannot be determined.
    fn len(&self, table: Table) -> io::Result<Option<u64>>;

    /// Reads `bytes` bytes from `offset` on.
    ///
    /// # Errors
    /// The stream is shorter, or unreadable.
    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// Name of the recording, for errors.
    fn name(&self) -> String;
}

/// Storage in a directory, for writing.
pub(crate) struct DirStore {
    path: PathBuf,
    files: Vec<File>,
}

impl DirStore {
    /// Creates the directory `path` and the files in it.
    ///
    /// # Errors
    /// The directory is not empty: a recording is never appended to.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let failed = |e: io::Error| {
            Error::new(ErrorKind::Io, format!("cannot create recording {}", path.display()))
                .cause(e)
                .remedy("choose a directory that you may write to, with -o DIR")
        };
        fs::create_dir_all(path).map_err(failed)?;
        if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(not_empty(path));
        }
        let create = |table: &Table| {
            OpenOptions::new().append(true).create_new(true).open(path.join(table.file_name()))
        };
        let files = Table::ALL.iter().map(create).collect::<io::Result<_>>().map_err(failed)?;
        Ok(Self { path: path.into(), files })
    }
}

fn not_empty(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot create recording {}", path.display()))
        .cause("the directory is not empty, and a recording is never appended to")
        .remedy("choose a new directory, or remove this one first")
}

impl Store for DirStore {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        self.files[table as usize].write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // `Table::ALL` ends with the windows: commit rows reach the medium after the data that they
        // cover.
        self.files.iter().try_for_each(File::sync_data)?;
        File::open(&self.path)?.sync_all()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Storage in a directory, for reading.
pub(crate) struct DirSource {
    path: PathBuf,
    files: Vec<Option<File>>,
}

impl DirSource {
    /// Opens the existing files of `path`.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let is_dir = fs::metadata(path).map_err(|e| not_opened(path, e.kind(), &e))?.is_dir();
        if !is_dir {
            let kind = io::ErrorKind::NotADirectory;
            return Err(not_opened(path, kind, &"it is not a directory"));
        }
        let open = |table: &Table| match File::open(path.join(table.file_name())) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(not_opened(path, e.kind(), &format_args!("{}: {e}", table.file_name()))),
        };
        let files = Table::ALL.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { path: path.into(), files })
    }

    fn file(&self, table: Table) -> Option<&File> {
        self.files[table as usize].as_ref()
    }
}

fn not_opened(path: &Path, kind: io::ErrorKind, cause: &dyn std::fmt::Display) -> Error {
    let (kind, remedy) = match kind {
        io::ErrorKind::PermissionDenied => {
            (ErrorKind::Permission, "read it as the user who recorded, or as root")
        }
        _ => (ErrorKind::Data, "give the directory that `tierscope record -o DIR` wrote"),
    };
    Error::new(kind, format!("cannot open recording {}", path.display()))
        .cause(cause)
        .remedy(remedy)
}

impl Source for DirSource {
    fn len(&self, table: Table) -> io::Result<Option<u64>> {
        self.file(table).map(|file| Ok(file.metadata()?.len())).transpose()
    }

    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = self.file(table).ok_or(io::ErrorKind::NotFound)?;
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Storage in memory: for tests, and for reports without a recording on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of each existing stream.
    pub streams: BTreeMap<Table, Vec<u8>>,
}

impl Store for Memory {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        self.streams.entry(table).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "in memory".into()
    }
}

impl Source for Memory {
    fn len(&self, table: Table) -> io::Result<Option<u64>> {
        Ok(self.streams.get(&table).map(|stream| stream.len() as u64))
    }

    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let stream = self.streams.get(&table).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(stream.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }

    fn name(&self) -> String {
        "in memory".into()
    }
}

/// Lets a caller keep ownership of the store that a recorder writes to.
impl<S: Store> Store for &mut S {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        (**self).append(table, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

impl Store for Box<dyn Store> {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        (**self).append(table, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        (**self).sync()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}
