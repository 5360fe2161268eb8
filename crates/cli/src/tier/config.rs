//! The configuration of `tierscope tier`: a TOML file.
//!
//! ```toml
//! policy = "hot-region:share=0.25"
//! instrument = "rates"            # for policies that work on regions
//! variant = "bayes"
//!
//! [tiers]                         # left out: what the kernel says
//! nodes = [[0], [1]]              # fastest first
//! capacity = ["4GiB"]             # of the target; left out or "": the nodes'
//!
//! [limits]
//! bytes-per-second = "1GiB/s"     # or "1GiB"
//! keep-free = "256MiB"            # on every node, above the kernel's low watermark
//! stalled = 0.1                   # share of time that some task waits for memory
//! ping-pong = "60s"
//! kill-switch = "/run/tierscope/hold"
//! ```
//!
//! SIGHUP reloads the file: new limits take effect at once; for any other change a message says
//! that it needs a restart.

use std::fmt::{self, Formatter};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use tierscope_core::{Error, ErrorKind, Result, names};
use tierscope_linux::tiering::{Limits, TierConfig};

use crate::units;

/// Contents of a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The policy and its settings: NAME or NAME:key=value,...
    pub policy: Option<String>,
    /// Name of the instrument.
    pub instrument: Option<String>,
    /// Variant of the instrument.
    pub variant: Option<String>,
    tiers: Tiers,
    limits: Limit,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tiers {
    nodes: Vec<Vec<u32>>,
    capacity: Vec<Size>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct Limit {
    #[serde(alias = "bytes_per_second")]
    bytes_per_second: Option<Size>,
    #[serde(alias = "keep_free")]
    keep_free: Option<Size>,
    stalled: Option<f64>,
    #[serde(alias = "ping_pong")]
    ping_pong: Option<String>,
    #[serde(alias = "kill_switch")]
    kill_switch: Option<PathBuf>,
}

/// A size or rate as written in the file: text like "4GiB" or "4GiB/s", or a number of bytes.
#[derive(Clone, Debug, PartialEq)]
struct Size(String);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Size;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("a size like \"4GiB\", or a number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Ok(Size(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                Ok(Size(bytes.to_string()))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or parsed: with line and column.
    pub fn load(path: &Path) -> Result<Self> {
        let text = tierscope_workloads::text_file::read(path).map_err(|e| {
            Error::new(ErrorKind::Usage, format!("cannot read {}", path.display()))
                .cause(e)
                .remedy("give a file with --config, or leave it out")
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut config: Self = toml::from_str(text).map_err(|e| {
            let before = text.get(..e.span().map_or(0, |span| span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            refuse(path, format!("line {line}: {}", e.message().replace('\n', " ")))
        })?;
        config.policy = config.policy.as_deref().map(names::kebab_line);
        config.limits(path)?;
        config.tier_config(path)?;
        Ok(config)
    }

    /// The tiers that the file describes.
    ///
    /// # Errors
    /// A capacity is not a size.
    pub fn tier_config(&self, path: &Path) -> Result<TierConfig> {
        let size = |Size(text): &Size| match text.as_str() {
            "" => Ok(None),
            text => bytes(path, "tiers.capacity", text).map(Some),
        };
        let capacity = self.tiers.capacity.iter().map(size).collect::<Result<_>>()?;
        Ok(TierConfig { nodes: self.tiers.nodes.clone(), capacity })
    }

    /// The limits; those missing in the file have defaults.
    ///
    /// # Errors
    /// A value is not a size, rate or time, or the limits are invalid.
    pub fn limits(&self, path: &Path) -> Result<Limits> {
        let mut limits = Limits::default();
        let given = &self.limits;
        if let Some(Size(text)) = &given.bytes_per_second {
            let none = |e| refuse(path, format!("limits.bytes-per-second = {text:?}: {e}"));
            limits.bytes_per_second = units::rate(text).map_err(none)?;
        }
        if let Some(Size(text)) = &given.keep_free {
            limits.keep_free = bytes(path, "limits.keep-free", text)?;
        }
        if let Some(text) = &given.ping_pong {
            let none = |e| refuse(path, format!("limits.ping-pong = {text:?}: {e}"));
            limits.ping_pong = units::time(text).map_err(none)?;
        }
        limits.stalled = given.stalled.unwrap_or(limits.stalled);
        limits.kill_switch.clone_from(&given.kill_switch);
        limits.check()?;
        Ok(limits)
    }

    /// Whether the two configurations differ in anything other than limits.
    #[must_use]
    pub fn wants_restart(&self, other: &Self) -> bool {
        Self { limits: Limit::default(), ..self.clone() }
            != Self { limits: Limit::default(), ..other.clone() }
    }
}

fn bytes(path: &Path, key: &str, text: &str) -> Result<u64> {
    units::address(text)
        .map_err(|_| refuse(path, format!("{key} = {text:?}: not a size: give it like \"4GiB\"")))
}

fn refuse(path: &Path, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot use {}", path.display()))
        .cause(cause)
        .remedy("mend it, then try `tierscope tier --check --config` with it")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("tier.toml"))
    }

    #[test]
    fn a_file_sets_only_the_settings_that_it_names() {
        let text = "policy = \"static\"\n[tiers]\nnodes = [[0], [1, 2]]\ncapacity = [\"1.5GiB\", \"\"]\n\
                    [limits]\nbytes-per-second = \"16MiB/s\"\nping-pong = \"30s\"\nkill-switch = \"/x\"\n";
        let config = parse(text).unwrap();
        let path = Path::new("tier.toml");
        let tiers = config.tier_config(path).unwrap();
        assert_eq!(tiers.nodes, [vec![0], vec![1, 2]]);
        assert_eq!(tiers.capacity, [Some(3 << 29), None]);
        let limits = config.limits(path).unwrap();
        assert_eq!(
            (limits.bytes_per_second, limits.ping_pong),
            (16 << 20, Duration::from_secs(30))
        );
        assert_eq!((limits.stalled, limits.keep_free), (0.1, 0));
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn a_rate_or_size_may_be_a_number_of_bytes() {
        let config = parse("[tiers]\ncapacity = [4096]\n[limits]\nbytes-per-second = 4194304\n");
        let (config, path) = (config.unwrap(), Path::new("tier.toml"));
        assert_eq!(config.tier_config(path).unwrap().capacity, [Some(4096)]);
        assert_eq!(config.limits(path).unwrap().bytes_per_second, 4 << 20);
        let config = parse("[limits]\nbytes-per-second = \"64MiB\"\n").unwrap();
        assert_eq!(config.limits(path).unwrap().bytes_per_second, 64 << 20);
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (text, cause) in [
            ("policy = \"static\"\ncolour = 1\n", "line 2: unknown field `colour`"),
            (
                "[limits]\nbytes-per-second = \"fast\"\n",
                "limits.bytes-per-second = \"fast\": `fast` is not a rate",
            ),
            ("[limits]\nkeep-free = -1\n", "limits.keep-free = \"-1\": not a size"),
            (
                "[limits]\nkeep-free = true\n",
                "line 2: invalid type: boolean `true`, expected a size",
            ),
            ("[limits]\nbytes-per-second = \"1K\"\n", "a huge page of 2 MiB moves whole"),
            ("[limits]\nping-pong = \"60\"\n", "limits.ping-pong = \"60\": `60` is not a time"),
            ("[limits]\nstalled = -1.0\n", "share of time above 0"),
            ("[tiers]\ncapacity = [\"many\"]\n", "tiers.capacity = \"many\""),
            ("[tiers]\nnodes = [0, 1]\n", "line 2"),
            ("policy = \n", "line 1"),
        ] {
            let error = parse(text).unwrap_err();
            let shown = error.to_string();
            assert!(error.kind() == ErrorKind::Usage && shown.contains(cause), "{text}: {shown}");
            assert!(!shown.contains('\n'), "{shown}");
        }
    }

    #[test]
    fn old_names_are_still_read() {
        let new = "policy = \"hot-region:verify-pages=4\"\n[limits]\nbytes-per-second = \"16MiB/s\"\n\
                   keep-free = \"1MiB\"\nping-pong = \"30s\"\nkill-switch = \"/x\"\n";
        assert_eq!(parse(&new.replace('-', "_")).unwrap(), parse(new).unwrap());
    }

    #[test]
    fn limits_alone_want_no_restart() {
        let old = parse("policy = \"static\"\n").unwrap();
        assert!(
            !old.wants_restart(&parse("policy = \"static\"\n[limits]\nstalled = 0.5\n").unwrap())
        );
        assert!(old.wants_restart(&parse("policy = \"hot-region\"\n").unwrap()));
    }
}
