//! Paths of the lab's inputs and outputs.

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

/// The lab's cache of kernels and built modules. `TIERSCOPE_LAB_DIR` overrides its path.
pub fn cache() -> PathBuf {
    match std::env::var_os("TIERSCOPE_LAB_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => root().join("target/lab"),
    }
}

/// Directory of this program and of the others that cargo built with it.
pub fn programs() -> Option<PathBuf> {
    let exe = std::env::current_exe().ok()?;
    let dir = exe.parent()?;
    // Tests run from target/debug/deps.
    Some(if dir.ends_with("deps") { dir.parent()?.to_owned() } else { dir.to_owned() })
}
