//! The kernel's own choice of pages, by memory.reclaim of a cgroup: requested in small pieces,
//! within the same limits.

use std::time::Duration;

use serde_json::json;
use tierscope_core::{Clock, Error, ErrorKind, Result, Time, Wake};
use tierscope_linux::reclaim::{Reclaimable, Swap};
use tierscope_linux::tiering::brakes::{self, Switch};
use tierscope_linux::{HostClock, Selection};

use super::args::ReclaimArgs;
use super::directory;
use crate::print::note;
use crate::units::about_size;

/// Bytes per request: the amount that a kernel reclaims in about 100 ms.
const PIECE: u64 = 64 << 20;
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a request that was only partly fulfilled.
const REST: Duration = Duration::from_secs(1);
/// Interval over which refaults are compared with reclaimed memory.
const SPAN: Duration = Duration::from_secs(10);

/// Sums over the requests: bytes requested and reclaimed, and requests that fell short or were held
/// back.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    asked: u64,
    reclaimed: u64,
    short: u64,
    held: u64,
}

/// Runs `tierscope reclaim --policy kernel`.
///
/// # Errors
/// No cgroup, no memory controller, no swap, or a target that exceeds the free swap.
pub(super) fn run(args: &ReclaimArgs) -> Result<()> {
    let Selection::Cgroup(path) = &args.target.clone().selection(Vec::new()) else {
        return Err(Error::new(ErrorKind::Usage, "cannot ask the kernel")
            .cause("memory.reclaim is a cgroup's")
            .remedy("name a single one with --cgroup PATH, or choose another policy"));
    };
    if args.dry_run {
        return Err(Error::new(ErrorKind::Usage, "cannot ask the kernel what it would do")
            .cause("memory.reclaim acts at once")
            .remedy("leave --dry-run out, or choose another policy"));
    }
    let cgroup = Reclaimable::open(&directory(path))?;
    let room = Swap::default().check(args.into.into())?;
    let before = cgroup.current() + cgroup.swapped();
    let wanted = args.share.map(|share| (before as f64 * share) as u64);
    let still = wanted.unwrap_or(0).saturating_sub(cgroup.swapped());
    room.check(still)?;
    if cgroup.swap_left().is_some_and(|left| left < still) {
        return Err(Error::new(ErrorKind::Usage, "cannot give so much of the cgroup back")
            .cause("its memory.swap.max is below that")
            .remedy("aim at less with --target, or raise the limit"));
    }
    if let Some(path) = &args.hold {
        brakes::check_switch(path)?;
    }
    if args.until_psi.is_none_or(|limit| limit < 1.0) && cgroup.stalled().is_none() {
        return Err(brakes::no_pressure("the cgroup's memory.pressure cannot be read"));
    }
    let mut clock = HostClock::new()?;
    let (began, refaults) = (clock.now(), cgroup.refaults());
    let tally = hold(args, &cgroup, wanted, &mut clock)?;
    print(args, clock.now() - began, &tally, cgroup.refaults().saturating_sub(refaults))
}

/// Sends requests until the run ends.
fn hold(
    args: &ReclaimArgs,
    cgroup: &Reclaimable,
    wanted: Option<u64>,
    clock: &mut dyn Clock,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let until = args.duration.map_or(Time::NEVER, |duration| clock.now() + duration);
    let mut marks = (clock.now(), cgroup.refaults(), 0);
    let mut pause = Duration::ZERO;
    while clock.wait((clock.now() + pause).min(until)) != Wake::Stop && clock.now() < until {
        if clock.now() - marks.0 >= SPAN {
            marks = (clock.now(), cgroup.refaults(), tally.reclaimed);
        }
        let back = cgroup.refaults().saturating_sub(marks.1) as f64;
        let too_many =
            back > args.refaults * (tally.reclaimed - marks.2) as f64 && back > 131_072.0;
        let limit = args.until_psi.unwrap_or(0.1);
        let waits = limit < 1.0 && cgroup.stalled().is_none_or(|share| share > limit);
        let held = args.hold.as_deref().is_some_and(|file| Switch::at(file).holds());
        let left = wanted.map_or(PIECE, |wanted| wanted.saturating_sub(cgroup.swapped()));
        let piece = args.rate.map_or(PIECE, |rate| rate / 10).clamp(4096, PIECE).min(left);
        if waits || held || too_many || piece < 4096 {
            tally.held += u64::from(waits || held || too_many);
            pause = PAUSE;
            continue;
        }
        let asked = cgroup.reclaim(piece)?;
        tally.asked += piece;
        tally.reclaimed += asked.reclaimed;
        tally.short += u64::from(asked.short);
        pause = if asked.short { REST } else { PAUSE };
    }
    Ok(tally)
}

