//! Opening a live machine by what a run needs of it: the one place that decides which ports are
//! opened, for all commands.

use std::path::Path;
use std::rc::Rc;

use tierscope_core::{Error, ErrorKind, Need, Result, SpaceId};

use crate::kernel_damon::Config;
use crate::memory_controller::{TlbMisses, controllers, root_of};
use crate::module::{Module, Sharing};
use crate::perf::{self, EventOpener, PerfEventOpen, Source};
use crate::{LiveMachine, Selection};

/// Command block of the telemetry device that programs controllers: one driver at a time.
const COMMANDS: usize = 1;

/// How evidence is taken, if a run needs it.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Whether other sessions may clear the ACCESSED bits.
    pub sharing: Sharing,
    /// Samples per second and CPU, of loads and of stores each.
    pub frequency: u64,
    /// Set-up of the kernel's DAMON.
    pub damon: Config,
}

/// No other sessions; 5 kHz; DAMON's defaults.
impl Default for Sources {
    fn default() -> Self {
        let (sharing, damon) = (Sharing::default(), Config::default());
        Self { sharing, frequency: perf::FREQUENCY, damon }
    }
}

/// Where ports are opened: the running kernel, or a test's stand-in for it.
pub(crate) struct Host<'h> {
    /// Root of sysfs.
    pub(crate) sys: &'h Path,
    pub(crate) events: Rc<dyn EventOpener>,
}

impl Default for Host<'static> {
    fn default() -> Self {
        Self { sys: Path::new("/sys"), events: Rc::new(PerfEventOpen) }
    }
}

/// Kinds of evidence that no program can provide of another process.
const NEVER: [Need; 1] = [Need::HintFaults];

/// Refuses what no live machine can provide: user space cannot arm hint faults in another process.
///
/// # Errors
/// [`ErrorKind::Missing`], with the reason.
pub fn check_needs(what: &str, needs: &[Need]) -> Result<()> {
    match needs.iter().find(|need| NEVER.contains(need)) {
        None => Ok(()),
        Some(need) => {
            Err(Error::new(ErrorKind::Missing, format!("{what} cannot work on a live machine"))
                .cause(format!(
                    "it needs {need}, and user space cannot arm them in another process"
                ))
                .remedy("simulate it with `tierscope sim run`, or choose another one"))
        }
    }
}

/// Refuses two readers of the same ACCESSED bits in one run: each would clear what the other has to
/// see.
fn check_one_reader(needs: &[Need]) -> Result<()> {
    if ![Need::AccessBits, Need::RegionSource].iter().all(|need| needs.contains(need)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Usage, "this policy cannot work with the kernel's DAMON")
        .cause("both clear ACCESSED bits, and each would miss what the other cleared")
        .remedy("choose another policy or instrument"))
}

impl LiveMachine {
    /// Opens the target with the ports that `needs` lists, and no others: the kernel module for
    /// ACCESSED bits, perf_event (or the telemetry device) for samples, the controllers of the
    /// telemetry device for counters, the kernel's DAMON for its regions.
    ///
    /// # Errors
    /// Those of [`LiveMachine::open`] and [`check_needs`]; a port that is needed and missing.
    pub fn for_needs(selection: &Selection, needs: &[Need], sources: &Sources) -> Result<Self> {
        Self::on_host(&Host::default(), selection, needs, sources)
    }

    fn on_host(
        host: &Host<'_>,
        selection: &Selection,
        needs: &[Need],
        sources: &Sources,
    ) -> Result<Self> {
        check_needs("this run", needs)?;
        check_one_reader(needs)?;
        let module = match needs.contains(&Need::AccessBits) {
            true => Ok(Module::open()?.with_sharing(sources.sharing)),
            false => Err(not_needed()),
        };
        let counters = match needs.contains(&Need::Counters) {
            true => Some(controllers(host.sys, COMMANDS)?),
            false => None,
        };
        let mut machine = Self::open(selection, module)?;
        if let Some(counters) = counters {
            machine.set_counters(Box::new(counters));
        }
        if needs.contains(&Need::Samples) {
            machine.open_samples(host, sources.frequency)?;
        }
        if needs.contains(&Need::RegionSource) {
            machine.monitor(sources.damon.clone())?;
        }
        Ok(machine)
    }

