//! Controllers that stop responding: every driver call reports an error.

use tierscope_core::{Counters, Error, ErrorKind, Result};
use tierscope_nemo::driver::StateMapping;
use tierscope_nemo::{At, Control, Driver, Engine, Functional, Geometry, Line, Memory, Status};

use super::{BYTES, HUGE, finish, per_huge_page, prototype};

/// An engine that executes a given number of commands and then fails.
struct Breaking {
    engine: Functional,
    left: usize,
    failed: bool,
}

impl Breaking {
    fn after(commands: usize) -> Driver<Self> {
        let memory = Memory::single(BYTES, 2).expect("a memory");
        let engine = Functional::new(memory, 8, 64).expect("an engine");
        Driver::new(Self { engine, left: commands, failed: false })
    }

    /// Whether one more command is executed.
    fn answers(&mut self) -> bool {
        self.failed |= self.left == 0;
        self.left = self.left.saturating_sub(1);
        !self.failed
    }
}

impl Engine for Breaking {
    fn geometry(&self) -> Geometry {
        self.engine.geometry()
    }

    fn memory(&self) -> &Memory {
        self.engine.memory()
    }

    fn control(&mut self, at: At, control: Control) {
        if self.answers() {
            self.engine.control(at, control);
        }
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        if self.answers() { self.engine.load(controller, line) } else { Line::default() }
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        if self.answers() { self.engine.status(at, channel) } else { Status::default() }
    }

    fn pending(&mut self, controller: usize) -> u64 {
        if self.answers() { self.engine.pending(controller) } else { 0 }
    }

    fn check(&self) -> Result<()> {
        match self.failed {
            true => Err(Error::new(ErrorKind::Io, "the controllers do not answer")),
            false => Ok(()),
        }
    }
}

fn broke<T>(result: Result<T>) {
    let error = result.map(|_| ()).expect_err("nothing answers");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn an_installation_that_breaks_off_leaves_nothing() {
    let mut driver = Breaking::after(0);
    let free = driver.free();
    broke(driver.register(&finish(per_huge_page())));
    assert_eq!(driver.free(), free);
}

// The first command installs; the next two write entries; then reads fail.
#[test]
fn later_operations_fail_too() {
    let mut driver = Breaking::after(3);
    let id = driver.register_states(&finish(per_huge_page()), 8).expect("it answers still");
    driver.translate_range(id, 0, 2 * HUGE, StateMapping::Each(0)).expect("it answers still");
    broke(driver.read(id, &mut [0; 8]));
    broke(driver.peek(id, 0, &mut [0; 8]));
    broke(driver.translate(id, 3, Some(3)));
    broke(driver.overflow(id));
    broke(driver.dispatch(|_| panic!("no alert is due")));
    broke(driver.uninstall(id));
    assert_eq!(driver.free(), prototype().free(), "what is removed is free all the same");
}
