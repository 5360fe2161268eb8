//! Capabilities of this process, so that errors can name the missing one.

use std::fs;

/// A capability and its number (`include/uapi/linux/capability.h`).
const NEEDED: [(&str, u32); 2] = [("CAP_SYS_PTRACE", 19), ("CAP_SYS_ADMIN", 21)];

/// Names those capabilities required by the module that this thread lacks.
pub(crate) fn missing() -> String {
    match fs::read_to_string("/proc/thread-self/status").ok().as_deref().and_then(effective) {
        Some(effective) => describe(effective),
        None => "CAP_SYS_PTRACE and CAP_SYS_ADMIN are needed".into(),
    }
}

/// The effective capability set, parsed from /proc/PID/status.
fn effective(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn describe(effective: u64) -> String {
    let missing: Vec<_> =
        NEEDED.iter().filter(|(_, bit)| effective >> bit & 1 == 0).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return "CAP_SYS_PTRACE and CAP_SYS_ADMIN are there, but count in a user namespace only, or \
                a security policy forbids it"
            .into();
    }
    format!("this process lacks {}", missing.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(describe(1 << 19), "this process lacks CAP_SYS_ADMIN");
        assert_eq!(describe(0), "this process lacks CAP_SYS_PTRACE and CAP_SYS_ADMIN");
        assert!(describe(u64::MAX).contains("security policy"));
    }

    #[test]
    fn reads_the_effective_set() {
        let status = "Name:\tx\nCapPrm:\t0\nCapEff:\t00000000002c0000\nCapBnd:\tff\n";
        assert_eq!(effective(status), Some(0x2c_0000));
        assert_eq!(effective("CapEff:\tzz\n"), None);
    }
}
