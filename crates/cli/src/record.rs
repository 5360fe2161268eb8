//! `tierscope record`: opens a target, and records it with an instrument.

use std::io::{self, IsTerminal, Write};
use std::process::ExitStatus;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tierscope_core::drive::{Course, Ended, Sink, Window};
use tierscope_core::session::Session;
use tierscope_core::{Error, ErrorKind, Ports, Result, Time};
use tierscope_linux::LiveMachine;
use tierscope_linux::heap;
use tierscope_linux::proc::Proc;
use tierscope_record::{Machine, Meta};

use crate::kernel_damon;
use crate::output::Output;
use crate::plan::Plan;
use crate::print::{note, print, print_note};
use crate::progress::{Progress, Tally};
use crate::units::exact_time;

/// Result of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Reason for its end.
    pub ended: Ended,
    /// Totals of its windows.
    pub tally: Tally,
}

/// Records on this host, and prints a summary on stderr (as JSON: on stdout).
///
/// # Errors
/// Any error of target, kernel module or output; [`ErrorKind::Gone`] if the target ended early.
/// Windows that are already committed are kept.
pub fn run(mut plan: Plan, as_json: bool) -> Result<()> {
    let proc = Proc::default();
    plan.selection.check(&proc)?;
    plan.settle()?;
    let plan = &plan;
    let kernel = proc.kernel_release()?;
    let done = on_this_host(plan, &mut |ports| on_terminal(ports, plan, &kernel))?;
    done.report(plan);
    if as_json {
        print_json(plan, &done.recorded, done.status)?;
    }
    check_complete(plan, &done.recorded)
}

/// A finished recording on this host.
#[derive(Debug)]
pub struct Done {
    /// Result of the recording.
    pub recorded: Recorded,
    /// Exit status of the command, if tierscope started one.
    status: Option<ExitStatus>,
    /// Message about the instrument's losses, if there were any.
    losses: Option<String>,
}

impl Done {
    /// Prints on stderr the summary of the recording, and its losses.
    pub fn report(&self, plan: &Plan) {
        if let Some(losses) = &self.losses {
            note!("{losses}");
        }
        print_note(&closing_line(plan, &self.recorded, self.status));
    }
}

/// Opens the plan's target on this host, passes it to `record`, and closes it.
///
/// # Errors
/// The machine cannot be opened; or an error of `record`.
pub fn on_this_host(
    plan: &Plan,
    record: &mut dyn FnMut(&mut dyn Ports) -> Result<Recorded>,
) -> Result<Done> {
    heap::return_large_buffers();
    let needs = plan.instrument.needs;
    let mut machine = LiveMachine::for_needs(&plan.selection, needs, &plan.sources()?)?;
    let before = warn_of_left_out(&machine, None);
    let recorded = record(&mut machine)?;
    warn_of_left_out(&machine, before);
    let losses = kernel_damon::losses(&machine);
    Ok(Done { recorded, status: machine.finish()?, losses })
}

/// Prints how many processes could not be watched, unless `before` says the same; returns it.
pub(crate) fn warn_of_left_out(machine: &LiveMachine, before: Option<String>) -> Option<String> {
    let warning = machine.left_out();
    if let Some(text) = warning.as_ref().filter(|_| warning != before) {
        note!("{text}");
    }
    warning
}

fn on_terminal(ports: &mut dyn Ports, plan: &Plan, kernel: &str) -> Result<Recorded> {
    let mut stderr = io::stderr();
    let terminal = stderr.is_terminal().then_some(&mut stderr as &mut dyn Write);
    record(ports, plan, kernel, terminal)
}

/// Records on any machine.
///
/// # Errors
/// The first error of instrument, machine or output; committed windows are kept.
pub fn record(
    ports: &mut dyn Ports,
    plan: &Plan,
    kernel: &str,
    terminal: Option<&mut dyn Write>,
) -> Result<Recorded> {
    record_and_tell(ports, plan, kernel, terminal, &mut |_| ())
}

/// Events of a recording in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The recording exists and can be opened by readers.
    Begun,
    /// The window that ended at this time was committed.
    Window(Time),
}

