//! Numbers formatted for display.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `1.5 GiB`: at most three digits before the point, and one decimal where it is significant.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// `250 ms`, `3.2 s`, `12 min 5 s`, `2 h 5 min`.
pub(crate) fn duration(span: Duration) -> String {
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

/// `1,240 /s (900..1,700)`: three digits of the estimate, two of its bounds.
pub(crate) fn rate(low: f64, mean: f64, high: f64) -> String {
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
    let rest = rest.trim_end_matches('0').trim_end_matches('.');
    format!("{}{rest}", grouped(whole))
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

/// A share as a percentage: `12.5 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Date and time in UTC: `2026-11-20 16:14:02 UTC`.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = tierscope_record::civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The last `width` characters of `text`: the end of a path is its significant part.
pub(crate) fn tail(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.into();
    }
    let kept: String = text.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{kept}")
}

/// A bar chart of `width` characters for `most`: `part` as `#`, the rest of `all` as `-`.
pub(crate) fn bar(part: u64, all: u64, most: u64, width: usize) -> String {
    let length = |bytes: u64| {
        let share = bytes as f64 / most.max(1) as f64 * width as f64;
        // A value above zero gets at least one character.
        (share.round() as usize).max(usize::from(bytes > 0)).min(width)
    };
    let (part, all) = (length(part), length(all));
    format!("{}{}", "#".repeat(part), "-".repeat(all.saturating_sub(part)))
}

/// Ignores a closed pipe: a reader that has seen enough is not a failure.
pub(crate) fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_binary_units() {
        let shown = [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1, 5 << 40].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "1 GiB", "5 TiB"]);
        assert_eq!(bytes(u64::MAX), "16 EiB");
    }

    #[test]
    fn spans_by_their_size() {
        let shown =
            [5, 200, 3_200, 60_000, 7_500_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(shown, ["5 ms", "200 ms", "3.2 s", "1 min 0 s", "2 h 5 min"]);
    }

    #[test]
    fn rates_with_their_interval() {
        assert_eq!(rate(903.0, 1238.4, 1699.0), "1,240 /s (900..1,700)");
        assert_eq!(rate(0.0, 0.5, 2.0), "0.5 /s (0..2)");
        assert_eq!(rate(0.000_12, 0.001_236, 0.0151), "0.00124 /s (0.00012..0.015)");
        assert_eq!(rate(0.000_001_2, 9.996, 1_250_000.0), "10 /s (1.2e-6..1,300,000)");
    }

    #[test]
    fn dates_with_leap_years() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 3_661));
        assert_eq!(day(0), "1970-01-01 01:01:01 UTC");
        assert_eq!(day(11_016), "2000-02-29 01:01:01 UTC");
        assert_eq!(day(11_017), "2000-03-01 01:01:01 UTC");
        assert_eq!(day(20_818), "2026-12-31 01:01:01 UTC");
    }

    #[test]
    fn bars_show_the_least() {
        assert_eq!(bar(1, 4, 8, 8), "#---");
        assert_eq!(bar(1, 1_000, 1_000, 8), "#-------");
        assert_eq!(bar(0, 0, 0, 8), "");
    }

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(tail("/usr/lib/libc.so.6", 10), "…libc.so.6");
        assert_eq!(tail("[heap]", 10), "[heap]");
    }
}
