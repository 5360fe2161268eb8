//! Figures that are stored agree with those of the present code: reruns experiments drawn by the
//! commit's hash, two of the five seeds, and compares.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Seconds of CPU of an experiment's full run up to which it is drawn: a test reruns three.
const MOST: u64 = 75;

fn reproduce(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("reproduce").args(arguments).output().unwrap()
}

/// The stored figures of every experiment, by path.
fn stored() -> Vec<(PathBuf, Value)> {
    let files = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let papers = files(Path::new(ROOT).join("experiments"));
    let all = papers.flat_map(|paper| files(paper.path().join("figures")));
    let mut all: Vec<_> = all.map(|file| file.path()).collect();
    // Next to them are outcomes, as `.jsonl`.
    all.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    all.sort();
    let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    all.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// Bits of the hash of the commit; 0 without git.
fn hash() -> u64 {
    let git = Command::new("git").args(["-C", ROOT, "rev-parse", "HEAD"]).output();
    let text = git.map(|git| String::from_utf8_lossy(&git.stdout).into_owned()).unwrap_or_default();
    u64::from_str_radix(text.get(..16).unwrap_or("0"), 16).unwrap_or(0)
}

/// Names of experiments of three rows, drawn among all rows of experiments that take little time.
fn drawn(all: &[(PathBuf, Value)]) -> Vec<String> {
    let cheap = |stored: &&(PathBuf, Value)| {
        stored.1["cpu-seconds"].as_u64().is_some_and(|seconds| seconds <= MOST)
    };
    let rows: Vec<&str> = all
        .iter()
        .filter(cheap)
        .flat_map(|(_, stored)| {
            let rows = stored["section"]["rows"].as_array().map_or(0, Vec::len);
            std::iter::repeat_n(stored["section"]["name"].as_str().unwrap(), rows)
        })
        .collect();
    assert!(rows.len() >= 20, "only {} rows can be drawn", rows.len());
    let mut names: Vec<String> =
        (0..3).map(|n| rows[(hash() >> (20 * n)) as usize % rows.len()].to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn stored_figures_drawn_by_the_commit_agree_with_the_code() {
    let names = drawn(&stored());
    println!("drawn: {names:?}");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = reproduce(&[&["--check", ROOT][..], &names].concat());
    assert!(output.status.success(), "{names:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with the stored figures of one experiment, changed by a function.
fn checkout(name: &str, change: impl Fn(&mut Value)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir.path()).args(["-c", "user.name=x", "-c", "user.email=x"]);
        assert!(command.args(words).output().unwrap().status.success());
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    let (path, mut stored) =
        stored().into_iter().find(|(path, _)| path.file_stem().unwrap() == name).unwrap();
    change(&mut stored);
    let copy = dir.path().join(path.strip_prefix(ROOT).unwrap());
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::write(copy, stored.to_string()).unwrap();
    dir
}

#[test]
fn figures_that_do_not_agree_are_reported() {
    let wrong = checkout("masim-1gb", |stored| {
        let ours = &mut stored["section"]["rows"][0]["ours"];
        *ours = serde_json::json!({"mean": 9.0, "least": 9.0, "most": 9.0});
    });
    let root = wrong.path().to_str().unwrap();
    let output = reproduce(&["--check", root, "masim-1gb"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(said.contains("figures of masim-1gb are not current") && said.contains("stored 9.000"));
    let output = reproduce(&["--check", root, "masim-10gb"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there are none"));
    assert_eq!(reproduce(&["alchemy"]).status.code(), Some(2));
    let none = tempfile::tempdir().unwrap();
    let output = reproduce(&["--check", none.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_reduced_run_is_compared_with_the_full_one() {
    let same = checkout("masim-1gb", |_| ());
    let output = reproduce(&["--reduced", same.path().to_str().unwrap(), "masim-1gb", "masim-5tb"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("## masim-5tb\nfull run: nothing is stored of it\n"), "{text}");
    let rows =
        |stored: &(PathBuf, Value)| stored.1["section"]["rows"].as_array().map_or(0, Vec::len);
    let all = stored();
    let of = all.iter().find(|(path, _)| path.file_stem().unwrap() == "masim-1gb").map_or(0, rows);
    assert!(text.contains(&format!(" of {of} claims are decided by the reduced run")), "{text}");
}

// Figures of one experiment that are stored do not make those of the next ones look as if the code
// had changed.
#[test]
fn stored_figures_are_no_change_of_the_code() {
    let dir = checkout("masim-1gb", |_| ());
    let root = dir.path().to_str().unwrap();
    std::fs::write(dir.path().join("REPRODUCTION.md"), "# x\n").unwrap();
    let git = |words: &[&str]| {
        let options = ["-C", root, "-c", "user.name=x", "-c", "user.email=x"];
        assert!(Command::new("git").args(options).args(words).output().unwrap().status.success());
    };
    for paper in ["multi-clock", "nemo", "ptat"] {
        std::fs::create_dir_all(dir.path().join("experiments").join(paper)).unwrap();
    }
    std::fs::create_dir(dir.path().join("crates")).unwrap();
    std::fs::write(dir.path().join("crates/code.rs"), "").unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "x"]);
    let figures = dir.path().join("experiments/telescope/figures");
    std::fs::write(figures.join("masim-1gb.json"), stored_of(&figures, "masim-1gb") + "\n")
        .unwrap();
    let output = reproduce(&["-o", root, "--quick", "masim-5tb"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let new: Value = serde_json::from_str(&stored_of(&figures, "masim-5tb")).unwrap();
    let commit = new["commit"].as_str().unwrap();
    assert!(!commit.is_empty() && !commit.ends_with("-dirty"), "{commit}");
}

fn stored_of(figures: &Path, name: &str) -> String {
    std::fs::read_to_string(figures.join(format!("{name}.json"))).unwrap()
}
