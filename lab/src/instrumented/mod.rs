//! The instrumented virtual machine: the files shared by QEMU, its plugin and the lab, QEMU's
//! arguments, and the threads that read the plugin's records.
//!
//! A scenario requests it with a table `[plugin]`, which the plugin parses itself
//! (lab/plugin/src/options.rs); the lab adds the paths of the files. Four keys are the lab's own:
//! `states`, `off`, `keep`, `plugin` ([`Wanted`]).

mod interrupts;
mod readers;
pub mod referee;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use serde::Serialize;
use tierscope_wire::stats::{self, Count, Switch};
use tierscope_wire::{device, touched};

use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub use readers::{Heard, Readers};

/// Directory for shared files, in memory.
const SHARED: &str = "/dev/shm";
const PREFIX: &str = "tierscope-lab-";

/// Name of the file in /out that appears once the plugin is active.
pub const AWAKE: &str = "awake";
/// Time limit for the plugin's activation.
const WAKING: Duration = Duration::from_secs(10);

/// Bytes of the telemetry device's memory before its states.
const REGISTERS: u64 = device::W_STATE as u64 * 8;

/// The keys of a scenario's `[plugin]` table that the lab uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Enabled parts.
    pub parts: Vec<String>,
    /// Minimum number of counter states of the telemetry device.
    pub states: u64,
    /// Parts that are inactive until the guest switches them on.
    pub off: Vec<String>,
    /// Rings whose records are kept in /out: `raw`, `tlb`.
    pub keep: Vec<String>,
    /// Size of each ring in bytes.
    pub ring_bytes: u64,
    /// The guest itself reads the rings of TLB misses.
    pub guest_rings: bool,
    /// Capacity of each table of touched pages, in 2 MiB ranges.
    pub slots: u64,
    /// Plugin to load; None: the one built with this program.
    pub plugin: Option<PathBuf>,
}

fn bad(cause: impl Into<String>) -> Error {
    Error::new(Kind::Usage, "the scenario's table [plugin]", cause.into())
}

/// Removes a number from a table.
fn number(table: &mut toml::Table, key: &str, default: u64) -> Result<u64> {
    match table.remove(key) {
        None => Ok(default),
        Some(toml::Value::Integer(number)) if number > 0 => Ok(number as u64),
        Some(other) => Err(bad(format!("{key} = {other} is no number above 0"))),
    }
}

fn words(value: Option<&toml::Value>, key: &str) -> Result<Vec<String>> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let word = |value: &toml::Value| value.as_str().map(str::to_owned);
    let all = value.as_array().map(|all| all.iter().map(word).collect::<Option<Vec<_>>>());
    all.flatten().ok_or_else(|| bad(format!("{key} is no list of names")))
}

fn path_of(value: &toml::Value) -> Result<PathBuf> {
    let path = value.as_str().map(PathBuf::from).ok_or_else(|| bad("plugin is no path"))?;
    if path.is_file() {
        return Ok(path);
    }
    Err(bad(format!("plugin: there is no {}", path.display())))
}

impl Wanted {
    /// Removes the lab's keys from the table; the plugin's keys remain.
    ///
    /// # Errors
    /// A key has a value of the wrong type.
    pub fn take(table: &mut toml::Table) -> Result<Self> {
        let (off, keep) = (table.remove("off"), table.remove("keep"));
        let plugin = table.remove("plugin");
        let wanted = Wanted {
            parts: words(table.get("parts"), "parts")?,
            states: number(table, "states", 1 << 18)?,
            off: words(off.as_ref(), "off")?,
            keep: words(keep.as_ref(), "keep")?,
            ring_bytes: number(&mut table.clone(), "ring_bytes", 64 << 20)?,
            guest_rings: table.get("guest_rings").is_some_and(|on| on.as_bool() == Some(true)),
            slots: number(&mut table.clone(), "touched_slots", 1 << 13)?,
            plugin: plugin.map(|path| path_of(&path)).transpose()?,
        };
        wanted.switches()?;
        match wanted.keep.iter().find(|name| !["raw", "tlb", "touched"].contains(&name.as_str())) {
            Some(name) => Err(bad(format!("keep: {name} leaves nothing to keep"))),
            None => Ok(wanted),
        }
    }

    fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|name| name == part)
    }

    /// Whether a ring is read by the lab, not by the guest.
    fn is_read_here(&self, ring: &str) -> bool {
        self.has(ring) && !(ring == "tlb" && self.guest_rings)
    }

    /// Bits of the parts that are initially switched off.
    fn switches(&self) -> Result<u64> {
        self.off.iter().try_fold(0, |all, name| {
            let switch = Switch::named(name);
            let switch = switch.ok_or_else(|| bad(format!("off: {name} cannot be switched")))?;
            Ok(all | switch.bit())
        })
    }
}

/// The shared files of one machine. They are removed on drop.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    wanted: Wanted,
    cpus: u32,
    /// Size of each node in bytes.
    nodes: Vec<u64>,
}

impl Files {
    /// Creates the files for a machine with `cpus` CPUs and nodes of `nodes` bytes.
    ///
    /// # Errors
    /// There is no space, or the table is wrong.
    pub fn new(table: &toml::Table, cpus: u32, nodes: &[u64]) -> Result<Self> {
        let mut table = table.clone();
        let wanted = Wanted::take(&mut table)?;
        let directory = Path::new(SHARED).join(format!("{PREFIX}{}", std::process::id()));
        // A process runs one machine at a time: remove leftovers of a failed run.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).at(directory.display())?;
        let files = Self { directory, wanted, cpus, nodes: nodes.to_vec() };
        files.make()?;
        files.write_options(table)?;
        Ok(files)
    }

    fn make(&self) -> Result<()> {
        for (node, bytes) in self.nodes.iter().enumerate() {
            self.make_file(&format!("ram-{node}"), *bytes)?;
        }
        self.make_file("stats", stats::bytes_for(self.cpus))?;
        let off = self.wanted.switches()?;
        let region = readers::map(&self.path("stats"), stats::bytes_for(self.cpus))?;
        if let Some(word) = stats::switches(region) {
            word.store(off, Relaxed);
        }
        if self.wanted.has("device") {
            self.make_file("device", self.device_bytes())?;
            interrupts::serve(&self.path("device.socket"), &self.path("device"))?;
        }
        for cpu in 0..self.cpus {
            for part in ["raw", "tlb"].into_iter().filter(|part| self.wanted.is_read_here(part)) {
                self.make_file(&format!("{part}-{cpu}"), self.wanted.ring_bytes)?;
            }
            if self.wanted.has("touched") {
                self.make_file(&format!("touched-{cpu}"), touched::bytes_for(self.wanted.slots))?;
            }
        }
        Ok(())
    }

    /// Size of the device's PCI region, which must be a power of two.
    fn device_bytes(&self) -> u64 {
        let rings =
            if self.wanted.guest_rings { self.wanted.ring_bytes * u64::from(self.cpus) } else { 0 };
        (REGISTERS + self.wanted.states * 8 + rings).next_power_of_two()
    }

    fn make_file(&self, name: &str, bytes: u64) -> Result<()> {
        let path = self.path(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).at(path.display())
    }

    fn write_options(&self, mut table: toml::Table) -> Result<()> {
        let text = |path: PathBuf| toml::Value::String(path.display().to_string());
        let node = |(number, bytes): (usize, &u64)| {
            let mut node = toml::Table::new();
            node.insert("path".into(), text(self.path(&format!("ram-{number}"))));
            node.insert("bytes".into(), toml::Value::Integer(*bytes as i64));
            toml::Value::Table(node)
        };
        table.insert("run".into(), text(self.directory.clone()));
        table.insert(
            "nodes".into(),
            self.nodes.iter().enumerate().map(node).collect::<Vec<_>>().into(),
        );
        table.insert("asleep".into(), (!self.nodes.is_empty()).into());
        table.insert("cpus".into(), i64::from(self.cpus).into());
        let path = self.path("options.toml");
        fs::write(&path, table.to_string()).at(path.display())
    }

