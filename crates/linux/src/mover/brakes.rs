//! Brakes that have to be readable: the kill switch, and PSI. A brake whose state is not known
//! holds all moves; one that cannot be read at the start is an error.

use std::fs;
use std::io;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

use super::kernel::parse_pressure;
use super::limits::Limits;

/// State of a kill switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The file does not exist: memory may move.
    Off,
    /// The file exists: nothing moves.
    On,
    /// It is not known whether the file exists (error number of the kernel): nothing moves.
    Unreadable(i32),
}

impl Switch {
    /// The state of the kill switch at `path`. A missing file means `Off` only if its directory can
    /// be found: a service that may not see the directory would find no file in it either.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        let unreadable = |e: &io::Error| Switch::Unreadable(e.raw_os_error().unwrap_or(0));
        match path.symlink_metadata() {
            Ok(_) => Switch::On,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match directory_of(path).metadata() {
                    Ok(_) => Switch::Off,
                    Err(error) => unreadable(&error),
                }
            }
            Err(error) => unreadable(&error),
        }
    }

    /// Whether nothing may move.
    #[must_use]
    pub fn holds(self) -> bool {
        self != Switch::Off
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// File of PSI.
const PRESSURE: &str = "/proc/pressure/memory";

/// Checks that the brakes among the limits can be read on this host.
///
/// # Errors
/// [`ErrorKind::Missing`] without PSI, unless moves do not depend on it; [`ErrorKind::Usage`] if
/// the state of the kill switch is not known.
pub fn check(limits: &Limits) -> Result<()> {
    check_with(limits, Path::new(PRESSURE))
}

fn check_with(limits: &Limits, pressure: &Path) -> Result<()> {
    if let Some(path) = &limits.kill_switch {
        check_switch(path)?;
    }
    let needs_psi = limits.stalled < 1.0 && !limits.dry_run;
    match fs::read_to_string(pressure) {
        _ if !needs_psi => Ok(()),
        Ok(text) if parse_pressure(&text).is_some() => Ok(()),
        Ok(_) => Err(no_pressure(&format!("{} is not understood", pressure.display()))),
        Err(error) => Err(no_pressure(&format!("{}: {error}", pressure.display()))),
    }
}

/// Checks that the state of a kill switch is known.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is not.
pub fn check_switch(path: &Path) -> Result<()> {
    let Switch::Unreadable(errno) = Switch::at(path) else { return Ok(()) };
    Err(Error::new(ErrorKind::Usage, format!("cannot see the kill switch {}", path.display()))
        .cause(format!("{}: {}", directory_of(path).display(), io::Error::from_raw_os_error(errno)))
        .remedy("name a file in a directory that exists and that tierscope may search"))
}

/// The error of a kernel that does not say how long tasks wait for memory.
#[must_use]
pub fn no_pressure(cause: &str) -> Error {
    Error::new(ErrorKind::Missing, "cannot hold while tasks wait for memory")
        .cause(format!("this kernel has no PSI ({cause})"))
        .remedy("boot with psi=1, or do without this brake: `stalled = 1` of tier, `--until-psi 100%` of reclaim")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_whose_state_is_not_known_holds() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Switch::at(&dir.path().join(name));
        assert_eq!(at("hold"), Switch::Off);
        fs::write(dir.path().join("hold"), "").unwrap();
        assert_eq!(at("hold"), Switch::On);
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        assert_eq!(at("link"), Switch::On, "a link to nothing was put there on purpose");
        // A directory that is not there, a file for a directory, a loop of links.
        assert_eq!(at("none/hold"), Switch::Unreadable(libc::ENOENT));
        assert_eq!(at("hold/hold"), Switch::Unreadable(libc::ENOTDIR));
        std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
        assert_eq!(at("loop/hold"), Switch::Unreadable(libc::ELOOP));
        assert!(Switch::Unreadable(0).holds() && Switch::On.holds() && !Switch::Off.holds());
        assert_eq!(Switch::at(Path::new("no-such-switch-here")), Switch::Off);
    }

    #[test]
    fn brakes_that_cannot_be_read_are_refused_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let psi = dir.path().join("memory");
        let limits = Limits::default();
        let error = check_with(&limits, &psi).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains("this kernel has no PSI"), "{error}");
        assert!(error.to_string().contains("boot with psi=1"), "{error}");
        // Neither without this brake, nor in a dry run.
        assert_eq!(check_with(&Limits { stalled: 1.0, ..limits.clone() }, &psi), Ok(()));
        assert_eq!(check_with(&Limits { dry_run: true, ..limits.clone() }, &psi), Ok(()));
        fs::write(&psi, "nothing\n").unwrap();
        assert!(check_with(&limits, &psi).unwrap_err().to_string().contains("not understood"));
        fs::write(&psi, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        assert_eq!(check_with(&limits, &psi), Ok(()));
        let hidden = Limits { kill_switch: Some(dir.path().join("none/hold")), ..limits };
        let error = check_with(&hidden, &psi).unwrap_err();
        assert!(error.to_string().starts_with("cannot see the kill switch"), "{error}");
        assert!(error.to_string().contains("No such file or directory"), "{error}");
    }
}
