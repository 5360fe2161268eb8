//! The drive loop of policies that limit tenants.

use std::ops::ControlFlow;
use std::time::Duration;

use super::{Course, Ended, pass_time};
use crate::{Result, TenantPolicy, TenantUse, Tenants};

/// An epoch that ended.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// Its length.
    pub time: Duration,
    /// Traffic of each tenant.
    pub tenants: &'a [TenantUse],
    /// CPUs of each tenant from now on; `None` for a tenant that is not limited.
    pub limits: &'a [Option<f64>],
}

/// Lets `policy` limit the tenants behind `ports`: at the end of each epoch, and at once after a
/// notification. `sink` gets each epoch, and may end the loop ([`Ended::Stopped`]). Owners are
/// updated as often as [`Course::mappings_age`] says.
///
/// Limits stay as they are at the end: restoring them is up to the machine.
///
/// # Errors
/// The first error of the machine or the sink.
pub fn cap(
    ports: &mut dyn Tenants,
    policy: &mut dyn TenantPolicy,
    course: &Course,
    sink: &mut dyn FnMut(&Epoch<'_>) -> Result<ControlFlow<()>>,
) -> Result<Ended> {
    let mut tenants = vec![TenantUse::default(); ports.count()];
    let mut limits = vec![None; tenants.len()];
    let mut began = ports.now();
    let mut refreshed = began;
    loop {
        if let Some(ended) = pass_time(ports, began + policy.epoch(), course.until) {
            return Ok(ended);
        }
        let now = ports.now();
        let time = now - began;
        if time < policy.epoch() {
            answer(ports, policy, time, &mut tenants, &mut limits)?;
            continue;
        }
        ports.take(&mut tenants)?;
        began = ports.now();
        policy.epoch_ended(time, &tenants, &mut limits);
        ports.limit(&limits)?;
        if sink(&Epoch { time, tenants: &tenants, limits: &limits })?.is_break() {
            return Ok(Ended::Stopped);
        }
        if now - refreshed >= course.mappings_age {
            ports.refresh()?;
            refreshed = now;
        }
    }
}

/// Answers a notification. It may be early: the threshold of each memory channel is a part of the
/// allowance, but traffic is not split evenly. Then it is rearmed.
fn answer(
    ports: &mut dyn Tenants,
    policy: &mut dyn TenantPolicy,
    elapsed: Duration,
    tenants: &mut [TenantUse],
    limits: &mut [Option<f64>],
) -> Result<()> {
    if !ports.peek(tenants)? {
        return Ok(());
    }
    if policy.notified(elapsed, tenants, limits) { ports.limit(limits) } else { ports.listen() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Error, ErrorKind, Time, Wake};

    const EPOCH: Duration = Duration::from_millis(50);

    /// A tenant that moves a byte a nanosecond and CPU. Notifications arrive at the given times.
    #[derive(Default)]
    struct Toy {
        now: Time,
        notifications: Vec<Time>,
        stop: Option<Time>,
        cpus: Option<f64>,
        began: Time,
        /// What the loop requested, in order.
        calls: Vec<String>,
        broken: bool,
    }

    impl Clock for Toy {
        fn now(&self) -> Time {
            self.now
        }

        fn wait(&mut self, until: Time) -> Wake {
            let event = self.notifications.iter().copied().find(|time| *time > self.now);
            let next = event.map_or(until, |event| event.min(until));
            if let Some(stop) = self.stop.filter(|stop| *stop <= next) {
                self.now = stop;
                return Wake::Stop;
            }
            self.now = next;
            if next < until { Wake::Event } else { Wake::Deadline }
        }
    }

    impl Toy {
        fn bytes(&self) -> TenantUse {
            let bytes = (self.now - self.began).as_nanos() as f64 * self.cpus.unwrap_or(2.0);
            TenantUse { bytes: bytes as u64, entitled: 2.0 }
        }
    }

    impl Tenants for Toy {
        fn count(&self) -> usize {
            1
        }

        fn refresh(&mut self) -> Result<()> {
            self.calls.push("refresh".into());
            Ok(())
        }

        fn take(&mut self, out: &mut [TenantUse]) -> Result<()> {
            out[0] = self.bytes();
            self.began = self.now;
            Ok(())
        }

        fn peek(&mut self, out: &mut [TenantUse]) -> Result<bool> {
            out[0] = self.bytes();
            Ok(true)
        }

        fn listen(&mut self) -> Result<()> {
            self.calls.push("listen".into());
            Ok(())
        }

        fn limit(&mut self, cpus: &[Option<f64>]) -> Result<()> {
            if self.broken {
                return Err(Error::new(ErrorKind::Io, "broken"));
            }
            self.cpus = cpus[0];
            self.calls.push(format!("limit {:?} at {}", cpus[0], self.now));
            Ok(())
        }
    }

    /// Halves the CPUs of a tenant that moved 20,000,000 bytes.
    struct Halves;

    impl TenantPolicy for Halves {
        fn epoch(&self) -> Duration {
            EPOCH
        }

        fn notified(
            &mut self,
            _: Duration,
            tenants: &[TenantUse],
            limits: &mut [Option<f64>],
        ) -> bool {
            let exceeded = tenants[0].bytes >= 20_000_000;
            if exceeded {
                limits[0] = Some(limits[0].unwrap_or(tenants[0].entitled) / 2.0);
            }
            exceeded
        }

        fn epoch_ended(
            &mut self,
            time: Duration,
            tenants: &[TenantUse],
            limits: &mut [Option<f64>],
        ) {
            self.notified(time, tenants, limits);
        }
    }

    fn run(toy: &mut Toy, millis: u64) -> (Result<Ended>, Vec<u64>) {
        let mut epochs = Vec::new();
        let mut sink = |epoch: &Epoch<'_>| {
            epochs.push(epoch.tenants[0].bytes);
            Ok(ControlFlow::Continue(()))
        };
        let course = Course {
            until: toy.now + Duration::from_millis(millis),
            mappings_age: Duration::from_millis(100),
        };
        (cap(toy, &mut Halves, &course, &mut sink), epochs)
    }

    // Two CPUs move 100 MB an epoch, one 50, half a one 25, a quarter 12.5.
    #[test]
    fn limits_follow_each_epoch_and_owners_are_updated() {
        let mut toy = Toy::default();
        let (ended, epochs) = run(&mut toy, 200);
        assert_eq!(ended, Ok(Ended::Deadline));
        assert_eq!(epochs, [100_000_000, 50_000_000, 25_000_000, 12_500_000]);
        let expected = [
            "limit Some(1.0) at 0.050 s",
            "limit Some(0.5) at 0.100 s",
            "refresh",
            "limit Some(0.25) at 0.150 s",
            "limit Some(0.25) at 0.200 s",
            "refresh",
        ];
        assert_eq!(toy.calls, expected);
    }

    // After 5 ms the tenant moved 10 MB: too early. After 15 ms it moved 30 MB.
    #[test]
    fn a_notification_limits_at_once_unless_it_was_early() {
        let notifications = [5, 15].map(|millis| Time(millis * 1_000_000)).to_vec();
        let mut toy = Toy { notifications, ..Toy::default() };
        assert_eq!(run(&mut toy, 40), (Ok(Ended::Deadline), Vec::new()));
        assert_eq!(toy.calls, ["listen", "limit Some(1.0) at 0.015 s"]);
    }

    #[test]
    fn a_stop_and_an_error_end_the_loop() {
        let mut toy = Toy { stop: Some(Time(70_000_000)), ..Toy::default() };
        assert_eq!(run(&mut toy, 1000), (Ok(Ended::Stopped), vec![100_000_000]));
        let mut toy = Toy { broken: true, ..Toy::default() };
        assert_eq!(run(&mut toy, 1000).0.unwrap_err().kind(), ErrorKind::Io);
        let mut toy = Toy::default();
        let mut sink = |_: &Epoch<'_>| Ok(ControlFlow::Break(()));
        let ended = cap(&mut toy, &mut Halves, &Course::until(Time::NEVER), &mut sink);
        assert_eq!((ended, toy.now), (Ok(Ended::Stopped), Time(0) + EPOCH));
    }
}
