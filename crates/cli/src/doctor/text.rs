//! The findings of `tierscope doctor` as a table.

use std::io::{self, Write};

use tierscope_linux::doctor::{Answer, WAYS};
use tierscope_report::table::{Align, Table};

use super::Report;

/// Writes the report; each remedy is on the line below its finding.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let grouped = [&report.machine, &report.cgroup].into_iter();
    let machine = grouped.flat_map(|answers| answers.chunk_by(|a, b| a.group == b.group));
    let machine = machine.map(|answers| (answers[0].group.to_owned(), answers));
    let processes = report
        .processes
        .iter()
        .map(|(pid, answers)| (format!("process {pid}"), answers.as_slice()));
    let groups: Vec<(String, &[Answer])> = machine.chain(processes).collect();
    // One table, for columns alike in all groups; its lines are written below their groups' titles.
    let mut table = Table::without_heads([Align::Left; 3]);
    groups.iter().flat_map(|(_, answers)| *answers).for_each(|answer| add(&mut table, answer));
    let text = table.to_string();
    let mut lines = text.lines();
    for (title, answers) in groups {
        writeln!(out, "{title}")?;
        let rows = answers.iter().map(|answer| 1 + usize::from(has_remedy(answer))).sum();
        lines.by_ref().take(rows).try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
    }
    if report.others > 0 {
        writeln!(out, "and {} processes more\n", report.others)?;
    }
    writeln!(out, "ways to record")?;
    let mut ways = Table::without_heads([Align::Left; 2]);
    for way in WAYS {
        match way.lacks(&report.machine) {
            None => ways.row(["  open", way.title]),
            Some(answer) => ways.row([
                "  closed".to_owned(),
                format!("{}, for want of: {}", way.title, answer.title),
            ]),
        }
    }
    write!(out, "{ways}")?;
    match &report.best {
        Ok(best) => writeln!(out, "\n--instrument auto takes {}", best.way.instrument),
        Err(_) => Ok(()),
    }
}

fn has_remedy(answer: &Answer) -> bool {
    !answer.finding.remedy.is_empty()
}

fn add(table: &mut Table, answer: &Answer) {
    let finding = &answer.finding;
    table.row([&format!("  {}", finding.verdict.name()), answer.title, &finding.found]);
    if has_remedy(answer) {
        table.row(["", "", &format!("> {}", finding.remedy)]);
    }
}
