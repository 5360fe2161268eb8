//! Unpacks a kernel's packages, and makes them usable from where they were unpacked.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::command::missing;
use crate::error::{Context, Error, Kind, Result};

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

/// Unpacks all packages of a directory.
pub(super) fn unpack_all(debs: &Path, dir: &Path) -> Result<()> {
    for entry in fs::read_dir(debs).at(debs.display())?.flatten() {
        unpack(&entry.path(), dir, LEFT_OUT)?;
    }
    Ok(())
}

/// Unpacks a package, without the paths that match the patterns of `left_out`.
pub(super) fn unpack(deb: &Path, dir: &Path, left_out: &[&str]) -> Result<()> {
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
    let excludes = left_out.iter().map(|pattern| format!("--exclude={pattern}"));
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
pub(super) fn settle(dir: &Path, release: &str) -> Result<()> {
    let merged = dir.join("usr/lib/modules").join(release);
    if !merged.exists() {
        return Ok(());
    }
    let move_to = |from: &Path, to: &Path| -> Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(dir)).at(to.display())?;
        fs::rename(from, to).at(from.display())
    };
    // Some of them still keep the image at its traditional place.
    for name in ["vmlinuz", "config"].into_iter().filter(|name| merged.join(name).exists()) {
        move_to(&merged.join(name), &dir.join("boot").join(format!("{name}-{release}")))?;
    }
    move_to(&merged, &dir.join("lib/modules").join(release))
}

/// The headers name themselves and their common part by their installed paths: changes those to the
/// unpacked ones.
pub(super) fn relocate(dir: &Path, release: &str) -> Result<()> {
    let makefile = dir.join("usr/src").join(format!("linux-headers-{release}")).join("Makefile");
    if !makefile.exists() {
        return Ok(());
    }
    let text = fs::read_to_string(&makefile).at(makefile.display())?;
    fs::write(&makefile, relocated(&text)).at(makefile.display())
}

fn relocated(makefile: &str) -> String {
    const HERE: &str = "$(dir $(abspath $(lastword $(MAKEFILE_LIST))))";
    let line = |line: &str| match line.strip_prefix("KBUILD_OUTPUT=") {
        // Without a final slash: kbuild compares it with the directory that it runs in.
        Some(_) => format!("KBUILD_OUTPUT := $(patsubst %/,%,{HERE})\n"),
        None => line.replace("include /usr/src/", &format!("include {HERE}../")) + "\n",
    };
    makefile.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_find_themselves_and_their_common_part_where_they_are() {
        let makefile = "KBUILD_OUTPUT=/usr/src/linux-headers-7.3\ninclude /usr/src/linux-headers-7.3-common/Makefile\n";
        assert_eq!(
            relocated(makefile),
            "KBUILD_OUTPUT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))\n\
             include $(dir $(abspath $(lastword $(MAKEFILE_LIST))))../linux-headers-7.3-common/Makefile\n"
        );
    }
}
