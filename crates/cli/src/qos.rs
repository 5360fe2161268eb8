//! `tierscope qos`: caps the memory bandwidth of tenants by limiting the CPU time of their cgroups
//! (NEMO, section 5.3).

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tierscope_core::drive::{Course, Epoch, cap};
use tierscope_core::{Clock, Error, ErrorKind, Result, Time};
use tierscope_linux::HostClock;
use tierscope_linux::memory_controller::{ControllerTraffic, ResctrlTraffic, Traffic};
use tierscope_linux::proc::Cgroup;
use tierscope_linux::tenants::{CpuLimits, LiveTenants, Places, restore};
use tierscope_policies::bandwidth_cap::{BandwidthCap, Held, Settings};

use crate::print::{note, print, written};
use crate::units;

const DEVICE: &str = "/dev/tierscope_device";
/// Interval of progress output, and of updates of the memory that belongs to each tenant.
const SECOND: Duration = Duration::from_secs(1);

/// Source of the tenants' memory traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Programmable memory controllers, which notify at once when a tenant exceeds its allowance
    Nemo,
    /// The processor's bandwidth monitoring, through resctrl
    Mbm,
}

/// Flags of `tierscope qos`.
#[derive(Debug, Args)]
pub struct QosArgs {
    /// A cgroup, and the bytes per second that it may move, like neighbour=1GiB; can be given more
    /// than once
    #[arg(long = "tenant", value_name = "CGROUP=BYTES", required_unless_present = "restore",
          value_parser = tenant)]
    pub tenants: Vec<(PathBuf, u64)>,

    /// Restore the limits that a killed `tierscope qos` left, and end
    #[arg(long, conflicts_with_all = ["tenants", "dry_run", "duration"])]
    pub restore: bool,

    /// Source of the tenants' traffic; by default the first one that is available
    #[arg(long, value_enum)]
    pub by: Option<By>,

    /// Length of an epoch: traffic is checked at its end
    #[arg(long, value_name = "TIME", value_parser = units::time, default_value = "50ms")]
    pub epoch: Duration,

    /// Weight of the newest epoch in the average
    #[arg(long, value_name = "SHARE", value_parser = units::share, default_value = "0.5")]
    pub weight: f64,

    /// Share of the gap to the cap that is corrected in an epoch
    #[arg(long, value_name = "SHARE", value_parser = units::share, default_value = "0.5")]
    pub rate: f64,

    /// Duration; by default until stopped
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub duration: Option<Duration>,

    /// Measure only, and limit no tenant
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON: a line per second and tenant, then the account
    #[arg(long)]
    pub json: bool,

    /// Directory that has /sys and /run of the machine, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
}

fn tenant(text: &str) -> Result<(PathBuf, u64), String> {
    let (path, cap) = text.rsplit_once('=').ok_or("not CGROUP=BYTES, like neighbour=1GiB")?;
    match units::rate(cap)? {
        0 => Err("a cap of 0 would be a stop".into()),
        cap => Ok((path.into(), cap)),
    }
}

/// Runs `tierscope qos`.
///
/// # Errors
/// A cgroup does not exist or has no limits, there is no source of its traffic, or a limit cannot
/// be set or restored.
pub fn run(args: &QosArgs) -> Result<()> {
    let places = Places::below(&args.root);
    if args.restore {
        return restore_left(&places);
    }
    if args.epoch.is_zero() {
        return Err(Error::new(ErrorKind::Usage, "an epoch of no time is none")
            .remedy("leave --epoch out, or give it like 50ms"));
    }
    let mut machine = open(args, &places)?;
    let settings =
        |cap: u64| Settings { weight: args.weight, rate: args.rate, ..Settings::new(cap as f64) };
    let mut policy =
        BandwidthCap::new(args.epoch, args.tenants.iter().map(|(_, cap)| settings(*cap)));
    let begun = machine.now();
    let course = Course {
        until: args.duration.map_or(Time::NEVER, |time| begun + time),
        mappings_age: SECOND,
    };
    let mut progress = Progress::new(args);
    let ended = cap(&mut machine, &mut policy, &course, &mut |epoch| progress.epoch(epoch));
    let (time, spent) = (machine.now() - begun, machine.cpu_time());
    // The limits come first: an error of the loop is reported after them.
    let restored = machine.restore();
    let printed = print_totals(args, policy.held(), time, spent, restored.is_ok());
    restored.and(ended.map(drop)).and(printed)
}

/// Opens limits and traffic of the tenants. From here on signals only end the drive loop.
fn open(args: &QosArgs, places: &Places) -> Result<LiveTenants> {
    let find = |(path, _): &(PathBuf, u64)| Cgroup::find(path, &places.cgroups);
    let cgroups = args.tenants.iter().map(find).collect::<Result<Vec<_>>>()?;
    let mut clock = HostClock::new()?;
    if let Ok(device) = File::open(DEVICE) {
        clock = clock.with_device(device);
    }
    let limits = if args.dry_run {
        CpuLimits::read(places, &cgroups)?
    } else {
        let (limits, warnings) = CpuLimits::open(places, &cgroups)?;
        warnings.iter().for_each(|warning| note!("warning: {warning}"));
        limits
    };
    LiveTenants::begin(clock, limits, traffic(args, places, cgroups)?)
}

