//! The sysfs tree of the kernel's DAMON (Documentation/admin-guide/mm/damon/usage.rst).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Missing, Result};

use super::mark::{self, Mark};
use super::{Config, Goal};
use crate::proc::Proc;

const PORT: &str = "regions of the kernel's DAMON";

/// One kdamond of ours, on or off. Dropping this restores the sysfs tree to its initial, empty
/// state.
#[derive(Debug)]
pub(crate) struct Admin {
    root: PathBuf,
    pid: u32,
    mark: Mark,
}

impl Admin {
    /// Sets up one kdamond that monitors the processes `pids`, and turns it on. What a killed
    /// process left, by its mark in `marks`, is cleared before.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the kernel has no DAMON or lacks a feature that `config` needs;
    /// [`ErrorKind::Other`] if DAMON is already in use.
    pub(crate) fn start(
        (root, proc, marks): (&Path, &Path, &Path),
        config: &Config,
        pids: &[u32],
    ) -> Result<Self> {
        mark::clear_left(marks, root)?;
        let nr_kdamonds = root.join("kdamonds/nr_kdamonds");
        match fs::read_to_string(&nr_kdamonds) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_damon().into()),
            Err(error) => return Err(refused(&nr_kdamonds, &error)),
            Ok(text) if text.trim() != "0" => return Err(in_use(root, text.trim())),
            Ok(_) => {}
        }
        check_no_kdamond_runs(proc)?;
        let mut admin = Self { root: root.to_owned(), pid: 0, mark: Mark::put(marks)? };
        admin.set("kdamonds/nr_kdamonds", 1)?;
        admin.mark.note(&root.join("kdamonds/0"))?;
        admin.configure(config, pids)?;
        admin.turn("on")?;
        admin.pid = admin.read("kdamonds/0/pid")?.parse().unwrap_or(0);
        Ok(admin)
    }

    fn configure(&self, config: &Config, pids: &[u32]) -> Result<()> {
        self.set("kdamonds/0/contexts/nr_contexts", 1)?;
        self.set_in_context("operations", "vaddr")?;
        let intervals = "monitoring_attrs/intervals";
        self.set_in_context(&format!("{intervals}/sample_us"), config.sampling.as_micros())?;
        self.set_in_context(&format!("{intervals}/aggr_us"), config.window.as_micros())?;
        self.set_in_context(&format!("{intervals}/update_us"), config.update.as_micros())?;
        if let Some(goal) = &config.goal {
            self.set_goal(goal)?;
        }
        self.set_in_context("monitoring_attrs/nr_regions/min", config.min_regions)?;
        self.set_in_context("monitoring_attrs/nr_regions/max", config.max_regions)?;
        self.set_targets(pids)
    }

    fn set_targets(&self, pids: &[u32]) -> Result<()> {
        self.set_in_context("targets/nr_targets", pids.len())?;
        let set = |(index, pid)| self.set_in_context(&format!("targets/{index}/pid_target"), pid);
        pids.iter().enumerate().try_for_each(set)
    }

    /// Monitors the processes `pids` from now on, in a running kdamond or, if its targets have
    /// ended, in a new one. Returns whether the kernel accepted them: it does not if one of them
    /// has ended.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub(crate) fn change(&mut self, pids: &[u32]) -> Result<bool> {
        self.set_targets(pids)?;
        let state = if self.runs()? { "commit" } else { "on" };
        if self.turn(state).is_err() {
            return Ok(false);
        }
        self.pid = self.read("kdamonds/0/pid")?.parse().unwrap_or(0);
        Ok(true)
    }

    /// Configures the auto-tuning of intervals, available since Linux 6.15.
    fn set_goal(&self, goal: &Goal) -> Result<()> {
        let directory = "monitoring_attrs/intervals/intervals_goal";
        if !self.root.join("kdamonds/0/contexts/0").join(directory).is_dir() {
            return Err(no_goal().into());
        }
        let set =
            |file: &str, value: u128| self.set_in_context(&format!("{directory}/{file}"), value);
        set("access_bp", u128::from(goal.access_bp))?;
        set("aggrs", u128::from(goal.aggrs))?;
        set("min_sample_us", goal.min_sampling.as_micros())?;
        set("max_sample_us", goal.max_sampling.as_micros())
    }

    fn set_in_context(&self, file: &str, value: impl std::fmt::Display) -> Result<()> {
        self.set(&format!("kdamonds/0/contexts/0/{file}"), value)
    }

    fn set(&self, file: &str, value: impl std::fmt::Display) -> Result<()> {
        let path = self.root.join(file);
        fs::write(&path, value.to_string()).map_err(|e| refused(&path, &e))
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.root.join(file);
        let text = fs::read_to_string(&path).map_err(|e| refused(&path, &e))?;
        Ok(text.trim().to_owned())
    }

    fn turn(&self, state: &str) -> Result<()> {
        self.set("kdamonds/0/state", state)
    }

    /// Whether the kdamond runs: it stops by itself when all targets have ended.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub(crate) fn runs(&self) -> Result<bool> {
        Ok(self.read("kdamonds/0/state")? == "on")
    }

    /// Pid of the kdamond, a kernel thread.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The sampling and aggregation intervals in force, as set by auto-tuning.
    ///
    /// # Errors
    /// If they cannot be read or parsed.
    pub(crate) fn tuned(&self) -> Result<(Duration, Duration)> {
        self.turn("update_tuned_intervals")?;
        let interval = |name: &str| -> Result<Duration> {
            let file = format!("kdamonds/0/contexts/0/monitoring_attrs/intervals/{name}");
            let text = self.read(&file)?;
            let micros = text.parse().map_err(|_| malformed(&self.root.join(&file), &text))?;
            Ok(Duration::from_micros(micros))
        };
        Ok((interval("sample_us")?, interval("aggr_us")?))
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = self.turn("off");
        let _ = self.set("kdamonds/nr_kdamonds", 0);
    }
}

