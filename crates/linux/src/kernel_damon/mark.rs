//! The mark of a kdamond: a file that names its maker, so that the next start finds and clears the
//! kdamond of a process that was killed, and no other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};

use crate::maker::Maker;
use crate::proc::Proc;

/// The file `PID-START`, removed when this is dropped. It holds the inode of the kdamond's
/// directory, once there is one: no other directory of this boot has the same.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
}

impl Mark {
    /// Puts the mark of this process into `directory`, before anything is changed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn put(directory: &Path) -> Result<Self> {
        let path = directory.join(Maker::own(&Proc::default())?.name());
        let made = fs::create_dir_all(directory).and_then(|()| File::create(&path));
        made.map_err(|e| unusable(&path, &e))?;
        Ok(Self { path })
    }

    /// Notes the kdamond in its directory of sysfs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn note(&self, kdamond: &Path) -> Result<()> {
        let inode = kdamond.metadata().map_err(|e| unusable(kdamond, &e))?.ino();
        fs::write(&self.path, format!("{inode}\n")).map_err(|e| unusable(&self.path, &e))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Turns off the kdamond that a process left when it was killed, below `root` of DAMON's sysfs, and
/// removes its mark.
///
/// # Errors
/// If the kdamond cannot be turned off.
pub(crate) fn clear_left(directory: &Path, root: &Path) -> Result<()> {
    let proc = Proc::default();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(maker) = name.to_str().and_then(Maker::parse) else { continue };
        if maker.runs(&proc)? {
            continue;
        }
        let path = entry.path();
        let inode = fs::read_to_string(&path).map_err(|e| unusable(&path, &e))?;
        if is_left(root, inode.trim().parse().ok()) {
            clear(root).map_err(|e| not_cleared(maker, root, &e))?;
        }
        fs::remove_file(&path).map_err(|e| unusable(&path, &e))?;
    }
    Ok(())
}

/// Whether the only kdamond is the one in the directory with this inode. Without one, the process
/// was killed before it could set up anything in the directory that it had made.
fn is_left(root: &Path, inode: Option<u64>) -> bool {
    let says = |file: &str, text: &str| {
        fs::read_to_string(root.join(file)).is_ok_and(|said| said.trim() == text)
    };
    let kdamond = root.join("kdamonds/0");
    says("kdamonds/nr_kdamonds", "1")
        && match inode {
            Some(inode) => kdamond.metadata().is_ok_and(|found| found.ino() == inode),
            None => says("kdamonds/0/state", "off") && says("kdamonds/0/contexts/nr_contexts", "0"),
        }
}

fn clear(root: &Path) -> io::Result<()> {
    let state = root.join("kdamonds/0/state");
    if fs::read_to_string(&state)?.trim() == "on" {
        fs::write(state, "off")?;
    }
    fs::write(root.join("kdamonds/nr_kdamonds"), "0")
}

fn unusable(path: &Path, cause: &io::Error) -> Error {
    Error::new(cause.into(), format!("cannot keep the mark of a kdamond: {}", path.display()))
        .cause(cause)
        .remedy("run as root; DAMON is not used without a mark")
}

fn not_cleared(maker: Maker, root: &Path, cause: &io::Error) -> Error {
    let directory = root.join("kdamonds");
    let directory = directory.display();
    Error::new(
        ErrorKind::Io,
        format!("cannot turn off the kdamond that process {} left", maker.pid),
    )
    .cause(cause)
    .remedy(format!("as root: `echo off > {directory}/0/state; echo 0 > {directory}/nr_kdamonds`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maker::tests::ENDED;

    /// DAMON's sysfs with one kdamond, and a directory of marks.
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new(state: &str, contexts: &str) -> Self {
            let fake = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(fake.at("admin/kdamonds/0/contexts")).unwrap();
            fs::create_dir(fake.at("marks")).unwrap();
            fs::write(fake.at("admin/kdamonds/nr_kdamonds"), "1\n").unwrap();
            fs::write(fake.at("admin/kdamonds/0/state"), state).unwrap();
            fs::write(fake.at("admin/kdamonds/0/contexts/nr_contexts"), contexts).unwrap();
            fake
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn inode(&self) -> u64 {
            self.at("admin/kdamonds/0").metadata().unwrap().ino()
        }

        fn mark(&self, maker: &str, text: &str) {
            fs::write(self.at("marks").join(maker), text).unwrap();
        }

        /// Clears what was left; returns whether the kdamond stayed, and the marks.
        fn clear(&self) -> (bool, usize) {
            clear_left(&self.at("marks"), &self.at("admin")).unwrap();
            let text = fs::read_to_string(self.at("admin/kdamonds/nr_kdamonds")).unwrap();
            (text.trim() == "1", self.at("marks").read_dir().unwrap().count())
        }
    }

    #[test]
    fn the_kdamond_of_a_killed_process_is_turned_off() {
        let fake = Fake::new("on\n", "1\n");
        fake.mark(ENDED, &format!("{}\n", fake.inode()));
        assert_eq!(fake.clear(), (false, 0));
        assert_eq!(fs::read_to_string(fake.at("admin/kdamonds/0/state")).unwrap(), "off");
        // Killed between the first change and the note.
        let fake = Fake::new("off\n", "0\n");
        fake.mark(ENDED, "");
        assert_eq!(fake.clear(), (false, 0));
    }

    #[test]
    fn kdamonds_of_others_stay() {
        // No mark; the mark of a living process; another program's kdamond after a reboot of DAMON.
        let fake = Fake::new("on\n", "1\n");
        assert_eq!(fake.clear(), (true, 0));
        let living = Maker::own(&Proc::default()).unwrap().name();
        fake.mark(&living, &format!("{}\n", fake.inode()));
        assert_eq!(fake.clear(), (true, 1));
        fake.mark(ENDED, &format!("{}\n", fake.inode() + 1));
        assert_eq!(fake.clear(), (true, 1));
        for (state, contexts) in [("on\n", "0\n"), ("off\n", "1\n")] {
            let fake = Fake::new(state, contexts);
            fake.mark(ENDED, "");
            assert_eq!(fake.clear(), (true, 0), "{state}{contexts}");
        }
    }

    #[test]
    fn a_mark_names_its_maker_and_kdamond_and_goes_with_it() {
        let fake = Fake::new("off\n", "0\n");
        let mark = Mark::put(&fake.at("marks")).unwrap();
        mark.note(&fake.at("admin/kdamonds/0")).unwrap();
        let name = Maker::own(&Proc::default()).unwrap().name();
        let path = fake.at("marks").join(name);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", fake.inode()));
        drop(mark);
        assert!(!path.exists());
    }
}
