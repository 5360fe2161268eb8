//! Recordings in directories.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierscope_core::{Error, ErrorKind, Result};

use crate::access::Access;
use crate::store::{Medium, Source, Store};
use crate::table::Table;

/// Storage in a directory, for writing.
#[derive(Debug)]
pub struct DirStore(Arc<Files>);

/// The open files of a directory.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    /// By table number.
    files: Vec<File>,
    made: MadeDirs,
}

impl DirStore {
    /// Creates the directory `path` and the files in it.
    ///
    /// # Errors
    /// The directory is not empty: a recording is never appended to. Nothing is left behind.
    pub(crate) fn create(path: &Path, access: Access) -> Result<Self> {
        let made = MadeDirs::make(path, access).map_err(|e| not_created(path, access, &e))?;
        if fs::read_dir(path).map_err(|e| not_created(path, access, &e))?.next().is_some() {
            return Err(not_empty(path));
        }
        let mut files = Files { path: path.into(), files: Vec::new(), made };
        for table in Table::ALL {
            match create_file(&path.join(table.file_name()), access) {
                Ok(file) => files.files.push(file),
                Err(e) => {
                    files.discard();
                    return Err(not_created(path, access, &e));
                }
            }
        }
        Ok(Self(Arc::new(files)))
    }

    /// Opens the files of a recording that this process created, to append to them.
    pub(crate) fn reopen(path: &Path) -> io::Result<Self> {
        let open = |table: &Table| {
            let mut options = OpenOptions::new();
            options.append(true).custom_flags(NO_LINK).open(path.join(table.file_name()))
        };
        let files = Table::ALL.iter().map(open).collect::<io::Result<_>>()?;
        // The name of the directory may not be on the medium yet.
        let made = MadeDirs(vec![path.into()]);
        Ok(Self(Arc::new(Files { path: path.into(), files, made })))
    }

    /// An undo of [`DirStore::create`].
    pub(crate) fn undo(&self) -> impl FnOnce() + use<> {
        let files = Arc::clone(&self.0);
        move || files.discard()
    }
}

impl Files {
    /// Removes the files, and the directories made for them.
    fn discard(&self) {
        // Errors are ignored: the failure that led here is reported.
        for table in &Table::ALL[..self.files.len()] {
            let _ = fs::remove_file(self.path.join(table.file_name()));
        }
        self.made.remove();
    }
}

/// Refuses symbolic links.
pub(crate) const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Creates a file; none is left behind on failure.
fn create_file(path: &Path, access: Access) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    access.of_file(&file).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

/// The directories that were missing on the way to a recording, innermost first.
#[derive(Debug, Default)]
pub(crate) struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    /// Makes the directory `path` and its ancestors, where missing. Only those made here get the
    /// mode of `access`.
    pub(crate) fn make(path: &Path, access: Access) -> io::Result<Self> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = Self(path.ancestors().take_while(missing).map(Into::into).collect());
        let all = made.0.iter().rev().try_for_each(|dir| {
            DirBuilder::new().mode(0o700).create(dir)?;
            access.of_dir(&File::open(dir)?)
        });
        let all = all.and_then(|()| match path.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        all.inspect_err(|_| made.remove())?;
        Ok(made)
    }

    /// Removes them, unless something is in them.
    pub(crate) fn remove(&self) {
        self.0.iter().all(|dir| fs::remove_dir(dir).is_ok());
    }

    /// Syncs their names in the directories above.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|dir| match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
            _ => sync_dir(Path::new(".")),
        })
    }
}

/// Syncs the names in a directory, as far as it may be opened and its file system can.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    match File::open(path).and_then(|dir| dir.sync_all()) {
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied) => Ok(()),
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput) => Ok(()),
        synced => synced,
    }
}

/// The error of a recording, or of a series, that cannot be created.
pub(crate) fn not_created(path: &Path, access: Access, cause: &io::Error) -> Error {
    let what = format!("cannot create recording {}", path.display());
    let error = |kind, remedy: &str| Error::new(kind, &what).cause(cause).remedy(remedy);
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error(ErrorKind::Io, "free space, or record elsewhere with -o DIR")
        }
        _ if access.is_shared() && cause.raw_os_error() == Some(NOT_PERMITTED) => error(
            ErrorKind::Permission,
            "choose a group with --group that you are a member of, or record as root",
        ),
        _ => error(ErrorKind::Io, "choose a directory that you may write to, with -o DIR"),
    }
}

/// EPERM: changing the group failed, whereas EACCES is an error of the directory.
const NOT_PERMITTED: i32 = rustix::io::Errno::PERM.raw_os_error();

fn not_empty(path: &Path) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot create recording {}", path.display()))
        .cause("the directory is not empty, and a recording is never appended to")
        .remedy("choose a new directory, or remove this one first")
}

impl Store for DirStore {
    fn append(&mut self, table: Table, bytes: &[u8]) -> io::Result<()> {
        (&self.0.files[table as usize]).write_all(bytes)
    }

    fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.0) as Arc<dyn Medium>
    }

    fn name(&self) -> String {
        self.0.path.display().to_string()
    }
}

impl Medium for Files {
    fn sync(&self, table: Table) -> io::Result<()> {
        self.files[table as usize].sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_dir(&self.path)?;
        self.made.sync()
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
