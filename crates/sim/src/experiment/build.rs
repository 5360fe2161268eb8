//! Builds an experiment from the keys of its file.

use std::num::NonZeroU32;
use std::time::Duration;

use tierscope_core::{Tier, units};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_workloads::Work;
use toml::Spanned;

use super::file::{self, File};
use super::vary::changed;
use super::{Experiment, Faulty, Mode, ReadWorkload, Settings, Watcher};
use crate::config::{Costs, Event, Period, Sampling};
use crate::density::{self, Config, Swap};
use crate::exact::{Machine, Placement, Process, Setup};

/// Default hardware: that of the Telescope article.
const HARDWARE: &str = "xeon-gold-6238m";

/// Parses a text with `read`; an error carries the text's position.
fn of<T>(
    text: &Spanned<String>,
    read: impl Fn(&str) -> std::result::Result<T, String>,
) -> Faulty<T> {
    read(text.get_ref()).map_err(|what| (text.span().start, what))
}

/// A time of at least a nanosecond, or `never`.
fn time_or_never(text: &Spanned<String>) -> Faulty<Option<Duration>> {
    of(text, |text| match text {
        "never" => Ok(None),
        _ => match units::time(text)? {
            Duration::ZERO => Err("give a time, or `never`".into()),
            time => Ok(Some(time)),
        },
    })
}

fn said(error: impl ToString) -> String {
    error.to_string()
}

/// A ready-made item by name, or a file.
fn named<T>(
    text: &str,
    ready: impl Fn(&str) -> tierscope_core::Result<T>,
    parse: impl Fn(&str, &str) -> tierscope_core::Result<T>,
) -> std::result::Result<T, String> {
    if !text.ends_with(".toml") {
        return ready(text).map_err(said);
    }
    let content =
        tierscope_workloads::text_file::read(text).map_err(|error| format!("{text}: {error}"))?;
    parse(text, &content).map_err(said)
}

impl File {
    /// Builds the experiment and checks that its parts are consistent.
    ///
    /// # Errors
    /// The first inconsistency, and its position.
    pub fn check(&self, workload: ReadWorkload) -> Faulty<Experiment> {
        let time = of(&self.time, units::time)?;
        let window = self.window.as_ref().map(|text| of(text, units::time)).transpose()?;
        let window = window.unwrap_or(Duration::from_millis(200));
        if window.is_zero() || time < window {
            return Err((self.time.span().start, "it does not hold a window".into()));
        }
        let warm_up = self.warm_up.as_ref().map(|text| of(text, units::time)).transpose()?;
        let warm_up = warm_up.unwrap_or_default();
        if let Some(text) = self.warm_up.as_ref().filter(|_| warm_up >= time) {
            return Err((text.span().start, "nothing is left to measure after it".into()));
        }
        let hardware = self.machine.hardware()?;
        let hardware = changed(hardware, "hardware", &self.changes, Hardware::parse)
            .map_err(|error| (0, said(error)))?;
        let processes = self.processes(&hardware, workload)?;
        let setup = self.setup(hardware, &processes)?;
        let config = self.config(&setup, &processes)?;
        match self.simulation.mode {
            Mode::Exact => self.check_exact(&setup, &processes)?,
            Mode::Density => self.check_density(&config, &processes)?,
        }
        let sampling = self.sampling();
        Ok(Experiment {
            name: self.name.clone(),
            about: self.about.clone(),
            source: self.source.clone(),
            time,
            window,
            seed: self.seed(),
            mode: self.simulation.mode,
            watchers: self.watchers()?,
            policies: self.policies.iter().map(|p| (p.get_ref().clone(), p.span().start)).collect(),
            warm_up,
            setup,
            processes,
            config,
            sampling,
            memory_cores: self.machine.memory_cores.as_ref().map(|cores| *cores.get_ref()),
            every: self.simulation.sampling.every,
            telemetry: self.telemetry.as_ref().map(|t| (t.span().start, t.get_ref().clone())),
            file: Default::default(),
        })
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    fn watchers(&self) -> Faulty<Vec<Watcher>> {
        let listed = self.instruments.iter().map(|name| Watcher {
            name: name.get_ref().clone(),
            settings: None,
            offset: name.span().start,
        });
        let own = self.instrument.iter().map(|table| {
            Ok(Watcher {
                name: table.get_ref().name.clone(),
                settings: Some(table.get_ref().settings()?),
                offset: table.span().start,
            })
        });
        let all = listed.map(Ok).chain(own).collect::<Faulty<Vec<Watcher>>>()?;
        let twice =
            all.iter().enumerate().find(|(at, w)| all[..*at].iter().any(|o| o.name == w.name));
        // Recordings use these names as file names.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if let Some(odd) = all.iter().find(|w| w.name.is_empty() || !w.name.chars().all(plain)) {
            return Err((odd.offset, "a name is made of letters, digits, - and _".into()));
        }
        match twice {
            Some((_, watcher)) => {
                Err((watcher.offset, format!("there are two instruments `{}`", watcher.name)))
            }
            None => Ok(all),
        }
    }

