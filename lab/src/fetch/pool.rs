//! A kernel that the package lists do not name any more, by its packages' places in the pool of
//! the archive, where they stay for months.

use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::kernels::Pinned;

use super::apt::download_file;

/// A package of a kernel: directory of the pool, file name without `.deb`.
struct Package {
    file: String,
    directory: &'static str,
    /// Kernels before or after some version have no such package.
    optional: bool,
}

fn packages(pinned: &Pinned) -> Vec<Package> {
    let (release, version) = (&pinned.release, &pinned.version);
    let package = |directory, name: &str, arch, optional| Package {
        file: format!("linux-{name}_{version}_{arch}"),
        directory,
        optional,
    };
    let (source, signed) = ("linux", "linux-signed-amd64");
    vec![
        package(signed, &format!("image-{release}-amd64"), "amd64", false),
        package(signed, &format!("binary-{release}-amd64"), "amd64", true),
        package(source, &format!("modules-{release}-amd64"), "amd64", true),
        package(source, &format!("base-{release}-amd64"), "amd64", true),
        package(source, &format!("headers-{release}-amd64"), "amd64", false),
        package(source, &format!("headers-{release}-common"), "all", false),
        package(source, &format!("kbuild-{release}"), "amd64", false),
    ]
}

/// Downloads the packages of a kernel into a directory.
///
/// # Errors
/// One is not there any more.
pub(super) fn download(pinned: &Pinned, dir: &Path) -> Result<()> {
    for package in packages(pinned) {
        let path = format!("pool/main/l/{}/{}.deb", package.directory, package.file);
        let done = download_file(&path, &dir.join(format!("{}.deb", package.file)));
        if done.is_err() && !package.optional {
            let gone = "not in the pool of the archive any more, or it cannot be reached";
            return Err(Error::new(Kind::Environment, package.file, gone));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_seven_packages_at_most() {
        let pinned = Pinned { version: "6.16.12-1~x".into(), release: "6.16.12+deb13".into() };
        let files: Vec<String> = packages(&pinned).into_iter().map(|p| p.file).collect();
        assert_eq!(files.len(), 7);
        assert_eq!(files[0], "linux-image-6.16.12+deb13-amd64_6.16.12-1~x_amd64");
        assert_eq!(files[5], "linux-headers-6.16.12+deb13-common_6.16.12-1~x_all");
    }
}
