//! Writes the generated files of a package: `tierscope-assets DIR` writes man pages to DIR/man and
//! shell completions to DIR/completions, all from the command-line definition.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap_complete::Shell;
use tierscope_cli::{args, man};

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("tierscope-assets: no directory; give the one to write to");
        return ExitCode::from(2);
    };
    match write(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierscope-assets: {}: {error}", Path::new(&dir).display());
            ExitCode::from(8)
        }
    }
}

fn write(dir: &Path) -> io::Result<()> {
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for (name, page) in man::pages(args::command())? {
        fs::write(man.join(format!("{name}.1")), page)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut args::command(), "tierscope", &completions)?;
    }
    Ok(())
}
