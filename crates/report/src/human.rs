//! Numbers for people.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `1.5 GiB`: three digits at most before the point, one behind it where it matters.
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

/// `12.5 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `2026-11-20 16:14:02 UTC`.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = tierscope_record::civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The tail of `text` in at most `width` characters: of a path, the end tells more.
pub(crate) fn tail(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.into();
    }
    let kept: String = text.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{kept}")
}

/// A bar of `width` characters for `most`: `part` as `#`, what `all` has beyond it as `-`.
pub(crate) fn bar(part: u64, all: u64, most: u64, width: usize) -> String {
    let length = |bytes: u64| {
        let share = bytes as f64 / most.max(1) as f64 * width as f64;
        // What is there is seen.
        (share.round() as usize).max(usize::from(bytes > 0)).min(width)
    };
    let (part, all) = (length(part), length(all));
    format!("{}{}", "#".repeat(part), "-".repeat(all.saturating_sub(part)))
}

/// A reader who has seen enough closes the pipe; that is no failure.
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
