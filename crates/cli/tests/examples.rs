//! Help, documents and parsers agree: every example in a help text or an error message is accepted
//! by the parser of its own option, every command line in the documents parses, and every command
//! is named in the documents.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, Command};
use tierscope_cli::args;
use tierscope_core::units;

/// Commands with their full names, such as `["tierscope", "sim", "run"]`.
fn commands() -> Vec<(Vec<String>, Command)> {
    fn add(command: &Command, before: &[String], all: &mut Vec<(Vec<String>, Command)>) {
        let mut path = before.to_vec();
        path.push(command.get_name().to_owned());
        let subs = command.get_subcommands();
        subs.filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
            .for_each(|sub| add(sub, &path, all));
        all.push((path, command.clone()));
    }
    let mut all = Vec::new();
    add(&args::command(), &[], &mut all);
    all
}

/// The values that follow `like` or `as in` in a text: words with a digit or `=`, joined by commas
/// or `or`.
fn examples(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_example = |word: &str| word.contains(|c: char| c.is_ascii_digit() || c == '=');
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if *word != "like" && !(*word == "in" && at > 0 && words[at - 1] == "as") {
            continue;
        }
        for word in words[at + 1..].iter().filter(|word| **word != "or") {
            let value = word.trim_end_matches([',', ';', ':', ')', '.']).trim_matches(['`', '"']);
            if !is_example(value) {
                break;
            }
            found.push(value.to_owned());
            if word.ends_with([';', ':', ')', '.']) {
                break;
            }
        }
    }
    found
}

#[test]
fn examples_are_found() {
    assert_eq!(
        examples("not a size: give it like 4096, 64MiB or 1.5GiB"),
        ["4096", "64MiB", "1.5GiB"]
    );
    assert_eq!(examples("A size, like dram=1G; can be given like this"), ["dram=1G"]);
    assert_eq!(examples("Sizes, like 64G,128G, or a name: heap, 1st"), ["64G,128G"]);
    assert_eq!(examples("something like that"), [""; 0]);
}

/// The line that gives `value` to an option or argument; values may begin with a dash.
fn line(path: &[String], arg: &Arg, value: &str) -> Vec<OsString> {
    let mut line: Vec<OsString> = path.iter().map(OsString::from).collect();
    line.push(match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}={value}").into(),
        (None, Some(short)) => format!("-{short}{value}").into(),
        (None, None) => value.into(),
    });
    line
}

/// Why the parser of an option refuses a value; that other options are missing is no reason.
fn refusal(path: &[String], arg: &Arg, value: &str) -> Option<clap::Error> {
    use ErrorKind::{InvalidValue, TooManyValues, UnknownArgument, ValueValidation};
    let error = args::parse(line(path, arg, value)).err()?;
    let kinds = [InvalidValue, TooManyValues, UnknownArgument, ValueValidation];
    kinds.contains(&error.kind()).then_some(error)
}

/// Options and arguments with a value, with the full name of their command.
fn valued() -> Vec<(Vec<String>, Arg)> {
    let of = |(path, command): (Vec<String>, Command)| {
        let args: Vec<Arg> = command.get_arguments().cloned().collect();
        args.into_iter().map(move |arg| (path.clone(), arg))
    };
    let all = commands().into_iter().flat_map(of);
    all.filter(|(_, arg)| arg.get_action().takes_values() && !arg.is_last_set()).collect()
}

