//! Routing of physical addresses to controllers and channels.

use tierscope_core::{BusRecord, Error, ErrorKind, Result};

/// A physical range that is interleaved between some controllers by `granule` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Number of its first controller.
    pub first: usize,
    /// Number of its controllers: a power of two.
    pub controllers: usize,
    /// Interleaving granularity: a power of two, at least a cache line.
    pub granule: u64,
}

/// Destination of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The controller.
    pub controller: usize,
    /// Channel of the controller.
    pub channel: usize,
}

/// All physical memory served by controllers with telemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    zones: Vec<Zone>,
    channels: usize,
    controllers: usize,
}

impl Memory {
    /// Memory `0..bytes` of a single controller, as on the prototype's CXL device.
    ///
    /// # Errors
    /// As for [`Memory::new`].
    pub fn single(bytes: u64, channels: usize) -> Result<Self> {
        let zone = Zone { start: 0, end: bytes, first: 0, controllers: 1, granule: 4096 };
        Self::new(vec![zone], channels)
    }

    /// Memory made of zones, in any order; every controller has that many channels.
    ///
    /// # Errors
    /// The invalid field.
    pub fn new(mut zones: Vec<Zone>, channels: usize) -> Result<Self> {
        zones.sort_by_key(|zone| zone.start);
        if zones.is_empty() {
            return Err(refused("zones", "there are none"));
        }
        if !channels.is_power_of_two() || channels > 8 {
            return Err(refused("channels", "1, 2, 4 or 8 can be selected by address bits"));
        }
        zones.iter().try_for_each(check_zone)?;
        for pair in zones.windows(2) {
            if pair[1].start < pair[0].end {
                let at = format!("two zones hold {:#x}", pair[1].start);
                return Err(refused("zones.start", at));
            }
        }
        let controllers = zones.iter().map(|zone| zone.first + zone.controllers).max();
        let memory = Self { zones, channels, controllers: controllers.unwrap_or(0) };
        memory.check_channels()?;
        Ok(memory)
    }

    /// A controller selects the channel by the same address bits in all its zones.
    fn check_channels(&self) -> Result<()> {
        for controller in 0..self.controllers {
            let mut shifts =
                self.zones.iter().filter(|zone| zone.has(controller)).map(|z| self.shift_of(z));
            let first = shifts.next();
            if first.is_none() {
                return Err(refused("zones.first", format!("controller {controller} has none")));
            }
            if shifts.any(|shift| Some(shift) != first) {
                let cause = format!("controller {controller} is interleaved in two ways");
                return Err(refused("zones.granule", cause));
            }
        }
        Ok(())
    }

    /// The lowest address bit that selects a zone's channel: lines are interleaved, unless the
    /// interleaving between controllers takes these bits.
    fn shift_of(&self, zone: &Zone) -> u32 {
        if zone.controllers == 1 || zone.granule >= BusRecord::BYTES * self.channels as u64 {
            return BusRecord::BYTES.trailing_zeros();
        }
        zone.granule.trailing_zeros() + zone.controllers.trailing_zeros()
    }

    /// The zones, by first byte.
    #[must_use]
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Number of controllers.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.controllers
    }

    /// Channels of each controller.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// One past the last byte of memory.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.zones.iter().map(|zone| zone.end).max().unwrap_or(0)
    }

    /// The lowest address bit that selects a controller's channel.
    #[must_use]
    pub fn channel_shift(&self, controller: usize) -> u32 {
        let zone = self.zones.iter().find(|zone| zone.has(controller));
        zone.map_or(0, |zone| self.shift_of(zone))
    }

    /// Controller and channel of an address; `None` if no controller serves it.
    #[must_use]
    #[inline]
    pub fn route(&self, address: u64) -> Option<Destination> {
        let zone = self.zones.iter().find(|zone| zone.start <= address && address < zone.end)?;
        let turn = (address >> zone.granule.trailing_zeros()) as usize;
        let channel = (address >> self.shift_of(zone)) as usize;
        Some(Destination {
            controller: zone.first + (turn & (zone.controllers - 1)),
            channel: channel & (self.channels - 1),
        })
    }

    /// Whether every byte of `start..end` is served.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        let reached = self.zones.iter().fold(start, |reached, zone| {
            if zone.start <= reached && reached < zone.end { zone.end } else { reached }
        });
        start < end && reached >= end
    }

    /// The controllers that serve a part of `start..end`.
    #[must_use]
    pub fn serving(&self, start: u64, end: u64) -> Vec<usize> {
        let meets = |zone: &&Zone| zone.start < end && start < zone.end;
        let mut found: Vec<usize> = (self.zones.iter().filter(meets))
            .flat_map(|zone| zone.first..zone.first + zone.controllers)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Zone {
    fn has(&self, controller: usize) -> bool {
        (self.first..self.first + self.controllers).contains(&controller)
    }
}

fn refused(field: &str, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("memory refused at `{field}`")).cause(cause)
}

