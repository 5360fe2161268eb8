//! `tierscope live` on a pseudo-terminal of its own: contents of the screen, and restoration of the
//! terminal however the program ends.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Backing, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time};
use tierscope_record::{Meta, Recorder};

/// Longer than any machine needs; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);
const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// A program on a terminal of 100 columns and 30 lines.
struct OnTerminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: Termios,
    /// Output since the last keys were typed.
    seen: String,
    /// The first bytes of an incomplete UTF-8 character.
    partial: Vec<u8>,
    grid: Grid,
}

/// Contents of the terminal: text is placed by CSI line;column H, and 2J clears the screen.
struct Grid {
    lines: Vec<Vec<char>>,
    at: (usize, usize),
    /// An incomplete escape sequence.
    open: Option<String>,
}

impl Grid {
    fn new() -> Self {
        Self { lines: vec![vec![' '; 200]; 60], at: (0, 0), open: None }
    }

    fn take(&mut self, char: char) {
        match &mut self.open {
            Some(sequence) => {
                sequence.push(char);
                if char.is_ascii_alphabetic() {
                    let sequence = self.open.take().unwrap_or_default();
                    self.obey(&sequence);
                }
            }
            None if char == '\x1b' => self.open = Some(String::new()),
            None if char.is_control() => {}
            None => {
                let (line, column) = self.at;
                // What does not fit into a line of the screen is cut off.
                if let Some(cell) = self.lines[line].get_mut(column) {
                    *cell = char;
                }
                self.at.1 += 1;
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        if sequence == "[2J" {
            *self = Self { at: self.at, ..Self::new() };
        }
        let place = sequence.strip_prefix('[').and_then(|s| s.strip_suffix('H'));
        if let Some((line, column)) = place.and_then(|place| place.split_once(';')) {
            let number = |text: &str| text.parse::<usize>().unwrap() - 1;
            self.at = (number(line), number(column));
        }
    }

    fn shows(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.iter().collect::<String>().contains(text))
    }
}

impl OnTerminal {
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let slave = OwnedFd::from(open);
        let before = tcgetattr(&slave).unwrap();
        resize(&slave, 100, 30);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
        let io = || Stdio::from(slave.try_clone().unwrap());
        command.args(arguments).stdin(io()).stdout(io()).stderr(io());
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("COLORTERM");
        command.envs(variables.iter().copied());
        // SAFETY: two system calls, which are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
            })
        };
        let child = command.spawn().unwrap();
        Self {
            child,
            master: File::from(master),
            slave,
            before,
            seen: String::new(),
            partial: Vec::new(),
            grid: Grid::new(),
        }
    }

    /// Waits until `text` is on the screen.
    fn wait_for(&mut self, text: &str) {
        self.wait(text, |program| program.grid.shows(text));
    }

    /// Waits until `text` was written since the last keys were typed.
    fn wait_for_bytes(&mut self, text: &str) {
        self.wait(text, |program| program.seen.contains(text));
    }

    fn wait(&mut self, what: &str, there: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !there(self) {
            let in_time = begun.elapsed() < PATIENCE && self.read(PATIENCE);
            assert!(in_time, "{what:?} never came, but {:?}", self.seen);
        }
    }

    /// Reads pending output; returns whether there was any.
    fn read(&mut self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        if poll(&mut fds, Some(&patience)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let count = self.master.read(&mut bytes).expect("the slave is open here as well");
        self.partial.extend(&bytes[..count]);
        let whole = match std::str::from_utf8(&self.partial) {
            Ok(_) => self.partial.len(),
            Err(error) => error.valid_up_to(),
        };
        let text: Vec<u8> = self.partial.drain(..whole).collect();
        let text = String::from_utf8(text).expect("it was checked");
        text.chars().for_each(|char| self.grid.take(char));
        self.seen.push_str(&text);
        true
    }

    fn type_in(&mut self, keys: &str) {
        self.seen.clear();
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the program to exit, reading its output meanwhile: it would block on a full
    /// terminal buffer.
    fn reap(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        loop {
            let mut fds =
                [PollFd::new(&ended, PollFlags::IN), PollFd::new(&self.master, PollFlags::IN)];
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            assert!(
                poll(&mut fds, Some(&patience)).unwrap() > 0,
                "it never ended: {:?}",
                self.seen
            );
            if !fds[0].revents().is_empty() {
                return self.child.wait().unwrap();
            }
            self.read(Duration::ZERO);
        }
    }

    /// Waits for the program to exit, and checks that the terminal is restored.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.reap();
        // Output written before the exit is still readable.
        while self.read(Duration::ZERO) {}
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        (status, std::mem::take(&mut self.seen))
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(slave: &OwnedFd, columns: u16, lines: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(slave, size).unwrap();
}

/// Begins a recording of a heap whose first half is hot.
fn recorder(dir: &Path) -> Recorder {
    let meta = Meta {
        target: "redis[100]".into(),
        instrument: "telescope".into(),
        window: Duration::from_millis(200),
        ..Meta::default()
    };
    Recorder::create(dir, &meta).unwrap()
}

fn commit(recorder: &mut Recorder, number: u64) {
    let range = |start: u64, end: u64| Range::new(SpaceId(0), start << 20, end << 20);
    let region = |range, hits| Region::sampled(range, hits, 40);
    let at = |number: u64| Time(number * 200_000_000);
    let snapshot = Snapshot {
        start: at(number),
        end: at(number + 1),
        samples: 40,
        regions: vec![region(range(16, 20), 40.0), region(range(20, 24), 0.0)],
    };
    let heap = Mapping {
        range: range(16, 24),
        backing: Backing::Heap,
        name: "[heap]".into(),
        writable: true,
        object: None,
    };
    let spaces = vec![Space { id: SpaceId(0), name: "redis[100]".into() }];
    let mappings = Mappings { taken: at(0), spaces, mappings: vec![heap], ..Mappings::default() };
    let mappings = (number == 0).then_some(&mappings);
    recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
}

/// A finished recording of ten windows.
fn recording(dir: &Path) -> String {
    let mut recorder = recorder(dir);
    (0..10).for_each(|number| commit(&mut recorder, number));
    recorder.finish().unwrap();
    dir.display().to_string()
}

#[test]
fn shows_a_recording_until_q_and_leaves_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path());
    let mut program = OnTerminal::start(&["live", "--replay", &recording, "-t", "1h"], &[]);
    program.wait_for_bytes(ENTER_SCREEN);
    program.wait_for("redis[100]");
    program.wait_for("window 10 of 10");
    program.wait_for("[heap]");
    program.wait_for_bytes("48;5;231m");
    assert!(program.is_raw());
    program.type_in("?");
    program.wait_for("any key goes back");
    program.type_in("x");
    program.type_in("q");
    let (status, text) = program.end();
    assert_eq!(status.code(), Some(0), "{text:?}");
    assert!(text.contains(LEAVE_SCREEN) && text.contains(SHOW_CURSOR), "{text:?}");
}

