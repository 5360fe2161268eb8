//! Verdicts on inputs of the corpus, for the plain tests that replay it.

/// Asserts that an input is accepted if its name begins with `good`, and refused otherwise. Inputs
/// that the fuzzer found are named by their hash, and may be either.
pub(crate) fn judge(name: &str, accepted: bool) {
    let found = name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(found || accepted == name.starts_with("good"), "{name}");
}
