//! The spelling of all names that users type.

use tierscope_cli::args::command;
use tierscope_evaluate::{Contender, catalogue};
use tierscope_instruments::registry::list;
use tierscope_policies::all;

fn is_kebab(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty() && name.split('-').all(|word| !word.is_empty() && word.bytes().all(letter))
}

/// Names of a command, its flags with their values, and its subcommands.
fn of_command(command: &clap::Command, names: &mut Vec<String>) {
    names.push(command.get_name().to_owned());
    for flag in command.get_arguments() {
        names.extend(flag.get_long().map(str::to_owned));
        let values = flag.get_possible_values();
        names.extend(values.iter().map(|value| value.get_name().to_owned()));
    }
    command.get_subcommands().for_each(|command| of_command(command, names));
}

#[test]
fn names_are_in_kebab_case() {
    let mut names = Vec::new();
    of_command(&command(), &mut names);
    for policy in all() {
        names.push(policy.name.to_owned());
        names.extend(policy.keys().iter().map(|key| key.name.to_owned()));
        let settings = policy.make("").unwrap().settings();
        names.extend(settings.iter().map(|setting| setting.name.to_owned()));
    }
    for instrument in list().iter().chain([&tierscope_cli::kernel_damon::ENTRY]) {
        names.push(instrument.name.to_owned());
        for variant in instrument.variants {
            names.push(variant.name.to_owned());
            if let Ok(made) = instrument.make(Some(variant.name), &Default::default()) {
                names.extend(made.settings().iter().map(|setting| setting.name.to_owned()));
            }
        }
    }
    names.extend(Contender::ALL.iter().map(|contender| contender.name.to_owned()));
    names.extend(tierscope_workloads::work::names().map(str::to_owned));
    names.extend(tierscope_hw::config::READY_MADE.iter().map(|(name, _)| (*name).to_owned()));
    let experiments = catalogue::ALL.iter().filter(|entry| !entry.name.ends_with(".toml"));
    names.extend(experiments.map(|entry| entry.name.to_owned()));
    assert!(names.len() > 300, "{}", names.len());
    let wrong: Vec<&String> = names.iter().filter(|name| !is_kebab(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
