//! Files and directories that get their final name once they are complete.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};
use tierscope_core::{Error, ErrorKind, Result};

/// A file under a temporary name until [`Partial::keep`]. The file is removed if this is dropped
/// before.
#[derive(Debug)]
pub struct Partial {
    unfinished: NamedTempFile,
    name: PathBuf,
}

impl Partial {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if `path` exists; [`ErrorKind::Io`] if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        refuse_existing(path)?;
        let (dir, prefix) = place(path);
        let made = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir);
        let unfinished = made.map_err(|e| not_written(path, &e))?;
        Ok(Self { unfinished, name: path.into() })
    }

    /// The open file, for writing.
    #[must_use]
    pub fn file(&self) -> &File {
        self.unfinished.as_file()
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if syncing or renaming fails.
    pub fn keep(self) -> Result<()> {
        let Self { unfinished, name } = self;
        let synced = unfinished.as_file().sync_all();
        let named = synced.and_then(|()| Ok(unfinished.persist_noclobber(&name)?));
        named.and_then(|_| sync_names(&name)).map_err(|e| not_written(&name, &e))
    }
}

/// A directory under a temporary name until [`PartialDir::keep`]. It is removed if this is dropped
/// before.
#[derive(Debug)]
pub struct PartialDir {
    unfinished: TempDir,
    name: PathBuf,
}

impl PartialDir {
    /// Creates the temporary directory for `path`, and the directories above it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if `path` exists and is not an empty directory; [`ErrorKind::Io`] if
    /// the directory cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        if !is_empty_dir(path) {
            refuse_existing(path)?;
        }
        let (dir, prefix) = place(path);
        let made = fs::create_dir_all(&dir).and_then(|()| {
            tempfile::Builder::new()
                .prefix(&prefix)
                .permissions(Permissions::from_mode(0o777))
                .tempdir_in(dir)
        });
        let unfinished = made.map_err(|e| not_written(path, &e))?;
        Ok(Self { unfinished, name: path.into() })
    }

    /// Path of the temporary directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.unfinished.path()
    }

    /// Renames the directory to its final name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be renamed.
    pub fn keep(self) -> Result<()> {
        let Self { unfinished, name } = self;
        fs::rename(unfinished.path(), &name).map_err(|e| not_written(&name, &e))?;
        // There is nothing left to remove.
        let _ = unfinished.keep();
        sync_names(&name).map_err(|e| not_written(&name, &e))
    }
}

/// The directory of `path`, and the first part of a temporary name for it there; the rest is drawn
/// at random, so that nothing else has that name.
fn place(path: &Path) -> (PathBuf, OsString) {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".partial-");
    (dir.into(), prefix)
}

/// Syncs the name of `path` in its directory, as far as that may be opened and its file system can.
fn sync_names(path: &Path) -> io::Result<()> {
    match File::open(place(path).0).and_then(|dir| dir.sync_all()) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

fn is_empty_dir(path: &Path) -> bool {
    path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

fn refuse_existing(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, format!("cannot write {}", path.display()))
        .cause("it is there already, and nothing is overwritten")
        .remedy("choose another name with -o, or remove it first"))
}

pub(crate) fn not_written(path: &Path, cause: &io::Error) -> Error {
    Error::new(cause.into(), format!("cannot write {}", path.display()))
        .cause(cause)
        .remedy("choose a place that you may write to and that has room, with -o")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        let partial = Partial::create(&path).unwrap();
        partial.file().write_all(b"half").unwrap();
        assert!(!path.exists() && fs::read_dir(dir.path()).unwrap().count() == 1);
        drop(partial);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let partial = Partial::create(&path).unwrap();
        partial.file().write_all(b"whole").unwrap();
        partial.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(Partial::create(&path).unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn a_directory_likewise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/out/");
        let partial = PartialDir::create(&path).unwrap();
        fs::write(partial.path().join("a"), "half").unwrap();
        drop(partial);
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
        fs::create_dir(&path).unwrap();
        let partial = PartialDir::create(&path).unwrap();
        fs::write(partial.path().join("a"), "1").unwrap();
        partial.keep().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert_eq!(PartialDir::create(&path).unwrap_err().kind(), ErrorKind::Usage);
    }

    // Names that older versions gave to unfinished files, and took for their own.
    #[test]
    fn nothing_that_was_there_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (file, tree) = (dir.path().join("a.partial"), dir.path().join("b.partial"));
        let precious = tree.join("precious");
        fs::write(&file, "data").unwrap();
        fs::create_dir(&tree).unwrap();
        fs::write(&precious, "data").unwrap();
        let written = Partial::create(&dir.path().join("a")).unwrap();
        written.file().write_all(b"new").unwrap();
        written.keep().unwrap();
        PartialDir::create(&dir.path().join("b")).unwrap().keep().unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), fs::read(&precious).unwrap()),
            (b"data".into(), b"data".into())
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    }
}
