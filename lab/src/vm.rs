//! One virtual machine: QEMU without KVM, monitored from start to end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::missing;
use crate::console::Scanner;
use crate::error::{Context, Error, Kind, Result};
use crate::instrumented::{Files, referee};
use crate::topology::Topology;

/// Kernel parameters of every machine. loglevel=5 prints warnings; otherwise a WARNING would go
/// unnoticed. On a busy host, a CPU is considered stalled only after a minute, and a late timer
/// tick must not cause a panic at boot (check_timer() in arch/x86/kernel/apic/io_apic.c).
const CMDLINE: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic rcupdate.rcu_cpu_stall_timeout=60 watchdog_thresh=60 tsc=reliable no_timer_check";

/// The emulated processor. Without erms, because a plugin sees each byte of a `rep movsb`: the
/// kernel shall copy in another way. Without cx16, because QEMU 7.2 sets the flags of `cmpxchg16b`
/// late: if the guest is interrupted before, it saves an operand of another instruction as EFLAGS,
/// and `iret` fails on some of these values.
const CPU: &str = "max,-erms,-cx16";

/// Configuration of a machine.
#[derive(Debug)]
pub struct Machine<'a> {
    /// The kernel's bzImage.
    pub kernel: PathBuf,
    /// The packed root file system.
    pub initramfs: PathBuf,
    /// Host directory that the guest sees, writable, at /out.
    pub out: PathBuf,
    /// Whether the guest sees the host's root, read-only, at /host.
    pub host_tree: bool,
    /// NUMA nodes.
    pub topology: &'a Topology,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// CPUs.
    pub cpus: u32,
    /// Use 5-level page tables.
    pub la57: bool,
    /// Enable page-table isolation: a second, user copy of the PGD.
    pub pti: bool,
    /// Virtual time counts instructions.
    pub instructions: bool,
    /// Further kernel parameters.
    pub cmdline: String,
    /// Files shared with the plugin, if this is an instrumented machine.
    pub shared: Option<Files>,
}

impl Machine<'_> {
    /// All kernel parameters.
    pub fn kernel_parameters(&self) -> String {
        let mut all = vec![CMDLINE, if self.pti { "pti=on" } else { "pti=off" }];
        all.extend((!self.la57).then_some("no5lvl"));
        all.extend(self.host_tree.then_some("lab.host"));
        all.extend(Some(self.cmdline.as_str()).filter(|more| !more.is_empty()));
        all.join(" ")
    }

    /// The QEMU command, complete except for its serial ports.
    fn qemu(&self) -> Result<Command> {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-accel",
            if self.instructions { "tcg,thread=single" } else { "tcg,thread=multi" },
            "-cpu",
            CPU,
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
        ]);
        if self.instructions {
            qemu.args(["-icount", "shift=0,sleep=off"]);
        }
        let files = self.shared.as_ref().map(Files::directory);
        qemu.args(self.topology.qemu_args(self.memory_mb, self.cpus, files));
        if let Some(shared) = &self.shared {
            qemu.args(shared.qemu_args()?);
        }
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initramfs);
        qemu.args(["-append", &self.kernel_parameters()]);
        qemu.args(share("out", &self.out, ""));
        if self.host_tree {
            qemu.args(share("host", Path::new("/"), ",readonly=on"));
        }
        Ok(qemu)
    }
}

fn share(tag: &str, path: &Path, more: &str) -> [String; 2] {
    let path = path.display().to_string().replace(',', ",,");
    let options =
        format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}");
    ["-virtfs".to_owned(), options]
}

/// Result of a machine's run.
#[derive(Debug)]
pub struct Ending {
    /// Exit status of the job; None: the machine ended before the job did.
    pub status: Option<i32>,
    /// Whether the machine exceeded its timeout.
    pub timed_out: bool,
    /// The kernel's console with its complaints.
    pub console: Scanner,
    /// Wall seconds from the start of QEMU to the start of the job.
    pub boot_seconds: Option<f64>,
    /// Wall seconds from the start of QEMU to its end.
    pub seconds: f64,
    /// Last lines that QEMU and the job printed.
    pub last_words: Vec<String>,
}

/// Live output of a running machine.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Prefix of each line.
    pub prefix: String,
    /// Also show the kernel's console and the shell's trace of the job, not only the job's output.
    pub console: bool,
    /// Suppress all output, including the job's.
    pub quiet: bool,
}

