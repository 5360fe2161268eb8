//! The telemetry device of an instrumented virtual machine: located among the PCI functions, mapped
//! through sysfs, and used as counters.
//!
//! Layout and commands: [`tierscope_wire::device`]. Mapping the device requires root.

use std::fs;
use std::path::{Path, PathBuf};

use tierscope_core::{Counters, Error, ErrorKind, Notice, Result, Rule, RuleId, Time};
use tierscope_wire::Shared;
use tierscope_wire::device::{Client, Command, PCI_ID, encode};

/// Finds the PCI function of the device; `None` if this machine has none.
#[must_use]
pub fn find_device(sys: &Path) -> Option<PathBuf> {
    let functions = fs::read_dir(sys.join("bus/pci/devices")).ok()?;
    let mut paths: Vec<PathBuf> = functions.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().find(|path| identity(path) == Some(PCI_ID))
}

fn identity(function: &Path) -> Option<(u16, u16)> {
    let number = |file: &str| {
        let text = fs::read_to_string(function.join(file)).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    Some((number("vendor")?, number("device")?))
}

/// Maps the device's memory: the second BAR of the function.
pub(super) fn map(function: &Path) -> Result<Shared> {
    let path = function.join("resource2");
    Shared::open(&path, 0).map_err(|cause| {
        let what = format!("cannot map {}", path.display());
        Error::new((&cause).into(), what).cause(cause).remedy("run as root")
    })
}

/// Finds the device below `sys`, and maps it.
pub(super) fn map_device(sys: &Path) -> Result<Shared> {
    let function = find_device(sys).ok_or_else(|| {
        Error::new(ErrorKind::Missing, "there is no telemetry device")
            .cause(format!("no PCI function is {:04x}:{:04x}", PCI_ID.0, PCI_ID.1))
            .remedy("start the instrumented virtual machine with part `device`")
    })?;
    map(&function)
}

/// Counters of the telemetry device. Dropping this unregisters its rules.
#[derive(Debug)]
pub struct TelemetryDevice {
    shared: Shared,
    block: usize,
    rules: Vec<(RuleId, Rule)>,
}

impl TelemetryDevice {
    /// Opens the device below `sys` (`/sys`), with command block `block`: programs need different
    /// ones.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if there is no device; others if it cannot be mapped or has another
    /// version.
    pub fn open(sys: &Path, block: usize) -> Result<Self> {
        let device = Self { shared: map_device(sys)?, block, rules: Vec::new() };
        device.client()?;
        Ok(device)
    }

    /// A client of the device's command block.
    ///
    /// # Errors
    /// If the memory does not hold a device of a known version.
    pub fn client(&self) -> Result<Client<'_>> {
        Client::attach(self.shared.words()?, self.block)
    }

    fn rule(&self, id: RuleId) -> Result<&Rule> {
        let found = self.rules.iter().find(|(known, _)| *known == id);
        found.map(|(_, rule)| rule).ok_or_else(|| {
            Error::new(ErrorKind::Usage, format!("cannot use rule {}", id.0))
                .cause("it was not registered by this program")
                .remedy("register it first")
        })
    }
}

impl Counters for TelemetryDevice {
    fn register(&mut self, rule: &Rule) -> Result<RuleId> {
        let id = RuleId(self.client()?.ring(Command::Register, &encode(rule))? as u32);
        self.rules.push((id, *rule));
        Ok(id)
    }

    fn unregister(&mut self, id: RuleId) -> Result<()> {
        self.rule(id)?;
        self.client()?.ring(Command::Unregister, &[id.0.into()])?;
        self.rules.retain(|(known, _)| *known != id);
        Ok(())
    }

    /// The device selects states densely: the states of key `k` follow those of the keys below it.
    /// Any other assignment needs a translation table, which the device lacks.
    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()> {
        let rule = self.rule(rule)?;
        let offsets = rule.offset.of(u64::MAX) + 1;
        let own = key.checked_sub(rule.key.of(rule.filter.start)).map(|key| key * offsets);
        if own.is_some() && own == index.map(u64::from) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Missing, format!("key {key} cannot select state {index:?}"))
            .cause("the device has no translation table: keys select states in their order")
            .remedy("choose filter and key so that the states follow each other"))
    }

    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()> {
        self.rule(rule)?;
        self.client()?.read(rule.0.into(), 0, out)
    }

    fn notifications(&mut self, out: &mut Vec<Notice>) {
        let Ok(client) = self.client() else { return };
        client.notices(|raw| {
            let id = RuleId(raw.rule as u32);
            if self.rules.iter().any(|(known, _)| *known == id) {
                out.push(Notice { rule: id, time: Time(raw.nanos) });
            }
        });
    }
}

impl Drop for TelemetryDevice {
    fn drop(&mut self) {
        let ids: Vec<RuleId> = self.rules.iter().map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| drop(self.unregister(id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_wire::device::{MAGIC, VERSION, W_STATE};

    /// A sysfs with a host bridge and, optionally, the device.
    fn sysfs(device: Option<&[u64]>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let function = |name: &str, vendor: &str, device: &str| {
            let path = root.path().join("bus/pci/devices").join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("vendor"), vendor).unwrap();
            fs::write(path.join("device"), device).unwrap();
            path
        };
        function("0000:00:00.0", "0x8086\n", "0x29c0\n");
        if let Some(words) = device {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            fs::write(function("0000:00:03.0", "0x1af4\n", "0x1110\n").join("resource2"), bytes)
                .unwrap();
        }
        root
    }

    fn memory() -> Vec<u64> {
        let mut words = vec![0; W_STATE + 16];
        (words[0], words[1]) = (MAGIC, VERSION);
        words
    }

    #[test]
    fn the_device_is_found_by_its_pci_id() {
        assert!(find_device(sysfs(None).path()).is_none());
        let with = sysfs(Some(&memory()));
        assert!(find_device(with.path()).unwrap().ends_with("0000:00:03.0"));
        assert!(TelemetryDevice::open(with.path(), 0).is_ok());
        let error = TelemetryDevice::open(sysfs(None).path(), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
    }

    #[test]
    fn a_plain_ivshmem_is_no_telemetry_device() {
        let error =
            TelemetryDevice::open(sysfs(Some(&vec![0; W_STATE + 16])).path(), 0).unwrap_err();
        assert!(error.to_string().contains("holds none"), "{error}");
    }

    #[test]
    fn a_device_that_does_not_answer_is_an_error() {
        let sys = sysfs(Some(&memory()));
        let mut device = TelemetryDevice::open(sys.path(), 0).unwrap();
        let error = device.client().unwrap().ring(Command::Ping, &[]).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert_eq!(device.read(RuleId(0), &mut [0]).unwrap_err().kind(), ErrorKind::Usage);
    }
}
