//! Packs the guest's root file system: busybox, host programs with their shared libraries, kernel
//! modules in loading order, and the job.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cpio::newc::{self, Builder, ModeFileType};

use crate::command::{capture, output};
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::Tree;
use crate::modules_dep::ModulesDep;
use crate::paths;

/// Modules that the lab itself needs in the guest, for the shared directory.
const BASE_MODULES: &[&str] = &["virtio_pci", "9pnet_virtio", "9p"];

/// Contents of the guest's root file system.
#[derive(Debug, Default)]
pub struct Contents {
    /// Programs: `name`, or `name=/path/on/the/host`.
    pub programs: Vec<String>,
    /// Modules of the distribution's kernel, by name, loaded before the job starts.
    pub kernel_modules: Vec<String>,
    /// Other files: path in the guest and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Writes the archive to `path`.
///
/// # Errors
/// A program, library or module is missing; the error names it.
pub fn pack(contents: &Contents, kernel: &Tree, path: &Path) -> Result<()> {
    let mut root = Root::default();
    root.busybox()?;
    for program in &contents.programs {
        root.program(program)?;
    }
    root.kernel_modules(&contents.kernel_modules, kernel)?;
    root.add("init", 0o755, fs::read(paths::lab().join("init")).at("lab/init")?);
    for (name, data) in &contents.files {
        root.add(name, 0o644, data.clone());
    }
    let file = fs::File::create(path).at(path.display())?;
    root.write(BufWriter::new(file)).at(path.display())
}

#[derive(Default)]
struct Root {
    files: Vec<(String, u32, Vec<u8>)>,
    links: Vec<(String, String)>,
    libraries: BTreeSet<PathBuf>,
}

impl Root {
    fn add(&mut self, name: &str, mode: u32, data: Vec<u8>) {
        self.files.push((name.trim_start_matches('/').to_owned(), mode, data));
    }

    fn busybox(&mut self) -> Result<()> {
        let path = find("busybox")?;
        let applets = capture(Command::new(&path).arg("--list"))?;
        let applets = applets.lines().filter(|applet| *applet != "busybox");
        self.links.extend(applets.map(|applet| (format!("bin/{applet}"), "busybox".to_owned())));
        self.binary("bin/busybox", &path)
    }

    fn program(&mut self, spec: &str) -> Result<()> {
        let (name, path) = match spec.split_once('=') {
            Some((name, path)) => (name, find(path)?),
            None => (spec, find(spec)?),
        };
        self.links.retain(|(link, _)| *link != format!("bin/{name}"));
        self.binary(&format!("bin/{name}"), &path)
    }

    fn binary(&mut self, name: &str, path: &Path) -> Result<()> {
        self.libraries.extend(libraries(path)?);
        self.add(name, 0o755, fs::read(path).at(path.display())?);
        Ok(())
    }

    fn kernel_modules(&mut self, names: &[String], kernel: &Tree) -> Result<()> {
        let dir = kernel.modules();
        let read = |name: &str| fs::read_to_string(dir.join(name)).at(dir.join(name).display());
        let modules = ModulesDep::parse(&read("modules.dep")?, &read("modules.builtin")?);
        let wanted: Vec<&str> =
            BASE_MODULES.iter().copied().chain(names.iter().map(String::as_str)).collect();
        let mut order = String::new();
        for path in modules.closure(&wanted)? {
            let guest = format!("lab/kernel/{}", file_name(&path).trim_end_matches(".xz"));
            self.add(&guest, 0o644, module(&dir.join(&path))?);
            order.push_str(&format!("/{guest}\n"));
        }
        self.add("lab/modules", 0o644, order.into_bytes());
        Ok(())
    }

    fn write<W: Write>(mut self, out: W) -> io::Result<()> {
        for library in std::mem::take(&mut self.libraries) {
            let mode = fs::metadata(&library)?.permissions().mode();
            self.add(&library.to_string_lossy(), mode, fs::read(&library)?);
        }
        let mut archive = Archive { out, entries: 0 };
        let entry =
            |name: &str, mode: u32, kind| Builder::new(name).mode(mode).set_mode_file_type(kind);
        for directory in self.directories() {
            archive.add(entry(&directory, 0o755, ModeFileType::Directory), &[])?;
        }
        let console = entry("dev/console", 0o600, ModeFileType::Char);
        archive.add(console.rdev_major(5).rdev_minor(1), &[])?;
        for (name, mode, data) in &self.files {
            archive.add(entry(name, mode & 0o7777, ModeFileType::Regular), data)?;
        }
        for (name, target) in &self.links {
            archive.add(entry(name, 0o777, ModeFileType::Symlink), target.as_bytes())?;
        }
        newc::trailer(archive.out)?.flush()
    }

