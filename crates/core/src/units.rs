//! Sizes, rates, times, shares and ranges as text: one grammar for command lines, configurations
//! and experiments, and one form in which each is written.

use std::ops::Range;
use std::time::Duration;

const SIZES: [(&str, u64); 17] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

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

/// Parses a size: a number with `KiB`, `MiB`, `GiB`, `TiB`, `PiB` or `K`, `M`, `G`, `T`, `P`
/// (powers of 1024), with `kB`, `MB`, `GB`, `TB`, `PB` (powers of 1000), or with `B` or no unit
/// (bytes). Underscores between digits are ignored.
///
/// # Errors
/// A description of the problem, with an example.
pub fn size(text: &str) -> Result<u64, String> {
    scaled(text, &SIZES)
        .ok_or_else(|| format!("`{text}` is not a size: give it like 4096, 64MiB or 1.5GiB"))
}

/// Parses an address or a size: `0x7f00_0000`, or as [`size`].
///
/// # Errors
/// A description of the problem, with an example.
pub fn address(text: &str) -> Result<u64, String> {
    let hex =
        text.strip_prefix("0x").map(|hex| u64::from_str_radix(&hex.replace('_', ""), 16).ok());
    hex.unwrap_or_else(|| scaled(text, &SIZES)).ok_or_else(|| {
        format!("`{text}` is not an address or size: give it like 0x7f0000000000 or 1.5GiB")
    })
}

/// Parses a rate in bytes per second: a size, with or without `/s` after it.
///
/// # Errors
/// A description of the problem, with an example.
pub fn rate(text: &str) -> Result<u64, String> {
    scaled(text.strip_suffix("/s").unwrap_or(text), &SIZES)
        .ok_or_else(|| format!("`{text}` is not a rate: give it like 100MB/s or 64MiB/s"))
}

/// Parses a time: a number with `ns`, `us`, `ms`, `s`, `min`, `h` or `d`. A number without a unit
/// is refused as ambiguous.
///
/// # Errors
/// A description of the problem, with an example.
pub fn time(text: &str) -> Result<Duration, String> {
    scaled(text, &TIMES).map(Duration::from_nanos).ok_or_else(|| {
        format!("`{text}` is not a time: give a number with ns, us, ms, s, min, h or d, like 5ms")
    })
}

/// Parses a share: `0.9`, `90%`.
///
/// # Errors
/// A description of the problem.
pub fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share
        .ok_or_else(|| format!("`{text}` is not a share: give a number from 0 to 1, or 0% to 100%"))
}

/// Parses `A..B`, either end of which may be left out: then it is that of `bounds`.
///
/// # Errors
/// A description of the problem.
pub fn range<T: Copy + PartialOrd>(
    text: &str,
    end: impl Fn(&str) -> Result<T, String>,
    bounds: Range<T>,
) -> Result<Range<T>, String> {
    let (from, to) = text.split_once("..").ok_or("not a range: give it like A..B, A.. or ..B")?;
    let or = |text: &str, default| if text.is_empty() { Ok(default) } else { end(text) };
    let range = or(from, bounds.start)?..or(to, bounds.end)?;
    if range.start < range.end { Ok(range) } else { Err("it ends before it begins".into()) }
}

/// Multiplies a number, with an optional fraction, by its unit; exact, rounded down. A space may
/// part them.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let (number, unit) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    let of_fraction = u128::from(*scale).checked_mul(fraction.parse::<u128>().ok()?)?
        / 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let of_whole = u128::from(*scale).checked_mul(whole.parse::<u128>().ok()?)?;
    u64::try_from(of_whole.checked_add(of_fraction)?).ok()
}

/// Writes a size in the shortest form that [`size`] reads back exactly: `64MiB`, `4097`.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let exact =
        units.into_iter().find(|(_, shift)| bytes >> shift > 0 && bytes.is_multiple_of(1 << shift));
    exact.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Writes a time in the shortest form that [`time`] reads back exactly: `5ms`, `1.5s`.
#[must_use]
pub fn exact_time(time: Duration) -> String {
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

/// Writes a size for display, with about three digits: `1.5 GiB`, `2 GiB`, `300 GiB`; one decimal
/// below 100, left out if it is zero.
#[must_use]
pub fn about_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value < 100.0 { trimmed(value) } else { format!("{value:.0}") };
    format!("{number} {}", UNITS[unit])
}

/// Writes a time for display: `250 ms`, `3.2 s`, `12 min 5 s`, `2 h 5 min`.
#[must_use]
pub fn about_time(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", trimmed(span.as_secs_f64() * 1e3)),
        1..60 => format!("{} s", trimmed(span.as_secs_f64())),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_string).unwrap_or(text)
}

/// Writes a rate with its interval: `1,240 /s (900..1,700)`; three digits of the estimate, two of
/// its bounds.
#[must_use]
pub fn about_rate(low: f64, mean: f64, high: f64) -> String {
    format!("{} /s ({}..{})", number(mean, 3), number(low, 2), number(high, 2))
}

/// A number with `digits` significant digits, and separators between thousands.
fn number(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if magnitude < -4 {
        return format!("{value:.0$e}", (digits - 1) as usize);
    }
    let behind = digits - 1 - magnitude;
    let unit = 10f64.powi(-behind);
    let text = format!("{:.*}", behind.max(0) as usize, (value / unit).round() * unit);
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    format!("{}{}", grouped(whole), trimmed_zeros(rest))
}