/// Fails if another kdamond runs. DAMON also runs without sysfs (DAMON_RECLAIM, DAMON_LRU_SORT,
/// DAMON_STAT), and two monitors that clear the same bits blind each other.
fn check_no_kdamond_runs(root: &Path) -> Result<()> {
    let entries = fs::read_dir(root).map_err(|e| refused(root, &e))?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let proc = Proc::at(root);
    for pid in pids {
        let Some(stat) = proc.stat(pid)? else { continue };
        if stat.kernel_thread && stat.comm.starts_with("kdamond") {
            return Err(Error::new(ErrorKind::Other, "cannot use the kernel's DAMON")
                .cause(format!("another program's kdamond runs: pid {pid}"))
                .remedy("turn it off: /sys/module/damon_*/parameters/enabled, or `damo stop`"));
        }
    }
    Ok(())
}

fn in_use(root: &Path, kdamonds: &str) -> Error {
    let directory = root.join("kdamonds");
    let on = (0..kdamonds.parse::<usize>().unwrap_or(0)).find(|index| {
        let state = fs::read_to_string(directory.join(format!("{index}/state")));
        state.is_ok_and(|state| state.trim() == "on")
    });
    let cause = match on {
        Some(index) => format!("another program's kdamond {index} runs"),
        None => format!("another program has set up {kdamonds} kdamonds"),
    };
    let directory = directory.display();
    let off =
        on.map_or_else(String::new, |index| format!("echo off > {directory}/{index}/state; "));
    Error::new(ErrorKind::Other, "cannot use the kernel's DAMON")
        .cause(cause)
        .remedy(format!("if no other program needs it: `{off}echo 0 > {directory}/nr_kdamonds`"))
}

fn no_damon() -> Missing {
    Missing {
        port: PORT,
        cause: "the kernel has no DAMON with sysfs (CONFIG_DAMON_SYSFS)".into(),
        remedy: "use a kernel that has, such as Debian's 6.12, or the instrument damon".into(),
    }
}

fn no_goal() -> Missing {
    Missing {
        port: PORT,
        cause: "this kernel's DAMON does not tune its intervals: Linux 6.15 and later do".into(),
        remedy: "set the intervals yourself, or use the instrument damon".into(),
    }
}

fn refused(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot use the kernel's DAMON: {}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::new(ErrorKind::Permission, what).cause(error).remedy("run as root")
        }
        _ => Error::new(ErrorKind::Io, what)
            .cause(error)
            .remedy("check that the target runs and that min_regions <= max_regions"),
    }
}

