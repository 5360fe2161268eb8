//! Input of the checks: files below a root directory, and a few system calls.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tierscope_core::{Error, LevelSet};

use crate::abi;
use crate::module::Module;
use crate::proc::Proc;

/// Facts reported by the kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFacts {
    /// Facts of the running kernel.
    pub info: abi::Info,
    /// Levels at which the self-test saw hardware set ACCESSED.
    pub proven: LevelSet,
}

/// Facts about the system that no file contains.
pub trait System {
    /// Opens the module and attaches to this process, which runs the self-test.
    ///
    /// # Errors
    /// The reason, with cause and remedy.
    fn module(&self) -> Result<ModuleFacts, Error>;

    /// Tests whether the kernel implements a system call, with invalid arguments.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM`; any other result means that the call exists.
    fn system_call(&self, number: i64) -> io::Result<()>;
}

/// The running system.
#[derive(Clone, Copy, Debug)]
pub struct Live;

impl System for Live {
    fn module(&self) -> Result<ModuleFacts, Error> {
        let module = Module::open()?;
        let attachment = module.attach(std::process::id())?;
        Ok(ModuleFacts { info: *module.info(), proven: attachment.proven() })
    }

    fn system_call(&self, number: i64) -> io::Result<()> {
        const NONSENSE: i64 = -1;
        // SAFETY: none of the tested calls reads or writes memory at these arguments: a descriptor
        // of -1, undefined flags, a count that exceeds any limit.
        let answer = unsafe { libc::syscall(number, NONSENSE, NONSENSE, 0, NONSENSE, 0, NONSENSE) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM) if answer < 0 => Err(error),
            _ => Ok(()),
        }
    }
}

/// The machine as the checks see it: files below a root directory, and a few system calls.
pub struct Scene {
    root: PathBuf,
    pub(super) system: Box<dyn System>,
}

impl Scene {
    /// The running machine.
    #[must_use]
    pub fn here() -> Self {
        Self::at("/", Box::new(Live))
    }

    /// A machine made of the files below `root`, and `system` for the other facts.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>, system: Box<dyn System>) -> Self {
        Self { root: root.into(), system }
    }

    /// A path below the root.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The procfs below the root.
    pub(super) fn proc(&self) -> Proc {
        Proc::at(self.path("/proc"))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// A file's text, trimmed; `None` if it is missing or cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Sorted names in a directory; empty if it is missing.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Target of a symbolic link.
    pub(super) fn link(&self, path: &str) -> Option<PathBuf> {
        fs::read_link(self.path(path)).ok()
    }

    /// The word in brackets of a file like `always [madvise] never`.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// The value of `key` in a file of lines `key: value`.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.text(path)?;
        let value = |line: &str| {
            Some(line.split_once(':').filter(|(k, _)| k.trim() == key)?.1.trim().to_owned())
        };
        text.lines().find_map(value)
    }

    /// Whether the kernel was built with `symbol` (y or m); `None` if its configuration is not
    /// available.
    pub(super) fn configured(&self, symbol: &str) -> Option<bool> {
        let release = self.text("/proc/sys/kernel/osrelease")?;
        let text = self.text(&format!("/boot/config-{release}"))?;
        let built = |line: &str| {
            let value = line.strip_prefix(symbol)?.strip_prefix('=')?;
            Some(value == "y" || value == "m")
        };
        Some(text.lines().find_map(built).unwrap_or(false))
    }

    /// Why a kernel feature is missing: not built in, or not enabled.
    pub(super) fn lack(&self, symbol: &str) -> String {
        match self.configured(symbol) {
            Some(true) => format!("the kernel has {symbol}, but it is not turned on"),
            Some(false) => format!("the kernel was built without {symbol}"),
            None => "this kernel does not have it".into(),
        }
    }

    /// Whether the path is on a file system that is read-only here, as sysfs is in a service.
    pub(super) fn is_read_only(&self, path: &str) -> bool {
        let access = rustix::fs::access(self.path(path), rustix::fs::Access::WRITE_OK);
        access == Err(rustix::io::Errno::ROFS)
    }

    /// Whether the path exists but cannot be read by this user.
    pub(super) fn is_closed(&self, path: &str) -> bool {
        let denied = |e: io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        let path = self.path(path);
        fs::metadata(&path).is_err_and(denied)
            || (path.is_file() && fs::File::open(path).is_err_and(denied))
    }
}