fn print(args: &ReclaimArgs, time: Duration, tally: &Tally, refaulted: u64) -> Result<()> {
    note!(
        "asked the kernel for {} in {:.1} s: {} reclaimed, {} refaulted",
        about_size(tally.asked),
        time.as_secs_f64(),
        about_size(tally.reclaimed),
        about_size(refaulted),
    );
    if !args.json {
        return Ok(());
    }
    let text = json!({
        "policy": super::KERNEL,
        "seconds": time.as_secs_f64(),
        "account": {
            "asked": tally.asked,
            "reclaimed": tally.reclaimed,
            "refaulted": refaulted,
            "requests_short": tally.short,
            "turns_held": tally.held,
        },
    });
    crate::print::print(&format!("{text:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse};

    /// Stops at a time.
    struct Toy {
        now: Time,
        stop: Time,
    }

    impl Clock for Toy {
        fn now(&self) -> Time {
            self.now
        }

        fn wait(&mut self, until: Time) -> Wake {
            self.now = self.now.max(until.min(self.stop));
            if self.now == self.stop { Wake::Stop } else { Wake::Deadline }
        }
    }

    const IDLE: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

    fn requests(stop: Duration, files: &[&str]) -> (u64, u64) {
        requests_under(Some(IDLE), stop, files)
    }

    fn requests_under(psi: Option<&str>, stop: Duration, files: &[&str]) -> (u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = psi {
            std::fs::write(dir.path().join("memory.pressure"), text).unwrap();
        }
        for file in ["memory.current", "memory.reclaim", "memory.swap.max"].iter().chain(files) {
            std::fs::write(dir.path().join(file), "1").unwrap();
        }
        let hold = dir.path().join("hold").display().to_string();
        let line = "tierscope reclaim --cgroup a --policy kernel --duration 1s --hold";
        let words = line.split(' ').chain([&*hold]).map(Into::into);
        let Command::Reclaim(args) = parse(words).unwrap().command else { panic!("it reclaims") };
        let mut clock = Toy { now: Time(5), stop: Time(5) + stop };
        let cgroup = Reclaimable::open(dir.path()).unwrap();
        let tally = super::hold(&args, &cgroup, None, &mut clock).unwrap();
        (tally.asked / PIECE, tally.held)
    }

    // A request each 100 ms: at 0, 100, 200, … 900 ms; a signal after 250 ms ends them.
    #[test]
    fn requests_have_pauses_until_the_end_or_a_signal() {
        assert_eq!(requests(Duration::from_secs(9), &[]), (10, 0));
        assert_eq!(requests(Duration::from_millis(250), &[]), (3, 0));
        assert_eq!(requests(Duration::from_secs(9), &["hold"]), (0, 10));
    }

    #[test]
    fn requests_wait_under_pressure_and_without_psi() {
        let long = Duration::from_secs(9);
        let busy = IDLE.replacen("0.00", "12.00", 1);
        assert_eq!(requests_under(Some(&busy), long, &[]), (0, 10));
        assert_eq!(requests_under(Some("damaged"), long, &[]), (0, 10));
        assert_eq!(requests_under(None, long, &[]), (0, 10));
    }
}
