//! The live machine on real processes, with a fake kernel module.

mod fake;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fake::Fake;
use tierscope_core::{
    Addr, Clock as _, ErrorKind, Level, Mapping, Ports as _, Probe, SpaceId, State, Target as _,
    Time, Wake,
};
use tierscope_linux::module::Sharing;
use tierscope_linux::{LiveMachine, Selection};

/// Any age of the mappings is acceptable.
const AGE: Duration = Duration::MAX;

/// A child that has mapped all its memory, does nothing until it is ended, and ends with the test.
struct Idle(Child);

impl Idle {
    fn start() -> Self {
        Self::of("cat".as_ref())
    }

    /// Runs `program`, a copy of `cat`.
    fn of(program: &Path) -> Self {
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut idle = Self(child);
        idle.echo(b"x");
        idle
    }

    /// Writes `text` to it, and waits until it has written something.
    fn echo(&mut self, text: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(text).unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.end();
        self.0.wait().unwrap();
    }
}

fn watch(pid: u32, fake: &Fake) -> LiveMachine {
    LiveMachine::open(&Selection::Process { pid, children: false }, fake.module()).unwrap()
}

fn test_and_clear(space: u32, at: u64) -> Probe {
    Probe::test_and_clear(Addr { space: SpaceId(space), at }, Level::PTE)
}

fn states(machine: &mut LiveMachine, mut batch: Vec<Probe>) -> Vec<State> {
    machine.access_bits().unwrap().probe(&mut batch).unwrap();
    batch.iter().map(|p| p.answer.state).collect()
}

#[test]
fn a_target_has_a_name_and_mappings() {
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    let mappings = machine.mappings(AGE).unwrap();
    assert_eq!(mappings.spaces.len(), 1);
    assert!(mappings.spaces[0].name.ends_with(&format!("[{}]", idle.pid())));
    assert!(mappings.mappings.iter().any(|m| m.name.contains("stack")));
}

#[test]
fn mappings_stay_the_same_while_nothing_changes() {
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    let first = machine.mappings(AGE).unwrap();
    assert!(Arc::ptr_eq(&first, &machine.mappings(AGE).unwrap()));
}

#[test]
fn waits_end_at_the_deadline() {
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    let until = machine.now() + Duration::from_micros(300);
    assert_eq!(machine.wait(until), Wake::Deadline);
    assert!(machine.now() >= until);
    assert_eq!(machine.wait(Time(0)), Wake::Deadline);
}

#[test]
fn answers_keep_the_order_of_the_batch_across_spaces() {
    let fake = Fake::default();
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &fake);
    fake.0.borrow_mut().touch(idle.pid(), 0x1000);
    let batch = vec![
        test_and_clear(0, 0x1000),
        test_and_clear(7, 0x1000),
        test_and_clear(0, 0x2000),
        test_and_clear(0, 0x1000),
    ];
    let expected = [State::Young, State::Gone, State::Absent, State::Old];
    assert_eq!(states(&mut machine, batch), expected);
}

fn both(one: &Idle, other: &Idle) -> Selection {
    let process = |idle: &Idle| Selection::Process { pid: idle.pid(), children: false };
    Selection::of(vec![process(one), process(other)])
}

// One of two processes may not be watched: the other one is, and one warning counts the first,
// however often the target is refreshed. Once permitted, it joins.
#[test]
fn a_process_that_cannot_be_watched_is_left_out() {
    let (fake, one, other) = (Fake::default(), Idle::start(), Idle::start());
    fake.0.borrow_mut().forbidden.push(one.pid());
    let mut machine = LiveMachine::open(&both(&one, &other), fake.module()).unwrap();
    for _ in 0..3 {
        assert_eq!(machine.mappings(Duration::ZERO).unwrap().spaces.len(), 1);
    }
    assert_eq!(machine.pids(), [(SpaceId(0), other.pid())]);
    let warning = machine.left_out().unwrap();
    let begin = format!("1 process is left out: cannot attach to process {}: ", one.pid());
    assert!(warning.starts_with(&begin), "{warning}");
    fake.0.borrow_mut().forbidden.clear();
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(machine.pids().len(), 2);
}

