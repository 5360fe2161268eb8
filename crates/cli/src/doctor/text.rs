//! The findings of `tierscope doctor` as a table.

use std::io::{self, Write};

use tierscope_linux::doctor::{Answer, WAYS};

use super::Report;

/// Width of the column of verdicts, then of titles.
const VERDICT: usize = 9;
const TITLE: usize = 25;

/// Writes the report; each remedy is on the line below its finding.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for answers in report.machine.chunk_by(|a, b| a.group == b.group) {
        group(answers[0].group, answers, out)?;
    }
    for (pid, answers) in &report.processes {
        group(&format!("process {pid}"), answers, out)?;
    }
    if report.others > 0 {
        writeln!(out, "and {} processes more\n", report.others)?;
    }
    writeln!(out, "ways to record")?;
    for way in WAYS {
        match way.lacks(&report.machine) {
            None => writeln!(out, "  {:VERDICT$} {}", "open", way.title)?,
            Some(answer) => {
                writeln!(
                    out,
                    "  {:VERDICT$} {}, for want of: {}",
                    "closed", way.title, answer.title
                )?;
            }
        }
    }
    Ok(())
}

fn group(title: &str, answers: &[Answer], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{title}")?;
    for answer in answers {
        let finding = &answer.finding;
        let verdict = finding.verdict.name();
        writeln!(out, "  {verdict:VERDICT$} {:TITLE$} {}", answer.title, finding.found)?;
        if !finding.remedy.is_empty() {
            writeln!(out, "  {:VERDICT$} {:TITLE$} > {}", "", "", finding.remedy)?;
        }
    }
    writeln!(out)
}
