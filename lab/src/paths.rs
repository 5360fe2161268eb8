//! Where the lab finds and keeps things.

use std::path::{Path, PathBuf};

/// The root of the source tree.
pub fn root() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.parent().unwrap_or(lab).to_owned()
}

/// The lab's own sources: tables, scenarios, the guest's init.
pub fn lab() -> PathBuf {
    root().join("lab")
}

/// What the lab keeps between runs: kernels, built modules. `TIERSCOPE_LAB_DIR` moves it.
pub fn cache() -> PathBuf {
    match std::env::var_os("TIERSCOPE_LAB_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => root().join("target/lab"),
    }
}

/// Where cargo put this program and those it was built with.
pub fn programs() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let dir = exe.parent()?;
    // A test runs from target/debug/deps.
    Some(if dir.ends_with("deps") { dir.parent()?.to_owned() } else { dir.to_owned() })
}
