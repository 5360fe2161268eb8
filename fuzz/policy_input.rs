//! Body of the fuzz target `policy`; crates/policies replays the corpus with it.

use tierscope_policies::make;

/// Makes a policy from its specification. The settings that it reports make an equal policy.
pub(crate) fn read(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok(policy) = make(text.trim_end_matches('\n')) else { return false };
    let settings = policy.settings();
    let words: Vec<String> =
        settings.iter().map(|setting| format!("{}={}", setting.name, setting.value)).collect();
    let line = format!("{}:{}", policy.name(), words.join(","));
    let again = make(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(again.settings(), settings, "{line}");
    true
}
