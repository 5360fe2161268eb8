//! Limits and journals against a fake cgroup hierarchy.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tierscope_core::{ErrorKind, Result};

use super::*;
use crate::proc::Cgroup;

/// A machine with four CPUs and some cgroups.
struct Host {
    root: tempfile::TempDir,
    places: Places,
}

impl Host {
    fn new(groups: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(root.path()).unwrap();
        let host = Self { root, places: Places::below(&at) };
        host.put("sys/devices/system/cpu/online", "0-3\n");
        groups.iter().for_each(|(name, limit)| host.add(name, limit));
        host
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn group(&self, name: &str) -> PathBuf {
        self.places.cgroups.join(name)
    }

    fn add(&self, name: &str, limit: &str) {
        for (file, text) in
            [("cgroup.procs", ""), ("cgroup.controllers", "cpu"), ("cpu.max", limit)]
        {
            self.put(&format!("sys/fs/cgroup/{name}/{file}"), text);
        }
    }

    fn remove(&self, name: &str) {
        fs::remove_dir_all(self.group(name)).unwrap();
    }

    /// Another cgroup with the same path: surely another inode, as both exist for a moment.
    fn replace(&self, name: &str, limit: &str) {
        self.add("new", limit);
        self.remove(name);
        fs::rename(self.group("new"), self.group(name)).unwrap();
    }

    fn open(&self, names: &[&str]) -> Result<CpuLimits> {
        let find = |name: &&str| Cgroup::find(Path::new(name), &self.places.cgroups).unwrap();
        let cgroups: Vec<_> = names.iter().map(find).collect();
        CpuLimits::open(&self.places, &cgroups).map(|(limits, warnings)| {
            assert!(warnings.is_empty(), "{warnings:?}");
            limits
        })
    }

    /// The first line: a fake file is not truncated by a shorter write.
    fn limit(&self, name: &str) -> String {
        let text = fs::read_to_string(self.group(name).join("cpu.max")).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    }

    fn set(&self, name: &str, limit: &str) {
        fs::write(self.group(name).join("cpu.max"), format!("{limit}\n")).unwrap();
    }

    fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.places.journals) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Ends the owner without a chance to restore: nothing runs, and its journal names a process
    /// that is gone.
    fn kill(&self, limits: CpuLimits) {
        std::mem::forget(limits);
        let [journal] = &self.journals()[..] else { panic!("one journal") };
        let (_, started) = journal.to_str().unwrap().rsplit_once('-').unwrap();
        fs::rename(journal, self.places.journals.join(format!("4194304-{started}"))).unwrap();
    }

    fn write_journal(&self, name: &str, text: &[u8]) {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).recursive(true).create(&self.places.journals).unwrap();
        fs::write(self.places.journals.join(name), text).unwrap();
    }
}

// The limit "before" is one of 2 CPUs: a quarter of a CPU is written with the same period, 3 CPUs
// are more than allowed.
#[test]
fn a_limit_is_never_above_the_administrators() {
    let host = Host::new(&[("a", "40000 20000"), ("b", "max 100000")]);
    let mut limits = host.open(&["a", "b"]).unwrap();
    assert_eq!((limits.entitled(0), limits.entitled(1)), (2.0, 4.0));
    limits.limit(&[Some(0.25), Some(0.25)]).unwrap();
    assert_eq!((host.limit("a"), host.limit("b")), ("5000 20000".into(), "25000 100000".into()));
    limits.limit(&[Some(3.0), Some(64.0)]).unwrap();
    assert_eq!((host.limit("a"), host.limit("b")), ("40000 20000".into(), "400000 100000".into()));
    limits.limit(&[None, None]).unwrap();
    assert_eq!((host.limit("a"), host.limit("b")), ("40000 20000".into(), "max 100000".into()));
}

