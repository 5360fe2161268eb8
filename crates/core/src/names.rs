//! Names that users type and read, all in kebab-case: of policies, instruments, workloads, and of
//! their settings.
//!
//! Versions up to 0.1 wrote some of them with `_`. Commands, configurations and recordings with
//! those names are still read: look-ups compare names by [`same`].

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

    proptest! {
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