/// Runs a machine to its end, or to `timeout`; the console is saved in `work/console`.
///
/// QEMU is killed when the calling thread ends, for whatever reason.
///
/// # Errors
/// QEMU cannot be started. Failures inside the machine are reported in the [`Ending`].
pub fn run(machine: &Machine, work: &Path, timeout: Duration, stream: &Stream) -> Result<Ending> {
    let status = work.join("status");
    let mut qemu = machine.qemu()?;
    // QEMU's stdout is the console; its stderr carries the job's port and QEMU's own errors.
    qemu.args(["-serial", "stdio", "-serial", "file:/dev/stderr"]);
    qemu.arg("-serial").arg(format!("file:{}", status.display()));
    let mut qemu =
        Running::start(qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let lines = qemu.lines();
    let log = work.join("console");
    let mut watch = Watch::new(fs::File::create(&log).at(log.display())?, stream, &status);
    (watch.shared, watch.out) = (machine.shared.as_ref(), &machine.out);
    let timed_out = watch.follow(&lines, timeout);
    qemu.end();
    Ok(watch.ending(timed_out))
}

/// Runs a machine with its console on this terminal, as an interactive shell.
///
/// # Errors
/// QEMU cannot be started.
pub fn shell(machine: &Machine) -> Result<()> {
    let mut qemu = machine.qemu()?;
    qemu.args([
        "-chardev",
        "stdio,id=tty,mux=on,signal=off",
        "-mon",
        "tty",
        "-serial",
        "chardev:tty",
    ]);
    qemu.args(["-serial", "null", "-serial", "null"]);
    let mut running = Running::start(&mut qemu)?;
    running.child.wait().at("qemu-system-x86_64")?;
    Ok(())
}

/// A QEMU process that does not outlive this one.
struct Running {
    child: Child,
}

enum Line {
    Console(String),
    Job(String),
}

impl Running {
    fn start(qemu: &mut Command) -> Result<Self> {
        // SAFETY: prctl is async-signal-safe and accesses no memory of this process.
        unsafe {
            qemu.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = qemu.spawn().map_err(|e| missing("qemu-system-x86_64", e))?;
        Ok(Running { child })
    }

    fn lines(&mut self) -> Receiver<Line> {
        let (sender, receiver) = channel();
        if let Some(console) = self.child.stdout.take() {
            read_lines(console, sender.clone(), Line::Console);
        }
        if let Some(job) = self.child.stderr.take() {
            read_lines(job, sender, Line::Job);
        }
        receiver
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_lines<R: Read + Send + 'static>(from: R, to: Sender<Line>, kind: fn(String) -> Line) {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(std::result::Result::ok) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if to.send(kind(text)).is_err() {
                return;
            }
        }
    });
}

const LAST_WORDS: usize = 20;

/// Time limit for booting, even on a busy host; 3 s to 10 s are usual.
const BOOT: Duration = Duration::from_secs(120);

/// Monitors the output of a machine.
struct Watch<'a> {
    started: Instant,
    log: fs::File,
    stream: &'a Stream,
    status: &'a Path,
    console: Scanner,
    boot_seconds: Option<f64>,
    last_words: Vec<String>,
    shared: Option<&'a Files>,
    out: &'a Path,
}

impl<'a> Watch<'a> {
    fn new(log: fs::File, stream: &'a Stream, status: &'a Path) -> Self {
        let started = Instant::now();
        Watch {
            started,
            log,
            stream,
            status,
            console: Scanner::default(),
            boot_seconds: None,
            last_words: Vec::new(),
            shared: None,
            out: Path::new(""),
        }
    }

