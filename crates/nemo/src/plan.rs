//! Duration of a sweep (NEMO, section 6.1), and its parameters.
//!
//! The section gives T = M·τ / (P·S·G), and with |SRAM| ≈ P·S·W also T = M·τ·W / (|SRAM|·G). For
//! its prototype it states 37 s, 1.4 MiB of SRAM and 90 MiB for 1 TiB; section 4 states 150 KiB per
//! pipeline. These disagree: the first formula yields the 37 s, the second only with the states of
//! one channel, 448 KiB. 1.4 MiB are section 4's 4.4 % of 32 MiB, which is the allocated blocks,
//! not the used words. [`Plan::readings`] shows the result of each assumption.

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};

use crate::geometry::{ENTRY_BITS, KEYS};

/// Parameters of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Inputs {
    /// M: bytes to visit.
    pub memory: u64,
    /// G: bytes per state.
    pub granularity: u64,
    /// P: pipelines.
    pub pipelines: u64,
    /// S: states of a pipeline.
    pub states: u64,
    /// W: bytes of a counter.
    pub counter: u64,
    /// τ: seconds that a region is watched.
    pub period: f64,
    /// Channels, each with its own states.
    pub channels: u64,
}

impl Inputs {
    /// MEMTIS-NEMO on the prototype (sections 5.2 and 6.1).
    pub const PROTOTYPE: Inputs = Inputs {
        memory: 16 << 30,
        granularity: 4096,
        pipelines: 7,
        states: 8192,
        counter: 8,
        period: 0.5,
        channels: 2,
    };

    fn check(&self) -> Result<()> {
        let all = [
            ("memory", self.memory),
            ("granularity", self.granularity),
            ("pipelines", self.pipelines),
            ("states", self.states),
            ("counter", self.counter),
            ("channels", self.channels),
        ];
        let refused = |field: &str, cause: String| {
            Err(Error::new(ErrorKind::Usage, format!("sweep refused at `{field}`")).cause(cause))
        };
        if let Some((field, _)) = all.iter().find(|(_, value)| *value == 0) {
            return refused(field, "0 makes no sweep".into());
        }
        if self.counter > 8 {
            return refused("counter", format!("{} bytes: counters have 1 to 8", self.counter));
        }
        if !(self.period.is_finite() && self.period > 0.0) {
            return refused("period", format!("{} seconds", self.period));
        }
        Ok(())
    }
}

/// An interpretation of |SRAM|, and its consequences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// Components counted as SRAM.
    pub assumption: &'static str,
    /// Bytes of SRAM.
    pub sram: f64,
    /// Seconds of a sweep by the second formula with this |SRAM|.
    pub sweep: f64,
    /// Bytes of SRAM for 1 TiB at the same ratio.
    pub for_a_tebibyte: f64,
}

/// A planned sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Parameters of the sweep.
    pub inputs: Inputs,
    /// States that cover the whole memory.
    pub regions: u64,
    /// States watched at a time.
    pub at_once: u64,
    /// Periods of a full sweep.
    pub periods: u64,
    /// Seconds of a sweep by the first formula, not rounded to periods.
    pub sweep: f64,
    /// Seconds of a sweep in whole periods.
    pub sweep_in_periods: f64,
    /// Results for each interpretation of |SRAM|.
    pub readings: Vec<Reading>,
}

impl Plan {
    /// Plans a sweep.
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn new(inputs: Inputs) -> Result<Self> {
        inputs.check()?;
        let regions = inputs.memory.div_ceil(inputs.granularity);
        let at_once = inputs.pipelines.saturating_mul(inputs.states);
        let periods = regions.div_ceil(at_once);
        let covered = at_once as f64 * inputs.granularity as f64;
        Ok(Self {
            inputs,
            regions,
            at_once,
            periods,
            sweep: inputs.memory as f64 * inputs.period / covered,
            sweep_in_periods: periods as f64 * inputs.period,
            readings: readings(&inputs),
        })
    }
}

