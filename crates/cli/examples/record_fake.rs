//! Records this machine with a fake kernel module: `record_fake FLAGS...`, those of `tierscope
//! record`, without a target. Prints `window N` when N windows are committed. For `make
//! bench-chaos`, which kills it at every call that changes a file.

#[path = "../../linux/tests/fake/mod.rs"]
mod fake;

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use fake::Fake;
use tierscope_cli::args::{Command as Subcommand, parse};
use tierscope_cli::plan::Plan;
use tierscope_cli::record::{News, record_and_tell};
use tierscope_core::Result;
use tierscope_linux::LiveMachine;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("record_fake: {error}");
            ExitCode::from(tierscope_cli::exit::code_of(error.kind()))
        }
    }
}

fn run() -> Result<()> {
    // The target ends when this process does, however that is: its input is closed then.
    let mut cat = Command::new("cat");
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a target");
    let recorded = record(child.id());
    drop(child.stdin.take());
    child.wait().expect("the target ends");
    recorded
}

fn record(target: u32) -> Result<()> {
    let fake = Fake::default();
    for page in 0..600 {
        fake.0.borrow_mut().touch(target, 0x5500_0000_0000 + (page << 12));
    }
    let pid = target.to_string();
    let words = ["tierscope", "record", "-p", &pid].map(String::from);
    let words = words.into_iter().chain(std::env::args().skip(1)).map(Into::into);
    let Subcommand::Record(args) = parse(words).expect("flags of record").command else {
        unreachable!("it says record")
    };
    let plan = Plan::new(args, "record_fake".into())?;
    let mut machine = LiveMachine::open(&plan.selection, fake.module())?;
    let mut windows = 0;
    record_and_tell(&mut machine, &plan, "fake", None, &mut |news| {
        if let News::Window(_) = news {
            windows += 1;
            let mut out = std::io::stdout();
            let _ = writeln!(out, "window {windows}").and_then(|()| out.flush());
        }
    })
    .map(drop)
}
