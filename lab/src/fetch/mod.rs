//! Fetches a Debian kernel and its headers without installing them: apt downloads and dpkg-deb
//! unpacks below the lab's cache; the rest of the system is not changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{capture, missing, output};
use crate::error::{Context, Error, Kind, Result};
use crate::kernels::Kernel;
use crate::paths;
use crate::progress::say;

/// Subsystems without devices in our virtual machines: 80 % of the package.
const LEFT_OUT: &[&str] = &[
    "*/lib/modules/*/kernel/drivers/gpu",
    "*/lib/modules/*/kernel/drivers/media",
    "*/lib/modules/*/kernel/drivers/net",
    "*/lib/modules/*/kernel/drivers/infiniband",
    "*/lib/modules/*/kernel/drivers/staging",
    "*/lib/modules/*/kernel/drivers/iio",
    "*/lib/modules/*/kernel/drivers/hid",
    "*/lib/modules/*/kernel/drivers/input",
    "*/lib/modules/*/kernel/drivers/hwmon",
    "*/lib/modules/*/kernel/drivers/usb",
    "*/lib/modules/*/kernel/drivers/scsi",
    "*/lib/modules/*/kernel/sound",
    "./usr/share/doc",
    // If vmlinux is present, kbuild requires pahole, to add BTF to our modules.
    "./usr/src/linux-headers-*/vmlinux",
];

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
    let apt = Apt::of(kernel)?;
    download_and_unpack(&apt, &resolved).or_else(|_| {
        // The package lists are outdated: update them and retry once.
        apt.update()?;
        download_and_unpack(&apt, &resolve(kernel)?)
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
        kernels_dir().join(&self.version)
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
    let apt = Apt::of(kernel)?;
    let image = apt.dependency(&kernel.image, "linux-image-")?;
    let release = image.trim_start_matches("linux-image-").to_owned();
    let version = apt.version_of(&image)?;
    // Newer kernels are split into several packages, which the image's package depends on.
    let mut packages: Vec<String> = ["linux-base-", "linux-binary-", "linux-modules-"]
        .iter()
        .filter_map(|prefix| apt.dependency(&image, prefix).ok())
        .collect();
    packages.push(image);
    if let Some(headers) = &kernel.headers {
        let headers = apt.dependency(headers, "linux-headers-")?;
        packages.push(apt.dependency(&headers, "linux-headers-")?);
        packages.push(apt.dependency(&headers, "linux-kbuild-")?);
        packages.push(headers);
    }
    Ok(Resolved { name: kernel.name.clone(), version, packages, release })
}

/// apt on this machine's own archive, or on another suite of it with package lists of the lab's
/// own.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn of(kernel: &Kernel) -> Result<Self> {
        let Some(suite) = &kernel.suite else { return Ok(Self { options: Vec::new() }) };
        let dir = paths::cache().join("apt").join(suite);
        let apt = Self { options: apart(&dir) };
        if !dir.join("sources.list").exists() {
            for part in ["lists/partial", "cache/archives/partial"] {
                fs::create_dir_all(dir.join(part)).at(dir.display())?;
            }
            let line = format!("deb {} {suite} main\n", archive()?);
            fs::write(dir.join("sources.list"), line).at(dir.display())?;
            apt.update()?;
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    fn update(&self) -> Result<()> {
        run(self.command("apt-get").args(["-q", "-o", "DPkg::Lock::Timeout=120", "update"]))
    }

    fn dependency(&self, package: &str, prefix: &str) -> Result<String> {
        let asked = ["depends", "--no-recommends", package];
        let text = capture(self.command("apt-cache").args(asked))?;
        first_dependency(&text, prefix).ok_or_else(|| unknown(package))
    }

    fn version_of(&self, package: &str) -> Result<String> {
        let text = capture(self.command("apt-cache").args(["policy", package]))?;
        let candidate = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        candidate.map(str::to_owned).ok_or_else(|| unknown(package))
    }
}

/// Options that make apt keep all its files below `dir`, separate from this machine's
/// configuration.
fn apart(dir: &Path) -> Vec<String> {
    let option = |key: &str, value: String| ["-o".to_owned(), format!("{key}={value}")];
    let below = |name: &str| dir.join(name).display().to_string();
    [
        option("Dir::Etc::sourcelist", below("sources.list")),
        option("Dir::Etc::sourceparts", "-".to_owned()),
        option("Dir::State::lists", below("lists")),
        option("Dir::Cache", below("cache")),
    ]
    .concat()
}

/// URI of the archive of this machine's own packages.
fn archive() -> Result<String> {
    let asked = ["indextargets", "--format", "$(COMPONENT) $(REPO_URI)"];
    let text = capture(Command::new("apt-get").args(asked))?;
    let first = text.lines().find_map(|line| line.strip_prefix("main "));
    first.map(str::to_owned).ok_or_else(|| unknown("main"))
}

/// The first package with prefix `prefix` in the `Depends:` lines of apt-cache's output.
fn first_dependency(answer: &str, prefix: &str) -> Option<String> {
    let depends = answer
        .lines()
        .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
    depends.filter(|name| name.starts_with(prefix)).map(str::to_owned).next()
}

fn unknown(package: &str) -> Error {
    Error::new(Kind::Environment, package, "apt does not know this package")
        .remedy("run `apt-get update`; the lab needs Debian 12's archives, security included")
}

/// The complete kernel from an earlier fetch, used if apt cannot resolve the name.
fn cached(kernel: &Kernel) -> Option<Resolved> {
    let text = fs::read_to_string(kernels_dir().join(format!("{}.resolved", kernel.name))).ok()?;
    let (version, release) = text.trim().split_once(' ')?;
    let (version, release) = (version.to_owned(), release.to_owned());
    Some(Resolved { name: kernel.name.clone(), version, packages: Vec::new(), release })
        .filter(Resolved::complete)
}

fn download_and_unpack(apt: &Apt, resolved: &Resolved) -> Result<Tree> {
    say(format!("kernel {}: fetching {}", resolved.name, resolved.release));
    // Unpack into a temporary directory and rename it, so that an aborted fetch never looks
    // complete.
    let aside = kernels_dir().join(format!(".{}.{}", resolved.version, std::process::id()));
    let debs = aside.join("debs");
    fs::create_dir_all(&debs).at(debs.display())?;
    run(apt
        .command("apt-get")
        .args(["-q", "download"])
        .args(&resolved.packages)
        .current_dir(&debs))?;
    for entry in fs::read_dir(&debs).at(debs.display())?.flatten() {
        unpack(&entry.path(), &aside)?;
    }
    fs::remove_dir_all(&debs).at(debs.display())?;
    settle(&aside, &resolved.release)?;
    relocate(&aside, &resolved.release)?;
    run(Command::new("depmod").arg("-b").arg(&aside).arg(&resolved.release))?;
    finish(resolved, &aside)?;
    say(format!("kernel {}: ready", resolved.name));
    Ok(resolved.tree())
}

fn unpack(deb: &Path, dir: &Path) -> Result<()> {
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| missing("dpkg-deb", e))?;
    let tar = reader
        .stdout
        .take()
        .ok_or_else(|| Error::new(Kind::Environment, "dpkg-deb", "no output"))?;
    let excludes = LEFT_OUT.iter().map(|pattern| format!("--exclude={pattern}"));
    let status =
        Command::new("tar").arg("-x").arg("-C").arg(dir).args(excludes).stdin(tar).status();
    let reader = reader.wait().at("dpkg-deb")?;
    if status.at("tar")?.success() && reader.success() {
        return Ok(());
    }
    Err(Error::new(Kind::Environment, deb.display().to_string(), "cannot be unpacked")
        .remedy("is the disk full?"))
}

