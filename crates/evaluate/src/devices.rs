//! Telemetry devices in the memory of simulated machines, and the budget of the instruments that
//! read them: the table `telemetry` of an experiment.

use serde::Deserialize;
use tierscope_chmu::{Capabilities, Monitors};
use tierscope_core::{
    BusObserver, BusRecord, Cell, Counters, Error, ErrorKind, HotLists, Need, RegisterWork, Result,
    Time, units,
};
use tierscope_nemo::{Driver, Functional, Geometry, Memory, Zone};
use tierscope_sim::experiment::Experiment;

/// Programmable controllers: one for each tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Nemo {
    pipelines: usize,
    channels: usize,
    banks: usize,
    /// Bytes of a counter; those below 8 stay at their largest value.
    counter: u8,
}

/// The paper's largest deployment.
impl Default for Nemo {
    fn default() -> Self {
        let Geometry { pipelines, channels, banks } = Geometry::PROTOTYPE;
        Self { pipelines, channels, banks, counter: 8 }
    }
}

impl Nemo {
    fn geometry(&self) -> Geometry {
        Geometry { pipelines: self.pipelines, channels: self.channels, banks: self.banks }
    }

    fn state_bytes(&self) -> u64 {
        let geometry = self.geometry();
        geometry.table_bytes() + geometry.state_bytes() + geometry.capture_bytes()
    }

    fn make(&self, memory: &[(u64, u64)]) -> Result<Driver<Functional>> {
        let zone = |(first, (start, end)): (usize, &(u64, u64))| Zone {
            start: *start,
            end: *end,
            first,
            controllers: 1,
            granule: 4096,
        };
        let zones = memory.iter().enumerate().map(zone).collect();
        let engine =
            Functional::new(Memory::new(zones, self.channels)?, self.pipelines, self.banks)?;
        Ok(Driver::new(engine).with_cell(Cell::new(self.counter, self.counter < 8)?))
    }
}

/// The table `telemetry`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Keys {
    tiers: Option<Vec<String>>,
    nemo: Nemo,
    chmu: Capabilities,
    cpu: Option<f64>,
    state: Option<String>,
}

/// The devices of an experiment, and the budget of its instruments.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Devices {
    keys: Keys,
    /// Tiers that devices see; `None` for the default of each kind.
    tiers: Option<Vec<usize>>,
    /// Share of one CPU that an instrument may take.
    pub(crate) cpu: Option<f64>,
    state: Option<u64>,
}

impl Devices {
    /// Reads the table of an experiment; the default without one.
    ///
    /// # Errors
    /// A key is unknown or invalid: with its place in the file.
    pub(crate) fn of(experiment: &Experiment) -> Result<Self> {
        let Some((offset, table)) = &experiment.telemetry else { return Ok(Self::default()) };
        Self::read(experiment, table).map_err(|what| experiment.at(*offset, what))
    }

    fn read(experiment: &Experiment, table: &toml::Table) -> Result<Self, String> {
        let keys: Keys = table
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        let named = |name: &String| {
            let tiers = &experiment.setup.hardware.tiers;
            let found = tiers.iter().position(|tier| tier.name == *name);
            found.ok_or_else(|| format!("no tier is called `{name}`"))
        };
        let tiers = keys.tiers.as_ref().map(|names| names.iter().map(named).collect());
        let tiers: Option<Vec<usize>> = tiers.transpose()?;
        if tiers.as_ref().is_some_and(Vec::is_empty) {
            return Err("`tiers` is empty: devices would see nothing".into());
        }
        if keys.cpu.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err("`cpu` is a share of one CPU, above 0 and up to 1".into());
        }
        let state = keys.state.as_deref().map(units::size).transpose()?;
        Ok(Self { tiers, cpu: keys.cpu, state, keys })
    }

    /// The physical ranges that a device for `needs` sees, of those of all tiers.
    fn seen(&self, needs: &[Need], memory: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let first = usize::from(needs.contains(&Need::HotLists) && memory.len() > 1);
        let usual: Vec<usize> = (first..memory.len()).collect();
        let tiers = self.tiers.as_ref().unwrap_or(&usual);
        tiers.iter().filter_map(|tier| memory.get(*tier).copied()).collect()
    }

    /// Bytes of state of the devices that `needs` ask for, over the tiers that they see; 0 if they
    /// ask for none.
    pub(crate) fn state_bytes(&self, needs: &[Need], memory: &[(u64, u64)]) -> u64 {
        let seen = self.seen(needs, memory);
        let chmu = seen.iter().map(|(start, end)| self.keys.chmu.state_bytes(end - start)).sum();
        match (needs.contains(&Need::Counters), needs.contains(&Need::HotLists)) {
            (true, _) => self.keys.nemo.state_bytes() * seen.len() as u64,
            (false, true) => chmu,
            (false, false) => 0,
        }
    }

    /// The devices that `needs` ask for, in memory of these ranges, one for each tier.
    ///
    /// # Errors
    /// A device is not possible, or has more state than the budget allows.
    pub(crate) fn make(&self, needs: &[Need], memory: &[(u64, u64)]) -> Result<Device> {
        let (bytes, most) = (self.state_bytes(needs, memory), self.state.unwrap_or(u64::MAX));
        if bytes > most {
            return Err(Error::new(ErrorKind::Usage, "telemetry devices exceed their budget")
                .cause(format!("{bytes} bytes of state, `telemetry.state` allows {most}"))
                .remedy("make them smaller, or let them see fewer tiers"));
        }
        let seen = self.seen(needs, memory);
        match needs.contains(&Need::HotLists) {
            true => Monitors::new(&self.keys.chmu, &seen).map(Device::Chmu),
            false => self.keys.nemo.make(&seen).map(|driver| Device::Nemo(Box::new(driver))),
        }
    }
}

