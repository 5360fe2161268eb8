//! Sizes and times as people write them: `10GiB`, `4096`, `200ms`.

use std::time::Duration;

const SIZES: [(&str, u64); 11] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
];

const TIMES: [(&str, u64); 6] = [
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("s", 1_000_000_000),
];

/// Bytes: a number with `B`, `kB`, `MB`, `GB`, `TB` (powers of 1000), `KiB`, `MiB`, `GiB`, `TiB`
/// or `K`, `M`, `G`, `T` (powers of 1024); plain numbers are bytes.
///
/// # Errors
/// Says what is wrong.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit = SIZES.iter().chain(&[("K", 1 << 10), ("B", 1)]);
    let found = unit.copied().find_map(|(name, scale)| Some((text.strip_suffix(name)?, scale)));
    let (number, scale) = found.unwrap_or((text, 1));
    scaled(number, scale).ok_or_else(|| {
        format!("`{text}` is not a size: write bytes, or a number with KiB, MiB, GiB or TiB")
    })
}

/// A time: a number with `ns`, `us`, `ms`, `s`, `min` or `h`.
///
/// # Errors
/// Says what is wrong.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let found = TIMES.iter().find_map(|(name, scale)| Some((text.strip_suffix(name)?, *scale)));
    found
        .and_then(|(number, scale)| scaled(number, scale))
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is not a time: write a number with ms, s, min or h"))
}

/// Whole numbers exactly, others to the nearest unit.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let number = number.trim().replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let value = number.parse::<f64>().ok()? * scale as f64;
    (0.0..9e18).contains(&value).then_some(value.round() as u64)
}

/// The shortest exact form of a size.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let exact =
        SIZES[..4].iter().find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
    exact.map_or_else(|| bytes.to_string(), |(name, scale)| format!("{}{name}", bytes / scale))
}

/// A size for people: three digits are enough.
#[must_use]
pub fn about_bytes(bytes: u64) -> String {
    let unit = SIZES[..4].iter().find(|(_, scale)| bytes >= *scale);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(name, scale)| format!("{:.1} {name}", bytes as f64 / *scale as f64),
    )
}

/// The shortest exact form of a time.
#[must_use]
pub fn format_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];
    let (name, scale) =
        units.into_iter().find(|(_, scale)| nanos.is_multiple_of(*scale)).unwrap_or(units[3]);
    format!("{}{name}", nanos / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_in_both_systems() {
        assert_eq!(parse_bytes("10GiB"), Ok(10 << 30));
        assert_eq!(parse_bytes(" 1.5 KiB"), Ok(1536));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("10MB"), Ok(10_000_000));
        assert_eq!(parse_bytes("10_000B"), Ok(10_000));
        assert!(parse_bytes("ten").unwrap_err().contains("`ten` is not a size"));
        assert!(parse_bytes("-1").is_err());
        assert!(parse_bytes("99999999TiB").is_err());
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("200us"), Ok(Duration::from_micros(200)));
        assert!(parse_time("5").is_err());
        assert!(parse_time("NaNs").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes: u64, nanos: u64) {
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
            let time = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_time(&format_time(time)), Ok(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = (parse_bytes(&text), parse_time(&text));
        }
    }
}
