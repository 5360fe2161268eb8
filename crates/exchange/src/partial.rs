//! Files and directories that get their final name once they are complete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

/// Suffix of the name of an unfinished file or directory.
const SUFFIX: &str = ".partial";

/// A file under a temporary name until [`Partial::keep`]; leftovers of an earlier attempt are
/// overwritten. The file is removed if this is dropped before.
#[derive(Debug)]
pub struct Partial {
    unfinished: PathBuf,
    name: PathBuf,
    file: File,
    kept: bool,
}

impl Partial {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if `path` exists; [`ErrorKind::Io`] if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        refuse_existing(path)?;
        let unfinished = unfinished(path);
        let file = File::create(&unfinished).map_err(|e| not_written(path, &e))?;
        Ok(Self { unfinished, name: path.into(), file, kept: false })
    }

    /// The open file, for writing.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if syncing or renaming fails.
    pub fn keep(mut self) -> Result<()> {
        let named = self.file.sync_all().and_then(|()| fs::rename(&self.unfinished, &self.name));
        named.map_err(|e| not_written(&self.name, &e))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // The error that led here has been reported; a leftover temporary file is harmless.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// A directory under a temporary name until [`PartialDir::keep`].
#[derive(Debug)]
pub struct PartialDir {
    unfinished: PathBuf,
    name: PathBuf,
    kept: bool,
}

impl PartialDir {
    /// Creates the temporary directory for `path`, and removes leftovers of an earlier attempt.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if `path` exists and is not an empty directory; [`ErrorKind::Io`] if
    /// the directory cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        if !is_empty_dir(path) {
            refuse_existing(path)?;
        }
        let unfinished = unfinished(path);
        let made = match fs::remove_dir_all(&unfinished) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => fs::create_dir_all(&unfinished),
        };
        made.map_err(|e| not_written(path, &e))?;
        Ok(Self { unfinished, name: path.into(), kept: false })
    }

    /// Path of the temporary directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.unfinished
    }

    /// Renames the directory to its final name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be renamed.
    pub fn keep(mut self) -> Result<()> {
        fs::rename(&self.unfinished, &self.name).map_err(|e| not_written(&self.name, &e))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for PartialDir {
    fn drop(&mut self) {
        if !self.kept {
            // A leftover temporary directory is harmless.
            let _ = fs::remove_dir_all(&self.unfinished);
        }
    }
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    while name.len() > 1 && name.as_encoded_bytes().ends_with(b"/") {
        name = Path::new(&name).components().as_path().as_os_str().to_owned();
    }
    name.push(SUFFIX);
    name.into()
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
    let kind = match cause.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Permission,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("cannot write {}", path.display()))
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
        assert!(!path.exists() && dir.path().join("out.csv.partial").exists());
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
        let path = dir.path().join("out/");
        fs::create_dir_all(dir.path().join("out.partial/left behind")).unwrap();
        let partial = PartialDir::create(&path).unwrap();
        assert_eq!(partial.path(), dir.path().join("out.partial"));
        fs::write(partial.path().join("a"), "1").unwrap();
        partial.keep().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert_eq!(PartialDir::create(&path).unwrap_err().kind(), ErrorKind::Usage);
    }
}