/// Records as [`record`] does, and notifies `listener` of events.
///
/// # Errors
/// As [`record`].
pub fn record_and_tell(
    ports: &mut dyn Ports,
    plan: &Plan,
    kernel: &str,
    terminal: Option<&mut dyn Write>,
    listener: &mut dyn FnMut(News),
) -> Result<Recorded> {
    let mut instrument = plan.build_instrument()?;
    let until = plan.duration.map_or(Time::NEVER, |d| ports.now() + d);
    let course = Course { mappings_age: plan.update, ..Course::until(until) };
    let progress = Progress::new(terminal, plan.duration);
    let session = Session { ports, instrument: instrument.as_mut(), placing: None, course };
    let session = session.open(|ports, instrument| {
        let meta = meta(ports, plan, kernel)?.with_settings(&instrument.settings());
        Output::create(plan, &meta)
    })?;
    listener(News::Begun);
    let mut audience = Audience { listener, progress };
    let ended = session.run(&mut audience);
    let tally = audience.progress.finish();
    Ok(Recorded { ended: ended?, tally })
}

/// Notifies a listener of committed windows, and shows the progress.
struct Audience<'l, 't> {
    listener: &'l mut dyn FnMut(News),
    progress: Progress<'t>,
}

impl Sink for Audience<'_, '_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        (self.listener)(News::Window(window.snapshot.end));
        self.progress.window(window)
    }
}

/// Metadata of a recording.
pub(crate) fn meta(ports: &mut dyn Ports, plan: &Plan, kernel: &str) -> Result<Meta> {
    // If the bits are missing, an instrument that needs them reports the cause on its first step.
    let bits = ports.access_bits().ok();
    let of_bits = bits.map(|bits| (bits.radix(), bits.other_readers().to_vec()));
    let (radix, others) = of_bits.unzip();
    let tiers = ports.residence().map(|residence| residence.tiers.clone()).unwrap_or_default();
    Ok(Meta {
        instrument: plan.instrument.name.into(),
        sampling: plan.sampling,
        window: plan.window,
        target: plan.selection.name(&ports.mappings(Duration::MAX)?.spaces),
        machine: Machine { kernel: kernel.into(), radix, tiers },
        command: plan.command.clone(),
        started: SystemTime::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        annotations: plan.annotations.clone(),
        other_readers: others.into_iter().flatten().map(str::to_owned).collect(),
        ..Meta::default()
    })
}

fn closing_line(plan: &Plan, recorded: &Recorded, status: Option<ExitStatus>) -> String {
    let tally = &recorded.tally;
    let why = match recorded.ended {
        Ended::Stopped => ", stopped",
        Ended::TargetGone | Ended::Deadline => "",
    };
    let command = status.map_or(String::new(), |s| format!("; the command ended with {s}"));
    format!(
        "recorded {} windows ({:.1} s{why}) in {}; profiler took {:.2} s of CPU \
         ({:.1} %){command}",
        tally.windows,
        tally.covered().as_secs_f64(),
        plan.output.display(),
        tally.cpu.profiler.as_secs_f64(),
        100.0 * tally.profiler_share(),
    )
}

fn print_json(plan: &Plan, recorded: &Recorded, status: Option<ExitStatus>) -> Result<()> {
    let Recorded { ended, tally } = recorded;
    let ended = ended.name();
    let text = json!({
        "recording": plan.output.display().to_string(),
        "instrument": plan.instrument.name,
        "windows": tally.windows,
        "seconds": tally.covered().as_secs_f64(),
        "ended": ended,
        "profiler_cpu_seconds": tally.cpu.profiler.as_secs_f64(),
        "profiler_cpu_share": tally.profiler_share(),
        "target_cpu_seconds": tally.cpu.target.as_secs_f64(),
        "command_status": status.map(|status| status.to_string()),
        "command_code": status.and_then(|status| status.code()),
    });
    print(&format!("{text:#}\n"))
}

/// A target that ends before the requested duration has its own exit code. A command that tierscope
/// started may end at any time.
pub(crate) fn check_complete(plan: &Plan, recorded: &Recorded) -> Result<()> {
    let lasted = exact_time(Duration::from_millis(recorded.tally.covered().as_millis() as u64));
    let gone = |cause: String| {
        let dir = plan.output.display();
        Error::new(ErrorKind::Gone, "the target is gone")
            .cause(cause)
            .remedy(format!("{dir} holds the {} windows until then", recorded.tally.windows))
    };
    match (recorded.ended, plan.duration) {
        (Ended::TargetGone, _) if recorded.tally.windows == 0 => {
            let window = exact_time(plan.window);
            Err(gone(format!("it ended before the first window of {window} did")))
        }
        (Ended::TargetGone, Some(duration)) if !plan.selection.is_command() => {
            let asked = exact_time(duration);
            Err(gone(format!("its last process exited after {lasted} of {asked}")))
        }
        _ => Ok(()),
    }
}
