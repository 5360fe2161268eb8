//! Checks of a cgroup: which of its memory no page table shows.

use tierscope_core::units;

use super::{Check, Finding, Scene};
use crate::cgroup_memory::CgroupMemory;

const GROUP: &str = "cgroup";

pub(super) fn checks() -> [Check<str>; 1] {
    [Check { id: "unmapped", group: GROUP, title: "page cache, slab", look: unmapped }]
}

/// Checks the memory of the cgroup with this directory.
fn unmapped(scene: &Scene, directory: &str) -> Finding {
    let Some(text) = scene.text(&format!("{directory}/memory.stat")) else {
        return Finding::limited(
            "no memory.stat: page cache and memory of the kernel are not known, nor visible to \
             ACCESSED bits",
            "enable `memory` in cgroup.subtree_control above it",
        );
    };
    let charges = CgroupMemory::parse(text.as_bytes()).charges;
    let bytes = charges.iter().filter(|(charge, bytes)| !charge.is_count() && *bytes > 0);
    let parts: Vec<_> = bytes
        .map(|(charge, bytes)| format!("{} {}", charge.title(), units::about_size(*bytes)))
        .collect();
    match parts.is_empty() {
        true => Finding::present("none that is not mapped"),
        false => Finding::limited(
            format!("{}: in no page table, not visible to ACCESSED bits", parts.join(", ")),
            "none needed: reports have their bytes and the cgroup's refaults; heat of files only \
             where they are mapped",
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict::{Limited, Present};
    use crate::doctor::scene::tests::Tree;
    use crate::doctor::{self, Verdict};

    fn look(files: &[(&str, &str)]) -> (Verdict, String) {
        let answers = doctor::cgroup(&Tree::new(files).scene(), "/sys/fs/cgroup/app");
        let finding = &answers[0].finding;
        (finding.verdict, finding.found.clone())
    }

    #[test]
    fn memory_in_no_page_table_is_named() {
        const STAT: &str = "/sys/fs/cgroup/app/memory.stat";
        let (verdict, found) = look(&[(STAT, "file 3145728\nfile_mapped 1048576\nslab 4096\n")]);
        assert_eq!(verdict, Limited);
        assert_eq!(
            found,
            "page cache 2 MiB, slab 4 KiB: in no page table, not visible to ACCESSED bits"
        );
        let (verdict, found) = look(&[(STAT, "file 4096\nfile_mapped 4096\npgmajfault 3\n")]);
        assert_eq!((verdict, found.as_str()), (Present, "none that is not mapped"));
        let (verdict, found) = look(&[]);
        assert_eq!(verdict, Limited);
        assert!(found.contains("page cache"), "{found}");
    }
}
