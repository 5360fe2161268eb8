//! The page of Telescope's claims is current: reruns a fast subset of the experiments and compares.

use std::process::Command;

const PAGE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/telescope/REPRODUCTION.md");

fn reproduce(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("reproduce").args(arguments).output().unwrap()
}

#[test]
fn the_committed_page_is_current() {
    let output = reproduce(&["--quick", "--check", PAGE, "masim-1gb", "masim-10gb", "needle-5mb"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}run `tierscope reproduce -o {PAGE}`");
}

#[test]
fn an_outdated_page_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    let text = std::fs::read_to_string(PAGE).unwrap();
    std::fs::write(&page, text.replace("## masim-1gb", "## masim-2gb")).unwrap();
    let output = reproduce(&["--quick", "--check", page.to_str().unwrap(), "masim-1gb"]);
    assert_eq!(output.status.code(), Some(9));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is not current: its section on masim-1gb differs"), "{said}");
    assert_eq!(reproduce(&["alchemy"]).status.code(), Some(2));
}
