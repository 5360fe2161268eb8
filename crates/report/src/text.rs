//! Pieces of text reports: dates, shortened names, bars.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Two names in `width` characters, each with its end; `second` may be empty. Both have at least
/// half of the room.
pub(crate) fn two(first: &str, second: &str, width: usize) -> String {
    if second.is_empty() {
        return tail(first, width);
    }
    let room = width.saturating_sub(1);
    let [long, short] = [first, second].map(|name| name.chars().count());
    let first = tail(first, room.saturating_sub(short).max(room / 2));
    let second = tail(second, room.saturating_sub(long).max(room - room / 2));
    format!("{first} {second}")
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
    use std::time::Duration;

    #[test]
    fn dates_with_leap_years() {
        let day = |days: u64| date(UNIX_EPOCH + Duration::from_secs(days * 86_400 + 3_661));
        assert_eq!(day(0), "1970-01-01 01:01:01 UTC");
        assert_eq!(day(11_016), "2000-02-29 01:01:01 UTC");
        assert_eq!(day(11_017), "2000-03-01 01:01:01 UTC");
        assert_eq!(day(20_818), "2026-12-31 01:01:01 UTC");
    }

    #[test]
    fn two_names_share_the_room() {
        assert_eq!(two("[heap]", "", 4), "…ap]");
        assert_eq!(two("[heap]", "redis[100]", 17), "[heap] redis[100]");
        assert_eq!(two("[heap]", "redis[100]", 15), "[heap] …is[100]");
        assert_eq!(two("/usr/lib/libc.so.6", "postgres[4711]", 21), "…libc.so.6 …res[4711]");
        assert_eq!(two("/usr/lib/libc.so.6", "sh[4711]", 19), "…libc.so.6 sh[4711]");
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
