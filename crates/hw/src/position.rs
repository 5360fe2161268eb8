//! Position of a key in the text of a machine file, for errors that a check of values finds.

use toml::de::{DeTable, DeValue};

/// Byte offset of the value at a path like `tiers[1].read_ns`, or of the innermost table around it
/// that exists; 0 for a text that is no TOML.
pub(crate) fn position_of(text: &str, path: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 0 };
    let mut steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let first = steps.next().unwrap_or_default();
    let root = root.get_ref().iter().find(|(key, _)| key.get_ref() == first);
    let Some((_, mut here)) = root else { return 0 };
    for step in steps {
        let next = match here.get_ref() {
            DeValue::Table(table) => {
                table.iter().find(|(key, _)| key.get_ref() == step).map(|(_, value)| value)
            }
            DeValue::Array(array) => step.parse().ok().and_then(|index: usize| array.get(index)),
            _ => None,
        };
        let Some(next) = next else { break };
        here = next;
    }
    here.span().start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_or_the_table_around_it_is_found() {
        let text = "name = \"a\"\n[one]\nx = 1\n[[two]]\ny = 2\n[[two]]\ny = 3\n";
        let at = |path: &str| &text[position_of(text, path)..];
        assert!(at("one.x").starts_with("1\n"));
        assert!(at("two[1].y").starts_with("3\n"));
        assert!(at("two[1].z").starts_with("[[two]]\ny = 3"), "{}", at("two[1].z"));
        assert_eq!((position_of(text, "three"), position_of("= =", "one")), (0, 0));
    }
}
