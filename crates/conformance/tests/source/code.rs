//! Rust files without their comments and literals.

use super::source::literal;

/// The text without comments, and with empty literals.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            Some(rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else {
            literal(text, at)
        };
        if skipped.is_none() {
            code.push(c);
        }
        at += skipped.unwrap_or(c.len_utf8());
    }
    code
}
