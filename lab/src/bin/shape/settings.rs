//! Settings, given as NAME=VALUE.

/// Sizes are in MiB and times in milliseconds, unless a setting names another unit.
#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    /// Anonymous memory that is populated, in pages of 4 KiB.
    pub(crate) used: u64,
    /// Hot part of it, in its middle.
    pub(crate) hot: u64,
    /// Pause between passes over all hot memory, or between times of passes.
    pub(crate) pause: u64,
    /// Time of passes without a pause.
    pub(crate) busy: u64,
    /// GiB of writable memory that is reserved and never touched, and as many without permissions.
    pub(crate) reserved: u64,
    /// Last part of `used`, which is paged out.
    pub(crate) swapped: u64,
    /// Number of threads that wake up once a second.
    pub(crate) threads: u64,
    /// Number of mappings a second that are made, touched and unmapped.
    pub(crate) churn: u64,
    /// Size of a file that is written at the start, and the first part of it that is read again and
    /// again, by read(2).
    pub(crate) file: u64,
    pub(crate) reads: u64,
    /// 1: also memory of each kind (`area.rs`), with 4 MiB hot in each.
    pub(crate) kinds: u64,
    /// Growth of the heap a second; its newest 16 MiB are hot, and nothing else.
    pub(crate) grow: u64,
    /// Size at which the heap stops growing.
    pub(crate) limit: u64,
}

impl Settings {
    pub(crate) fn of(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut settings = Self {
            used: 64,
            hot: 0,
            pause: 2,
            busy: 0,
            reserved: 0,
            swapped: 0,
            threads: 0,
            churn: 0,
            file: 0,
            reads: 0,
            kinds: 0,
            grow: 0,
            limit: 1024,
        };
        for argument in arguments {
            settings.set(&argument)?;
        }
        let Settings { used, hot, swapped, .. } = settings;
        // The middle part must not reach into the part that is paged out.
        if hot > used || hot / 2 + swapped > used / 2 && swapped > 0 {
            return Err(format!("{hot} MiB hot and {swapped} swapped do not fit into {used}"));
        }
        Ok(settings)
    }

    fn set(&mut self, argument: &str) -> Result<(), String> {
        let (name, value) = argument.split_once('=').ok_or(format!("{argument}: no ="))?;
        let slot = match name {
            "used" => &mut self.used,
            "hot" => &mut self.hot,
            "pause" => &mut self.pause,
            "busy" => &mut self.busy,
            "reserved" => &mut self.reserved,
            "swapped" => &mut self.swapped,
            "threads" => &mut self.threads,
            "churn" => &mut self.churn,
            "file" => &mut self.file,
            "reads" => &mut self.reads,
            "kinds" => &mut self.kinds,
            "grow" => &mut self.grow,
            "limit" => &mut self.limit,
            _ => return Err(format!("{name}: no such setting")),
        };
        *slot = value.parse().map_err(|e| format!("{argument}: {e}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<Settings, String> {
        Settings::of(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn settings_are_read_and_checked() {
        let settings = of("used=300 hot=32 grow=100").unwrap();
        assert_eq!((settings.used, settings.hot, settings.grow, settings.pause), (300, 32, 100, 2));
        assert!(of("hot=65").is_err() && of("nosuch=1").is_err() && of("hot").is_err());
        assert!(of("used=400 hot=32 swapped=184").is_ok());
        assert!(of("used=400 hot=32 swapped=185").is_err());
    }
}
