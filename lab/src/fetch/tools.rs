//! The build tools of a kernel of a newer Debian, made to run here: programs that this machine's C
//! library is too old for start with the C library of their own Debian, and the compiler is this
//! machine's.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Result};

use super::apt::Apt;
use super::unpack::unpack;

/// Packages of the libraries that build tools are linked with.
const LIBRARIES: [&str; 4] = ["libc6", "libelf1t64", "zlib1g", "libzstd1"];

/// What is of no use to a build tool.
const LEFT_OUT: &[&str] = &["*/gconv", "./usr/share", "./usr/lib/*/*.o"];

/// The dynamic loader of the unpacked libraries, and their directory, below the tree.
const LOADER: &str = "libraries/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
const DIRECTORY: &str = "libraries/usr/lib/x86_64-linux-gnu";

/// What compilers before GCC 14 to 16 lack, and the kernel uses where its configuration says that
/// its own compiler has it: symbol, option, and a source that needs it.
const NEWS: [(&str, &str, &str); 4] = [
    ("CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT", "-fmin-function-alignment=16", ""),
    (
        "CONFIG_CC_HAS_COUNTED_BY",
        "-Werror",
        "struct counted { int n; int all[] __attribute__((__counted_by__(n))); };",
    ),
    (
        "CONFIG_CC_HAS_COUNTED_BY_PTR",
        "-Werror",
        "struct counted { int n; int *all __attribute__((__counted_by__(n))); };",
    ),
    (
        "CONFIG_CC_HAS_MULTIDIMENSIONAL_NONSTRING",
        "-Werror",
        "char tags[][4] __attribute__((__nonstring__)) = { \"abcd\" };",
    ),
];

/// Makes the tools below `dir` run here, with the libraries of `suite`.
pub(super) fn adapt(dir: &Path, release: &str, suite: &str) -> Result<()> {
    let foreign: Vec<PathBuf> = tools(dir)?.into_iter().filter(|tool| !loads(tool)).collect();
    if !foreign.is_empty() {
        fetch_libraries(dir, suite)?;
    }
    foreign.iter().try_for_each(|tool| wrap(dir, tool))?;
    let headers = dir.join("usr/src").join(format!("linux-headers-{release}"));
    use_our_compiler(&headers)
}

