//! CPUs of the machine.

use std::path::Path;

/// Numbers of the online CPUs, from sysfs at `sys`; empty if it does not list them.
pub(crate) fn online(sys: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(sys.join("devices/system/cpu/online")).unwrap_or_default();
    let span = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(1 << 16))
    };
    text.split(',').filter_map(span).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("devices/system/cpu/online");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "0-2,5\n").unwrap();
        assert_eq!(online(dir.path()), [0, 1, 2, 5]);
        assert!(online(Path::new("/no/such")).is_empty());
    }
}