fn check_zone(zone: &Zone) -> Result<()> {
    let turn = zone.granule.checked_mul(zone.controllers as u64).unwrap_or(0);
    if !zone.controllers.is_power_of_two() || zone.controllers > 64 {
        return Err(refused("zones.controllers", "1, 2, 4, … 64 can be interleaved"));
    }
    if !zone.granule.is_power_of_two() || zone.granule < BusRecord::BYTES || turn == 0 {
        return Err(refused(
            "zones.granule",
            "a power of two of at least 64 bytes can be a granule",
        ));
    }
    if zone.start >= zone.end || zone.end > BusRecord::LAST_ADDRESS + 1 {
        let cause = format!("{:#x}..{:#x} is no range below 2^48", zone.start, zone.end);
        return Err(refused("zones.end", cause));
    }
    if !zone.start.is_multiple_of(turn) || !zone.end.is_multiple_of(turn) {
        return Err(refused(
            "zones.start",
            format!("not aligned to interleaving periods of {turn} bytes"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sockets(granule: u64) -> Vec<Zone> {
        vec![
            Zone { start: 1 << 30, end: 3 << 30, first: 2, controllers: 1, granule: 4096 },
            Zone { start: 0, end: 1 << 30, first: 0, controllers: 2, granule },
        ]
    }

    // Interleaved by 256 bytes: lines 0..4 to controller 0, 4..8 to controller 1; line parity is
    // the channel.
    #[test]
    fn lines_are_interleaved() {
        let memory = Memory::new(two_sockets(256), 2).unwrap();
        let at = |line: u64| {
            let place = memory.route(line * 64).unwrap();
            (place.controller, place.channel)
        };
        assert_eq!([0, 1, 3, 4, 7, 8].map(at), [(0, 0), (0, 1), (0, 1), (1, 0), (1, 1), (0, 0)]);
        assert_eq!(memory.route(3 << 30), None);
        assert_eq!((memory.controllers(), memory.end()), (3, 3 << 30));
    }

    // Lines interleaved between controllers: another bit must select the channel, or half of all
    // channels would stay idle.
    #[test]
    fn every_channel_gets_its_share() {
        for granule in [64, 128, 256, 4096] {
            let memory = Memory::new(two_sockets(granule), 4).unwrap();
            let mut seen = [[0u32; 4]; 2];
            for line in 0..4096 {
                let place = memory.route(line * 64).unwrap();
                seen[place.controller][place.channel] += 1;
            }
            assert_eq!(seen, [[512; 4]; 2], "{granule}");
        }
    }

    #[test]
    fn ranges_know_their_controllers() {
        let memory = Memory::new(two_sockets(256), 2).unwrap();
        assert_eq!(memory.serving(0, 64), [0, 1]);
        assert_eq!(memory.serving(1 << 29, 2 << 30), [0, 1, 2]);
        assert!(memory.covers(0, 3 << 30) && !memory.covers(0, (3 << 30) + 1));
        assert!(!memory.covers(5, 5));
    }

    #[test]
    fn invalid_memories_are_refused_by_field() {
        let bad = |zones, channels| Memory::new(zones, channels).unwrap_err().to_string();
        let zone = Zone { start: 0, end: 1 << 20, first: 0, controllers: 1, granule: 4096 };
        assert!(bad(vec![], 2).contains("`zones`"));
        assert!(bad(vec![zone, zone], 2).contains("`zones.start`"));
        assert!(bad(vec![Zone { controllers: 3, ..zone }], 2).contains("`zones.controllers`"));
        assert!(bad(vec![Zone { granule: 32, ..zone }], 2).contains("`zones.granule`"));
        assert!(bad(vec![Zone { start: 64, ..zone }], 2).contains("`zones.start`"));
        assert!(bad(vec![Zone { end: 0, ..zone }], 2).contains("`zones.end`"));
        assert!(bad(vec![Zone { first: 1, ..zone }], 2).contains("`zones.first`"));
        assert!(bad(vec![zone], 3).contains("`channels`"));
    }
}
