//! Scenarios: jobs for a virtual machine, described by a TOML file with a shell script next to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Context, Error, Kind, Result};
use crate::kbuild;
use crate::paths;

/// `lab/scenarios/NAME.toml`; the job is `NAME.sh` in the same directory unless `job` names another
/// file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// File name without extension.
    #[serde(skip)]
    pub name: String,
    /// Short description.
    pub about: String,
    /// File name of the job's script.
    pub job: Option<String>,
    /// File name of a script with shell functions, which is put before the job's text.
    pub functions: Option<String>,
    /// Programs used by the job: `name`, or `name=/path/on/the/host`.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Our kernel modules to build and provide at /lab/NAME.ko.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Modules of the distribution's kernel that are loaded before the job starts.
    #[serde(default)]
    pub kernel_modules: Vec<String>,
    /// Script next to the scenario that runs on the host before the machine starts, as root of this
    /// machine, with the parameters in its environment: it creates input files in /out, and changes
    /// nothing elsewhere.
    pub prepare: Option<String>,
    /// Mount the host's root, read-only, at /host.
    #[serde(default)]
    pub host: bool,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Number of CPUs.
    #[serde(default = "two")]
    pub cpus: u32,
    /// Virtual time passes by a nanosecond for each instruction (QEMU's -icount): the guest's
    /// clocks count instructions. For one CPU.
    #[serde(default)]
    pub instructions: bool,
    /// Name of a machine in topologies.toml.
    #[serde(default = "flat")]
    pub topology: String,
    /// Timeout in seconds, after which the machine is stopped.
    pub timeout_s: u64,
    /// Additional kernel parameters.
    #[serde(default)]
    pub cmdline: String,
    /// Options of the instrumented virtual machine ([`crate::instrumented`]).
    pub plugin: Option<toml::Table>,
    /// Parameters of the job with their defaults, changed by --set.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
    /// Scenarios whose jobs run one after another (`lab/jobs`), instead of a job of its own.
    #[serde(skip)]
    pub parts: Vec<Scenario>,
}

fn two() -> u32 {
    2
}

fn flat() -> String {
    "flat".to_owned()
}

fn dir() -> PathBuf {
    paths::lab().join("scenarios")
}

