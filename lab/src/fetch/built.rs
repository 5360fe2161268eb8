//! A kernel built here from the source that a package holds, with a configuration of the lab's own:
//! what is not named in its fragments (`lab/built`) is off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output;
use crate::error::{Context, Error, Kind, Result};
use crate::kernels::{Built, Kernel};
use crate::paths;
use crate::progress::say;

use super::apt::Apt;
use super::unpack::unpack;
use super::{Resolved, Tree, finish};

/// Large files that no build of ours reads.
const LEFT_OUT: &str = "--exclude=*/drivers/gpu/drm/amd/include";

/// Package and version that a built kernel resolves to, and its release. The version includes a
/// hash of the configuration and the patches: others make another kernel.
pub(super) fn resolve(kernel: &Kernel, built: &Built) -> Result<Resolved> {
    let apt = Apt::of(built.suite.as_deref())?;
    let version = apt.version_of(&built.package)?;
    let name = kernel.name.clone();
    let release = format!("{}-{}", upstream(&version), built.flavour());
    let packages = vec![built.package.clone()];
    Ok(Resolved { name, version: with_key(&version, &recipe(built)?), packages, release })
}

/// Whether the version of a kernel in the cache is of today's configuration.
pub(super) fn is_current(built: &Built, version: &str) -> bool {
    let key = |text: String| with_key("", &text);
    recipe(built).is_ok_and(|text| version.ends_with(&key(text)))
}

/// The version of the kernel's developers: `6.12.117-1~deb12u1` is 6.12.117.
fn upstream(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}

fn with_key(version: &str, configuration: &str) -> String {
    // FNV-1a.
    let add = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{version}_{:08x}", configuration.bytes().fold(0x811c_9dc5, add))
}

fn fragment(name: &str) -> Result<String> {
    let path = paths::lab().join("built").join(format!("{name}.config"));
    fs::read_to_string(&path).at(path.display())
}

/// All symbols that are set, as kconfig reads them.
fn configuration(built: &Built) -> Result<String> {
    let text = built.configs.iter().map(|name| fragment(name)).collect::<Result<String>>()?;
    let lines = text.lines().filter(|line| !line.starts_with("# ") || line.ends_with("not set"));
    let own = format!("CONFIG_LOCALVERSION=\"-{}\"", built.flavour());
    Ok(lines.chain([own.as_str()]).map(|line| line.to_owned() + "\n").collect())
}

/// The patches of a built kernel, in order; without the cover letter, which changes nothing.
fn patches(built: &Built) -> Result<Vec<PathBuf>> {
    let Some(name) = &built.patches else { return Ok(Vec::new()) };
    let dir = paths::root().join("patches").join(name);
    let entries = fs::read_dir(&dir).at(dir.display())?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".patch") && !name.starts_with("0000-")
    };
    let mut all: Vec<PathBuf> = entries.filter(is_one).collect();
    all.sort();
    Ok(all)
}

/// All that makes the kernel what it is, apart from the package.
fn recipe(built: &Built) -> Result<String> {
    let mut text = configuration(built)?;
    for patch in patches(built)? {
        text += &fs::read_to_string(&patch).at(patch.display())?;
    }
    Ok(text)
}