// Two processes use one memory, as after vfork: the second one is no target, and no warning.
#[test]
fn a_process_whose_memory_is_watched_already_is_skipped() {
    let (fake, one, other) = (Fake::default(), Idle::start(), Idle::start());
    let module = fake.module().unwrap();
    let _watched = module.attach(other.pid()).unwrap();
    fake.0.borrow_mut().owner = std::process::id();
    let mut machine = LiveMachine::open(&both(&one, &other), fake.module()).unwrap();
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(machine.pids(), [(SpaceId(0), one.pid())]);
    assert_eq!(machine.left_out(), None);
}

// The second machine shares the process; the first one's clear is lost to it, also after the end of
// the process.
#[test]
fn machines_that_share_a_process_count_the_bits_of_each_other() {
    let (fake, idle) = (Fake::default(), Idle::start());
    let mut first = watch(idle.pid(), &fake);
    let selection = Selection::Process { pid: idle.pid(), children: false };
    assert_eq!(
        LiveMachine::open(&selection, fake.module()).err().map(|error| error.kind()),
        Some(ErrorKind::Busy)
    );
    let module = fake.module().map(|module| module.with_sharing(Sharing::Shared));
    let mut second = LiveMachine::open(&selection, module).unwrap();
    fake.0.borrow_mut().touch(idle.pid(), 0x1000);
    assert_eq!(states(&mut first, vec![test_and_clear(0, 0x1000)]), [State::Young]);
    assert_eq!(states(&mut second, vec![test_and_clear(0, 0x1000)]), [State::Old]);
    let lost = |machine: &mut LiveMachine| machine.access_bits().unwrap().cleared_by_others();
    assert_eq!((lost(&mut first), lost(&mut second)), (0, 1));
    fake.0.borrow_mut().end(idle.pid());
    assert_eq!(states(&mut second, vec![test_and_clear(0, 0x1000)]), [State::Gone]);
    assert_eq!(lost(&mut second), 1);
}

// A process of a watched group for which no descriptor is left does not end the recording.
#[test]
fn no_descriptor_left_is_not_the_end() {
    let (fake, one, other) = (Fake::default(), Idle::start(), Idle::start());
    fake.0.borrow_mut().forbidden.push(one.pid());
    let mut machine = LiveMachine::open(&both(&one, &other), fake.module()).unwrap();
    fake.0.borrow_mut().forbidden.clear();
    fake.0.borrow_mut().open = Some(libc::EMFILE);
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(machine.pids().len(), 1);
    fake.0.borrow_mut().open = None;
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(machine.pids().len(), 2);
}

#[test]
fn the_reason_is_the_error_if_no_process_is_left() {
    let (fake, one, other) = (Fake::default(), Idle::start(), Idle::start());
    fake.0.borrow_mut().forbidden.extend([one.pid(), other.pid()]);
    let error = LiveMachine::open(&both(&one, &other), fake.module()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Permission);
    assert!(error.to_string().contains(&format!("attach to process {}", one.pid())), "{error}");
}

// The soft limit that this program started with is raised to the hard one.
#[test]
fn the_limit_of_descriptors_is_raised() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(512, |most| most.min(512)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let idle = Idle::start();
    drop(watch(idle.pid(), &Fake::default()));
    assert_eq!(getrlimit(Resource::Nofile).current, maximum);
}

// The module reports levels 1..=4; the self-test proved 1..=3.
#[test]
fn only_proven_levels_are_reported() {
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    let radix = machine.access_bits().unwrap().radix();
    assert_eq!((radix.levels, radix.proven.bits()), (4, 0b0111));
}

#[test]
fn an_exit_ends_the_wait() {
    let mut idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    idle.end();
    assert_eq!(machine.wait(Time::NEVER), Wake::Gone);
    assert_eq!(machine.wait(Time::NEVER), Wake::Gone);
    assert!(machine.mappings(AGE).unwrap().spaces.is_empty());
}