    fn processes(&self, hardware: &Hardware, workload: ReadWorkload) -> Faulty<Vec<Process>> {
        let mut next_cpu = 0;
        let mut processes = Vec::new();
        for (index, table) in self.process.iter().enumerate() {
            let table = table.get_ref();
            let work: Work = of(&table.workload, |text| workload(text).map_err(said))?;
            let process = Process::new(work);
            let threads = table.threads.unwrap_or(process.threads);
            let first_cpu = table.cpu.unwrap_or(next_cpu);
            next_cpu = first_cpu.saturating_add(threads);
            let placement = match &table.placement {
                None => Placement::FirstTouch,
                Some(text) => {
                    placement(text.get_ref(), hardware).map_err(|what| (text.span().start, what))?
                }
            };
            processes.push(Process {
                name: table.name.clone().unwrap_or(process.name),
                threads,
                first_cpu,
                seed: table.seed.unwrap_or(self.seed().wrapping_add(index as u64)),
                pages: table.pages.unwrap_or(PageSize::K4),
                placement,
                overlap: table.simulation.overlap,
                non_temporal: table.non_temporal || process.non_temporal,
                uncached_tables: table.simulation.uncached_tables,
                watched: table.simulation.watched.clone(),
                trapped: table.simulation.trapped,
                area_pages: table.area_pages.clone().into_iter().collect(),
                populate: table.populate.unwrap_or(true),
                written: table.written,
                repeats: table.repeats.unwrap_or(true),
                ..process
            });
        }
        if processes.is_empty() {
            return Err((0, "there is no process".into()));
        }
        Ok(processes)
    }

    fn setup(&self, hardware: Hardware, processes: &[Process]) -> Faulty<Setup> {
        let costs = match &self.simulation.costs {
            None => Costs::ready_made("linux").map_err(|error| (0, said(error)))?,
            Some(text) => of(text, |text| named(text, Costs::ready_made, Costs::parse))?,
        };
        let costs = changed(costs, "costs", &self.changes, Costs::parse)
            .map_err(|error| (0, said(error)))?;
        let costs = match self.simulation.exact.swap {
            Some(Swap::Zswap) => costs.compressing(),
            Some(Swap::Device) | None => costs,
        };
        let used = processes.iter().map(|p| p.first_cpu.saturating_add(p.threads)).max();
        let most = hardware.processor.cpus();
        let defaults = Setup::new(hardware, costs);
        let (machine, exact) = (&self.machine, &self.simulation.exact);
        let flush = machine.flush.as_ref().map(time_or_never).transpose()?.flatten();
        let tick = exact.tick.as_ref().map(time_or_never).transpose()?;
        let quantum = exact.quantum.as_ref().map(|text| of(text, units::time)).transpose()?;
        let bytes = |text: &Option<Spanned<String>>| {
            text.as_ref().map(|text| of(text, units::size)).transpose()
        };
        // Each table has a control block of the same size.
        let tables = bytes(&exact.table_region)?.unwrap_or(0) >> 13;
        let min_free_kib = bytes(&machine.min_free)?.map(|bytes| bytes >> 10);
        Ok(Setup {
            detail: exact.detail.unwrap_or(defaults.detail),
            cpus: machine.cpus.as_ref().map_or(used.unwrap_or(1).clamp(1, most), |n| *n.get_ref()),
            memory_mode: machine.memory_mode,
            uncached_tables: u32::try_from(tables).unwrap_or(u32::MAX),
            profiler_cpu: exact.profiler_cpu.as_ref().map(|cpu| *cpu.get_ref()),
            tick: tick.unwrap_or(defaults.tick),
            flush,
            quantum: quantum.unwrap_or(defaults.quantum),
            watermark_scale: machine
                .watermark_scale_factor
                .as_ref()
                .map_or(defaults.watermark_scale, |factor| *factor.get_ref()),
            min_free_kib,
            ..defaults
        })
    }

