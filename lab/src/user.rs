//! Unmodified programs under QEMU's user emulation with the plugin, which sees every access of
//! every thread.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::command::missing;
use crate::error::{Context, Error, Kind, Result};
use crate::instrumented::{Files, Outcome, Readers};

/// Maximum number of concurrent threads that the plugin records.
const THREADS: u32 = 16;
/// Size of each thread's ring in bytes.
const RING_BYTES: i64 = 16 << 20;

/// A program to run, and the options of the run.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Parts of the plugin; none: QEMU alone.
    pub parts: Vec<String>,
    /// Names of the rings whose records are kept.
    pub keep: Vec<String>,
    /// Discard the program's output.
    pub quiet: bool,
    /// The plugin to load; None: the one built with this program.
    pub plugin: Option<PathBuf>,
}

/// A program that is running under QEMU.
#[derive(Debug)]
pub struct Running {
    child: Child,
    readers: Option<Readers>,
    files: Option<Files>,
    begun: Instant,
}

/// Result of a program's run.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Seconds that the run took, including the start of QEMU.
    pub seconds: f64,
    /// Counts and messages of the plugin; None without parts.
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

    /// Starts the program; kept records, the log of mappings and `plugin.json` are written to
    /// `out`.
    ///
    /// # Errors
    /// QEMU or the program is missing, or there is no space for the rings.
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

    /// Runs the program to its end.
    ///
    /// # Errors
    /// Same errors as [`Program::start`].
    pub fn run(&self, out: &Path) -> Result<Ended> {
        self.start(out)?.wait(out)
    }
}

impl Running {
    /// Waits for the program's end, and collects the recorded data.
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

/// Path of a program, searched in PATH because QEMU does not.
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
