//! Checks that comments are in plain English: few of the words that replace a noun or a component
//! by a person, and no line over 100 columns. The words are in `prose_words.txt`; the limit is
//! [`MOST`] in 10,000 words of comments.

mod source;

use std::fs;
use std::path::Path;

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let words = fs::read_to_string(root.join("crates/conformance/tests/prose_words.txt")).unwrap();
    let words: Vec<&str> = words.lines().filter(|line| !line.starts_with('#')).collect();
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
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
            let found: usize = words.iter().map(|word| occurrences(&lower, word)).sum();
            matches.extend(std::iter::repeat_n(place.clone(), found));
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
