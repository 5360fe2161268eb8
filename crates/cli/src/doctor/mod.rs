//! `tierscope doctor`: checks which features the machine supports, why the others are missing, and
//! how to enable them.

mod text;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_linux::doctor::{self, Answer, Best, Scene, Verdict, WAYS};
use tierscope_linux::proc::{Cgroup, Proc};

use crate::print::{print, written};
use crate::target_args::TargetArgs;

/// Flags of `tierscope doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Processes to check, too.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Largest number of processes that are checked; the remaining ones are only counted.
const MOST: usize = 20;

/// Findings about the machine, and about the requested processes.
pub struct Report {
    machine: Vec<Answer>,
    /// The best way to record.
    best: Result<Best>,
    /// Of the memory of cgroups that no process maps.
    cgroup: Vec<Answer>,
    processes: Vec<(u32, Vec<Answer>)>,
    /// Number of processes of the targets that were not checked.
    others: usize,
}

/// Runs the checks, prints the findings on stdout, and succeeds if recording can work.
///
/// # Errors
/// [`ErrorKind::Missing`] or [`ErrorKind::Permission`] if no way to record is available;
/// [`ErrorKind::NoTarget`] if the process or cgroup cannot be watched.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let scene = Scene::here();
    let report = look(&scene, args)?;
    if args.json {
        print(&format!("{:#}\n", report.to_json()))?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        written(text::write(&report, &mut out).and_then(|()| out.flush()))?;
    }
    report.verdict()
}

/// Checks the machine and the targets in `args`.
///
/// # Errors
/// [`ErrorKind::NoTarget`] if a target has no process.
fn look(scene: &Scene, args: &DoctorArgs) -> Result<Report> {
    let mut cgroup = Vec::new();
    for path in &args.target.cgroup {
        let found = Cgroup::find(path, Path::new("/sys/fs/cgroup"))?;
        cgroup.extend(doctor::cgroup(scene, &found.path().to_string_lossy()));
    }
    let (mut pids, mut target) = (Vec::new(), args.target.clone());
    if !target.children {
        // The checks explain why a process cannot be watched.
        pids.append(&mut target.pid);
    }
    if target.is_given() {
        pids.append(&mut target.selection(Vec::new()).processes(&Proc::default())?);
    }
    pids.sort_unstable();
    pids.dedup();
    let others = pids.len().saturating_sub(MOST);
    pids.truncate(MOST);
    let processes = pids.into_iter().map(|pid| (pid, doctor::process(scene, pid))).collect();
    let machine = doctor::machine(scene);
    let best = doctor::best(scene, &machine);
    Ok(Report { machine, best, cgroup, processes, others })
}

impl Report {
    /// Success if recording can work; otherwise the error that ends the program.
    fn verdict(&self) -> Result<()> {
        self.best.clone()?;
        for (pid, answers) in &self.processes {
            if let Some(answer) = answers.iter().find(|answer| !answer.finding.usable()) {
                let essential = matches!(answer.id, "target" | "permission" | "mappings");
                if essential && self.processes.len() == 1 {
                    return Err(not_watched(*pid, answer));
                }
            }
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let answers = |answers: &[Answer]| answers.iter().map(answer_json).collect::<Vec<_>>();
        let process =
            |(pid, found): &(u32, Vec<Answer>)| json!({"pid": pid, "checks": answers(found)});
        let way = |way: &doctor::Way| {
            let lacks = way.lacks(&self.machine);
            let instrument = way.instrument;
            json!({"way": way.title, "instrument": instrument, "open": lacks.is_none(), "lacks": lacks.map(|answer| answer.id)})
        };
        json!({
            "can_record": self.verdict().is_ok(),
            "auto": self.best.as_ref().ok().map(|best| best.way.instrument),
            "ways": WAYS.iter().map(way).collect::<Vec<_>>(),
            "machine": answers(&self.machine),
            "cgroup": answers(&self.cgroup),
            "processes": self.processes.iter().map(process).collect::<Vec<_>>(),
            "processes_not_looked_at": self.others,
        })
    }
}

fn not_watched(pid: u32, answer: &Answer) -> Error {
    let kind = match answer.finding.verdict {
        Verdict::Forbidden => ErrorKind::Permission,
        _ => ErrorKind::NoTarget,
    };
    Error::new(kind, format!("process {pid} cannot be watched"))
        .cause(&answer.finding.found)
        .remedy(answer.finding.remedy.clone())
}

fn answer_json(answer: &Answer) -> Value {
    json!({
        "id": answer.id,
        "group": answer.group,
        "title": answer.title,
        "verdict": answer.finding.verdict.name(),
        "found": answer.finding.found,
        "remedy": answer.finding.remedy,
    })
}