#[test]
fn another_program_is_another_space() {
    let fake = Fake::default();
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &fake);
    machine.mappings(AGE).unwrap();
    fake.0.borrow_mut().end(idle.pid());
    assert_eq!(states(&mut machine, vec![test_and_clear(0, 0x1000)]), [State::Gone]);
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    let mappings = machine.mappings(AGE).unwrap();
    assert_eq!(mappings.spaces.iter().map(|s| s.id).collect::<Vec<_>>(), [SpaceId(1)]);
    assert_eq!(states(&mut machine, vec![test_and_clear(1, 0x1000)]), [State::Absent]);
    assert_eq!(machine.wait(Time(0)), Wake::Deadline);
}

#[test]
fn a_flush_reaches_every_space_and_skips_those_gone() {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("exec 3<&0; cat <&3 & echo born; wait");
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
    let fake = Fake::default();
    let selection = Selection::Process { pid: child.id(), children: true };
    let mut machine = LiveMachine::open(&selection, fake.module()).unwrap();
    let pids: Vec<u32> = machine.pids().iter().map(|(_, pid)| *pid).collect();
    assert_eq!(pids.len(), 2);

    assert_eq!(machine.access_bits().unwrap().flush().unwrap().cpus, 4);
    assert_eq!(fake.0.borrow().flushed, pids);
    fake.0.borrow_mut().end(pids[0]);
    assert_eq!(machine.access_bits().unwrap().flush().unwrap().cpus, 2);
    assert_eq!(fake.0.borrow().flushed[2..], pids[1..]);
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    drop(child.stdin.take());
    child.wait().unwrap();
}

// CPU time of another thread counts for the process, and not for this thread.
#[test]
fn own_time_is_that_of_the_calling_thread() {
    let idle = Idle::start();
    let machine = watch(idle.pid(), &Fake::default());
    let (own, all) = (machine.own_time(), machine.cpu_time().profiler);
    let spin = || {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(50) {}
    };
    std::thread::spawn(spin).join().unwrap();
    let spent = machine.cpu_time().profiler - all;
    assert!(machine.own_time() - own < spent / 2, "{spent:?}");
    spin();
    assert!(machine.own_time() > own);
}

#[test]
fn a_signal_ends_a_wait() {
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    // SAFETY: raise sends to this thread, where the machine has blocked the signal.
    unsafe { libc::raise(libc::SIGINT) };
    assert_eq!(machine.wait(Time::NEVER), Wake::Stop);
}

// The shell's child is a descendant; it joins at the next refresh.
#[test]
fn descendants_join_and_leave() {
    let script = "read go; cat <&3 & echo born; wait";
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec 3<&0; {script}"));
    shell.stdin(reader).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let fake = Fake::default();
    let selection = Selection::Process { pid: child.id(), children: true };
    let mut machine = LiveMachine::open(&selection, fake.module()).unwrap();
    assert_eq!(machine.mappings(Duration::ZERO).unwrap().spaces.len(), 1);
    std::io::Write::write_all(&mut writer, b"go\n").unwrap();
    let mut born = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut born).unwrap();
    // What they share is a space as well, once the child has executed its program.
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(machine.pids().len(), 2);
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    drop(writer);
    let end = loop {
        match machine.wait(Time::NEVER) {
            Wake::TargetChanged => {}
            other => break other,
        }
    };
    assert_eq!(end, Wake::Gone);
    child.wait().unwrap();
}