    fn config(&self, setup: &Setup, processes: &[Process]) -> Faulty<Config> {
        let mut config = Config::of(&setup.hardware, setup.costs.clone());
        let density = &self.simulation.density;
        config.seed = self.seed();
        (config.flush, config.tick) = (setup.flush, setup.tick);
        (config.watermark_scale, config.min_free_kib) = (setup.watermark_scale, setup.min_free_kib);
        config.cores = processes.iter().map(|p| p.threads).sum::<u32>();
        config.rate = density.rate.or(config.rate);
        config.placement = processes[0].placement.clone();
        config.overlap = processes[0].overlap;
        config.huge = processes[0].pages == PageSize::M2;
        config.visit = density.visit.as_ref().map(|text| of(text, units::size)).transpose()?;
        if let Some(text) = &density.pause {
            config.pause = of(text, units::time)?;
        }
        config.late = density.late.as_ref().map(|text| of(text, units::time)).transpose()?;
        config.start = density.start.unwrap_or(config.start);
        config.swap = density.swap;
        config.reclaimers = density.reclaimers.map_or(config.reclaimers, NonZeroU32::get);
        Ok(config)
    }

    fn sampling(&self) -> Sampling {
        let table = &self.simulation.sampling;
        let events = table.events.clone().unwrap_or(vec![Event::Loads, Event::Stores]);
        Sampling { events, ..Sampling::loads_and_stores(Period::PerSecond(1)) }
    }

    fn check_exact(&self, setup: &Setup, processes: &[Process]) -> Faulty<()> {
        let sampled = Setup { sampling: Some(self.sampling()), ..setup.clone() };
        Machine::new(&sampled).map_err(|error| (self.machine.place(), said(error)))?;
        setup
            .admits(processes)
            .map_err(|(index, error)| (self.process[index].span().start, said(error)))
    }

    fn check_density(&self, config: &Config, processes: &[Process]) -> Faulty<()> {
        if let Some(second) = self.process.get(1) {
            return Err((second.span().start, "densities take one process".into()));
        }
        let of_one_size = processes[0].area_pages.is_empty();
        if !of_one_size || processes[0].pages == PageSize::G1 {
            let here = self.process[0].span().start;
            return Err((here, "densities take pages of 4K or 2M, the same for all areas".into()));
        }
        let at = self.process[0].get_ref().workload.span().start;
        let workload = processes[0].work.described().ok_or_else(|| {
            (at, "its accesses follow from what it computes: it has no densities".into())
        })?;
        density::Machine::new(config.clone(), &workload).map_err(|error| (at, said(error)))?;
        Ok(())
    }
}

impl file::Machine {
    /// Position for errors that concern the whole machine.
    fn place(&self) -> usize {
        let hardware = self.hardware.as_ref().map(|text| text.span().start);
        let cpus = self.cpus.as_ref().map(|cpus| cpus.span().start);
        cpus.or(hardware).unwrap_or(0)
    }

