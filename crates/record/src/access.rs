//! Access to recordings: they show the whole layout of an address space, and names of files.

use std::fs::File;
use std::io;

use rustix::fs::{Gid, Mode, fchmod, fchown};

/// Access to the files of a recording, whatever the umask: the owner's alone, or also a group's,
/// which may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    group: Option<u32>,
}

impl Access {
    /// Access for the owner, and for the group of that number.
    #[must_use]
    pub fn shared_with(group: u32) -> Self {
        Self { group: Some(group) }
    }

    /// Whether a group has access.
    pub(crate) fn is_shared(self) -> bool {
        self.group.is_some()
    }

    /// Sets group and mode of a directory.
    pub(crate) fn of_dir(self, dir: &File) -> io::Result<()> {
        self.set(dir, Mode::RWXU, Mode::RGRP | Mode::XGRP)
    }

    /// Sets group and mode of a file.
    pub(crate) fn of_file(self, file: &File) -> io::Result<()> {
        self.set(file, Mode::RUSR | Mode::WUSR, Mode::RGRP)
    }

    fn set(self, file: &File, owner: Mode, group: Mode) -> io::Result<()> {
        let mode = match self.group {
            None => owner,
            Some(gid) => {
                fchown(file, None, Some(Gid::from_raw(gid)))?;
                owner | group
            }
        };
        Ok(fchmod(file, mode)?)
    }
}