/// All ELF programs of linux-kbuild.
fn tools(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.join("usr/lib")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).at(directory.display())?.flatten() {
            let (path, kind) = (entry.path(), entry.file_type().at(directory.display())?);
            if kind.is_dir() && !path.ends_with("lib/modules") {
                waiting.push(path);
            } else if kind.is_file() && is_program(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn is_program(path: &Path) -> bool {
    let executable = fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o100 != 0);
    executable && fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

/// Whether this machine's libraries have all that a program is linked with.
fn loads(program: &Path) -> bool {
    let list = Command::new("/lib64/ld-linux-x86-64.so.2")
        .args(["--list".as_ref(), program.as_os_str()])
        .stdin(Stdio::null())
        .output();
    list.is_ok_and(|done| {
        done.status.success()
            && !String::from_utf8_lossy(&done.stdout).contains("not found")
            && !String::from_utf8_lossy(&done.stderr).contains("not found")
    })
}

fn fetch_libraries(dir: &Path, suite: &str) -> Result<()> {
    let debs = dir.join("debs");
    fs::create_dir_all(&debs).at(debs.display())?;
    Apt::of(Some(suite))?.download(&LIBRARIES.map(String::from), &debs)?;
    for entry in fs::read_dir(&debs).at(debs.display())?.flatten() {
        let libraries = dir.join("libraries");
        fs::create_dir_all(&libraries).at(libraries.display())?;
        unpack(&entry.path(), &libraries, LEFT_OUT)?;
    }
    fs::remove_dir_all(&debs).at(debs.display())
}

/// Puts a script in the place of a program, which starts it with the unpacked loader. Paths are
/// relative: the tree is renamed, and guests see it elsewhere.
fn wrap(dir: &Path, tool: &Path) -> Result<()> {
    let below = tool.strip_prefix(dir).unwrap_or(tool);
    let up = "/..".repeat(below.components().count() - 1);
    let name = tool.file_name().unwrap_or_default().to_string_lossy();
    fs::rename(tool, tool.with_file_name(format!("{name}.elf"))).at(tool.display())?;
    let script = format!(
        "#!/bin/sh\nhere=${{0%/*}}\n\
         exec \"$here{up}/{LOADER}\" --library-path \"$here{up}/{DIRECTORY}\" \"$0.elf\" \"$@\"\n"
    );
    fs::write(tool, script).at(tool.display())?;
    fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).at(tool.display())
}

/// Replaces a compiler that is not here by this machine's, and options that it does not know.
fn use_our_compiler(headers: &Path) -> Result<()> {
    let variables = headers.join(".kernelvariables");
    let text = fs::read_to_string(&variables).at(variables.display())?;
    let Some(line) = text.lines().find(|line| line.starts_with("CC = ")) else { return Ok(()) };
    let named = line.rsplit(')').next().unwrap_or_default();
    if compiles(named, "-Werror", "") {
        return Ok(());
    }
    fs::write(&variables, text.replace(line, &line.replace(named, "gcc")))
        .at(variables.display())?;
    let lacks = |(_, option, source): &&(&str, &str, &str)| !compiles("gcc", option, source);
    let lacking: Vec<&str> = NEWS.iter().filter(lacks).map(|(symbol, ..)| *symbol).collect();
    for name in ["include/config/auto.conf", "include/generated/autoconf.h"] {
        let settings = headers.join(name);
        let text = fs::read_to_string(&settings).at(settings.display())?;
        fs::write(&settings, without(&text, &lacking)).at(settings.display())?;
    }
    Ok(())
}

/// The settings, of kbuild or of C, without the lines of these symbols.
fn without(settings: &str, symbols: &[&str]) -> String {
    let names = |line: &str| line.split(['=', ' ']).any(|word| symbols.contains(&word));
    settings.lines().filter(|line| !names(line)).map(|line| format!("{line}\n")).collect()
}

/// Whether there is such a compiler, and it knows the option and compiles the source.
fn compiles(compiler: &str, option: &str, source: &str) -> bool {
    let mut command = Command::new(compiler);
    command.args(["-Wall", option, "-fsyntax-only", "-x", "c", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let written = child.stdin.take().map(|mut input| input.write_all(source.as_bytes()));
    let ended = child.wait();
    matches!(written, Some(Ok(()))) && ended.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_program_runs_with_the_loader_of_its_tree_wherever_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let bin = tree.join("usr/lib/linux-kbuild-9/scripts");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(tree.join(DIRECTORY)).unwrap();
        fs::copy("/bin/true", bin.join("modpost")).unwrap();
        assert_eq!(tools(&tree).unwrap(), [bin.join("modpost")]);
        assert!(loads(&bin.join("modpost")));
        wrap(&tree, &bin.join("modpost")).unwrap();
        // A loader that prints what it was given.
        let loader = tree.join(LOADER);
        fs::write(&loader, "#!/bin/sh\necho \"$3 $4\"\n").unwrap();
        fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).unwrap();
        let moved = dir.path().join("moved");
        fs::rename(&tree, &moved).unwrap();
        let tool = moved.join("usr/lib/linux-kbuild-9/scripts/modpost");
        // A child of another test's thread, between fork and exec, holds what was just written open
        // for writing: such a file cannot be run (ETXTBSY, of a shell 126) until it is gone.
        let printed = loop {
            match Command::new(&tool).arg("-m").output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => continue,
                Ok(output) if output.status.code() == Some(126) => continue,
                output => break output.unwrap().stdout,
            }
        };
        assert_eq!(String::from_utf8(printed).unwrap(), format!("{}.elf -m\n", tool.display()));
    }

    #[test]
    fn what_the_compiler_lacks_is_not_used() {
        let lacking = ["CONFIG_NEW"];
        assert_eq!(without("CONFIG_SMP=y\nCONFIG_NEW=y\n", &lacking), "CONFIG_SMP=y\n");
        let header = "#define CONFIG_NEW 1\n#define CONFIG_NEWER 1\n";
        assert_eq!(without(header, &lacking), "#define CONFIG_NEWER 1\n");
        assert!(compiles("gcc", "-Werror", "int x;") && !compiles("gcc", "-fno-such=1", ""));
        assert!(!compiles("gcc", "-Werror", "int x __attribute__((no_such));"));
        assert!(!compiles("no-such-compiler", "-Werror", ""));
    }
}
