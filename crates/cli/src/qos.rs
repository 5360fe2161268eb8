//! `tierscope qos`: caps the memory bandwidth of tenants by limiting the CPU time of their cgroups
//! (NEMO, section 5.3).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::memory_controller::{
    ControllerTraffic, CpuQuota, InterruptFile, ResctrlTraffic, Traffic,
};
use tierscope_linux::proc::Cgroup;
use tierscope_policies::bandwidth_cap::{Held, Settings};

use crate::stop::Stop;
use crate::units;

const CGROUPS: &str = "/sys/fs/cgroup";
const RESCTRL: &str = "/sys/fs/resctrl";
const BELL: &str = "/dev/tierscope_device";
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
    #[arg(long = "tenant", value_name = "CGROUP=BYTES", required = true, value_parser = tenant)]
    pub tenants: Vec<(PathBuf, u64)>,

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
}

fn tenant(text: &str) -> Result<(PathBuf, u64), String> {
    let (path, cap) = text.rsplit_once('=').ok_or("not CGROUP=BYTES, like neighbour=1GiB")?;
    match units::rate(cap)? {
        0 => Err("a cap of 0 would be a stop".into()),
        cap => Ok((path.into(), cap)),
    }
}

/// A tenant, and the CPU quota of its cgroup.
struct Tenant {
    path: PathBuf,
    cap: u64,
    held: Held,
    quota: Option<CpuQuota>,
    /// Bytes in the current second.
    recent: u64,
}

impl Tenant {
    fn new(path: &Path, cap: u64, cgroup: &Cgroup, args: &QosArgs, cpus: f64) -> Result<Self> {
        let quota = if args.dry_run { None } else { Some(CpuQuota::of(cgroup)?) };
        let settings = Settings::new(cap as f64, cpus);
        let settings = Settings { weight: args.weight, rate: args.rate, ..settings };
        Ok(Self { path: path.to_owned(), cap, held: Held::new(settings), quota, recent: 0 })
    }

    /// Checks the tenant's bytes `elapsed` into an epoch; lowers its quota if they reach its
    /// allowance.
    fn look(&mut self, bytes: u64, elapsed: Duration, epoch: Duration) -> Result<bool> {
        let enough = self.held.look(bytes, elapsed, epoch);
        if enough {
            self.limit()?;
        }
        Ok(enough)
    }

    fn end_of_epoch(&mut self, bytes: u64, time: Duration) -> Result<()> {
        self.recent += bytes;
        if self.held.end_of_epoch(bytes, time) { self.limit() } else { Ok(()) }
    }

    fn limit(&mut self) -> Result<()> {
        match &mut self.quota {
            Some(quota) => quota.set(self.held.quota()),
            None => Ok(()),
        }
    }

    fn account(&self, time: Duration) -> Value {
        let Held { bytes, notices, least, .. } = self.held;
        json!({
            "tenant": self.path, "cap": self.cap, "bytes": bytes,
            "bytes_per_second": bytes as f64 / time.as_secs_f64().max(f64::EPSILON),
            "notifications": notices, "least_cpus": least, "cpus": self.held.quota(),
        })
    }
}

/// Runs `tierscope qos`.
///
/// # Errors
/// A cgroup does not exist or has no limits, or there is no source of its traffic.
pub fn run(args: &QosArgs) -> Result<()> {
    if args.epoch.is_zero() {
        return Err(Error::new(ErrorKind::Usage, "an epoch of no time is none")
            .remedy("leave --epoch out, or give it like 50ms"));
    }
    let find = |(path, _): &(PathBuf, u64)| Cgroup::find(path, Path::new(CGROUPS));
    let cgroups = args.tenants.iter().map(find).collect::<Result<Vec<_>>>()?;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64;
    let tenants = args.tenants.iter().zip(&cgroups);
    let tenants = tenants.map(|((path, cap), cgroup)| Tenant::new(path, *cap, cgroup, args, cpus));
    let mut tenants = tenants.collect::<Result<Vec<_>>>()?;
    let mut traffic = traffic(args, cgroups)?;
    let stop = Stop::on_signals()?;
    let (begun, spent) = (Instant::now(), cpu_time());
    let ended = hold(args, &mut tenants, traffic.as_mut(), &stop);
    let (time, spent) = (begun.elapsed(), cpu_time() - spent);
    print_totals(args, &tenants, time, spent);
    ended
}