/// Fetches the source and builds the kernel; a build that was ended goes on.
///
/// # Errors
/// The source cannot be had or built, or a symbol of the last fragment cannot be set in it.
pub(super) fn build(built: &Built, resolved: &Resolved) -> Result<Tree> {
    let tree = resolved.tree();
    let source = source(built, resolved)?;
    let build = tree.build();
    fs::create_dir_all(&build).at(build.display())?;
    let wanted = build.join("wanted.config");
    fs::write(&wanted, configuration(built)?).at(wanted.display())?;
    let make = |arguments: &[&str]| {
        let mut make = Command::new("make");
        make.args(["-s", "-j2", "ARCH=x86_64", "-C"]).arg(&source);
        make.arg(format!("O={}", build.display())).args(arguments);
        output(&mut make).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    make(&[&format!("KCONFIG_ALLCONFIG={}", wanted.display()), "allnoconfig"])?;
    check_configuration(built, &build)?;
    let release = make(&["kernelrelease"])?;
    if release.trim() != tree.release {
        let cause = format!("its release is {}, not {}", release.trim(), tree.release);
        return Err(Error::new(Kind::Environment, &resolved.name, cause));
    }
    say(format!("kernel {}: building {}, some 15 minutes", resolved.name, tree.release));
    make(&["bzImage", "modules"])?;
    make(&[&format!("INSTALL_MOD_PATH={}", tree.dir.display()), "modules_install"])?;
    let boot = tree.dir.join("boot");
    fs::create_dir_all(&boot).at(boot.display())?;
    for (from, to) in [("arch/x86/boot/bzImage", tree.image()), (".config", tree.config())] {
        fs::copy(build.join(from), &to).at(to.display())?;
    }
    drop_objects(&build)?;
    finish(resolved, &tree.dir)?;
    say(format!("kernel {}: ready", resolved.name));
    Ok(tree)
}

/// The unpacked source, which the kernels built from it share; one with patches has its own.
fn source(built: &Built, resolved: &Resolved) -> Result<PathBuf> {
    let plain = resolved.version.rsplit_once('_').map_or("", |(version, _)| version);
    let version = if built.patches.is_some() { &resolved.version } else { plain };
    let sources = paths::cache().join("source");
    let dir = sources.join(format!("{}_{version}", built.package));
    if dir.join("Kbuild").exists() {
        return Ok(dir);
    }
    say(format!("kernel {}: fetching its source", resolved.name));
    let aside = sources.join(format!(".{}.{}", built.package, std::process::id()));
    fs::create_dir_all(&aside).at(aside.display())?;
    Apt::of(built.suite.as_deref())?.download(&resolved.packages, &aside)?;
    for deb in fs::read_dir(&aside).at(aside.display())?.flatten() {
        unpack(&deb.path(), &aside, &[])?;
    }
    let archive = aside.join("usr/src").join(format!("{}.tar.xz", built.package));
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(archive).arg(LEFT_OUT).arg("-C").arg(&aside);
    output(&mut tar)?;
    let unpacked = aside.join(&built.package);
    for patch in patches(built)? {
        output(Command::new("patch").args(["-s", "-p1", "-i"]).arg(patch).current_dir(&unpacked))?;
    }
    fs::rename(&unpacked, &dir).at(unpacked.display())?;
    fs::remove_dir_all(&aside).at(aside.display())?;
    Ok(dir)
}

/// Checks that kconfig set what the last fragment, which makes the kernel what it is, names.
fn check_configuration(built: &Built, build: &Path) -> Result<()> {
    let path = build.join(".config");
    let made = fs::read_to_string(&path).at(path.display())?;
    let wanted = fragment(built.flavour())?;
    match unset(&wanted, &made).next() {
        None => Ok(()),
        Some(symbol) => {
            Err(Error::new(Kind::Environment, symbol, "cannot be set in this kernel's source"))
        }
    }
}

fn unset<'a>(wanted: &'a str, made: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = wanted.lines().filter(|line| line.starts_with("CONFIG_"));
    lines.filter(|line| !made.lines().any(|set| set == *line))
}

/// Removes what building modules does not take: most of a gigabyte.
fn drop_objects(build: &Path) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(build).args(["-type", "f", "("]);
    find.args(["-name", "*.o", "-o", "-name", "*.a", "-o", "-name", "vmlinux*", "-o"]);
    find.args(["-name", "bzImage", ")", "-not", "-path", "*/scripts/*", "-delete"]);
    output(&mut find).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toy() -> Built {
        let configs = vec!["base".to_owned(), "memory".to_owned()];
        Built { package: "linux-source-6.12".into(), suite: None, configs, patches: None }
    }

    #[test]
    fn a_kernel_is_of_its_version_and_configuration() {
        assert_eq!(upstream("6.12.117-1~deb12u1"), "6.12.117");
        let here = with_key("7.3.4-1", &configuration(&toy()).unwrap());
        assert!(is_current(&toy(), &here));
        assert!(!is_current(&toy(), "7.3.4-1_00000000"));
        let other = Built { configs: vec!["base".into(), "races".into()], ..toy() };
        assert!(!is_current(&other, &here));
    }

    #[test]
    fn patches_make_another_kernel() {
        let patched = Built { patches: Some("damon-split-hints".into()), ..toy() };
        assert_eq!(patches(&patched).unwrap().len(), 5);
        assert_ne!(recipe(&patched).unwrap(), recipe(&toy()).unwrap());
        assert!(recipe(&Built { patches: Some("nosuch".into()), ..toy() }).is_err());
    }

    #[test]
    fn comments_are_no_part_of_a_configuration() {
        let text = configuration(&toy()).unwrap();
        assert!(text.contains("# CONFIG_JUMP_LABEL is not set\n"));
        assert!(text.ends_with("CONFIG_LOCALVERSION=\"-memory\"\n"));
        let odd = |line: &&str| !line.is_empty() && !line.contains("CONFIG_");
        assert_eq!(text.lines().find(odd), None);
    }

    #[test]
    fn a_symbol_that_is_not_set_is_named() {
        let (wanted, made) =
            ("# text\nCONFIG_A=y\nCONFIG_B=y\n", "CONFIG_A=y\n# CONFIG_B is not set\n");
        assert_eq!(unset(wanted, made).collect::<Vec<_>>(), ["CONFIG_B=y"]);
    }
}
