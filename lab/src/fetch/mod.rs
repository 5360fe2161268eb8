//! Fetches a Debian kernel and its headers without installing them: apt downloads and dpkg-deb
//! unpacks below the lab's cache; the rest of the system is not changed. Or builds one
//! (`built.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use apt::Apt;
use unpack::{relocate, settle, unpack_all};

use crate::command::output;
use crate::error::{Context, Result};
use crate::kernels::{Kernel, Source};
use crate::paths;
use crate::progress::say;

mod apt;
mod built;
mod pool;
mod tools;
mod unpack;

/// An unpacked kernel in the lab's cache.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Root directory of the unpacked files.
    pub dir: PathBuf,
    /// The release, as printed by `uname -r`.
    pub release: String,
}

impl Tree {
    /// Path of the bootable image.
    pub fn image(&self) -> PathBuf {
        self.dir.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// Path of the kernel's configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.join("boot").join(format!("config-{}", self.release))
    }

    /// Directory of the kernel's modules.
    pub fn modules(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.release)
    }

    /// Build directory for external modules (`make -C`).
    pub fn build(&self) -> PathBuf {
        self.dir.join("usr/src").join(format!("linux-headers-{}", self.release))
    }
}

/// The most recently fetched unpacked kernel; if there is none, fetches the newest.
///
/// # Errors
/// Same errors as [`fetch`].
pub fn tree(kernel: &Kernel) -> Result<Tree> {
    match cached(kernel) {
        Some(resolved) => Ok(resolved.tree()),
        None => fetch(kernel),
    }
}

/// The newest kernel known to apt, downloaded unless it is in the cache.
///
/// # Errors
/// The kernel is not in the cache and cannot be downloaded; the error names the package.
pub fn fetch(kernel: &Kernel) -> Result<Tree> {
    let resolved = resolve(kernel).or_else(|e| cached(kernel).ok_or(e))?;
    if resolved.complete() {
        return Ok(resolved.tree());
    }
    if let Source::Built(built) = &kernel.source {
        return built::build(built, &resolved);
    }
    download_and_unpack(kernel, &resolved).or_else(|error| {
        let Source::Lists { .. } = kernel.source else { return Err(error) };
        // The package lists are outdated: update them and retry once.
        Apt::of(kernel.suite())?.update()?;
        download_and_unpack(kernel, &resolve(kernel)?)
    })
}

/// Packages and versions that a kernel name currently resolves to.
#[derive(Debug, PartialEq, Eq)]
struct Resolved {
    name: String,
    version: String,
    packages: Vec<String>,
    release: String,
}

impl Resolved {
    fn dir(&self) -> PathBuf {
        kernels_dir().join(format!("{}_{}", self.release, self.version))
    }

    fn complete(&self) -> bool {
        self.dir().join("complete").exists()
    }

    fn tree(&self) -> Tree {
        Tree { dir: self.dir(), release: self.release.clone() }
    }
}

fn kernels_dir() -> PathBuf {
    paths::cache().join("kernels")
}

fn resolve(kernel: &Kernel) -> Result<Resolved> {
    let name = kernel.name.clone();
    let (image, headers) = match &kernel.source {
        Source::Built(built) => return built::resolve(kernel, built),
        Source::Lists { image, headers, .. } => (image, headers),
        Source::Pool(pinned) => {
            let (version, release) = (pinned.version.clone(), pinned.release.clone() + "-amd64");
            return Ok(Resolved { name, version, release, packages: Vec::new() });
        }
    };
    let apt = Apt::of(kernel.suite())?;
    let image = apt.dependency(image, "linux-image-")?;
    let release = image.trim_start_matches("linux-image-").to_owned();
    let version = apt.version_of(&image)?;
    // Newer kernels are split into several packages, which the image's package depends on.
    let mut packages: Vec<String> = ["linux-base-", "linux-binary-", "linux-modules-"]
        .iter()
        .filter_map(|prefix| apt.dependency(&image, prefix).ok())
        .collect();
    packages.push(image);
    let headers = apt.dependency(headers, "linux-headers-")?;
    packages.push(apt.dependency(&headers, "linux-headers-")?);
    packages.push(apt.dependency(&headers, "linux-kbuild-")?);
    packages.push(headers);
    Ok(Resolved { name, version, packages, release })
}

/// The complete kernel from an earlier fetch, used if apt cannot resolve the name.
fn cached(kernel: &Kernel) -> Option<Resolved> {
    let text = fs::read_to_string(kernels_dir().join(format!("{}.resolved", kernel.name))).ok()?;
    let (version, release) = text.trim().split_once(' ')?;
    let (version, release) = (version.to_owned(), release.to_owned());
    if let Source::Built(built) = &kernel.source
        && !built::is_current(built, &version)
    {
        return None;
    }
    Some(Resolved { name: kernel.name.clone(), version, packages: Vec::new(), release })
        .filter(Resolved::complete)
}

fn download_and_unpack(kernel: &Kernel, resolved: &Resolved) -> Result<Tree> {
    say(format!("kernel {}: fetching {}", resolved.name, resolved.release));
    // Unpack into a temporary directory and rename it, so that an aborted fetch never looks
    // complete.
    let aside = kernels_dir().join(format!(".{}.{}", resolved.version, std::process::id()));
    let debs = aside.join("debs");
    fs::create_dir_all(&debs).at(debs.display())?;
    match &kernel.source {
        Source::Lists { .. } => Apt::of(kernel.suite())?.download(&resolved.packages, &debs)?,
        Source::Pool(pinned) => pool::download(pinned, &debs)?,
        Source::Built(_) => {}
    }
    unpack_all(&debs, &aside)?;
    fs::remove_dir_all(&debs).at(debs.display())?;
    settle(&aside, &resolved.release)?;
    relocate(&aside, &resolved.release)?;
    if let Some(suite) = &kernel.libraries {
        tools::adapt(&aside, &resolved.release, suite)?;
    }
    output(Command::new("depmod").arg("-b").arg(&aside).arg(&resolved.release))?;
    finish(resolved, &aside)?;
    say(format!("kernel {}: ready", resolved.name));
    Ok(resolved.tree())
}

fn finish(resolved: &Resolved, aside: &Path) -> Result<()> {
    fs::write(aside.join("complete"), "").at(aside.display())?;
    let dir = resolved.dir();
    if dir != aside && dir.exists() {
        fs::remove_dir_all(&dir).at(dir.display())?;
    }
    fs::rename(aside, &dir).at(dir.display())?;
    let note = kernels_dir().join(format!("{}.resolved", resolved.name));
    fs::write(&note, format!("{} {}\n", resolved.version, resolved.release)).at(note.display())
}

/// Removes incomplete kernels left by killed processes of the lab. Called once per start.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(kernels_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix('.').and_then(|n| n.rsplit('.').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a process with this id exists, of this user or root.
pub fn alive(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|m| m.ino() != 0)
}