/// Opens the requested source of traffic, or the first one that is available.
fn traffic(args: &QosArgs, cgroups: Vec<Cgroup>) -> Result<Box<dyn Traffic>> {
    // One rule serves all tenants: it notifies at the smallest allowance, and each tenant is
    // compared with its own.
    let least = args.tenants.iter().map(|(_, cap)| *cap).min().unwrap_or(0);
    let allowance = (least as f64 * args.epoch.as_secs_f64()) as u64;
    let nemo = |cgroups| -> Result<Box<dyn Traffic>> {
        let found =
            ControllerTraffic::open(Path::new("/sys"), Path::new("/proc"), cgroups, allowance)?;
        Ok(Box::new(found))
    };
    let mbm = |cgroups| -> Result<Box<dyn Traffic>> {
        Ok(Box::new(ResctrlTraffic::open(Path::new(RESCTRL), cgroups)?))
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

fn hold(
    args: &QosArgs,
    tenants: &mut [Tenant],
    traffic: &mut dyn Traffic,
    stop: &Stop,
) -> Result<()> {
    let bell = InterruptFile::at(Path::new(BELL));
    let until = args.duration.map(|time| Instant::now() + time);
    let mut bytes = vec![0; tenants.len()];
    traffic.refresh()?;
    traffic.take(&mut bytes)?;
    let (mut second, mut epoch) = (Instant::now(), Instant::now());
    while !stop.is_asked() && until.is_none_or(|until| Instant::now() < until) {
        let elapsed = epoch.elapsed();
        if let Some(left) = args.epoch.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            if bell.wait(left) && traffic.peek(&mut bytes)? {
                let elapsed = epoch.elapsed();
                let mut enough = false;
                for (tenant, bytes) in tenants.iter_mut().zip(&bytes) {
                    enough |= tenant.look(*bytes, elapsed, args.epoch)?;
                }
                if !enough {
                    // The notification was early: each channel's threshold is half the allowance,
                    // but traffic is not split exactly in half.
                    traffic.listen()?;
                }
            }
            continue;
        }
        traffic.take(&mut bytes)?;
        epoch = Instant::now();
        for (tenant, bytes) in tenants.iter_mut().zip(&bytes) {
            tenant.end_of_epoch(*bytes, elapsed)?;
        }
        if second.elapsed() >= SECOND {
            print_rates(args, tenants, second.elapsed());
            second = Instant::now();
            traffic.refresh()?;
        }
    }
    Ok(())
}

/// Prints the traffic of the last second, one line per tenant.
fn print_rates(args: &QosArgs, tenants: &mut [Tenant], time: Duration) {
    for tenant in tenants {
        let rate = std::mem::take(&mut tenant.recent) as f64 / time.as_secs_f64();
        if args.json {
            let cpus = tenant.held.quota();
            println!(
                "{}",
                json!({ "tenant": tenant.path, "bytes_per_second": rate, "cpus": cpus })
            );
        } else {
            let (path, cap) = (tenant.path.display(), units::about_size(tenant.cap));
            let (rate, cpus) = (units::about_size(rate as u64), tenant.held.quota());
            println!("{path}: {rate}/s of {cap}/s with {cpus:.2} CPUs");
        }
    }
}

/// Prints the totals of the run.
fn print_totals(args: &QosArgs, tenants: &[Tenant], time: Duration, spent: Duration) {
    let share = spent.as_secs_f64() / time.as_secs_f64().max(f64::EPSILON);
    if args.json {
        let accounts: Vec<Value> = tenants.iter().map(|tenant| tenant.account(time)).collect();
        let summary = json!({ "seconds": time.as_secs_f64(), "cpu": share, "tenants": accounts });
        return println!("{summary}");
    }
    for tenant in tenants {
        let rate = tenant.held.bytes as f64 / time.as_secs_f64().max(f64::EPSILON);
        println!(
            "{}: {}/s over {}; {} notifications, {:.2} CPUs at least",
            tenant.path.display(),
            units::about_size(rate as u64),
            units::exact_time(time),
            tenant.held.notices,
            tenant.held.least,
        );
    }
    println!("tierscope took {:.2} % of a CPU; limits are as before", share * 100.0);
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
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
