//! Man pages, generated from the command-line definition: one for the program and one for each
//! command.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit::EXITS;

/// Name and text of every page: `tierscope`, `tierscope-record`, `tierscope-report-summary`, ...
///
/// # Errors
/// None in practice: the pages are written to memory.
pub fn pages(mut program: Command) -> io::Result<Vec<(String, String)>> {
    // Sets the full name of every command.
    program.build();
    let mut pages = Vec::new();
    add(&program, program.get_name(), &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, name: &str, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    pages.push((name.to_owned(), page(command, name)?));
    for sub in command.get_subcommands().filter(|sub| is_ours(sub)) {
        add(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

fn is_ours(command: &Command) -> bool {
    command.get_name() != "help" && !command.is_hide_set()
}

fn page(command: &Command, name: &str) -> io::Result<String> {
    // The name of a man page must be a single word.
    let command = command.clone().display_name(name);
    let has_commands = command.get_subcommands().any(is_ours);
    let man = Man::new(command).manual("tierscope").section("1");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_commands {
        man.render_subcommands_section(&mut out)?;
    }
    exit_status().to_writer(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in EXITS {
        roff.control("TP", []);
        roff.text([bold(exit.code.to_string())]);
        roff.text([roman(exit.meaning)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn every_command_has_a_page_with_its_flags_and_codes() {
        let pages = pages(args::command()).unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(of, _)| of == name);
            &found.unwrap_or_else(|| panic!("no page {name}")).1
        };
        assert!(page("tierscope").contains("tierscope\\-record(1)"));
        assert!(page("tierscope-record").contains("\\-\\-max\\-size"));
        assert!(page("tierscope-report-summary").contains(".TH tierscope-report-summary 1"));
        for (name, text) in &pages {
            assert!(text.contains("EXIT STATUS") && text.contains("disk full"), "{name}");
            assert!(!name.ends_with("-help"), "{name}");
        }
    }
}