    /// Opens a source of samples: the processor's, or that of an instrumented virtual machine.
    fn open_samples(&mut self, host: &Host<'_>, frequency: u64) -> Result<()> {
        let missing = match Source::of_hardware(host.sys) {
            Ok(source) => return self.sample(host, source, frequency),
            Err(missing) => missing,
        };
        let root = |(space, pid): (SpaceId, u32)| Ok((root_of(pid)?, space));
        let roots: Result<Vec<(u64, SpaceId)>> = self.pids().into_iter().map(root).collect();
        match roots.and_then(|roots| TlbMisses::open(host.sys, roots)) {
            Ok(misses) => {
                let misses = misses.of_owners(self.published_owners());
                self.set_samples(Ok(Box::new(misses)));
            }
            // Machines without a PMU are common, those without a telemetry device the rule: the
            // missing PMU is the cause to report.
            Err(_) => return Err(missing.into()),
        }
        Ok(())
    }
}

/// Why a machine has no ACCESSED bits that was opened for a run without need of them.
fn not_needed() -> Error {
    Error::new(ErrorKind::Missing, "neither instrument nor policy of this run works on them")
        .remedy("choose one that does, such as `--instrument rates`")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::perf::file_rings::FileRings;
    use tierscope_core::{Addr, Backing, Clock, Instrument, Lost, Ports, Snapshot, Target};
    use tierscope_instruments::registry::{Common, by_name};

    #[test]
    fn hint_faults_are_refused_with_the_reason() {
        let error = check_needs("instrument hint-fault", &[Need::HintFaults]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        let text = error.to_string();
        assert!(text.contains("hint-fault cannot work on a live machine"), "{text}");
        assert!(text.contains("user space cannot arm them in another process"), "{text}");
        assert!(check_needs("", &[Need::AccessBits, Need::Samples]).is_ok());
    }

    #[test]
    fn two_readers_of_the_same_bits_are_refused() {
        let error = check_one_reader(&[Need::AccessBits, Need::RegionSource]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(check_one_reader(&[Need::Regions, Need::RegionSource]).is_ok());
    }

    // A child that waits for input, and no needs: neither the module nor perf_event is opened.
    #[test]
    fn ports_without_need_are_not_opened() {
        let selection = Selection::Command(vec!["cat".into()]);
        let mut machine = LiveMachine::for_needs(&selection, &[], &Sources::default()).unwrap();
        let missing = machine.access_bits().err().expect("no port was opened");
        assert!(missing.cause.starts_with("neither instrument nor policy"), "{missing:?}");
    }

    /// A sysfs of two CPUs, with PEBS if `precise`.
    fn sysfs(precise: bool) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/system/cpu/online", "0-1\n");
        let levels = if precise { "3\n" } else { "0\n" };
        write("bus/event_source/devices/cpu/caps/max_precise", levels);
        dir
    }

    /// A process that waits for input, with all its mappings made.
    struct Waiting(Child);

    impl Waiting {
        fn start() -> Self {
            let mut cat = Command::new("cat");
            let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            Self(child)
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    /// Opens a process on a machine with file-backed rings, by the needs of PEBS.
    fn open_by_needs_of_pebs(
        sys: &Path,
        rings: &Rc<FileRings>,
        of: &Waiting,
    ) -> Result<LiveMachine> {
        let events: Rc<dyn EventOpener> = Rc::clone(rings) as _;
        let selection = Selection::Process { pid: of.0.id(), children: false };
        let needs = by_name("pebs")?.needs;
        let sources = Sources { frequency: 10_000, ..Sources::default() };
        LiveMachine::on_host(&Host { sys, events }, &selection, needs, &sources)
    }

    /// Steps the instrument until its next snapshot.
    fn next_snapshot(machine: &mut LiveMachine, pebs: &mut dyn Instrument) -> Snapshot {
        loop {
            let step = pebs.step(machine).unwrap();
            if let Some(snapshot) = step.snapshot {
                return snapshot;
            }
            machine.wait(step.wake);
        }
    }

    fn hits(snapshot: &Snapshot, at: Addr) -> Option<f32> {
        let region = snapshot.regions.iter().find(|region| region.range.contains(at));
        region.map(|region| region.hits)
    }

    // `record --instrument pebs` below the command line: opener, rings, samples port, instrument.
    #[test]
    fn pebs_counts_the_samples_of_the_rings() {
        let (sys, rings, process) = (sysfs(true), Rc::new(FileRings::default()), Waiting::start());
        let mut machine = open_by_needs_of_pebs(sys.path(), &rings, &process).unwrap();
        let (loads, stores) = (0x81D0, 0x82D0);
        let opened =
            [(loads, 10_000, 0), (stores, 10_000, 0), (loads, 10_000, 1), (stores, 10_000, 1)];
        assert_eq!(rings.events(), opened);
        assert!(machine.access_bits().is_err(), "the kernel module is not needed");

        let mappings = machine.mappings(Duration::ZERO).unwrap();
        let memory = mappings.mappings.iter().filter(|of| of.backing != Backing::Kernel);
        let starts: Vec<Addr> =
            memory.map(|of| Addr { space: of.range.space, at: of.range.start }).collect();
        // The program and the stack: more than 2 MiB apart.
        let (program, stack) = (starts[0], starts[starts.len() - 1]);
        let common = Common { window: Some(Duration::from_millis(1)), ..Common::default() };
        let mut pebs = by_name("pebs").unwrap().make(None, &common).unwrap();
        let pid = process.0.id();
        rings.sample(0, pid, program.at);
        assert!(pebs.step(&mut machine).unwrap().snapshot.is_none(), "samples before the window");
        (0..6).for_each(|sample| rings.sample(sample % 4, pid, program.at + 8 * sample as u64));
        (0..2).for_each(|ring| rings.sample(ring, pid, stack.at));
        let kernel_address = 1 << 63;
        rings.sample(2, pid, kernel_address);
        rings.sample(3, pid + 1, stack.at);
        let snapshot = next_snapshot(&mut machine, pebs.as_mut());
        assert_eq!((hits(&snapshot, program), hits(&snapshot, stack)), (Some(6.0), Some(2.0)));
    }

    #[test]
    fn samples_lost_in_the_rings_are_counted() {
        let (sys, rings, process) = (sysfs(true), Rc::new(FileRings::default()), Waiting::start());
        let mut machine = open_by_needs_of_pebs(sys.path(), &rings, &process).unwrap();
        rings.lose(1, 40);
        rings.lose(2, 2);
        let mut samples = Vec::new();
        assert_eq!(machine.samples().unwrap().drain(&mut samples), Lost(42));
        assert!(samples.is_empty());
    }

    // CPU 1 goes, and CPU 3 comes; then CPU 1 returns, with events of its own.
    #[test]
    fn cpus_that_come_are_sampled() {
        let (sys, rings, process) = (sysfs(true), Rc::new(FileRings::default()), Waiting::start());
        let mut machine = open_by_needs_of_pebs(sys.path(), &rings, &process).unwrap();
        let set_online = |cpus: &str| {
            fs::write(sys.path().join("devices/system/cpu/online"), cpus).unwrap();
        };
        let mut drain = || {
            let mut samples = Vec::new();
            for _ in 0..100 {
                machine.samples().unwrap().drain(&mut samples);
            }
            samples.len()
        };
        assert_eq!((drain(), rings.events().len()), (0, 4));
        set_online("0,3\n");
        rings.sample(2, process.0.id(), 4096);
        assert_eq!(drain(), 1, "a sample of a CPU before it went");
        let cpus = |rings: &FileRings| rings.events().iter().map(|of| of.2).collect::<Vec<_>>();
        assert_eq!(cpus(&rings), [0, 0, 1, 1, 3, 3]);
        set_online("0-1,3\n");
        drain();
        assert_eq!(cpus(&rings), [0, 0, 1, 1, 3, 3, 1, 1]);
        (0..8).for_each(|ring| rings.sample(ring, process.0.id(), 4096));
        assert_eq!(drain(), 6, "all but the two rings that were closed");
    }

    // The telemetry device is missing, too; the cause is the PMU.
    #[test]
    fn a_machine_without_a_pmu_is_refused_with_the_reason() {
        let (sys, rings, process) = (sysfs(false), Rc::new(FileRings::default()), Waiting::start());
        let error = open_by_needs_of_pebs(sys.path(), &rings, &process).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Missing);
        let text = error.to_string();
        assert!(text.contains("no PMU that samples addresses"), "{text}");
        assert!(text.contains("; use hardware with PEBS or IBS"), "{text}");
        assert_eq!(rings.events(), []);
    }
}
