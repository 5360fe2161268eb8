//! SRAM of a controller, and its division into tables, banks and capture pages.

use tierscope_core::{Cell, Error, ErrorKind, Result};

/// Entries of a pipeline's translation table (NEMO, section 4).
pub const KEYS: usize = 8192;
/// Bits of an entry: valid, and a base index of 13 bits (NEMO, section 4: 14 KiB for 8,192).
pub const ENTRY_BITS: usize = 14;
/// 64-bit words of state that a pipeline can own in each channel (NEMO, section 4).
pub const WORDS: usize = 8192;
/// Words of a bank, the unit in which pipelines own state. The paper does not specify banks: the
/// size is assumed, so that eight banks make the prototype's array and small telemetries waste
/// little.
pub const BANK_WORDS: usize = 1024;
/// Banks that a pipeline can own in each channel.
pub const MAX_BANKS: usize = WORDS / BANK_WORDS;
/// Words that a capture takes from each channel: a page of 4 KiB.
pub const PAGE_WORDS: usize = 512;
/// Words of a cache line.
pub const LINE_WORDS: usize = 8;

/// Resources of one memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Telemetry pipelines.
    pub pipelines: usize,
    /// Memory channels: a power of two, at most 8.
    pub channels: usize,
    /// State banks in each channel, shared by the pipelines.
    pub banks: usize,
}

impl Geometry {
    /// The largest deployment that the paper evaluates (section 4: eight pipelines, two channels).
    pub const PROTOTYPE: Geometry = Geometry { pipelines: 8, channels: 2, banks: 8 * MAX_BANKS };

    /// Whether such a controller is possible.
    ///
    /// # Errors
    /// The invalid field.
    pub fn check(&self) -> Result<()> {
        let bad = |field: &str, cause: &str| {
            let what = format!("controller refused at `{field}`");
            Err(Error::new(ErrorKind::Usage, what).cause(cause))
        };
        match *self {
            Geometry { pipelines: 0 | 65.., .. } => bad("pipelines", "1 to 64 can be addressed"),
            Geometry { channels, .. } if !channels.is_power_of_two() || channels > 8 => {
                bad("channels", "1, 2, 4 or 8 can be selected by address bits")
            }
            Geometry { banks: 0, .. } => bad("banks", "without banks there is no state"),
            _ => Ok(()),
        }
    }

    /// SRAM bytes of all translation tables, one per pipeline and channel as in the prototype.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        (self.pipelines * self.channels * KEYS * ENTRY_BITS / 8) as u64
    }

    /// SRAM bytes of all states.
    #[must_use]
    pub fn state_bytes(&self) -> u64 {
        (self.channels * self.banks * BANK_WORDS * 8) as u64
    }

    /// SRAM bytes of the capture pages ([`crate::region`]).
    #[must_use]
    pub fn capture_bytes(&self) -> u64 {
        (self.channels * PAGE_WORDS * 8) as u64
    }
}

/// States that a pipeline can hold in counters of this width. For byte counters it is one less than
/// the capacity: functional table entries have 16 bits, and their largest value means no entry.
#[must_use]
pub fn states_per_pipeline(cell: Cell) -> u64 {
    (WORDS as u64 * u64::from(cell.per_word())).min(u64::from(u16::MAX))
}

/// Banks that `states` states need in each channel.
#[must_use]
pub fn banks_for(states: u64, cell: Cell) -> u64 {
    states.div_ceil(u64::from(cell.per_word())).div_ceil(BANK_WORDS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Section 4: 14 KiB of table, 128 KiB of state over 2 channels; here each channel has a table.
    #[test]
    fn a_pipeline_of_the_prototype() {
        let one = Geometry { pipelines: 1, channels: 2, banks: MAX_BANKS };
        assert_eq!((one.table_bytes(), one.state_bytes()), (28 << 10, 128 << 10));
        assert_eq!(one.capture_bytes(), 8 << 10);
        assert!(one.check().is_ok());
    }

    #[test]
    fn narrow_counters_are_more() {
        let cell = |bytes| Cell::new(bytes, false).unwrap();
        assert_eq!(states_per_pipeline(cell(1)), 65_535);
        assert_eq!(states_per_pipeline(cell(3)), 16_384);
        assert_eq!((banks_for(1024, cell(8)), banks_for(1025, cell(8))), (1, 2));
        assert_eq!(banks_for(8193, cell(1)), 2);
    }

    #[test]
    fn impossible_controllers_are_refused() {
        let bad = |geometry: Geometry| geometry.check().unwrap_err().to_string();
        let good = Geometry::PROTOTYPE;
        assert!(bad(Geometry { channels: 3, ..good }).contains("`channels`"));
        assert!(bad(Geometry { pipelines: 0, ..good }).contains("`pipelines`"));
        assert!(bad(Geometry { banks: 0, ..good }).contains("`banks`"));
    }
}