#[test]
fn signals_and_ctrl_c_leave_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path());
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let mut program = OnTerminal::start(&["live", "--replay", &recording], &[]);
        program.wait_for("of 10");
        let pid = rustix::process::Pid::from_child(&program.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let (status, text) = program.end();
        assert_eq!(status.code(), Some(0), "{text:?}");
    }
    let mut program = OnTerminal::start(&["live", "--replay", &recording], &[]);
    program.wait_for("of 10");
    program.type_in("\x03");
    assert_eq!(program.end().0.code(), Some(0));
}

#[test]
fn a_terminal_that_is_too_small_says_so_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path());
    let mut program = OnTerminal::start(&["live", "--replay", &recording], &[]);
    program.wait_for("[heap]");
    resize(&program.slave, 40, 10);
    program.wait_for("too small");
    resize(&program.slave, 80, 24);
    program.wait_for("[heap]");
    program.type_in("q");
    assert_eq!(program.end().0.code(), Some(0));
}

#[test]
fn without_colours_density_is_shown_by_characters() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path());
    let line = ["live", "--replay", &recording, "-t", "1h"];
    let mut program = OnTerminal::start(&line, &[("NO_COLOR", "1")]);
    program.wait_for("@@@@@@@@@@");
    program.type_in("q");
    let (status, text) = program.end();
    assert_eq!(status.code(), Some(0), "{text:?}");
    assert!(!text.contains("[48;"), "{text:?}");
}

#[test]
fn a_recording_that_is_being_written_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = recorder(dir.path());
    commit(&mut recorder, 0);
    let path = dir.path().display().to_string();
    let mut program = OnTerminal::start(&["live", "--replay", &path], &[]);
    program.wait_for("following");
    program.wait_for("window 1 of 1");
    commit(&mut recorder, 1);
    commit(&mut recorder, 2);
    program.wait_for("window 3 of 3");
    recorder.finish().unwrap();
    program.wait_for("ended");
    program.type_in("q");
    assert_eq!(program.end().0.code(), Some(0));
}

/// Checks that an error is one line with cause and remedy, without screen output; returns its text.
fn refusal(arguments: &[&str], variables: &[(&str, &str)], code: i32) -> String {
    let mut program = OnTerminal::start(arguments, variables);
    program.wait_for_bytes("\n");
    let (status, text) = program.end();
    assert_eq!(status.code(), Some(code), "{text}");
    assert!(text.starts_with("tierscope: ") && text.contains("; "), "{text}");
    assert!(!text.contains(ENTER_SCREEN) && text.lines().count() == 1, "{text}");
    text
}

#[test]
fn errors_are_reported_before_the_screen_opens() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(&dir.path().join("recording"));
    let text = refusal(&["live", "--replay", &recording], &[("TERM", "dumb")], 2);
    assert!(text.contains("tierscope report heatmap"), "{text}");
    let empty = dir.path().display().to_string();
    assert!(refusal(&["live", "--replay", &empty], &[], 9).contains("cannot open recording"));
    refusal(&["live", "-p", "4194305"], &[], 5);
    refusal(&["live", "-p", "1", "--replay", &recording], &[], 2);
    let text = refusal(&["live", "-p", "1", "-o", &empty], &[], 2);
    assert!(text.contains("not empty"), "{text}");
}

#[test]
fn without_a_terminal_the_reports_are_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recording(dir.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    let output = command.args(["live", "--replay", &recording]).stdin(Stdio::null());
    let output = output.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("not a terminal; try `tierscope report heatmap"), "{text}");
}

#[test]
fn without_a_module_no_temporary_recording_stays_and_no_command_is_started() {
    if Path::new("/dev/tierscope").exists() {
        tierscope_conformance::skip::skipped(
            "the kernel module is loaded; unload it with `rmmod tierscope`",
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran").display().to_string();
    let temporary = dir.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let line = ["live", "--", "touch", &mark];
    refusal(&line, &[("TMPDIR", temporary.to_str().unwrap())], 3);
    assert!(!Path::new(&mark).exists());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}
