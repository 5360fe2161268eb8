//! Unmodified programs under QEMU's user emulation, seen by the same plugin: every access of every thread.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::command::missing;
use crate::error::{Context, Error, Kind, Result};
use crate::instrumented::{Files, Outcome, Readers};

/// Threads of a program at a time that are seen.
const THREADS: u32 = 16;
/// Bytes of each thread's ring.
const RING_BYTES: i64 = 16 << 20;

/// What to run, and how.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Parts of the plugin; none: QEMU alone.
    pub parts: Vec<String>,
    /// Rings whose records are kept.
    pub keep: Vec<String>,
    /// What it prints goes nowhere.
    pub quiet: bool,
    /// The plugin; none: what was built with this program.
    pub plugin: Option<PathBuf>,
}

/// A program that runs under QEMU.
#[derive(Debug)]
pub struct Running {
    child: Child,
    readers: Option<Readers>,
    files: Option<Files>,
    begun: Instant,
}

/// What came of it.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// Seconds that it took, QEMU's start included.
    pub seconds: f64,
    /// What the plugin counted and said; None without parts.
    pub outcome: Option<Outcome>,
}

impl Program {
    fn table(&self) -> toml::Table {
        let names = |names: &[String]| {
            toml::Value::from(
                names.iter().map(|name| name.as_str().into()).collect::<Vec<toml::Value>>(),
            )
        };
        let mut table = toml::Table::new();
        table.insert("parts".into(), names(&self.parts));
        table.insert("keep".into(), names(&self.keep));
        table.insert("ring_bytes".into(), RING_BYTES.into());
        if let Some(path) = &self.plugin {
            table.insert("plugin".into(), path.display().to_string().into());
        }
        table
    }

    /// Starts it; what is kept, the log of mappings and `plugin.json` go to `out`.
    ///
    /// # Errors
    /// QEMU or the program is not there, or there is no room for the rings.
    pub fn start(&self, out: &Path) -> Result<Running> {
        fs::create_dir_all(out).at(out.display())?;
        let program = self
            .words
            .first()
            .ok_or_else(|| Error::new(Kind::Usage, "no program", "nothing was named"))?;
        let program = in_path(program)?;
        let mut qemu = Command::new("qemu-x86_64");
        let (mut files, mut readers) = (None, None);
        if !self.parts.is_empty() {
            let made = Files::new(&self.table(), THREADS, &[])?;
            qemu.args(made.qemu_args()?);
            readers = Some(Readers::start(&made, out)?);
            files = Some(made);
        }
        qemu.arg(program).args(&self.words[1..]);
        if self.quiet {
            qemu.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let begun = Instant::now();
        let child = qemu.spawn().map_err(|e| missing("qemu-x86_64", e))?;
        Ok(Running { child, readers, files, begun })
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn run(&self, out: &Path) -> Result<Ended> {
        self.start(out)?.wait(out)
    }
}

impl Running {
    /// Waits for its end, and gathers what was seen.
    ///
    /// # Errors
    /// The counts cannot be read or kept.
    pub fn wait(mut self, out: &Path) -> Result<Ended> {
        let status = self.child.wait().at("qemu-x86_64")?;
        let seconds = self.begun.elapsed().as_secs_f64();
        let outcome = match (self.readers.take(), &self.files) {
            (Some(readers), Some(files)) => {
                let outcome = files.result(&readers.finish())?;
                let _ = fs::copy(files.path("mappings.log"), out.join("mappings.log"));
                let file = File::create(out.join("plugin.json")).at(out.display())?;
                serde_json::to_writer_pretty(file, &outcome)
                    .map_err(std::io::Error::from)
                    .at(out.display())?;
                Some(outcome)
            }
            _ => None,
        };
        Ok(Ended { status, seconds, outcome })
    }
}

/// Where a program lies: QEMU does not look into PATH.
fn in_path(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|dir| dir.join(program));
    let mut found = std::iter::once(PathBuf::from(program))
        .filter(|path| path.components().count() > 1)
        .chain(places);
    found.find(|path| path.is_file()).ok_or_else(|| {
        Error::new(Kind::Environment, program.to_owned(), "not found in PATH")
            .remedy("install it, or give its path")
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_or_where_they_are_said_to_be() {
        assert!(in_path("sh").unwrap().is_absolute());
        assert_eq!(in_path("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert!(in_path("no-such-program").unwrap_err().to_string().contains("PATH"));
    }

    #[test]
    fn nothing_named_is_wrong_use() {
        let out = tempfile::tempdir().unwrap();
        assert_eq!(Program::default().run(out.path()).unwrap_err().kind, Kind::Usage);
    }
}