    /// The hardware, with the requested levels and tiers.
    fn hardware(&self) -> Faulty<Hardware> {
        let mut hardware = match &self.hardware {
            None => Hardware::ready_made(HARDWARE).map_err(|error| (0, said(error)))?,
            Some(text) => of(text, |text| named(text, Hardware::ready_made, Hardware::parse))?,
        };
        if let Some(levels) = &self.levels {
            if !matches!(levels.get_ref(), 4 | 5) {
                return Err((levels.span().start, "x86-64 has 4 or 5 levels".into()));
            }
            hardware.translation.levels = *levels.get_ref();
            hardware.translation.psc.retain(|cache| cache.level <= *levels.get_ref());
        }
        if let (Some(slices), Some(llc)) = (&self.llc_slices, &mut hardware.llc) {
            if *slices.get_ref() == 0 {
                return Err((slices.span().start, "a cache has at least one slice".into()));
            }
            llc.slices = *slices.get_ref();
        }
        if let (Some(entries), Some(array)) =
            (&self.second_tlb, hardware.translation.l2.first_mut())
        {
            let (few, ways) = (*entries.get_ref(), array.ways);
            if !few.is_multiple_of(ways) || !(few / ways).is_power_of_two() || few > array.entries {
                let most = array.entries;
                return Err((
                    entries.span().start,
                    format!("{ways}, or twice as many and so on, up to {most}"),
                ));
            }
            array.entries = few;
        }
        if !self.tier.is_empty() {
            let tiers = self.tier.iter().map(|table| table.get_ref().of(&hardware));
            hardware.tiers = tiers.collect::<Faulty<Vec<_>>>()?;
        }
        if let Some(cores) = &self.memory_cores {
            let all = hardware.cores();
            if !(1..=all).contains(cores.get_ref()) {
                return Err((cores.span().start, format!("{} has {all} cores", hardware.name)));
            }
            hardware.take_memory_of(*cores.get_ref());
        }
        if let Some(scale) = self.watermark_scale_factor.as_ref()
            && !(1..=3000).contains(scale.get_ref())
        {
            return Err((scale.span().start, "the kernel takes 1 to 3000".into()));
        }
        Ok(hardware)
    }
}

impl file::Tier {
    fn of(&self, hardware: &Hardware) -> Faulty<tierscope_hw::config::MemoryTier> {
        let (name, at) = (self.name.get_ref(), self.name.span().start);
        let found = hardware.tiers.iter().find(|tier| tier.name == *name);
        let mut tier = found.cloned().ok_or_else(|| (at, no_tier(name, hardware)))?;
        if let Some(text) = &self.size {
            let bytes = of(text, units::size)?;
            if bytes == 0 || !bytes.is_multiple_of(2 << 20) {
                return Err((text.span().start, "a tier has whole blocks of 2 MiB".into()));
            }
            tier.mib = bytes >> 20;
        }
        Ok(tier)
    }
}

impl file::Instrument {
    fn settings(&self) -> Faulty<Settings> {
        let time = |text: &Option<Spanned<String>>| {
            text.as_ref().map(|text| of(text, units::time)).transpose()
        };
        Ok(Settings {
            instrument: self.instrument.clone(),
            variant: self.variant.clone(),
            sampling: time(&self.sampling)?,
            update: time(&self.update)?,
            min_regions: self.min_regions,
            max_regions: self.max_regions,
            cpu: self.cpu,
            may_flush: self.may_flush,
            samples: self.samples,
        })
    }
}

fn no_tier(name: &str, hardware: &Hardware) -> String {
    let names: Vec<&str> = hardware.tiers.iter().map(|tier| tier.name.as_str()).collect();
    format!("{} has no tier `{name}`: choose from {}", hardware.name, names.join(", "))
}

fn placement(
    wanted: &file::Placement,
    hardware: &Hardware,
) -> std::result::Result<Placement, String> {
    let tier = |name: &String| {
        let found = hardware.tiers.iter().position(|tier| tier.name == *name);
        found.map(|at| Tier(at as u8)).ok_or_else(|| no_tier(name, hardware))
    };
    Ok(match wanted {
        file::Placement::FirstTouch => Placement::FirstTouch,
        file::Placement::Bind(name) => Placement::Bind(tier(name)?),
        file::Placement::Interleave(names) if names.is_empty() => {
            return Err("name the tiers to interleave".into());
        }
        file::Placement::Interleave(names) => {
            Placement::Interleave(names.iter().map(tier).collect::<std::result::Result<_, _>>()?)
        }
    })
}