/// Newer packages keep modules below /usr, together with the image: moves both to the traditional
/// places.
fn settle(dir: &Path, release: &str) -> Result<()> {
    let merged = dir.join("usr/lib/modules").join(release);
    if !merged.exists() {
        return Ok(());
    }
    let move_to = |from: &Path, to: &Path| -> Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(dir)).at(to.display())?;
        fs::rename(from, to).at(from.display())
    };
    for name in ["vmlinuz", "config"] {
        move_to(&merged.join(name), &dir.join("boot").join(format!("{name}-{release}")))?;
    }
    move_to(&merged, &dir.join("lib/modules").join(release))
}

/// The headers include their common part by its installed path: changes that to the unpacked path.
fn relocate(dir: &Path, release: &str) -> Result<()> {
    let makefile = dir.join("usr/src").join(format!("linux-headers-{release}")).join("Makefile");
    if !makefile.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(&makefile).at(makefile.display())?;
    fs::write(&makefile, relocated(&text)).at(makefile.display())
}

fn relocated(makefile: &str) -> String {
    makefile.replace("include /usr/src/", "include $(dir $(lastword $(MAKEFILE_LIST)))../")
}

fn finish(resolved: &Resolved, aside: &Path) -> Result<()> {
    fs::write(aside.join("complete"), "").at(aside.display())?;
    let dir = resolved.dir();
    if dir.exists() {
        fs::remove_dir_all(&dir).at(dir.display())?;
    }
    fs::rename(aside, &dir).at(dir.display())?;
    let note = kernels_dir().join(format!("{}.resolved", resolved.name));
    fs::write(&note, format!("{} {}\n", resolved.version, resolved.release)).at(note.display())
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_dependency_of_the_prefix_counts_alternatives_included() {
        let answer = "linux-headers-6.12\n  Depends: linux-base\n |Depends: linux-headers-6.12-common\n  Depends: linux-kbuild-6.12\n";
        assert_eq!(
            first_dependency(answer, "linux-headers-").unwrap(),
            "linux-headers-6.12-common"
        );
        assert_eq!(first_dependency(answer, "linux-kbuild-").unwrap(), "linux-kbuild-6.12");
        assert_eq!(first_dependency(answer, "linux-image-"), None);
    }

    #[test]
    fn headers_find_their_common_part_next_to_them() {
        assert_eq!(
            relocated("include /usr/src/linux-headers-6.1.0-1-common/Makefile\n"),
            "include $(dir $(lastword $(MAKEFILE_LIST)))../linux-headers-6.1.0-1-common/Makefile\n"
        );
    }
}