/// A decimal fraction without zeros at its end.
fn trimmed_zeros(text: &str) -> &str {
    text.trim_end_matches('0').trim_end_matches('.')
}

/// Inserts separators between thousands: `1,240`.
fn grouped(whole: &str) -> String {
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a share in at most four characters from 1e-9 on: `0.13`, `3e-4`, `1`.
#[must_use]
pub fn short_share(share: f64) -> String {
    match share {
        share if share <= 0.0 => "0".into(),
        share if share < 0.005 => format!("{share:.0e}"),
        share => trimmed_zeros(&format!("{share:.2}")).into(),
    }
}

/// Writes a share as a percentage: `12.5 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_in_both_systems() {
        assert_eq!(size("10GiB"), Ok(10 << 30));
        assert_eq!(size(" 1.5 KiB"), Ok(1536));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert_eq!(size("10MB"), Ok(10_000_000));
        assert_eq!(size("10_000B"), Ok(10_000));
        assert_eq!((size("4096"), size("1PiB")), (Ok(4096), Ok(1 << 50)));
        assert!(size("ten").unwrap_err().contains("`ten` is not a size"));
        for wrong in ["-1", "99999999TiB", "4X", "", "0x10", "1e30", ".", "é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_hexadecimal_or_sizes() {
        assert_eq!(address("0x7f00_0000"), Ok(0x7f00_0000));
        assert_eq!((address("1.5G"), address("4096")), (Ok(3 << 29), Ok(4096)));
        assert!(address("0xzz").is_err() && address("0x").is_err() && address("").is_err());
    }

    #[test]
    fn rates_are_sizes_a_second() {
        assert_eq!((rate("100MB/s"), rate("64MiB")), (Ok(100_000_000), Ok(64 << 20)));
        assert_eq!(rate("1.5 GiB/s"), Ok(3 << 29));
        assert!(rate("fast").is_err() && rate("/s").is_err() && rate("5MB/min").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2min"), Ok(Duration::from_secs(120)));
        assert_eq!((time("0s"), time("5 ms")), (Ok(Duration::ZERO), Ok(Duration::from_millis(5))));
        for wrong in ["5", "", "ms", "-5ms", "5ks", "1.2.3s", "99999999999999h", ".", "é", "NaNs"]
        {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_numbers_or_percentages() {
        assert_eq!((share("0.9"), share("90%")), (Ok(0.9), Ok(0.9)));
        assert!(share("101%").is_err() && share("-1").is_err() && share("all").is_err());
    }

    #[test]
    fn ranges_may_be_open() {
        let times = |text: &str| range(text, time, Duration::ZERO..Duration::MAX);
        assert_eq!(times("2s..10s"), Ok(Duration::from_secs(2)..Duration::from_secs(10)));
        assert_eq!(times("..10s"), Ok(Duration::ZERO..Duration::from_secs(10)));
        assert_eq!(range("0x10..", address, 0..u64::MAX), Ok(0x10..u64::MAX));
        assert!(times("10s..2s").is_err() && times("2s").is_err());
    }

    #[test]
    fn sizes_for_display() {
        let shown = [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1, 5 << 40].map(about_size);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "1 GiB", "5 TiB"]);
        let shown = [1535 << 8, 102_348, 300 << 30, (1 << 20) - 512].map(about_size);
        assert_eq!(shown, ["384 KiB", "99.9 KiB", "300 GiB", "1 MiB"]);
        assert_eq!(
            (about_size(102_399), about_size(u64::MAX)),
            ("100 KiB".into(), "16 EiB".into())
        );
    }

    #[test]
    fn spans_by_their_size() {
        let shown =
            [5, 200, 3_200, 60_000, 7_500_000].map(|ms| about_time(Duration::from_millis(ms)));
        assert_eq!(shown, ["5 ms", "200 ms", "3.2 s", "1 min 0 s", "2 h 5 min"]);
    }

    #[test]
    fn rates_with_their_interval() {
        assert_eq!(about_rate(903.0, 1238.4, 1699.0), "1,240 /s (900..1,700)");
        assert_eq!(about_rate(0.0, 0.5, 2.0), "0.5 /s (0..2)");
        assert_eq!(about_rate(0.000_12, 0.001_236, 0.0151), "0.00124 /s (0.00012..0.015)");
        assert_eq!(about_rate(0.000_001_2, 9.996, 1_250_000.0), "10 /s (1.2e-6..1,300,000)");
    }

    #[test]
    fn shares_in_four_characters() {
        let shown = [0.0, 2.79e-4, 0.128, 0.5, 1.0].map(short_share);
        assert_eq!(shown, ["0", "3e-4", "0.13", "0.5", "1"]);
    }

    proptest! {
        #[test]
        fn printed_sizes_and_times_are_read_back(bytes: u64, nanos in 0u64..1 << 62) {
            prop_assert_eq!(size(&exact_size(bytes)), Ok(bytes));
            let span = Duration::from_nanos(nanos);
            prop_assert_eq!(time(&exact_time(span)), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = (size(&text), address(&text), rate(&text), time(&text), share(&text));
            let _ = range(&text, address, 0..u64::MAX);
        }
    }
}