// The CPUs are those of the machine, also of a process that may run on one of them only.
#[test]
fn cpus_that_come_online_are_counted() {
    let host = Host::new(&[("a", "max 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    host.put("sys/devices/system/cpu/online", "0-63\n");
    limits.refresh();
    assert_eq!(limits.entitled(0), 64.0);
    host.put("sys/devices/system/cpu/online", "");
    limits.refresh();
    assert_eq!(limits.entitled(0), 64.0);
    let error = host.open(&["a"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
}

#[test]
fn dropping_restores_every_kind_of_limit() {
    let host = Host::new(&[("a", "200000 100000"), ("b", "max 50000")]);
    let mut limits = host.open(&["a", "b"]).unwrap();
    assert_eq!(host.limit("a"), "200000 100000", "opening changes nothing");
    limits.limit(&[Some(0.5), Some(0.5)]).unwrap();
    assert_eq!((host.limit("a"), host.limit("b")), ("50000 100000".into(), "25000 50000".into()));
    drop(limits);
    assert_eq!((host.limit("a"), host.limit("b")), ("200000 100000".into(), "max 50000".into()));
    assert!(host.journals().is_empty());
}

// Written before the first change; afterwards it holds the limit in force, so that a change by the
// administrator is distinguished from ours.
#[test]
fn the_next_start_restores_what_a_killed_owner_left() {
    let host = Host::new(&[("a", "200000 100000"), ("b", "max 100000"), ("c", "max 100000")]);
    let mut limits = host.open(&["a", "b", "c"]).unwrap();
    assert_eq!(host.journals().len(), 1);
    limits.limit(&[Some(0.5), Some(0.5), Some(0.5)]).unwrap();
    limits.limit(&[Some(0.01), Some(0.01), Some(0.01)]).unwrap();
    host.kill(limits);
    host.set("b", "70000 100000");
    host.replace("c", "1000 100000");
    let mut limits = host.open(&["a"]).unwrap();
    let found = ["a", "b", "c"].map(|name| host.limit(name));
    assert_eq!(found, ["200000 100000", "70000 100000", "1000 100000"]);
    limits.limit(&[Some(3.0)]).unwrap();
    assert_eq!(host.limit("a"), "200000 100000");
    assert_eq!(host.journals().len(), 1, "that of the new owner");
}

// A kill between the journal and cpu.max, and one right after cpu.max was written.
#[test]
fn a_kill_on_either_side_of_a_write_is_restored() {
    for written in ["50000 100000", "5000 100000"] {
        let host = Host::new(&[("a", "max 100000")]);
        let mut limits = host.open(&["a"]).unwrap();
        limits.limit(&[Some(0.5)]).unwrap();
        limits.limit(&[Some(0.05)]).unwrap();
        host.kill(limits);
        host.set("a", written);
        let found = restore(&host.places).unwrap();
        assert_eq!((found.restored, host.limit("a")), (vec![host.group("a")], "max 100000".into()));
        assert!(host.journals().is_empty());
    }
}

#[test]
fn a_running_owner_keeps_its_limits() {
    let host = Host::new(&[("a", "max 100000"), ("b", "max 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    let found = restore(&host.places).unwrap();
    assert_eq!((found.running, found.restored), (vec![std::process::id()], Vec::new()));
    assert_eq!(host.limit("a"), "50000 100000");
    let error = host.open(&["b", "a"]).unwrap_err();
    let pid = std::process::id().to_string();
    assert!(error.kind() == ErrorKind::Usage && error.to_string().contains(&pid), "{error}");
}

// A process that has the pid of an owner that ended: its start time differs.
#[test]
fn a_pid_that_is_used_again_is_no_owner() {
    let host = Host::new(&[("a", "max 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    std::mem::forget(limits);
    let earlier = format!("{}-1", std::process::id());
    fs::rename(&host.journals()[0], host.places.journals.join(earlier)).unwrap();
    assert_eq!(restore(&host.places).unwrap().restored, [host.group("a")]);
}

#[test]
fn a_tenant_that_returns_is_limited_again_and_the_others_stay() {
    let host = Host::new(&[("a", "max 100000"), ("b", "max 100000")]);
    let mut limits = host.open(&["a", "b"]).unwrap();
    let quarter = [Some(0.25), Some(0.25)];
    limits.limit(&quarter).unwrap();
    host.remove("a");
    limits.limit(&quarter).unwrap();
    assert_eq!((limits.entitled(0), host.limit("b")), (4.0, "25000 100000".into()));
    host.add("a", "300000 100000");
    limits.limit(&quarter).unwrap();
    assert_eq!((limits.entitled(0), host.limit("a")), (3.0, "25000 100000".into()));
    // It returns between two epochs.
    host.replace("a", "max 100000");
    limits.limit(&quarter).unwrap();
    assert_eq!(host.limit("a"), "25000 100000");
    host.replace("b", "25000 100000");
    limits.limit(&quarter).unwrap();
    limits.restore().unwrap();
    assert_eq!((host.limit("a"), host.limit("b")), ("max 100000".into(), "25000 100000".into()));
}

#[test]
fn an_administrators_change_is_kept() {
    let host = Host::new(&[("a", "max 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    host.set("a", "20000 100000");
    limits.limit(&[Some(0.5)]).unwrap();
    assert_eq!((limits.entitled(0), host.limit("a")), (0.2, "20000 100000".into()));
    limits.limit(&[Some(0.1)]).unwrap();
    assert_eq!(host.limit("a"), "10000 100000");
    host.set("a", "150000 50000");
    limits.limit(&[Some(0.1)]).unwrap();
    assert_eq!((limits.entitled(0), host.limit("a")), (3.0, "5000 50000".into()));
    // The change is in the journal, too.
    host.kill(limits);
    restore(&host.places).unwrap();
    assert_eq!(host.limit("a"), "150000 50000");
}

#[test]
fn a_change_after_the_last_epoch_is_kept() {
    let host = Host::new(&[("a", "max 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    host.set("a", "20000 100000");
    limits.restore().unwrap();
    assert_eq!(host.limit("a"), "20000 100000");
}

// A directory takes the place of the file: it can be neither read nor written, by root either.
#[test]
fn a_limit_that_cannot_be_restored_is_reported_with_the_command() {
    let host = Host::new(&[("a", "200000 100000"), ("b", "max 100000")]);
    let mut limits = host.open(&["a", "b"]).unwrap();
    limits.limit(&[Some(0.5), Some(0.5)]).unwrap();
    let file = host.group("a").join("cpu.max");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = limits.restore().unwrap_err();
    let command = format!("echo '200000 100000' > '{}'", file.display());
    assert!(error.to_string().contains(&command) && !error.to_string().contains("/b"), "{error}");
    assert_eq!((error.kind(), host.limit("b")), (ErrorKind::Io, "max 100000".into()));
    // The journal still has it: once the file is back, it is restored.
    fs::remove_dir(&file).unwrap();
    host.set("a", "50000 100000");
    host.kill(limits);
    assert_eq!(restore(&host.places).unwrap().restored, [host.group("a")]);
    assert_eq!(host.limit("a"), "200000 100000");
}

#[test]
fn a_limit_that_cannot_be_restored_stops_the_next_start() {
    let host = Host::new(&[("a", "200000 100000")]);
    let mut limits = host.open(&["a"]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    host.kill(limits);
    host.set("a", "what is this");
    host.add("b", "max 100000");
    let error = host.open(&["b"]).unwrap_err();
    assert!(error.to_string().contains("echo '200000 100000'"), "{error}");
    let failed = restore(&host.places).unwrap().failed;
    assert_eq!((failed.len(), host.journals().len()), (1, 1));
}

#[test]
fn hostile_and_torn_journals_change_nothing() {
    let host = Host::new(&[("a", "1000 100000")]);
    let group = host.group("a");
    let inode = fs::metadata(&group).unwrap().ino();
    fs::create_dir_all(host.root.path().join("etc")).unwrap();
    fs::write(host.root.path().join("etc/cpu.max"), "1000 100000\n").unwrap();
    let of = |limits: &str, path: &Path| format!("{inode}\t{limits}\t{}\n", path.display());
    let ours = "max 100000\t1000 100000\t1000 100000";
    let texts = [
        String::new(),
        "end".into(),
        of(ours, &group),
        format!("{}end\n", of(ours, &host.root.path().join("etc"))),
        format!("{}end\n", of(ours, &group.join("../../../../etc"))),
        format!("{}end\n", of("rm -rf /\t1000 100000\t1000 100000", &group)),
        format!("{}x\nend\n", of(ours, &group)),
    ];
    for (number, text) in texts.iter().enumerate() {
        host.write_journal(&format!("4194304-{number}"), text.as_bytes());
    }
    host.write_journal("4194304-99.new", b"unfinished");
    host.write_journal("notes", b"not a journal");
    let found = restore(&host.places).unwrap();
    assert_eq!((found.failed.len(), found.restored.len()), (texts.len(), 0), "{found:?}");
    assert!(found.failed.iter().all(|error| error.kind() == ErrorKind::Data));
    let etc = fs::read_to_string(host.root.path().join("etc/cpu.max")).unwrap();
    assert_eq!((host.limit("a"), &*etc), ("1000 100000".into(), "1000 100000\n"));
    assert!(host.places.journals.join("notes").exists());
    assert!(!host.places.journals.join("4194304-99.new").exists());
    // Only a directory to which no other user can write is trusted.
    fs::set_permissions(&host.places.journals, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(restore(&host.places).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn damaged_journals_are_a_warning_at_the_next_start() {
    let host = Host::new(&[("a", "max 100000")]);
    host.write_journal("4194304-1", b"torn");
    let cgroup = Cgroup::find(Path::new("a"), &host.places.cgroups).unwrap();
    let (_limits, warnings) = CpuLimits::open(&host.places, &[cgroup]).unwrap();
    assert!(warnings[0].to_string().contains("4194304-1"), "{warnings:?}");
}

#[test]
fn reading_only_changes_nothing_and_writes_no_journal() {
    let host = Host::new(&[("a", "200000 100000")]);
    let cgroup = Cgroup::find(Path::new("a"), &host.places.cgroups).unwrap();
    let mut limits = CpuLimits::read(&host.places, &[cgroup]).unwrap();
    limits.limit(&[Some(0.5)]).unwrap();
    assert_eq!((limits.entitled(0), host.limit("a")), (2.0, "200000 100000".into()));
    drop(limits);
    assert!(!host.places.journals.exists());
}

#[test]
fn a_cgroup_that_cannot_be_limited_is_refused_with_a_remedy() {
    let host = Host::new(&[("a", "max 100000")]);
    fs::remove_file(host.group("a").join("cpu.max")).unwrap();
    let error = host.open(&["a"]).unwrap_err();
    assert!(error.kind() == ErrorKind::Missing && error.to_string().contains("+cpu"), "{error}");
    host.put("elsewhere/cgroup.procs", "");
    host.put("elsewhere/cgroup.controllers", "");
    host.put("elsewhere/cpu.max", "max 100000\n");
    let outside = host.root.path().join("elsewhere");
    let error = host.open(&[outside.to_str().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("not below"), "{error}");
    assert!(host.journals().is_empty());
}