// Two processes and a pattern that matches the second one: two spaces. The exit of one ends its
// space alone, the exit of the other the target; a third one called `cat` joins before that.
#[test]
fn the_end_of_all_targets_is_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("meow-of-this-test");
    std::fs::copy("/bin/cat", &program).unwrap();
    let meow = || Idle::of(&program);
    let (mut one, mut other) = (Idle::start(), meow());
    let process = |of: &Idle| Selection::Process { pid: of.pid(), children: false };
    let called = Selection::Name("meow-of-th??-[a-z]est".parse().unwrap());
    let all = Selection::of(vec![process(&one), called, process(&other), process(&one)]);
    let mut machine = LiveMachine::open(&all, Fake::default().module()).unwrap();
    let pids =
        |machine: &LiveMachine| machine.pids().iter().map(|(_, pid)| *pid).collect::<Vec<_>>();
    let mut expected = [one.pid(), other.pid()];
    expected.sort_unstable();
    assert_eq!(pids(&machine), expected);
    let before = machine.mappings(AGE).unwrap();
    assert_eq!(before.spaces.len(), 3, "their library is shared");
    one.end();
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    let rest = machine.mappings(AGE).unwrap();
    assert!(rest.spaces.iter().all(|space| !space.name.ends_with(&format!("[{}]", one.pid()))));
    let of_other = |id| before.space_name(id).ends_with(&format!("[{}]", other.pid()));
    let kept = |of: &[Mapping]| of.iter().filter(|m| of_other(m.range.space)).count();
    assert_eq!(kept(&rest.mappings), kept(&before.mappings));
    let mut third = meow();
    machine.mappings(Duration::ZERO).unwrap();
    assert_eq!(pids(&machine), [other.pid(), third.pid()]);
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    other.end();
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    third.end();
    assert_eq!(machine.wait(Time::NEVER), Wake::Gone);
}

// A process that maps more memory: its mappings are read again long before they are too old.
#[test]
fn a_target_that_grows_is_read_again_sooner() {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("read go; x=$(printf '%4000000s' x); echo grown; read end");
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut machine = watch(child.id(), &Fake::default());
    let age = Duration::from_secs(20);
    let before = machine.mappings(age).unwrap();
    let writer = child.stdin.as_mut().unwrap();
    std::io::Write::write_all(writer, b"go\n").unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    let until = machine.now() + age / 4;
    while machine.now() < until && Arc::ptr_eq(&before, &machine.mappings(age).unwrap()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let grown = machine.mappings(age).unwrap();
    assert!(grown.bytes() >= before.bytes() + 2_000_000, "{} {}", grown.bytes(), before.bytes());
    drop(child.stdin.take());
    child.wait().unwrap();
}

// `sh` becomes `cat`, which maps another number of pages: that is found long before the mappings
// are too old, and `cat` is not taken for a `sh` that has grown.
#[test]
fn a_new_program_is_no_growth() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo; read go; exec cat"]);
    let child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut shell, idle, fake) = (Idle(child), Idle::start(), Fake::default());
    shell.echo(b"");
    let mut machine = LiveMachine::open(&both(&idle, &shell), fake.module()).unwrap();
    let age = Duration::from_secs(20);
    machine.mappings(age).unwrap();
    let pid = shell.pid();
    let space = |machine: &LiveMachine| {
        machine.pids().iter().find(|(_, of)| *of == pid).map(|(space, _)| *space)
    };
    let before = space(&machine);
    shell.echo(b"go\nx");
    fake.0.borrow_mut().end(pid);
    let until = machine.now() + age / 4;
    while machine.now() < until && space(&machine) == before {
        machine.mappings(age).unwrap();
    }
    assert!(space(&machine).is_some() && space(&machine) != before);
}