/// Path of a file in /proc of process `pid`.
pub(super) fn of(pid: u32, file: &str) -> String {
    Path::new("/proc").join(pid.to_string()).join(file).display().to_string()
}

#[cfg(test)]
pub(in crate::doctor) mod tests {
    use super::*;
    use crate::doctor::{Answer, Verdict, machine, process};
    use tierscope_core::ErrorKind;

    /// A system without the module and without any system call, unless configured otherwise.
    #[derive(Clone, Default)]
    pub(in crate::doctor) struct Fake {
        pub(in crate::doctor) module: Option<ModuleFacts>,
        pub(in crate::doctor) calls: bool,
    }

    impl System for Fake {
        fn module(&self) -> Result<ModuleFacts, Error> {
            let missing = || {
                Error::new(ErrorKind::Missing, "cannot open /dev/tierscope")
                    .cause("the module is not loaded")
                    .remedy("insmod kmod/tierscope.ko")
            };
            self.module.clone().ok_or_else(missing)
        }

        fn system_call(&self, _: i64) -> io::Result<()> {
            if self.calls { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOSYS)) }
        }
    }

    /// A temporary root with the given files (path, text). A text that begins with `-> ` makes a
    /// symbolic link.
    pub(in crate::doctor) struct Tree {
        dir: tempfile::TempDir,
        pub(in crate::doctor) system: Fake,
    }

    impl Tree {
        pub(in crate::doctor) fn new(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = dir.path().join(path.trim_start_matches('/'));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                match text.strip_prefix("-> ") {
                    Some(to) => std::os::unix::fs::symlink(to, path).unwrap(),
                    None => fs::write(path, text).unwrap(),
                }
            }
            Self { dir, system: Fake::default() }
        }

        pub(in crate::doctor) fn scene(&self) -> Scene {
            Scene::at(self.dir.path(), Box::new(self.system.clone()))
        }

        fn answer(answers: Vec<Answer>, id: &str) -> (Verdict, String) {
            let answer = answers.into_iter().find(|answer| answer.id == id);
            let finding = answer.unwrap_or_else(|| panic!("no check {id}")).finding;
            (finding.verdict, format!("{}; {}", finding.found, finding.remedy))
        }

        /// Verdict and text of check `id` for the machine.
        pub(in crate::doctor) fn machine(&self, id: &str) -> (Verdict, String) {
            Self::answer(machine(&self.scene()), id)
        }

        /// Verdict and text of check `id` for process 42.
        pub(in crate::doctor) fn process(&self, id: &str) -> (Verdict, String) {
            Self::answer(process(&self.scene(), 42), id)
        }
    }

    /// Test cases `(check, files, verdict, a part of the text)`.
    pub(in crate::doctor) type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Verdict, &'a str);

    pub(in crate::doctor) fn judge(cases: &[Case<'_>], of: fn(&Tree, &str) -> (Verdict, String)) {
        for (id, files, verdict, part) in cases {
            let (found, said) = of(&Tree::new(files), id);
            assert_eq!(found, *verdict, "{id} with {files:?} says: {said}");
            assert!(said.contains(part), "{id} with {files:?} says: {said}");
        }
    }

    #[test]
    fn kernel_files_are_parsed() {
        let tree = Tree::new(&[
            ("/a", "always [madvise] never\n"),
            ("/b", "Name:\tx\nVmLck:\t  12 kB\n"),
            ("/proc/sys/kernel/osrelease", "6.1.0\n"),
            ("/boot/config-6.1.0", "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_AB=m\n"),
        ]);
        let scene = tree.scene();
        assert_eq!(scene.chosen("/a").as_deref(), Some("madvise"));
        assert_eq!(scene.field("/b", "VmLck").as_deref(), Some("12 kB"));
        assert_eq!(scene.configured("CONFIG_A"), Some(true));
        assert_eq!(scene.configured("CONFIG_B"), Some(false));
        assert_eq!(scene.configured("CONFIG_AB"), Some(true));
        assert_eq!(Tree::new(&[]).scene().configured("CONFIG_A"), None);
    }

    #[test]
    fn the_running_kernel_is_read() {
        assert!(Live.system_call(libc::SYS_move_pages).is_ok());
        assert!(Live.system_call(100_000).is_err());
    }
}
