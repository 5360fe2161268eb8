//! Times, sizes and ranges with units, as people write them.

use std::time::Duration;

const TIMES: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SIZES: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// `5ms`, `1.5s`, `2min`. A number without a unit is refused: it would be a guess.
///
/// # Errors
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = "ns, us, ms, s, min, h or d";
    scaled(text, &TIMES)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("not a time: give a number and a unit ({units}), like 5ms"))
}

/// A share: `0.9`, `90%`.
///
/// # Errors
/// What is wrong with it.
pub fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a share: give a number from 0 to 1, or 0% to 100%".into())
}

/// An address or a size: `0x7f00_0000`, `4096`, `1.5G`.
///
/// # Errors
/// What is wrong with it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let value = match plain.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => scaled(&plain, &SIZES),
    };
    value.ok_or_else(|| "not an address or size: give it like 0x7f0000000000 or 1.5G".into())
}

/// `A..B`, either end of which may be left out.
///
/// # Errors
/// What is wrong with it.
fn range<T: Copy + PartialOrd>(
    text: &str,
    end: impl Fn(&str) -> Result<T, String>,
    (least, most): (T, T),
) -> Result<std::ops::Range<T>, String> {
    let (from, to) = text.split_once("..").ok_or("not a range: give it like A..B, A.. or ..B")?;
    let or = |text: &str, default| if text.is_empty() { Ok(default) } else { end(text) };
    let range = or(from, least)?..or(to, most)?;
    if range.start < range.end { Ok(range) } else { Err("it ends before it begins".into()) }
}

/// `2s..10s`: times since the recording began.
///
/// # Errors
/// What is wrong with it.
pub fn time_range(text: &str) -> Result<std::ops::Range<Duration>, String> {
    range(text, duration, (Duration::ZERO, Duration::MAX))
}

/// `0x7f0000000000..0x7f8000000000`.
///
/// # Errors
/// What is wrong with it.
pub fn address_range(text: &str) -> Result<std::ops::Range<u64>, String> {
    range(text, bytes, (0, u64::MAX))
}

/// Addresses, or what is mapped under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Addresses in every space.
    Addresses(std::ops::Range<u64>),
    /// The name of a mapping, or of what stands behind it.
    Named(String),
}

/// `0x7f0000000000..0x7f8000000000`, `heap`, `libc.so.6`. Whatever has two dots and begins or ends
/// like a number is meant as addresses.
///
/// # Errors
/// What is wrong with it.
pub fn place(text: &str) -> Result<Place, String> {
    let is_number = |end: &str| end.is_empty() || end.starts_with(|c: char| c.is_ascii_digit());
    match text.split_once("..") {
        Some((from, to)) if is_number(from) && is_number(to) => {
            address_range(text).map(Place::Addresses)
        }
        _ if text.is_empty() => Err("give addresses or a name".into()),
        _ => Ok(Place::Named(text.into())),
    }
}

/// A number with an optional fraction, times its unit; exact, rounded down.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let of_fraction = u128::from(*scale).checked_mul(fraction.parse::<u128>().ok()?)?
        / 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let of_whole = u128::from(*scale).checked_mul(whole.parse::<u128>().ok()?)?;
    u64::try_from(of_whole.checked_add(of_fraction)?).ok()
}

/// `1.2 GiB`: three digits or so, for people.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.checked_ilog2().unwrap_or(0) / 10) as usize;
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let digits = usize::from(power > 0 && value < 100.0);
    format!("{value:.digits$} {}", UNITS[power])
}

/// `5ms`, `1.5s`: the shortest way to write it that [`duration`] reads back.
#[must_use]
pub fn show_duration(time: Duration) -> String {
    let nanos = time.as_nanos();
    let (unit, scale) = match nanos {
        0..1_000 => ("ns", 1),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let fraction = format!("{:09}", nanos % scale * (1_000_000_000 / scale));
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{}{dot}{fraction}{unit}", nanos / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_are_addresses_or_names() {
        assert_eq!(place("0x1000..8K"), Ok(Place::Addresses(4096..8192)));
        assert_eq!(place("4K.."), Ok(Place::Addresses(4096..u64::MAX)));
        assert!(place("2..1").is_err() && place("").is_err());
        for name in ["heap", "[heap]", "libc.so.6", "/a..b", "a..b"] {
            assert_eq!(place(name), Ok(Place::Named(name.into())));
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for wrong in ["5", "", "ms", "-5ms", "5 ms", "5ks", "1.2.3s", "99999999999999h", ".", "é"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_and_sizes() {
        assert_eq!(bytes("0x7f00_0000"), Ok(0x7f00_0000));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("4096"), Ok(4096));
        assert!(bytes("0xzz").is_err() && bytes("4X").is_err() && bytes("").is_err());
    }

    #[test]
    fn ranges_may_be_open() {
        assert_eq!(time_range("2s..10s"), Ok(Duration::from_secs(2)..Duration::from_secs(10)));
        assert_eq!(time_range("..10s"), Ok(Duration::ZERO..Duration::from_secs(10)));
        assert_eq!(address_range("0x10.."), Ok(0x10..u64::MAX));
        assert!(time_range("10s..2s").is_err() && time_range("2s").is_err());
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(show_bytes(0), "0 B");
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes(300 << 30), "300 GiB");
        assert_eq!(show_bytes(5 << 40), "5.0 TiB");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(nanos in 0u64..1 << 50) {
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(duration(&show_duration(time)), Ok(time));
        }

        #[test]
        fn any_text_does_no_harm(text in ".{0,40}") {
            let _ = (duration(&text), bytes(&text), time_range(&text), address_range(&text));
        }
    }
}