    /// Processes output until the machine has closed both streams (returns false) or the timeout is
    /// reached (true).
    fn follow(&mut self, lines: &Receiver<Line>, timeout: Duration) -> bool {
        // Polls often, so that the boot time is accurate to a tenth of a second.
        let tick = Duration::from_millis(100);
        while let Some(left) = self.left(timeout) {
            match lines.recv_timeout(left.min(tick)) {
                Ok(Line::Console(text)) => self.console_line(&text),
                Ok(Line::Job(text)) => self.job_line(text),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            self.notice_boot();
            if let Some(Err(error)) = self.shared.map(|shared| referee::answer(shared, self.out)) {
                eprintln!("lab: a question to the referee: {error}");
            }
        }
        true
    }

    /// Time left for booting, or for the whole run once the machine has booted.
    fn left(&self, timeout: Duration) -> Option<Duration> {
        let limit = if self.boot_seconds.is_some() { timeout } else { timeout.min(BOOT) };
        limit.checked_sub(self.started.elapsed())
    }

    fn notice_boot(&mut self) {
        if self.boot_seconds.is_none()
            && fs::read_to_string(self.status).is_ok_and(|s| s.contains("ready"))
        {
            self.boot_seconds = Some(self.started.elapsed().as_secs_f64());
            if let Some(Err(error)) = self.shared.map(|shared| shared.wake(self.out)) {
                eprintln!("lab: the plugin stays asleep: {error}");
            }
        }
    }

    fn console_line(&mut self, text: &str) {
        let _ = writeln!(self.log, "{text}");
        self.console.line(text);
        if self.stream.console && !self.stream.quiet {
            eprintln!("{}# {text}", self.stream.prefix);
        }
    }

    fn job_line(&mut self, text: String) {
        let trace = text.starts_with("+ ") && !self.stream.console;
        if !self.stream.quiet && !trace {
            eprintln!("{}| {text}", self.stream.prefix);
        }
        if self.last_words.len() == LAST_WORDS {
            self.last_words.remove(0);
        }
        self.last_words.push(text);
    }

    fn ending(self, timed_out: bool) -> Ending {
        let status = fs::read_to_string(self.status).ok().and_then(|text| parse_status(&text));
        Ending {
            status,
            timed_out,
            console: self.console,
            boot_seconds: self.boot_seconds,
            seconds: self.started.elapsed().as_secs_f64(),
            last_words: self.last_words,
        }
    }
}

/// Parses the job's exit status from the text that the guest wrote to its status port.
fn parse_status(text: &str) -> Option<i32> {
    text.lines().find_map(|line| line.strip_prefix("exit ")?.trim().parse().ok())
}

impl Ending {
    /// Ok if the job succeeded and the kernel did not complain; otherwise an [`Error`] with the
    /// reason. [`Ending::explain`] has the details.
    pub fn verdict(&self, name: &str) -> Result<()> {
        let fail = |kind, cause: String| Err(Error::new(kind, name, cause));
        if let Some(finding) = self.console.findings().first() {
            let kind = if self.console.emulator_fault() { Kind::Emulator } else { Kind::Kernel };
            return fail(kind, format!("the kernel complained ({})", finding.kind));
        }
        match self.status {
            _ if self.timed_out => {
                fail(Kind::Timeout, format!("no end after {:.0} s", self.seconds))
            }
            None => fail(Kind::Job, "the machine ended before the job did".to_owned()),
            Some(0) => Ok(()),
            Some(status) => fail(Kind::Job, format!("the job ended with exit status {status}")),
        }
    }

    /// Readable reason for the ending.
    pub fn reason(&self) -> String {
        match self.console.findings().first() {
            Some(finding) => format!("the kernel complained: {}", finding.kind),
            None if self.timed_out => format!("silent for {:.0} s", self.seconds),
            None => "QEMU ended".to_owned(),
        }
    }

    /// The output lines that show the failure.
    pub fn explain(&self) -> Vec<String> {
        match self.console.excerpt(60) {
            [] => self.last_words.iter().chain(self.console.tail(10)).cloned().collect(),
            excerpt => excerpt.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(status: Option<i32>, timed_out: bool, console: &str) -> Ending {
        let mut scanner = Scanner::default();
        console.lines().for_each(|line| scanner.line(line));
        Ending {
            status,
            timed_out,
            console: scanner,
            boot_seconds: None,
            seconds: 9.0,
            last_words: Vec::new(),
        }
    }

    #[test]
    fn the_status_port_speaks_twice() {
        assert_eq!(parse_status("ready 2.71\r\nexit 3\r\n"), Some(3));
        assert_eq!(parse_status("ready 2.71\n"), None);
        assert_eq!(parse_status(""), None);
    }

    #[test]
    fn a_complaint_of_the_kernel_outranks_a_good_exit() {
        let kind = |e: Ending| e.verdict("x").unwrap_err().kind;
        assert!(ending(Some(0), false, "fine").verdict("x").is_ok());
        assert_eq!(kind(ending(Some(0), false, "WARNING: CPU: 0")), Kind::Kernel);
        assert_eq!(kind(ending(Some(2), false, "")), Kind::Job);
        assert_eq!(kind(ending(None, false, "")), Kind::Job);
        assert_eq!(kind(ending(None, true, "")), Kind::Timeout);
    }

    #[test]
    fn commas_in_paths_do_not_end_qemus_options() {
        assert!(share("out", Path::new("/a,b"), "")[1].contains("path=/a,,b,mount_tag=out"));
    }
}