/// Memory controllers like the paper's largest deployment, one for each range of physical memory.
///
/// # Errors
/// The ranges are invalid.
pub(crate) fn controllers(memory: &[(u64, u64)]) -> Result<Driver<Functional>> {
    Nemo::default().make(memory)
}

/// A device on the memory bus.
pub(crate) enum Device {
    /// Programmable controllers.
    Nemo(Box<Driver<Functional>>),
    /// Hotness monitoring units.
    Chmu(Monitors),
}

impl BusObserver for Device {
    fn observe(&mut self, batch: &[BusRecord]) {
        match self {
            Device::Nemo(driver) => driver.observe(batch),
            Device::Chmu(monitors) => monitors.observe(batch),
        }
    }

    fn counters(&mut self) -> Option<&mut dyn Counters> {
        match self {
            Device::Nemo(driver) => driver.counters(),
            Device::Chmu(_) => None,
        }
    }

    fn hot_lists(&mut self, now: Time) -> Option<&mut dyn HotLists> {
        match self {
            Device::Nemo(_) => None,
            Device::Chmu(monitors) => monitors.hot_lists(now),
        }
    }

    fn interrupt(&mut self, now: Time) -> Option<bool> {
        match self {
            Device::Nemo(_) => None,
            Device::Chmu(monitors) => monitors.interrupt(now),
        }
    }

    fn take_work(&mut self) -> RegisterWork {
        match self {
            Device::Nemo(driver) => driver.take_work(),
            Device::Chmu(monitors) => monitors.take_work(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(telemetry: &str) -> Experiment {
        let text = format!(
            "name = \"e\"\nabout = \"a\"\nsource = \"s\"\ntime = \"1s\"\n[telemetry]\n{telemetry}\n\
             [machine]\nhardware = \"xeon-gold-6430-cxl\"\n\
             [[process]]\nworkload = \"contiguous:space=16MiB,hot=1MiB\"\n[simulation]\nmode = \"density\""
        );
        Experiment::parse("e", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Two tiers of 16 GiB.
    const MEMORY: [(u64, u64); 2] = [(0, 1 << 34), (1 << 44, (1 << 44) + (1 << 34))];

    // Two pipelines of 14 KiB of table and 16 KiB of states each, and a capture page of 4 KiB.
    #[test]
    fn both_devices_fit_into_64_kib() {
        let text = "state = \"64KiB\"\ntiers = [\"cxl\"]\n\
                    nemo = { pipelines = 2, channels = 1, banks = 4, counter = 2 }";
        let devices = Devices::of(&experiment(text)).expect("it is valid");
        assert_eq!(devices.state_bytes(&[Need::Counters], &MEMORY), 64 << 10);
        let chmu = devices.state_bytes(&[Need::HotLists], &MEMORY);
        assert!((48 << 10..=64 << 10).contains(&chmu), "{chmu}");
        assert_eq!(devices.state_bytes(&[Need::Samples], &MEMORY), 0);
        for need in [Need::Counters, Need::HotLists] {
            assert!(devices.make(&[need], &MEMORY).is_ok());
        }
    }

    #[test]
    fn a_device_beyond_the_budget_is_refused() {
        let devices = Devices::of(&experiment("state = \"64KiB\"")).expect("it is valid");
        let error = devices.make(&[Need::Counters], &MEMORY).map(drop).expect_err("it is large");
        assert!(error.to_string().contains("`telemetry.state` allows 65536"), "{error}");
    }

    #[test]
    fn a_monitoring_unit_sees_all_tiers_but_the_first() {
        let devices = Devices::default();
        assert_eq!(devices.seen(&[Need::HotLists], &MEMORY), MEMORY[1..]);
        assert_eq!(devices.seen(&[Need::HotLists], &MEMORY[..1]), MEMORY[..1]);
        assert_eq!(devices.seen(&[Need::Counters], &MEMORY), MEMORY);
    }

    #[test]
    fn mistakes_have_their_place_in_the_file() {
        let why = |text: &str| Devices::of(&experiment(text)).expect_err("it is one").to_string();
        assert!(why("tiers = [\"hbm\"]").contains("e:5:1: no tier is called `hbm`"));
        assert!(why("tiers = []").contains("see nothing") && why("cpu = 0.0").contains("`cpu`"));
        assert!(why("chmu = { lists = 3 }").contains("lists"));
        let list = Devices::of(&experiment("chmu = { hot-list = 9000 }")).expect("it is read");
        let error = list.make(&[Need::HotLists], &MEMORY).map(drop).expect_err("it is long");
        assert!(error.to_string().contains("COMMON_CAP1.INSTLEN"), "{error}");
    }
}