// One process maps more, and the other one executes another program: only that one is read, until
// the mappings are too old.
#[test]
fn a_new_program_is_read_alone() {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("echo ready; read go; x=$(printf '%4000000s' x); echo grown; read end");
    let mut grows = Idle(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    std::io::Read::read_exact(grows.0.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    let (fake, idle) = (Fake::default(), Idle::start());
    let mut machine = LiveMachine::open(&both(&grows, &idle), fake.module()).unwrap();
    let bytes = |machine: &mut LiveMachine, age, space| {
        let all = machine.mappings(age).unwrap();
        let own = all.mappings.iter().filter(|mapping| mapping.range.space == SpaceId(space));
        own.map(|mapping| mapping.range.bytes()).sum::<u64>()
    };
    let before = bytes(&mut machine, Duration::ZERO, 0);
    std::io::Write::write_all(grows.0.stdin.as_mut().unwrap(), b"go\n").unwrap();
    std::io::Read::read_exact(grows.0.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    fake.0.borrow_mut().end(idle.pid());
    let space = machine.pids()[1].0.0;
    assert_eq!(states(&mut machine, vec![test_and_clear(space, 0x1000)]), [State::Gone]);
    assert_eq!(machine.wait(Time::NEVER), Wake::TargetChanged);
    let new = machine.pids().iter().find(|(_, pid)| *pid == idle.pid()).unwrap().0.0;
    assert_eq!(bytes(&mut machine, AGE, 0), before);
    assert!(new != space && bytes(&mut machine, AGE, new) > 0);
    assert!(bytes(&mut machine, Duration::ZERO, 0) > before + 2_000_000);
}

#[test]
fn cpu_time_grows_and_never_shrinks() {
    let mut idle = Idle::start();
    let mut machine = watch(idle.pid(), &Fake::default());
    let before = machine.cpu_time();
    idle.end();
    assert_eq!(machine.wait(Time::NEVER), Wake::Gone);
    let after = machine.cpu_time();
    assert!(after.profiler > before.profiler && after.target >= before.target);
}

#[test]
fn without_a_module_the_port_is_explained() {
    let fake = Fake::default();
    fake.0.borrow_mut().open = Some(libc::ENOENT);
    let idle = Idle::start();
    let mut machine = watch(idle.pid(), &fake);
    let missing = machine.access_bits().err().unwrap();
    assert!(missing.cause.contains("not loaded"), "{missing:?}");
}

#[test]
fn a_target_that_ended_before_is_refused() {
    let mut idle = Idle::start();
    let selection = Selection::Process { pid: idle.pid(), children: false };
    idle.end();
    idle.0.wait().unwrap();
    let error = LiveMachine::open(&selection, Fake::default().module()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoTarget);
}

// A shell and its child share the C library: it is listed once, and an access of either process
// makes it young. Their stacks are their own.
#[test]
fn libraries_of_two_processes_are_one_space() {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("exec 3<&0; cat <&3 & read go <&3; wait");
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // `cat` has executed, and mapped its libraries, when it echoes.
    let mut text = [0; 2];
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x\nx\n").unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    let fake = Fake::default();
    let selection = Selection::Process { pid: child.id(), children: true };
    let mut machine = LiveMachine::open(&selection, fake.module()).unwrap();
    let mappings = machine.mappings(Duration::ZERO).unwrap();
    let (pids, shared) = (machine.pids(), mappings.shared.unwrap());
    assert_eq!((pids.len(), mappings.spaces.len()), (2, 3));
    assert_eq!(&*mappings.spaces[2].name, "shared memory");
    assert_eq!(mappings.spaces[2].id, shared);
    let stacks = mappings.mappings.iter().filter(|of| &*of.name == "[stack]");
    assert_eq!(stacks.count(), 2);
    let library = mappings.views.iter().filter(|view| view.name.contains("libc"));
    let views: Vec<_> = library.collect();
    assert_eq!(views.len(), 2, "{views:?}");
    assert!(views[0].memory == views[1].memory && views[0].range.space != views[1].range.space);
    assert_eq!(mappings.mappings.iter().filter(|of| of.name == views[0].name).count() % 2, 1);
    fake.0.borrow_mut().touch(pids[1].1, views[1].range.start);
    let probe = Probe::test_and_clear(views[0].memory, Level::PTE);
    assert_eq!(states(&mut machine, vec![probe, probe]), [State::Young, State::Young]);
    assert_eq!(states(&mut machine, vec![probe]), [State::Old]);
    drop(child.stdin.take());
    child.wait().unwrap();
}