fn malformed(path: &Path, text: &str) -> Error {
    Error::new(ErrorKind::Data, format!("cannot understand {}", path.display()))
        .cause(format!("no interval in {text:?}"))
        .remedy("report it with the kernel version (`uname -r`)")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// Creates the files that the kernel creates on `echo 1 > nr_*`.
    pub(crate) fn fake(root: &Path, goal: bool) {
        let context = "kdamonds/0/contexts/0";
        let intervals = format!("{context}/monitoring_attrs/intervals");
        let mut directories = vec![
            intervals.clone(),
            format!("{context}/monitoring_attrs/nr_regions"),
            format!("{context}/targets/0"),
            format!("{context}/targets/1"),
        ];
        directories.extend(goal.then(|| format!("{intervals}/intervals_goal")));
        for directory in directories {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("kdamonds/nr_kdamonds"), "0\n").unwrap();
        fs::write(root.join("kdamonds/0/pid"), "77\n").unwrap();
    }

    fn said(root: &Path, file: &str) -> String {
        fs::read_to_string(root.join(file)).unwrap()
    }

    /// A procfs without processes.
    fn no_processes() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn marks(root: &Path) -> PathBuf {
        root.join("marks")
    }

    fn start(root: &Path, config: &Config, pids: &[u32]) -> Result<Admin> {
        Admin::start((root, no_processes().path(), &marks(root)), config, pids)
    }

    #[test]
    fn settings_are_written_and_restored() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), false);
        let config = Config { min_regions: 1000, max_regions: 20_000, ..Config::default() };
        let admin = start(root.path(), &config, &[42, 43]).unwrap();
        let in_context = |file: &str| said(root.path(), &format!("kdamonds/0/contexts/0/{file}"));
        assert_eq!(in_context("operations"), "vaddr");
        assert_eq!(in_context("monitoring_attrs/intervals/sample_us"), "5000");
        assert_eq!(in_context("monitoring_attrs/intervals/aggr_us"), "200000");
        assert_eq!(in_context("monitoring_attrs/nr_regions/max"), "20000");
        assert_eq!(in_context("targets/nr_targets"), "2");
        assert_eq!(in_context("targets/1/pid_target"), "43");
        assert_eq!((admin.pid(), admin.runs()), (77, Ok(true)));
        drop(admin);
        assert_eq!(said(root.path(), "kdamonds/0/state"), "off");
        assert_eq!(said(root.path(), "kdamonds/nr_kdamonds"), "0");
        assert_eq!(marks(root.path()).read_dir().unwrap().count(), 0);
    }

    // A process was killed while its kdamond ran.
    #[test]
    fn what_a_killed_process_left_does_not_keep_the_next_from_starting() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), false);
        let put = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        put("kdamonds/nr_kdamonds", "1\n");
        put("kdamonds/0/state", "on\n");
        fs::create_dir(marks(root.path())).unwrap();
        let inode = root.path().join("kdamonds/0").metadata().unwrap().ino();
        put(&format!("marks/{}", crate::maker::tests::ENDED), &format!("{inode}\n"));
        let admin = start(root.path(), &Config::default(), &[42]).unwrap();
        assert_eq!(admin.runs(), Ok(true));
    }

    #[test]
    fn a_partial_set_up_is_undone() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), false);
        fs::remove_dir(root.path().join("kdamonds/0/contexts/0/targets/1")).unwrap();
        start(root.path(), &Config::default(), &[42, 43]).unwrap_err();
        assert_eq!(said(root.path(), "kdamonds/nr_kdamonds"), "0");
    }

    #[test]
    fn kdamonds_of_other_programs_are_not_touched() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), false);
        fs::write(root.path().join("kdamonds/nr_kdamonds"), "1\n").unwrap();
        fs::write(root.path().join("kdamonds/0/state"), "on\n").unwrap();
        let error = start(root.path(), &Config::default(), &[42]).unwrap_err();
        assert!(error.to_string().contains("another program's kdamond 0 runs"), "{error}");
        assert_eq!(said(root.path(), "kdamonds/0/state"), "on\n");
        assert_eq!(said(root.path(), "kdamonds/nr_kdamonds"), "1\n");
    }

    #[test]
    fn a_kdamond_without_sysfs_is_detected() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), false);
        let proc = no_processes();
        fs::create_dir(proc.path().join("9")).unwrap();
        let stat = "9 (kdamond.0) S 2 0 0 0 -1 2129984 0 0 0 0 0 9 0 0 20 0 1 0 5 0 0 0";
        fs::write(proc.path().join("9/stat"), stat).unwrap();
        let error = Admin::start(
            (root.path(), proc.path(), &marks(root.path())),
            &Config::default(),
            &[42],
        )
        .unwrap_err();
        assert!(error.to_string().contains("pid 9"), "{error}");
        assert_eq!(said(root.path(), "kdamonds/nr_kdamonds"), "0\n");
    }

    #[test]
    fn missing_kernel_features_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let start = |config: &Config| start(root.path(), config, &[42]).unwrap_err();
        assert!(start(&Config::default()).to_string().contains("CONFIG_DAMON_SYSFS"));
        fake(root.path(), false);
        let error = start(&Config { goal: Some(Goal::default()), ..Config::default() });
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("6.15"), "{error}");
    }

    #[test]
    fn tuned_intervals_are_requested_and_read() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), true);
        let config = Config { goal: Some(Goal::default()), ..Config::default() };
        let admin = start(root.path(), &config, &[42]).unwrap();
        let intervals = "kdamonds/0/contexts/0/monitoring_attrs/intervals";
        assert_eq!(said(root.path(), &format!("{intervals}/intervals_goal/access_bp")), "400");
        let tuned = (Duration::from_millis(5), Duration::from_millis(200));
        assert_eq!(admin.tuned(), Ok(tuned));
        assert_eq!(said(root.path(), "kdamonds/0/state"), "update_tuned_intervals");
        fs::write(root.path().join(intervals).join("aggr_us"), "soon").unwrap();
        assert_eq!(admin.tuned().unwrap_err().kind(), ErrorKind::Data);
    }
}
