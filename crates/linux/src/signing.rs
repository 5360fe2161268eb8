//! Whether this kernel loads an unsigned module: one that was built here is, unless DKMS signed it
//! and its key was enrolled.

/// What helps against a refusal.
pub(crate) const REMEDY: &str = "sign the module with a key that the kernel trusts (docs/install.md, \
                                 Secure Boot), or use `--instrument kernel-damon`";

/// Why an unsigned module is refused; `read` gives the contents of a file.
pub(crate) fn refusal(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let lockdown = read("/sys/kernel/security/lockdown");
    let mode = lockdown.as_deref().and_then(|modes| modes.split(['[', ']']).nth(1));
    if let Some(mode) = mode.filter(|mode| *mode != "none") {
        return Some(format!("unsigned modules are refused: kernel lockdown is {mode}"));
    }
    let enforced = read("/sys/module/module/parameters/sig_enforce");
    (enforced.as_deref().map(str::trim) == Some("Y")).then(|| {
        "unsigned modules are refused: signatures are enforced (module.sig_enforce)".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_and_enforced_signatures_refuse() {
        let cause = |file: &str, text: &str| {
            let read = |path: &str| path.ends_with(file).then(|| text.to_owned());
            refusal(read)
        };
        assert_eq!(cause("lockdown", "[none] integrity confidentiality\n"), None);
        let refused = cause("lockdown", "none [integrity] confidentiality\n").unwrap();
        assert!(refused.ends_with("kernel lockdown is integrity"), "{refused}");
        assert!(cause("sig_enforce", "Y\n").unwrap().contains("sig_enforce"));
        assert_eq!(cause("sig_enforce", "N\n"), None);
        assert_eq!(cause("no-such-file", ""), None);
    }
}
