//! Where the bytes of a recording live: a directory, or memory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::table::Table;

/// Takes the bytes of a recording; nothing is ever overwritten.
pub trait Store {
    /// Appends to a table's stream and hands it to the kernel, so that the end of this process
    /// cannot take it back.
    ///
    /// # Errors
    /// If not all bytes could be appended.
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()>;

    /// Waits until everything appended is on the medium.
    ///
    /// # Errors
    /// If that cannot be known.
    fn sync(&mut self) -> io::Result<()>;

    /// The name of the recording, for errors.
    fn name(&self) -> String;
}

/// Gives the bytes of a recording.
pub trait Source {
    /// Bytes in a table's stream now; `None` if there is no such stream.
    ///
    /// # Errors
    /// If that cannot be told.
    fn len(&self, table: Table) -> io::Result<Option<u64>>;

    /// Reads `bytes` bytes from `offset` on.
    ///
    /// # Errors
    /// If there are fewer, or they cannot be read.
    fn read(&self, table: Table, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;

    /// The name of the recording, for errors.
    fn name(&self) -> String;
}

/// A directory that is being written.
pub(crate) struct DirStore {
    path: PathBuf,
    files: Vec<File>,
}

impl DirStore {
    /// Makes `path` and the files in it.
    ///
    /// # Errors
    /// If the directory holds anything already: a recording is never appended to.
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
        // Table::ALL ends with the windows: their rows reach the medium after what they vouch for.
        self.files.iter().try_for_each(File::sync_data)?;
        File::open(&self.path)?.sync_all()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// A directory that is read.
pub(crate) struct DirSource {
    path: PathBuf,
    files: Vec<Option<File>>,
}

impl DirSource {
    /// Opens the files of `path` that are there.
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

/// A recording in memory: for tests, and for reports of what is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The bytes of each stream that is there.
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

/// Lets a caller keep the store that a recorder writes to.
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
