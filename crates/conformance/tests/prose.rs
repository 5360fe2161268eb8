//! Checks that comments, messages and test names are in plain English: few of the words that
//! replace a noun or a component by a person, and no comment line over 100 columns. The words, and
//! the texts that may hold them, are in `prose_words.txt`. Comments may have [`MOST`] matches in
//! 10,000 words; string literals of the product and names of tests have none.

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::{literal, rust_files};

/// Maximum number of matches in 10,000 words of comments.
const MOST: f64 = 8.0;

/// Maximum length of a line with a comment, in columns.
const COLUMNS: usize = 100;

/// Folders whose `.rs` files are checked.
const FOLDERS: [&str; 3] = ["crates", "lab", "fuzz"];

/// A line comment, or one line of a block comment.
#[derive(Debug, PartialEq)]
struct Comment<'a> {
    /// Line number in the file, from 1.
    line: usize,
    text: &'a str,
}

/// All comments of a Rust file, without text in string and character literals.
fn comments(text: &str) -> Vec<Comment<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else {
            at +=
                literal(text, at).unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8));
            continue;
        };
        let first = text[..at].matches('\n').count() + 1;
        let lines = rest[..length].split('\n').enumerate();
        found.extend(lines.map(|(line, text)| Comment { line: first + line, text }));
        at += length;
    }
    found
}

/// All string literals of a Rust file with their line numbers; line continuations are joined, and
/// placeholders are left out.
fn strings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if let Some(length) = literal(text, at) {
            if !rest.starts_with('\'') {
                let line = text[..at].matches('\n').count() + 1;
                found.push((line, joined(&rest[..length])));
            }
            at += length;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// A string literal without line continuations and without placeholders.
fn joined(literal: &str) -> String {
    let mut lines = literal.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let text = lines.fold(first, |text, line| text + line.trim_start());
    let parts = text.split('{').enumerate();
    let outside = |(at, part): (usize, &str)| match part.split_once('}') {
        Some((name, rest)) if at > 0 && !name.contains(' ') => rest.to_owned(),
        _ => part.to_owned(),
    };
    parts.map(outside).collect()
}

/// Names of the functions that carry `#[test]`, as words, with their line numbers.
fn tests(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut marked = false;
    for (line, text) in text.lines().map(str::trim).enumerate() {
        match text.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
            Some((name, _)) if marked => {
                let name = name.replace("stand_in", "stand-in").replace('_', " ");
                found.push((line + 1, name));
                marked = false;
            }
            _ if text == "#[test]" => marked = true,
            _ => {}
        }
    }
    found
}

/// The file without its unit tests, which are at its end; nothing of files that hold only tests.
fn product<'a>(path: &Path, text: &'a str) -> &'a str {
    let only = path.iter().any(|part| part == "tests") || path.ends_with("tests.rs");
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    if only { "" } else { &text[..end] }
}

/// Words and allowed texts of `prose_words.txt`.
struct Words {
    words: Vec<String>,
    /// Phrases that may hold the words in string literals.
    allowed: Vec<String>,
}

impl Words {
    fn read(root: &Path) -> Words {
        let text = fs::read_to_string(root.join("crates/conformance/tests/prose_words.txt"));
        let text = text.unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let (allowed, words): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with("allow "));
        let phrase = |line: &&str| line.trim_start_matches("allow ").to_owned();
        let words = words.into_iter().map(str::to_owned).collect();
        Words { words, allowed: allowed.iter().map(phrase).collect() }
    }

    /// Number of words of the list in a text.
    fn matches(&self, text: &str) -> usize {
        let text = text.to_lowercase();
        self.words.iter().map(|word| occurrences(&text, word)).sum()
    }

    /// Number of words of the list in a text, except in allowed phrases.
    fn forbidden(&self, text: &str) -> usize {
        let text =
            self.allowed.iter().fold(text.to_owned(), |text, allowed| text.replace(allowed, ""));
        self.matches(&text)
    }
}

/// The repository, and all its Rust files.
fn repository() -> (PathBuf, Vec<PathBuf>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
    (root, files)
}

