//! Rust files as text: where they are, and where their literals end.

use std::fs;
use std::path::{Path, PathBuf};

/// Length in bytes of the string or character literal that begins at `at`; `None` if there is none.
pub(crate) fn literal(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let inside_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    if let Some(inner) = rest.strip_prefix('\'') {
        // A lifetime has no closing quote after one character.
        if inner.starts_with('\\') {
            return Some(quoted(rest, '\''));
        }
        let one = inner.chars().next()?.len_utf8();
        return inner[one..].starts_with('\'').then_some(one + 2);
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    if inside_word || !raw[hashes..].starts_with('"') {
        return None;
    }
    let head = rest.len() - raw.len() + hashes + 1;
    let end = format!("\"{}", &raw[..hashes]);
    Some(rest[head..].find(&end).map_or(rest.len(), |body| head + body + end.len()))
}

/// Length of a quoted literal, in which a backslash escapes the next character.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Collects all `.rs` files below a folder, except those of a `target`.
pub(crate) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}
