//! Names that users type and read, all in kebab-case: of policies, instruments, workloads, and of
//! their settings.
//!
//! Versions up to 0.1 wrote some of them with `_`. Commands, configurations and recordings with
//! those names are still read: look-ups compare names by [`same`].
//!
//! Names that others chose (of mapped files, processes, cgroups, call sites; texts of recordings)
//! pass through [`plain`] where they enter: nothing that is shown can steer a terminal.

use std::borrow::Cow;

/// Whether two spellings are of one name: `_` and `-` are the same character in names.
#[must_use]
pub fn same(one: &str, other: &str) -> bool {
    let spelling = |byte| if byte == b'_' { b'-' } else { byte };
    one.bytes().map(spelling).eq(other.bytes().map(spelling))
}

/// The name in kebab-case.
#[must_use]
pub fn kebab(name: &str) -> String {
    name.replace('_', "-")
}

/// The line `NAME:key=value,…@NAME` with its names and keys in kebab-case, and its values as they
/// are.
#[must_use]
pub fn kebab_line(line: &str) -> String {
    let mut in_value = false;
    let kebab = |letter: char| {
        in_value = match letter {
            '=' => true,
            ',' | '@' => false,
            _ => in_value,
        };
        if letter == '_' && !in_value { '-' } else { letter }
    };
    line.chars().map(kebab).collect()
}

/// Whether a character may be shown: it is neither a control character (C0, DEL, C1) nor a
/// bidirectional mark, nor does it end a line or paragraph.
#[must_use]
pub fn is_plain(letter: char) -> bool {
    let steers = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !letter.is_control() && !steers
}

/// The text with each character that is not [plain](is_plain) written as `\u{1b}`.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_plain(letter) {
            true => shown.push(letter),
            false => shown.extend(letter.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_keep_their_spelling() {
        assert_eq!(
            kebab_line("hot_region:fast_ns=a_b,c_d=e_f@g_h"),
            "hot-region:fast-ns=a_b,c-d=e_f@g-h"
        );
    }

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(plain("\u{1b}]0;x\u{7}"), "\\u{1b}]0;x\\u{7}");
        assert_eq!(plain("a\nb\tc\u{7f}\u{9b}2J"), "a\\u{a}b\\u{9}c\\u{7f}\\u{9b}2J");
        for mark in
            "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}".chars()
        {
            assert_eq!(plain(&mark.to_string()), mark.escape_unicode().to_string());
        }
        let shown = "/usr/lib/libstdc++.so.6 \u{200d}é\u{2065}\u{206a}字";
        assert!(matches!(plain(shown), Cow::Borrowed(same) if same == shown));
    }

    proptest! {
        #[test]
        fn plain_text_is_left_alone(text: String) {
            let shown = plain(&text);
            prop_assert!(shown.chars().all(is_plain));
            prop_assert_eq!(plain(&shown), shown.clone());
            prop_assert_eq!(text.chars().all(is_plain), shown == text);
        }

        #[test]
        fn a_name_is_the_same_in_kebab_case(name: String, other: String) {
            prop_assert!(same(&name, &kebab(&name)));
            prop_assert_eq!(same(&name, &other), kebab(&name) == kebab(&other));
        }

        #[test]
        fn a_line_keeps_its_columns(line: String) {
            let kebab = kebab_line(&line);
            prop_assert_eq!(kebab.len(), line.len());
            prop_assert_eq!(kebab_line(&kebab), kebab);
        }
    }
}