/// The interpretations of |SRAM|: those computed from the parameters, and the paper's own figures
/// if the parameters are its prototype's.
fn readings(inputs: &Inputs) -> Vec<Reading> {
    let states = (inputs.pipelines * inputs.states * inputs.counter) as f64;
    let all = states * inputs.channels as f64;
    let table = (inputs.pipelines * (KEYS * ENTRY_BITS / 8) as u64) as f64;
    let tables = table * inputs.channels as f64;
    let mut counted = vec![
        ("states of one channel, P·S·W", states),
        ("states of all channels", all),
        ("and a translation table a pipeline", all + table),
        ("and a translation table a channel, as the prototype has", all + tables),
    ];
    if *inputs == Inputs::PROTOTYPE {
        let pipelines = inputs.pipelines as f64;
        counted.push(("section 4: ~150 KiB a pipeline", pipelines * 150.0 * 1024.0));
        counted.push(("section 4: 4.4 % of 32 MiB of blocks", 0.044 * 32.0 * 1024.0 * 1024.0));
    }
    counted.into_iter().map(|(assumption, sram)| Reading::new(assumption, sram, inputs)).collect()
}

impl Reading {
    fn new(assumption: &'static str, sram: f64, inputs: &Inputs) -> Self {
        let Inputs { memory, granularity, counter, period, .. } = *inputs;
        Self {
            assumption,
            sram,
            sweep: memory as f64 * period * counter as f64 / (sram * granularity as f64),
            for_a_tebibyte: sram * (1u64 << 40) as f64 / memory as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prototypes_figures_come_from_different_assumptions() {
        let plan = Plan::new(Inputs::PROTOTYPE).unwrap();
        assert_eq!((plan.regions, plan.at_once, plan.periods), (4 << 20, 57_344, 74));
        // 2^34 · 0.5 / (7 · 2^13 · 2^12) = 2^8 / 7.
        assert!((plan.sweep - 256.0 / 7.0).abs() < 1e-9, "{}", plan.sweep);
        let kib: Vec<f64> = plan.readings.iter().map(|reading| reading.sram / 1024.0).collect();
        assert_eq!(kib[..5], [448.0, 896.0, 994.0, 1092.0, 1050.0]);
        let by = |n: usize| &plan.readings[n];
        assert!((by(0).sweep - plan.sweep).abs() < 1e-9, "only so do both formulas agree");
        assert_eq!(by(0).for_a_tebibyte, 28.0 * 1024.0 * 1024.0);
        let mib = 1024.0 * 1024.0;
        assert!((by(5).sram / mib - 1.4).abs() < 0.01, "section 6.1's 1.4 MiB");
        assert!((by(5).for_a_tebibyte / mib - 90.0).abs() < 0.5, "section 6.1's 90 MiB");
        assert!((by(5).sweep - 11.36).abs() < 0.01, "but then a sweep would take a third of 37 s");
    }

    #[test]
    fn half_the_width_is_half_the_sweep_at_the_same_sram() {
        let narrow = Inputs { counter: 4, states: 16_384, ..Inputs::PROTOTYPE };
        let (wide, narrow) = (Plan::new(Inputs::PROTOTYPE).unwrap(), Plan::new(narrow).unwrap());
        assert_eq!(wide.readings[0].sram, narrow.readings[0].sram);
        assert!((wide.sweep / narrow.sweep - 2.0).abs() < 1e-9);
    }

    #[test]
    fn it_serialises() {
        let json = serde_json::to_value(Plan::new(Inputs::PROTOTYPE).unwrap()).unwrap();
        assert_eq!(json["periods"], 74);
        assert_eq!(json["readings"][0]["sram"], 458_752.0);
    }

    #[test]
    fn invalid_sweeps_are_refused_by_field() {
        let bad = |inputs| Plan::new(inputs).unwrap_err().to_string();
        let good = Inputs::PROTOTYPE;
        assert!(bad(Inputs { states: 0, ..good }).contains("`states`"));
        assert!(bad(Inputs { counter: 9, ..good }).contains("`counter`"));
        assert!(bad(Inputs { period: f64::NAN, ..good }).contains("`period`"));
    }
}
