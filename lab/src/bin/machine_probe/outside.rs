//! Compares the nodes of pages found by the referee from outside with the nodes reported by the
//! guest's kernel.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_lab::instrumented::referee::{ANSWER, QUESTION, Question, Run};
use tierscope_linux::memory_controller::root_of;

use crate::buffer::{Buffer, PAGE, next};

/// Time limit for the referee's response; it polls for requests ten times a second.
const PATIENCE: Duration = Duration::from_secs(30);

fn failed(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, path.display().to_string()).cause(cause)
}

/// Moves random pages, about half of them, to node 1; counts the pages for which referee and kernel
/// disagree.
pub(crate) fn placement(out: &Path, pages: usize) -> Result<(Value, bool)> {
    let buffer = Buffer::on(0, pages * PAGE)?;
    let mut state = 7;
    let moved: Vec<usize> = (0..pages).filter(|_| next(&mut state) >> 63 == 1).collect();
    buffer.unbind();
    buffer.move_to(&moved, 1);
    let expected = buffer.nodes();
    let runs = ask(out, &buffer)?;
    let node_of = |address: u64| {
        let found = runs.iter().find(|run| (run.start..run.end).contains(&address));
        found.map_or(-1, |run| run.node as i32)
    };
    let at = |page: usize| buffer.address() + (page * PAGE) as u64;
    let wrong = (0..pages).filter(|page| node_of(at(*page)) != expected[*page]).count();
    let on = |node| expected.iter().filter(|on| **on == node).count();
    let report = json!({
        "pages": pages, "node_0": on(0), "node_1": on(1), "runs": runs.len(), "wrong_pages": wrong
    });
    Ok((report, wrong == 0 && on(0) > 0 && on(1) > 0))
}

/// Requests the nodes of a buffer's pages from the referee, and waits for the response.
fn ask(out: &Path, buffer: &Buffer) -> Result<Vec<Run>> {
    let five = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" la57"));
    let start = buffer.address();
    let question = Question {
        root: root_of(std::process::id())?,
        levels: if five { 5 } else { 4 },
        start,
        end: start + buffer.bytes() as u64,
    };
    let (asked, answer) = (out.join(QUESTION), out.join(ANSWER));
    let _ = fs::remove_file(&answer);
    let half = asked.with_extension("half");
    fs::write(&half, json!(question).to_string()).map_err(|e| failed(&half, e))?;
    fs::rename(&half, &asked).map_err(|e| failed(&asked, e))?;
    let begun = Instant::now();
    while !answer.exists() {
        if begun.elapsed() > PATIENCE {
            return Err(failed(&answer, "no answer came").remedy("run it by `lab run`"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = fs::read_to_string(&answer).map_err(|e| failed(&answer, e))?;
    serde_json::from_str(&text).map_err(|e| failed(&answer, e))
}