    /// Called when the guest has booted: activates the plugin, and lets the guest continue once it
    /// is active.
    ///
    /// # Errors
    /// The plugin does not become active.
    pub fn wake(&self, out: &Path) -> Result<()> {
        let region = readers::map(&self.path("stats"), stats::bytes_for(self.cpus))?;
        let word = stats::wakefulness(region).ok_or_else(|| bad("no room for counts"))?;
        word.store(stats::WAKE, Release);
        let begun = Instant::now();
        while word.load(Acquire) != stats::AWAKE {
            if begun.elapsed() > WAKING {
                return Err(Error::new(Kind::Job, "the plugin", "it does not wake up"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        File::create(out.join(AWAKE)).at(out.display()).map(drop)
    }

    /// Path of a shared file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directory of the shared files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Size of each node in bytes.
    #[must_use]
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// The scenario's keys for the lab.
    #[must_use]
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// QEMU's arguments for the plugin and the device; memory arguments are made by the topology.
    ///
    /// # Errors
    /// The plugin was not built.
    pub fn qemu_args(&self) -> Result<Vec<String>> {
        let plugin = self.wanted.plugin.clone().map_or_else(plugin, Ok)?;
        let options = self.path("options.toml");
        let mut args = vec![
            "-plugin".to_owned(),
            format!("{},options={}", plugin.display(), options.display()),
        ];
        if self.wanted.has("device") {
            let socket = self.path("device.socket");
            args.extend([
                "-chardev".to_owned(),
                format!("socket,path={},id=tierscope", socket.display()),
            ]);
            args.extend([
                "-device".to_owned(),
                format!(
                    "ivshmem-doorbell,chardev=tierscope,vectors={}",
                    tierscope_wire::device::VECTORS
                ),
            ]);
        }
        Ok(args)
    }

    /// Counts and messages of the plugin, and numbers of records read from the rings.
    ///
    /// # Errors
    /// The counts cannot be read.
    pub fn result(&self, heard: &Heard) -> Result<Outcome> {
        let region = readers::map(&self.path("stats"), stats::bytes_for(self.cpus))?;
        let count = |count: &Count| (count.name(), stats::sum(region, *count));
        let said = fs::read_to_string(self.path("plugin.log")).unwrap_or_default();
        Ok(Outcome {
            counts: Count::ALL.iter().map(count).collect(),
            said: said.lines().map(str::to_owned).collect(),
            read: heard.clone(),
        })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Contents of `plugin.json`, which every run writes.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Counts of the plugin, over all vCPUs.
    pub counts: std::collections::BTreeMap<&'static str, u64>,
    /// Messages of the plugin.
    pub said: Vec<String>,
    /// Numbers of records read from the rings.
    pub read: Heard,
}

/// The plugin that was built with this program.
///
/// # Errors
/// It does not exist.
pub fn plugin() -> Result<PathBuf> {
    let name = "libtierscope_plugin.so";
    let built = paths::programs().map(|programs| programs.join(name)).filter(|path| path.exists());
    built.ok_or_else(|| {
        Error::new(Kind::Environment, name, "it is not in this program's directory")
            .remedy("cargo build --workspace --lib")
    })
}

/// Removes shared files left by killed processes of the lab.
pub fn sweep(alive: impl Fn(u32) -> bool) {
    let Ok(entries) = fs::read_dir(SHARED) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|pid| pid.parse().ok());
        if owner.is_some_and(|pid| !alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Contents of a shared file as 64-bit words.
pub(crate) type Words = &'static [AtomicU64];

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> toml::Table {
        text.parse().unwrap()
    }

    #[test]
    fn the_labs_keys_are_taken_and_the_plugins_stay() {
        let mut asked = table(
            "parts = ['llc', 'raw']\noff = ['raw']\nkeep = ['raw']\nstates = 5\nflush_us = 9",
        );
        let wanted = Wanted::take(&mut asked).unwrap();
        assert_eq!((wanted.states, wanted.switches().unwrap()), (5, Switch::Raw.bit()));
        assert_eq!(asked, table("parts = ['llc', 'raw']\nflush_us = 9"));
    }

    #[test]
    fn unsupported_settings_are_refused() {
        let error = |text: &str| Wanted::take(&mut table(text)).unwrap_err().to_string();
        assert!(error("off = ['llc']").contains("llc cannot be switched"));
        assert!(error("keep = ['flush']").contains("flush leaves nothing"));
        assert!(error("states = 'many'").contains("states"));
        assert!(error("parts = 'llc'").contains("parts"));
    }
}
