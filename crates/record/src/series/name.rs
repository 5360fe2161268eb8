//! Names of a series' recordings: their start in UTC, so that names sort by time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 86_400_000;

/// `20261120T191500.123Z`. Times before 1970 are mapped to 1970.
pub(super) fn name(began: SystemTime) -> String {
    let millis = began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let (year, month, day) = civil(millis / DAY_MS);
    let (seconds, milli) = (millis % DAY_MS / 1000, millis % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{milli:03}Z")
}

/// Start of the recording of that name; `None` for any other name.
pub(super) fn began(text: &str) -> Option<SystemTime> {
    let shape = text.bytes().map(|b| if b.is_ascii_digit() { b'0' } else { b });
    if !shape.eq("00000000T000000.000Z".bytes()) {
        return None;
    }
    let part = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let days = days(part(0, 4)?, part(4, 6)?, part(6, 8)?)?;
    let seconds = part(9, 11)? * 3600 + part(11, 13)? * 60 + part(13, 15)?;
    let time = UNIX_EPOCH + Duration::from_millis(days * DAY_MS + seconds * 1000 + part(16, 19)?);
    // Rejects dates like the 31st of February.
    (name(time) == text).then_some(time)
}

/// Year, month and day of the Gregorian calendar, in UTC. Years are counted from March, so that the
/// leap day is the last of its year; 400 years have 146,097 days.
pub fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day_of_month) } else { (year + 1, month - 9, day_of_month) }
}

/// The inverse of [`civil`]; `None` before 1970 and for invalid dates.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (era, year) = (year / 400, year % 400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day = 365 * year + year / 4 - year / 100 + day_of_year;
    (era * 146_097 + day).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_a_date() {
        let time = UNIX_EPOCH + Duration::from_millis(1_795_202_100_123);
        assert_eq!(name(time), "20261120T191500.123Z");
        assert_eq!(began("20261120T191500.123Z"), Some(time));
        assert_eq!(name(UNIX_EPOCH), "19700101T000000.000Z");
        assert_eq!(name(UNIX_EPOCH + Duration::from_secs(11_016 * 86_400)), "20000229T000000.000Z");
    }

    #[test]
    fn other_names_are_no_members() {
        for other in [
            "lock",
            "",
            "20261120T191500.123",
            "20260231T000000.000Z",
            "20261320T000000.000Z",
            "20261120T250000.000Z",
            "00000120T000000.000Z",
            "2026112é191500.123Z",
            ".removing-20261120T191500.123Z",
        ] {
            assert_eq!(began(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn names_are_parsed_back_and_sort_by_time(a in 0u64..253_402_300_800_000, b in 0u64..253_402_300_800_000) {
            let time = |millis| UNIX_EPOCH + Duration::from_millis(millis);
            prop_assert_eq!(began(&name(time(a))), Some(time(a)));
            prop_assert_eq!(a.cmp(&b), name(time(a)).cmp(&name(time(b))));
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in ".{0,24}") {
            let _ = began(&text);
        }
    }
}
