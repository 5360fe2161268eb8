//! Checks before the run starts that there is enough memory for all mappings.

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result, units};

/// Memory left free for other processes.
const RESERVE: u64 = 64 << 20;

/// Resources that a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of data pages.
    pub(crate) data: u64,
    /// Bytes of page tables: 8 bytes for each page of 4 KiB, 2 GiB per TiB.
    pub(crate) tables: u64,
    /// Number of mappings (VMAs).
    pub(crate) mappings: u64,
}

impl Needs {
    /// Bytes of data and page tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.data.saturating_add(self.tables)
    }
}

/// Bytes of page tables for `mapped` bytes in pages of 4 KiB: the tables of the lowest level, and a
/// 511th of that for all levels above.
pub(crate) fn tables_for(mapped: u64) -> u64 {
    let lowest = mapped.div_ceil(512);
    lowest + lowest / 511
}

/// Resources that the machine has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    bytes: u64,
    mappings: u64,
}

impl Available {
    /// Reads the available resources from the kernel's files below `root`, usually `/`:
    /// MemAvailable, or less if the control group has less.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let meminfo = root.join("proc/meminfo");
        let text = std::fs::read_to_string(&meminfo).map_err(|e| cannot_read(&meminfo).cause(e))?;
        let available = field_kib(&text, "MemAvailable:")
            .ok_or_else(|| cannot_read(&meminfo).cause("it has no MemAvailable"))?;
        let maps = std::fs::read_to_string(root.join("proc/sys/vm/max_map_count"));
        let mappings = maps.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65_530);
        let bytes = cgroup_available(root).map_or(available, |room| room.min(available));
        Ok(Self { bytes, mappings })
    }

    /// Checks that the resources suffice for `needs`.
    pub(crate) fn check(&self, needs: &Needs) -> Result<()> {
        let wanted = needs.bytes().saturating_add(RESERVE);
        if wanted > self.bytes {
            return Err(Error::new(ErrorKind::Missing, "not enough memory")
                .cause(format!(
                    "{} of data and {} of page tables are needed, {} are available",
                    units::about_size(needs.data),
                    units::about_size(needs.tables),
                    units::about_size(self.bytes)
                ))
                .remedy("take a smaller space, or --backing memfd, which needs page tables only"));
        }
        if needs.mappings + 100 > self.mappings {
            return Err(Error::new(ErrorKind::Missing, "too many mappings")
                .cause(format!(
                    "{} are needed, the kernel allows {}",
                    needs.mappings, self.mappings
                ))
                .remedy("take a larger --chunk, or raise /proc/sys/vm/max_map_count"));
        }
        Ok(())
    }

    /// Needs and available memory as text.
    pub(crate) fn describe(&self, needs: &Needs) -> String {
        format!(
            "{} of data, {} of page tables, {} mappings; available {}",
            units::about_size(needs.data),
            units::about_size(needs.tables),
            needs.mappings,
            units::about_size(self.bytes)
        )
    }
}

fn cannot_read(path: &Path) -> Error {
    Error::new(ErrorKind::Io, format!("cannot read {}", path.display()))
        .remedy("mount procfs: the available memory is read from there")
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let field = text.lines().find_map(|line| line.strip_prefix(name))?;
    field.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes left in the tightest control group above this process; `None` if none is limited.
fn cgroup_available(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = root.join("sys/fs/cgroup");
    let number =
        |dir: &Path, file| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    let left = |dir: &Path| {
        Some(number(dir, "memory.max")?.saturating_sub(number(dir, "memory.current")?))
    };
    let own = mount.join(group);
    own.ancestors().take_while(|dir| dir.starts_with(&mount)).filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn two_gib_of_tables_a_tib() {
        assert_eq!(tables_for(1 << 40) >> 20, 2052);
    }

    #[test]
    fn the_tightest_limit_counts() {
        let root = fake(&[
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   4096000 kB\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("sys/fs/cgroup/a/memory.current", "400000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
        ]);
        assert_eq!(
            Available::read(root.path()).unwrap(),
            Available { bytes: 600_000, mappings: 65_530 }
        );
    }

    #[test]
    fn an_error_names_needed_and_available_memory() {
        let room = Available { bytes: 1 << 30, mappings: 1000 };
        let needs = |data, tables, mappings| room.check(&Needs { data, tables, mappings });
        assert_eq!(needs(512 << 20, 1 << 20, 1), Ok(()));
        let error = needs(64 << 20, 2 << 30, 1).unwrap_err().to_string();
        assert!(error.starts_with("not enough memory: 64 MiB of data and 2 GiB of page tables are needed, 1 GiB are available"), "{error}");
        assert!(
            needs(0, 0, 950)
                .unwrap_err()
                .to_string()
                .contains("950 are needed, the kernel allows 1000")
        );
    }

    #[test]
    fn without_meminfo_it_refuses() {
        let root = fake(&[]);
        assert!(Available::read(root.path()).unwrap_err().to_string().contains("proc/meminfo"));
    }
}
