//! apt on this machine's own archive, or on another suite of it with package lists of the lab's
//! own: no file of this machine changes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{capture, output};
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub(super) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// For a suite of the archive; None: as this machine is configured.
    pub(super) fn of(suite: Option<&str>) -> Result<Self> {
        let Some(suite) = suite else { return Ok(Self { options: Vec::new() }) };
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

    pub(super) fn update(&self) -> Result<()> {
        let mut apt = self.command("apt-get");
        output(apt.args(["-q", "-o", "DPkg::Lock::Timeout=120", "update"])).map(drop)
    }

    /// The first package with prefix `prefix` that a package depends on.
    pub(super) fn dependency(&self, package: &str, prefix: &str) -> Result<String> {
        let asked = ["depends", "--no-recommends", package];
        let text = capture(self.command("apt-cache").args(asked))?;
        first_dependency(&text, prefix).ok_or_else(|| unknown(package))
    }

    pub(super) fn version_of(&self, package: &str) -> Result<String> {
        let text = capture(self.command("apt-cache").args(["policy", package]))?;
        let candidate = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        candidate.map(str::to_owned).ok_or_else(|| unknown(package))
    }

    /// Downloads packages into a directory.
    pub(super) fn download(&self, packages: &[String], dir: &Path) -> Result<()> {
        let mut apt = self.command("apt-get");
        output(apt.args(["-q", "download"]).args(packages).current_dir(dir)).map(drop)
    }
}

/// Downloads a file by its path in the archive, as apt would: with its proxies and credentials.
pub(super) fn download_file(path: &str, target: &Path) -> Result<()> {
    let uri = format!("{}{path}", archive()?);
    let mut helper = Command::new("/usr/lib/apt/apt-helper");
    output(helper.args(["download-file", &uri]).arg(target)).map(drop)
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

/// URI of the archive of this machine's own packages, not of its security updates.
fn archive() -> Result<String> {
    let asked = ["indextargets", "--format", "$(COMPONENT) $(REPO_URI)"];
    let text = capture(Command::new("apt-get").args(asked))?;
    archive_in(&text).map(str::to_owned).ok_or_else(|| unknown("main"))
}

fn archive_in(targets: &str) -> Option<&str> {
    let mut all = targets.lines().filter_map(|line| line.strip_prefix("main "));
    all.find(|uri| !uri.contains("security"))
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
    fn other_suites_are_of_the_archive_without_security_updates() {
        let targets =
            "contrib http://a/debian/\nmain http://a/debian-security/\nmain http://a/debian/\n";
        assert_eq!(archive_in(targets), Some("http://a/debian/"));
    }
}