impl Scenario {
    /// The value of a parameter, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.set.get(key).and_then(toml::Value::as_str)
    }

    /// A numeric parameter of the job; values set on the command line are strings.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.set.get(key)? {
            toml::Value::Integer(number) => Some(*number as f64),
            toml::Value::Float(number) => Some(*number),
            toml::Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Reads the scenario called `name`.
    ///
    /// # Errors
    /// There is no such scenario, or its file is invalid.
    pub fn load(name: &str) -> Result<Self> {
        let path = dir().join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|e| {
            Error::new(Kind::Usage, format!("scenario {name}"), e).remedy("`lab list` names all")
        })?;
        Self::parse(name, &text)
    }

    /// Parses a scenario.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let bad = |cause: String| Error::new(Kind::Usage, format!("scenario {name}"), cause);
        let mut scenario: Scenario =
            toml::from_str(text).map_err(|e| bad(e.to_string().replace('\n', " ")))?;
        scenario.name = name.to_owned();
        match scenario.modules.iter().find(|module| !kbuild::is_ours(module)) {
            Some(module) => Err(bad(format!("module {module} is not one of ours"))),
            None if scenario.memory_mb < 128 => {
                Err(bad("memory_mb: a kernel wants 128 at least".to_owned()))
            }
            None if scenario.cpus == 0 => Err(bad("cpus: one at least".to_owned())),
            None => Ok(scenario),
        }
    }

    /// A machine for the jobs of several scenarios, with the programs and modules of all.
    ///
    /// # Errors
    /// They want different machines.
    pub fn joined(name: &str, parts: Vec<Self>) -> Result<Self> {
        let bad = |cause: String| Error::new(Kind::Usage, format!("boot {name}"), cause);
        let [first, others @ ..] = parts.as_slice() else {
            return Err(bad("no scenarios".to_owned()));
        };
        let machine = |s: &Self| (s.topology.clone(), s.cpus, s.cmdline.clone(), s.instructions);
        let own = |s: &&Self| s.host || s.plugin.is_some() || s.prepare.is_some();
        if let Some(part) = parts.iter().find(own) {
            return Err(bad(format!("{} needs a machine of its own", part.name)));
        }
        if let Some(part) = others.iter().find(|part| machine(part) != machine(first)) {
            return Err(bad(format!("{}: topology, cpus or cmdline differ", part.name)));
        }
        let all = |of: fn(&Self) -> &Vec<String>| {
            let mut names = Vec::new();
            parts.iter().flat_map(of).for_each(|name| {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            });
            names
        };
        let machine = Self {
            name: name.to_owned(),
            about: String::new(),
            job: None,
            functions: None,
            programs: all(|s| &s.programs),
            modules: all(|s| &s.modules),
            kernel_modules: all(|s| &s.kernel_modules),
            memory_mb: parts.iter().map(|s| s.memory_mb).max().unwrap_or_default(),
            timeout_s: parts.iter().map(|s| s.timeout_s).sum(),
            set: BTreeMap::new(),
            ..first.clone()
        };
        Ok(Self { parts, ..machine })
    }

    /// Name of a part's directories: below /lab/jobs, and below /out of the machine.
    pub fn job_name(part: usize) -> String {
        format!("{part:02}")
    }

    /// All scenarios, sorted by name.
    pub fn all() -> Result<Vec<Self>> {
        let files = std::fs::read_dir(dir()).at(dir().display())?.flatten();
        let names =
            files.filter_map(|f| Some(f.file_name().to_str()?.strip_suffix(".toml")?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.iter().map(|name| Self::load(name)).collect()
    }

    /// The text of the job's script, preceded by its shell functions.
    pub fn job_text(&self) -> Result<Vec<u8>> {
        if !self.parts.is_empty() {
            let path = paths::lab().join("jobs");
            return std::fs::read(&path).at(path.display());
        }
        let job = self.job.clone().unwrap_or_else(|| format!("{}.sh", self.name));
        let mut text = Vec::new();
        for file in self.functions.iter().chain([&job]) {
            let path = dir().join(file);
            text.extend(std::fs::read(&path).at(path.display())?);
        }
        Ok(text)
    }

    /// Path of the script that runs on the host, if there is one.
    pub fn prepare_script(&self) -> Option<PathBuf> {
        self.prepare.as_ref().map(|name| dir().join(name))
    }

    /// Sets a parameter of the job; `assignment` is `key=value`.
    ///
    /// # Errors
    /// There is no `=`, or the scenario does not declare the key.
    pub fn assign(&mut self, assignment: &str) -> Result<()> {
        let bad = |cause: String| Error::new(Kind::Usage, format!("--set {assignment}"), cause);
        let (key, value) = assignment
            .split_once('=')
            .ok_or_else(|| bad("not of the form key=value".to_owned()))?;
        match self.set.get_mut(key) {
            Some(slot) => *slot = toml::Value::String(value.to_owned()),
            None => {
                let keys: Vec<&str> = self.set.keys().map(String::as_str).collect();
                return Err(bad(format!("scenario {} has no such key", self.name))
                    .remedy(format!("one of: {}", keys.join(", "))));
            }
        }
        Ok(())
    }

    /// Selects the parts of the instrumented machine; without any the machine is a plain one.
    pub fn set_parts(&mut self, parts: &[impl AsRef<str>]) {
        if parts.iter().all(|part| part.as_ref().is_empty()) {
            self.plugin = None;
            return;
        }
        let parts: Vec<toml::Value> = parts.iter().map(|part| part.as_ref().into()).collect();
        self.plugin.get_or_insert_default().insert("parts".into(), parts.into());
    }

    /// Selects the plugin that an instrumented machine loads, instead of the one built with this
    /// program.
    pub fn set_plugin(&mut self, path: &Path) {
        if let Some(table) = &mut self.plugin {
            table.insert("plugin".into(), path.display().to_string().into());
        }
    }

    /// The parameters and their values.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, String)> {
        self.set.iter().map(|(key, value)| match value {
            toml::Value::String(text) => (key.as_str(), text.clone()),
            other => (key.as_str(), other.to_string()),
        })
    }

    /// The parameters as shell assignments.
    pub fn environment(&self) -> String {
        let line = |(key, value): (&str, String)| {
            format!("export {key}='{}'\n", value.replace('\'', r"'\''"))
        };
        self.parameters().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOY: &str =
        "about = 'toy'\nmemory_mb = 256\ntimeout_s = 9\n[set]\nperiod_us = 5000\nname = \"it's\"\n";

    #[test]
    fn all_scenarios_in_the_tree_are_sound_and_have_a_job() {
        for scenario in Scenario::all().unwrap() {
            assert!(!scenario.job_text().unwrap().is_empty(), "{}", scenario.name);
            assert!(scenario.prepare_script().is_none_or(|script| script.is_file()));
        }
    }

    #[test]
    fn parameters_reach_the_shell_quoted() {
        let mut toy = Scenario::parse("toy", TOY).unwrap();
        toy.assign("period_us=20 000").unwrap();
        assert_eq!(toy.environment(), "export name='it'\\''s'\nexport period_us='20 000'\n");
    }

    #[test]
    fn a_joined_machine_has_what_all_its_parts_need() {
        let toy = |text: &str| Scenario::parse("toy", &format!("{text}\n{TOY}")).unwrap();
        let first = toy("programs = ['a', 'b']\nmodules = ['tierscope']");
        let mut second = toy("programs = ['b', 'c']");
        second.memory_mb = 512;
        let joined = Scenario::joined("x", vec![first.clone(), second.clone()]).unwrap();
        assert_eq!(joined.programs, ["a", "b", "c"]);
        assert_eq!(joined.modules, ["tierscope"]);
        assert_eq!((joined.memory_mb, joined.timeout_s, joined.parts.len()), (512, 18, 2));
        assert!(joined.set.is_empty());
        second.cpus = 1;
        assert!(Scenario::joined("x", vec![first.clone(), second]).is_err());
        assert!(Scenario::joined("x", vec![first, toy("host = true")]).is_err());
    }

    #[test]
    fn undeclared_keys_and_fields_are_refused() {
        let mut toy = Scenario::parse("toy", TOY).unwrap();
        assert_eq!(
            toy.assign("perod=1").unwrap_err().to_string(),
            "--set perod=1: scenario toy has no such key (one of: name, period_us)"
        );
        assert!(toy.assign("period_us").is_err());
        assert!(Scenario::parse("toy", &TOY.replace("memory_mb", "memroy_mb")).is_err());
        assert!(Scenario::parse("toy", &TOY.replace("256", "1")).is_err());
        assert!(
            Scenario::parse(
                "toy",
                &TOY.replacen("timeout_s", "modules = ['nvidia']\ntimeout_s", 1)
            )
            .is_err()
        );
    }
}