/// Opens the requested source of traffic, or the first one that is available.
fn traffic(args: &QosArgs, places: &Places, cgroups: Vec<Cgroup>) -> Result<Box<dyn Traffic>> {
    // One rule serves all tenants: it notifies at the smallest allowance, and each tenant is
    // compared with its own.
    let least = args.tenants.iter().map(|(_, cap)| *cap).min().unwrap_or(0);
    let allowance = (least as f64 * args.epoch.as_secs_f64()) as u64;
    let nemo = |cgroups| -> Result<Box<dyn Traffic>> {
        let found = ControllerTraffic::open(&places.sys, &places.proc, cgroups, allowance)?;
        Ok(Box::new(found))
    };
    let mbm = |cgroups| -> Result<Box<dyn Traffic>> {
        Ok(Box::new(ResctrlTraffic::open(&places.sys.join("fs/resctrl"), cgroups)?))
    };
    match args.by {
        Some(By::Nemo) => nemo(cgroups),
        Some(By::Mbm) => mbm(cgroups),
        None => nemo(cgroups.clone()).or_else(|first| {
            mbm(cgroups).map_err(|second| {
                Error::new(ErrorKind::Missing, "cannot measure the memory traffic of tenants")
                    .cause(format!("{first}; {second}"))
                    .remedy("see `tierscope doctor`")
            })
        }),
    }
}

/// Restores what ended programs left. The first failure is the command's, after all others are
/// restored; the rest are printed.
fn restore_left(places: &Places) -> Result<()> {
    let left = restore(places)?;
    let line = |path: &PathBuf| format!("{}: limit restored\n", path.display());
    print(&left.restored.iter().map(line).collect::<String>())?;
    for pid in &left.running {
        note!("process {pid} still limits its tenants: left alone");
    }
    let mut failed = left.failed.into_iter();
    let first = failed.next();
    failed.for_each(|error| note!("{error}"));
    first.map_or(Ok(()), Err)
}

/// Progress output: the traffic of each second.
struct Progress<'a> {
    args: &'a QosArgs,
    bytes: Vec<u64>,
    time: Duration,
}

impl<'a> Progress<'a> {
    fn new(args: &'a QosArgs) -> Self {
        Self { args, bytes: vec![0; args.tenants.len()], time: Duration::ZERO }
    }

    /// Ends the run if stdout is closed (`| head`).
    fn epoch(&mut self, epoch: &Epoch<'_>) -> Result<ControlFlow<()>> {
        self.time += epoch.time;
        self.bytes.iter_mut().zip(epoch.tenants).for_each(|(sum, tenant)| *sum += tenant.bytes);
        if self.time < SECOND {
            return Ok(ControlFlow::Continue(()));
        }
        let text = self.text(epoch);
        self.bytes.fill(0);
        self.time = Duration::ZERO;
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            result => written(result).map(ControlFlow::Continue),
        }
    }

    /// A line per tenant.
    fn text(&self, epoch: &Epoch<'_>) -> String {
        let mut text = String::new();
        for (number, (path, cap)) in self.args.tenants.iter().enumerate() {
            let rate = self.bytes[number] as f64 / self.time.as_secs_f64();
            let cpus = epoch.limits[number].unwrap_or(epoch.tenants[number].entitled);
            text += &if self.args.json {
                format!("{}\n", json!({ "tenant": path, "bytes_per_second": rate, "cpus": cpus }))
            } else {
                let (rate, cap) = (units::about_size(rate as u64), units::about_size(*cap));
                format!("{}: {rate}/s of {cap}/s with {cpus:.2} CPUs\n", path.display())
            };
        }
        text
    }
}

fn account((path, cap): &(PathBuf, u64), held: &Held, time: Duration) -> Value {
    let Held { bytes, notices, cpus, least, .. } = held;
    json!({
        "tenant": path, "cap": cap, "bytes": bytes,
        "bytes_per_second": *bytes as f64 / time.as_secs_f64().max(f64::EPSILON),
        "notifications": notices, "least_cpus": least, "cpus": cpus,
    })
}

/// Prints the totals of the run, after the limits are restored.
fn print_totals(
    args: &QosArgs,
    held: &[Held],
    time: Duration,
    spent: Duration,
    restored: bool,
) -> Result<()> {
    let share = spent.as_secs_f64() / time.as_secs_f64().max(f64::EPSILON);
    let tenants = args.tenants.iter().zip(held);
    if args.json {
        let accounts: Vec<Value> = tenants.map(|(of, held)| account(of, held, time)).collect();
        let summary = json!({ "seconds": time.as_secs_f64(), "cpu": share, "tenants": accounts });
        return print(&format!("{summary}\n"));
    }
    let line = |((path, _), held): (&(PathBuf, u64), &Held)| {
        let rate = held.bytes as f64 / time.as_secs_f64().max(f64::EPSILON);
        format!(
            "{}: {}/s over {}; {} notifications{}\n",
            path.display(),
            units::about_size(rate as u64),
            units::exact_time(time),
            held.notices,
            held.least.map_or(String::new(), |cpus| format!(", {cpus:.2} CPUs at least")),
        )
    };
    let mut text: String = tenants.map(line).collect();
    text += &format!("tierscope took {:.2} % of a CPU", share * 100.0);
    text += match (args.dry_run, restored) {
        (true, _) => "; no limit was changed\n",
        (false, true) => "; limits are as before\n",
        (false, false) => "\n",
    };
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_a_cgroup_and_a_cap() {
        assert_eq!(tenant("a/b=c=1GiB"), Ok(("a/b=c".into(), 1 << 30)));
        assert!(tenant("a").is_err_and(|why| why.contains("CGROUP=BYTES")));
        assert!(tenant("a=0").is_err_and(|why| why.contains("stop")));
    }
}