    /// All directories needed by the files, parents first.
    fn directories(&self) -> BTreeSet<String> {
        let mounts = ["dev", "proc", "sys", "tmp", "run", "out", "host", "root"].map(str::to_owned);
        let mut all = BTreeSet::from(mounts);
        let names = self.files.iter().map(|f| &f.0).chain(self.links.iter().map(|l| &l.0));
        for name in names {
            let parents = Path::new(name).ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
            all.extend(parents.map(|p| p.to_string_lossy().into_owned()));
        }
        all
    }
}

/// An initramfs archive in newc format. Parents come before the entries in them: the kernel does
/// not create them.
struct Archive<W> {
    out: W,
    /// Number of entries, which is the next inode number.
    entries: u32,
}

impl<W: Write> Archive<W> {
    fn add(&mut self, entry: Builder, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut writer = entry.ino(self.entries).write(&mut self.out, size);
        self.entries += 1;
        writer.write_all(data)?;
        writer.finish().map(drop)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A module as an uncompressed ELF file, because the guest's insmod cannot decompress.
fn module(path: &Path) -> Result<Vec<u8>> {
    match path.extension().is_some_and(|e| e == "xz") {
        true => Ok(output(Command::new("xz").arg("-dc").arg(path))?.stdout),
        false => fs::read(path).at(path.display()),
    }
}

/// Path of a program: given as a path, built with this program or as an example, or in PATH.
fn find(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    let built = paths::programs().into_iter().flat_map(|dir| [dir.join("examples"), dir]);
    let dirs = built.chain(std::env::split_paths(&path)).chain(system);
    dirs.map(|dir| dir.join(name)).find(|p| p.is_file()).ok_or_else(|| {
        Error::new(Kind::Environment, format!("program {name}"), "not found")
            .remedy("`make build` makes ours, `make setup` installs the others")
    })
}

/// The shared libraries and the dynamic loader that a program needs, by ldd(1).
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    match capture(Command::new("ldd").arg(program)) {
        Ok(text) => parse_ldd(&text).map_err(|library| {
            Error::new(
                Kind::Environment,
                format!("library {library} of {}", program.display()),
                "not found",
            )
        }),
        // ldd exits with 1 for a static program; a program that cannot run at all fails in the
        // guest.
        Err(_) => Ok(Vec::new()),
    }
}

/// Paths in ldd's output; the vDSO has none. Err names a missing library.
fn parse_ldd(text: &str) -> std::result::Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.ends_with("=> not found") {
            return Err(line.split_whitespace().next().unwrap_or(line).to_owned());
        }
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        paths.extend(path.map(PathBuf::from));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn ldd_lines_give_libraries_and_the_loader() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let paths = parse_ldd(text).unwrap();
        assert_eq!(
            paths,
            [
                Path::new("/lib/x86_64-linux-gnu/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert_eq!(parse_ldd("\tlibx.so.1 => not found\n").unwrap_err(), "libx.so.1");
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn parents_come_before_their_children() {
        let mut root = Root::default();
        root.add("/lib/a/b.so", 0o644, Vec::new());
        let directories: Vec<String> = root.directories().into_iter().collect();
        let at = |name: &str| directories.iter().position(|d| d == name).unwrap();
        assert!(at("lib") < at("lib/a"));
        assert!(!directories.contains(&"lib/a/b.so".to_owned()));
    }

    #[test]
    fn an_archive_has_directories_device_files_and_links_with_their_modes() {
        let mut root = Root::default();
        root.add("/bin/sh", 0o755, b"xyz".to_vec());
        root.links.push(("bin/ls".to_owned(), "sh".to_owned()));
        let mut bytes = Vec::new();
        root.write(&mut bytes).unwrap();
        let mut entries = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            let (name, mode) = (entry.name().to_owned(), entry.mode());
            let device = (entry.rdev_major(), entry.rdev_minor());
            let mut data = String::new();
            reader.read_to_string(&mut data).unwrap();
            rest = reader.finish().unwrap();
            entries.push((name, mode, device, data));
        }
        let entry = |name: &str| {
            let found = entries.iter().find(|entry| entry.0 == name).expect(name);
            (found.1, found.2, found.3.as_str())
        };
        assert_eq!(entry("bin"), (0o040_755, (0, 0), ""));
        assert_eq!(entry("dev/console"), (0o020_600, (5, 1), ""));
        assert_eq!(entry("bin/sh"), (0o100_755, (0, 0), "xyz"));
        assert_eq!(entry("bin/ls"), (0o120_777, (0, 0), "sh"));
    }
}