#[test]
fn examples_in_help_are_accepted_by_their_option() {
    let (mut count, mut wrong) = (0, String::new());
    for (path, arg) in valued() {
        let helps = [arg.get_help(), arg.get_long_help()].into_iter().flatten();
        for example in helps.flat_map(|help| examples(&help.to_string())) {
            count += 1;
            if let Some(error) = refusal(&path, &arg, &example) {
                let _ = writeln!(wrong, "{} {}: {error}", path.join(" "), arg.get_id());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 10, "only {count} examples were found");
}

#[test]
fn examples_in_error_messages_are_accepted_by_their_option() {
    let (mut count, mut wrong) = (0, String::new());
    for (path, arg) in valued() {
        let Some(error) = refusal(&path, &arg, "@@") else { continue };
        for example in examples(&args::one_line(&error)) {
            count += 1;
            if let Some(error) = refusal(&path, &arg, &example) {
                let _ = writeln!(wrong, "{} {}: {error}", path.join(" "), arg.get_id());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 30, "only {count} examples were found");
}

#[test]
fn examples_in_messages_of_units_are_read_by_the_same_unit() {
    fn check<T>(parse: impl Fn(&str) -> Result<T, String>) {
        let Err(error) = parse("@@") else { panic!("@@ is accepted") };
        let examples = examples(&error);
        assert!(!examples.is_empty(), "{error}");
        for example in examples {
            assert!(parse(&example).is_ok(), "{error}: {example}");
        }
    }
    check(units::size);
    check(units::address);
    check(units::rate);
    check(units::time);
}

/// A document and its text.
type Document = (PathBuf, String);

/// The documents for users: README.md, `docs`, and the README.md of each folder.
fn documents() -> Vec<Document> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = ["README.md", "experiments/README.md", "lab/README.md", "crates/record/README.md"];
    let mut paths: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let docs = fs::read_dir(root.join("docs")).expect("there are docs");
    let docs = docs.map(|entry| entry.expect("docs can be listed").path());
    paths.extend(docs.filter(|path| path.extension().is_some_and(|e| e == "md")));
    paths.sort();
    let text = |path: &PathBuf| fs::read_to_string(path).expect("documents are text");
    paths.iter().map(|path| (path.clone(), text(path))).collect()
}

/// Text in back-ticks, also over line ends.
fn inline_code(text: &str) -> impl Iterator<Item = String> + '_ {
    // Blocks by indentation are in no back-ticks.
    let prose: Vec<&str> = text.lines().filter(|line| !line.starts_with("    ")).collect();
    let prose = prose.join("\n");
    let pieces: Vec<String> = prose.split('`').map(str::to_owned).collect();
    pieces.into_iter().skip(1).step_by(2).map(|piece| piece.replace('\n', " "))
}

/// The words of a command of ours, up to a comment or a shell operator; `None` for other commands.
/// Two spaces end a command as well: an explanation follows.
fn command_line(text: &str) -> Option<Vec<String>> {
    let text = text.trim().trim_start_matches("sudo ");
    let text = text.strip_prefix("tierscope ")?;
    let mut words = vec!["tierscope".to_owned()];
    let mut word = String::new();
    let (mut quoted, mut spaces) = (false, 0);
    for c in text.chars().chain([' ']) {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                spaces += 1;
                if spaces > 1 {
                    break;
                }
                match std::mem::take(&mut word).as_str() {
                    "#" | "|" | "&&" | ">" => break,
                    "…" => {}
                    word => words.push(word.trim_end_matches('…').to_owned()),
                }
                continue;
            }
            c => word.push(c),
        }
        spaces = 0;
    }
    words.retain(|word| !word.is_empty());
    let filled = |word: String| match word.as_str() {
        "PID" => "4711".into(),
        "TIME" => "5s".into(),
        "SIZE" => "1GiB".into(),
        _ => word,
    };
    Some(words.into_iter().map(filled).collect())
}

#[test]
fn command_lines_are_split_like_a_shell_does() {
    let words = |text: &str| command_line(text).unwrap_or_default().join("|");
    assert_eq!(words("    sudo tierscope live -p PID   # watch"), "tierscope|live|-p|4711");
    assert_eq!(
        words("tierscope nemo rule \"key all >> 21\" | less"),
        "tierscope|nemo|rule|key all >> 21"
    );
    assert_eq!(words("tierscope reproduce ptat NAME…"), "tierscope|reproduce|ptat|NAME");
    assert_eq!(command_line("cargo run"), None);
}

/// Why a line is refused; help and version are answers, not refusals.
fn refused(words: &[String]) -> Option<clap::Error> {
    let error = args::parse(words.iter().map(OsString::from)).err()?;
    (!matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)).then_some(error)
}

#[test]
fn command_lines_in_documents_parse() {
    let (mut count, mut wrong) = (0, String::new());
    for (path, text) in documents() {
        // A line that ends in a backslash goes on in the next.
        let text = text.replace("\\\n", " ");
        for words in text.lines().filter(|line| line.starts_with("    ")).filter_map(command_line) {
            count += 1;
            if let Some(error) = refused(&words) {
                let _ = writeln!(wrong, "{}: {}: {error}", path.display(), words.join(" "));
            }
        }
        // Text names commands without all that they need; what is there has to be right.
        for words in inline_code(&text).filter_map(|code| command_line(&code)) {
            count += 1;
            let incomplete = [
                ErrorKind::MissingRequiredArgument,
                ErrorKind::MissingSubcommand,
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ];
            let error = refused(&words).filter(|error| !incomplete.contains(&error.kind()));
            if let Some(error) = error {
                let _ = writeln!(wrong, "{}: {}: {error}", path.display(), words.join(" "));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 100, "only {count} command lines were found");
}

#[test]
fn every_command_is_named_in_the_documents() {
    let texts: Vec<String> = documents().into_iter().map(|(_, text)| text).collect();
    let leaves = commands().into_iter().filter(|(_, command)| {
        command.get_subcommands().all(|sub| sub.get_name() == "help" || sub.is_hide_set())
    });
    let unnamed = leaves
        .map(|(path, _)| path.join(" "))
        .filter(|name| !texts.iter().any(|text| text.contains(name.as_str())));
    assert_eq!(unnamed.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn quantities_in_documents_are_read_by_some_unit() {
    let is_quantity = |code: &str| {
        let unit = code.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_');
        let units = ["B", "iB", "B/s", "ms", "us", "ns", "s", "min", "h", "d", "K", "M", "G", "T"];
        code.starts_with(|c: char| c.is_ascii_digit())
            && unit.len() <= 5
            && unit.chars().all(|c| c.is_ascii_alphabetic() || c == '/')
            && units.iter().any(|end| unit.ends_with(end))
    };
    for (path, text) in documents() {
        for code in inline_code(&text).filter(|code| is_quantity(code)) {
            let read = units::rate(&code).is_ok() || units::time(&code).is_ok();
            assert!(read, "{}: `{code}`", path.display());
        }
    }
}
