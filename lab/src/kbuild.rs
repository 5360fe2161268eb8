//! Builds our kernel modules for an unpacked kernel, with warnings as errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::missing;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::Tree;
use crate::paths;

/// Our modules: name and source directory.
const OURS: &[(&str, &str)] = &[
    ("tierscope", "kmod"),
    ("tierscope_flusher", "lab/kmod/flusher"),
    ("tierscope_filler", "lab/kmod/filler"),
    ("tierscope_device", "lab/kmod/device"),
];

/// Built for kernels that are built here, and refer to what they check.
const FAULTS: (&str, &str) = ("tierscope_faults", "lab/kmod/faults");

/// Names of all modules that are built for every kernel, in loading order.
pub fn names() -> Vec<&'static str> {
    OURS.iter().map(|(name, _)| *name).collect()
}

/// Whether a scenario may name the module.
pub fn is_ours(name: &str) -> bool {
    source_of(name).is_ok()
}

/// Builds module `name` for `kernel`, checking every file with sparse if `sparse`; returns the path
/// of the .ko file. Where Debian 12's sparse does not understand the headers it is left out.
///
/// The source is mirrored into the cache first: kbuild writes into the source directory, where
/// builds for two kernels would overwrite each other.
///
/// # Errors
/// Unknown module, or a compiler error or warning; these are shown on stderr.
pub fn build(name: &str, kernel: &Tree, sparse: bool) -> Result<PathBuf> {
    let source = paths::root().join(source_of(name)?);
    let dir = paths::cache().join("modules").join(&kernel.release).join(name);
    mirror(&source, &dir)?;
    let sparse = sparse && sparse_reads(&kernel.release);
    if sparse {
        // Sparse runs only when a file is compiled: recompile all of them.
        make(&dir, kernel, &["clean"])?;
    }
    make(
        &dir,
        kernel,
        if sparse { &["C=1", "CF=-Wsparse-error", "modules"] } else { &["modules"] },
    )?;
    let built = dir.join(format!("{name}.ko"));
    match built.exists() {
        true => Ok(built),
        false => Err(Error::new(Kind::Job, format!("module {name}"), "the build made no .ko file")),
    }
}

/// Whether Debian 12's sparse understands the headers: since v6.16 they use `__typeof_unqual__`,
/// and in those of PREEMPT_RT before v6.12 `spin_lock` has no annotation of the lock that it takes.
fn sparse_reads(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next(), numbers.next());
    let annotated = !release.contains("-rt-") || version >= (Some(6), Some(12));
    annotated && version < (Some(6), Some(16))
}

fn source_of(name: &str) -> Result<&'static str> {
    let mut all = OURS.iter().chain([&FAULTS]);
    all.find(|(ours, _)| *ours == name).map(|(_, dir)| *dir).ok_or_else(|| {
        Error::new(Kind::Usage, format!("module {name}"), "not one of ours")
            .remedy(format!("one of: {}", names().join(", ")))
    })
}

fn make(dir: &Path, kernel: &Tree, arguments: &[&str]) -> Result<()> {
    let output = Command::new("make")
        .args(["--no-print-directory", "-s", "-j2", "-C"])
        .arg(kernel.build())
        .arg(format!("M={}", dir.display()))
        .args(["KCFLAGS=-Wall -Werror", "KBUILD_MODPOST_WARN="])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| missing("make", e))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.lines().filter(|line| !is_chatter(line)).collect::<Vec<_>>();
    text.iter().for_each(|line| eprintln!("{line}"));
    if output.status.success() && !text.iter().any(|line| line.contains("warning:")) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Job,
        format!("module in {}", dir.display()),
        format!("does not build for {}", kernel.release),
    ))
}

/// Whether the line is output that kbuild prints for every module built outside of the kernel tree.
fn is_chatter(line: &str) -> bool {
    line.contains("the compiler differs from the one used to build the kernel")
        || line.starts_with("  The kernel was built by:")
        || line.starts_with("  You are using:")
        || line.contains("pahole version differs from the one used to build the kernel")
        || line.starts_with("  The kernel was built with:")
        || line.contains("Skipping BTF generation")
}

/// Copies the sources of `from` to `to`, leaving unchanged files alone, so that kbuild rebuilds
/// only changed ones.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).at(to.display())?;
    for entry in fs::read_dir(from).at(from.display())?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            mirror(&source, &target)?;
        } else if is_source(&source) {
            copy_if_changed(&source, &target)?;
        }
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let built = name.starts_with('.') || name.ends_with(".mod.c");
    let ends = |e: &str| name.ends_with(e);
    !built && (ends(".c") || ends(".h") || ends(".S") || name == "Makefile" || name == "Kbuild")
}

fn copy_if_changed(source: &Path, target: &Path) -> Result<()> {
    let new = fs::read(source).at(source.display())?;
    if fs::read(target).is_ok_and(|old| old == new) {
        return Ok(());
    }
    fs::write(target, new).at(target.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_are_mirrored_and_unchanged_files_keep_their_time() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["main.c", "main.mod.c", "main.o", "Kbuild", ".main.o.cmd"] {
            fs::write(from.path().join(name), name).unwrap();
        }
        mirror(from.path(), to.path()).unwrap();
        let time = || fs::metadata(to.path().join("main.c")).unwrap().modified().unwrap();
        let first = time();
        mirror(from.path(), to.path()).unwrap();
        assert_eq!(time(), first);
        let mut names: Vec<_> =
            fs::read_dir(to.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["Kbuild", "main.c"]);
    }

    #[test]
    fn sparse_reads_headers_before_6_16() {
        let reads = ["6.1.0-56-amd64", "6.12.117+deb12-amd64", "6.12.117+deb12-rt-amd64"];
        assert_eq!(reads.map(sparse_reads), [true; 3]);
        let not = ["6.1.0-56-rt-amd64", "6.16.12+deb13-amd64", "7.3-amd64"];
        assert_eq!(not.map(sparse_reads), [false; 3]);
    }

    #[test]
    fn a_foreign_module_is_refused() {
        assert!(
            source_of("nvidia")
                .unwrap_err()
                .to_string()
                .contains("one of: tierscope, tierscope_flusher")
        );
    }
}