/// Number of times that a word or phrase occurs as whole words, except if `-in` follows.
fn occurrences(text: &str, word: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: &usize| {
        let (before, after) = (&text[..*at], &text[at + word.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word) && !after.starts_with("-in")
    };
    text.match_indices(word).map(|(at, _)| at).filter(whole).count()
}

#[test]
fn comments_are_in_plain_english() {
    let (root, files) = repository();
    let words = Words::read(&root);
    let (mut all, mut matches, mut long) = (0, Vec::new(), Vec::new());
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        for comment in comments(&text) {
            let place = format!("{}:{}: {}", path.display(), comment.line, comment.text.trim());
            let lower = comment.text.to_lowercase();
            all += lower
                .split(|c: char| !c.is_alphabetic() && c != '\'')
                .filter(|w| !w.is_empty())
                .count();
            matches.extend(std::iter::repeat_n(place.clone(), words.matches(&lower)));
            if lines[comment.line - 1].chars().count() > COLUMNS {
                long.push(place);
            }
        }
    }
    let share = 1e4 * matches.len() as f64 / all as f64;
    println!("{} files, {all} words, {share:.1} matches in 10,000", files.len());
    assert!(share <= MOST, "{share:.1} in 10,000 words:\n{}", matches.join("\n"));
    assert!(long.is_empty(), "over {COLUMNS} columns:\n{}", long.join("\n"));
}

#[test]
fn messages_and_test_names_are_in_plain_english() {
    let (root, files) = repository();
    let words = Words::read(&root);
    let mut found = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).unwrap();
        let inside = path.strip_prefix(&root).unwrap();
        let mut judge = |all: Vec<(usize, String)>| {
            for (line, text) in all {
                let place = format!("{}:{line}: {text}", inside.display());
                found.extend(std::iter::repeat_n(place, words.forbidden(&text)));
            }
        };
        judge(strings(product(inside, &text)));
        judge(tests(&text));
    }
    println!("{} matches in messages and test names", found.len());
    assert!(found.is_empty(), "{} matches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn messages_are_joined_and_placeholders_left_out() {
    let text =
        "f(\"one {told} \\\n    two\", 'x', r#\"tell\"#); // \"no\"\n/* \"no\" */ g(\"{}\");\n";
    let found = strings(text);
    let found: Vec<_> = found.iter().map(|(line, text)| (*line, text.as_str())).collect();
    assert_eq!(found, [(1, "\"one  two\""), (2, "r#\"tell\"#"), (3, "\"\"")]);
}

#[test]
fn only_tests_are_named() {
    let text = "fn told() {}\n#[test]\n#[ignore]\nfn it_tells_a_stand_in() {\n}\nfn anew() {}\n";
    assert_eq!(tests(text), [(4, "it tells a stand-in".to_owned())]);
    let file = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn told() {}\n}\n";
    assert_eq!(product(Path::new("crates/a/src/b.rs"), file), "fn f() {}\n");
    assert_eq!(product(Path::new("crates/a/tests/b.rs"), file), "");
}

#[test]
fn strings_and_lifetimes_hold_no_comments() {
    let text = "let a = \"// no\\\" // no\"; // one\nlet b = r#\"// no \" // no\"#;\n\
                fn f<'a>(c: &'a char) { *c == '\"' } // two\n/* three\nfour */ let d = '\\''; // five\n";
    let found = comments(text);
    let wanted = [(1, "// one"), (3, "// two"), (4, "/* three"), (5, "four */"), (5, "// five")];
    assert_eq!(found.len(), wanted.len(), "{found:?}");
    for (comment, (line, text)) in found.iter().zip(wanted) {
        assert_eq!((comment.line, comment.text), (line, text));
    }
}

#[test]
fn whole_words_count() {
    assert_eq!(occurrences("it stands; a stand-in, standing, stands", "stands"), 2);
    assert_eq!(occurrences("a stand-in", "stand"), 0);
    assert_eq!(occurrences("so many, and so  many", "so many"), 1);
}
